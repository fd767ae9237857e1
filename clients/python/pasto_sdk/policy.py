"""Published policy: draws the candidate of a unit, and is made from shares of traffic."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import accumulate, groupby
from math import inf, log
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypedDict

from pasto_sdk.enrolment import (
    NO_ATTRIBUTES,
    Attributes,
    AudienceCondition,
    EnrolmentSlice,
    SegmentRule,
    is_in_audience,
    plain_numbers,
    read_cluster,
)
from pasto_sdk.errors import InputError, PolicyError
from pasto_sdk.policy_document import (
    BUCKET_TOTAL,
    FORMAT,
    Bucket,
    Candidates,
    PolicyDocument,
    read_policy,
    write_policy,
)

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

MAX_UNIT_CHARACTERS = 256

_first_64_bits = Struct(">Q").unpack_from

_SPARE = 64 - 53

_WHOLE = float(BUCKET_TOTAL)

_OF_AUDIENCE: Attributes = MappingProxyType({})
"""Attributes of a unit that is known to be in the audience; compared by identity."""


class WrittenCell(TypedDict):
    """Cell as a document writes it."""

    arm: str
    candidate: int
    until: int


@dataclass(frozen=True, slots=True)
class StickyCandidate:
    """Candidate that competes for the units of its arm, in sticky mode."""

    start: Hash
    """Hash of salt and name; each draw continues from a copy."""
    width: float
    cell: Bucket


HashLine = tuple[tuple[int, ...], tuple[Bucket | tuple[StickyCandidate, ...], ...]]
"""Sections of [0, 2^53): the end of each, and its bucket or the candidates of its arm."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PublishedPolicy:
    """Immutable policy: the candidate of each unit, and its probability.

    Shuffled: the top 53 bits of SHA-256(salt ‖ 0x00 ‖ unit), both in UTF-8, are the unit's place in
    [0, 2^53), and the bucket at that place is its own. Another salt is another, independent, shuffle.

    Sticky: the place chooses the arm only. Within an arm each candidate gets a place of its own, h, from
    SHA-256(salt ‖ 0x00 ‖ name ‖ 0x00 ‖ unit), and the smallest −ln((h + ½)/2^53)/width wins, the earlier bucket on
    a tie: a unit moves only if its own candidate shrank or another one grew.

    A unit that is not in every slice of `enrolment`, or whose attributes do not meet `audience`, gets `not_enrolled`.
    With `segments`, the attributes of a unit decide on its segment, and it is drawn from the buckets of this segment.

    With `cluster`, the value of that attribute is hashed instead of the unit, so all units of a cluster get the same
    bucket. A unit without the attribute gets `not_enrolled`.

    >>> from pasto_sdk.policy import publish_policy
    >>> policy = publish_policy(study="feed", version=1, round=1, state="learning", mode="shuffled", salt="feed/1",
    ...                  candidates={0: ("a", {"weight": 1}), 1: ("b", {"weight": 2})}, baseline=0,
    ...                  shares=[("control", 0, 0.125), ("learner", 0, 0.375), ("learner", 1, 0.5)],
    ...                  valid_from=0, expires_after=86400)
    >>> cell = policy.draw("user 7")
    >>> cell.arm, cell.name, dict(cell.values), cell.propensity
    ('learner', 'b', {'weight': 2}, 0.5)
    >>> PublishedPolicy.from_text(policy.text, policy.checksum).draw("user 7") == cell
    True
    """

    study: str
    version: int
    round: int
    state: str
    """State of the study when the policy was published."""
    mode: Literal["shuffled", "sticky"]
    salt: str
    baseline: Bucket
    """Baseline as a fallback: arm "none", propensity 0."""
    named: Mapping[str, Bucket]
    """Candidates by name, as an override serves them: arm "none", propensity 0."""
    cells: tuple[Bucket, ...]
    """Buckets whose widths sum to BUCKET_TOTAL; those of one arm are neighbours.

    With segments, these are the buckets of the segment "other".
    """
    valid_from: float
    """In seconds since 1970."""
    expires_after: float
    """Seconds that a client may draw from it after its last contact with the service."""
    signed: bool
    """True if the study accepts only signed exposures."""
    enrolment: tuple[EnrolmentSlice, ...]
    """Slices of the units that take part; empty if all do."""
    audience: tuple[AudienceCondition, ...]
    """Conditions on the attributes of the units that take part; empty if there are none."""
    segments: SegmentRule | None
    """Rule by which attributes decide on a unit's segment; None without segments."""
    cells_by_segment: Mapping[str, tuple[Bucket, ...]]
    """Buckets by segment, "other" last; empty without segments."""
    cluster: str | None
    """Attribute with the cluster of a unit, which is drawn instead of the unit; None if units are drawn."""
    not_enrolled: Bucket
    """Baseline for units that do not take part: arm "not_enrolled", width and propensity 0."""
    text: str
    """The document as published."""
    checksum: str
    """SHA-256 of the text, in hexadecimal."""
    reads_attributes: bool = field(init=False)
    """True if the bucket of a unit also depends on its attributes."""
    _start: Hash = field(init=False)
    """Hash of the salt; each draw continues from a copy."""
    _line: HashLine = field(init=False)
    """The hash line of `cells`."""
    _lines: Mapping[str, HashLine] = field(init=False)
    """The hash lines of `cells_by_segment`."""
    _slices: tuple[tuple[Hash, int, int], ...] = field(init=False)
    """Hash of the salt, start and end of each slice of `enrolment`."""
    is_partial: bool = field(init=False)
    """True if the policy has an enrolment, an audience or clusters, so some units do not take part."""

    def __post_init__(self) -> None:
        start = sha256(self.salt.encode() + b"\0")
        lines = {name: _hash_line(cells, self.mode, start) for name, cells in self.cells_by_segment.items()}
        slices = tuple((sha256(part.salt.encode() + b"\0"), part.start, part.until) for part in self.enrolment)
        is_partial = bool(self.enrolment or self.audience or self.cluster)
        values = {
            "reads_attributes": bool(self.audience or self.segments or self.cluster),
            "is_partial": is_partial,
            "_start": start,
            "_line": _hash_line(self.cells, self.mode, start),
            "_lines": lines,
            "_slices": slices,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_text(cls, text: str | bytes, checksum: str | None = None) -> PublishedPolicy:
        """Read and check a document; a given checksum must be that of the text.

        >>> PublishedPolicy.from_text('{"format": 3}')
        Traceback (most recent call last):
        pasto_sdk.errors.PolicyError: format is 3 and only 1 and 2 can be read here; upgrade pasto to read a newer one
        """
        return cls._of(read_policy(text, checksum))

    @classmethod
    def _of(cls, document: PolicyDocument) -> PublishedPolicy:
        named = {
            name: Bucket("none", index, name, values, 0, 0.0) for index, (name, values) in document.candidates.items()
        }
        baseline = named[document.candidates[document.baseline][0]]
        return cls(
            study=document.study,
            version=document.version,
            round=document.round,
            state=document.state,
            mode=document.mode,
            salt=document.salt,
            baseline=baseline,
            named=MappingProxyType(named),
            cells=document.cells,
            valid_from=document.valid_from,
            expires_after=document.expires_after,
            signed=document.signed,
            enrolment=document.enrolment,
            audience=document.audience,
            segments=document.segments,
            cells_by_segment=document.cells_by_segment,
            cluster=document.cluster,
            not_enrolled=replace(baseline, arm="not_enrolled"),
            text=document.text,
            checksum=document.checksum,
        )

    @property
    def bucket_count(self) -> int:
        """Number of buckets, of all segments together."""
        return sum(map(len, self.cells_by_segment.values())) or len(self.cells)

    def draw(self, unit: str, attributes: Attributes = NO_ATTRIBUTES, segment: str | None = None) -> Bucket:
        """Return the bucket of a unit: always the same for the same unit and attributes.

        A unit is a string of 1 to 256 characters. A unit that does not take part gets `not_enrolled`. `segment` is a
        segment of this policy that counts instead of the one that the attributes decide on.
        """
        try:
            encoded = unit.encode()
            hashed = self._start.copy()
            hashed.update(encoded)
            if not 0 < len(unit) <= MAX_UNIT_CHARACTERS:
                raise _unit_error(unit)
        except (AttributeError, TypeError, UnicodeEncodeError):
            raise _unit_error(unit) from None
        if self.is_partial:
            if self.cluster is not None and attributes is not _OF_AUDIENCE:
                cluster = self.find_cluster(attributes)
                if cluster is None:
                    return self.not_enrolled
                encoded = cluster.encode()
                hashed = self._start.copy()
                hashed.update(encoded)
            if not self._takes_part(encoded, attributes):
                return self.not_enrolled
        if self.segments is None:
            ends, entries = self._line
        else:
            ends, entries = self._lines[segment or self.segments.find_segment(attributes)]
        entry = entries[bisect_right(ends, _first_64_bits(hashed.digest())[0] >> _SPARE)]
        return entry if isinstance(entry, Bucket) else _winner(entry, encoded)

    def find_cluster(self, attributes: Attributes) -> str | None:
        """Return the cluster of a unit; None if the policy has no clusters, or the attributes name none."""
        return None if self.cluster is None else read_cluster(attributes.get(self.cluster))

    def redraw(self, unit: str, segment: str | None = None) -> Bucket:
        """Return the bucket of a unit whose attributes met the audience, and were of a segment, when it was drawn.

        If the policy has clusters, `unit` is the cluster.

        The service checks exposures in this way, because events have no attributes. InputError unless the segment is
        one of the policy, or None for a policy without segments.
        """
        if segment not in self.cells_by_segment and (segment is not None or self.segments is not None):
            raise _segment_error(segment, self)
        return self.draw(unit, _OF_AUDIENCE, segment)

    def draw_many(self, units: Iterable[str], attributes: Attributes = NO_ATTRIBUTES) -> list[Bucket]:
        """Return the bucket of each unit, in order; the attributes are those of all of them."""
        draw = self.draw
        return [draw(unit, attributes) for unit in units]

    def _takes_part(self, unit: bytes, attributes: Attributes) -> bool:
        """Return whether attributes meet the audience, and the unit is in every slice of the enrolment."""
        if attributes is not _OF_AUDIENCE and not is_in_audience(self.audience, attributes):
            return False
        for start_of_hash, start, until in self._slices:
            hashed = start_of_hash.copy()
            hashed.update(unit)
            if not start <= _first_64_bits(hashed.digest())[0] >> _SPARE < until:
                return False
        return True

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, PublishedPolicy) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.checksum)

    def __reduce__(self) -> tuple[object, ...]:
        return PublishedPolicy.from_text, (self.text, self.checksum)

    def __repr__(self) -> str:
        divided = f" in {len(self.cells_by_segment)} segments" if self.segments else ""
        served = f"{self.state}, {self.mode}, {self.bucket_count} buckets{divided}"
        return f"<PublishedPolicy {self.study!r} version {self.version}: {served}>"


