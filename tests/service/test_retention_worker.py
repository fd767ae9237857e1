"""Retention worker: automatic archiving and deletion of old events in a running service."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from pasto.report.records import write_record
from pasto.report.replay_report import ReplayException
from pasto.service.archive import Archive, ArchiveResult
from pasto.service.retention import Retention, delete_old_exposures
from pasto.service.retention_worker import RetentionWorker
from pasto.service.service import Service
from pasto.service.settings import Settings
from pasto.store import Store, StudyRow, open_store

Traffic = Callable[[Service, int], list[dict[str, Any]]]


def feed(service: Service, events: list[dict[str, Any]]) -> None:
    assert service.ingest("feed", service.decode(json.dumps(events).encode())).result().rejected == ()


@pytest.fixture
def learned_service(learning: Service, traffic: Traffic, tmp_path: Path) -> Service:
    """Return a study of two closed rounds, with an archive."""
    learning._archive = Archive(tmp_path / "archive")
    for _ in range(2):
        feed(learning, traffic(learning, 30))
        learning.close_round("feed", who="ann")
    return learning


def latest(service: Service) -> set[int]:
    with service.store.read_transaction() as connection:
        return {row[0] for row in connection.execute("SELECT version FROM latest_exposures")}


def test_learned_rounds_are_archived_when_they_are_old_enough(
    learned_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = learned_service._clock()
    monkeypatch.setattr("pasto.service.retention_worker.monotonic", lambda: float("inf"))
    upkeep = RetentionWorker(learned_service, Settings(archive_after=3600.0, archive_keep=7200.0))
    upkeep.tick()
    assert (upkeep.archived, upkeep.errors) == (0, 0), "an hour has not passed"
    learned_service._clock = lambda: now + 5000.0
    upkeep.tick()
    assert upkeep.archived > 60
    assert learned_service.retention._archive.rounds("feed") == [1, 2]
    assert learned_service.replay("feed").identical
    upkeep.tick()
    assert learned_service.retention._archive.rounds("feed") == [1, 2]
    learned_service._clock = lambda: now + 8000.0
    upkeep.tick()
    assert learned_service.retention._archive.rounds("feed") == []
    assert learned_service.replay("feed").exceptions == {"deleted_events": ReplayException((1, 2))}
    metrics = {name: value for name, _, value, _ in upkeep.read_metrics()}
    assert metrics["pasto_archived_events"] == upkeep.archived


def test_an_archive_is_looked_at_a_hundredth_of_an_age_later(
    learned_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def take(self: Archive, store: Store, row: StudyRow, before: float) -> ArchiveResult:
        looks.append(row.name)
        return ArchiveResult(row.name, files=0, events=0)

    monkeypatch.setattr(Archive, "take", take)
    moment = 50.0
    monkeypatch.setattr("pasto.service.retention_worker.monotonic", lambda: moment)
    upkeep = RetentionWorker(learned_service, Settings(archive_after=1000))
    upkeep.tick()
    upkeep.tick()
    moment = 61.0
    upkeep.tick()
    assert looks == ["feed", "feed"]


def test_exposures_that_credit_nothing_any_more_are_let_go(learned_service: Service, traffic: Traffic) -> None:
    assert latest(learned_service) == {2}
    feed(learned_service, [event for event in traffic(learned_service, 10) if event["type"] == "exposure"])
    assert latest(learned_service) == {2, 3}
    upkeep = RetentionWorker(learned_service, Settings())
    upkeep.tick()
    assert (latest(learned_service), upkeep.trimmed, upkeep.errors) == ({3}, 20, 0)
    likes = [{"type": "metric", "id": unit, "unit": unit, "name": "like"} for unit in ("user 3", "user 23")]
    feed(learned_service, likes)
    with learned_service.store.read_transaction() as connection:
        credited = connection.execute("SELECT version FROM events ORDER BY sequence DESC LIMIT 2").fetchall()
    assert [row[0] for row in credited] == [None, 3]
    assert list(learned_service.store.check_integrity()) == []
    upkeep.tick()
    assert upkeep.trimmed == 20


def test_rounds_that_may_still_be_learned_keep_their_exposures(learned_service: Service) -> None:
    row = learned_service.store.read_study("feed")
    assert row is not None
    waiting = {"round": 2, "learned": 2, "after": 0, "closed_at": 0.0}
    for details in ({"waiting": [waiting]}, {"correctable": [{"waiting": waiting, "until": 9, "recorded_by": 2}]}):
        state = {**json.loads(row.details), "waiting": [], "correctable": [], **details}
        assert delete_old_exposures(learned_service.store, replace(row, details=json.dumps(state))) == 0
    assert delete_old_exposures(learned_service.store, row) == 30


def test_archived_studies_are_maintained_too(learned_service: Service) -> None:
    now = learned_service._clock()
    stray = {"type": "metric", "id": "stray", "unit": "stranger", "name": "like"}
    feed(learned_service, [stray])
    learned_service.close_round("feed", who="ann")
    learned_service.change("feed", "archive", who="ann", reason="done")
    learned_service._clock = lambda: now + 5000.0
    upkeep = RetentionWorker(learned_service, Settings(archive_after=3600.0, archive_keep=3600.0))
    upkeep.tick()
    assert (upkeep.errors, latest(learned_service)) == (0, set())
    with learned_service.store.read_transaction() as connection:
        assert connection.execute("SELECT count(*) FROM events WHERE unit <> ''").fetchone()[0] == 0
    assert learned_service.retention._archive.rounds("feed") == [], "not even what belongs to no round"
    assert list(learned_service.store.check_integrity()) == []


def test_a_draft_has_nothing_to_keep(learned_service: Service) -> None:
    row = learned_service.store.read_study("feed")
    assert row is not None
    learned_service.create({**json.loads(row.study_file), "name": "other"}, who="ann")
    learned_service.policy_cache.refresh()
    upkeep = RetentionWorker(learned_service, Settings(archive_after=0.001))
    upkeep.tick()
    assert (upkeep.errors, upkeep.archived > 60) == (0, True)
    assert learned_service.retention._archive.rounds("feed") == [1, 2]


def test_a_long_wait_for_the_archive_holds_up_no_end(learned_service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, archive = threading.Event(), Retention.archive

    def begin(*arguments: Any, **named: Any) -> ArchiveResult:
        begun.set()
        return archive(*arguments, **named)

    monkeypatch.setattr(Retention, "archive", begin)
    upkeep = RetentionWorker(learned_service, Settings(archive_after=0.001, poll=0.0001, shutdown_timeout=0))
    with learned_service.retention._archive.alone():
        upkeep.start()
        thread = upkeep._thread._thread
        assert thread is not None
        assert begun.wait(60)
        assert not upkeep.stop(), "it waits for the archive, and the end of the service does not wait for it"
    thread.join()


def test_a_failure_is_counted_and_the_next_look_comes(
    learned_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> int:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("pasto.service.retention_worker.delete_old_exposures", fail)
        upkeep = RetentionWorker(learned_service, Settings())
        upkeep.tick()
        assert (upkeep.errors, upkeep.trimmed) == (1, 0)
    upkeep.tick()
    assert (upkeep.errors, upkeep.trimmed) == (1, 30)


@pytest.mark.services
def test_two_nodes_on_one_database_take_turns(
    postgres_url: str, document: dict[str, Any], traffic: Traffic, tmp_path: Path
) -> None:
    archive = Archive(tmp_path / "archive")
    first, second = (Service(open_store(postgres_url), archive=archive) for _ in range(2))
    try:
        first.create(document, who="ann", seed=7)
        first.change("feed", "start", who="ann")
        sent = []
        for _ in range(3):
            sent.append(traffic(first, 40))
            feed(first, sent[-1])
            first.close_round("feed", who="ann")
        second.policy_cache.refresh()
        nodes = [RetentionWorker(node, Settings(archive_after=0.001)) for node in (first, second)]
        threads = [threading.Thread(target=node.tick) for node in nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [node.errors for node in nodes] == [0, 0]
        assert sum(node.archived for node in nodes) == sum(map(len, sent))
        assert sum(node.trimmed for node in nodes) == 40
        gone = second.erase_unit("feed", "user 9", who="ann")
        assert gone.events == sum(event["unit"] == "user 9" for event in chain(*sent))
        assert write_record(first.replay("feed")) == {
            "identical": True,
            "rounds": 3,
            "first_difference": None,
            "except": {"deleted_units": {"units": 1, "rounds": [1, 2, 3]}},
        }
        assert list(first.store.check_integrity()) == []
    finally:
        first.shutdown()
        second.shutdown()
