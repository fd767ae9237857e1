"""Races: several nodes close the same rounds, and each round is closed once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pasto.report.records import ClosedRoundRecord, write_record
from pasto.service.service import Service
from pasto.store import Store, open_store
from pasto_sdk.policy import PublishedPolicy

Events = list[dict[str, Any]]
World = Callable[[PublishedPolicy, int], Events]
CLOSERS = 4


@pytest.fixture
def bare(quick: dict[str, Any]) -> dict[str, Any]:
    """Return a study without guardrails, which no guardrail pause can end before its last round."""
    return {**quick, "guardrails": []}


def _close_until(store: Store, world: World, closer: int, last: int) -> int:
    """Close rounds as a node does until enough are closed; return the number of its own closes."""
    service = Service(store)
    own = 0
    while (number := service.show("feed").round) <= last:
        events = world(service.policy_cache.current("feed"), 5)
        for event in events:
            event["id"] += f"/{closer}"
        service.ingest("feed", service.decode(json.dumps(events).encode())).result(timeout=60)
        own += service.close_round("feed", who=f"closer {closer}", round=number).closed
    return own


def _check(store: Store, own: list[int], last: int) -> None:
    service = Service(store)
    assert sum(own) == last
    rounds: list[ClosedRoundRecord] = []
    while more := service.rounds("feed", after=len(rounds), limit=1000):
        rounds += more
    assert [one.round for one in rounds] == list(range(1, last + 1))
    assert [one.next_version for one in rounds] == list(range(2, last + 2))
    assert service.show("feed").version == last + 1
    assert write_record(service.replay("feed")) == {"identical": True, "rounds": last, "first_difference": None}


@pytest.mark.parametrize("last", [200, pytest.param(2000, marks=pytest.mark.services)])
def test_racing_threads_close_each_round_once(bare: dict[str, Any], world: World, last: int) -> None:
    store = open_store("memory:")
    service = Service(store)
    service.create(bare, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    with ThreadPoolExecutor(CLOSERS) as pool:
        own = list(pool.map(lambda closer: _close_until(store, world, closer, last), range(CLOSERS)))
    _check(store, own, last)
    store.close()


@pytest.mark.services
def test_racing_processes_close_each_round_once(bare: dict[str, Any], postgres_url: str) -> None:
    last = 2000
    store = open_store(postgres_url)
    service = Service(store)
    service.create(bare, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    command = [sys.executable, str(Path(__file__).with_name("round_closer.py")), postgres_url, str(last)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    closers = [
        subprocess.Popen([*command, str(closer)], stdout=subprocess.PIPE, env=environment) for closer in range(CLOSERS)
    ]
    own = [int(closer.communicate(timeout=1800)[0]) for closer in closers]
    _check(store, own, last)
    store.close()


def test_a_late_node_receives_the_close_that_won(quick: dict[str, Any]) -> None:
    store = open_store("memory:")
    ours, theirs = Service(store), Service(store)
    ours.create(quick, who="ann", seed=7)
    ours.change("feed", "start", who="ann")
    won = ours.close_round("feed", who="ann", round=1)
    lost = theirs.close_round("feed", who="bob", round=1)
    assert (won.closed, lost.closed) == (True, False)
    assert lost.learner_checksum == won.learner_checksum
    assert ours.show("feed").round == 2
    store.close()


def test_a_closer_that_was_stopped_for_a_while_changes_nothing(
    quick: dict[str, Any], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store("memory:")
    stopped, others = Service(store), Service(store)
    stopped.create(quick, who="ann", seed=7)
    stopped.change("feed", "start", who="ann")
    commit = store.update_study
    asleep: list[bool] = []

    def after_a_sleep(*arguments: Any, **named: Any) -> bool:
        if not asleep:
            asleep.append(True)
            for _ in range(3):
                events = world(others.policy_cache.current("feed"), 20)
                others.ingest("feed", others.decode(json.dumps(events).encode())).result()
                others.close_round("feed", who="bob")
        return commit(*arguments, **named)

    monkeypatch.setattr(store, "update_study", after_a_sleep)
    woken = stopped.close_round("feed", who="ann")
    assert (woken.closed, woken.round) == (False, 1)
    assert [one.round for one in stopped.rounds("feed")] == [1, 2, 3]
    assert {line.who for line in stopped.audit("feed") if line.action == "close"} == {"bob"}
    assert stopped.replay("feed").identical
    store.close()


def test_a_change_is_made_again_onto_what_another_changed(
    quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store("memory:")
    ours, theirs = Service(store), Service(store)
    ours.create(quick, who="ann", seed=7)
    ours.change("feed", "start", who="ann")
    commit = store.update_study
    raced: list[bool] = []

    def racing(*arguments: Any, **named: Any) -> bool:
        if not raced:
            raced.append(True)
            theirs.close_round("feed", who="bob")
        return commit(*arguments, **named)

    monkeypatch.setattr(store, "update_study", racing)
    paused = ours.change("feed", "pause", who="ann", reason="why")
    assert (paused.state, paused.version) == ("paused", 3)
    assert [line.action for line in ours.audit("feed")] == ["create", "start", "close", "pause"]
    assert ours.replay("feed").identical
    store.close()
