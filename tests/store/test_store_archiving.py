"""What a store lets go of when events rest in the archive, or when a unit is to be forgotten."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pasto.store import AuditRow, EventRow, Store, StudyRow
from pasto.store.letting_go import ARCHIVED_AT_ONCE, TRIMMED_AT_ONCE
from pasto.store.rows import EXPOSURE, METRIC

ROW = StudyRow("feed", 0, 1, "draft", "{}", 7, 0, 0, 0.0, 0.0)
FORGET = AuditRow(5.0, "ann", "forget", "asked to", "{}")


def events(version: int, units: int = 3) -> list[EventRow]:
    found = []
    for unit in (f"u{place}" for place in range(units)):
        found.append(EventRow(f"e{version}/{unit}", EXPOSURE, unit, version, "learner", 0))
        found.append(EventRow(f"m{version}/{unit}", METRIC, unit, version, "learner", 0, "like", '{"x": 1}'))
    return found


def filled(store: Store) -> int:
    study = store.create(ROW, AuditRow(0.0, "ann", "create", "")).number
    for version in (1, 2):
        store.append(study, events(version)).result()
    store.append(study, [EventRow("free", METRIC, "stranger", None, None, None, "like")]).result()
    return study


def kept(store: Store) -> list[Any]:
    with store.reading() as connection:
        rows = connection.execute("SELECT version, unit, name, id FROM events ORDER BY sequence").fetchall()
    return [tuple(row) for row in rows]


def test_archived_events_keep_their_ids_and_nothing_else(store: Store) -> None:
    study = filled(store)
    last = store.high_water(study)
    assert store.archived(study, 1, 0, 6) == 6
    assert store.archived(study, 1, 0, 6) == 0
    rows = kept(store)
    assert [row[1:3] for row in rows[:6]] == [("", None)] * 6
    assert [row[1] for row in rows[6:12]] == ["u0", "u0", "u1", "u1", "u2", "u2"]
    assert store.append(study, events(1)).result().new == (False,) * 6
    assert store.high_water(study) == last
    assert store.archived(study, 0, 0, last) == 1
    assert kept(store)[-1] == (None, "", None, "free")
    assert list(store.check()) == []
    assert store.archived(study, 2, 0, last) == 6
    assert list(store.check()) == []


def test_only_the_span_of_that_study_is_let_go(store: Store) -> None:
    study = filled(store)
    assert store.archived(study + 1, 1, 0, 10**4) == 0
    assert store.archived(study, 1, 2, 4) == 2
    assert [row[1] for row in kept(store)[:6]] == ["u0", "u0", "", "", "u2", "u2"]


def test_a_long_span_is_let_go_in_steps(store: Store) -> None:
    study = filled(store)
    assert store.archived(study, 1, 0, 3 * ARCHIVED_AT_ONCE + 1) == 6


def test_a_forgotten_unit_leaves_its_ids_and_a_record(store: Store) -> None:
    study = filled(store)
    assert store.forget(study, "u1", FORGET) == 4
    assert "u1" not in [row[1] for row in kept(store)]
    assert [line.action for line in store.audit(study)] == ["create", "forget"]
    assert list(store.check()) == []
    again = store.append(study, [*events(1), EventRow("x", METRIC, "u1", None, None, None, "like")]).result()
    assert again.new == (*(False,) * 6, True)
    assert kept(store)[-1] == (None, "u1", "like", "x"), "nothing is credited to an exposure that was forgotten"
    assert store.forget(study, "nobody", FORGET) == 0


def test_a_units_events_are_found_and_forgotten_by_their_places(store: Store) -> None:
    study = filled(store)
    places = store.events_of(study, "u1")
    assert [version for _, version in places] == [1, 1, 2, 2]
    assert store.events_of(study + 1, "u1") == []
    assert [version for _, version in store.events_of(study, "stranger")] == [0]
    mine = [sequence for sequence, _ in places]
    foreign = [sequence for sequence, _ in store.events_of(study, "u2")]
    assert store.forget(study, "u1", FORGET, [*mine, *foreign]) == 4, "what is another unit's stays"
    assert store.events_of(study, "u1") == []
    assert len(store.events_of(study, "u2")) == 4


def test_exposures_of_old_policies_are_let_go_and_credit_nothing(store: Store) -> None:
    study = filled(store)
    many = TRIMMED_AT_ONCE + 5
    store.append(study, [EventRow(f"n{k}", EXPOSURE, f"v{k}", 1, "learner", 0) for k in range(many)]).result()
    before = store.study("feed")
    assert before is not None
    assert store.commit(before, replace(before, version=2))
    assert store.trim(study + 1, 9) == 0
    assert store.trim(study, 1) == 0
    assert store.trim(study, 2) == many
    assert store.trim(study, 2) == 0
    assert [finding for finding in store.check() if "remembered" in finding] == []
    store.append(
        study, [EventRow(f"x{unit}", METRIC, unit, None, None, None, "like") for unit in ("v1", "u1")]
    ).result()
    assert [row[0] for row in kept(store)[-2:]] == [None, 2]
    assert store.trim(study, 3) == 3
    assert any("not remembered" in finding for finding in store.check()), "what is served must be remembered"
