"""Scheduler: rounds close when they are due, despite clock changes, and a failing study does not delay others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from threading import Event
from typing import Any

import pytest

from pasto.errors import LifecycleError, SolverError
from pasto.service.reports.builder import ReportBuilder
from pasto.service.scheduler import Scheduler
from pasto.service.service import Service
from pasto.store import open_store
from pasto.study import pending_rounds

HOUR = 3600.0


class Clocks:
    """Wall clock that can be set, and a steady one that cannot."""

    def __init__(self) -> None:
        self.wall, self.steady = 1_700_000_000.0, 50.0

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def timed(clocks: Clocks, document: dict[str, Any]) -> Iterator[Service]:
    service = Service(open_store("memory:"), clock=lambda: clocks.wall, monotonic=lambda: clocks.steady)
    service.create({**document, "learner": "algorithm1", "guardrails": []}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    yield service
    service.shutdown()


def test_a_round_is_closed_after_its_time_and_not_before(timed: Service, clocks: Clocks) -> None:
    scheduler = Scheduler(timed)
    assert scheduler.tick() == 0
    clocks.pass_(HOUR - 1)
    assert scheduler.tick() == 0
    clocks.pass_(1)
    assert scheduler.tick() == 1
    assert scheduler.tick() == 0
    assert timed.audit("feed")[-1].who == "scheduler"


def test_hours_of_downtime_cause_one_close(timed: Service, clocks: Clocks) -> None:
    clocks.pass_(10 * HOUR)
    assert [Scheduler(timed).tick() for _ in range(3)] == [1, 0, 0]
    clocks.pass_(HOUR)
    assert Scheduler(timed).tick() == 1


@pytest.mark.parametrize("jump", [-24 * HOUR, -HOUR, -1.0, 1.0, HOUR, 24 * HOUR])
def test_a_wall_clock_that_jumps_neither_stalls_nor_multiplies_rounds(
    timed: Service, clocks: Clocks, jump: float
) -> None:
    scheduler = Scheduler(timed)
    scheduler.tick()
    closed = []
    for minute in range(10 * 60):
        if minute == 150:
            clocks.wall += jump
        clocks.pass_(60)
        if scheduler.tick():
            closed.append(minute)
    assert 9 <= len(closed) <= 11
    assert max(later - earlier for earlier, later in pairwise(closed)) <= 61
    rounds = timed.rounds("feed")
    assert [one.round for one in rounds] == list(range(1, len(rounds) + 1))
    times = [one.closed_at for one in rounds]
    assert times == sorted(times)
    assert timed.show("feed").round_age_seconds >= 0
    assert timed.replay("feed").identical


def test_a_clock_set_back_while_no_node_ran_does_not_stall(timed: Service, clocks: Clocks) -> None:
    clocks.wall -= 24 * HOUR
    again = Service(timed.store, clock=lambda: clocks.wall, monotonic=lambda: clocks.steady)
    scheduler = Scheduler(again)
    assert scheduler.tick() == 0
    clocks.pass_(HOUR)
    assert scheduler.tick() == 1


def test_rounds_mature_by_the_studys_own_time(clocks: Clocks, document: dict[str, Any]) -> None:
    service = Service(open_store("memory:"), clock=lambda: clocks.wall, monotonic=lambda: clocks.steady)
    service.create(
        {**document, "rounds": {"every": "1h", "maturity": "2h"}, "learner": "algorithm1", "guardrails": []}, who="a"
    )
    service.change("feed", "start", who="ann")
    scheduler = Scheduler(service)
    scheduler.tick()
    learned = []
    for hour in range(6):
        if hour == 3:
            clocks.wall -= 24 * HOUR
        clocks.pass_(HOUR)
        assert scheduler.tick() == 1
        learned.append(service.rounds("feed", after=hour)[0].learned_from)
    assert learned == [(), (), (1,), (2,), (3,), (4,)]
    service.shutdown()


def test_a_round_can_end_by_its_exposures(
    clocks: Clocks, document: dict[str, Any], traffic: Callable[[Service, int], list[dict[str, Any]]]
) -> None:
    service = Service(open_store("memory:"), clock=lambda: clocks.wall, monotonic=lambda: clocks.steady)
    service.create({**document, "rounds": {"exposures": 50}}, who="ann")
    service.change("feed", "start", who="ann")
    scheduler = Scheduler(service)
    assert scheduler.tick() == 0
    events = traffic(service, 50)
    exposures = [event for event in events if event["type"] == "exposure"]
    liked = [event for event in events if event["type"] == "metric"]
    for part, expected in ((exposures[:49], 0), (liked, 0), (exposures[:49], 0), (exposures[49:], 1), ([], 0)):
        service.ingest("feed", service.decode(json.dumps(part).encode())).result()
        assert scheduler.tick() == expected
    assert service.show("feed").round == 2
    service.shutdown()


def test_an_error_of_one_study_is_logged_and_delays_no_other(
    timed: Service, clocks: Clocks, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed.create({**document, "name": "zebra", "learner": "algorithm1", "guardrails": []}, who="ann", seed=7)
    timed.change("zebra", "start", who="ann")
    close, scheduler = timed.close_if_due, Scheduler(timed)
    tried: list[str] = []

    def fail(name: str) -> int:
        tried.append(name)
        if name == "feed":
            raise SolverError("no progress")
        return close(name)

    monkeypatch.setattr(timed, "close_if_due", fail)
    clocks.pass_(HOUR)
    assert [scheduler.tick() for _ in range(16)] == [1] + [0] * 15
    assert tried.count("zebra") == 16
    assert tried.count("feed") == 4  # with growing intervals
    monkeypatch.undo()
    assert sum(scheduler.tick() for _ in range(60)) == 1


def test_a_long_close_does_not_delay_a_pause_in_the_policy_cache(
    timed: Service, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Service(timed.store, clock=lambda: clocks.wall, monotonic=lambda: clocks.steady)
    closing, heard, done = Event(), Event(), Event()

    def slow(name: str) -> int:
        closing.set()
        done.wait(60)
        return 0

    monkeypatch.setattr(timed, "close_if_due", slow)
    scheduler = Scheduler(timed, poll=0.01)
    scheduler.start()
    assert closing.wait(60)
    timed.policy_cache.listen(lambda name: heard.set())
    other.change("feed", "pause", who="eve", reason="odd numbers")
    assert heard.wait(60)
    assert timed.policy_cache.current("feed").state == "paused"
    done.set()
    scheduler.stop()


def test_a_store_out_of_reach_does_not_end_the_threads(
    timed: Service, clocks: Clocks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OSError("no route to host")

    with monkeypatch.context() as patch:
        patch.setattr(timed.policy_cache, "refresh", fail)
        assert Scheduler(timed).tick() == 0
    assert "no route to host" in caplog.text
    clocks.pass_(HOUR)
    assert Scheduler(timed).tick() == 1


def test_the_thread_starts_closes_and_stops(timed: Service, clocks: Clocks) -> None:
    closed = Event()
    timed.policy_cache.listen(lambda name: closed.set())
    clocks.pass_(HOUR)
    scheduler = Scheduler(timed, poll=0.01)
    scheduler.start()
    scheduler.start()
    assert closed.wait(60)
    assert scheduler.alive
    scheduler.stop()
    assert not scheduler.alive
    assert timed.show("feed").round == 2


def test_rounds_by_exposures_that_come_fast_wait_for_the_oldest_and_lose_none(
    clocks: Clocks, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MIN_REMEMBERED_POLICIES", "MAX_REMEMBERED_POLICIES"):
        monkeypatch.setattr(pending_rounds, name, 8)
    service = Service(open_store("memory:"), clock=lambda: clocks.wall, monotonic=lambda: clocks.steady)
    rounds = {"exposures": 20, "maturity": "1h"}
    service.create({**document, "guardrails": [], "learner": "algorithm1", "rounds": rounds}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    scheduler = Scheduler(service)
    for second in range(40):
        policy = service.policy_cache.current("feed")
        exposures = [
            {
                "type": "exposure",
                "id": unit,
                "unit": unit,
                "version": policy.version,
                "candidate": policy.draw(unit).name,
            }
            for unit in (f"{second}/{number}" for number in range(20))
        ]
        service.ingest("feed", service.decode(json.dumps(exposures).encode())).result()
        clocks.pass_(1.0 if second < 20 else 600.0)
        scheduler.tick()
        if second == 19:
            with pytest.raises(LifecycleError, match="as many rounds waiting"):
                service.close_round("feed", who="ann")
    closes = service.rounds("feed")
    learned = [number for one in closes for number in one.learned_from]
    assert not [problem for one in closes for problem in one.problems]
    assert learned == list(range(1, len(learned) + 1))
    assert len(learned) > 5
    service.shutdown()


def test_a_requested_report_is_rebuilt_once_after_a_close(
    timed: Service, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    compute = ReportBuilder.build_from_closes

    def fresh(self: ReportBuilder, snapshot: Any) -> Any:
        made.append(snapshot.row.round)
        return compute(self, snapshot)

    monkeypatch.setattr(ReportBuilder, "build_from_closes", fresh)
    scheduler = Scheduler(timed)
    timed.report("feed")
    for _ in range(2):
        clocks.pass_(HOUR)
        assert scheduler.tick() == 1
    assert made == [1, 2]  # the second one's round is not checked any more
    timed.report("feed")
    timed.report("feed")
    assert made == [1, 2, 3]


def test_counts_are_updated_without_requests(timed: Service, clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pasto.service.service.REFRESH_ROUNDS", 2)
    monkeypatch.setattr("pasto.service.event_accounting.SAVE_CLOSES", 1)
    number = timed.policy_cache.snapshot("feed").row.number
    refreshed = []
    for _ in range(3):
        clocks.pass_(HOUR)
        assert Scheduler(timed).tick() == 1
        refreshed.append(timed.store.read_cache(f"event_counts/{number}") is not None)
    assert refreshed == [False, True, True]
    monkeypatch.setattr(ReportBuilder, "update_counts", lambda self, study: 1 // 0)
    clocks.pass_(HOUR)
    assert Scheduler(timed).tick() == 1  # a failure there must not affect a close
