"""Policy cache: snapshots and policies in the memory of each node."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from pasto.errors import LifecycleError, NotFittedError, StudyFileError, UnknownStudyError
from pasto.service import policy_cache as policy_cache_module
from pasto.service import service as service_module
from pasto.service.service import Service
from pasto.service.study_file import parse_spec
from pasto.store import Store, open_store


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory:")
    yield store
    store.close()


def test_a_study_is_unknown_then_without_policy_then_served(service: Service, document: dict[str, Any]) -> None:
    with pytest.raises(UnknownStudyError, match="no study 'feed'"):
        service.policy_cache.current("feed")
    service.create(document, who="ann")
    with pytest.raises(LifecycleError, match="is a draft, so it serves no policy yet; start it"):
        service.policy_cache.current("feed")
    assert service.policy_cache.names() == ()
    service.change("feed", "start", who="ann")
    assert service.policy_cache.current("feed").version == 1
    assert service.policy_cache.names() == ("feed",)
    assert [study.state for study in service.studies()] == ["learning"]


def test_listeners_get_each_new_policy_once_on_every_node(store: Store, document: dict[str, Any]) -> None:
    ours, theirs = Service(store), Service(store)
    heard: list[str] = []
    theirs.policy_cache.listen(heard.append)
    ours.create(document, who="ann")
    theirs.policy_cache.refresh()
    assert heard == []
    ours.change("feed", "start", who="ann")
    theirs.policy_cache.refresh()
    theirs.policy_cache.refresh()
    assert heard == ["feed"]
    ours.change("feed", "pause", who="ann", reason="why")
    assert theirs.policy_cache.current("feed").version == 1
    theirs.policy_cache.refresh()
    assert (heard, theirs.policy_cache.current("feed").state) == (["feed", "feed"], "paused")
    theirs.change("feed", "archive", who="ann")
    assert heard == ["feed"] * 3


def test_a_slow_reader_never_takes_a_study_back(store: Store, document: dict[str, Any]) -> None:
    service = Service(store)
    service.create(document, who="ann")
    service.change("feed", "start", who="ann")
    old = store.read_study("feed")
    assert old is not None
    service.close_round("feed", who="ann")
    assert service.policy_cache.take(old).row.version == 2
    assert service.policy_cache.current("feed").version == 2


def test_past_policies_are_cached_up_to_a_size(learning: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_cache_module, "MAX_PAST_CELLS", 12)
    for _ in range(6):
        learning.close_round("feed", who="ann")
    policy_cache = learning.policy_cache
    snapshot = policy_cache.snapshot("feed")
    for version in range(1, 7):
        policy = policy_cache.published(snapshot, version)
        assert policy is not None
        assert policy.version == version
    assert sum(len(policy.cells) for policy in policy_cache._past.values()) == policy_cache._past_cells <= 12
    assert policy_cache.published(snapshot, 6) is policy_cache.published(snapshot, 6)
    assert policy_cache.published(snapshot, 99) is None


def test_only_what_changed_is_read_again(
    store: Store, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = Service(store), Service(store)
    for name in ("feed", "home"):
        ours.create({**document, "name": name}, who="ann")
        ours.change(name, "start", who="ann")
    theirs.policy_cache.refresh()
    read: list[str] = []
    study = store.read_study

    def noted(name: str) -> Any:
        read.append(name)
        return study(name)

    monkeypatch.setattr(store, "read_study", noted)
    monkeypatch.setattr(store, "list_studies", lambda: pytest.fail("every study file was read"))
    theirs.policy_cache.refresh()
    assert read == []
    ours.close_round("home", who="ann")
    read.clear()
    theirs.policy_cache.refresh()
    assert read == ["home"]
    assert theirs.policy_cache.current("home").version == 2


def test_a_stored_study_whose_guardrail_cannot_fail_is_served_on(
    store: Store, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = {**document, "guardrails": [{"metric": "likes", "at_least": -0.02}]}
    service = Service(store)
    with pytest.raises(StudyFileError, match=r"likes is never below 0, so the guardrail cannot fail.*write '-2%'"):
        service.create(idle, who="ann")
    with monkeypatch.context() as before:  # as if it had been created before this was checked
        before.setattr(service_module, "parse_spec", partial(parse_spec, stored=True))
        service.create(idle, who="ann")
    service.change("feed", "start", who="ann")
    other = Service(store)
    assert other.policy_cache.names() == ("feed",)
    assert any("cannot fail" in warning for warning in other.policy_cache.snapshot("feed").spec.warnings)


def test_a_study_that_cannot_be_read_harms_no_other(
    store: Store, document: dict[str, Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(store)
    for name in ("broken", "feed"):
        service.create({**document, "name": name}, who="ann")
        service.change(name, "start", who="ann")
    read = parse_spec

    def fail(found: dict[str, Any], **options: bool) -> Any:
        if found["name"] == "broken":
            raise StudyFileError({"goal": "has a format that is no longer supported"})
        return read(found, **options)

    monkeypatch.setattr(policy_cache_module, "parse_spec", fail)
    other = Service(store)
    other.policy_cache.refresh()
    assert other.policy_cache.names() == ("feed",)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "'broken' cannot be read" in caplog.text
    with pytest.raises(StudyFileError):
        other.policy_cache.current("broken")


def test_a_part_of_a_snapshot_is_computed_once_for_all_threads(learning: Service) -> None:
    snapshot = learning.policy_cache.reload("feed")
    started, end = threading.Event(), threading.Event()
    computed: list[int] = []

    def compute() -> int:
        computed.append(1)
        started.set()
        assert end.wait(60)
        return len(computed)

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(snapshot.compute_once, "part", compute)
        assert started.wait(60)
        others = [pool.submit(snapshot.compute_once, "part", compute) for _ in range(2)]
        end.set()
        assert [each.result() for each in (first, *others)] == [1, 1, 1]
    learning.close_round("feed", who="ann")
    assert learning.policy_cache.reload("feed").compute_once("part", lambda: 8) == 8
    assert snapshot.compute_once("part", lambda: 70) == 1


def test_an_error_of_a_part_is_not_cached(learning: Service) -> None:
    snapshot = learning.policy_cache.reload("feed")
    with pytest.raises(ZeroDivisionError):
        snapshot.compute_once("part", lambda: 1 // 0)
    assert snapshot.compute_once("part", lambda: 7) == 7


def test_a_snapshot_parses_each_part_of_a_study_once(
    learning: Service, traffic: Callable[[Service, int], list[dict[str, Any]]]
) -> None:
    events = learning.decode(json.dumps(traffic(learning, 60)).encode())
    learning.ingest("feed", events).result(timeout=60)
    learning.close_round("feed", who="ann")
    snapshot = learning.policy_cache.reload("feed")
    assert learning.policy_cache.reload("feed") is snapshot
    assert snapshot.study is not None
    assert (snapshot.study, snapshot.blend, snapshot.rounds) == (snapshot.study, snapshot.blend, snapshot.rounds)
    assert snapshot.study.rounds == 1
    assert [measured.version for measured in snapshot.rounds.rounds] == [1]
    assert snapshot.state is snapshot.state
    learning.close_round("feed", who="ann")
    assert learning.policy_cache.reload("feed").study is not snapshot.study


def test_a_draft_has_no_learner_and_no_blend(service: Service, document: dict[str, Any]) -> None:
    service.create(document, who="ann")
    snapshot = service.policy_cache.reload("feed")
    assert snapshot.study is None
    with pytest.raises(NotFittedError, match="start it"):
        _ = snapshot.blend
