"""Ramps: steps forward while guardrails hold, back on a warning, by request, and replays of all of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from pasto.errors import LifecycleError, OptionError, StudyFileError
from pasto.report.ramp_text import RampReport, describe_ramp
from pasto.report.records import ArmVerdict
from pasto.report.text import render_text
from pasto.service.close_record import CloseRecord
from pasto.service.ramp import RampState, advance_ramp
from pasto.service.rounds import close as close_module
from pasto.service.rounds.guardrail_check import GuardrailResult
from pasto.service.service import Service
from pasto.service.study_file import StudySpec, parse_spec
from pasto.service.study_state import StudyState

Document = dict[str, Any]
Traffic = Callable[[Service, int], list[dict[str, Any]]]
STEPS = [0.05, 0.25, 0.5, 1.0]


@pytest.fixture
def ramped(service: Service, document: Document) -> Service:
    """Return a service with a study that goes one step forward after two rounds."""
    traffic = {"control": "20%", "ramp": ["5%", "25%", "50%", "100%"], "advance_after": "2 rounds"}
    service.create({**document, "traffic": traffic}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    return service


def play(service: Service, traffic: Traffic, rounds: int = 1, users: int = 400) -> list[set[str]]:
    """Send the events of enrolled users and close, round by round; return the users that took part."""
    enrolled = []
    for _ in range(rounds):
        policy = service.policy_cache.current("feed")
        events = [event for event in traffic(service, users) if policy.draw(event["unit"]) is not policy.not_enrolled]
        assert not service.ingest("feed", service.decode(msgspec.json.encode(events))).result().rejected
        enrolled.append({event["unit"] for event in events})
        service.close_round("feed", who="scheduler")
    return enrolled


def ramp_of(service: Service) -> RampState:
    row = service.store.read_study("feed")
    assert row is not None
    ramp = StudyState.from_text(row.details).ramp
    assert ramp is not None
    return ramp


def show_ramp(service: Service) -> RampReport:
    ramp = service.show("feed").ramp
    assert ramp is not None
    assert ramp == service.report("feed").ramp
    return ramp


def share_of(service: Service) -> float:
    policy = service.show("feed").policy
    assert policy is not None
    return round(policy.enrolled, 9)


@pytest.fixture
def verdict(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that fixes the state of every verdict from now on, in closes and in replays."""
    states = {"now": "holds"}
    recorded: dict[int, str] = {}

    def judge(spec: StudySpec, row: Any, *others: Any, **more: Any) -> GuardrailResult:
        state = recorded.setdefault(row.round, states["now"])
        return GuardrailResult((ArmVerdict("likes", "learner", state, p_value=0.5),), {})

    monkeypatch.setattr(close_module, "judge_guardrails", judge)
    monkeypatch.setattr("pasto.service.rounds.replay.judge_guardrails", judge)
    return lambda state: states.update(now=state)


def test_a_ramp_goes_forward_while_the_guardrails_hold_and_keeps_its_users(ramped: Service, traffic: Traffic) -> None:
    enrolled = play(ramped, traffic, 7)
    assert [close.version for close in ramped.rounds("feed")] == list(range(1, 8))
    for earlier, later in pairwise(enrolled):
        assert earlier <= later
    assert [len(users) / 400 for users in enrolled] == pytest.approx([0.05, 0.05, 0.25, 0.25, 0.5, 0.5, 1.0], rel=0.5)
    assert share_of(ramped) == 1.0
    assert ramped.policy_cache.current("feed").enrolment == ()
    steps = [line for line in ramped.audit("feed") if line.action == "ramp"]
    assert [line.who for line in steps] == ["guardrail monitor"] * 3
    assert steps[0].reason == ("The ramp goes from 5% to 25% of the units, step 2: every guardrail held in 2 rounds.")
    assert ramped.replay("feed").identical


