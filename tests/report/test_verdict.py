"""Verdict of a study in words and as a drawing: limits decide, names are escaped, and predictions are named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pasto.report.lift_records import MeasuredInterval
from pasto.report.records import Report
from pasto.report.summary import describe_row, describe_rows, describe_served, describe_wait
from pasto.report.text import render_text
from pasto.report.verdict_html import draw_interval, render_verdict
from pasto.report.verdict_records import MetricVerdict, StudyVerdict

HELD = MeasuredInterval(-0.005, -0.012, 0.003)


def make_rail(name: str = "likes", **changes: object) -> MetricVerdict:
    rail = MetricVerdict(
        *(name, name, "guardrail", "held", "held", True, HELD, None, "at_least", -0.02, "at least -2%"),
        kind="hard",
        stop=-0.05,
    )
    return replace(rail, **changes)  # type: ignore[arg-type]


def make_verdict(*rows: MetricVerdict) -> StudyVerdict:
    return StudyVerdict("collect", "Keep collecting", "Because.", "Wait.", "", "confirming", 0.95, True, rows)


def test_a_guardrail_that_is_not_shown_is_placed_against_its_stop_level() -> None:
    unclear = make_rail(state="not_shown", word="not shown", blend=MeasuredInterval(-0.02, -0.04, 0.0))
    assert describe_row(unclear) == (
        "likes is not shown to hold: -2.00% (-4.00% to +0.00%), limit at least -2%, clear of its stop level -5.00%"
    )
    assert describe_rows([unclear]) == "likes is not shown to hold, but clear of the stop level."
    beyond = replace(unclear, blend=MeasuredInterval(-0.02, -0.06, 0.0))
    assert "perhaps beyond its stop level" in describe_row(beyond)
    assert describe_rows([beyond]) == "likes is not shown to hold."
    assert "stop level" not in describe_row(replace(unclear, stop=None))


def test_a_limit_in_its_own_units_is_written_as_a_number() -> None:
    rail = make_rail(relative=False, blend=MeasuredInterval(9.9, 9.85, 9.95), limit=9.8, limit_text="at least 9.8")
    assert describe_row(rail) == "likes is held: 9.9 (9.85 to 9.95), limit at least 9.8"


@pytest.mark.parametrize(("side", "start", "share"), [("at_least", True, 0.02), ("at_most", False, 0.02)])
def test_the_wrong_side_of_the_limit_is_shaded(side: str, start: bool, share: float) -> None:
    drawing = draw_interval(make_rail(side=side, limit=share if side == "at_most" else -share))
    shaded = drawing.split('class="forbidden" x="')[1].split('"')[0]
    assert (float(shaded) == 0.0) == start


def test_a_far_single_candidate_does_not_flatten_the_blend() -> None:
    rail = make_rail(best_single=MeasuredInterval(5.0, 4.0, 6.0))
    blend = draw_interval(rail).split('<line class="blend" x1="')[1]
    low, high = float(blend.split('"')[0]), float(blend.split('x2="')[1].split('"')[0])
    assert high - low > 40.0


def test_a_prediction_is_named_and_gives_way_to_a_measurement() -> None:
    unmeasured = make_rail(state="not_measured", word="not measured", blend=None, predicted=0.05)
    page = render_verdict(make_verdict(unmeasured))
    assert "predicted +5.00%" in page
    assert "<circle" not in page
    assert "predicted" not in render_verdict(make_verdict(make_rail(predicted=0.05)))
    text = render_text(Report("feed", "confirming", 3, 2, verdict=make_verdict(unmeasured)))
    assert "predicted +5.00%" in text


def test_names_and_sentences_are_escaped() -> None:
    page = render_verdict(replace(make_verdict(make_rail("<b>")), sentence="1 < 2"))
    assert "<b><" not in page
    assert page.count("&lt;b&gt;") == 3
    assert "1 &lt; 2" in page


def test_waits_and_what_is_served() -> None:
    assert describe_wait(100.0) == "about 1 more hour"
    assert describe_wait(86400.0) == "about 24 more hours"
    assert describe_served("deployed", {"blend": 0.9, "control": 0.1}, None).endswith(
        "the blend to 90%, the baseline to 10%."
    )
    assert describe_served("archived", {}, None) == ""
