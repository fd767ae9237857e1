"""Confirmation verdict, and the warning before another blend is deployed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from pasto.errors import LifecycleError, OptionError
from pasto.report.lift_records import IntervalEstimate, LiftRecord, SampleRatioReport
from pasto.report.records import write_record
from pasto.service.reports.confirmation_report import judge_confirmation
from pasto.service.study_file import StudySpec, parse_spec

if TYPE_CHECKING:
    from tests.service.reports.conftest import Playground

    Make = Callable[..., Playground]
Ends = tuple[float, float]


def make_lifts(control: float = 10.0, **ends: Ends | None) -> list[LiftRecord]:
    """Return lifts of a confirmed blend with these relative intervals; None stands for unknown ends."""
    lifts = []
    for metric, pair in ends.items():
        relative = absolute = IntervalEstimate(None, None, None)
        if pair is not None:
            low, high = pair
            relative = IntervalEstimate((low + high) / 2, low, high)
            absolute = IntervalEstimate(control * (low + high) / 2, control * low, control * high)
        lifts.append(
            LiftRecord("the blend", metric, None, control, absolute, relative, "unclear", None, None, 1, 0.95, True)
        )
    return lifts


@pytest.fixture
def spec(document: dict[str, Any]) -> Callable[..., StudySpec]:
    return lambda **changes: parse_spec({**document, **changes})


@pytest.mark.parametrize(
    ("x", "y", "state", "goal", "rail"),
    [
        ((0.01, 0.2), (-0.019, 0.1), "confirmed", "better", "holds"),
        ((-0.131, 0.87), (-0.019, 0.1), "inconclusive", "unclear", "holds"),
        ((0.01, 0.2), (-0.119, 0.1), "confirmed", "better", "unclear"),
        ((0.01, 0.2), (-0.121, 0.1), "inconclusive", "better", "unclear"),
        ((0.01, 0.2), None, "inconclusive", "better", "unmeasured"),
        ((0.01, 0.2), (-0.2, -0.021), "failed", "better", "broken"),
        ((-0.2, -0.01), (-0.019, 0.1), "failed", "worse", "holds"),
        (None, (-0.019, 0.1), "inconclusive", "unmeasured", "holds"),
    ],
)
def test_a_verdict_needs_whole_intervals(
    spec: Callable[..., StudySpec], x: Ends | None, y: Ends | None, state: str, goal: str, rail: str
) -> None:
    verdict = judge_confirmation(spec(), make_lifts(x=x, y=y), None)
    assert (verdict.state, verdict.goal.state, verdict.guardrails[0].state) == (state, goal, rail)


def test_a_soft_guardrail_does_not_decide(spec: Callable[..., StudySpec]) -> None:
    soft = [{"metric": "y", "at_least": "-2%", "penalty": 1.0, "stop_at": "-12%"}]
    verdict = judge_confirmation(spec(guardrails=soft), make_lifts(x=(0.01, 0.2), y=(-0.5, -0.4)), None)
    assert (verdict.state, verdict.guardrails[0].state) == ("confirmed", "broken")


def test_a_goal_to_lower_is_better_when_it_falls(spec: Callable[..., StudySpec]) -> None:
    verdict = judge_confirmation(spec(goal={"minimize": "x"}), make_lifts(x=(-0.2, -0.01), y=(0.0, 0.1)), None)
    assert verdict.state == "confirmed"


def test_a_weighted_goal_adds_the_ends_of_its_parts(spec: Callable[..., StudySpec]) -> None:
    weighted = spec(goal={"maximize": {"x": 1, "y": -0.5}})
    verdict = judge_confirmation(weighted, make_lifts(x=(0.03, 0.2), y=(0.0, 0.05)), None)
    assert verdict.goal.measured is not None
    assert verdict.goal.measured.low == pytest.approx(0.03 - 0.5 * 0.05)
    assert verdict.goal.measured.high == pytest.approx(0.2)
    assert verdict.goal.state == "better"
    assert judge_confirmation(weighted, make_lifts(x=(0.03, 0.2), y=(0.0, 0.1)), None).goal.state == "unclear"


def test_a_sample_ratio_mismatch_confirms_nothing(spec: Callable[..., StudySpec]) -> None:
    mismatch = SampleRatioReport(True, 1e-9, None, {})
    verdict = judge_confirmation(spec(), make_lifts(x=(0.01, 0.2), y=(0.0, 0.1)), mismatch)
    assert verdict.state == "inconclusive"


def confirming(playground: Make, floor: str, **options: Any) -> Playground:
    place = playground(guardrails=[{"metric": "y", "at_least": "-2%", "stop_at": floor}])
    for _ in range(6):
        place.round()
    place.service.change("feed", "confirm", who="ann", **options)
    return place


def test_an_inconclusive_confirmation_is_deployed_only_with_an_override_and_a_reason(playground: Make) -> None:
    place = confirming(playground, "-5%")
    place.crowd(300)
    with pytest.raises(
        LifecycleError, match=r"'feed' is not confirmed.*y is not shown to hold: .*, limit at least -2%"
    ) as refused:
        place.service.change("feed", "deploy", who="ann", reason="confirmed")
    assert "or deploy it without a confirmation and with a reason" in str(refused.value)
    assert "--without-confirmation" in str(refused.value)
    with pytest.raises(OptionError, match="without a confirmation needs a reason"):
        place.service.change("feed", "deploy", who="ann", without_confirmation=True)
    assert place.service.show("feed").state == "confirming"
    reply = place.service.change("feed", "deploy", who="ann", reason="launch day", without_confirmation=True)
    assert reply.state == "deployed"
    assert reply.confirmation is not None
    assert [rail.clear_of_floor for rail in reply.confirmation.guardrails] == [False]
    line = place.service.audit("feed")[-1]
    assert (line.action, line.reason) == ("deploy", "launch day")
    assert line.detail["without_confirmation"] is True
    assert line.detail["confirmation"] == write_record(reply.confirmation)
    assert place.service.replay("feed").identical


def test_a_confirmed_blend_is_deployed_with_its_verdict(playground: Make) -> None:
    place = confirming(playground, "-12%", days=1)
    place.crowd(4000)
    place.now += 86400.0
    reply = place.service.change("feed", "deploy", who="ann", reason="confirmed")
    assert reply.confirmation is not None
    assert reply.confirmation.state == "confirmed"
    assert reply.confirmation.goal.state == "better"
    assert [(rail.name, rail.state) for rail in reply.confirmation.guardrails] == [("y", "holds")]
    assert write_record(place.service.report("feed"))["confirmation"]["verdict"] == write_record(reply.confirmation)


def test_a_blend_without_confirmation_is_marked(playground: Make) -> None:
    place = playground()
    place.round()
    reply = place.service.change("feed", "deploy", who="ann", reason="urgent", without_confirmation=True)
    assert reply.confirmation is not None
    assert reply.confirmation.state == "missing"
    assert [rail.state for rail in reply.confirmation.guardrails] == ["unmeasured"]