def test_a_warning_takes_the_ramp_one_step_back(
    ramped: Service, traffic: Traffic, verdict: Callable[[str], None]
) -> None:
    play(ramped, traffic, 4)
    assert (ramp_of(ramped).step, share_of(ramped)) == (3, 0.5)
    verdict("warning")
    play(ramped, traffic)
    assert (ramp_of(ramped), share_of(ramped)) == (RampState(2, since=6), 0.25)
    assert "likes may soon reach its stop level" in ramped.audit("feed")[-1].reason
    verdict("holds")
    play(ramped, traffic)
    assert ramp_of(ramped).rounds == 1
    verdict("warning")
    play(ramped, traffic, 3)
    assert ramp_of(ramped) == RampState(1, since=8, rounds=0)
    verdict("breach")
    play(ramped, traffic)
    assert ramped.show("feed").state == "paused"
    assert ramp_of(ramped).step == 1
    assert ramped.replay("feed").identical


def test_rounds_of_an_earlier_step_move_nothing(document: Document) -> None:
    spec = parse_spec({**document, "traffic": {"ramp": [0.01, 0.1, 1], "advance_after": 2}})
    holds, warning = (ArmVerdict("likes", "learner", state, p_value=0.5) for state in ("holds", "warning"))
    ramp = RampState(2, since=9)
    for verdicts in ([holds], [warning]):
        assert advance_ramp(spec, ramp, 9, [7, 8], verdicts) == ramp
    assert advance_ramp(spec, ramp, 9, [], [holds]) == ramp
    assert advance_ramp(spec, ramp, 10, [9, 10], [holds], has_problems=True) == ramp, "the learner could not learn it"
    assert advance_ramp(spec, ramp, 10, [9], [warning], has_problems=True).step == 1
    assert advance_ramp(spec, ramp, 9, [9], []) == ramp, "a round that was not judged counts for nothing"
    assert advance_ramp(spec, ramp, 11, [9, 10], [holds]) == RampState(3, since=12)
    assert advance_ramp(spec, RampState(3, since=3), 5, [3, 4, 5], [holds]).step == 3


def test_the_count_starts_again_after_a_pause(ramped: Service, traffic: Traffic) -> None:
    play(ramped, traffic)
    assert ramp_of(ramped).rounds == 1
    ramped.change("feed", "pause", who="ann", reason="lunch")
    ramped.change("feed", "resume", who="ann")
    assert ramp_of(ramped) == RampState(1, since=4)
    play(ramped, traffic)
    assert share_of(ramped) == 0.05
    assert ramped.replay("feed").identical


def test_a_round_without_units_does_not_count(ramped: Service, traffic: Traffic) -> None:
    assert "judged" not in describe_ramp(show_ramp(ramped))
    for _ in range(4):
        ramped.close_round("feed", who="scheduler")
    assert ramp_of(ramped) == RampState()
    assert describe_ramp(show_ramp(ramped)).endswith("2 more rounds until 25%; no closed round is judged yet")
    play(ramped, traffic)
    assert describe_ramp(show_ramp(ramped)).endswith("1 more round until 25%")


def test_a_person_moves_holds_and_resumes_a_ramp(
    ramped: Service, traffic: Traffic, verdict: Callable[[str], None]
) -> None:
    play(ramped, traffic)
    overview = ramped.move_ramp("feed", "50%", who="bob", reason="we are in a hurry")
    assert (overview.round, share_of(ramped)) == (3, 0.5)
    line = ramped.audit("feed")[-1]
    assert (line.who, line.action, line.reason, line.detail["step"]) == ("bob", "ramp", "we are in a hurry", 3)
    assert ramped.move_ramp("feed", "hold", who="bob").ramp is not None
    play(ramped, traffic, 3)
    assert ramp_of(ramped) == RampState(3, since=3, rounds=2, is_held=True)
    verdict("warning")
    play(ramped, traffic)
    assert (ramp_of(ramped).step, ramp_of(ramped).is_held) == (2, True), "a warning moves a ramp that is held"
    verdict("holds")
    ramped.move_ramp("feed", "resume", who="bob")
    ramped.move_ramp("feed", "back", who="bob")
    assert share_of(ramped) == 0.05
    before = ramped.show("feed").round
    assert ramped.move_ramp("feed", 0.05, who="bob").round == before, "a step that the ramp is at ends no round"
    ramped.change("feed", "pause", who="bob", reason="lunch")
    ramped.move_ramp("feed", "next", who="bob")
    assert ramped.show("feed").state == "paused"
    ramped.change("feed", "resume", who="bob")
    assert share_of(ramped) == 0.25
    assert ramped.replay("feed").identical
    ramped.change("feed", "confirm", who="bob")
    with pytest.raises(LifecycleError, match="is confirming, and a ramp moves only while a study learns"):
        ramped.move_ramp("feed", "next", who="bob")
    assert share_of(ramped) == 0.25


