"""Event decoder: strict about each event, and one invalid event does not reject the others."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pasto.errors import InputError
from pasto.service.event_decoder import ExposureCounts, ExposureEvent, MetricEvent, RejectedEvent, decode_events

EXPOSED = {"type": "exposure", "id": "1", "unit": "ann", "version": 3, "candidate": "a"}
LIKED = {"type": "metric", "id": "2", "unit": "ann", "name": "like", "fields": {"stars": 4, "by": "thumb", "big": True}}
COUNTED = {"type": "exposure_counts", "id": "3", "source": "web-1", "sequence": 9, "version": 3, "assigned": {"a": 5}}


def test_an_array_an_object_and_lines_read_alike() -> None:
    events = [EXPOSED, LIKED, COUNTED]
    array = decode_events(json.dumps(events).encode())
    assert [type(event) for event in array] == [ExposureEvent, MetricEvent, ExposureCounts]
    assert decode_events(json.dumps({"events": events}).encode()) == array
    assert decode_events("\r\n".join(map(json.dumps, events)).encode() + b"\n\n", lines=True) == array


BAD: list[tuple[Any, str]] = [
    ({**EXPOSED, "propensity": 1e-6}, "propensity is not a field of an event; leave it out: propensities are computed"),
    ({**EXPOSED, "arm": "learner"}, "arm is not a field"),
    ({**EXPOSED, "id": ""}, "id: .*an id has 1 to 128 characters"),
    ({**EXPOSED, "id": "x" * 129}, "id: .*an id has 1 to 128 characters"),
    ({**EXPOSED, "unit": "x" * 257}, "unit: .*hash a longer one"),
    ({**EXPOSED, "unit": 7}, "unit: expected `str`, got `int`"),
    ({**EXPOSED, "version": "3"}, "version: expected `int`"),
    ({**EXPOSED, "version": True}, "version: expected `int`"),
    ({**EXPOSED, "version": -1}, "version: "),
    ({**EXPOSED, "version": 3.5}, "version: "),
    ({name: EXPOSED[name] for name in ("type", "id", "version", "candidate")}, "unit is missing; a unit has"),
    ({name: EXPOSED[name] for name in ("id", "unit", "version", "candidate")}, "type is missing"),
    ({**EXPOSED, "type": "click"}, "type is 'click'; it must be exposure"),
    ({**COUNTED, "type": "tally"}, "type is 'tally', which is now called 'exposure_counts'; update the client"),
    ({**LIKED, "fields": {"seconds": None}}, "fields: .*each is a finite number"),
    ({**LIKED, "fields": {"seconds": [1]}}, "fields: "),
    ({**LIKED, "fields": {"x" * 65: 1}}, "fields: "),
    ({**LIKED, "fields": {"a": "x" * 1025}}, "fields: "),
    ({**LIKED, "fields": {str(k): 1 for k in range(65)}}, "fields: "),
    ({**LIKED, "unit": "a\0b"}, "unit holds a NUL"),
    ({**LIKED, "fields": {"a\0": 1}}, "fields holds a NUL"),
    ({**LIKED, "unit": "\ud800"}, "unit holds a NUL or half a surrogate pair"),
    ({**EXPOSED, "\ud800": 1}, "half a surrogate pair"),
    ({**EXPOSED, "type": "\ud800"}, "half a surrogate pair"),
    ("\ud800", "half a surrogate pair"),
    ({**COUNTED, "assigned": {"a": -1}}, "assigned: "),
    ({**COUNTED, "assigned": {"a": 1.5}}, "assigned: "),
    ("exposure", "an event is a JSON object: expected `object`, got `str`"),
    (None, "an event is a JSON object"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD)
@pytest.mark.parametrize("lines", [False, True])
def test_a_bad_event_is_refused_alone_with_its_field_and_fix(bad: Any, reason: str, lines: bool) -> None:
    events = [EXPOSED, bad, LIKED]
    body = "\n".join(map(json.dumps, events)) if lines else json.dumps(events)
    found = decode_events(body.encode(), lines=lines)
    assert [type(event) for event in found] == [ExposureEvent, RejectedEvent, MetricEvent]
    refusal = found[1]
    assert isinstance(refusal, RejectedEvent)
    assert refusal.index == 1
    assert re.search(reason, refusal.reason)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "1e400"])
def test_invalid_numbers_do_not_reject_a_batch(number: str) -> None:
    poison = '{"type": "metric", "id": "9", "unit": "ann", "name": "watch", "fields": {"seconds": ' + number + "}}"
    found = decode_events(f"[{json.dumps(EXPOSED)}, {poison}, {json.dumps(LIKED)}]".encode())
    assert [type(event) for event in found][::2] == [ExposureEvent, MetricEvent]
    assert isinstance(found[1], MetricEvent)  # not finite; the validator refuses it
    value = found[1].fields["seconds"]
    assert not -1e15 <= float(value) <= 1e15 or value != value


@pytest.mark.parametrize(
    "body", [b"", b"{", b"7", b'"x"', b"[1, 2", b'{"events": 7}', b'{"event": []}', b"{}", b"\xff"]
)
def test_what_is_no_batch_is_refused_whole(body: bytes) -> None:
    with pytest.raises(InputError, match="the body"):
        decode_events(body)


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(InputError, match="the body is not JSON"):
        decode_events(b"[" * 100_000)
    deep = decode_events(b'{"type": "metric", "fields": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", lines=True)
    assert isinstance(deep[0], RejectedEvent)


def test_lines_that_are_no_json_are_refused_alone() -> None:
    found = decode_events(f"{json.dumps(EXPOSED)}\nnonsense\n{json.dumps(LIKED)}".encode(), lines=True)
    assert isinstance(found[1], RejectedEvent)
    assert "the line is not JSON" in found[1].reason
    assert len(found) == 3


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 999), poison=st.sampled_from([bad for bad, _ in BAD]))
def test_one_poison_in_a_thousand_is_refused_at_every_place(place: int, poison: Any) -> None:
    events: list[Any] = [{**EXPOSED, "id": str(number)} for number in range(1000)]
    events[place] = poison
    found = decode_events(json.dumps(events).encode())
    refused = [event for event in found if isinstance(event, RejectedEvent)]
    assert [refusal.index for refusal in refused] == [place]
    assert len(found) == 1000


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=12,
    )
)
def test_any_json_is_read_or_refused(value: Any) -> None:
    body = json.dumps([value]).encode()
    (found,) = decode_events(body)
    assert isinstance(found, RejectedEvent)
    assert found.reason


def test_the_sequence_of_former_exposure_counts_is_not_that_of_an_event() -> None:
    (rejected,) = decode_events(json.dumps([{**COUNTED, "type": "tally"}]).encode())
    assert isinstance(rejected, RejectedEvent)
    assert (rejected.source, rejected.sequence) == ("web-1", None)
