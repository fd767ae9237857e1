"""Scheduler: rounds close when they are due, despite clock changes, and a failing study does not delay others."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from queue import Queue
from threading import Event
from typing import Any

import pytest

from pasto.errors import LifecycleError, SolverError, StoreError
from pasto.service import service as service_module
from pasto.service.reports.builder import ReportBuilder
from pasto.service.rounds import round_clock
from pasto.service.rounds.close import prepare_close
from pasto.service.scheduler import ClosePool, Scheduler
from pasto.service.service import Service
from pasto.service.work_sharing import CLAIM_SECONDS, WorkClaims
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
    assert tried.count("feed") == 4  # with growing intervals
    assert tried.count("zebra") == 1
    monkeypatch.undo()
    assert sum(scheduler.tick() for _ in range(60)) == 1


def test_a_study_whose_due_time_cannot_be_read_holds_up_no_other(
    timed: Service, clocks: Clocks, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed.create({**document, "name": "zebra", "learner": "algorithm1", "guardrails": []}, who="ann", seed=7)
    timed.change("zebra", "start", who="ann")
    measure = timed.measure_overdue

    def fail(name: str) -> float | None:
        if name == "feed":
            raise OSError("input/output error")
        return measure(name)

    monkeypatch.setattr(timed, "measure_overdue", fail)
    clocks.pass_(HOUR)
    assert Scheduler(timed).tick() == 1


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
    clocks.pass_(HOUR)
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


# Closing at scale


class Gate:
    """Replacement of the computation of a close, which waits for chosen studies until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *slow: str) -> None:
        self.entered: Queue[str] = Queue()
        self.opened = Event()
        compute = prepare_close

        def prepare(store: Any, snapshot: Any, *rest: Any, **options: Any) -> Any:
            self.entered.put(snapshot.row.name)
            if snapshot.row.name in slow:
                assert self.opened.wait(60)
            return compute(store, snapshot, *rest, **options)

        monkeypatch.setattr(service_module, "prepare_close", prepare)


def add_studies(service: Service, document: dict[str, Any], *names: str) -> None:
    for name in names:
        service.create({**document, "name": name, "learner": "algorithm1", "guardrails": []}, who="ann", seed=7)
        service.change(name, "start", who="ann")


def read_gauges(scheduler: Scheduler) -> dict[tuple[str, str | None], float]:
    return {
        (name, None if labels is None else labels["study"]): value
        for name, _, value, labels in scheduler.read_metrics()
    }


def test_a_slow_close_delays_no_other_study(
    timed: Service, clocks: Clocks, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    add_studies(timed, document, "apple", "zebra")
    closed: Queue[str] = Queue()
    gate = Gate(monkeypatch, "feed")
    clocks.pass_(HOUR + 30.0)
    scheduler = Scheduler(timed, poll=0.01, monotonic=lambda: clocks.steady)
    timed.policy_cache.listen(closed.put)
    scheduler.start()
    assert {closed.get(timeout=60), closed.get(timeout=60)} == {"apple", "zebra"}
    clocks.pass_(HOUR)  # the others go on, round after round
    assert {closed.get(timeout=60), closed.get(timeout=60)} == {"apple", "zebra"}
    gauges = read_gauges(scheduler)
    assert gauges["pasto_round_close_lag_seconds", "feed"] == HOUR + 30.0
    assert gauges["pasto_closes_running", None] >= 1
    gate.opened.set()
    assert closed.get(timeout=60) == "feed"
    scheduler.stop()
    assert [gate.entered.queue.count(name) for name in ("feed", "apple", "zebra")] == [1, 2, 2]


def test_a_slow_source_leaves_threads_to_other_sources() -> None:
    pool = ClosePool("source", 4, 2)
    entered: Queue[str] = Queue()
    opened = Event()

    def work(name: str, *, waits: bool) -> int:
        entered.put(name)
        assert not waits or opened.wait(60)
        return 1

    slow = [pool.submit("warehouse", partial(work, f"slow {place}", waits=True)) for place in range(6)]
    assert {entered.get(timeout=60), entered.get(timeout=60)} == {"slow 0", "slow 1"}
    assert pool.submit("lake", partial(work, "fast", waits=False)).result(timeout=60) == 1
    assert entered.get(timeout=60) == "fast"
    assert (pool.running, pool.waiting) == (2, 4)
    opened.set()
    assert [future.result(timeout=60) for future in slow] == [1] * 6
    pool.shutdown()


def test_a_failure_in_a_pool_frees_its_thread() -> None:
    pool = ClosePool("own", 1, 1)
    failing = pool.submit("", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failing.result(timeout=60)
    assert pool.submit("", lambda: 7).result(timeout=60) == 7
    pool.shutdown()


def test_a_lag_begins_when_a_round_may_be_closed(
    timed: Service, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = Scheduler(timed, monotonic=lambda: clocks.steady)
    clocks.pass_(HOUR + 7.0)
    with monkeypatch.context() as patch:
        patch.setattr(round_clock, "too_many_maturing_rounds", lambda *_: True)
        assert scheduler.tick() == 0
        clocks.pass_(HOUR)
        assert scheduler.tick() == 0
    clocks.pass_(3.0)
    assert scheduler.tick() == 1
    assert read_gauges(scheduler)["pasto_round_close_lag_seconds", "feed"] == 3.0
    clocks.pass_(HOUR + 7.0)
    assert scheduler.tick() == 1
    assert read_gauges(scheduler)["pasto_round_close_lag_seconds", "feed"] == 7.0


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.services)])
def nodes(
    request: pytest.FixtureRequest, clocks: Clocks, document: dict[str, Any]
) -> Iterator[tuple[Service, Service]]:
    """Yield two nodes on one store, with a study whose round is due."""
    if request.param == "memory":
        stores = [open_store("memory:")] * 2
    else:
        stores = [open_store(request.getfixturevalue("postgres_url")) for _ in range(2)]
    first, second = (Service(store, clock=lambda: clocks.wall, monotonic=lambda: clocks.steady) for store in stores)
    add_studies(first, document, "feed")
    second.policy_cache.refresh()
    clocks.pass_(HOUR)
    yield first, second
    for store in stores:
        store.close()


