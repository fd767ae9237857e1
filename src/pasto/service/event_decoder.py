"""Events as they come over the wire: read strictly, each on its own, so that a bad one spoils no other."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import msgspec

from pasto.errors import InputError

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Unit = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Source = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Signature = Annotated[str, msgspec.Meta(min_length=64, max_length=64)]
Version = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Position = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Counts = Annotated[dict[Name, Count], msgspec.Meta(max_length=10_000)]
Field = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Text = Annotated[str, msgspec.Meta(max_length=1024)]
Fields = Annotated[dict[Field, int | float | Text | bool], msgspec.Meta(max_length=64)]


class ExposureEvent(
    msgspec.Struct, tag_field="type", tag="exposure", forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """A unit was served a candidate."""

    id: Id
    unit: Unit
    version: Version
    """Of the policy; 0 where a fallback knew none."""
    candidate: Name
    cluster: Unit | None = None
    """Value of the attribute by which the study assigns clusters."""
    fallback: bool = False
    override: bool = False
    signature: Signature | None = None
    """Checked if the study asks for it; see `pasto_sdk.exposure_signature.sign_exposure`."""
    source: Source | None = None
    sequence: Position | None = None


class MetricEvent(msgspec.Struct, tag_field="type", tag="metric", forbid_unknown_fields=True, omit_defaults=True):
    """Something happened to a unit."""

    id: Id
    unit: Unit
    name: Name
    fields: Fields = {}
    version: Version | None = None
    candidate: Name | None = None
    source: Source | None = None
    sequence: Position | None = None


class ExposureCounts(
    msgspec.Struct, tag_field="type", tag="exposure_counts", forbid_unknown_fields=True, omit_defaults=True
):
    """Decisions of a sender under one policy so far, by candidate."""

    id: Id
    source: Source
    sequence: Position
    version: Version
    assigned: Counts = {}
    dropped: Counts = {}


Event = ExposureEvent | MetricEvent | ExposureCounts


class RejectedEvent(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """Rejected event, with the reason."""

    index: int
    id: str | None
    reason: str
    source: str | None = None
    """Name of the sender, if the event has it."""
    sequence: int | None = None


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    events: list[Event]


_ARRAY = msgspec.json.Decoder(list[Event])
_BATCH = msgspec.json.Decoder(_Batch)
_ONE = msgspec.json.Decoder(Event)

_FIXES = {
    "type": "it must be exposure, metric or exposure_counts",
    "id": "an id has 1 to 128 characters and is unique for the study's life",
    "unit": "a unit has 1 to 256 characters; hash a longer one",
    "cluster": "a cluster has 1 to 256 characters; hash a longer one",
    "version": "it is the version of the policy that the unit was served by, a whole number",
    "candidate": "it is the candidate's name, as the policy has it",
    "signature": "it is the HMAC-SHA256 of the exposure in hexadecimal, 64 characters",
    "name": "it is the event's name, as the study's metrics have it",
    "fields": "at most 64, with names of up to 64 characters; each is a finite number, a bool, or a text of up to 1024",
    "source": "a sender's name has 1 to 128 characters",
    "sequence": "it is a whole number that counts the sender's events",
    "assigned": "it maps candidates' names to whole numbers",
    "dropped": "it maps candidates' names to whole numbers",
    "propensity": "leave it out: propensities are computed from version and unit, never taken from an event",
}

_FORMER_TYPES = {"tally": "exposure_counts"}
"""Event types that older clients send, with their present names."""


def decode_events(body: bytes, *, lines: bool = False) -> list[Event | RejectedEvent]:
    """Read a batch: a JSON array, an object with `events`, or one object per line.

    An item that is not an event becomes a RejectedEvent in its place. InputError if the body is not a batch.

    >>> body = b'[{"type": "exposure", "id": "1", "unit": "ann", "version": 3, "candidate": "a"}, {"type": "click"}]'
    >>> decode_events(body)[1].reason
    "type is 'click'; it must be exposure, metric or exposure_counts"
    """
    # A NUL can only come escaped, and PostgreSQL cannot store it; the slow path finds the event that has it.
    if b"\\u0000" not in body:
        try:
            if lines:
                return list(_ONE.decode_lines(body))
            if body.lstrip()[:1] == b"{":
                return list(_BATCH.decode(body).events)
            return list(_ARRAY.decode(body))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            pass
    return [_to_event(place, item) for place, item in enumerate(_items(body, lines))]


class _JsonError(msgspec.Struct):
    """Line that is not JSON."""

    problem: str


def _items(body: bytes, lines: bool) -> list[Any]:
    """Return the items of a batch, valid or not; Python's decoder accepts NaN, so that only its event is rejected."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"the body is not UTF-8: {error}") from error
    if lines:
        return [_line(line) for line in text.split("\n") if line.strip()]
    try:
        items = json.loads(text, parse_int=_read_integer)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is not JSON: {_shortly(error)}") from error
    if isinstance(items, dict):
        if set(items) != {"events"}:
            names = ", ".join(sorted(map(repr, items))[:5])
            raise InputError(
                f"the body is an object with {names or 'nothing'}; it must hold `events`, and nothing else"
            )
        items = items["events"]
    if not isinstance(items, list):
        raise InputError('the body must be an array of events, or {"events": [...]}')
    return items


