"""Stored formats: a store of an earlier release opens, reports, replays and continues to learn."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from pasto.report.records import write_record
from pasto.service.service import Service
from pasto.store.sqlite_store import SqliteStore

STORES = Path(__file__).parent / "stores"
"""SQL dumps of stores.

close_format_1.sql has seven learned rounds, with corrected and held ones, and two looks.
policy_format_1.sql has a study that learns, one that confirms, a deployed one, and one that the monitor paused.
"""


def open_dump(name: str, folder: Path) -> Service:
    with closing(sqlite3.connect(folder / "pasto.db")) as connection:
        connection.executescript((STORES / name).read_text(encoding="utf-8"))
    return Service(SqliteStore(folder), clock=lambda: 1_700_100_000.0, monotonic=lambda: 0.0)


def assert_replays(service: Service, name: str, rounds: int) -> None:
    """Check that a study replays; on another processor than that of the dump, it is the same up to rounding."""
    replayed = service.replay(name)
    assert (replayed.first_difference, replayed.rounds) == (None, rounds)


@pytest.fixture
def upgraded(tmp_path: Path) -> Service:
    return open_dump("close_format_1.sql", tmp_path)


@pytest.fixture
def format_1(tmp_path: Path) -> Iterator[Service]:
    service = open_dump("policy_format_1.sql", tmp_path)
    yield service
    service.shutdown()


def test_a_store_of_close_format_1_is_read(upgraded: Service) -> None:
    rounds = upgraded.rounds("feed")
    assert [entry.learned_from for entry in rounds] == [(1,), (2,), (3,), (4,), (), (6,), (5, 7), (8,), (), ()]
    assert [entry.corrected for entry in rounds] == [(), (), (2,), (3,), (4,), (), (), (), (), ()]
    assert [entry.held for entry in rounds][4:7] == [(5,), (5,), ()]
    assert [entry.interim_units for entry in rounds][-2:] == [33, 36]
    report = write_record(upgraded.report("feed"))
    assert (report["state"], report["rounds_learned"]) == ("confirming", 7)
    assert report["confirmation"]["looks"] == 2
    assert report["accounting"]["events"]["exposures"] == 288
    upgraded.shutdown()


def test_a_store_of_close_format_1_replays_and_continues(upgraded: Service) -> None:
    assert_replays(upgraded, "feed", rounds=10)
    assert upgraded.close_round("feed", who="ann").interim_units == 36
    upgraded.change("feed", "archive", who="ann")
    assert_replays(upgraded, "feed", rounds=12)
    upgraded.shutdown()


def served(service: Service, name: str) -> dict[str, Any]:
    row = service.store.read_study(name)
    assert row is not None
    policy = service.store.read_policy(row.number, row.version)
    assert policy is not None
    return cast(dict[str, Any], json.loads(policy.document))


def send_users(service: Service, name: str, count: int) -> None:
    policy = service.policy_cache.current(name)
    events = []
    for number in range(count):
        unit = f"later {number}"
        cell = policy.draw(unit)
        drawn = {"unit": unit, "version": policy.version, "candidate": cell.name}
        fields = {"x": 10.0 + number % 3, "y": 10.0 - number % 2}
        events.append({"type": "exposure", "id": f"e/{unit}", **drawn})
        events.append({"type": "metric", "id": f"m/{unit}", "name": "seen", "fields": fields, **drawn})
    answer = service.ingest(name, service.decode(json.dumps(events).encode())).result(timeout=60)
    assert answer.rejected == ()


STUDIES_OF_FORMAT_1 = {
    "learns": ("learning", 2, ["control", "learner", "not_enrolled"]),
    "confirms": ("confirming", 5, ["best_single", "blend", "control"]),
    "serves": ("deployed", 6, ["blend", "control"]),
    "stopped": ("paused", 7, ["paused"]),
}


@pytest.mark.parametrize("name", STUDIES_OF_FORMAT_1)
def test_a_study_with_policies_of_format_1_is_shown_and_replayed(format_1: Service, name: str) -> None:
    state, closes, arms = STUDIES_OF_FORMAT_1[name]
    study, report = format_1.show(name), write_record(format_1.report(name))
    assert study.policy is not None
    assert (study.state, sorted(study.policy.arms), served(format_1, name)["format"]) == (state, arms, 1)
    assert_replays(format_1, name, rounds=closes)
    for document in (write_record(study), report):
        written = json.dumps(document).replace('"held": []', "")  # held rounds
        assert not re.search(r'"(single|outside|held|breaker|single_value)"', written)
    assert (study.guardrail_monitor.tripped is None) == (name != "stopped")
    if state in ("confirming", "deployed"):
        assert study.frozen is not None
        assert study.frozen.best_single == report["frozen"]["best_single"] == "w=2"
        assert report["confirmation"]["units"].keys() == {"blend", "best_single", "control"}


def test_studies_with_policies_of_format_1_continue(format_1: Service) -> None:
    for name in ("learns", "confirms"):
        send_users(format_1, name, 12)
    format_1.close_round("learns", who="ann")
    assert served(format_1, "learns")["format"] == 2
    assert {cell["arm"] for cell in served(format_1, "learns")["cells"]} == {"control", "learner", "not_enrolled"}
    assert "enrolment" not in served(format_1, "learns")
    before = write_record(format_1.report("confirms"))["confirmation"]["units"]
    # Its units have their policy, and some of their exposures the old names.
    format_1.close_round("confirms", who="ann")
    assert served(format_1, "confirms")["format"] == 1
    after = write_record(format_1.report("confirms"))["confirmation"]["units"]
    assert after.keys() == before.keys()
    assert sum(after.values()) == sum(before.values()) + 12
    assert after["best_single"] > before["best_single"]
    shares = {"control": 0.2, "best_single": 0.3, "blend": 0.5}
    format_1.change("learns", "confirm", who="ann", shares=shares)
    assert {cell["arm"] for cell in served(format_1, "learns")["cells"]} == set(shares)
    format_1.change("serves", "pause", who="ann", reason="a check")
    assert {cell["arm"] for cell in served(format_1, "serves")["cells"]} == {"paused"}
    format_1.change("stopped", "resume", who="ann", reason="repaired")
    for name, closes in {"learns": 4, "confirms": 6, "serves": 7, "stopped": 8}.items():
        assert_replays(format_1, name, rounds=closes)


def test_a_study_of_an_earlier_release_changes_to_slices_with_a_ramp(format_1: Service) -> None:
    format_1.edit("learns", fields={"traffic.explore": "50%"}, who="ann")
    assert "enrolment" not in served(format_1, "learns"), "an edit of the share keeps the rule"
    edited = format_1.edit("learns", fields={"traffic.ramp": ["10%", "50%", "100%"]}, who="ann")
    assert edited.ramp is not None
    assert edited.ramp.step == 2
    policy = served(format_1, "learns")
    assert {cell["arm"] for cell in policy["cells"]} == {"control", "learner"}
    assert [(part["kind"], part["until"]) for part in policy["enrolment"]] == [("ramp", 2**52)]
    send = format_1.policy_cache.current("learns")
    assert any(send.draw(f"later {number}") is send.not_enrolled for number in range(12))
    format_1.close_round("learns", who="ann")
    assert_replays(format_1, "learns", rounds=5)


def test_a_study_of_an_earlier_release_changes_to_slices_with_an_audience(format_1: Service) -> None:
    assert "outside" in {cell["arm"] for cell in served(format_1, "learns")["cells"]}
    format_1.edit("learns", fields={"audience": {"country": "de"}}, who="ann")
    policy = served(format_1, "learns")
    assert [condition["attribute"] for condition in policy["audience"]] == ["country"]
    assert len(policy["enrolment"]) == 1
    format_1.edit("learns", fields={"audience": None}, who="ann")
    assert len(served(format_1, "learns")["enrolment"]) == 1, "it does not change back"
    assert_replays(format_1, "learns", rounds=4)


def test_a_policy_of_format_1_that_was_changed_is_found(format_1: Service) -> None:
    row = format_1.store.read_study("stopped")
    assert row is not None
    policy = format_1.store.read_policy(row.number, 2)
    assert policy is not None
    cells = json.loads(policy.document)["cells"]
    cells[0]["until"] += 1
    changed = json.dumps({**json.loads(policy.document), "cells": cells})
    with cast(SqliteStore, format_1.store).read_transaction() as connection:
        path = connection.execute("PRAGMA database_list").fetchone()[2]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE policies SET document = ? WHERE study = ? AND version = 2", (changed, row.number))
        connection.commit()
    answer = write_record(format_1.replay("stopped"))
    assert (answer["identical"], answer["first_difference"]["round"]) == (False, 1)
    assert answer["first_difference"]["what"] == "policy"
