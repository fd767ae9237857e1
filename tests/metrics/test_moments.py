"""Moments of a cell: means and centred products of its units."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pasto.metrics import Moments
from pasto.metrics.engines.sqlite import build_moments

numbers = st.floats(-1e6, 1e6, allow_subnormal=False)
shapes = st.tuples(st.integers(1, 12), st.integers(1, 4))


@given(arrays.arrays(np.float64, shapes, elements=numbers))
def test_moments_are_mean_and_centred_products(values: Any) -> None:
    cell = build_moments("learner", 3, values, [0] * values.shape[1])
    centred = values - values.mean(axis=0)
    np.testing.assert_allclose(cell.mean, values.mean(axis=0), rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(cell.cross, centred.T @ centred, rtol=1e-9, atol=1e-3)
    assert np.array_equal(cell.cross, np.transpose(cell.cross))
    assert np.linalg.eigvalsh(cell.cross)[0] >= -1e-9 * (1 + np.abs(cell.cross).max())


def cell(candidate: int, *values: float) -> Moments:
    return build_moments("learner", candidate, np.array(values)[:, None], (0,))


def test_the_mean_keeps_what_its_own_rounding_left() -> None:
    values = [1e15 + place % 7 + 0.5 * (place % 3) for place in range(1001)]
    (cross,) = cell(0, *values).cross[0]
    exact_mean = sum(map(Fraction, values)) / len(values)
    spread = sum((Fraction(value) - exact_mean) ** 2 for value in values)
    assert abs(float(Fraction(cross) / spread - 1)) < 1e-9
