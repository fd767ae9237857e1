from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pasto
from pasto.report.records import write_record
from pasto.service.reports.tradeoff import PosteriorMeans, chart_tradeoff, report_tradeoff
from pasto.service.service import Service


def posterior_means(**given: Any) -> PosteriorMeans:
    objective = pasto.maximize("x").keep(given.pop("metric", "y"), at_least=given.pop("at_least", 0.0))
    means = np.array(given.pop("means", [[2.0, 0.0, 1.0], [-2.0, 2.0, -3.0]]))
    return PosteriorMeans(("a", "b", "c"), means, given.pop("baseline", None), objective, given.pop("current", {}))


def test_the_blend_and_the_curve_are_the_solver_s() -> None:
    chart = write_record(chart_tradeoff(posterior_means(), {}))
    assert chart["blend"]["probabilities"] == {"a": 0.5, "b": 0.5}
    assert (chart["blend"]["x"], chart["blend"]["y"]) == ([0.0], 1.0)
    assert [point["name"] for point in chart["singles"]] == ["a", "b", "c"]
    assert [point["role"] for point in chart["singles"]] == ["", "best_single", ""]
    for point in chart["curve"]:  # the best of a and b at each level of y, until a alone is best
        assert point["y"] == pytest.approx(min(2.0, 1.0 - point["x"] / 2.0), abs=1e-6)


def test_another_limit_is_another_blend() -> None:
    chart = write_record(chart_tradeoff(posterior_means(), {0: 1.0}))
    assert chart["blend"]["probabilities"]["b"] == pytest.approx(0.75)
    assert (chart["rails"][0]["at"], chart["rails"][0]["stated"]) == (1.0, 0.0)
    assert not write_record(chart_tradeoff(posterior_means(), {0: 5.0}))["blend"]["feasible"]


def test_a_single_candidate_names_every_limit_that_it_breaks() -> None:
    objective = pasto.maximize("x").keep("y", at_least=0.0).keep("z", at_most=1.0)
    means = np.array([[2.0, 0.0, 1.0], [-2.0, 2.0, 0.0], [0.5, 3.0, 1.0]])
    posterior = PosteriorMeans(("a", "b", "c"), means, None, objective, {})
    chart = chart_tradeoff(posterior, {})
    broken = {single.name: [(each.name, each.level, each.limit) for each in single.broken] for single in chart.singles}
    assert broken == {"a": [("y", -2.0, 0.0)], "b": [("z", 3.0, 1.0)], "c": []}
    assert [len(single.broken) for single in chart_tradeoff(posterior, {0: -3.0, 1: 4.0}).singles] == [0, 0, 0]
    report = report_tradeoff(posterior, None)
    assert report is not None
    assert (report.limit, report.side) == (0.0, "at_least")
    assert [[each.name for each in single.broken] for single in report.singles] == [["y"], ["z"], []]


def test_percentages_are_over_the_baseline_and_ratios_of_blends_are_ratios() -> None:
    rate = pasto.ratio("likes", "views", "rate")
    means = [[10.0, 12.0, 8.0], [2.0, 1.0, 9.0], [4.0, 4.0, 10.0]]
    current = {"b": 0.5, "c": 0.5}
    chart = write_record(
        chart_tradeoff(posterior_means(metric=rate, at_least="-10%", means=means, baseline=0, current=current), {})
    )
    assert chart["goal"]["unit"] == "%"
    assert [point["y"] for point in chart["singles"]] == pytest.approx([0.0, 20.0, -20.0])
    assert [point["x"] for point in chart["singles"]] == pytest.approx([0.0, -50.0, 80.0])
    assert chart["current"]["x"] == pytest.approx([100.0 * ((10.0 / 14.0) / 0.5 - 1.0)])
    assert chart["current"]["y"] == pytest.approx(0.0)


def test_over_the_pages(browser: Any, learned: Service) -> None:
    chart = browser.get("/studies/feed/tradeoff").json()["tradeoff"]
    assert chart["candidates"] == 4
    assert chart["current"] is not None
    loose = browser.get("/studies/feed/tradeoff?at0=-80").json()["tradeoff"]
    assert loose["blend"]["y"] >= chart["blend"]["y"]
    for bad in ("at0=nan", "at0=1e999", "at64=1", "at0=x", "across=99", "other=1", "at0=1&at0=2"):
        assert browser.get(f"/studies/feed/tradeoff?{bad}").status_code == 400
    learned.create({**learned.show("feed").document, "name": "fresh"}, who="ann")
    learned.change("fresh", "start", who="ann")
    assert browser.get("/studies/fresh/tradeoff").json() == {"tradeoff": None}
