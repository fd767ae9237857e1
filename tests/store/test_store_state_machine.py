"""State machine of a store: after any sequence of operations it equals a simple model."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pasto.store import EXPOSURE, METRIC, AuditRow, EventRow, PolicyRow, SenderCounts, Store, StudyRow, open_store

UNITS = st.sampled_from(["ann", "bob", "ünal"])
IDS = st.integers(0, 40).map(str)
EXPOSURES = st.builds(
    lambda identity, unit, version, excluded: EventRow(
        identity, EXPOSURE, unit, version, "learner", version % 3, excluded=excluded
    ),
    IDS,
    UNITS,
    st.integers(1, 5),
    st.integers(0, 1),
)
METRICS = st.builds(
    lambda identity, unit, version: EventRow(
        identity,
        METRIC,
        unit,
        version,
        None if version is None else "learner",
        None if version is None else version % 3,
    ),
    IDS,
    UNITS,
    st.none() | st.integers(1, 5),
)
BATCHES = st.lists(EXPOSURES | METRICS, max_size=8)
TALLIES = st.lists(
    st.builds(SenderCounts, st.sampled_from("ab"), st.just(1), st.integers(0, 9), st.just("{}"), st.just("{}")),
    max_size=2,
)


class StoreMachine(RuleBasedStateMachine):
    """Store and its model, a dictionary; several batches wait at once, and the store may be reopened at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.store: Store = open_store(str(self.folder))
        self.events: dict[tuple[int, str], tuple[Any, ...]] = {}
        self.latest: dict[tuple[int, str], tuple[Any, ...]] = {}
        self.tallies: dict[tuple[int, str], SenderCounts] = {}
        self.rows: list[StudyRow] = []
        self.last_read: list[StudyRow] = []
        self.policies: dict[int, list[int]] = {}

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    @initialize()
    def create(self) -> None:
        for name in ("feed", "home"):
            row = StudyRow(name, 0, 1, "draft", "{}", 1, 0, 0, 0.0, 0.0)
            self.rows.append(self.store.create_study(row, AuditRow(0.0, "ann", "create", "")))
            self.policies[self.rows[-1].number] = []
        self.last_read = list(self.rows)

    @rule(batches=st.lists(st.tuples(st.integers(0, 1), BATCHES, TALLIES), min_size=1, max_size=4))
    def append(self, batches: list[tuple[int, list[EventRow], list[SenderCounts]]]) -> None:
        futures = [
            self.store.append_events(self.rows[place].number, events, tallies) for place, events, tallies in batches
        ]
        for (place, events, tallies), future in zip(batches, futures, strict=True):
            study = self.rows[place].number
            expected = tuple(self.keep(study, event) for event in events)
            assert future.result().new == expected
            for tally in tallies:
                held = self.tallies.get((study, tally.source))
                if held is None or tally.position > held.position:
                    self.tallies[study, tally.source] = tally

    def keep(self, study: int, event: EventRow) -> bool:
        if (study, event.id) in self.events:
            return False
        credit: tuple[Any, ...] = (event.version, event.arm, event.candidate)
        if event.kind == METRIC and event.version is None:
            credit = self.latest.get((study, event.unit), (None, None, None))
        if event.kind == EXPOSURE and not event.excluded:
            self.latest[study, event.unit] = credit
        self.events[study, event.id] = (event.kind, event.unit, *credit)
        return True

    @rule(place=st.integers(0, 1), stale=st.booleans(), version=st.integers(1, 6))
    def commit(self, place: int, stale: bool, version: int) -> None:
        before = self.last_read[place] if stale else self.rows[place]
        version = min(version, len(self.policies[before.number]) + 1)
        after = replace(before, state=f"state {version}", version=version)
        row = PolicyRow(
            version, 1, None, "{}", "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", 0, 0.0
        )
        fits = before == self.rows[place] and version not in self.policies[before.number]
        audit = [AuditRow(0.0, "bob", "publish", "")]
        assert self.store.update_study(before, after, policy=row, audit=audit) == fits
        if fits:
            self.last_read[place] = before
            self.rows[place] = replace(after, generation=before.generation + 1)
            self.policies[before.number].append(version)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = open_store(str(self.folder))

    @rule()
    def back_up_and_restore(self) -> None:
        backup = self.folder / "backup.db"
        self.store.write_backup(backup)
        self.store.close()
        for name in ("pasto.db", "pasto.db-wal", "pasto.db-shm"):
            (self.folder / name).unlink(missing_ok=True)
        self.store = open_store(str(self.folder))
        self.store.restore_backup(backup)
        backup.unlink()

    @invariant()
    def agree(self) -> None:
        with self.store.read_transaction() as connection:
            events = connection.execute("SELECT study, id, kind, unit, version, arm, candidate FROM events").fetchall()
            latest = connection.execute("SELECT study, unit, version, arm, candidate FROM latest_exposures").fetchall()
        assert {row[:2]: row[2:] for row in events} == self.events
        assert len(events) == len(self.events)
        assert {row[:2]: row[2:] for row in latest} == self.latest
        assert self.store.list_studies() == self.rows
        for row in self.rows:
            assert [policy.version for policy in self.store.list_policies(row.number)] == sorted(
                self.policies[row.number]
            )
            assert len(self.store.read_audit_log(row.number)) == 1 + len(self.policies[row.number])
            held = [tally for (study, _), tally in self.tallies.items() if study == row.number]
            assert self.store.list_sender_counts(row.number, 1) == sorted(held)
        # Events here name versions that may not be published yet.
        assert [finding for finding in self.store.check_integrity() if "events of study" not in finding] == []


TestStoreMachine: Callable[[], Any] = StoreMachine.TestCase
StoreMachine.TestCase.settings = settings(max_examples=12, stateful_step_count=10, deadline=None)
