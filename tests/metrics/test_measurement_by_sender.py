"""Measurement by sender: units by the key and the source of their exposure, the same in every store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pasto.metrics import OTHER_SOURCES, Column, Moments, Sender, measure, measure_by_sender
from pasto.metrics.measurement import MAX_SOURCES
from pasto.store import EXPOSURE, METRIC, AuditRow, EventRow, Store, StudyRow, open_store

LIKES = (Column("likes", "like", None, "count"),)
SPAN: dict[str, Any] = {"study": 1, "version": 1, "after": 0, "until": 10**9}


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.services)])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    server = request.getfixturevalue("postgres_server") if request.param == "postgres" else None
    url = "memory:" if server is None else server.fresh()
    opened = open_store(url)
    opened.create_study(StudyRow("feed", 0, 1, "draft", "{}", 1, 0, 0, 0.0, 0.0), AuditRow(0.0, "ann", "create", ""))
    yield opened
    opened.close()
    if server is not None:
        server.drop(url)


def exposed(unit: str, candidate: int, source: str | None = None) -> EventRow:
    return EventRow(f"e/{unit}/{source}", EXPOSURE, unit, 1, "learner", candidate, source=source)


def liked(unit: str, number: int) -> EventRow:
    return EventRow(f"m/{unit}/{number}", METRIC, unit, 1, "learner", 0, "like")


def by_sender(store: Store, *, together: bool = False) -> dict[Sender, tuple[Moments, ...]]:
    with store.read_transaction() as connection:
        moments = measure(connection, store.dialect, **SPAN, columns=LIKES)
        return measure_by_sender(connection, store.dialect, **SPAN, columns=LIKES, moments=moments if together else ())


def test_units_belong_to_the_sender_of_their_exposure(store: Store) -> None:
    store.append_events(1, [exposed("ann", 0, "web"), exposed("bob", 1, "app"), liked("ann", 1)], key="aaaa").result()
    store.append_events(1, [exposed("cid", 0), liked("ann", 2), liked("cid", 1)], key="bbbb").result()
    store.append_events(1, [exposed("dan", 0)]).result()
    found = by_sender(store)
    assert {
        sender: [(cell.arm, cell.candidate, cell.units, cell.mean) for cell in cells] for sender, cells in found.items()
    } == {
        Sender("aaaa", "web"): [("learner", 0, 1, (2.0,))],
        Sender("aaaa", "app"): [("learner", 1, 1, (0.0,))],
        Sender("bbbb", ""): [("learner", 0, 1, (1.0,))],
        Sender("", ""): [("learner", 0, 1, (0.0,))],
    }


def test_a_unit_of_two_senders_counts_once(store: Store) -> None:
    store.append_events(1, [exposed("ann", 0, "web")], key="bbbb").result()
    store.append_events(1, [exposed("ann", 0, "app"), exposed("bob", 0, "app")], key="aaaa").result()
    found = by_sender(store)
    assert {sender: cells[0].units for sender, cells in found.items()} == {Sender("aaaa", "app"): 2}


def test_arms_have_their_present_names_by_sender(store: Store) -> None:
    for unit, arm in (("ann", "single"), ("bob", "best_single"), ("cid", "blend")):
        row = EventRow(f"e/{unit}", EXPOSURE, unit, 1, arm, 0, source="web")
        store.append_events(1, [row], key="aaaa").result()
    store.append_events(1, [exposed("dan", 0)]).result()
    found = by_sender(store)
    assert [(cell.arm, cell.units) for cell in found[Sender("aaaa", "web")]] == [("best_single", 2), ("blend", 1)]


def test_sources_beyond_the_largest_are_one_sender(store: Store) -> None:
    rows = [exposed(f"u{place}", 0, f"s{place:02d}") for place in range(MAX_SOURCES + 5)]
    store.append_events(1, [*rows, exposed("more", 0, "s24")], key="aaaa").result()
    found = by_sender(store)
    assert len(found) == MAX_SOURCES + 1
    assert found[Sender("aaaa", OTHER_SOURCES)][0].units == 5
    assert found[Sender("aaaa", "s24")][0].units == 2


def test_sources_with_similar_names_are_separate(store: Store) -> None:
    name = "a\x1fb'; DROP TABLE events; --\u00e9"
    store.append_events(1, [exposed("ann", 0, name), exposed("bob", 0, "web")], key="aaaa").result()
    assert set(by_sender(store)) == {Sender("aaaa", name), Sender("aaaa", "web")}


def test_one_sender_has_what_the_round_measured(store: Store) -> None:
    store.append_events(1, [exposed("ann", 0, "web"), liked("ann", 1)], key="aaaa").result()
    assert by_sender(store, together=True) == by_sender(store)
    assert by_sender(store)[Sender("aaaa", "web")][0].mean == (1.0,)
