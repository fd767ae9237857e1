"""Policy documents: the JSON form of a published policy, its buckets, and their checks."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Literal, NoReturn, cast

from pasto_sdk.enrolment import (
    OTHER_SEGMENT,
    SLICE_KINDS,
    AudienceCondition,
    EnrolmentSlice,
    SegmentAttribute,
    SegmentRule,
)
from pasto_sdk.errors import PolicyError

Value = float | int | str | bool
"""One parameter's value: a number, or a choice's label."""

BUCKET_TOTAL = 2**53
"""Sum of all bucket widths; every integer up to it is exact in a double, in every language."""

ARMS = ("control", "learner", "not_enrolled", "best_single", "blend", "paused")
"""Arms of the traffic.

control: the baseline, for comparison; learner: the policy that the learner proposes; not_enrolled: units that take no
part in the exploration; best_single and blend: the answers that are confirmed; paused: all units of a paused study.
"""

RENAMED_ARMS = MappingProxyType({"outside": "not_enrolled", "single": "best_single", "held": "paused"})
"""Arms by their names in format 1."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Candidate within an arm, and its width out of 2^53.

    >>> Bucket(arm="learner", candidate=0, name="a", values={"weight": 2}, width=2**52, propensity=0.5).propensity
    0.5
    """

    arm: str
    """One of ARMS; "none" for a fallback or an override, which are not drawn."""
    candidate: int
    """Its index in the study."""
    name: str
    values: Mapping[str, Value]
    width: int
    """Out of BUCKET_TOTAL; 0 if it is not drawn."""
    propensity: float
    """width / BUCKET_TOTAL, exact: the probability of this arm and candidate together, in its segment."""
    segment: str | None = None
    """Segment whose units draw it; None if the policy has no segments, or if it is not drawn."""


FORMAT = 2
"""Format of the documents that are written; format 1 is read too, and has other names of arms."""

_OWN_CHECKSUM = re.compile(rb',"sha256":"([0-9a-f]{64})"\}\Z')

Candidates = Mapping[int, tuple[str, Mapping[str, Value]]]
"""Name and values by index."""


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """Fields of a policy document, checked."""

    study: str
    version: int
    round: int
    state: str
    mode: Literal["shuffled", "sticky"]
    salt: str
    baseline: int
    candidates: Candidates
    cells: tuple[Bucket, ...]
    """Buckets of all units; with segments, those of the segment "other"."""
    valid_from: float
    expires_after: float
    signed: bool
    enrolment: tuple[EnrolmentSlice, ...]
    audience: tuple[AudienceCondition, ...]
    segments: SegmentRule | None
    cells_by_segment: Mapping[str, tuple[Bucket, ...]]
    """Buckets by segment, "other" last; empty without segments."""
    cluster: str | None
    text: str
    checksum: str


def read_policy(text: str | bytes, checksum: str | None = None) -> PolicyDocument:
    """Read a document; raise PolicyError with the name of the field that is wrong."""
    if not isinstance(text, (str, bytes)):
        raise PolicyError(f"a policy is read from text or bytes, got {_shorten(text)} ({type(text).__name__})")
    try:
        encoded = text.encode() if isinstance(text, str) else text
        decoded = encoded.decode()
    except UnicodeError as error:
        raise PolicyError(f"the policy is not UTF-8 text: {error}") from error
    found = sha256(encoded).hexdigest()
    if checksum is not None and checksum != found:
        raise PolicyError(
            f"the policy's checksum should be {checksum!r} and is {found!r}: it was changed or cut on the way"
        )
    own = _OWN_CHECKSUM.search(encoded)
    if own is not None and own[1] != sha256(encoded[: own.start()] + b"}").hexdigest().encode():
        raise PolicyError("the policy is not the text that its sha256 was made of: it was changed on its way")
    fields = _mapping(_parse(decoded), "the policy")
    if own is None and "sha256" in fields:
        raise PolicyError("sha256 must be the policy's last field, as published; pass the document on unchanged")
    arms = _arms(fields)
    candidates = _candidates(_list(fields, "candidates"))
    is_present = fields["format"] != 1
    segments, by_segment = _segments(fields.get("segments") if is_present else None, candidates, arms)
    cells = _cells(_list(fields, "cells"), candidates, arms, segment=OTHER_SEGMENT if segments else None)
    if segments is not None:
        by_segment[OTHER_SEGMENT] = cells
    enrolment = _enrolment(_optional_list(fields, "enrolment")) if is_present else ()
    audience = _audience(_optional_list(fields, "audience")) if is_present else ()
    cluster = _word(fields, "cluster") if is_present and fields.get("cluster") is not None else None
    if cluster is not None and segments is not None:
        raise PolicyError("cluster cannot be next to segments, which would divide clusters")
    drawn = (cell for served in (cells, *by_segment.values()) for cell in served)
    if (enrolment or audience or cluster) and any(cell.arm == "not_enrolled" for cell in drawn):
        raise PolicyError("cells have the arm 'not_enrolled' next to enrolment, audience or cluster, which replace it")
    baseline = _whole(fields, "baseline")
    if baseline not in candidates:
        raise PolicyError(f"baseline is {baseline}, which is not among the candidates")
    if (expires_after := _number(fields, "expires_after")) <= 0:
        raise PolicyError(f"expires_after is {expires_after:g}; it must be a positive number of seconds")
    return PolicyDocument(
        study=_word(fields, "study"),
        version=_whole(fields, "version"),
        round=_whole(fields, "round"),
        state=_word(fields, "state"),
        mode=_mode(fields),
        salt=_word(fields, "salt"),
        baseline=baseline,
        candidates=candidates,
        cells=cells,
        valid_from=_number(fields, "valid_from"),
        expires_after=expires_after,
        signed=_flag(fields, "signed"),
        enrolment=enrolment,
        audience=audience,
        segments=segments,
        cells_by_segment=MappingProxyType(by_segment),
        cluster=cluster,
        text=decoded,
        checksum=found,
    )


def write_policy(fields: Mapping[str, object]) -> str:
    """Return a document's canonical text: ASCII, no spaces, fields in the order given, then its checksum.

    >>> write_policy({"format": 1})[:36]
    '{"format":1,"sha256":"3f0a99256beeb8'
    """
    text = json.dumps(fields, separators=(",", ":"), allow_nan=False)
    return f'{text[:-1]},"sha256":"{sha256(text.encode()).hexdigest()}"}}'


def current_arm(name: str) -> str:
    """Return the present name of an arm that a document of format 1, or data of that time, may name.

    >>> current_arm("held"), current_arm("learner")
    ('paused', 'learner')
    """
    return RENAMED_ARMS.get(name, name)


def upgrade_policy(text: str) -> str:
    """Return a policy of format 1 as the present format writes it; any other policy stays as it is.

    >>> upgrade_policy('{"format":1,"cells":[{"arm":"held","candidate":0,"until":9}]}')[:56]
    '{"format":2,"cells":[{"arm":"paused","candidate":0,"unti'
    """
    fields = json.loads(text)
    if fields["format"] != 1:
        return text
    fields.pop("sha256", None)
    fields["format"] = FORMAT
    fields["cells"] = [{**cell, "arm": current_arm(cell["arm"])} for cell in fields["cells"]]
    return write_policy(fields)


def has_checksum(text: bytes) -> bool:
    """Return whether a document carries its own checksum, which `read_policy` verifies.

    >>> has_checksum(write_policy({"format": 1}).encode()), has_checksum(b'{"format":1}')
    (True, False)
    """
    return _OWN_CHECKSUM.search(text) is not None


def _arms(fields: dict[str, Any]) -> Mapping[str, str]:
    """Check the format, and return the present name of each arm that it allows."""
    format_ = _get(fields, "format", "format")
    if isinstance(format_, bool) or format_ not in (1, FORMAT) or not isinstance(format_, int):
        raise PolicyError(
            f"format is {format_!r} and only 1 and {FORMAT} can be read here; upgrade pasto to read a newer one"
        )
    if format_ == 1:
        former = {arm: name for name, arm in RENAMED_ARMS.items()}
        return {former.get(arm, arm): arm for arm in ARMS}
    return {arm: arm for arm in ARMS}


def _parse(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise PolicyError("the policy is not readable JSON: it is nested too deep") from None
    except ValueError as error:
        raise PolicyError(f"the policy is not JSON: {error}") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _mode(fields: dict[str, Any]) -> Literal["shuffled", "sticky"]:
    mode = _word(fields, "mode")
    if mode not in ("shuffled", "sticky"):
        raise PolicyError(f"mode is {mode!r}; it can be shuffled or sticky")
    return "sticky" if mode == "sticky" else "shuffled"


def _candidates(listed: list[object]) -> Candidates:
    candidates: dict[int, tuple[str, Mapping[str, Value]]] = {}
    names: set[str] = set()
    for place, item in enumerate(listed):
        where = f"candidates[{place}]"
        fields = _mapping(item, where)
        index = _whole(fields, "index", where)
        name = _word(fields, "name", where)
        if index in candidates or name in names:
            raise PolicyError(f"{where} repeats candidate {index} {name!r}; each index and name comes once")
        values = _mapping(_get(fields, "values", f"{where}.values"), f"{where}.values")
        for parameter, value in values.items():
            _check_value(parameter, value, f"{where}.values")
        candidates[index] = name, MappingProxyType(cast(dict[str, Value], values))
        names.add(name)
    return candidates


def _check_value(parameter: str, value: object, where: str) -> None:
    _check_text(parameter, f"a name in {where}")
    if isinstance(value, str):
        _check_text(value, f"{where}[{parameter!r}]")
    elif not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        raise PolicyError(f"{where}[{parameter!r}] is {value!r}; a value is a finite number, a string or a bool")


def _cells(
    listed: list[object],
    candidates: Candidates,
    arms: Mapping[str, str],
    where_listed: str = "cells",
    segment: str | None = None,
) -> tuple[Bucket, ...]:
    cells: list[Bucket] = []
    last = 0
    pairs: set[tuple[str, int]] = set()
    left: set[str] = set()
    for place, item in enumerate(listed):
        where = f"{where_listed}[{place}]"
        fields = _mapping(item, where)
        arm = _word(fields, "arm", where)
        candidate = _whole(fields, "candidate", where)
        until = _whole(fields, "until", where)
        if arm not in arms:
            raise PolicyError(f"{where}.arm is {arm!r}; the arms are {', '.join(arms)}")
        arm = arms[arm]
        if candidate not in candidates:
            raise PolicyError(f"{where}.candidate is {candidate}, which is not among the candidates")
        if (arm, candidate) in pairs:
            raise PolicyError(f"{where} repeats candidate {candidate} in arm {arm!r}; add its shares up instead")
        if cells and cells[-1].arm != arm:
            left.add(cells[-1].arm)
        if arm in left:
            raise PolicyError(f"{where} returns to arm {arm!r}; the cells of one arm must be neighbours")
        width = until - last
        if width <= 0:
            raise PolicyError(f"{where}.until is {until}, which is not above the cut before it; cuts must increase")
        name, values = candidates[candidate]
        pairs.add((arm, candidate))
        last = until
        cells.append(Bucket(arm, candidate, name, values, width, width / BUCKET_TOTAL, segment))
    if last != BUCKET_TOTAL:
        raise PolicyError(
            f"the last of {where_listed} ends at {last}; the cells must cover the line up to {BUCKET_TOTAL}"
        )
    return tuple(cells)


def _enrolment(listed: list[object]) -> tuple[EnrolmentSlice, ...]:
    slices = []
    for place, item in enumerate(listed):
        where = f"enrolment[{place}]"
        fields = _mapping(item, where)
        kind = _word(fields, "kind", where)
        start, until = _whole(fields, "from", where), _whole(fields, "until", where)
        if kind not in SLICE_KINDS:
            raise PolicyError(f"{where}.kind is {kind!r}; the kinds are {', '.join(SLICE_KINDS)}")
        if start >= until:
            raise PolicyError(f"{where} is from {start} until {until}, which no unit is in; until must be above from")
        slices.append(EnrolmentSlice(kind, _word(fields, "salt", where), start, until))
    return tuple(slices)


def _audience(listed: list[object]) -> tuple[AudienceCondition, ...]:
    conditions = []
    for place, item in enumerate(listed):
        where = f"audience[{place}]"
        fields = _mapping(item, where)
        attribute, operator = _word(fields, "attribute", where), _word(fields, "operator", where)
        values = _get(fields, "values", f"{where}.values")
        if not isinstance(values, list):
            raise PolicyError(f"{where}.values must be a JSON array, got {_shorten(values)}")
        conditions.append(AudienceCondition(attribute, operator, tuple(_plain_value(value, where) for value in values)))
    return tuple(conditions)


def _segments(
    given: object, candidates: Candidates, arms: Mapping[str, str]
) -> tuple[SegmentRule | None, dict[str, tuple[Bucket, ...]]]:
    """Return the rule of the segments, and the buckets of each except "other"."""
    if given is None:
        return None, {}
    segments = _mapping(given, "segments")
    attributes = []
    for place, item in enumerate(_list(segments, "attributes", "segments")):
        where = f"segments.attributes[{place}]"
        fields = _mapping(item, where)
        values, cuts = (
            tuple(_plain_value(value, where) for value in _list(fields, field, where))
            if fields.get(field) is not None
            else ()
            for field in ("values", "cuts")
        )
        attributes.append(SegmentAttribute(_word(fields, "attribute", where), values, cast(tuple[float, ...], cuts)))
    names = []
    cells_by_segment = {}
    for place, item in enumerate(_list(segments, "distributions", "segments")):
        where = f"segments.distributions[{place}]"
        fields = _mapping(item, where)
        name = _word(fields, "name", where)
        listed = _list(fields, "cells", where)
        cells_by_segment[name] = _cells(listed, candidates, arms, f"{where}.cells", name)
        names.append(name)
    return SegmentRule(tuple(attributes), tuple(names)), cells_by_segment


def _plain_value(value: object, where: str) -> float | str | bool:
    """Return a value of a condition, with every number as a double."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        _check_text(value, f"a value in {where}")
        return value
    if isinstance(value, (int, float)) and abs(value) <= sys.float_info.max:
        return float(value)
    raise PolicyError(f"{where}.values has {_shorten(value)}; a value is a finite number, a text or a boolean")