def test_two_nodes_measure_a_round_once(nodes: tuple[Service, Service], monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, "feed")
    schedulers = [Scheduler(node) for node in nodes]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(schedulers[0].tick)
        assert gate.entered.get(timeout=60) == "feed"
        assert [schedulers[1].tick() for _ in range(3)] == [0, 0, 0]
        gate.opened.set()
        assert first.result(timeout=60) == 1
    assert schedulers[1].tick() == 0
    assert gate.entered.empty()
    assert nodes[1].show("feed").round == 2
    for scheduler in schedulers:
        scheduler.stop()


def test_a_claim_of_a_dead_node_ends_and_a_late_close_of_it_changes_nothing(
    nodes: tuple[Service, Service], clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, "feed")
    dead, living = (Scheduler(node) for node in nodes)
    with ThreadPoolExecutor(2) as pool:
        late = pool.submit(dead.tick)
        assert gate.entered.get(timeout=60) == "feed"
        clocks.pass_(CLAIM_SECONDS - 1.0)
        assert living.tick() == 0
        clocks.pass_(1.0)
        takeover = pool.submit(living.tick)
        assert gate.entered.get(timeout=60) == "feed"
        gate.opened.set()
        assert takeover.result(timeout=60) + late.result(timeout=60) == 1  # one commit wins
    assert len(nodes[1].rounds("feed")) == 1
    for scheduler in (dead, living):
        scheduler.stop()


def test_a_node_that_lives_extends_its_claim(
    nodes: tuple[Service, Service], clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, "feed")
    slow, other = (Scheduler(node) for node in nodes)
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(slow.tick)
        assert gate.entered.get(timeout=60) == "feed"
        for _ in range(6):
            clocks.pass_(CLAIM_SECONDS / 2 + 1.0)
            slow.refresh()
            assert other.tick() == 0
        gate.opened.set()
        assert closing.result(timeout=60) == 1
    assert gate.entered.empty()
    for scheduler in (slow, other):
        scheduler.stop()


def test_a_store_that_takes_no_claim_does_not_keep_a_round_open(
    timed: Service, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> bool:
        raise StoreError("the disk is full")

    monkeypatch.setattr(timed.store, "claim", fail)
    clocks.pass_(HOUR)
    assert Scheduler(timed).tick() == 1


HOLDER = """
import sys, time
from pasto.service.work_sharing import WorkClaims
from pasto.store import open_store
with WorkClaims(open_store(sys.argv[1]), time.time).hold("close/1") as is_mine:
    print(is_mine, flush=True)
    sys.stdin.read()
"""


@pytest.mark.services
def test_a_claim_outlives_a_killed_process_until_its_time(postgres_url: str) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, postgres_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    holder.kill()
    holder.communicate()
    store, now = open_store(postgres_url), time.time()
    with WorkClaims(store, lambda: now).hold("close/1") as is_mine:
        assert not is_mine
    with WorkClaims(store, lambda: now + CLAIM_SECONDS).hold("close/1") as is_mine:
        assert is_mine
    store.close()