def _arms(cells: Iterable[Bucket], start: Hash) -> tuple[Bucket | tuple[StickyCandidate, ...], ...]:
    """Return each arm as its competing candidates, or as its bucket if it has only one."""
    arms: list[Bucket | tuple[StickyCandidate, ...]] = []
    for _, group in groupby(cells, lambda cell: cell.arm):
        own = tuple(group)
        arms.append(own[0] if len(own) == 1 else tuple(_sticky_candidate(cell, start) for cell in own))
    return tuple(arms)


def _sticky_candidate(cell: Bucket, start: Hash) -> StickyCandidate:
    hashed = start.copy()
    hashed.update(cell.name.encode() + b"\0")
    return StickyCandidate(hashed, float(cell.width), cell)


def _width(entry: Bucket | tuple[StickyCandidate, ...]) -> int:
    return entry.width if isinstance(entry, Bucket) else sum(candidate.cell.width for candidate in entry)


def _hash_line(cells: tuple[Bucket, ...], mode: str, start: Hash) -> HashLine:
    entries = cells if mode == "shuffled" else _arms(cells, start)
    return tuple(accumulate(_width(entry) for entry in entries)), entries


def _winner(candidates_of_arm: tuple[StickyCandidate, ...], unit: bytes) -> Bucket:
    """Return the bucket that wins a unit; each candidate's chance is its part of the arm's width."""
    best, winner = inf, candidates_of_arm[0]
    for candidate in candidates_of_arm:
        hashed = candidate.start.copy()
        hashed.update(unit)
        score = -log(((_first_64_bits(hashed.digest())[0] >> _SPARE) + 0.5) / _WHOLE) / candidate.width
        if score < best:
            best, winner = score, candidate
    return winner.cell


