"""Verdict on a study in each of its states: measured intervals decide against the limits, predictions do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pasto.blend import Blend
from pasto.report.html import render_html
from pasto.report.lift_records import AdjustedLiftRecord, IntervalEstimate, LiftRecord
from pasto.report.records import BlendRecord
from pasto.report.text import render_text
from pasto.report.verdict_records import StudyVerdict
from pasto.service.reports import builder
from pasto.service.reports.verdict import judge_lifts
from pasto.service.study_file import StudySpec, parse_spec
from pasto.service.study_state import describe_blend

if TYPE_CHECKING:
    from tests.service.reports.conftest import Playground

    Make = Callable[..., Playground]


def spec_with_guardrail(**rail: Any) -> StudySpec:
    column = {"event": "seen", "aggregate": "sum", "cap": 50}
    return parse_spec(
        {
            "name": "feed",
            "baseline": {"w": 1},
            "parameters": {"w": [0, 1]},
            "metrics": {"x": {**column, "value": "x"}, "y": {**column, "value": "y"}},
            "goal": {"maximize": "x"},
            "guardrails": [{"metric": "y", **rail}],
        }
    )


def lift(low: float | None, high: float | None, *, target: str = "the blend", metric: str = "y") -> LiftRecord:
    """Return a lift over a control at 10."""
    relative = absolute = IntervalEstimate(None, None, None)
    if low is not None and high is not None:
        relative = IntervalEstimate((low + high) / 2, low, high)
        absolute = IntervalEstimate(5.0 * (low + high), 10.0 * low, 10.0 * high)
    return LiftRecord(target, metric, None, 10.0, absolute, relative, "unclear", None, None, 3, 0.95, True)


@pytest.mark.parametrize(
    ("rail", "low", "high", "expected"),
    [
        ({"at_least": "-2%"}, -0.06, -0.03, "broken"),
        ({"at_least": "-2%"}, -0.06, -0.01, "unclear"),
        ({"at_least": "-2%"}, -0.01, 0.03, "holds"),
        ({"at_least": "-2%"}, 0.01, 0.03, "holds"),
        ({"at_most": "+2%"}, 0.03, 0.06, "broken"),
        ({"at_most": "+2%"}, 0.01, 0.06, "unclear"),
        ({"at_most": "+2%"}, 0.01, 0.015, "holds"),
        ({"at_least": 9.8}, -0.06, -0.03, "broken"),
        ({"at_least": 9.8}, -0.06, -0.01, "unclear"),
        ({"at_most": 10.2}, 0.03, 0.06, "broken"),
        ({"at_least": "-2%"}, None, None, "unmeasured"),
    ],
)
def test_the_whole_interval_is_judged_against_the_limit_and_not_against_the_control(
    rail: dict[str, Any], low: float | None, high: float | None, expected: str
) -> None:
    _, (judged,) = judge_lifts(spec_with_guardrail(**rail), [lift(low, high)], is_phase=False)
    assert judged.state == expected


def test_only_the_blend_is_judged_by_its_adjusted_lift() -> None:
    spec, raw, precise = spec_with_guardrail(at_least="-2%"), lift(-0.06, 0.01), lift(-0.05, -0.03)
    adjusted = AdjustedLiftRecord(precise.absolute, precise.relative, "down", 0.4)
    others = [lift(-0.06, -0.03, target="the learner's traffic"), lift(-0.06, -0.03, metric="x")]
    assert judge_lifts(spec, [raw], is_phase=False)[1][0].state == "unclear"
    assert judge_lifts(spec, [replace(raw, adjusted=adjusted)], is_phase=False)[1][0].state == "broken"
    assert judge_lifts(spec, others, is_phase=False)[1][0].state == "unmeasured"


def test_a_sum_that_grows_with_the_phase_is_not_compared_with_the_level_of_a_round() -> None:
    spec = spec_with_guardrail(at_least=9.8)
    assert judge_lifts(spec, [lift(-0.06, -0.03)], is_phase=True)[1][0].state == "unmeasured"


def verdict_of(place: Playground) -> StudyVerdict:
    verdict = place.service.report("feed").verdict
    assert verdict is not None
    return verdict


def look(place: Playground, users: int, hours: float = 2.0, *, harm: float = 0.0) -> None:
    """Measure new users in the phase that the study is in."""
    place.crowd(users, harm=harm)
    place.now += 3600.0 * hours
    assert place.service.close_if_due("feed")


def test_every_state_from_start_to_archive_has_its_verdict(playground: Make) -> None:
    place = playground(guardrails=[{"metric": "y", "at_least": "-2%", "stop_at": "-6%"}])
    assert (verdict_of(place).headline, verdict_of(place).phase) == ("Keep collecting", "learning")
    for _ in range(6):
        place.round()
    learning = verdict_of(place)
    assert learning.decision == "collect"
    assert learning.headline.startswith("Keep collecting, about ")
    assert "keep learning" in learning.next_step
    assert [(row.name, row.role, row.word) for row in learning.metrics] == [
        ("x", "goal", "up"),
        ("y", "guardrail", "not shown"),
        ("rate", "other", "not shown"),
    ]
    place.service.change("feed", "confirm", who="ann")
    fresh = verdict_of(place)
    assert (fresh.decision, fresh.phase, fresh.metrics[0].word) == ("collect", "confirming", "not measured")
    assert fresh.metrics[0].blend is None
    assert fresh.metrics[0].predicted == pytest.approx(0.115, abs=0.02)
    look(place, 200)
    early = verdict_of(place)
    assert (early.decision, early.metrics[0].word) == ("collect", "up")
    assert early.wait_seconds is not None
    look(place, 3000)
    final = verdict_of(place)
    assert (final.decision, final.headline) == ("ship", "Ship")
    assert "keep learning" not in " ".join((final.sentence, final.next_step))
    place.service.change("feed", "deploy", who="ann")
    shipped = verdict_of(place)
    assert (shipped.decision, shipped.headline) == ("deployed", "Shipped")
    assert shipped.served == "Served now: the baseline to 20%, the blend to 80%."
    place.service.change("feed", "pause", who="ann", reason="holiday")
    assert verdict_of(place).headline == "Paused by a person"
    place.service.change("feed", "archive", who="ann")
    ended = place.service.report("feed")
    assert ended.verdict is not None
    assert (ended.verdict.decision, ended.verdict.next_step, ended.verdict.served) == ("ended", "", "")
    for output in (" ".join(render_text(ended).split()), render_html(ended)):
        assert "keep learning" not in output
        assert "The study ended and serves nothing. Its confirmation showed: x is up" in output


def test_a_guardrail_measured_beyond_its_limit_is_no_plain_ship(playground: Make) -> None:
    place = playground(guardrails=[{"metric": "y", "at_least": "-2%", "stop_at": "-30%"}])
    for _ in range(6):
        place.round()
    place.service.change("feed", "confirm", who="ann")
    headlines = set()
    for harm in (0.0, 1.0):
        look(place, 600, harm=harm)
        verdict = verdict_of(place)
        y = verdict.metrics[1]
        assert y.blend is not None
        if verdict.decision != "collect":
            assert verdict.headline == ("May ship" if y.blend.value < -0.02 else "Ship")
            headlines.add(verdict.headline)
    assert headlines == {"May ship", "Ship"}


def test_a_stop_by_the_monitor_names_the_guardrail_once(playground: Make) -> None:
    place = playground()
    for _ in range(8):
        if place.service.show("feed").state != "paused":
            place.round(harm=6.0)
    report = place.service.report("feed")
    assert report.verdict is not None
    assert (report.verdict.decision, report.verdict.served) == ("stopped", "Served now: w=1 to everyone.")
    assert report.verdict.sentence.startswith("y fell below its stop level -12% of the control in the arm learner")
    assert render_text(report).count("fell below its stop level") == 1


def test_a_deployment_without_a_confirmation_is_named(playground: Make) -> None:
    place = playground()
    for _ in range(4):
        place.round()
    place.service.change("feed", "deploy", who="ann", reason="launch day", without_confirmation=True)
    verdict = verdict_of(place)
    assert verdict.headline == "Shipped without being confirmed"
    assert "It was deployed without a confirmation" in verdict.sentence


def test_a_measured_interval_beats_a_prediction(playground: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    place = playground(guardrails=[{"metric": "y", "at_least": "+40%", "stop_at": "-50%"}])
    for _ in range(4):
        place.round()

    def overconfident(blend: Blend, round_seconds: float | None) -> BlendRecord:
        record = describe_blend(blend, round_seconds)
        assert record.certificate is not None
        certificate = replace(record.certificate, certified=True, holds={"y": 0.971})
        return replace(record, certificate=certificate, feasible=True)

    monkeypatch.setattr(builder, "describe_blend", overconfident)
    place.service = place.node()
    report = place.service.report("feed")
    assert report.verdict is not None
    assert report.verdict.decision == "do_not_ship"
    sentence = "limit at least +40%, although the learner predicted with 97.1% that it holds."
    assert report.verdict.sentence.endswith(sentence)
    for output in (" ".join(render_text(report).split()), render_html(report)):
        assert "y is broken" in output
        assert sentence in output


def test_the_estimated_wait_is_about_the_time_that_it_takes(playground: Make) -> None:
    # The first estimate of a confirmation is within a factor of three of the time at which it is decided.
    ratios = []
    for users in (60, 80):
        place = playground(guardrails=[{"metric": "y", "at_least": "-2%", "stop_at": "-6%"}])
        for _ in range(6):
            place.round()
        place.service.change("feed", "confirm", who="ann")
        start, estimate = place.now, None
        for _ in range(60):
            look(place, users)
            verdict = verdict_of(place)
            if verdict.decision in ("ship", "may_ship"):
                break
            if estimate is None and verdict.wait_seconds is not None and place.now > start + 4 * 3600.0:
                estimate = place.now - start + verdict.wait_seconds
        assert verdict.decision in ("ship", "may_ship")
        assert estimate is not None
        ratios.append(estimate / (place.now - start))
    assert np.exp(np.abs(np.log(ratios)).mean()) < 3.0
