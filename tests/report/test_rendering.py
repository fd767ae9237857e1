"""Reports told to people: nothing is lost, nothing is let in that was not meant."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from pasto.errors import PastoWarning
from pasto.formatting import format_interval
from pasto.report.charts import DRAWINGS, draw_chart
from pasto.report.guardrail_text import certificate_text
from pasto.report.html import render_html
from pasto.report.sections import bounded_words, build_sections, lift_table
from pasto.report.text import render_text


def estimate(value: float | None, low: float | None, high: float | None) -> dict[str, float | None]:
    return {"value": value, "low": low, "high": high}


def lift(target: str, metric: str, low: float | None, value: float, high: float | None) -> dict[str, Any]:
    told = "unclear" if low is None or high is None or low <= 0 <= high else "up" if low > 0 else "down"
    ends = estimate(value, low, high)
    return {
        "target": target,
        "metric": metric,
        "level": 1.0,
        "control": 1.0,
        "absolute": ends,
        "relative": ends,
        "told": told,
        "rounds": 9,
        "confidence": 0.95,
        "sequential": True,
    }


@pytest.fixture
def report() -> dict[str, Any]:
    evil = '<script>alert("x")</script>'
    series = {"value": [None, 0.01, 0.02], "low": [None, -0.01, 0.005], "high": [None, 0.03, 0.04]}
    return {
        "name": evil,
        "state": "confirming",
        "round": 3,
        "version": 2,
        "claims": f"{evil} raised x.",
        "breaker": {"tripped": {"reason": f"breaker: {evil}"}, "verdicts": []},
        "blend": {"probabilities": {evil: 0.5, "b": 0.5}, "certificate": None, "outlook": None},
        "learning": {
            "lifts": [lift("the blend", evil, 0.005, 0.02, 0.04), lift("the blend", "y", None, 0.1, None)],
            "rounds": [1, 2, 3],
            "confidence": 0.95,
            "winner": {"winner": None, "beat_the_control": [], "best_looking": evil, "metric": "x"},
            "history": [
                {"target": "the blend", "metric": evil, "rounds": [1, 2, 3], "by_round": series, "cumulative": series}
            ],
        },
        "confirmation": {
            "lifts": [lift("the blend", "x", 0.005, 0.02, 0.04), lift("the best single candidate", "x", -0.1, 0, 0.1)],
            "sequential": False,
            "units": {"blend": 500, "control": 400},
            "claims": "The blend raised x.",
            "confidence": 0.95,
            "note": "",
            "predicted": [
                {
                    "target": "the blend",
                    "metric": "x",
                    "predicted": 0.05,
                    "realised": estimate(0.02, 0.005, 0.04),
                    "inside": False,
                }
            ],
        },
        "trade_off": {
            "x": evil,
            "y": "y",
            "blends": [{"x": 1.0, "y": 2.0}, {"x": 2.0, "y": 1.0}],
            "singles": [{"name": evil, "x": 1.0, "y": 2.0}],
            "answer": {"x": 1.5, "y": 1.5},
        },
    }


def test_names_never_become_markup(report: dict[str, Any]) -> None:
    shown = render_html(report)
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") >= 6


def test_every_section_is_in_both_forms(report: dict[str, Any]) -> None:
    titles = [section.title for section in build_sections(report)]
    assert titles[1:] == [
        *("Breaker", "Confirmation", "Predicted and realised", "Lift while learning"),
        *("Single candidates", "The blend", "Trade-off"),
    ]
    told = render_text(report)
    assert all(title in told for title in titles)
    assert "+5.00%" in told
    assert "outside" in told
    assert "at the horizon that was set" in told


def test_a_confirmations_claims_are_read_once(report: dict[str, Any]) -> None:
    claims = report["claims"] = report["confirmation"]["claims"]
    assert render_text(report).count(claims) == render_html(report).count(claims) == 1
    report["claims"] = "Something else."
    assert render_text(report).count(claims) == 1


def test_no_section_is_empty_and_the_trade_off_has_numbers(report: dict[str, Any]) -> None:
    assert all(section.words or section.rows for section in build_sections(report))
    trade_off = next(section for section in build_sections(report) if section.title == "Trade-off")
    assert trade_off.rows[0] == ("the answer", "1.5", "1.5")
    assert [row[1:] for row in trade_off.rows if row[0] == "a blend"] == [("1", "2"), ("2", "1")]
    assert "the answer" in render_text(report)
    report["trade_off"]["blends"] = []
    assert "Trade-off" not in render_text(report)


def test_without_matplotlib_a_page_has_no_figures_and_its_maker_is_told(
    report: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.warns(PastoWarning, match=r"no figures: figures need matplotlib; .*pip install '\.\[plots\]'") as given:
        shown = render_html(report)
    assert len(given) == 1
    assert "matplotlib" not in shown
    assert "install" not in shown
    assert "<svg" not in shown
    assert "Trade-off" in shown


def certified(**changes: Any) -> dict[str, Any]:
    names = ["a", "b", "c"]
    return {"confidence": 0.95, "certified": True, "hard": names, "joint_lower_bound": 0.8999, "holds": {}, **changes}


def test_a_certificate_is_for_each_guardrail_and_bounds_all_together(report: dict[str, Any]) -> None:
    report["blend"]["certificate"] = certified()
    for shown in (" ".join(render_text(report).split()), render_html(report)):
        assert "Certified: each hard guardrail holds with 95% confidence, each by itself." in shown
        assert "All 3 together hold with at least 89.9%." in shown
        assert "every hard guardrail holds" not in shown
    report["blend"]["certificate"] = certified(certified=False, hard=["a", "b"], joint_lower_bound=0.0)
    said = " ".join(render_text(report).split())
    assert "Not certified yet: not each hard guardrail holds with 95% confidence. Both together" in said


@pytest.mark.parametrize(
    ("changes", "feasible", "said"),
    [
        ({"hard": ["a"]}, True, "Certified: the hard guardrail holds with 95% confidence."),
        ({"hard": ["a"], "certified": False}, True, "the hard guardrail does not yet hold with 95% confidence."),
        ({"certified": False}, False, "Not certified yet: no blend is known to meet every hard guardrail."),
        ({"hard": []}, True, ""),
        ({"joint_lower_bound": 0.99999}, True, "All 3 together hold with at least 99.9%."),
    ],
)
def test_what_a_certificate_says(changes: dict[str, Any], feasible: bool, said: str) -> None:
    found = certificate_text(certified(**changes), feasible)
    assert found.endswith(said) if said else not found


def test_drawings_do_not_share_ids_and_carry_no_date(report: dict[str, Any]) -> None:
    drawn = {name: draw_chart(name, report) or "" for name in DRAWINGS}
    assert all(one.startswith("<svg") for one in drawn.values())
    ids = [part.split('"')[0] for one in drawn.values() for part in one.split(' id="')[1:]]
    assert len(ids) == len(set(ids))
    assert drawn == {name: draw_chart(name, report) for name in DRAWINGS}


def test_an_end_that_is_not_known_is_told_as_such() -> None:
    assert format_interval(0.1, None, None, percent=True) == "+10.00% (unknown)"
    assert format_interval(None, None, None) == "–"


def test_an_interval_by_range_without_ends_takes_no_column() -> None:
    found = {"value": 0.1, "low": 0.05, "high": 0.15}
    lift = {"target": "the blend", "metric": "x", "relative": found, "absolute": found, "level": 1.0, "control": 1.0}
    unknown = {**lift, "told": "up", "bounded": {"relative": {**found, "low": None}, "absolute": found}}
    header, rows = lift_table([unknown])
    assert "by its range" not in header
    assert bounded_words([unknown]) == ()
    known = {**unknown, "bounded": {"relative": found, "absolute": found}}
    header, rows = lift_table([unknown, known])
    place = header.index("by its range")
    assert [row[place] for row in rows] == ["", "+10.00% (+5.00% to +15.00%)"]
    assert bounded_words([unknown, known])
