"""Corrections: late events correct their rounds while these are correctable; only later events are lost."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pasto.report.records import write_record
from pasto.report.replay_report import ReplayException
from pasto.service.archive import Archive
from pasto.service.close_record import CloseRecord, CloseSummary
from pasto.service.ingest import BatchResult
from pasto.service.round_history import RoundHistoryReader
from pasto.service.rounds.close_inputs import moments_of
from pasto.service.rounds.learner_step import round_observations
from pasto.service.rounds.replay import replay_study
from pasto.service.service import Service
from pasto.service.study_state import MaturingRound, StudyState
from pasto.store import AuditRow, Store, open_store
from pasto.study import Study
from pasto.study.assignment import Policy
from pasto.study.observation_validation import build_round
from pasto_sdk.policy import PublishedPolicy

Events = list[dict[str, Any]]
World = Callable[[PublishedPolicy, int], Events]
Send = Callable[[Service, str, Events], BatchResult]
HOUR = 3600.0
ROUNDS = 7


class Run:
    """Study with a clock set by hand, and its served policies."""

    def __init__(self, store: Store, document: dict[str, Any], send: Send, **rounds: Any) -> None:
        self.store = store
        self.now = 1_700_000_000.0
        self._send = send
        self.service = self._service()
        self.service.create({**document, "rounds": {"every": "1h", **rounds}}, who="ann", seed=7)
        self.service.change("feed", "start", who="ann")
        self.served = {self.study().policy.version: self.study().policy}

    def _service(self) -> Service:
        return Service(self.store, clock=lambda: self.now, monotonic=lambda: 0.0)

    def restart(self) -> None:
        self.service = self._service()

    @property
    def number(self) -> int:
        return self.service.policy_cache.snapshot("feed").row.number

    def study(self) -> Study:
        saved = self.store.read_learner_state(self.service.policy_cache.snapshot("feed").row.number)
        assert saved is not None
        return Study.from_state(json.loads(saved))

    def send(self, events: Events) -> None:
        assert not self._send(self.service, "feed", events).rejected if events else True

    def close(self) -> CloseSummary:
        self.now += HOUR
        done = self.service.close_round("feed", who="ann")
        policy = self.study().policy
        self.served[policy.version] = policy
        return done

    def closes(self) -> list[CloseRecord]:
        return [CloseRecord.from_text(close.record) for close in self.store.list_closes(self.number)]


@pytest.fixture
def started(document: dict[str, Any], store: Store, send: Send) -> Callable[..., Run]:
    return lambda **rounds: Run(store, document, send, **rounds)


@pytest.fixture
def memory() -> Iterator[Store]:
    store = open_store("memory:")
    yield store
    store.close()


def play(run: Run, world: World, *, rounds: int = ROUNDS, most: int = 3, restart: bool = False) -> int:
    """Run rounds in which 30 % of one candidate's events come up to `most` rounds late; return their number."""
    rng = np.random.default_rng(3)
    later: dict[int, Events] = defaultdict(list)
    delayed = 0
    for number in range(1, rounds + most + 1):
        on_time: Events = []
        for event in world(run.service.policy_cache.current("feed"), 60) if number <= rounds else ():
            if event["candidate"] == "w=2" and rng.random() < 0.3:
                later[number + int(rng.integers(1, most + 1))].append(event)
                delayed += 1
            else:
                on_time.append(event)
        run.send(on_time + later.pop(number, []))
        if restart:
            run.restart()
        run.close()
    assert not later
    return delayed


def expected(run: Run, rounds: int) -> Any:
    """Return the learner's state after each round once, with all its events, under the served policies."""
    spec = run.service.policy_cache.spec(run.service.policy_cache.snapshot("feed").row)
    study = spec.build_study(seed=7)
    state = study._learner.start(study._problem)
    until = run.store.read_high_water(run.number)
    for row in run.store.list_policies(run.number):
        if row.round <= rounds and row.learner_version is not None:
            waiting = MaturingRound(row.round, row.learner_version, row.after_sequence, 0.0)
            observations = round_observations(spec, waiting, moments_of(run.store, spec, run.number, waiting, until))
            policy: Policy = run.served[row.learner_version]
            state = study._learner.learn(study._problem, state, build_round(observations.observations, policy))
    return study._learner.save(state)


@pytest.mark.parametrize("restart", [False, True], ids=["", "restarted"])
def test_what_comes_inside_the_window_is_learned(started: Callable[..., Run], world: World, restart: bool) -> None:
    run = started(accept_late="3h")
    assert play(run, world, restart=restart) > 30
    assert run.study().state()["learned"] == expected(run, ROUNDS)
    assert run.study().rounds == ROUNDS
    assert any(record.corrected for record in run.closes())
    assert write_record(run.service.report("feed"))["accounting"]["late"]["events"] == 0
    assert write_record(run.service.replay("feed")) == {
        "identical": True,
        "rounds": ROUNDS + 3,
        "first_difference": None,
    }


