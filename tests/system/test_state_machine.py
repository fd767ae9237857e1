"""State machine of a study: duplicates, delays, restarts, pauses and clock changes, compared with a simple model."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pasto.errors import LifecycleError
from pasto.report.records import write_record
from pasto.service.close_record import CloseRecord
from pasto.service.scheduler import Scheduler
from pasto.service.service import Service
from pasto.store import open_store

DOCUMENT: dict[str, Any] = {
    "name": "feed",
    "baseline": {"w": 1},
    "parameters": {"w": [0, 1, 2]},
    "metrics": {"x": {"event": "seen", "value": "x", "aggregate": "sum", "range": [-9, 9]}},
    "goal": {"maximize": "x"},
    "traffic": {"control": "20%", "explore": "90%"},
    "rounds": {"every": "1h", "maturity": "1h", "accept_late": "2h"},
    "learner": "algorithm1",
}
ACTIONS = ("pause", "resume", "confirm", "deploy")
LEADS = {
    ("learning", "pause"): "paused",
    ("confirming", "pause"): "paused",
    ("deployed", "pause"): "paused",
    ("learning", "confirm"): "confirming",
    ("confirming", "deploy"): "deployed",
}


class Machine(RuleBasedStateMachine):
    """Two nodes over one store, and a model of the study in a few lines."""

    @initialize()
    def begin(self) -> None:
        self.store = open_store("memory:")
        self.wall, self.steady = 1_700_000_000.0, 0.0
        self.nodes = [self._node(), self._node()]
        self.nodes[0].create(DOCUMENT, who="ann", seed=7)
        self.nodes[0].change("feed", "start", who="ann")
        self.state, self.paused_from, self.version, self.round = "learning", "", 1, 1
        self.acked: set[str] = set()
        self.kept_back: list[dict[str, Any]] = []
        self.serial = 0

    def _node(self) -> Service:
        return Service(self.store, clock=lambda: self.wall, monotonic=lambda: self.steady)

    def _send(self, node: int, events: list[dict[str, Any]]) -> None:
        service = self.nodes[node]
        answer = service.ingest("feed", service.decode(json.dumps(events).encode())).result(timeout=60)
        assert answer.rejected == ()
        ids = {event["id"] for event in events}
        assert answer.accepted == len(ids - self.acked)
        assert answer.duplicates == len(events) - answer.accepted
        self.acked |= ids

    @rule(node=st.integers(0, 1), users=st.integers(0, 12), late=st.booleans(), repeat=st.integers(1, 2))
    def traffic(self, node: int, users: int, late: bool, repeat: int) -> None:
        policy = self.nodes[node].policy_cache.current(
            "feed"
        )  # perhaps an old one: this node may not have read the store since
        events: list[dict[str, Any]] = []
        for _ in range(users):
            self.serial += 1
            unit = f"user {self.serial % 30}"
            bucket = policy.draw(unit)
            if bucket is policy.not_enrolled:
                continue
            drawn = {"unit": unit, "version": policy.version, "candidate": bucket.name}
            events.append({"type": "exposure", "id": f"e{self.serial}", **drawn})
            fields = {"x": self.serial % 7 - 3.0}
            events.append({"type": "metric", "id": f"m{self.serial}", "name": "seen", "fields": fields, **drawn})
        if late:
            self.kept_back += events[len(events) // 2 :]
            events = events[: len(events) // 2]
        self._send(node, events * repeat)

    @rule(node=st.integers(0, 1))
    def late_arrivals(self, node: int) -> None:
        self._send(node, self.kept_back)
        self.kept_back = []

    @rule(node=st.integers(0, 1))
    def close(self, node: int) -> None:
        if self.state == "paused":
            with pytest.raises(LifecycleError):
                self.nodes[node].close_round("feed", who="ann")
            return
        assert self.nodes[node].close_round("feed", who="ann", round=self.round).closed
        assert not self.nodes[1 - node].close_round("feed", who="bob", round=self.round).closed
        self._closed()

    def _closed(self) -> None:
        """Check that a learning round leads to another policy, and any other round does not."""
        self.round += 1
        self.version += self.state == "learning"

    @rule(node=st.integers(0, 1), action=st.sampled_from(ACTIONS), hold=st.sampled_from(["blend", "baseline"]))
    def change(self, node: int, action: str, hold: str) -> None:
        target = LEADS.get((self.state, action))
        if self.state == "paused" and action == "resume":
            target = self.paused_from
        if self.state == "paused" and action == "pause" and hold == "baseline":
            target = "paused"  # the baseline replaces what is served
        options: dict[str, Any] = {"hold": hold} if action == "pause" else {}
        if action == "deploy" and self.state == "confirming" and hold == "baseline":
            options = {"without_confirmation": True}
        service = self.nodes[node]
        refusal = ""
        try:
            service.change("feed", action, who="ann", reason="why", **options)
        except LifecycleError as error:
            refusal = str(error)
        if refusal:
            assert (
                target is None
                or (action == "confirm" and "has learned no round yet" in refusal)
                or (action == "deploy" and ("too few units" in refusal or "is not confirmed" in refusal))
            )
            return
        assert target is not None
        if action == "pause" and self.state != "paused":
            self.paused_from = self.state
        self.state = target
        self.version += 1
        self.round += 1

    @rule(node=st.integers(0, 1))
    def restart(self, node: int) -> None:
        self.nodes[node] = self._node()

    @rule(minutes=st.integers(1, 90))
    def time_passes(self, minutes: int) -> None:
        self.wall += 60.0 * minutes
        self.steady += 60.0 * minutes

    @rule(hours=st.sampled_from([-24, -1, 1, 24]))
    def clock_jumps(self, hours: int) -> None:
        self.wall += 3600.0 * hours

    @rule(node=st.integers(0, 1))
    def tick(self, node: int) -> None:
        closed = Scheduler(self.nodes[node]).tick()
        assert closed in (0, 1)
        assert closed == 0 or self.state in ("learning", "confirming")
        if closed:
            self._closed()

    @precondition(lambda self: self.state == "learning")
    @rule(node=st.integers(0, 1))
    def an_hour_is_enough(self, node: int) -> None:
        Scheduler(self.nodes[node]).tick()
        self.steady += 3600.0  # for every wall clock
        Scheduler(self.nodes[node]).tick()
        row = self.store.read_study("feed")
        assert row is not None
        assert row.version > self.version
        self.version, self.round = row.version, row.round

    @invariant()
    def event_counts_and_policies_are_correct(self) -> None:
        if not hasattr(self, "store"):
            return
        row = self.store.read_study("feed")
        assert row is not None
        assert (row.state, row.version, row.round) == (self.state, self.version, self.round)
        with self.store.read_transaction() as connection:
            stored_ids = connection.execute("SELECT id FROM events ORDER BY id").fetchall()
        assert [identity for (identity,) in stored_ids] == sorted(self.acked)
        closes = self.store.list_closes(row.number)
        assert [close.round for close in closes] == list(range(1, self.round))
        times = [close.closed_at for close in closes]
        assert times == sorted(times)
        policy = self.nodes[0].policy_cache.published(self.nodes[0].policy_cache.reload("feed"), self.version)
        assert policy is not None
        assert policy.state == self.state
        assert math.fsum(cell.propensity for cell in policy.cells) == 1.0
        if self.state == "learning":
            shares = [cell.propensity for cell in policy.cells if cell.arm == "learner"]
            assert len(shares) == 3
            assert min(shares) > 0.72 * 0.001
        records = [CloseRecord.from_text(close.record) for close in closes]
        learned = [entry.round for record in records for entry in record.rounds]
        assert len(learned) == len(set(learned))
        assert all("had no units of the learner" in problem for record in records for problem in record.problems)

    def _came_too_late(self) -> int:
        """Return events after the last event of their round's close, if nothing corrects the round any more."""
        row = self.store.read_study("feed")
        assert row is not None
        marks: dict[int, int] = {}
        for close in self.store.list_closes(row.number):
            record = CloseRecord.from_text(close.record)
            marks |= {entry.round: close.high_water for entry in record.rounds if not entry.is_correctable}
            marks |= {entry.round: entry.until for entry in record.final}
        with self.store.read_transaction() as connection:
            events = connection.execute("SELECT version, sequence FROM events").fetchall()
        return sum(sequence > marks.get(version, sequence) for version, sequence in events)

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        service = self._node()
        assert write_record(service.replay("feed")) == {
            "identical": True,
            "rounds": self.round - 1,
            "first_difference": None,
        }
        late = self._came_too_late()
        for node in (*self.nodes, service):
            assert write_record(node.report("feed"))["accounting"]["late"]["events"] == late
        event_counts = write_record(service.report("feed"))["accounting"]["events"]
        assert event_counts["exposures"] + event_counts["metrics"] == len(self.acked)
        self.store.close()


QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


def test_a_study_holds_under_everything_at_once() -> None:
    run_state_machine_as_test(Machine, settings=settings(QUIET, max_examples=20, stateful_step_count=30))


@pytest.mark.services
def test_a_study_holds_under_everything_at_length() -> None:
    run_state_machine_as_test(Machine, settings=settings(QUIET, max_examples=500, stateful_step_count=100))
