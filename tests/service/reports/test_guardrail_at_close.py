"""Guardrail monitor in a running study: it pauses if a guardrail falls, reports it, and only a person resumes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pasto.errors import OptionError
from pasto.report.records import write_record
from pasto.report.text import render_text
from pasto.service.rounds import guardrail_check
from pasto.service.scheduler import Scheduler
from pasto.service.study_state import StudyState

if TYPE_CHECKING:
    from tests.service.reports.conftest import Playground

    Make = Callable[..., Playground]


def rounds_until_trip(place: Playground, *, harm: float, most: int) -> int | None:
    for number in range(1, most + 1):
        place.round(harm=harm)
        if place.service.show("feed").state == "paused":
            return number
    return None


def test_a_guardrail_that_truly_falls_stops_the_study_and_serves_what_it_held(playground_on_every_store: Make) -> None:
    place = playground_on_every_store()
    for _ in range(4):
        place.round()
    assert place.service.show("feed").state == "learning"
    assert place.messages == []
    taken = rounds_until_trip(place, harm=6.0, most=6)
    assert taken is not None
    overview = place.service.show("feed")
    assert overview.policy is not None
    assert (overview.state, overview.paused_from, set(overview.policy.arms)) == ("paused", "learning", {"paused"})
    assert overview.guardrail_monitor.tripped is not None
    assert overview.guardrail_monitor.tripped.reason.startswith(
        "guardrail monitor: y fell below its stop level -12% of the control"
    )
    assert overview.guardrail_monitor.tripped.round == 4 + taken
    assert [verdict.state for verdict in overview.guardrail_monitor.verdicts] == ["breach"]
    line = place.service.audit("feed")[-1]
    assert (line.who, line.action) == ("guardrail monitor", "trip")
    assert line.reason == overview.guardrail_monitor.tripped.reason
    assert [message["event"] for message in place.messages][-1] == "guardrail_stop"
    assert place.service.rounds("feed")[-1].next_state == "paused"
    assert write_record(place.service.replay("feed")) == {
        "identical": True,
        "rounds": 4 + taken,
        "first_difference": None,
    }


def test_what_is_held_is_the_certified_blend_where_there_is_one(playground: Make) -> None:
    place = playground(guardrails=[{"metric": "y", "at_least": 9.0, "stop_at": 7.5}])
    for _ in range(4):
        place.round()
    assert rounds_until_trip(place, harm=9.0, most=6) is not None
    policy = place.service.show("feed").policy
    assert policy is not None
    served = {share.name for share in policy.shares}
    report = write_record(place.service.report("feed"))
    certified = report["blend"]["certificate"]["certified"]
    assert served == (set(report["blend"]["probabilities"]) if certified else {"w=1"})
    assert place.service.replay("feed").identical


def test_a_study_without_harm_is_not_stopped(playground: Make) -> None:
    place = playground()
    for _ in range(25):
        place.round(users=150)
    assert place.service.show("feed").state == "learning"
    assert place.messages == []
    assert write_record(place.service.report("feed"))["guardrails"][0]["state"] == "holds"


def test_only_a_person_with_a_reason_resumes_and_evidence_restarts(playground_on_every_store: Make) -> None:
    place = playground_on_every_store()
    tripped = rounds_until_trip(place, harm=4.0, most=6)
    assert tripped is not None
    with pytest.raises(OptionError, match=r"stopped by its guardrail monitor .*needs a reason"):
        place.service.change("feed", "resume", who="ann", reason=" ")
    resumed = place.service.change("feed", "resume", who="ann", reason="the ranking was repaired")
    assert write_record(resumed.guardrail_monitor) == {"verdicts": [], "tripped": None}
    for _ in range(5):
        place.round()
    assert place.service.show("feed").state == "learning"
    assert rounds_until_trip(place, harm=4.0, most=6) is not None
    assert place.service.replay("feed").identical


def test_a_warning_comes_before_and_is_sent_once(playground: Make) -> None:
    place = playground()
    states = []
    for _ in range(40):
        place.round(users=10, harm=4.0)
        overview = place.service.show("feed")
        states.append(overview.guardrail_monitor.verdicts[0].state if overview.guardrail_monitor.verdicts else "holds")
        if overview.state == "paused":
            break
    assert "warning" in states
    assert "breach" not in states[: states.index("warning")]
    assert [message["event"] for message in place.messages].count("guardrail_warning") == 1
    assert place.messages[0]["verdicts"][0]["name"] == "y"


def test_a_deployed_blend_is_watched_and_pulled_to_the_baseline(playground_on_every_store: Make) -> None:
    place = playground_on_every_store()
    for _ in range(4):
        place.round()
    place.service.change("feed", "deploy", who="ann", reason="urgent", without_confirmation=True)
    version = place.service.show("feed").version
    scheduler = Scheduler(place.service)
    for _ in range(5):
        place.crowd()
        place.now += 3601.0
        scheduler.tick()
    overview = place.service.show("feed")
    assert (overview.state, overview.version) == ("deployed", version)
    assert overview.round > version
    for _ in range(12):
        place.crowd(harm=6.0)
        place.now += 3601.0
        scheduler.tick()
        if place.service.show("feed").state == "paused":
            break
    overview = place.service.show("feed")
    assert (overview.state, overview.paused_from) == ("paused", "deployed")
    assert overview.policy is not None
    assert [share.name for share in overview.policy.shares] == ["w=1"]
    assert place.service.audit("feed")[-1].who == "guardrail monitor"
    assert place.service.replay("feed").identical


def test_a_restart_continues_with_the_same_evidence(playground: Make) -> None:
    one, two = playground(), playground()
    for place in (one, two):
        for _ in range(3):
            place.round(users=60, harm=1.5)
            if place is two:
                place.service = place.node()
    assert one.service.show("feed").guardrail_monitor == two.service.show("feed").guardrail_monitor


def test_a_study_of_an_older_version_is_judged_from_its_past_once(playground_on_every_store: Make) -> None:
    place = playground_on_every_store()
    for _ in range(4):
        place.round(users=60, harm=1.0)
    row = place.row
    details = StudyState.from_text(row.details)
    older = replace(details, guardrail_monitor=replace(details.guardrail_monitor, carried=None))
    assert place.store.update_study(row, replace(row, details=older.to_text()))
    place.service.policy_cache.reload("feed")
    place.round(users=60, harm=1.0)
    carried = StudyState.from_text(place.row.details).guardrail_monitor.carried
    assert carried is not None
    assert carried["monitor"]["held"]["y"]["rounds"] == 5
    assert place.service.replay("feed").identical
    event_counts = write_record(place.service.report("feed"))["accounting"]
    assert event_counts["events"]["exposures"] == 300


@pytest.mark.parametrize("what", ["verdict", "trip"])
def test_replay_finds_a_changed_guardrail_verdict(playground: Make, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    place = playground()
    tripped = rounds_until_trip(place, harm=4.0, most=6)
    assert tripped is not None
    close = place.store.list_closes(1)[-1]
    record = json.loads(close.record)
    if what == "verdict":
        record["verdicts"][0]["state"] = "holds"
    else:
        record["next_phase"]["state"] = "learning"
    closes = place.store.list_closes

    def changed(study: int, *, after: int = 0, limit: int = 1000) -> Any:
        rows = closes(study, after=after, limit=limit)
        return [row if row.round != close.round else replace(row, record=json.dumps(record)) for row in rows]

    monkeypatch.setattr(place.store, "list_closes", changed)
    found = place.service.replay("feed")
    assert not found.identical
    assert found.first_difference is not None
    assert found.first_difference.round == close.round
    assert found.first_difference.what == "guardrail_monitor"


def test_verdicts_of_another_method_are_reported_as_recorded(playground: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    place = playground()
    tripped = rounds_until_trip(place, harm=4.0, most=6)
    assert tripped is not None
    closes = place.store.list_closes

    def older(study: int, *, after: int = 0, limit: int = 1000) -> Any:
        found = []
        for row in closes(study, after=after, limit=limit):
            record = json.loads(row.record)
            if row.round <= tripped:
                del record["method"]
                record["verdicts"] = [{**one, "p_value": one["p_value"] / 2} for one in record["verdicts"]]
            found.append(replace(row, record=json.dumps(record)))
        return found

    monkeypatch.setattr(place.store, "list_closes", older)
    judged = list(range(1, tripped + 1))
    expected = {
        "identical": True,
        "rounds": tripped,
        "first_difference": None,
        "except": {"guardrail_monitor": {"rounds": judged}},
    }
    assert write_record(place.service.replay("feed")) == expected
    place.service.change("feed", "resume", who="ann", reason="mended")
    place.round()
    assert write_record(place.service.replay("feed")) == {**expected, "rounds": tripped + 2}


def test_a_guardrail_without_a_verdict_does_not_keep_a_round_open(
    playground: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise ArithmeticError("no such luck")

    place = playground()
    monkeypatch.setattr(guardrail_check, "judge_learning", fails)
    closed = place.round()
    assert closed.closed
    assert closed.problems == ("the guardrail monitor could not judge: ArithmeticError: no such luck",)


@pytest.mark.parametrize("rail", [{"at_most": 12.0, "stop_at": 14.0}, {"at_least": 9.0, "stop_at": 6.0}])
def test_a_sum_that_grows_with_the_phase_is_no_harm_and_does_not_hide_any(
    playground: Make, rail: dict[str, float]
) -> None:
    place = playground(guardrails=[{"metric": "y", **rail}], rounds={"every": "8h"})
    for _ in range(3):  # a full day, so that the control's level is known
        place.round(hours=8)
    assert place.service.show("feed").state == "learning"
    place.service.change("feed", "deploy", who="ann", reason="urgent", without_confirmation=True)
    scheduler = Scheduler(place.service)
    policy = place.service.policy_cache.current("feed")
    harm, state = 0.0, "deployed"
    for day in range(9):
        if day == 3:
            harm, state = (-9.0 if "at_most" in rail else 9.0), "paused"
        events = []
        for number in range(500):  # the same users every day
            cell = policy.draw(f"user {number}")
            drawn = {"unit": f"user {number}", "version": policy.version, "candidate": cell.name}
            if not day:
                events.append({"type": "exposure", "id": f"e{number}", **drawn})
            y = 10.0 + number % 3 / 10 - (harm if cell.arm == "blend" else 0.0)
            fields = {"x": 10.0, "y": y, "likes": 1.0, "views": 4.0}
            events.append({"type": "metric", "id": f"m{day}/{number}", "name": "seen", "fields": fields, **drawn})
        answer = place.service.ingest("feed", place.service.decode(json.dumps(events).encode())).result()
        assert answer.rejected == ()
        place.now += 8 * 3600.0 + 1.0
        scheduler.tick()
        if day == 2:
            assert place.service.show("feed").state == "deployed"
    assert place.service.show("feed").state == state
    assert place.service.replay("feed").identical


def swing(hour: float) -> float:
    """Return the common level at an hour: lowest six hours after the start."""
    return 1.0 - 0.1 * math.sin(2.0 * math.pi * hour / 24.0)


@pytest.mark.parametrize(("control", "judged"), [("20%", "control"), ("0%", "days")])
def test_a_floor_in_own_units_does_not_trip_when_the_common_level_swings(
    playground: Make, control: str, judged: str
) -> None:
    place = playground(guardrails=[{"metric": "y", "at_least": 9.6, "stop_at": 9.3}], traffic={"control": control})
    for hour in range(15):
        place.round(hours=2, level=swing(2 * hour))
    overview = place.service.show("feed")
    assert overview.state == "learning"
    verdict = overview.guardrail_monitor.verdicts[0]
    assert (verdict.state, verdict.judged) == ("holds", judged)
    rail = write_record(place.service.report("feed"))["guardrails"][0]
    assert (rail["floor"], rail["judged"], rail["allowed"]) == (9.3, judged, verdict.allowed)
    if judged == "control":
        assert verdict.allowed is not None
        assert -0.14 < verdict.allowed < -0.07
    page = render_text(place.service.report("feed"))
    assert f"judged {'against the control' if judged == 'control' else 'over whole days'}" in page
    recorded = [one for close in place.store.list_closes(1) for one in json.loads(close.record)["rounds"]]
    assert {one["seconds"] for one in recorded} == {7200.0}
    assert place.service.replay("feed").identical


@pytest.mark.parametrize(("control", "harm"), [("20%", 2.5), ("0%", 4.0)])
def test_harm_beyond_a_floor_in_own_units_is_found_at_the_end_of_the_day(
    playground: Make, control: str, harm: float
) -> None:
    place = playground(guardrails=[{"metric": "y", "at_least": 9.6, "stop_at": 9.3}], traffic={"control": control})
    for hour in range(14):
        place.round(hours=2, level=swing(2 * hour), harm=harm)
        if place.service.show("feed").state == "paused":
            break
    overview = place.service.show("feed")
    assert overview.guardrail_monitor.tripped is not None
    assert (overview.state, overview.guardrail_monitor.tripped.round) == ("paused", 12)
    judged = "against the control" if control == "20%" else "over whole days"
    reason = overview.guardrail_monitor.tripped.reason
    assert reason.startswith(f"guardrail monitor: y fell below its stop level 9.3 (judged {judged}) in the arm learner")
    assert place.service.replay("feed").identical


def test_after_re_arming_the_level_of_the_control_is_still_known(playground: Make) -> None:
    place = playground(guardrails=[{"metric": "y", "at_least": 9.6, "stop_at": 9.3}])
    for _ in range(12):
        place.round(hours=2, harm=2.5)
    assert place.service.show("feed").state == "paused"
    place.service.change("feed", "resume", who="ann", reason="mended")
    place.round(hours=2)
    verdict = place.service.show("feed").guardrail_monitor.verdicts[0]
    assert (verdict.state, verdict.p_value) == ("holds", 1.0)
    assert verdict.allowed is not None
    assert -0.12 < verdict.allowed < -0.07
    assert rounds_until_trip(place, harm=3.0, most=8) is not None
    assert place.service.replay("feed").identical
