"""Retention: archived rounds replay bit for bit, ids outlive them, and a forgotten unit leaves only aggregates."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pasto.errors import OptionError, StoreError
from pasto.report.records import write_record
from pasto.service.archive import Archive, ArchiveResult
from pasto.service.ingest import BatchResult
from pasto.service.retention import Retention
from pasto.service.service import Service

Traffic = Callable[[Service, int], list[dict[str, Any]]]
SAME = {"identical": True, "rounds": 3, "first_difference": None}


def ingest(service: Service, events: list[dict[str, Any]]) -> BatchResult:
    return service.ingest("feed", service.decode(json.dumps(events).encode())).result()


@pytest.fixture
def sent(learning: Service, traffic: Traffic) -> list[dict[str, Any]]:
    """Return three learned rounds' events."""
    found = []
    for _ in range(3):
        events = traffic(learning, 80)
        exposures = [event for event in events if event["type"] == "exposure"]
        others = [event for event in events if event["type"] != "exposure"]
        random.Random(4).shuffle(others)
        ingest(learning, [*exposures, *others])
        found += events
        learning.close_round("feed", who="ann")
    return found


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive")


@pytest.fixture
def retention(learning: Service, archive: Archive) -> Retention:
    return Retention(learning.store, archive)


def units(service: Service) -> set[str]:
    with service.store.read_transaction() as connection:
        return {row[0] for row in connection.execute("SELECT unit FROM events")}


def test_archived_rounds_replay_bit_for_bit(
    learning: Service, sent: list[dict[str, Any]], retention: Retention, archive: Archive
) -> None:
    assert retention.archive("feed") == ArchiveResult("feed", files=3, events=len(sent))
    assert archive.rounds("feed") == [1, 2, 3]
    assert units(learning) == set()
    assert write_record(retention.replay("feed")) == SAME
    assert retention.archive("feed") == ArchiveResult("feed", files=0, events=0)
    assert list(learning.store.check_integrity()) == []
    with duckdb.connect() as connection:
        pattern = f"{archive.folder}/feed/*/*.parquet"
        (count, people) = connection.execute(f"SELECT count(*), count(DISTINCT unit) FROM '{pattern}'").fetchone()  # noqa: S608
    assert (count, people) == (len(sent), 80)


def test_ids_count_once_after_archiving_and_the_counts_stay(
    learning: Service, sent: list[dict[str, Any]], retention: Retention
) -> None:
    fallback: dict[str, Any] = {
        "type": "exposure",
        "id": "f",
        "unit": "x",
        "version": 0,
        "candidate": "z",
        "fallback": True,
    }
    numbered = [{**fallback, "id": f"n{n}", "unit": f"n{n}", "source": "s", "sequence": n} for n in (1, 2, 4)]
    free = {"type": "metric", "id": "free", "unit": "stranger", "name": "like"}
    more: list[dict[str, Any]] = [fallback, *numbered, free]
    assert ingest(learning, more).accepted == len(more)
    learning.close_round("feed", who="ann")
    event_counts = write_record(learning.report("feed"))["accounting"]
    assert event_counts["senders"]["missing"] == 1
    lagging = Service(learning.store)
    learning_number = learning.policy_cache.snapshot("feed").row.number
    assert retention.archive("feed").events == len(sent) + len(more)
    assert ingest(learning, [*sent, *more]).duplicates == len(sent) + len(more)
    assert learning.store.read_cache(f"event_counts/{learning_number}") is None, (
        "nothing is noted that could be counted from"
    )
    assert write_record(learning.report("feed"))["accounting"] == event_counts
    assert write_record(lagging.report("feed"))["accounting"] == event_counts, "a new start counts the same"


def test_late_events_stay_in_the_store(
    learning: Service, sent: list[dict[str, Any]], retention: Retention, archive: Archive, traffic: Traffic
) -> None:
    retention.archive("feed")
    late = {"type": "metric", "id": "late", "unit": "user 3", "name": "like", "version": 1}
    assert ingest(learning, [late]).accepted == 1
    ingest(learning, traffic(learning, 50))
    learning.close_round("feed", who="ann")
    assert retention.archive("feed").files == 1
    assert archive.rounds("feed") == [1, 2, 3, 4]
    assert units(learning) == {"user 3"}
    assert write_record(retention.replay("feed")) == {**SAME, "rounds": 4}


