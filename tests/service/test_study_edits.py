"""Edits of a running study: what changes, what is refused, and replays that go through them bit for bit."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pasto.errors import ConflictError, LifecycleError, OptionError, StudyFileError
from pasto.service.close_record import CloseRecord
from pasto.service.rounds.guardrail_state import GuardrailState
from pasto.service.service import Service
from pasto.service.study_file.edit import REASONS
from pasto.service.study_state import StudyState
from pasto.store import open_store

Document = dict[str, Any]
Traffic = Callable[[Service, int], list[dict[str, Any]]]


def play(service: Service, traffic: Traffic, rounds: int = 1, users: int = 200) -> None:
    """Send events and close, round by round."""
    for _ in range(rounds):
        send(service, traffic, users)
        service.close_round("feed", who="bob")


def send(service: Service, traffic: Traffic, users: int = 200) -> None:
    """Send the events of the open round."""
    service.ingest("feed", service.decode(msgspec.json.encode(traffic(service, users)))).result()


def arms(service: Service) -> dict[str, float]:
    policy = service.show("feed").policy
    assert policy is not None
    return {arm: round(share, 6) for arm, share in policy.arms.items()}


def shares(service: Service) -> dict[str, float]:
    policy = service.show("feed").policy
    assert policy is not None
    return {served.name: served.share for served in policy.shares}


def test_an_edit_ends_the_round_and_takes_effect_with_the_next_policy(learning: Service, traffic: Traffic) -> None:
    play(learning, traffic, 2)
    send(learning, traffic)
    before = learning.show("feed")
    edited = learning.edit(
        "feed", fields={"traffic.explore": "25%", "rounds.every": "30min"}, who="bob", reason="less risk"
    )
    assert (edited.round, edited.version) == (before.round + 1, before.version + 1)
    assert arms(learning) == {"control": 0.1, "learner": 0.9}
    assert edited.policy is not None
    assert edited.policy.enrolled == 0.25
    assert edited.document["rounds"]["every"] == 1800.0
    assert edited.closes_at == pytest.approx(edited.opened_at + 1800.0)
    assert [(change.field, change.before, change.after) for change in edited.changes or ()] == [
        ("traffic.explore", 1.0, 0.25),
        ("rounds.every", 3600.0, 1800.0),
    ]
    (listed,) = edited.edits
    assert (listed.round, listed.who, listed.reason, listed.changes) == (3, "bob", "less risk", edited.changes)
    line = learning.audit("feed")[-1]
    assert (line.who, line.action, line.reason, line.detail["closed"]) == ("bob", "edit", "less risk", 3)
    assert line.detail["changes"][0] == {"field": "traffic.explore", "before": 1.0, "after": 0.25}
    assert learning.rounds("feed")[-1].learned_from == (3,), "the round that the edit ended is learned"


def test_candidates_come_and_go(learning: Service, traffic: Traffic) -> None:
    play(learning, traffic, 2)
    learned = shares(learning)
    edited = learning.edit(
        "feed",
        add=[{"w": 4}, {"name": "bold", "values": {"w": 9}}],
        retire=["w=3"],
        fields={"traffic.new_candidate_share": "2%"},
        who="bob",
    )
    now = shares(learning)
    assert edited.candidates == 5
    assert "w=3" in learned
    assert "w=3" not in now
    assert 0 < now["w=4"] <= 0.02
    assert 0 < now["bold"] <= 0.02
    assert edited.document["retired"] == ["w=3"]
    assert {"name": "bold", "values": {"w": 9}} in edited.document["candidates"]
    restored = learning.edit("feed", restore=["w=3"], who="bob")
    assert restored.candidates == 6
    assert "retired" not in restored.document
    assert "w=3" in shares(learning)
    with pytest.raises(OptionError, match="'w=3' is not a retired candidate"):
        learning.edit("feed", restore=["w=3"], who="bob")
    assert learning.replay("feed").identical


def test_a_file_without_a_candidate_retires_it_and_does_not_bring_it_back(
    learning: Service, document: Document
) -> None:
    shorter = {**document, "parameters": {"w": [0, 1, 2]}}
    assert learning.edit("feed", shorter, who="bob").document["retired"] == ["w=3"]
    again = learning.edit("feed", {**document, "description": "as before"}, who="bob")
    assert [change.field for change in again.changes or ()] == ["description"]
    assert again.document["retired"] == ["w=3"]
    assert learning.edit("feed", {**document, "retired": []}, who="bob").candidates == 4


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "goal": ({"goal": {"minimize": "watch"}}, "what the study measures and learns"),
    "metrics": ({"metrics.likes": {"event": "like", "aggregate": "count", "cap": 30}}, "cannot be mixed"),
    "unit": ({"unit": "session"}, "assigned by and averaged over"),
    "name": ({"name": "fed"}, "in the address"),
    "baseline": ({"baseline": {"w": 0}}, "was compared with"),
    "learner": ({"learner": {"name": "thompson", "half_life": 24.0}}, "its own form"),
    "exposures": ({"exposures": {"signed": True}}, "which events of the rounds so far counted"),
    "traffic.control": ({"traffic.control": 0}, "no control and a control"),
    "guardrails": ({"guardrails": []}, "none can be added or taken away"),
    "guardrails.likes.at_least": (
        {"guardrails.likes.at_least": "-2%", "guardrails.likes.tolerance": "0%"},
        "between a percentage over the baseline and a number",
    ),
    "parameters": ({"parameters": {"v": [0, 1]}, "baseline": {"v": 0}}, "what every candidate so far consists of"),
    "ranges": (
        {"ranges": {"w": {"low": 0, "high": 3}}, "parameters": None, "learner": "thompson"},
        "which candidates the study has found",
    ),
    "history": ({"history": [{"w": 1, "watch": 1.0}]}, "started from"),
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_would_invalidate_what_was_learned_is_refused(learning: Service, field: str) -> None:
    fields, reason = REFUSED[field]
    with pytest.raises(StudyFileError) as refused:
        learning.edit("feed", fields=fields, who="bob")
    assert reason in refused.value.problems[field]
    assert learning.show("feed").generation == 2, "nothing was written"


def test_a_field_that_is_none_is_refused_with_a_hint(learning: Service) -> None:
    for field, hint in (
        ("traffic.explor", "did you mean 'explore'"),
        ("guardrails.like.at_least", "did you mean 'likes'"),
        ("trafic.explore", "did you mean 'traffic'"),
        ("guardrails.likes.at_most", "it has at_least"),
    ):
        with pytest.raises(StudyFileError, match=hint):
            learning.edit("feed", fields={field: 0.2}, who="bob")
    for names, problem in ((["w=7"], "is not a candidate"), (["w=1"], "is the baseline")):
        with pytest.raises(StudyFileError, match=problem):
            learning.edit("feed", retire=names, who="bob")
    with pytest.raises(OptionError, match="not both"):
        learning.edit("feed", {"name": "feed"}, fields={"owner": "me"}, who="bob")


@pytest.mark.parametrize("path", ["metrics.likes.cap", "metrics.watch.value", "learner.draws", "goal.maximize"])
def test_a_part_of_a_fixed_field_is_refused_with_the_reason_of_the_field(learning: Service, path: str) -> None:
    section = path.partition(".")[0]
    with pytest.raises(StudyFileError) as refused:
        learning.edit("feed", fields={path: 7}, who="bob")
    assert refused.value.problems == {section: REASONS[section]}


def test_a_part_of_a_metric_of_a_draft_can_be_set(service: Service, document: Document) -> None:
    service.create(document, who="ann", seed=7)
    for fields in ({"metrics.likes.cap": 30}, {"metrics.likes.range": [0, 40]}, {"learner.draws": 64}):
        service.edit("feed", fields=fields, who="ann")
    edited = service.show("feed").document
    assert edited["metrics"]["likes"]["range"] == [0, 40]
    assert edited["learner"]["draws"] == 64
    with pytest.raises(StudyFileError, match="did you mean 'cap'"):
        service.edit("feed", fields={"metrics.likes.capp": 30}, who="ann")


def test_a_new_candidate_has_values_of_the_kind_that_callers_expect(learning: Service) -> None:
    with pytest.raises(StudyFileError) as refused:
        learning.edit("feed", add=[{"w": "7"}], who="bob")
    (problem,) = refused.value.problems.values()
    assert "all other candidates have numbers there" in problem
    assert learning.show("feed").generation == 2
    learning.edit("feed", add=[{"w": 7.5}], who="bob")


def test_a_dry_run_and_an_edit_without_a_change_write_nothing(learning: Service) -> None:
    planned = learning.edit("feed", fields={"owner": "feed team"}, who="bob", dry_run=True)
    assert [change.after for change in planned.changes or ()] == ["feed team"]
    same = learning.edit("feed", fields={"traffic.explore": "100%"}, who="bob")
    assert same.changes == ()
    assert (same.generation, same.round, same.edits) == (2, 1, ())


def test_of_two_edits_of_one_generation_the_second_is_refused(learning: Service) -> None:
    read = learning.show("feed").generation
    learning.close_round("feed", who="scheduler")
    learning.edit("feed", fields={"traffic.explore": 0.5}, who="ann", generation=read)  # a close is no edit
    with pytest.raises(ConflictError, match="was edited by ann after generation"):
        learning.edit("feed", fields={"traffic.explore": 0.1}, who="bob", generation=read)
    assert learning.show("feed").document["traffic"]["explore"] == 0.5


def test_concurrent_edits_of_single_fields_are_all_written(learning: Service) -> None:
    nodes = [learning, Service(learning.store), Service(learning.store)]
    edits = ({"traffic.explore": 0.5}, {"owner": "feed team"}, {"traffic.max_share": 0.4})
    threads = [
        threading.Thread(target=node.edit, args=("feed",), kwargs={"fields": fields, "who": "bob"})
        for node, fields in zip(nodes, edits, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    overview = nodes[0].show("feed")
    assert len(overview.edits) == 3
    assert (overview.owner, overview.document["traffic"]["max_share"], overview.document["traffic"]["explore"]) == (
        "feed team",
        0.4,
        0.5,
    )
    assert nodes[1].replay("feed").identical


def test_a_replay_goes_through_edits_and_a_restart(tmp_path: Path, document: Document, traffic: Traffic) -> None:
    service = Service(open_store(str(tmp_path / "store")))
    service.create(document, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    play(service, traffic, 2)
    send(service, traffic)
    service.edit("feed", fields={"traffic.explore": "25%", "guardrails.likes.loss_budget": 0.2}, who="bob")
    play(service, traffic, 2)
    service.shutdown()

    service = Service(open_store(str(tmp_path / "store")))
    send(service, traffic)
    service.edit("feed", add=[{"w": 1.5}], retire=["w=3"], who="bob")
    service.change("feed", "pause", who="ann", reason="lunch")
    service.edit("feed", fields={"confidence": "90%", "guardrails.likes.at_least": 0.4}, who="bob")
    assert service.show("feed").paused_from == "learning"
    service.change("feed", "resume", who="ann")
    play(service, traffic, 2, users=600)
    service.change("feed", "confirm", who="ann")
    service.edit("feed", fields={"guardrails.likes.stop_at": 0.1, "owner": "feed team"}, who="bob")
    with pytest.raises(StudyFileError, match="units keep their arm"):
        service.edit("feed", fields={"traffic.explore": 1.0}, who="bob")
    service.change("feed", "archive", who="ann", reason="over")
    with pytest.raises(LifecycleError, match="is archived and edit needs it"):
        service.edit("feed", fields={"owner": "me"}, who="bob")
    replayed = service.replay("feed")
    assert (replayed.identical, replayed.rounds) == (True, 14)
    assert [line.action for line in service.audit("feed")].count("edit") == 4

    row = service.store.read_study("feed")
    assert row is not None
    (close,) = service.store.list_closes(row.number, after=2, limit=1)
    edit = CloseRecord.from_text(close.record).edit
    assert edit is not None
    assert (edit.before["traffic"]["explore"], edit.after["traffic"]["explore"]) == (1.0, 0.25)
    service.shutdown()


def test_an_edit_that_a_crash_interrupts_leaves_nothing(learning: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(learning.store, "update_study", lambda *_, **__: (_ for _ in ()).throw(OSError("no disk")))
        with pytest.raises(OSError, match="no disk"):
            learning.edit("feed", fields={"traffic.explore": 0.5}, who="bob")
    assert learning.show("feed").round == 1
    assert learning.show("feed").document["traffic"]["explore"] == 1.0
    learning.edit("feed", fields={"traffic.explore": 0.5}, who="bob")
    assert learning.replay("feed").identical


def test_late_events_of_a_round_before_an_edit_correct_it(
    service: Service, document: Document, traffic: Traffic
) -> None:
    service.create({**document, "rounds": {"every": "1h", "accept_late": "2d"}}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    events = traffic(service, 300)
    late = [event for event in events if event.get("name") == "like"]
    service.ingest("feed", service.decode(msgspec.json.encode([e for e in events if e not in late]))).result()
    service.edit("feed", add=[{"w": 4}], retire=["w=3"], fields={"traffic.max_share": 0.5}, who="bob")
    version = 1
    service.ingest(
        "feed", service.decode(msgspec.json.encode([{**event, "version": version} for event in late]))
    ).result()
    play(service, traffic, 1)
    assert service.rounds("feed")[-1].corrected == (1,)
    assert service.replay("feed").identical


def evidence(service: Service) -> set[str]:
    """Return the guardrails on which the monitor has evidence."""
    row = service.store.read_study("feed")
    assert row is not None
    carried = GuardrailState.read(StudyState.from_text(row.details).guardrail_monitor.carried)
    assert carried is not None
    return set(carried.monitor.floor_states or {})


def test_evidence_against_an_old_stop_level_does_not_count_against_a_new_one(
    service: Service, document: Document, traffic: Traffic
) -> None:
    rails = [
        {"metric": "likes", "at_least": "-50%", "stop_at": "-90%"},
        {"metric": "watch", "at_least": "-50%", "stop_at": "-90%"},
    ]
    service.create({**document, "guardrails": rails}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    play(service, traffic, 2)
    assert evidence(service) == {"likes", "watch"}
    send(service, traffic)
    edited = service.edit("feed", fields={"guardrails.likes.stop_at": "-80%"}, who="bob")
    assert evidence(service) == {"watch"}, "only the level that changed starts again"
    assert {verdict.name for verdict in edited.guardrail_monitor.verdicts} == {"watch"}
    service.close_round("feed", who="bob")  # a round without units
    assert evidence(service) == {"watch"}
    play(service, traffic, 1)
    assert evidence(service) == {"likes", "watch"}
    assert service.replay("feed").identical


def test_a_tightened_stop_level_stops_a_study_that_the_old_one_let_run(
    service: Service, document: Document, traffic: Traffic
) -> None:
    rails = [{"metric": "likes", "at_least": "-5%", "stop_at": "-99%"}]
    held = {**document, "guardrails": rails, "traffic": {"control": "30%", "min_share": "90%"}}
    service.create(held, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    for _ in range(3):
        play(service, poorly_liked(traffic), 1, users=600)
    assert service.show("feed").state == "learning"
    service.edit("feed", fields={"guardrails.likes.stop_at": "-5%"}, who="bob")
    assert service.show("feed").state == "learning", "rounds before the edit are no evidence against the new level"
    for _ in range(6):
        if service.show("feed").state == "learning":
            play(service, poorly_liked(traffic), 1, users=600)
    stopped = service.show("feed")
    assert stopped.state == "paused"
    assert stopped.guardrail_monitor.tripped is not None
    assert service.replay("feed").identical


def poorly_liked(traffic: Traffic) -> Traffic:
    """Return traffic in which only users of the control like anything."""

    def events(service: Service, users: int) -> list[dict[str, Any]]:
        policy = service.policy_cache.current("feed")
        found = traffic(service, users)
        return [e for e in found if e.get("name") != "like" or policy.draw(e["unit"]).arm == "control"]

    return events


def test_an_edit_of_a_paused_study_keeps_serving_the_baseline(learning: Service, traffic: Traffic) -> None:
    play(learning, traffic, 2, users=600)
    learning.change("feed", "pause", who="ann", reason="lunch", hold="baseline")
    learning.edit("feed", add=[{"w": 4}], who="bob")
    assert list(shares(learning)) == ["w=1"]
    learning.change("feed", "resume", who="ann")
    assert "w=4" in shares(learning)
    assert learning.replay("feed").identical


def test_more_candidates_than_policies_can_wait_for_are_refused(service: Service, document: Document) -> None:
    service.create({**document, "rounds": {"every": "1h", "maturity": "200h"}}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    for _ in range(40):
        service.close_round("feed", who="bob")
    with pytest.raises((LifecycleError, StudyFileError), match=r"keeps \d+ policies"):
        service.edit("feed", add=[{"w": number} for number in range(10, 2000)], who="bob")


def test_a_store_of_earlier_code_has_no_edits_and_can_be_edited(learning: Service, traffic: Traffic) -> None:
    play(learning, traffic, 1)
    row = learning.store.read_study("feed")
    assert row is not None
    details = json.loads(row.details)
    for name in ("edits", "first_edited"):
        details.pop(name)
    assert StudyState.from_text(json.dumps(details)).edits == ()
    from dataclasses import replace

    assert learning.store.update_study(row, replace(row, generation=row.generation + 1, details=json.dumps(details)))
    node = Service(learning.store)
    node.edit("feed", fields={"traffic.explore": 0.5}, who="bob")
    play(node, traffic, 1)
    assert node.replay("feed").identical
