"""Observations of a round: the covariance of each cell's mean."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import pasto
from pasto.metrics import Moments
from pasto.metrics.engines.sqlite import build_moments
from pasto.service.rounds.learner_step import covariances

numbers = st.floats(-1e6, 1e6, allow_subnormal=False)


@given(arrays.arrays(np.float64, st.tuples(st.integers(2, 12), st.just(2)), elements=numbers))
def test_the_covariance_is_of_the_mean(values: Any) -> None:
    (covariance,) = covariances([build_moments("learner", 0, values, (0, 0))])
    assert covariance is not None
    np.testing.assert_allclose(np.array(covariance), np.cov(values.T) / len(values), rtol=1e-9, atol=1e-3)


def cell(candidate: int, *values: float) -> Moments:
    return build_moments("learner", candidate, np.array(values)[:, None], (0,))


def test_a_unit_alone_varies_as_the_rounds_others_do() -> None:
    one, two, alone = covariances([cell(0, 1.0, 3.0), cell(1, 0.0, 0.0, 6.0), cell(2, 9.0)])
    assert one == ((1.0,),)
    assert two == ((4.0,),)
    assert alone == (((2.0 + 24.0) / 3,),)


def test_where_every_unit_is_alone_nothing_is_known() -> None:
    assert covariances([cell(0, 1.0), cell(1, 2.0)]) == (None, None)
    assert covariances([]) == ()


def test_a_study_learns_from_them() -> None:
    study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=1)
    cells = [cell(0, 1.0, 3.0, 2.0), cell(1, 4.0)]
    study.observe(
        [
            pasto.Observation(0, one.candidate, one.units, one.mean, covariance)
            for one, covariance in zip(cells, covariances(cells), strict=True)
        ]
    )
    assert study.rounds == 1
    # Units that all measured the same leave no variance; that must not stop a round.
    cells = [cell(0, 2.0, 2.0), cell(1, 2.0, 2.0, 2.0)]
    study.observe(
        [
            pasto.Observation(1, one.candidate, one.units, one.mean, covariance)
            for one, covariance in zip(cells, covariances(cells), strict=True)
        ]
    )
    assert study.rounds == 2