def _optional_list(fields: dict[str, Any], field: str) -> list[object]:
    """Return a list that may be missing or null; an empty one is not valid, because it could mean all or none."""
    if fields.get(field) is None:
        return []
    listed = _list(fields, field)
    if not listed:
        raise PolicyError(f"{field} is empty; leave it out if all units take part")
    return listed


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise PolicyError(f"{where} must be a JSON object, got {_shorten(value)}")
    return value


def _list(fields: dict[str, Any], field: str, where: str = "") -> list[object]:
    place = f"{where}.{field}" if where else field
    value = _get(fields, field, place)
    if not isinstance(value, list):
        raise PolicyError(f"{place} must be a JSON array, got {_shorten(value)}")
    return value


def _whole(fields: dict[str, Any], field: str, where: str = "") -> int:
    place = f"{where}.{field}" if where else field
    value = _get(fields, field, place)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= BUCKET_TOTAL:
        raise PolicyError(f"{place} must be a whole number from 0 to 2^53, got {_shorten(value)}")
    return value


def _number(fields: dict[str, Any], field: str) -> float:
    value = _get(fields, field, field)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= 1e15:
        raise PolicyError(f"{field} must be a number of seconds, got {_shorten(value)}")
    return float(value)


def _flag(fields: dict[str, Any], field: str) -> bool:
    value = fields.get(field, False)
    if not isinstance(value, bool):
        raise PolicyError(f"{field} must be true or false, got {_shorten(value)}")
    return value


def _word(fields: dict[str, Any], field: str, where: str = "") -> str:
    place = f"{where}.{field}" if where else field
    value = _get(fields, field, place)
    if not isinstance(value, str) or not value:
        raise PolicyError(f"{place} must be a text of at least one character, got {_shorten(value)}")
    if "\0" in value:
        raise PolicyError(
            f"{place} is {_shorten(value)}, which holds a NUL; it parts what is hashed, so no name has one"
        )
    _check_text(value, place)
    return value


def _check_text(value: str, place: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise PolicyError(
            f"{place} is {_shorten(value)}, which holds half a surrogate pair, which no text may"
        ) from None


def _get(fields: dict[str, Any], field: str, place: str) -> Any:
    try:
        return fields[field]
    except KeyError:
        raise PolicyError(f"{place} is missing from the policy") from None


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