def test_a_step_that_is_none_is_refused_with_the_steps(ramped: Service, service: Service, document: Document) -> None:
    for to, problem in (
        ("10%", "is not a step of the ramp of study 'feed'; the steps are 5%, 25%, 50%, 100%"),
        ("up", "write the share of a step"),
        ("back", "at its first step"),
        (float("nan"), "write the share of a step"),
    ):
        with pytest.raises(OptionError, match=problem):
            ramped.move_ramp("feed", to, who="bob")
    service.create({**document, "name": "plain"}, who="ann")
    with pytest.raises(LifecycleError, match="has no ramp"):
        service.move_ramp("plain", "next", who="ann")


def test_a_study_gets_a_ramp_and_loses_it_by_an_edit(learning: Service, traffic: Traffic) -> None:
    learning.edit("feed", fields={"traffic.explore": "30%"}, who="bob")
    edited = learning.edit("feed", fields={"traffic.ramp": ["1%", "25%", "100%"]}, who="bob")
    assert edited.ramp is not None
    assert (edited.ramp.step, share_of(learning)) == (2, 0.25), "an edit never enrols more units by itself"
    assert "explore" not in edited.document["traffic"]
    play(learning, traffic, 3)
    assert share_of(learning) == 1.0
    changed = learning.edit("feed", fields={"traffic.ramp": ["10%", "50%", "90%"]}, who="bob")
    assert (changed.ramp is not None, share_of(learning)) == (True, 0.9)
    plain = learning.edit("feed", fields={"traffic.explore": "40%"}, who="bob")
    assert (plain.ramp, share_of(learning)) == (None, 0.4)
    assert "advance_after" not in plain.document["traffic"]
    assert learning.replay("feed").identical


@pytest.mark.parametrize(
    ("traffic", "field", "problem"),
    [
        ({"ramp": ["5%"]}, "traffic.ramp", "must be a list of 2 to 20 shares"),
        ({"ramp": ["5%", "5%"]}, "traffic.ramp", "must increase"),
        ({"ramp": ["5%", "500%"]}, "traffic.ramp[1]", "must be a share"),
        ({"ramp": ["5%", "50%"], "explore": "50%"}, "traffic.explore", "cannot be given with ramp"),
        ({"advance_after": 3}, "traffic.advance_after", "is for a ramp"),
        ({"ramp": ["5%", "50%"], "advance_after": "3 days"}, "traffic.advance_after", "must be a number of rounds"),
    ],
)
def test_a_ramp_that_cannot_be_is_refused(
    document: Document, traffic: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(StudyFileError) as refused:
        parse_spec({**document, "traffic": traffic})
    assert problem in refused.value.problems[field]


def test_the_ramp_is_recorded_shown_and_reported(ramped: Service, traffic: Traffic) -> None:
    play(ramped, traffic, 3)
    (*_, last) = ramped.store.list_closes(1, after=0, limit=10)
    recorded = CloseRecord.from_text(last.record).ramp
    assert recorded is not None
    assert recorded.after == ramp_of(ramped) == RampState(2, since=3, rounds=1)
    overview = ramped.show("feed").ramp
    assert overview is not None
    assert (overview.step, overview.shares, overview.rounds_left) == (2, tuple(STEPS), 1)
    note = "the ramp will enrol more"
    text = " ".join(render_text(ramped.report("feed")).split())
    assert "Ramp: step 2 of 4, 25%, 1 more round until 50%." in text
    assert note in text
    ramped.move_ramp("feed", "100%", who="ann")
    assert note not in " ".join(render_text(ramped.report("feed")).split())


def test_a_replay_finds_a_ramp_that_is_not_the_recorded_one(
    ramped: Service, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(ramped, traffic, 2)
    monkeypatch.setattr(close_module, "advance_ramp", lambda spec, ramp, *others, **more: ramp)
    difference = ramped.replay("feed").first_difference
    assert difference is not None
    assert (difference.round, difference.what) == (1, "ramp")