def test_algorithm_1_is_corrected_too(quick: dict[str, Any], memory: Store, send: Send, world: World) -> None:
    run = Run(memory, quick, send, accept_late="3h", maturity="1h")
    assert play(run, world) > 30
    run.close()
    assert run.study().state()["learned"] == expected(run, ROUNDS)
    assert run.service.replay("feed").identical


def test_what_is_dropped_is_missed(quick: dict[str, Any], memory: Store, send: Send, world: World) -> None:
    run = Run(memory, quick, send)
    delayed = play(run, world)
    assert run.study().state()["learned"] != expected(run, ROUNDS)
    assert write_record(run.service.report("feed"))["accounting"]["late"]["events"] == delayed
    assert not any(record.corrected or record.final for record in run.closes())


def test_past_the_window_every_event_is_in_the_ledger(
    quick: dict[str, Any], memory: Store, send: Send, world: World
) -> None:
    run = Run(memory, quick, send, accept_late="1h")
    events = world(run.service.policy_cache.current("feed"), 60)
    run.send(events[:-8])
    run.close()
    run.send(events[-8:-6])
    assert (
        write_record(run.service.report("feed"))["accounting"]["late"]["events"] == 0
    )  # the round is open: they are not lost
    assert run.close().corrected == (1,)
    assert write_record(run.service.report("feed"))["accounting"]["late"]["events"] == 0
    run.send(events[-6:-3])
    assert run.close().corrected == ()
    run.send(events[-3:])
    late = write_record(run.service.report("feed"))["accounting"]["late"]
    assert late["events"] == 6
    assert [one["round"] for one in late["rounds"]] == [1]
    fresh = Service(run.store, clock=lambda: run.now, monotonic=lambda: 0.0)  # counts that are read in one query
    assert write_record(fresh.report("feed"))["accounting"]["late"] == late
    assert run.service.replay("feed").identical


def test_a_window_without_late_events_changes_nothing(quick: dict[str, Any], send: Send, world: World) -> None:
    policies = []
    for rounds in ({}, {"accept_late": "2h"}):
        store = open_store("memory:")
        run = Run(store, quick, send, **rounds)
        for _ in range(5):
            run.send(world(run.service.policy_cache.current("feed"), 60))
            run.close()
        policies.append([row.document for row in store.list_policies(run.number)])
        assert not any(record.corrected for record in run.closes())
        state = run.study().state()
        state.pop("correctable", None)
        policies[-1].append(json.dumps(state))
        store.close()
    assert policies[0] == policies[1]


def test_what_is_open_is_bounded(quick: dict[str, Any], memory: Store, send: Send, world: World) -> None:
    run = Run(memory, quick, send, accept_late="3h")
    sizes = []
    for _ in range(12):
        run.send(world(run.service.policy_cache.current("feed"), 20))
        run.close()
        row = run.service.policy_cache.snapshot("feed").row
        open_ = StudyState.from_text(row.details).correctable
        sizes.append(len(open_))
        assert run.study().correctable == tuple(one.waiting.learned for one in open_)
    assert sizes == [1, 2, *[3] * 10]
    assert len(json.dumps(run.study().state()["correctable"])) < 4_000


def test_a_round_whose_units_all_come_late_is_learned_then(
    quick: dict[str, Any], memory: Store, send: Send, world: World
) -> None:
    run = Run(memory, quick, send, accept_late="3h")
    first = world(run.service.policy_cache.current("feed"), 60)
    run.close()
    run.send(world(run.service.policy_cache.current("feed"), 60))
    assert run.close().problems == ()
    run.send(first)
    assert run.close().corrected == (1,)
    assert run.study().rounds == 2
    assert run.study().state()["learned"] == expected(run, 2)
    assert run.service.replay("feed").identical


def test_a_report_reads_a_corrected_round_once(quick: dict[str, Any], memory: Store, send: Send, world: World) -> None:
    run = Run(memory, quick, send, accept_late="3h")
    reader = RoundHistoryReader(memory, run.number)
    events = world(run.service.policy_cache.current("feed"), 60)
    run.send(events[:-8])
    run.close()
    before = sum(cell.units for cell in reader.read(2).rounds[0].cells)
    run.send([*events[-8:], *world(run.service.policy_cache.current("feed"), 60)])
    run.close()
    for found in (reader.read(3), RoundHistoryReader(memory, run.number).read(3)):
        assert [one.version for one in found.rounds] == [1, 2]
        assert sum(cell.units for cell in found.rounds[0].cells) == 60 > before
    closed = run.service.rounds("feed")[-1]
    assert (closed.learned_from, closed.corrected) == ((2,), (1,))
    assert run.service.audit("feed")[-1].detail["corrected"] == [1]


