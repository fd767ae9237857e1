"""Lifecycle: every action in every state, by one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pasto.errors import LifecycleError, OptionError, StudyExistsError, TextError, UnknownStudyError
from pasto.report.records import write_record
from pasto.service.lifecycle import ACTIONS, allowed, target
from pasto.service.service import Service

Traffic = Callable[[Service, int], list[dict[str, Any]]]
STATES = ("draft", "learning", "confirming", "deployed", "paused", "archived")
LEADS = {
    ("draft", "start"): "learning",
    ("draft", "archive"): "archived",
    ("learning", "pause"): "paused",
    ("learning", "confirm"): "confirming",
    ("learning", "archive"): "archived",
    ("confirming", "pause"): "paused",
    ("confirming", "deploy"): "deployed",
    ("confirming", "archive"): "archived",
    ("deployed", "pause"): "paused",
    ("deployed", "archive"): "archived",
    ("paused", "resume"): "confirming",
    ("paused", "archive"): "archived",
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_leads_only_to_the_states_of_the_table(state: str, action: str) -> None:
    expected = LEADS.get((state, action))
    if expected is None:
        with pytest.raises(LifecycleError, match=f"is {state} and {action} needs") as refused:
            target("feed", state, action, reason="why", paused_from="confirming")
        for possible in allowed(state):
            assert possible in str(refused.value)
    else:
        assert target("feed", state, action, reason="why", paused_from="confirming") == expected


def test_deploying_from_learning_must_be_asked_for() -> None:
    with pytest.raises(LifecycleError, match="confirm it first, or deploy it without a confirmation"):
        target("feed", "learning", "deploy")
    with pytest.raises(OptionError, match="deploy without a confirmation needs a reason"):
        target("feed", "learning", "deploy", without_confirmation=True)
    assert target("feed", "learning", "deploy", reason="urgent", without_confirmation=True) == "deployed"
    with pytest.raises(LifecycleError, match="is draft"):
        target("feed", "draft", "deploy", without_confirmation=True)


def test_pausing_needs_a_reason(learning: Service) -> None:
    with pytest.raises(OptionError, match="pause needs a reason"):
        learning.change("feed", "pause", who="ann", reason="  ")
    assert learning.show("feed").state == "learning"


def test_unknown_actions_and_options_are_refused(learning: Service) -> None:
    with pytest.raises(OptionError, match="'explode' cannot be done"):
        learning.change("feed", "explode", who="ann")
    with pytest.raises(OptionError, match="pause takes no 'shares'"):
        learning.change("feed", "pause", who="ann", reason="why", shares={})
    with pytest.raises(OptionError, match="hold is 'breath'"):
        learning.change("feed", "pause", who="ann", reason="why", hold="breath")
    with pytest.raises(OptionError, match="without_confirmation is 'yes'"):
        learning.change("feed", "deploy", who="ann", without_confirmation="yes")
    with pytest.raises(TextError, match=r"without control characters, got \\x00"):
        learning.change("feed", "pause", who="ann", reason="a\0b")
    with pytest.raises(UnknownStudyError, match="no study 'food'"):
        learning.change("food", "pause", who="ann", reason="why")


def test_a_name_is_taken_until_its_study_is_archived(learning: Service, document: dict[str, Any]) -> None:
    with pytest.raises(
        StudyExistsError, match=r"'feed' already \(learning\); choose another name, or archive it first"
    ):
        learning.create(document, who="ann")
    learning.change("feed", "archive", who="ann")
    assert learning.create(document, who="ann").archived_as == "feed@1"
    with pytest.raises(StudyExistsError, match="edit or delete the draft"):
        learning.create(document, who="ann")


def test_nothing_can_be_confirmed_before_something_is_learned(learning: Service) -> None:
    with pytest.raises(LifecycleError, match="has learned no round yet"):
        learning.change("feed", "confirm", who="ann")
    with pytest.raises(LifecycleError, match="has learned no round yet"):
        learning.change("feed", "deploy", who="ann", reason="urgent", without_confirmation=True)
    assert learning.show("feed").round == 1


def test_every_action_is_audited_with_user_and_reason(learning: Service, traffic: Traffic) -> None:
    service = learning
    for _ in range(3):
        service.ingest("feed", service.decode(msgspec.json.encode(traffic(service, 200)))).result()
        service.close_round("feed", who="bob")
    service.change("feed", "pause", who="eve", reason="odd numbers")
    assert service.show("feed").paused_from == "learning"
    resumed = service.change("feed", "resume", who="ann", reason="a false alarm")
    assert (resumed.state, resumed.version) == ("learning", 6)
    service.change("feed", "confirm", who="ann")
    service.change("feed", "pause", who="eve", reason="again")
    assert service.change("feed", "resume", who="ann").state == "confirming"
    with pytest.raises(LifecycleError, match=r"too few units for a verdict .*measured: none"):
        service.change("feed", "deploy", who="ann")
    service.change("feed", "deploy", who="ann", reason="urgent", without_confirmation=True)
    service.change("feed", "archive", who="ann", reason="done")
    with pytest.raises(LifecycleError, match="nothing, for this is final"):
        service.change("feed", "resume", who="ann")
    with pytest.raises(LifecycleError, match="serves no policy"):
        service.policy_cache.current("feed")
    log = service.audit("feed")
    assert [line.action for line in log] == [
        *("create", "start", "close", "close", "close"),
        *("pause", "resume", "confirm", "pause", "resume", "deploy", "archive"),
    ]
    assert (log[5].who, log[5].reason) == ("eve", "odd numbers")
    assert (log[5].detail["from"], log[5].detail["to"]) == ("learning", "paused")
    assert write_record(service.replay("feed")) == {"identical": True, "rounds": 10, "first_difference": None}


def test_a_learning_study_that_is_deployed_unconfirmed_serves_its_blend(learning: Service, traffic: Traffic) -> None:
    service = learning
    service.ingest("feed", service.decode(msgspec.json.encode(traffic(service, 200)))).result()
    overview = service.change("feed", "deploy", who="ann", reason="urgent", without_confirmation=True)
    assert overview.state == "deployed"
    assert overview.policy is not None
    assert set(overview.policy.arms) == {"control", "blend"}
    assert overview.frozen is not None
    assert overview.frozen.probabilities
    assert service.replay("feed").identical


def test_only_a_learning_study_has_rounds_to_close(service: Service, document: dict[str, Any]) -> None:
    service.create(document, who="ann")
    with pytest.raises(
        LifecycleError, match="is draft, and only a learning study has rounds to close; possible now: start"
    ):
        service.close_round("feed", who="ann")


def test_many_rounds_are_listed_without_loading_their_measurements(
    learning: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        learning.close_round("feed", who="ann")
    monkeypatch.setattr("pasto.service.service.PAGE_CLOSES", 2)
    asked: list[int] = []
    read = learning.store.list_closes

    def noted(study: int, *, after: int = 0, limit: int = 1000) -> Any:
        asked.append(limit)
        return read(study, after=after, limit=limit)

    monkeypatch.setattr(learning.store, "list_closes", noted)
    assert [one.round for one in learning.rounds("feed")] == [1, 2, 3, 4, 5]
    assert [one.round for one in learning.rounds("feed", after=1, limit=3)] == [2, 3, 4]
    assert [one.round for one in learning.rounds("feed", after=9)] == []
    assert max(asked) == 2
