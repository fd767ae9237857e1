"""Guardrail monitor in phases whose units stay in their arm: rate of false alarms, and delay of true ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pasto.inference.round_data import CellMoments, MeasuredRound
from pasto.service.rounds.guardrail_check import has_breach, judge_phase
from pasto.service.study_file import StudySpec, parse_spec

STUDIES, LOOKS = 120, 15


@pytest.fixture
def spec() -> StudySpec:
    column = {"event": "seen", "aggregate": "sum"}
    return parse_spec(
        {
            "name": "feed",
            "baseline": {"w": 1},
            "parameters": {"w": [0, 1]},
            "metrics": {"x": {**column, "value": "x"}, "y": {**column, "value": "y"}},
            "goal": {"maximize": "x"},
            "guardrails": [{"metric": "y", "at_least": "-2%", "stop_at": "-5%"}],
        }
    )


def cell(arm: str, values: Any) -> CellMoments:
    apart = values - values.mean(axis=0)
    cross = tuple(map(tuple, (apart.T @ apart).tolist()))
    return CellMoments(arm, 0, len(values), tuple(values.mean(axis=0).tolist()), cross)


def phases(seed: int, level: float, *, same: bool) -> Any:
    """Return cumulative data of a phase: the same users again, or new ones each time; `level` is the blend's."""
    rng = np.random.default_rng(seed)
    sizes = {"blend": (200, level), "control": (100, 1.0)}
    state: dict[str, Any] = {}
    for look in range(1, LOOKS + 1):
        for arm, (size, factor) in sizes.items():
            came = factor * (rng.gamma(2.0, 2.0, (size, 1)) + rng.normal(0.0, 2.0, (size, 2)))
            if arm not in state:
                state[arm] = came
            elif same:
                users = state[arm] / (look - 1)
                state[arm] = state[arm] + users + factor * rng.normal(0.0, 2.0, users.shape)
            else:
                state[arm] = np.concatenate([state[arm], came])
        yield look, MeasuredRound(1, {}, [cell(arm, values) for arm, values in state.items()])


def naive(measured: MeasuredRound) -> bool:
    """Run an ordinary one-sided test of 95 % at every interim analysis."""
    blend, control = measured.cells
    gap = 0.95 * control.mean[1] - blend.mean[1]
    variance = blend.cross[1][1] / blend.units**2 + 0.95**2 * control.cross[1][1] / control.units**2
    return bool(gap > 1.645 * np.sqrt(variance))


@pytest.mark.parametrize("same", [True, False])
def test_a_blend_that_stands_on_its_floor_is_rarely_pulled(spec: StudySpec, same: bool) -> None:
    alarms = wolves = 0
    for study in range(STUDIES):
        outcomes = list(phases(study, 0.95, same=same))
        alarms += any(has_breach(judge_phase(spec, one, "deployed", float(look))) for look, one in outcomes)
        wolves += any(naive(one) for _, one in outcomes)
    band = 3.0 * np.sqrt(0.05 * 0.95 / STUDIES)
    assert alarms / STUDIES <= 0.05 + band
    if not same:
        assert wolves / STUDIES > 0.05 + band


def test_a_blend_that_falls_is_pulled_soon(spec: StudySpec) -> None:
    taken = []
    for study in range(20):
        found = [
            look
            for look, one in phases(study, 0.65, same=False)
            if has_breach(judge_phase(spec, one, "deployed", float(look)))
        ]
        taken.append(found[0] if found else LOOKS + 1)
    assert np.median(taken) <= 4


@pytest.fixture
def in_own_units() -> dict[str, Any]:
    half = {"event": "seen", "aggregate": "sum"}
    return {
        "name": "feed",
        "baseline": {"w": 1},
        "parameters": {"w": [0, 1]},
        "metrics": {"rate": {"ratio": [{**half, "value": "likes"}, {**half, "value": "views"}]}},
        "goal": {"maximize": "rate"},
        "guardrails": [{"metric": "rate", "at_least": 0.5, "stop_at": 0.45}],
        "rounds": {"every": "1h"},
    }


def rated(level: float, *arms: str) -> MeasuredRound:
    """Return two thousand units in each arm, whose rates are half the level; the blend's is also 2 % lower."""
    rng = np.random.default_rng(1)
    cells = []
    for arm in arms:
        views = rng.integers(5, 15, 2_000).astype(float)
        rate = 0.5 * level * (0.98 if arm == "blend" else 1.0)
        cells.append(cell(arm, np.stack([rng.binomial(views.astype(int), rate), views], axis=1)))
    return MeasuredRound(1, {}, cells)


def test_a_floor_in_own_units_is_judged_as_a_share_of_the_control(in_own_units: dict[str, Any]) -> None:
    spec = parse_spec(in_own_units)
    low = rated(0.85, "blend", "control")
    assert judge_phase(spec, low, "deployed", 6.0) == []
    (found,) = judge_phase(spec, low, "deployed", 6.0, {"rate": -0.1})
    assert (found.state, found.judged, found.allowed) == ("holds", "control", -0.1)
    assert has_breach(judge_phase(spec, low, "deployed", 6.0, {"rate": 0.1}))


def test_without_a_control_a_floor_in_own_units_is_judged_over_whole_days(in_own_units: dict[str, Any]) -> None:
    spec = parse_spec({**in_own_units, "traffic": {"control": 0}})
    low = rated(0.85, "blend")
    for elapsed, state in ((6.0, "holds"), (24.0, "breach"), (36.0, "holds"), (480.0, "breach")):
        (found,) = judge_phase(spec, low, "deployed", elapsed)
        assert (found.state, found.judged, found.allowed) == (state, "days", None)
    assert has_breach(judge_phase(spec, rated(0.4, "blend"), "deployed", 6.0))
