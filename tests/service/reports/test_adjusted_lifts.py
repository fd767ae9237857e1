"""Adjusted lifts: covariates from before the exposure, from events to the report's text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pasto.report.html import render_html
from pasto.report.records import write_record
from pasto.report.text import render_text

if TYPE_CHECKING:
    from tests.service.reports.conftest import Playground

    Make = Callable[..., Playground]
SEEN = {"event": "seen", "aggregate": "sum"}
METRICS = {
    "x": {**SEEN, "value": "x", "range": [0, 60], "covariate": "3h"},
    "y": {**SEEN, "value": "y", "range": [0, 60]},
    "rate": {
        "ratio": [{**SEEN, "value": "likes", "cap": 90}, {**SEEN, "value": "views", "cap": 40}],
        "covariate": "3h",
    },
}
LIFT = {"w=0": 1.0, "w=1": 0.0, "w=2": 0.3, "w=3": -0.5}
"""Of x by candidate; w=1 is the baseline."""


def run_returning_users(place: Playground, users: int = 400) -> None:
    """Run rounds with the same users, whose tastes differ far more than candidates do."""
    policy = place.service.policy_cache.current("feed")
    rng = np.random.default_rng([policy.version, users, int(place.now)])
    taste = np.random.default_rng(5).normal(10.0, 3.0, users)
    events = []
    for number in range(users):
        unit = f"user {number}"
        cell = policy.draw(unit)
        x = float(taste[number] + LIFT[cell.name] + rng.standard_normal())
        views = 4.0 + number % 5
        fields = {"x": x, "y": float(10.0 + rng.standard_normal()), "likes": max(x, 0.0) * views / 8.0, "views": views}
        drawn = {"unit": unit, "version": policy.version, "candidate": cell.name}
        stamp = f"{policy.version}/{place.now}/{number}"
        events.append({"type": "exposure", "id": f"e/{stamp}", **drawn})
        events.append({"type": "metric", "id": f"m/{stamp}", "name": "seen", "fields": fields, **drawn})
    answer = place.service.ingest("feed", place.service.decode(json.dumps(events).encode())).result(timeout=60)
    assert answer.rejected == ()


def rounds(place: Playground, count: int) -> None:
    for _ in range(count):
        run_returning_users(place)
        place.now += 3600.0
        place.service.close_round("feed", who="ann")


def lift_of(report: dict[str, Any], target: str, metric: str) -> dict[str, Any]:
    (found,) = [one for one in report["lifts"] if (one["target"], one["metric"]) == (target, metric)]
    return dict(found)


def widths(lift: dict[str, Any]) -> tuple[float, float]:
    raw, adjusted = (one["relative"]["high"] - one["relative"]["low"] for one in (lift, lift["adjusted"]))
    return raw, adjusted


@pytest.fixture
def place(playground: Make) -> Playground:
    return playground(metrics=METRICS, guardrails=[], goal={"maximize": "x"})


def test_a_report_has_adjusted_and_raw_lifts(place: Playground) -> None:
    rounds(place, 8)
    report = place.service.report("feed")
    document = write_record(report)
    learning = document["learning"]
    blend = document["blend"]["probabilities"]
    for target, true in (
        ("the blend", sum(share * LIFT[name] for name, share in blend.items())),
        ("the best single candidate", LIFT[document["blend"]["best_single"]]),
    ):
        lift = lift_of(learning, target, "x")
        absolute = lift["adjusted"]["absolute"]
        assert absolute["low"] < true < absolute["high"]
        raw, adjusted = widths(lift)
        assert adjusted < 0.7 * raw
        assert lift["adjusted"]["variance_reduced_by"] > 0.5
    served = lift_of(learning, "the learner's traffic", "rate")
    assert widths(served)[1] < 0.8 * widths(served)[0]
    assert lift_of(learning, "the blend", "y")["adjusted"] is None
    goal = document["verdict"]["metrics"][0]
    assert goal["blend"]["low"] == lift_of(learning, "the blend", "x")["adjusted"]["relative"]["low"]
    for output in (render_text(report), render_html(report)):
        assert "variance reduced by" in output
        assert "variance is reduced by" in " ".join(output.split())
    json.dumps(write_record(report), allow_nan=False)
    assert place.service.replay("feed").identical


def test_a_range_is_reported_with_the_lift(place: Playground) -> None:
    rounds(place, 4)
    report = place.service.report("feed")
    document = write_record(report)
    served = lift_of(document["learning"], "the learner's traffic", "y")
    assert served["bounded"]["relative"]["low"] < 0.0 < served["bounded"]["relative"]["high"]
    assert lift_of(document["learning"], "the blend", "y")["bounded"] is None
    assert lift_of(document["learning"], "the learner's traffic", "rate")["bounded"] is None
    for output in (render_text(report), render_html(report)):
        assert "by its range" in output


def test_a_confirmation_is_adjusted_too(place: Playground) -> None:
    rounds(place, 6)
    place.service.change("feed", "confirm", who="ann")
    rounds(place, 2)
    report = place.service.report("feed")
    document = write_record(report)
    lift = lift_of(document["confirmation"], "the blend", "x")
    raw, adjusted = widths(lift)
    assert adjusted < 0.7 * raw
    assert lift["adjusted"]["variance_reduced_by"] > 0.5
    for output in (render_text(report), render_html(report)):
        assert "x, adjusted" in output
    assert document["verdict"]["metrics"][0]["blend"]["low"] == lift["adjusted"]["relative"]["low"]
    assert place.service.replay("feed").identical


def test_a_study_without_covariates_has_the_report_of_before(playground: Make) -> None:
    place = playground()
    for _ in range(3):
        place.round()
    report = place.service.report("feed")
    document = write_record(report)
    assert all(lift["adjusted"] is None for lift in document["learning"]["lifts"])
    assert "adjusted" not in render_text(report)