@pytest.mark.parametrize("point", ["written", "renamed", "deleted"])
def test_the_next_run_completes_a_killed_run(
    learning: Service, sent: list[dict[str, Any]], retention: Retention, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Death(BaseException):
        pass

    def die(*_: Any, **__: Any) -> Any:
        raise Death

    with monkeypatch.context() as patch:
        if point == "written":
            patch.setattr(Path, "replace", die)
        elif point == "renamed":
            patch.setattr(learning.store, "delete_archived_events", die)
        else:
            real, calls = learning.store.delete_archived_events, iter(range(9))
            patch.setattr(learning.store, "delete_archived_events", lambda *a: real(*a) if next(calls) < 1 else die())
        with pytest.raises(Death):
            retention.archive("feed")
    assert write_record(retention.replay("feed")) == SAME
    retention.archive("feed")
    assert units(learning) == set()
    assert write_record(retention.replay("feed")) == SAME
    with duckdb.connect() as connection:
        query = f"SELECT count(*), count(DISTINCT id) FROM '{retention._archive.folder}/feed/*/*.parquet'"  # noqa: S608
        assert connection.execute(query).fetchone() == (len(sent), len(sent))


@pytest.mark.parametrize("archived", [True, False])
def test_a_forgotten_unit_is_gone_and_a_replay_reports_it(
    learning: Service, sent: list[dict[str, Any]], retention: Retention, archive: Archive, archived: bool
) -> None:
    if archived:
        retention.archive("feed")
    mine = [event for event in sent if event["unit"] == "user 9"]
    erasure = retention.forget("feed", "user 9", who="ann", reason="asked to")
    assert write_record(erasure) == {"study": "feed", "events": len(mine), "rounds": [1, 2, 3]}
    assert archive.holding("feed", "user 9") == {}
    assert "user 9" not in units(learning)
    line = learning.audit("feed", limit=1000)[-1]
    assert (line.action, line.who, line.reason) == ("forget", "ann", "asked to")
    assert "user 9" not in str(line)
    again = retention.replay("feed")
    assert write_record(again) == {**SAME, "except": {"deleted_units": {"units": 1, "rounds": [1, 2, 3]}}}
    assert retention.forget("feed", "user 9", who="ann").events == 0
    assert ingest(learning, mine).duplicates == len(mine)
    retention.archive("feed")
    assert retention.replay("feed") == again
    assert list(learning.store.check_integrity()) == []


def test_what_a_death_left_half_written_goes_with_a_unit(
    sent: list[dict[str, Any]], retention: Retention, archive: Archive
) -> None:
    retention.archive("feed")
    files = "feed/round-000001/.abc.partial", "feed/round-000001/tmp_.abc.partial", ".spill/duckdb.tmp"
    left = [archive.folder / file for file in files]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_text(sent[0]["unit"])
    retention.forget("feed", sent[0]["unit"], who="ann")
    assert not any(path.exists() for path in left)


def test_an_archive_that_cannot_be_written_is_reported(
    learning: Service, sent: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = units(learning)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"file cannot be written: .*exists"):
        Retention(learning.store, Archive(tmp_path / "file")).archive("feed")
    archive = Archive(tmp_path / "archive")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    for fault in (full, lambda *_: duckdb.sql("COPY (SELECT 1) TO '/nowhere/at/all'")):
        with monkeypatch.context() as patch:
            patch.setattr("pasto.service.archive._replace", fault)
            with pytest.raises(StoreError, match=r"archive cannot be written"):
                Retention(learning.store, archive).archive("feed")
        assert units(learning) == before
    assert Retention(learning.store, archive).archive("feed").events == len(sent)


def test_replay_still_finds_what_no_deletion_explains(
    learning: Service, sent: list[dict[str, Any]], retention: Retention
) -> None:
    retention.forget("feed", "user 9", who="ann")
    learning.store._write(lambda c: c.execute("UPDATE events SET excluded = 1 WHERE version = 2 AND unit > 'user 5'"))  # type: ignore[attr-defined]
    again = retention.replay("feed")
    assert again.first_difference is not None
    assert (again.identical, again.first_difference.what) == (False, "measurement")


def test_old_files_go_and_what_they_measured_stays(
    learning: Service, sent: list[dict[str, Any]], retention: Retention, archive: Archive
) -> None:
    retention.archive("feed")
    assert retention.drop("feed", older=3600.0) == []
    assert retention.drop("feed", older=0.0) == [1, 2, 3]
    assert archive.rounds("feed") == []
    assert write_record(retention.replay("feed")) == {**SAME, "except": {"deleted_events": {"rounds": [1, 2, 3]}}}
    with pytest.raises(OptionError, match="a number of seconds"):
        retention.drop("feed", older=-1.0)
