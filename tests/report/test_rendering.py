"""Reports as text and HTML: every part is rendered, and names never become markup."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest

from pasto.errors import PastoWarning
from pasto.formatting import format_interval
from pasto.report.charts import CHARTS, draw_chart
from pasto.report.guardrail_text import certificate_text
from pasto.report.html import render_html
from pasto.report.lift_records import (
    BoundedLiftRecord,
    ConfirmationReport,
    ConfirmationVerdict,
    GoalVerdict,
    IntervalEstimate,
    IntervalSeries,
    LearningReport,
    LiftDirection,
    LiftHistoryRecord,
    LiftRecord,
    PredictedLift,
    WinnerReport,
)
from pasto.report.records import (
    BlendRecord,
    CertificateRecord,
    GainRecord,
    MonitorReport,
    PauseRecord,
    Report,
    SinglePoint,
    TradeoffPoint,
    TradeoffReport,
    read_record,
    write_record,
)
from pasto.report.sections import build_sections, lift_table, range_sentences
from pasto.report.text import render_text

EVIL = '<script>alert("x")</script>'


def make_lift(target: str, metric: str, low: float | None, value: float, high: float | None) -> LiftRecord:
    interval = IntervalEstimate(value, low, high)
    is_clear = low is not None and high is not None and (low > 0 or high < 0)
    direction: LiftDirection = "unclear" if not is_clear else "up" if value > 0 else "down"
    return LiftRecord(target, metric, 1.0, 1.0, interval, interval, direction, None, None, 9, 0.95, True)


def make_blend(certificate: CertificateRecord | None = None) -> BlendRecord:
    gain = GainRecord("b", 0.1, 0.1)
    return BlendRecord({EVIL: 0.5, "b": 0.5}, 1.0, {}, {}, {}, True, {}, None, None, gain, certificate)


@pytest.fixture
def report() -> Report:
    series = IntervalSeries((None, 0.01, 0.02), (None, -0.01, 0.005), (None, 0.03, 0.04))
    learning = LearningReport(
        confidence=0.95,
        rounds=(1, 2, 3),
        lifts=(make_lift("the blend", EVIL, 0.005, 0.02, 0.04), make_lift("the blend", "y", None, 0.1, None)),
        history=(LiftHistoryRecord("the blend", EVIL, (1, 2, 3), series, series),),
        winner=WinnerReport("x", EVIL, (), None),
    )
    confirmation = ConfirmationReport(
        state="confirming",
        version=2,
        looks=1,
        at=0.0,
        units={"blend": 500, "control": 400},
        horizon=None,
        sequential=False,
        confidence=0.95,
        note="",
        lifts=(
            make_lift("the blend", "x", 0.005, 0.02, 0.04),
            make_lift("the best single candidate", "x", -0.1, 0, 0.1),
        ),
        predicted=(PredictedLift("the blend", "x", 0.05, IntervalEstimate(0.02, 0.005, 0.04), False),),
        sample_ratio=None,
        verdict=ConfirmationVerdict("inconclusive", True, GoalVerdict("x", True, None, "unmeasured"), ()),
    )
    blends = (TradeoffPoint(1.0, 2.0), TradeoffPoint(2.0, 1.0))
    return Report(
        name=EVIL,
        state="confirming",
        round=3,
        version=2,
        guardrail_monitor=MonitorReport(tripped=PauseRecord(3, 0.0, f"breaker: {EVIL}")),
        blend=make_blend(),
        learning=learning,
        confirmation=confirmation,
        trade_off=TradeoffReport(EVIL, "y", blends, (SinglePoint(EVIL, 1.0, 2.0),), TradeoffPoint(1.5, 1.5)),
    )


def test_names_never_become_markup(report: Report) -> None:
    page = render_html(report)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 5


def test_every_section_is_in_both_forms(report: Report) -> None:
    titles = [section.title for section in build_sections(report)]
    assert titles[1:] == [
        *("Guardrail monitor", "Confirmation", "Predicted and realised", "Lift while learning"),
        *("Single candidates", "The blend", "Trade-off"),
    ]
    text = render_text(report)
    assert all(title in text for title in titles)
    assert "+5.00%" in text
    assert "outside" in text
    assert "at the horizon that was set" in text


def test_no_section_is_empty_and_the_trade_off_has_numbers(report: Report) -> None:
    assert all(section.sentences or section.rows for section in build_sections(report)[1:])
    trade_off = next(section for section in build_sections(report) if section.title == "Trade-off")
    assert trade_off.rows[0] == ("the answer", "1.5", "1.5")
    assert [row[1:] for row in trade_off.rows if row[0] == "a blend"] == [("1", "2"), ("2", "1")]
    assert "the answer" in render_text(report)
    assert report.trade_off is not None
    without_blends = replace(report, trade_off=replace(report.trade_off, blends=()))
    assert "Trade-off" not in render_text(without_blends)


def test_without_matplotlib_a_page_has_no_figures_and_a_warning(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.warns(PastoWarning, match=r"no figures: figures need matplotlib; .*pip install '\.\[plots\]'") as given:
        page = render_html(report)
    assert len(given) == 1
    assert "matplotlib" not in page
    assert "install" not in page
    assert "<svg" not in page
    assert "Trade-off" in page


def make_certificate(**changes: Any) -> CertificateRecord:
    certificate = CertificateRecord(0.95, True, {}, hard=("a", "b", "c"), joint_lower_bound=0.8999)
    return replace(certificate, **changes)


def test_a_certificate_is_for_each_guardrail_and_bounds_all_together(report: Report) -> None:
    report = replace(report, blend=make_blend(make_certificate()))
    for output in (" ".join(render_text(report).split()), render_html(report)):
        assert "Certified: each hard guardrail holds with 95% confidence, each by itself." in output
        assert "All 3 together hold with at least 89.9%." in output
        assert "every hard guardrail holds" not in output
    uncertain = make_certificate(certified=False, hard=("a", "b"), joint_lower_bound=0.0)
    text = " ".join(render_text(replace(report, blend=make_blend(uncertain))).split())
    assert "Not certified yet: not each hard guardrail holds with 95% confidence. Both together" in text


@pytest.mark.parametrize(
    ("changes", "feasible", "sentence"),
    [
        ({"hard": ("a",)}, True, "Certified: the hard guardrail holds with 95% confidence."),
        ({"hard": ("a",), "certified": False}, True, "the hard guardrail does not yet hold with 95% confidence."),
        ({"certified": False}, False, "Not certified yet: no blend is known to meet every hard guardrail."),
        ({"hard": ()}, True, ""),
        ({"joint_lower_bound": 0.99999}, True, "All 3 together hold with at least 99.9%."),
    ],
)
def test_text_of_a_certificate(changes: dict[str, Any], feasible: bool, sentence: str) -> None:
    found = certificate_text(make_certificate(**changes), feasible)
    assert found.endswith(sentence) if sentence else not found


def test_drawings_do_not_share_ids_and_carry_no_date(report: Report) -> None:
    drawn = {name: draw_chart(name, report) or "" for name in CHARTS}
    assert all(chart.startswith("<svg") for chart in drawn.values())
    ids = [part.split('"')[0] for chart in drawn.values() for part in chart.split(' id="')[1:]]
    assert len(ids) == len(set(ids))
    assert drawn == {name: draw_chart(name, report) for name in CHARTS}


def test_an_unknown_end_is_printed_as_unknown() -> None:
    assert format_interval(0.1, None, None, percent=True) == "+10.00% (unknown)"
    assert format_interval(None, None, None) == "–"


def test_an_interval_by_range_without_ends_takes_no_column() -> None:
    interval = IntervalEstimate(0.1, 0.05, 0.15)
    lift = make_lift("the blend", "x", 0.05, 0.1, 0.15)
    unbounded = replace(lift, bounded=BoundedLiftRecord(interval, replace(interval, low=None)))
    header, rows = lift_table([unbounded])
    assert "by its range" not in header
    assert range_sentences([unbounded]) == ()
    bounded = replace(lift, bounded=BoundedLiftRecord(interval, interval))
    header, rows = lift_table([unbounded, bounded])
    place = header.index("by its range")
    assert [row[place] for row in rows] == ["", "+10.00% (+5.00% to +15.00%)"]
    assert range_sentences([unbounded, bounded])


def test_a_report_is_read_back_from_its_json(report: Report) -> None:
    document = json.loads(json.dumps(write_record(report)))
    assert read_record(document, Report) == report
    assert read_record({**document, "field_of_a_later_version": 1}, Report) == report