def _unit_error(unit: object) -> InputError:
    """Return the error for a unit that is not valid."""
    if not isinstance(unit, str):
        return InputError(f"a unit must be a string, got {unit!r} ({type(unit).__name__}); use str(...) on a number")
    if not unit:
        return InputError("a unit must have at least one character, got ''; leave out units without an id")
    if len(unit) > MAX_UNIT_CHARACTERS:
        return InputError(
            f"a unit must have at most {MAX_UNIT_CHARACTERS} characters, got {len(unit)} ({unit[:20]!r}...); "
            "use a hash of it instead"
        )
    return InputError(f"the unit {unit!r} holds half a surrogate pair; decode it as UTF-8 first")


def _segment_error(segment: str | None, policy: PublishedPolicy) -> InputError:
    """Return the error for a segment that a policy does not have."""
    if policy.segments is None:
        return InputError(f"segment is {segment!r:.60}, and version {policy.version} has no segments; leave it out")
    had = "missing" if segment is None else f"{segment!r:.60}"
    names = ", ".join(policy.cells_by_segment)
    cure = "send the segment of the decision"
    return InputError(f"segment is {had}, and version {policy.version} has {names:.200}; {cure}")


TOLERANCE = 1e-9
"""Largest distance of the sum of the shares from one."""

