"""Deletion in a store: archived events, forgotten units, and exposures after their last credit."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pasto.store import AuditRow, EventRow, Store, StudyRow, open_store
from pasto.store.rows import EXPOSURE, METRIC
from pasto.store.sql_store import DELETE_SEQUENCES, DELETE_UNITS, SEPARATE_POLICIES

ROW = StudyRow("feed", 0, 1, "draft", "{}", 7, 0, 0, 0.0, 0.0)
FORGET = AuditRow(5.0, "ann", "forget", "asked to")


def events(version: int, units: int = 3) -> list[EventRow]:
    found = []
    for unit in (f"u{place}" for place in range(units)):
        found.append(EventRow(f"e{version}/{unit}", EXPOSURE, unit, version, "learner", 0))
        found.append(EventRow(f"m{version}/{unit}", METRIC, unit, version, "learner", 0, "like", '{"x": 1}'))
    return found


def filled(store: Store) -> int:
    study = store.create_study(ROW, AuditRow(0.0, "ann", "create", "")).number
    for version in (1, 2):
        store.append_events(study, events(version)).result()
    store.append_events(study, [EventRow("free", METRIC, "stranger", None, None, None, "like")]).result()
    return study


def list_rows(store: Store) -> list[Any]:
    with store.read_transaction() as connection:
        rows = connection.execute("SELECT version, unit, name, id FROM events ORDER BY sequence").fetchall()
    return [tuple(row) for row in rows]


def test_archived_events_are_deleted_and_their_ids_count_once(store: Store) -> None:
    study = filled(store)
    last = store.read_high_water(study)
    assert store.delete_archived_events(study, 1, 0, 6) == 6
    assert store.delete_archived_events(study, 1, 0, 6) == 0
    rows = list_rows(store)
    assert [row[1] for row in rows] == ["u0", "u0", "u1", "u1", "u2", "u2", "stranger"]
    again = store.append_events(study, events(1)).result()
    assert (again.new, again.conflicts) == ((False,) * 6, ())
    assert store.read_high_water(study) == last
    assert store.delete_archived_events(study, 0, 0, last) == 1
    assert list(store.check_integrity()) == []
    assert store.delete_archived_events(study, 2, 0, last) == 6
    assert list_rows(store) == []
    assert list(store.check_integrity()) == []
    assert store.read_high_water(study) == last, "sequences go on, though no event is left"
    again = store.append_events(study, [*events(2), *events(3)]).result()
    assert (again.new, again.conflicts) == ((*(False,) * 6, *(True,) * 6), ())
    assert again.last == store.read_high_water(study) >= last + 6
    assert list(store.check_integrity()) == []


def test_another_event_under_an_archived_id_is_a_conflict(store: Store) -> None:
    study = filled(store)
    store.delete_archived_events(study, 1, 0, 6)
    other = [event._replace(unit="another") for event in events(1)]
    assert store.append_events(study, other).result().conflicts == tuple(range(6))


def test_what_was_deleted_is_recorded_by_policy_and_span(store: Store) -> None:
    study = filled(store)
    assert store.list_archived_spans(study, 0, 100) == []
    store.delete_archived_events(study, 1, 0, 2)
    store.delete_archived_events(study, 1, 2, 6)
    store.delete_archived_events(study, 0, 0, 13)
    assert store.list_archived_spans(study, 0, 100) == [(0, 1, 13, 13), (1, 2, 1, 2), (1, 4, 3, 6)]
    assert store.list_archived_spans(study, 2, 12) == [(1, 4, 3, 6)]
    assert store.list_archived_spans(study, 6, 12) == []
    assert store.list_archived_spans(study + 1, 0, 100) == []


def test_counts_of_old_policies_are_merged(store: Store) -> None:
    study = store.create_study(ROW, AuditRow(0.0, "ann", "create", "")).number
    policies = SEPARATE_POLICIES + 3
    for version in range(1, policies + 1):
        store.append_events(study, events(version, units=2)).result()
    for version in range(1, policies + 1):
        assert store.delete_archived_events(study, version, 0, 4 * policies) == 4
    with store.read_transaction() as connection:
        rows = connection.execute(
            "SELECT version, events FROM archived_event_counts WHERE kind = 0 ORDER BY version"
        ).fetchall()
    assert [tuple(row) for row in rows] == [(-2, 6), *((version, 2) for version in range(4, policies + 1))]


def test_a_backup_contains_archived_ids_and_continues_after_them(
    store: Store, tmp_path: Path, opened: Callable[[str], Store], address: str, request: pytest.FixtureRequest
) -> None:
    study = filled(store)
    last = store.read_high_water(study)
    for version in (0, 1, 2):
        store.delete_archived_events(study, version, 0, last)
    store.write_backup(tmp_path / "backup.db")
    places = {"memory:": "memory:", str(tmp_path / "data"): str(tmp_path / "second")}
    second = opened(places.get(address) or request.getfixturevalue("postgres_server").fresh())
    second.restore_backup(tmp_path / "backup.db")
    assert second.measure_size()[2:] == store.measure_size()[2:] == (13, 13)
    assert second.read_high_water(study) == last
    answer = second.append_events(study, [*events(1), *events(3)]).result()
    assert answer.new == (*(False,) * 6, *(True,) * 6)
    assert answer.last > last
    assert list(second.check_integrity()) == []


def test_only_the_span_of_that_study_is_deleted(store: Store) -> None:
    study = filled(store)
    assert store.delete_archived_events(study + 1, 1, 0, 10**4) == 0
    assert store.delete_archived_events(study, 1, 2, 4) == 2
    assert [row[1] for row in list_rows(store)[:4]] == ["u0", "u0", "u2", "u2"]


def test_a_long_span_is_deleted_in_steps(store: Store) -> None:
    study = filled(store)
    assert store.delete_archived_events(study, 1, 0, 3 * DELETE_SEQUENCES + 1) == 6


def test_a_forgotten_unit_leaves_its_ids_and_a_record(store: Store) -> None:
    study = filled(store)
    assert store.erase_unit(study, "u1", FORGET) == 4
    assert not any("u1" in str(row) for row in list_rows(store)), "an id may name its unit"
    assert [line.action for line in store.read_audit_log(study)] == ["create", "forget"]
    assert list(store.check_integrity()) == []
    again = store.append_events(study, [*events(1), EventRow("x", METRIC, "u1", None, None, None, "like")]).result()
    assert again.new == (*(False,) * 6, True)
    assert list_rows(store)[-1] == (None, "u1", "like", "x"), "nothing is credited to an exposure that was forgotten"
    assert store.erase_unit(study, "nobody", FORGET) == 0


def test_a_units_events_are_found_and_forgotten_by_their_places(store: Store) -> None:
    study = filled(store)
    places = store.find_unit_events(study, "u1")
    assert [version for _, version in places] == [1, 1, 2, 2]
    assert store.find_unit_events(study + 1, "u1") == []
    assert [version for _, version in store.find_unit_events(study, "stranger")] == [0]
    mine = [sequence for sequence, _ in places]
    foreign = [sequence for sequence, _ in store.find_unit_events(study, "u2")]
    assert store.erase_unit(study, "u1", FORGET, [*mine, *foreign]) == 4, "what is another unit's stays"
    assert store.find_unit_events(study, "u1") == []
    assert len(store.find_unit_events(study, "u2")) == 4


def test_exposures_of_old_policies_are_let_go_and_credit_nothing(store: Store) -> None:
    study = filled(store)
    many = DELETE_UNITS + 5
    store.append_events(study, [EventRow(f"n{k}", EXPOSURE, f"v{k}", 1, "learner", 0) for k in range(many)]).result()
    before = store.read_study("feed")
    assert before is not None
    assert store.update_study(before, replace(before, version=2))
    assert store.delete_latest_exposures(study + 1, 9) == 0
    assert store.delete_latest_exposures(study, 1) == 0
    assert store.delete_latest_exposures(study, 2) == many
    assert store.delete_latest_exposures(study, 2) == 0
    assert [finding for finding in store.check_integrity() if "remembered" in finding] == []
    store.append_events(
        study, [EventRow(f"x{unit}", METRIC, unit, None, None, None, "like") for unit in ("v1", "u1")]
    ).result()
    assert [row[0] for row in list_rows(store)[-2:]] == [None, 2]
    assert store.delete_latest_exposures(study, 3) == 3
    assert any("is not stored" in finding for finding in store.check_integrity()), "what is served must be remembered"


def test_at_most_25_bytes_an_archived_event_remain(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    try:
        study = store.create_study(ROW, AuditRow(0.0, "ann", "create", "")).number
        batch, batches = 2_000, 30
        for _ in range(batches):
            ids = [os.urandom(16).hex() for _ in range(batch)]
            rows = [
                EventRow(event_id, METRIC, f"user {event_id[:8]}", 1, "learner", 0, "watch", '{"seconds":12.5}')
                for event_id in ids
            ]
            store.append_events(study, rows).result()
        last = store.read_high_water(study)
        store.compact()
        full = store.measure_size()
        assert (full.events, full.archived, full.ids) == (last, 0, last)
        assert store.delete_archived_events(study, 1, 0, last) == last
        freed = store.measure_size()
        assert (freed.events, freed.archived, freed.ids) == (0, last, last)
        assert freed.bytes == full.bytes, "free pages stay in the file, for what comes next"
        assert freed.free_bytes is not None
        assert freed.free_bytes > 0.7 * full.bytes
        store.append_events(study, [EventRow("new", METRIC, "ann", 2, "learner", 0, "like")]).result()
        assert store.measure_size().bytes <= full.bytes, "the space is used again"
        store.compact()
        size = store.measure_size()
        assert size.free_bytes == 0
        assert size.bytes == (tmp_path / "pasto.db").stat().st_size
        # All other tables of the store are in this figure: 100 kB, which weigh on few events.
        assert size.bytes_an_event <= 25, size
    finally:
        store.close()
    with sqlite3.connect(tmp_path / "pasto.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