def test_numbers_that_are_cut_are_counted_once(quick: dict[str, Any], memory: Store, send: Send, world: World) -> None:
    run = Run(memory, quick, send, accept_late="2h")
    events = world(run.service.policy_cache.current("feed"), 30)
    for event in events:
        if event["type"] == "metric":
            event["fields"]["x"] = 99.0
    run.send([event for event in events if event["type"] == "exposure"])
    for place in range(4):
        run.send([event for event in events if event["type"] == "metric"][place * 5 : place * 5 + 5])
        run.close()
    assert write_record(run.service.report("feed"))["accounting"]["clipped"] == {
        "x": 15,
        "y": 0,
    }  # the window closed after those


@pytest.mark.parametrize("action", ["confirm", "archive"])
def test_the_end_of_learning_makes_every_round_final(
    quick: dict[str, Any], memory: Store, send: Send, world: World, action: str
) -> None:
    run = Run(memory, quick, send, accept_late="9h")
    for _ in range(3):
        events = world(run.service.policy_cache.current("feed"), 60)
        run.send(events[:-2])
        run.close()
    run.send(world(run.service.policy_cache.current("feed"), 60))
    row = run.service.change("feed", action, who="ann", reason="enough")
    run.service.policy_cache.refresh()
    assert not StudyState.from_text(run.service.policy_cache.snapshot("feed").row.details).correctable
    assert [entry.round for entry in run.closes()[-1].final] == [1, 2, 3]
    assert run.closes()[-1].problems == ()
    if row.state == "confirming":
        run.send(events[-2:])
        assert write_record(run.service.report("feed"))["accounting"]["late"]["events"] == 2
    assert run.service.replay("feed").identical


def test_a_pause_leaves_rounds_open(quick: dict[str, Any], memory: Store, send: Send, world: World) -> None:
    run = Run(memory, quick, send, accept_late="9h")
    events = world(run.service.policy_cache.current("feed"), 60)
    run.send(events[:-4])
    run.close()
    run.service.change("feed", "pause", who="ann", reason="lunch")
    run.send(events[-4:])
    run.service.change("feed", "resume", who="ann")
    assert run.closes()[-1].corrected[0].round == 1
    assert run.study().state()["learned"] == expected(run, 1)
    assert run.service.replay("feed").identical


def test_rounds_that_are_open_stay_in_the_store(
    quick: dict[str, Any], tmp_path: Path, send: Send, world: World
) -> None:
    store = open_store(str(tmp_path / "store"))
    run = Run(store, quick, send, accept_late="2h")
    archive = Archive.of_store(store)
    assert archive is not None
    rng = np.random.default_rng(1)
    late: Events = []
    for _ in range(6):
        events = world(run.service.policy_cache.current("feed"), 40)
        held = rng.random(len(events)) < 0.2
        run.send([*late, *(event for event, back in zip(events, held, strict=True) if not back)])
        late = [event for event, back in zip(events, held, strict=True) if back]
        run.close()
        archive.take(store, run.service.policy_cache.snapshot("feed").row)
    assert sorted(one for one in archive.rounds("feed") if one) == [1, 2, 3, 4]
    assert sum(len(record.corrected) for record in run.closes()) == 5
    assert run.service.replay("feed").identical
    store.close()


def test_a_unit_that_is_forgotten_between_corrections_is_reported_once(
    quick: dict[str, Any], memory: Store, send: Send, world: World
) -> None:
    run = Run(memory, quick, send, accept_late="5h")
    events = world(run.service.policy_cache.current("feed"), 40)
    run.send(events[:-8])
    run.close()
    run.send(events[-8:-4])
    run.close()
    audit = AuditRow(run.now, "ann", "forget", "asked to", {"rounds": {"1": 2}})
    assert memory.erase_unit(run.number, events[0]["unit"], audit) == 2
    run.send(events[-4:])
    assert run.close().corrected == (1,)
    found = run.service.replay("feed")
    assert found.identical
    assert found.exceptions == {"deleted_units": ReplayException((1,), units=1)}


@pytest.mark.parametrize("harm", ["dropped", "changed"])
def test_replay_finds_a_correction_that_is_not_so(
    quick: dict[str, Any], memory: Store, send: Send, world: World, harm: str
) -> None:
    run = Run(memory, quick, send, accept_late="3h")
    play(run, world, rounds=3)
    assert run.service.replay("feed").identical

    class ForgedStore:
        """Store in which one close has another checksum."""

        def __getattr__(self, name: str) -> Any:
            return getattr(memory, name)

        def list_closes(self, study: int, **page: Any) -> list[Any]:
            found = []
            for close in memory.list_closes(study, **page):
                record = json.loads(close.record)
                if record.get("corrected"):
                    if harm == "dropped":
                        del record["corrected"][0]
                    else:
                        record["corrected"][0]["cells"][0]["units"] += 1
                found.append(replace(close, record=json.dumps(record)))
            return found

    snapshot = run.service.policy_cache.snapshot("feed")
    found = replay_study(ForgedStore(), snapshot.spec, snapshot.row)
    assert not found.identical