_SCALE = 1074
"""Every float is an integer multiple of 2^−1074."""


Share = tuple[str, int, float]
"""Arm, candidate and share of traffic."""


def publish_policy(
    *,
    study: str,
    version: int,
    round: int,
    state: str,
    mode: Literal["shuffled", "sticky"],
    salt: str,
    candidates: Candidates,
    baseline: int,
    shares: Sequence[Share],
    valid_from: float,
    expires_after: float,
    signed: bool = False,
    enrolment: Sequence[EnrolmentSlice] = (),
    audience: Sequence[AudienceCondition] = (),
    segments: SegmentRule | None = None,
    segment_shares: Mapping[str, Sequence[Share]] = MappingProxyType({}),
    cluster: str | None = None,
) -> PublishedPolicy:
    """Publish shares of traffic, (arm, candidate, share) each, as an immutable policy.

    Shares sum to one; zero shares are left out, and any positive one is given at least one part of 2^53. The document
    holds the candidates that are served, and the baseline. With `signed`, it asks for signed exposures. `enrolment` and
    `audience` name the units that take part; the shares are shares of those. With `segments`, `segment_shares` has the
    shares of each segment of the rule, and `shares` those of the segment "other". `cluster` is the attribute that is
    drawn instead of the unit.

    >>> policy = publish_policy(study="feed", version=3, round=3, state="deployed", mode="sticky", salt="feed",
    ...                  candidates={0: ("a", {"weight": 1}), 1: ("b", {"weight": 2})}, baseline=0,
    ...                  shares=[("control", 0, 0.25), ("blend", 0, 0.5), ("blend", 1, 0.25)],
    ...                  valid_from=0, expires_after=86400)
    >>> [(cell.arm, cell.name, cell.propensity) for cell in policy.cells]
    [('control', 'a', 0.25), ('blend', 'a', 0.5), ('blend', 'b', 0.25)]
    """
    if segments is None and segment_shares:
        raise PolicyError("segment_shares need segments, the rule that decides on a unit's segment")
    names = () if segments is None else segments.names
    if set(names) != set(segment_shares):
        raise PolicyError(f"segment_shares must have {', '.join(names)}, got {', '.join(map(str, segment_shares))}")
    cells, *of_segments = (
        _write_cells(part, candidates) for part in (shares, *(segment_shares[name] for name in names))
    )
    if baseline not in candidates:
        raise PolicyError(f"baseline is {baseline!r}, which is not among the candidates")
    indexes = sorted({baseline, *(cell["candidate"] for served in (cells, *of_segments) for cell in served)})
    document = {
        "format": FORMAT,
        "study": study,
        "version": version,
        "round": round,
        "state": state,
        "mode": mode,
        "salt": salt,
        "baseline": baseline,
        "candidates": [
            {"index": index, "name": candidates[index][0], "values": dict(candidates[index][1])} for index in indexes
        ],
        "cells": cells,
        "valid_from": valid_from,
        "expires_after": expires_after,
        **({"signed": True} if signed else {}),
        **({"enrolment": [_slice_fields(part) for part in enrolment]} if enrolment else {}),
        **({"audience": [_condition_fields(condition) for condition in audience]} if audience else {}),
        **({"segments": _segment_fields(segments, of_segments)} if segments else {}),
        **({"cluster": cluster} if cluster is not None else {}),
    }
    try:
        text = write_policy(document)
    except (TypeError, ValueError) as error:
        raise PolicyError(f"the policy cannot be written as JSON: {error}") from error
    return PublishedPolicy.from_text(text)


