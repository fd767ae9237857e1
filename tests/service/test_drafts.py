"""Drafts that are edited and deleted, and names that are used again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pasto.errors import ConflictError, LifecycleError, OptionError, StudyFileError, UnknownStudyError
from pasto.report.records import write_record
from pasto.service.service import Service
from pasto.store import open_store

Document = dict[str, Any]
Traffic = Callable[[Service, int], list[dict[str, Any]]]


def test_a_draft_is_edited(service: Service, document: Document) -> None:
    service.create(document, who="ann", seed=7)
    edited = service.edit("feed", {**document, "goal": {"minimize": "watch"}}, who="bob", reason="the wrong way round")
    assert (edited.state, edited.goal) == ("draft", "minimize watch")
    line = service.audit("feed")[-1]
    assert (line.who, line.action, line.reason) == ("bob", "edit", "the wrong way round")
    assert line.detail["changed"] == ["goal"]
    assert service.change("feed", "start", who="ann").objective.startswith("minimize watch")
    assert service.replay("feed").identical


def test_a_wrong_file_is_not_taken_for_a_draft(service: Service, document: Document) -> None:
    service.create(document, who="ann")
    with pytest.raises(OptionError, match="the file is of study 'fed', and a draft keeps its name 'feed'"):
        service.edit("feed", {**document, "name": "fed"}, who="ann")
    with pytest.raises(StudyFileError):
        service.edit("feed", {**document, "goal": {}}, who="ann")
    with pytest.raises(UnknownStudyError):
        service.edit("fed", {**document, "name": "fed"}, who="ann")
    with pytest.raises(StudyFileError, match="leave these candidates out of the file"):
        service.edit("feed", {**document, "retired": ["w=0"]}, who="ann")


def test_single_fields_of_a_draft_are_edited(service: Service, document: Document) -> None:
    service.create(document, who="ann")
    edited = service.edit("feed", fields={"goal": {"minimize": "watch"}}, add=[{"w": 9}], who="ann", generation=1)
    assert edited.goal == "minimize watch"
    assert edited.candidates == 5
    assert service.edit("feed", fields={"owner": "me"}, who="ann", dry_run=True).owner == ""
    with pytest.raises(ConflictError, match="was edited after generation 1"):
        service.edit("feed", fields={"owner": "me"}, who="ann", generation=1)


def test_a_deleted_draft_is_gone_on_every_node(service: Service, document: Document) -> None:
    other = Service(service.store)
    service.create(document, who="ann")
    other.policy_cache.refresh()
    deleted = service.delete("feed", who="bob", reason="a mistake")
    assert write_record(deleted) == {"name": "feed", "state": "deleted", "deleted_as": "feed@1"}
    other.policy_cache.refresh()
    for node in (service, other):
        assert node.studies() == []
        with pytest.raises(UnknownStudyError):
            node.policy_cache.snapshot("feed")
    assert [line.action for line in service.audit("feed@1")] == ["create", "delete"]
    again = service.create(document, who="ann")
    other.policy_cache.refresh()
    assert other.show("feed").generation == again.generation
    service.change("feed", "start", who="ann")
    with pytest.raises(LifecycleError, match="delete needs it to be draft"):
        service.delete("feed", who="ann")


def complete_study(service: Service, document: Document, traffic: Traffic, rounds: int, seed: int) -> None:
    """Return a study that went from its draft to its archive."""
    service.create(document, who="ann", seed=seed)
    service.change("feed", "start", who="ann")
    for _ in range(rounds):
        service.ingest("feed", service.decode(msgspec.json.encode(traffic(service, 100)))).result()
        service.close_round("feed", who="bob")
    service.change("feed", "archive", who="ann", reason=f"seed {seed}")


def test_an_archived_name_is_used_again_and_each_history_stays_apart(
    document: Document, traffic: Traffic, tmp_path: Path
) -> None:
    service = Service(open_store(str(tmp_path / "store")))
    for seed, rounds in ((1, 2), (2, 3), (3, 1)):
        complete_study(service, document, traffic, rounds, seed)
        service.archive_events("feed", who="ann")
    assert [study.name for study in service.studies()] == ["feed", "feed@1", "feed@2"]
    for name, rounds in (("feed@1", 2), ("feed@2", 3), ("feed", 1)):
        assert write_record(service.replay(name)) == {"identical": True, "rounds": rounds + 1, "first_difference": None}
        assert len(service.rounds(name)) == rounds + 1
        assert write_record(service.report(name))["quality"]["units"] == 100 * rounds
        reasons = [line.reason for line in service.audit(name) if line.action == "archive"]
        assert reasons == [f"seed {1 + ['feed@1', 'feed@2', 'feed'].index(name)}"]
    assert service.audit("feed@1")[-1].action == "rename"
    folders = sorted(path.name for path in (tmp_path / "store" / "archive").iterdir() if path.is_dir())
    assert [name for name in folders if not name.startswith(".")] == ["feed", "feed@2", "feed@3"]
    assert list(service.store.check_integrity()) == []
    service.store.write_backup(tmp_path / "backup.db")
    service.shutdown()
    moved = Service(open_store("memory:"))
    moved.store.restore_backup(tmp_path / "backup.db")
    assert [study.name for study in moved.studies()] == ["feed", "feed@1", "feed@2"]
    moved.shutdown()


def test_a_study_with_a_reused_name_draws_units_again_and_logs_them(service: Service, document: Document) -> None:
    drawn = []
    for seed in (1, 2):
        service.create(document, who="ann", seed=seed)
        service.change("feed", "start", who="ann")
        policy = service.policy_cache.current("feed")
        service.expose("feed", policy, "user 7", policy.draw("user 7"))
        drawn.append(policy)
        service.store.write_cache("written", "behind the exposure")
        number = service.policy_cache.snapshot("feed").row.number
        assert len(service.store.find_unit_events(number, "user 7")) == 1
        service.change("feed", "archive", who="ann", reason="again")
    assert [policy.salt for policy in drawn] == ["feed/1", "feed@2/1"]
    assert [policy.study for policy in drawn] == ["feed", "feed"]
