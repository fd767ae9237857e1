"""Rounds that a study needs for a decision."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from pasto.errors import OptionError
from pasto.inference.power import plan_power


def test_one_look_agrees_with_the_formula() -> None:
    found = plan_power(effect=0.1, deviation=1.0, units=500, control=0.2, rounds=40, studies=4_000)
    error = np.sqrt((1 / 400 + 1 / 100) / np.arange(1, 41))
    exact = norm.sf(1.96 - 0.1 / error) + norm.cdf(-1.96 - 0.1 / error)
    assert found.at_horizon == pytest.approx(exact, abs=0.03)
    assert found.error == pytest.approx(error)


def test_more_of_everything_takes_fewer_rounds() -> None:
    usual = plan_power(effect=0.05, deviation=1.0, units=1_000, control=0.1)
    for better in (
        plan_power(effect=0.1, deviation=1.0, units=1_000, control=0.1),
        plan_power(effect=0.05, deviation=1.0, units=1_000, control=0.5),
        plan_power(effect=0.05, deviation=1.0, units=3_000, control=0.1),
        plan_power(effect=0.05, deviation=1.0, units=1_000, control=0.1, correlation=0.8),
    ):
        for name in ("rounds_at_horizon", "rounds_at_any_look", "rounds_to_guardrail_stop"):
            assert getattr(better, name) < getattr(usual, name)
    claims = plan_power(effect=0.05, deviation=1.0, units=1_000, control=0.1, claims=20)
    assert claims.rounds_at_any_look is not None
    assert usual.rounds_at_any_look is not None
    assert claims.rounds_at_any_look > usual.rounds_at_any_look > (usual.rounds_at_horizon or 0)


def test_nothing_to_find_is_not_found() -> None:
    found = plan_power(effect=0.0, deviation=1.0, units=1_000, rounds=100, studies=1_000)
    assert found.rounds_at_any_look is None
    assert found.at_any_look[-1] <= 0.065
    assert found.guardrail_monitor[-1] <= 0.065
    assert found.at_horizon.mean() == pytest.approx(0.05, abs=0.015)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"control": 0.0}, "control must be positive"),
        ({"deviation": -1.0}, "deviation must be positive"),
        ({"control": 0.6, "treated": 0.6}, "at most 1"),
        ({"correlation": 1.0}, "between -1 and 1"),
    ],
)
def test_a_plan_names_what_it_cannot_use(options: dict[str, float], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        plan_power(**{"effect": 0.1, "deviation": 1.0, "units": 100.0, **options})  # type: ignore[arg-type]
