"""Late events count for their own round, and the report lists all that arrived too late."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from pasto.report.records import write_record
from pasto.service.close_record import CloseRecord
from pasto.service.ingest import BatchResult
from pasto.service.service import Service
from pasto.store import open_store
from pasto_sdk.policy import PublishedPolicy

Events = list[dict[str, Any]]
World = Callable[[PublishedPolicy, int], Events]
Send = Callable[[Service, str, Events], BatchResult]
HOUR = 3600.0
ROUNDS = 8


@pytest.fixture
def hours() -> list[float]:
    return [1_700_000_000.0]


@pytest.fixture
def timed(hours: list[float]) -> Iterator[Service]:
    service = Service(open_store("memory:"), clock=lambda: hours[0], monotonic=lambda: 0.0)
    yield service
    service.shutdown()


def _play(
    service: Service, document: dict[str, Any], world: World, send: Send, hours: list[float], maturity: float
) -> tuple[dict[int, Events], int]:
    """Run rounds of an hour in which 30 % of one arm's events come 1 to 3 rounds late; return each round's events."""
    service.create({**document, "rounds": {"every": "1h", "maturity": maturity}}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    rng = np.random.default_rng(3)
    truth: dict[int, Events] = {}
    later: dict[int, Events] = defaultdict(list)
    delayed = 0
    for number in range(1, ROUNDS + 4):
        policy = service.policy_cache.current("feed")
        events = world(policy, 100)
        truth[number] = events
        on_time: Events = []
        for event in events:
            if event["type"] == "metric" and event["candidate"] == "w=2" and rng.random() < 0.3:
                later[number + int(rng.integers(1, 4))].append(event)
                delayed += 1
            else:
                on_time.append(event)
        send(service, "feed", on_time + later.pop(number, []))
        hours[0] += HOUR
        service.close_round("feed", who="ann")
    return truth, delayed - sum(map(len, later.values()))


def _measured(service: Service) -> dict[int, dict[tuple[str, int], tuple[int, list[float]]]]:
    """Return units and means of each cell by round, as its close learned them."""
    number = service.policy_cache.snapshot("feed").row.number
    found = {}
    for close in service.store.list_closes(number):
        for entry in CloseRecord.from_text(close.record).rounds:
            found[entry.round] = {
                (cell.arm, cell.candidate): (cell.units, list(cell.mean)) for cell in entry.cells.moments()
            }
    return found


def _expected(service: Service, version: int, events: Events) -> dict[tuple[str, int], tuple[int, list[float]]]:
    snapshot = service.policy_cache.snapshot("feed")
    policy = service.policy_cache.published(snapshot, version)
    assert policy is not None
    values: dict[tuple[str, int], list[list[float]]] = defaultdict(list)
    for event in events:
        if event["type"] == "metric":
            cell = policy.draw(event["unit"])
            values[cell.arm, cell.candidate].append([event["fields"]["x"], event["fields"]["y"]])
    return {key: (len(rows), np.mean(np.clip(rows, -9, 9), axis=0).tolist()) for key, rows in values.items()}


def test_with_enough_maturity_late_events_leave_no_bias(
    timed: Service, quick: dict[str, Any], world: World, send: Send, hours: list[float]
) -> None:
    truth, delayed = _play(timed, quick, world, send, hours, maturity=3 * HOUR)
    assert delayed > 30
    measured = _measured(timed)
    assert sorted(measured) == list(range(1, ROUNDS + 1))
    for number, cells in measured.items():
        expected = _expected(timed, number, truth[number])
        assert set(cells) == set(expected)
        for key, (units, mean) in cells.items():
            assert units == expected[key][0]
            assert mean == pytest.approx(expected[key][1], abs=1e-12)
    assert write_record(timed.report("feed"))["accounting"]["late"]["events"] == 0
    assert timed.replay("feed").identical


def test_without_maturity_every_late_event_is_in_the_ledger(
    timed: Service, quick: dict[str, Any], world: World, send: Send, hours: list[float]
) -> None:
    _, delayed = _play(timed, quick, world, send, hours, maturity=0)
    late = write_record(timed.report("feed"))["accounting"]["late"]
    assert late["events"] == delayed == sum(one["metrics"] for one in late["rounds"])
    assert timed.replay("feed").identical  # later events do not change earlier results
