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
    """What a sender decided under one policy so far, by candidate."""

    id: Id
    source: Source
    sequence: Position
    version: Version
    assigned: Counts = {}
    dropped: Counts = {}


Event = ExposureEvent | MetricEvent | ExposureCounts


class RejectedEvent(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """An event that was not taken, and why."""

    index: int
    id: str | None
    reason: str
    source: str | None = None
    """Of the sender, as far as the event says it."""
    sequence: int | None = None


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    events: list[Event]


_ARRAY = msgspec.json.Decoder(list[Event])
_BATCH = msgspec.json.Decoder(_Batch)
_ONE = msgspec.json.Decoder(Event)

_CURES = {
    "type": "it says what the event is: exposure, metric or exposure_counts",
    "id": "an id has 1 to 128 characters and is unique for the study's life",
    "unit": "a unit has 1 to 256 characters; hash a longer one",
    "version": "it is the version of the policy that the unit was served by, a whole number",
    "candidate": "it is the candidate's name, as the policy has it",
    "signature": "it is the HMAC-SHA256 of the exposure in hexadecimal, 64 characters",
    "name": "it is the event's name, as the study's metrics have it",
    "fields": "at most 64, with names of up to 64 characters; each is a finite number, a bool, or a text of up to 1024",
    "source": "a sender's name has 1 to 128 characters",
    "sequence": "it is a whole number that counts the sender's events",
    "assigned": "it maps candidates' names to whole numbers",
    "dropped": "it maps candidates' names to whole numbers",
    "propensity": "leave it out: propensities are looked up by version and unit, never believed",
}

_FORMER_TYPES = {"tally": "exposure_counts"}
"""Event types that older clients send, with their present names."""


def decode_events(body: bytes, *, lines: bool = False) -> list[Event | RejectedEvent]:
    """Read a batch: a JSON array, an object with `events`, or one object a line.

    What cannot be read as an event is a Refusal in its place; BadInput where there is no batch to be seen at all.

    >>> body = b'[{"type": "exposure", "id": "1", "unit": "ann", "version": 3, "candidate": "a"}, {"type": "click"}]'
    >>> decode_events(body)[1].reason
    "type is 'click'; it says what the event is: exposure, metric or exposure_counts"
    """
    # A NUL can only come escaped, and PostgreSQL keeps none; the slow path finds which event has it.
    if b"\\u0000" not in body:
        try:
            if lines:
                return list(_ONE.decode_lines(body))
            if body.lstrip()[:1] == b"{":
                return list(_BATCH.decode(body).events)
            return list(_ARRAY.decode(body))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            pass
    return [_converted(place, item) for place, item in enumerate(_items(body, lines))]


class _Unreadable(msgspec.Struct):
    """A line that is no JSON."""

    problem: str


def _items(body: bytes, lines: bool) -> list[Any]:
    """The batch's items, however bad each may be; Python's reader takes NaN, so that only its event is refused."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"the body is no UTF-8: {error}") from error
    if lines:
        return [_line(line) for line in text.split("\n") if line.strip()]
    try:
        found = json.loads(text, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is no JSON: {_shortly(error)}") from error
    if isinstance(found, dict):
        if set(found) != {"events"}:
            names = ", ".join(sorted(map(repr, found))[:5])
            raise InputError(
                f"the body is an object with {names or 'nothing'}; it must hold `events`, and nothing else"
            )
        found = found["events"]
    if not isinstance(found, list):
        raise InputError('the body must be an array of events, or {"events": [...]}')
    return found


def _line(text: str) -> Any:
    try:
        return json.loads(text, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        return _Unreadable(_shortly(error))


def _converted(place: int, item: Any) -> Event | RejectedEvent:
    if isinstance(item, _Unreadable):
        return RejectedEvent(place, None, f"the line is no JSON: {item.problem}")
    try:
        event: Event = msgspec.convert(item, Event)
    except msgspec.ValidationError as error:
        return _refusal(place, item, _reason(str(error), item))
    except RecursionError:
        return _refusal(place, item, "the event is nested too deep; its fields are flat")
    except UnicodeEncodeError:
        return _refusal(place, item, "the event holds half a surrogate pair, which cannot be kept; leave it out")
    if (bad := _unsound(item)) is not None:
        return _refusal(place, item, f"{bad} holds a NUL or half a surrogate pair, which cannot be kept; leave it out")
    return event


def _refusal(place: int, item: Any, reason: str) -> RejectedEvent:
    """Refuse an item, with the id and number that it has if they can be read."""

    def name(field: str) -> str | None:
        given = item.get(field) if isinstance(item, dict) else None
        return given if isinstance(given, str) and 0 < len(given) <= 128 and _sound(given) else None

    given = item.get("sequence") if isinstance(item, dict) else None
    # The sequence of exposure_counts counts those alone, not events.
    is_counts = isinstance(item, dict) and item.get("type") in ("exposure_counts", *_FORMER_TYPES)
    numbered = type(given) is int and 0 <= given <= 2**53 and not is_counts
    return RejectedEvent(place, name("id"), reason, name("source"), given if numbered else None)


_PATH = re.compile(r"(.*?)(?: - at (?:`key` in )?`\$(.*)`)?", re.DOTALL)


def _reason(message: str, item: Any) -> str:
    """What a decoder complains of, in the event's own words and with the cure."""
    match = _PATH.fullmatch(message)
    what, path = (match[1], match[2] or "") if match else (message, "")
    field = path.lstrip(".").split(".")[0].split("[")[0]
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what, re.DOTALL):
        name = unknown[1][:40]
        return f"{name} is no field of an event; {_CURES.get(name, 'leave it out')}"
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        return f"{missing[1]} is missing; {_CURES.get(missing[1], 'add it')}"
    if not field:
        return f"an event is a JSON object: {what[0].lower()}{what[1:]}"
    if field == "type" and isinstance(item, dict):
        if (name := _FORMER_TYPES.get(str(item.get("type")))) is not None:
            return f"type is {item['type']!r}, which is now called {name!r}; update the client that sends it"
        return f"type is {repr(item.get('type'))[:40]}; {_CURES['type']}"
    return f"{field}: {what[0].lower()}{what[1:]}; {_CURES.get(field, 'mend or leave it out')}"


def _whole(digits: str) -> int | float:
    """A whole number of any length; beyond a double it is infinite, and refused as such."""
    return int(digits) if len(digits) <= 400 else float("-inf" if digits[0] == "-" else "inf")


def _unsound(item: dict[str, Any]) -> str | None:
    """The first field with a text that cannot be kept."""
    for name, value in item.items():
        texts = [value] if isinstance(value, str) else []
        if isinstance(value, dict):
            texts = [*value, *(inner for inner in value.values() if isinstance(inner, str))]
        if not all(map(_sound, texts)):
            return name
    return None


def _sound(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _shortly(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__
