"""Expected penalties, compared with integrals, differences and each other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from pasto.optimize.chance_constrained.program import expected_penalty, hazard, ratio_at

LEVELS = st.floats(-5.0, 5.0)
SPREADS = st.floats(0.01, 5.0)


@given(LEVELS, SPREADS)
def test_it_is_the_integral_of_the_squared_shortfall(level: float, spread: float) -> None:
    edge = min(-level / spread, 12.0)  # beyond twelve deviations the density is zero
    nodes, weights = np.polynomial.legendre.leggauss(200)
    z = -12.0 + max(edge + 12.0, 0.0) * (nodes + 1.0) / 2.0
    integral = max(edge + 12.0, 0.0) / 2.0 * (weights @ ((level + spread * z) ** 2 * np.exp(-(z**2) / 2.0)))
    integral /= np.sqrt(2.0 * np.pi)
    assert float(expected_penalty(np.array(level), np.array(spread))) == pytest.approx(integral, rel=1e-6, abs=1e-9)


@given(LEVELS, SPREADS, LEVELS, SPREADS, st.floats(0.0, 1.0))
def test_it_is_convex_and_falls_with_the_level_and_rises_with_the_spread(
    level: float, spread: float, other: float, wider: float, part: float
) -> None:
    levels, spreads = np.array([level, other]), np.array([spread, wider])
    ends = expected_penalty(levels, spreads)
    mixed = np.array([1.0 - part, part])
    assert float(expected_penalty(mixed @ levels, mixed @ spreads)) <= mixed @ ends + 1e-9
    assert expected_penalty(levels, spreads + 0.1)[0] >= ends[0] - 1e-12
    assert expected_penalty(levels + 0.1, spreads)[0] <= ends[0] + 1e-12


def test_without_spread_it_is_the_penalty_itself() -> None:
    levels = np.array([-2.0, -1e-9, 0.0, 1e-9, 3.0])
    assert expected_penalty(levels, np.zeros(5)) == pytest.approx(np.minimum(levels, 0.0) ** 2, abs=1e-30)


@given(st.floats(-300.0, 6.0))
def test_the_ratio_is_found_back_from_its_shortfall(exponent: float) -> None:
    shortfall = np.array([10.0**exponent])
    ratio = ratio_at(shortfall)
    found = norm.logsf(ratio) + np.log(hazard(ratio) - ratio)
    assert found == pytest.approx(np.log(shortfall), abs=1e-8 * (1.0 + abs(exponent)))
