"""Closed loop: serve, measure, learn and replay on a simulated world, with every kind of store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from pasto.report.records import write_record
from pasto.service.ingest import BatchResult
from pasto.service.service import Service
from pasto.store import Store, open_store
from pasto_sdk.policy import PublishedPolicy

Events = list[dict[str, Any]]
World = Callable[[PublishedPolicy, int], Events]
Send = Callable[[Service, str, Events], BatchResult]
Truth = dict[str, tuple[float, float]]


def _learn(service: Service, world: World, send: Send, rounds: int, users: int = 300) -> None:
    for _ in range(rounds):
        events = world(service.policy_cache.current("feed"), users)
        assert send(service, "feed", events) == BatchResult(2 * users, 0, ())
        assert send(service, "feed", events[:50]) == BatchResult(0, 50, ())
        close = service.close_round("feed", who="ann")
        assert (close.closed, close.units, close.problems) == (True, users, ())


def _lives(service: Service, document: dict[str, Any]) -> None:
    service.create(document, who="ann", seed=7)
    service.change("feed", "start", who="ann")


def test_a_study_learns_a_blend_that_beats_every_single_candidate(
    store: Store, document: dict[str, Any], world: World, send: Send, truth: Truth
) -> None:
    service = Service(store)
    _lives(service, document)
    _learn(service, world, send, rounds=20)
    report = write_record(service.report("feed"))
    blend = report["blend"]["probabilities"]
    x, y = (sum(share * truth[name][metric] for name, share in blend.items()) for metric in (0, 1))
    best_single = max(mean[0] for mean in truth.values() if mean[1] >= 0)
    assert best_single == 0.0
    assert x > 0.8
    assert y > -0.1
    assert report["blend"]["certificate"]["certified"]
    assert report["accounting"]["events"] == {"exposures": 6000, "metrics": 6000, "excluded": 0, "uncredited": 0}
    assert sum(line["logged"] for line in report["accounting"]["candidates"]) == 6000
    assert write_record(service.replay("feed")) == {"identical": True, "rounds": 20, "first_difference": None}


def test_every_store_learns_the_same(store: Store, document: dict[str, Any], world: World, send: Send) -> None:
    checksums, shares = [], []
    for each_store in (store, open_store("memory:")):
        service = Service(each_store)
        _lives(service, document)
        _learn(service, world, send, rounds=3, users=100)
        checksums.append([one.learner_checksum for one in service.rounds("feed")])
        shares.append({one["name"]: one["probability"] for one in write_record(service.report("feed"))["policy"]})
        if each_store is not store:
            each_store.close()
    assert shares[0] == pytest.approx(shares[1], rel=1e-9)
    if store.dialect == "sqlite":  # databases sum in different orders
        assert checksums[0] == checksums[1]


@pytest.mark.services
def test_a_study_that_moved_to_another_store_still_replays(
    tmp_path: Path, postgres_url: str, document: dict[str, Any], world: World, send: Send
) -> None:
    service = Service(open_store(str(tmp_path / "store")))
    _lives(service, document)
    _learn(service, world, send, rounds=3, users=100)
    service.store.write_backup(tmp_path / "backup.db")
    service.shutdown()
    moved = open_store(postgres_url)
    moved.restore_backup(tmp_path / "backup.db")
    service = Service(moved)
    _learn(service, world, send, rounds=2, users=100)
    assert write_record(service.replay("feed")) == {"identical": True, "rounds": 5, "first_difference": None}
    service.shutdown()


@pytest.mark.parametrize("what", ["", "event"])
def test_rounds_of_another_engine_are_compared_but_for_their_last_digits(
    tmp_path: Path, document: dict[str, Any], world: World, send: Send, what: str
) -> None:
    service = Service(open_store(str(tmp_path)))
    _lives(service, document)
    _learn(service, world, send, rounds=3, users=60)
    service.shutdown()
    _tamper(tmp_path, "engine")
    if what:
        _tamper(tmp_path, what)
    service = Service(open_store(str(tmp_path)))
    found = service.replay("feed")
    service.shutdown()
    assert found.identical == (not what)
    if what:
        assert found.first_difference is not None
        assert (found.first_difference.round, found.first_difference.what) == (2, "measurement")


def test_a_restart_in_mid_study_continues_bit_for_bit(
    tmp_path: Path, document: dict[str, Any], world: World, send: Send
) -> None:
    checksums = []
    for name, restarts in (("one", False), ("two", True)):
        service = Service(open_store(str(tmp_path / name)))
        _lives(service, document)
        for _ in range(4):
            _learn(service, world, send, rounds=1, users=100)
            if restarts:
                service.shutdown()
                service = Service(open_store(str(tmp_path / name)))
        checksums.append([one.learner_checksum for one in service.rounds("feed")])
        assert service.replay("feed").identical
        service.shutdown()
    assert checksums[0] == checksums[1]


@pytest.mark.parametrize("what", ["event", "policy", "learner", "close"])
def test_replay_finds_what_was_changed_behind_its_back(
    tmp_path: Path, document: dict[str, Any], world: World, send: Send, what: str
) -> None:
    service = Service(open_store(str(tmp_path)))
    _lives(service, document)
    _learn(service, world, send, rounds=3, users=60)
    service.shutdown()
    _tamper(tmp_path, what)
    service = Service(open_store(str(tmp_path)))
    found = service.replay("feed")
    service.shutdown()
    assert not found.identical
    assert found.first_difference is not None
    assert found.first_difference.round == {"event": 2, "policy": 2, "learner": 2, "close": 2}[what]


@pytest.mark.parametrize("is_tampered", [False, True])
def test_policies_of_releases_without_their_own_checksum_replay(
    tmp_path: Path, document: dict[str, Any], world: World, send: Send, is_tampered: bool
) -> None:
    service = Service(open_store(str(tmp_path)))
    _lives(service, document)
    _learn(service, world, send, rounds=2, users=60)
    service.shutdown()
    with closing(sqlite3.connect(next(tmp_path.glob("*.db")))) as connection:
        for version, text in connection.execute("SELECT version, document FROM policies").fetchall():
            older = json.dumps({**json.loads(text), "format": 1, "sha256": None}, separators=(",", ":"))
            older = older.replace(',"sha256":null', "")
            if is_tampered and version == 2:
                older = older.replace("valid_from", "Valid_from")
            checksum = sha256(older.encode()).hexdigest()
            connection.execute(
                "UPDATE policies SET document = ?, checksum = ? WHERE version = ?", (older, checksum, version)
            )
        connection.commit()
    service = Service(open_store(str(tmp_path)))
    if not is_tampered:
        _learn(service, world, send, rounds=1, users=60)  # its policy has its checksum
    found = service.replay("feed")
    service.shutdown()
    assert (found.identical, found.rounds) == (not is_tampered, 0 if is_tampered else 3)


def _tamper(directory: Path, what: str) -> None:
    statements = {
        "engine": """UPDATE round_closes SET record = replace(record, '"engine":"sqlite"', '"engine":"spark"')""",
        "event": """UPDATE events SET fields = '{"x": 8.5, "y": 0}' WHERE kind = 1 AND version = 2""",
        "policy": "UPDATE policies SET document = replace(document, 'valid_from', 'Valid_from') WHERE version = 3",
        "learner": "UPDATE round_closes SET learner_checksum = 'f00' WHERE round = 2",
        "close": "DELETE FROM round_closes WHERE round = 2",
    }
    with closing(sqlite3.connect(next(directory.glob("*.db")))) as connection:
        connection.execute(statements[what])
        connection.commit()


def test_a_pause_loses_no_round(service: Service, document: dict[str, Any], world: World, send: Send) -> None:
    _lives(service, document)
    _learn(service, world, send, rounds=1, users=100)
    send(service, "feed", world(service.policy_cache.current("feed"), 100))
    service.change("feed", "pause", who="eve", reason="odd numbers")
    held = service.policy_cache.current("feed")
    send(service, "feed", world(held, 100))  # served in the meantime, and never learned from
    assert service.show("feed").maturing_rounds == (2,)
    service.change("feed", "resume", who="ann")
    assert write_record(service.report("feed"))["rounds_learned"] == 2
    _learn(service, world, send, rounds=2, users=100)
    report = write_record(service.report("feed"))
    assert report["rounds_learned"] == 4
    assert [one["learned_from"] for one in report["history"]] == [[1], [], [2], [4], [5]]
    assert not any(one["problems"] for one in report["history"])
    assert service.replay("feed").identical


def test_learners_that_fail_do_not_block_a_study(
    service: Service, document: dict[str, Any], world: World, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    _lives(service, document)
    _learn(service, world, send, rounds=2, users=100)
    before = {cell.name for cell in service.policy_cache.current("feed").cells}

    def fail(*_: Any) -> None:
        raise ArithmeticError("no progress")

    with monkeypatch.context() as patch:
        patch.setattr("pasto.optimize.learners.Thompson.learn", fail)
        send(service, "feed", world(service.policy_cache.current("feed"), 100))
        close = service.close_round("feed", who="ann")
    assert close.closed
    assert "could not be learned: ArithmeticError: no progress" in close.problems[0]
    assert "no progress" in service.audit("feed")[-1].detail["problems"][0]
    assert len({cell.name for cell in service.policy_cache.current("feed").cells}) == len(before)
    _learn(service, world, send, rounds=1, users=100)
    assert write_record(service.report("feed"))["rounds_learned"] == 3


def test_a_continuous_space_grows_its_candidates_and_replays(
    service: Service, document: dict[str, Any], send: Send
) -> None:
    rest = {key: value for key, value in document.items() if key != "parameters"}
    service.create({**rest, "baseline": {"w": 0.5}, "ranges": {"w": {"low": 0, "high": 1}}}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    first = len(service.policy_cache.current("feed").named)
    for _ in range(3):
        policy = service.policy_cache.current("feed")
        events: Events = []
        for number in range(200):
            unit = f"user {number}"
            cell = policy.draw(unit)
            at, drawn = float(cell.values["w"]), {"unit": unit, "version": policy.version, "candidate": cell.name}
            events.append({"type": "exposure", "id": f"e{policy.version}/{number}", **drawn})
            fields = {"x": at - (at - 0.4) ** 2 + number % 5 / 10, "y": 0.7 - at + number % 3 / 10}
            events.append(
                {"type": "metric", "id": f"m{policy.version}/{number}", "name": "seen", "fields": fields, **drawn}
            )
        assert send(service, "feed", events).rejected == ()
        assert service.close_round("feed", who="ann").problems == ()
    assert len(service.policy_cache.current("feed").named) > first
    assert service.change("feed", "confirm", who="ann").state == "confirming"
    assert write_record(service.replay("feed")) == {"identical": True, "rounds": 4, "first_difference": None}


def test_two_studies_side_by_side_do_not_touch_each_other(
    service: Service, document: dict[str, Any], world: World, send: Send
) -> None:
    alone = Service(open_store("memory:"))
    _lives(alone, document)
    _learn(alone, world, send, rounds=3, users=80)
    service.create({**document, "name": "other"}, who="eve", seed=1)
    service.change("other", "start", who="eve")
    _lives(service, document)
    for _ in range(3):
        send(service, "other", world(service.policy_cache.current("other"), 50))
        events = world(service.policy_cache.current("feed"), 80)
        send(service, "feed", events)
        stray = send(service, "other", events)  # of a study with another draw: equal only by chance
        assert len(stray.rejected) > 50
        service.close_round("other", who="eve")
        service.close_round("feed", who="ann")
    checksums = [[one.learner_checksum for one in each.rounds("feed")] for each in (alone, service)]
    assert checksums[0] == checksums[1]
    assert service.replay("other").identical
    alone.shutdown()
