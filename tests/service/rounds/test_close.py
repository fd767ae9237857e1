"""Round close: the study that a node caches, its transfer to the next round, and conflicts of nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pasto.service.service import Service
from pasto.store import Store, open_store
from pasto.study import Study

Traffic = Callable[[Service, int], list[dict[str, Any]]]


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory:")
    yield store
    store.close()


def send(service: Service, traffic: Traffic) -> None:
    events = service.decode(json.dumps(traffic(service, 60)).encode())
    service.ingest("feed", events).result(timeout=60)


def start(store: Store, document: dict[str, Any]) -> Service:
    service = Service(store)
    service.create(document, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    return service


def read_state(store: Store) -> str:
    row = store.read_study("feed")
    assert row is not None
    text = store.read_learner_state(row.number)
    assert text is not None
    return text


def write_state(study: Study | None) -> str:
    assert study is not None
    return json.dumps(study.state(), separators=(",", ":"))


def test_a_close_that_another_node_wins_changes_nothing_in_memory(
    store: Store, document: dict[str, Any], traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = start(store, document)
    for _ in range(2):
        send(ours, traffic)
        ours.close_round("feed", who="ann")
    send(ours, traffic)
    snapshot = ours.policy_cache.snapshot("feed")
    before = write_state(snapshot.study)
    blend = snapshot.blend
    theirs = Service(store)
    prepare = ours._prepare_close

    def lose(*given: Any) -> Any:
        transition = prepare(*given)
        theirs.close_round("feed", who="bob")
        return transition

    monkeypatch.setattr(ours, "_prepare_close", lose)
    assert ours.close_round("feed", who="ann").closed is False
    assert write_state(snapshot.study) == before
    assert snapshot.study is not None
    assert snapshot.study.blend(deploy_rounds=snapshot.spec.deploy_rounds) == blend
    monkeypatch.undo()
    assert write_state(ours.policy_cache.reload("feed").study) == read_state(store) != before
    send(ours, traffic)
    ours.close_round("feed", who="ann")
    replay = ours.replay("feed")
    assert (replay.identical, replay.rounds) == (True, 4)


def test_a_failed_commit_is_repeated_from_the_same_study(
    store: Store, document: dict[str, Any], traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start(store, document)
    send(service, traffic)
    update, tries = store.update_study, []

    def conflict_once(*given: Any, **named: Any) -> bool:
        tries.append(named["close"].learner_checksum)
        return len(tries) > 1 and update(*given, **named)

    monkeypatch.setattr(store, "update_study", conflict_once)
    assert service.close_round("feed", who="ann").closed is True
    assert len(tries) == 2
    assert tries[0] == tries[1]


def test_the_next_round_and_the_report_read_no_study_that_is_in_memory(
    store: Store, document: dict[str, Any], traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start(store, document)
    monkeypatch.setattr(Study, "from_state", lambda *_: pytest.fail("a study was read again"))
    for number in range(3):
        send(service, traffic)
        service.close_round("feed", who="ann")
        assert service.report("feed").rounds_learned == number + 1
        assert write_state(service.policy_cache.snapshot("feed").study) == read_state(store)


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"parameters": {"w": [0, 1, 2, 3], "mode": ["plain", "bold"]}, "baseline": {"w": 1, "mode": "plain"}},
        {"parameters": None, "ranges": {"w": {"low": 0, "high": 3}}},
        {"learner": "algorithm1", "guardrails": [{"metric": "likes", "at_least": 0.5, "penalty": 2}]},
    ],
    ids=["numbers", "text", "ranges", "another learner"],
)
def test_a_node_that_restarts_before_every_close_learns_the_same(
    store: Store, document: dict[str, Any], traffic: Traffic, part: dict[str, Any]
) -> None:
    document = {name: value for name, value in {**document, **part}.items() if value is not None}
    other = open_store("memory:")
    steady = start(store, document)
    start(other, document)
    for _ in range(3):
        fresh = Service(other)
        for service in (steady, fresh):
            send(service, traffic)
            service.close_round("feed", who="ann")
    assert read_state(store) == read_state(other)
    other.close()
