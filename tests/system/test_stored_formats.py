"""A store that an earlier release wrote opens, reports, replays and learns on."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pasto.report.records import write_record
from pasto.service.service import Service
from pasto.store.sqlite_store import SqliteStore

STORES = Path(__file__).parent / "stores"
"""SQL dumps of stores; close_format_1.sql has seven learned rounds, with corrected and held ones, and two looks."""


@pytest.fixture
def upgraded(tmp_path: Path) -> Service:
    with closing(sqlite3.connect(tmp_path / "pasto.db")) as connection:
        connection.executescript((STORES / "close_format_1.sql").read_text(encoding="utf-8"))
    return Service(SqliteStore(tmp_path), clock=lambda: 1_700_100_000.0, monotonic=lambda: 0.0)


def test_a_store_of_close_format_1_is_read(upgraded: Service) -> None:
    rounds = upgraded.rounds("feed")
    assert [entry["learned_from"] for entry in rounds] == [[1], [2], [3], [4], [], [6], [5, 7], [8], [], []]
    assert [entry["corrected"] for entry in rounds] == [[], [], [2], [3], [4], [], [], [], [], []]
    assert [entry["held"] for entry in rounds][4:7] == [[5], [5], []]
    assert [entry["interim_units"] for entry in rounds][-2:] == [33, 36]
    report = write_record(upgraded.report("feed"))
    assert (report["state"], report["rounds_learned"]) == ("confirming", 7)
    assert report["confirmation"]["looks"] == 2
    assert report["accounting"]["events"]["exposures"] == 288
    upgraded.shutdown()


def test_a_store_of_close_format_1_replays_and_goes_on(upgraded: Service) -> None:
    assert write_record(upgraded.replay("feed")) == {"identical": True, "rounds": 10, "first_difference": None}
    assert upgraded.close_round("feed", who="ann")["interim_units"] == 36
    upgraded.change("feed", "archive", who="ann")
    assert write_record(upgraded.replay("feed")) == {"identical": True, "rounds": 12, "first_difference": None}
    upgraded.shutdown()