def _slice_fields(part: EnrolmentSlice) -> dict[str, object]:
    return {"kind": part.kind, "salt": part.salt, "from": part.start, "until": part.until}


def _write_cells(shares: Sequence[Share], candidates: Candidates) -> list[WrittenCell]:
    """Return shares of traffic as the cells of a document."""
    for arm, candidate, share in shares:
        _check(arm, candidate, share, candidates)
    served = [(arm, candidate, share) for arm, candidate, share in shares if share > 0]
    total = math.fsum(share for _, _, share in served)
    if not abs(total - 1) <= TOLERANCE:
        raise PolicyError(f"the shares must sum to one, and these {len(served)} sum to {total!r}; divide them by it")
    ends = accumulate(bucket_widths([share for _, _, share in served]))
    return [
        {"arm": arm, "candidate": int(candidate), "until": until}
        for (arm, candidate, _), until in zip(served, ends, strict=True)
    ]


def _condition_fields(condition: AudienceCondition) -> dict[str, object]:
    values = plain_numbers(condition.values)
    return {"attribute": condition.attribute, "operator": condition.operator, "values": values}


def _segment_fields(rule: SegmentRule, of_segments: Sequence[list[WrittenCell]]) -> dict[str, object]:
    attributes = [
        {
            "attribute": part.attribute,
            **({"cuts": plain_numbers(part.cuts)} if part.cuts else {"values": plain_numbers(part.values)}),
        }
        for part in rule.attributes
    ]
    cells = zip(rule.names, of_segments, strict=True)
    return {"attributes": attributes, "distributions": [{"name": name, "cells": listed} for name, listed in cells]}


def bucket_widths(shares: Sequence[float], width_total: int = BUCKET_TOTAL) -> list[int]:
    """Return integers that sum to `width_total`, each at least 1 and within one of its share: largest remainders first.

    The result is exact on every machine, because it uses integers only; equal remainders keep the given order. Only
    shares below one part, which are raised to one part each, can cost the others more than one.

    >>> [width / BUCKET_TOTAL for width in bucket_widths([0.5, 0.25, 0.25])]
    [0.5, 0.25, 0.25]
    >>> sum(bucket_widths([1 / 3, 1 / 3, 1 / 3])) == BUCKET_TOTAL
    True
    >>> bucket_widths([0.5, 0.4999, 0.0001], width_total=100)
    [50, 49, 1]
    """
    exact = []
    for share in shares:
        numerator, denominator = float(share).as_integer_ratio()
        exact.append(numerator * (2**_SCALE // denominator))
    total = sum(exact)
    parts = [max(1, part * width_total // total) for part in exact]
    # Shortfall of each from its exact width, in units of 1/total: negative if it was raised to 1.
    short = [part * width_total - width * total for part, width in zip(exact, parts, strict=True)]
    missing = width_total - sum(parts)
    if missing >= 0:
        for place in sorted(range(len(parts)), key=lambda place: -short[place])[:missing]:
            parts[place] += 1
        return parts
    while missing:
        givers = sorted((place for place in range(len(parts)) if parts[place] > 1), key=lambda place: short[place])
        for place in givers[:-missing]:
            parts[place] -= 1
            missing += 1
    return parts


def _check(arm: object, candidate: object, share: object, candidates: Mapping[int, object]) -> None:
    place = f"the share of candidate {candidate!r} in arm {arm!r}"
    if candidate not in candidates:
        raise PolicyError(f"{place} names a candidate that is not among the {len(candidates)} given")
    if isinstance(share, bool) or not isinstance(share, (int, float)):
        raise PolicyError(f"{place} must be a number, got {share!r}")
    if not 0 <= share <= 1 + TOLERANCE:
        raise PolicyError(f"{place} must lie between 0 and 1, got {share!r}")
