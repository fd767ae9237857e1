"""Event accounting: assigned = logged + dropped + gap, and all late events are counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pasto.errors import StoreError
from pasto.report.records import write_record
from pasto.service.event_accounting import EventAccounting
from pasto.service.event_counts import EventCounts
from pasto.service.ingest import BatchResult
from pasto.service.service import Service

Traffic = Callable[[Service, int], list[dict[str, Any]]]


def _send(service: Service, events: list[dict[str, Any]]) -> BatchResult:
    return service.ingest("feed", service.decode(json.dumps(events).encode())).result()


def _event_counts(service: Service) -> dict[str, Any]:
    event_counts: dict[str, Any] = write_record(service.report("feed"))["accounting"]
    return event_counts


def test_losses_of_one_sender_and_arm_are_counted_exactly(learning: Service) -> None:
    policy = learning.policy_cache.current("feed")
    assigned: Counter[str] = Counter()
    events: list[dict[str, Any]] = []
    for number in range(1, 1001):
        unit = f"user {number}"
        name = policy.draw(unit).name
        assigned[name] += 1
        numbered = {"source": "web-1", "sequence": number}
        events.append(
            {"type": "exposure", "id": str(number), "unit": unit, "version": 1, "candidate": name, **numbered}
        )
    lost = [event for event in events if event["candidate"] == "w=2"][:7]
    dropped = [event for event in events if event["candidate"] == "w=0"][:3]
    tally = {"type": "exposure_counts", "id": "t", "source": "web-1", "sequence": 1, "version": 1}
    _send(learning, [event for event in events if event not in lost and event not in dropped])
    _send(learning, [{**tally, "assigned": dict(assigned), "dropped": {"w=0": 3}}])
    (version,) = _event_counts(learning)["versions"]
    assert (version["assigned"], version["logged"], version["dropped"], version["gap"]) == (1000, 990, 3, 7)
    gaps = {line["name"]: line["gap"] for line in version["candidates"]}
    assert gaps == {name: 7 if name == "w=2" else 0 for name in assigned}
    assert _event_counts(learning)["senders"] == {
        "numbered": 1,
        "missing": 10,
        "gaps": [{"source": "web-1", "missing": 10}],
    }
    _send(learning, lost)  # they were only late
    assert _event_counts(learning)["versions"][0]["gap"] == 0
    assert _event_counts(learning)["senders"]["missing"] == 3


def test_exposures_of_others_do_not_hide_a_senders_gap(learning: Service) -> None:
    policy = learning.policy_cache.current("feed")
    name = policy.draw("ann").name
    _send(learning, [{"type": "exposure", "id": "1", "unit": "ann", "version": 1, "candidate": name}])
    tally = {
        "type": "exposure_counts",
        "id": "t",
        "source": "web-1",
        "sequence": 1,
        "version": 1,
        "assigned": {name: 1},
    }
    _send(learning, [tally])
    assert _event_counts(learning)["versions"][0]["gap"] == 1
    _send(learning, [{**tally, "id": "u", "sequence": 2, "assigned": {name: 2}}, {**tally, "id": "v"}])
    assert _event_counts(learning)["versions"][0]["gap"] == 2


def test_decisions_without_a_policy_are_accounted_for_too(learning: Service) -> None:
    served = {"type": "exposure", "version": 0, "candidate": "at home", "fallback": True, "source": "web-1"}
    _send(learning, [{**served, "id": str(n), "unit": f"user {n}", "sequence": n} for n in range(1, 6)])
    tally = {"type": "exposure_counts", "id": "t", "source": "web-1", "sequence": 1, "version": 0}
    _send(learning, [{**tally, "assigned": {"at home": 9}, "dropped": {"at home": 1}}])
    (version,) = _event_counts(learning)["versions"]
    assert (version["version"], version["assigned"], version["logged"], version["gap"]) == (0, 9, 5, 3)
    assert [line["gap"] for line in version["candidates"]] == [3]


def test_counts_read_in_parts_equal_counts_read_at_once(learning: Service, traffic: Traffic) -> None:
    number = learning.policy_cache.snapshot("feed").row.number
    bit_by_bit = EventAccounting(learning.store, number)
    names = [f"w={weight}" for weight in range(4)]
    late: list[dict[str, Any]] = []
    for _ in range(4):
        events = traffic(learning, 40)
        _send(learning, events[:60] + late)
        bit_by_bit.summarize(names, ["watch", "likes"])
        late = events[60:]
        learning.close_round("feed", who="ann")
        bit_by_bit.summarize(names, ["watch", "likes"])
    _send(learning, late)
    summary = bit_by_bit.summarize(names, ["watch", "likes"])
    assert summary == EventAccounting(learning.store, number).summarize(names, ["watch", "likes"])
    assert summary.events.exposures == 160


def test_every_event_behind_the_mark_is_in_the_late_ledger(learning: Service, traffic: Traffic) -> None:
    first = traffic(learning, 60)
    _send(learning, first[:100])
    learning.close_round("feed", who="ann")
    assert _event_counts(learning)["late"] == {"events": 0, "rounds": []}
    second = traffic(learning, 60)
    _send(learning, first[100:] + second)
    credited = [event for event in first[100:] if "version" in event]  # the others went to the latest exposure
    late = _event_counts(learning)["late"]
    assert late["events"] > 0
    assert [one["round"] for one in late["rounds"]] == [1]
    counted = late["rounds"][0]
    assert counted["exposures"] == sum(event["type"] == "exposure" for event in credited)
    assert late["events"] == counted["exposures"] + counted["metrics"] == sum(counted["arms"].values())


def test_events_that_come_ages_later_are_late_too(
    learning: Service, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pasto.service.event_accounting.MAX_COUNTED_POLICIES", 2)
    first = traffic(learning, 30)
    versioned = [event for event in first if "version" in event]
    _send(learning, versioned[:20])
    for _ in range(6):
        learning.close_round("feed", who="ann")
    assert _event_counts(learning)["late"]["events"] == 0
    _send(learning, versioned[20:])
    assert _event_counts(learning)["late"]["events"] == len(versioned) - 20


def test_a_close_that_was_slow_to_be_written_hides_no_late_event(learning: Service, traffic: Traffic) -> None:
    store, number = learning.store, learning.policy_cache.snapshot("feed").row.number
    events = traffic(learning, 30)
    _send(learning, events[:40])
    mark = store.read_high_water(number)
    _send(learning, events[40:])
    accounting = EventAccounting(store, number)
    accounting.summarize([], [])  # reads up to a later event than the close in progress
    real = store.read_high_water
    store.read_high_water = lambda study: mark  # type: ignore[method-assign]
    learning.close_round("feed", who="ann")
    store.read_high_water = real  # type: ignore[method-assign]
    versioned = sum("version" in event or event["name"] == "like" for event in events[40:])
    assert accounting.summarize([], []).late.events == versioned
    assert EventAccounting(store, number).summarize([], []).late.events == versioned


def test_counts_read_in_many_parts_are_equal(
    learning: Service, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = learning.policy_cache.snapshot("feed").row.number
    first = traffic(learning, 40)
    numbered = [{**event, "source": "web-1", "sequence": place} for place, event in enumerate(first)]
    _send(learning, numbered[:60])
    learning.close_round("feed", who="ann")
    _send(learning, traffic(learning, 40))
    learning.close_round("feed", who="ann")
    _send(learning, numbered[60:])
    summary = EventAccounting(learning.store, number).summarize(["a", "b", "c", "d"], ["watch", "likes"])
    assert summary.late.events > 0
    monkeypatch.setattr("pasto.service.event_accounting.QUERY_EVENTS", 7)
    monkeypatch.setattr("pasto.service.event_accounting.PAGE_CLOSES", 1)
    assert EventAccounting(learning.store, number).summarize(["a", "b", "c", "d"], ["watch", "likes"]) == summary


def test_counts_continue_from_their_saved_state_and_read_nothing_twice(
    learning: Service, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, number = learning.store, learning.policy_cache.snapshot("feed").row.number
    first = traffic(learning, 40)
    _send(learning, [{**event, "source": "web-1", "sequence": place} for place, event in enumerate(first[:60])])
    learning.close_round("feed", who="ann")
    names = (["a", "b", "c", "d"], ["watch", "likes"])
    EventAccounting(store, number).summarize(*names)
    assert store.read_cache(f"event_counts/{number}") is None  # too few for a warning
    monkeypatch.setattr("pasto.service.event_accounting.SAVE_CLOSES", 1)
    EventAccounting(store, number).keep_up()
    _send(learning, first[60:] + traffic(learning, 40))
    learning.close_round("feed", who="ann")
    monkeypatch.setattr("pasto.service.event_accounting.SAVE_CLOSES", 99)
    asked: list[int] = []
    read = store.list_closes

    def closes(study: int, *, after: int = 0, limit: int = 1000) -> Any:
        asked.append(after)
        return read(study, after=after, limit=limit)

    monkeypatch.setattr(store, "list_closes", closes)
    noted = EventAccounting(store, number).summarize(*names)
    assert min(asked) == 1
    store.write_cache(
        f"event_counts/{number}", EventCounts(until=10**9).text()
    )  # of a store that lost events afterwards
    assert EventAccounting(store, number).summarize(*names) == noted
    assert min(asked) == 0
    assert noted.late.events > 0


def test_counts_that_fail_in_the_middle_count_nothing_twice(
    learning: Service, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = learning.policy_cache.snapshot("feed").row.number
    first = traffic(learning, 40)
    _send(learning, first[:60])
    learning.close_round("feed", who="ann")
    _send(learning, first[60:] + traffic(learning, 40))
    summary = EventAccounting(learning.store, number).summarize([], [])
    accounting, read = EventAccounting(learning.store, number), EventAccounting._rows
    asked: list[str] = []

    def fail(self: EventAccounting, connection: Any, statement: str, *values: int) -> Any:
        asked.append(statement)
        if len(asked) in (1, 3, 6):  # each question once
            raise StoreError("the database took too long")
        return read(self, connection, statement, *values)

    monkeypatch.setattr(EventAccounting, "_rows", fail)
    for _ in range(3):
        with pytest.raises(StoreError):
            accounting.summarize([], [])
    assert accounting.summarize([], []) == summary
    assert summary.late.events > 0


def test_counts_and_rounds_of_a_study_begin_after_the_events_of_others(
    learning: Service, document: dict[str, Any], traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    _send(learning, traffic(learning, 40))
    learning.create({**document, "name": "young"}, who="ann")
    learning.change("young", "start", who="ann")
    number = learning.policy_cache.snapshot("young").row.number
    policy = learning.store.read_policy(number, 1)
    assert policy is not None
    assert policy.after_sequence == learning.store.read_high_water(number) > 0
    begun: list[int] = []
    read = EventAccounting._rows

    def noted(self: EventAccounting, connection: Any, statement: str, *values: int) -> Any:
        begun.extend(values[:1])
        return read(self, connection, statement, *values)

    monkeypatch.setattr(EventAccounting, "_rows", noted)
    assert write_record(learning.report("young"))["accounting"]["events"]["exposures"] == 0
    assert min(begun) == policy.after_sequence


def test_clipped_and_excluded_and_uncredited_are_counted(learning: Service) -> None:
    policy = learning.policy_cache.current("feed")
    events: list[dict[str, Any]] = []
    for number in range(40):
        unit = f"user {number}"
        drawn = {"unit": unit, "version": 1, "candidate": policy.draw(unit).name}
        events.append({"type": "exposure", "id": f"e{number}", **drawn})
        seconds = 1000 if number < 5 else 1
        events.append({"type": "metric", "id": f"m{number}", "name": "watch", "fields": {"seconds": seconds}, **drawn})
    events.append({"type": "metric", "id": "x", "unit": "nobody", "name": "like"})
    events.append({"type": "exposure", "id": "f", "unit": "zoe", "version": 0, "candidate": "?", "fallback": True})
    _send(learning, events)
    learning.close_round("feed", who="ann")
    event_counts = _event_counts(learning)
    assert event_counts["clipped"] == {"watch": 5, "likes": 0}
    assert event_counts["events"] == {"exposures": 41, "metrics": 41, "excluded": 1, "uncredited": 1}


def test_drafts_and_archived_studies_have_reports_too(service: Service, document: dict[str, Any]) -> None:
    service.create(document, who="ann")
    draft = write_record(service.report("feed"))
    assert (draft["state"], draft["blend"], draft["accounting"], draft["history"]) == ("draft", None, None, [])
    service.change("feed", "start", who="ann")
    service.change("feed", "archive", who="ann")
    archived = write_record(service.report("feed"))
    assert (archived["state"], len(archived["history"])) == ("archived", 1)
    assert archived["accounting"]["events"]["exposures"] == 0
    assert write_record(service.replay("feed")) == {"identical": True, "rounds": 1, "first_difference": None}
    json.dumps([draft, archived], allow_nan=False)


def test_the_answer_is_computed_once_a_generation(learning: Service, traffic: Traffic) -> None:
    _send(learning, traffic(learning, 100))
    empty = write_record(learning.report("feed"))
    assert (empty["blend"], empty["problem"]) == (None, "no round has been learned yet")
    learning.close_round("feed", who="ann")
    first, again = learning.report("feed"), learning.report("feed")
    assert first.blend is again.blend is not None
    assert first.rounds_learned == 1
    assert first.history[0].learned_from == (1,)
    learning.close_round("feed", who="ann")
    assert learning.report("feed").blend is not first.blend
    json.dumps(write_record(first), allow_nan=False)
