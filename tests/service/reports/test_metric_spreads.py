"""Metric spreads: traffic, deviations, spreads of candidates and daily swings that a plan reads from a study."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pasto.inference.round_data import CellMoments, MeasuredRound
from pasto.report.lift_records import MetricSpread
from pasto.service.reports.lift_report import measure_spreads
from pasto.service.study_file.parser import parse_spec

CANDIDATES = 40
DOCUMENT: dict[str, Any] = {
    "name": "feed",
    "baseline": {"w": 0},
    "parameters": {"w": list(range(CANDIDATES))},
    "metrics": {
        "x": {"event": "seen", "value": "x", "aggregate": "sum", "range": [0, 90]},
        "rate": {"ratio": [{"event": "like", "cap": 9}, {"event": "view", "cap": 9}]},
    },
    "goal": {"maximize": "x"},
    "guardrails": [{"metric": "rate", "at_least": "-2%"}],
}


def spreads(every: str, *, swing: float = 0.3, rounds: int = 30) -> dict[str, MetricSpread]:
    """Return spreads of hourly rounds whose level swings; candidates differ by 5 % in x and by 10 % in the rate."""
    rng = np.random.default_rng(8)
    effects = 1.0 + np.array([[0.05], [0.1], [0.0]]) * rng.standard_normal((3, CANDIDATES))
    effects[:, 0] = 1.0
    unit_deviations = np.array([5.0, 1.0, 1.5])
    measured = []
    for hour in range(rounds):
        level = np.array([20.0, 0.5, 4.0]) * np.array([1.0 + swing * np.sin(2 * np.pi * hour / 24), 1.0, 1.0])
        cells = []
        for arm, candidate, units in [("control", 0, 4_000), *(("learner", k, 500) for k in range(CANDIDATES))]:
            mean = level * effects[:, candidate] + unit_deviations / np.sqrt(units) * rng.standard_normal(3)
            cross = np.diag(units * unit_deviations**2)
            cells.append(CellMoments(arm, candidate, units, tuple(mean.tolist()), tuple(map(tuple, cross.tolist()))))
        shares = {(cell.arm, cell.candidate): 0.02 for cell in cells}
        measured.append(MeasuredRound(hour, shares, cells, 3600.0))
    return dict(measure_spreads(parse_spec({**DOCUMENT, "rounds": {"every": every}}), measured))


def test_a_plan_gets_deviations_and_the_candidates_spread() -> None:
    found = spreads("1h")
    assert found["x"].deviation == pytest.approx(5.0, rel=0.01)
    assert found["x"].effect_spread == pytest.approx(0.05, rel=0.3)
    assert found["rate"].mean == pytest.approx(0.125, rel=0.02)
    assert found["rate"].deviation == pytest.approx(np.hypot(1.0, 0.125 * 1.5) / 4.0, rel=0.02)
    assert found["rate"].effect_spread == pytest.approx(0.1, rel=0.3)


def test_a_swing_needs_rounds_within_a_day_that_cover_it() -> None:
    hourly = spreads("1h")
    assert hourly["x"].swing == pytest.approx(0.3 / np.sqrt(2), rel=0.2)
    assert hourly["rate"].swing == pytest.approx(0.0, abs=0.03)
    assert spreads("1h", swing=0.0)["x"].swing == pytest.approx(0.0, abs=0.01)
    assert spreads("1d")["x"].swing is None
    assert spreads("1h", rounds=20)["x"].swing is None
