"""Summary paragraph of a report, with the claims that are supported."""

from __future__ import annotations

from pasto.inference.guardrail_monitor import GuardrailVerdict, State
from pasto.inference.lift import Lift, LiftEstimate
from pasto.inference.sample_ratio import SampleRatioCheck
from pasto.report.summary import summary_paragraph

INFINITE = float("inf")


def lift(
    metric: str,
    low: float,
    value: float,
    high: float,
    *,
    target: str = "learner",
    rounds: int = 9,
    sequential: bool = True,
) -> Lift:
    estimate = LiftEstimate(value, low, high)
    return Lift(target, metric, 1.0, 1.0, estimate, estimate, rounds, 0.9, sequential)


def verdict(state: State, since: int | None = None) -> GuardrailVerdict:
    return GuardrailVerdict("likes", state, 0.01, since, since, bounded=True)


def test_rises_falls_and_what_is_unclear() -> None:
    summary = summary_paragraph(
        [lift("watch", 0.01, 0.02, 0.03), lift("likes", -0.03, -0.02, -0.01), lift("shares", -0.1, 0, 0.1)]
    )
    assert summary == (
        "Over 9 rounds learner raised watch by 2.00% (+1.00% to +3.00%); lowered likes by 2.00% (-3.00% to -1.00%); "
        "shares cannot be distinguished from the control's (-10.00% to +10.00%). "
        "Each interval holds with 90% confidence, however often it is looked at."
    )


def test_a_single_analysis_is_described_as_one() -> None:
    summary = summary_paragraph([lift("watch", -0.01, 0.02, 0.03, rounds=1, sequential=False)])
    assert summary.startswith("Over 1 round learner: watch cannot be distinguished")
    assert summary.endswith("at this one look, set beforehand.")


def test_guardrails_are_described() -> None:
    summary = summary_paragraph([lift("watch", 0.01, 0.02, 0.03)], verdicts=[verdict("breach", 4), verdict("holds")])
    assert "The guardrail likes has been broken since round 5: traffic must be pulled." in summary
    assert "may be about to break" in summary_paragraph([], verdicts=[verdict("warning")])


def test_lost_units_forbid_every_claim() -> None:
    lost = SampleRatioCheck(1e-9, True, 3, ("learner", 1), 0.9, {}, {})
    summary = summary_paragraph([lift("watch", 0.01, 0.02, 0.03)], balance=lost, names=["today", "clips"])
    assert summary.startswith("Nothing can be claimed: of the units that the arm learner sent to clips, 90% arrived")
    assert "candidate 1" in summary_paragraph([], balance=lost)
    unknown = SampleRatioCheck(1e-9, True, 3, None, None, {}, {})
    assert (
        summary_paragraph([], balance=unknown) == "Nothing can be claimed: units did not arrive where they were sent."
    )


def test_nothing_measured_is_nothing_claimed() -> None:
    assert summary_paragraph([]) == "Nothing was measured yet, and nothing can be claimed."
    summary = summary_paragraph([lift("watch", -INFINITE, 0.0, INFINITE, rounds=0)])
    assert summary.startswith("Nothing can be claimed of learner")