def _line(text: str) -> Any:
    try:
        return json.loads(text, parse_int=_read_integer)
    except (ValueError, RecursionError) as error:
        return _JsonError(_shortly(error))


def _to_event(place: int, item: Any) -> Event | RejectedEvent:
    if isinstance(item, _JsonError):
        return RejectedEvent(place, None, f"the line is not JSON: {item.problem}")
    try:
        event: Event = msgspec.convert(item, Event)
    except msgspec.ValidationError as error:
        return _reject(place, item, _reason(str(error), item))
    except RecursionError:
        return _reject(place, item, "the event is nested too deep; its fields are flat")
    except UnicodeEncodeError:
        return _reject(place, item, "the event holds half a surrogate pair, which cannot be kept; leave it out")
    if (bad := _find_bad_text(item)) is not None:
        return _reject(place, item, f"{bad} holds a NUL or half a surrogate pair, which cannot be kept; leave it out")
    return event


def _reject(place: int, item: Any, reason: str) -> RejectedEvent:
    """Return an item as rejected, with its id, source and position if they can be read."""

    def name(field: str) -> str | None:
        given = item.get(field) if isinstance(item, dict) else None
        return given if isinstance(given, str) and 0 < len(given) <= 128 and _is_storable(given) else None

    given = item.get("sequence") if isinstance(item, dict) else None
    # The sequence of exposure_counts counts those alone, not events.
    is_counts = isinstance(item, dict) and item.get("type") in ("exposure_counts", *_FORMER_TYPES)
    numbered = type(given) is int and 0 <= given <= 2**53 and not is_counts
    return RejectedEvent(place, name("id"), reason, name("source"), given if numbered else None)


_PATH = re.compile(r"(.*?)(?: - at (?:`key` in )?`\$(.*)`)?", re.DOTALL)


def _reason(message: str, item: Any) -> str:
    """Return the message of the decoder with the name of the field and the fix."""
    match = _PATH.fullmatch(message)
    what, path = (match[1], match[2] or "") if match else (message, "")
    field = path.lstrip(".").split(".")[0].split("[")[0]
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what, re.DOTALL):
        name = unknown[1][:40]
        return f"{name} is not a field of an event; {_FIXES.get(name, 'leave it out')}"
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        return f"{missing[1]} is missing; {_FIXES.get(missing[1], 'add it')}"
    if not field:
        return f"an event is a JSON object: {what[0].lower()}{what[1:]}"
    if field == "type" and isinstance(item, dict):
        if (name := _FORMER_TYPES.get(str(item.get("type")))) is not None:
            return f"type is {item['type']!r}, which is now called {name!r}; update the client that sends it"
        return f"type is {repr(item.get('type'))[:40]}; {_FIXES['type']}"
    return f"{field}: {what[0].lower()}{what[1:]}; {_FIXES.get(field, 'mend or leave it out')}"


def _read_integer(digits: str) -> int | float:
    """Read an integer of any length; beyond a double it is infinite, and rejected as such."""
    return int(digits) if len(digits) <= 400 else float("-inf" if digits[0] == "-" else "inf")


def _find_bad_text(item: dict[str, Any]) -> str | None:
    """Return the first field with a text that cannot be stored."""
    for name, value in item.items():
        texts = [value] if isinstance(value, str) else []
        if isinstance(value, dict):
            texts = [*value, *(inner for inner in value.values() if isinstance(inner, str))]
        if not all(map(_is_storable, texts)):
            return name
    return None


def _is_storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _shortly(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__
