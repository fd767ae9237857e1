from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasto.errors import OptionError
from pasto.sim import LearningTrace, checkpoint_rounds, example_a, monte_carlo, relative_gain


@given(st.integers(1, 10**7))
def test_checkpoints_are_round_increasing_and_end_at_the_last_round(rounds: int) -> None:
    marks = checkpoint_rounds(rounds)
    assert marks[-1] == rounds
    assert marks[0] == 1
    assert list(marks) == sorted(set(marks))
    assert len(marks) <= 10 * len(str(rounds)) + 1
    assert {mark for mark in (30, 100, 300, 1_000, 3_000) if mark <= rounds} <= set(marks)


def test_extra_checkpoints_beyond_the_last_round_are_left_out() -> None:
    assert 77 in checkpoint_rounds(100, 77, 1_000)
    assert checkpoint_rounds(100, 77, 1_000)[-1] == 100


def _trace(answer: list[list[float]], optimum: list[float], single: list[float]) -> LearningTrace:
    values = np.array(answer)
    return LearningTrace(
        learner="algorithm1",
        parallel=1,
        seed=1,
        checkpoints=np.arange(1, values.shape[1] + 1),
        answer=values,
        served=values,
        probabilities=np.ones((len(values), 1)),
        optimum=np.array(optimum),
        single=np.array(single),
    )


def test_relative_gain_is_a_signed_ratio_of_means_and_a_mean_of_ratios_where_there_is_a_gap() -> None:
    trace = _trace([[1.0, 3.0], [-3.0, 1.5], [0.0, 2.0]], optimum=[4.0, 2.0, 2.0], single=[2.0, 1.0, 2.0])
    gains = relative_gain(trace)
    np.testing.assert_allclose(gains.ratio, [(-1 - 4 - 2) / 3, (1 + 0.5 + 0) / 3])
    np.testing.assert_allclose(gains.mean, [(-0.5 - 4) / 2, (0.5 + 0.5) / 2])
    np.testing.assert_allclose(gains.deviation, [3.5 / np.sqrt(2), 0.0])
    assert gains.runs_with_gap == 2


def test_the_bootstrap_error_is_about_the_delta_methods() -> None:
    rng = np.random.default_rng(0)
    gaps = rng.uniform(0.5, 1.5, 400)
    gained = 0.6 * gaps + rng.normal(0.0, 0.3, 400)
    trace = _trace(gained[:, None].tolist(), optimum=gaps.tolist(), single=[0.0] * 400)
    gains = relative_gain(trace, resamples=2_000)
    delta = np.std(gained - gains.ratio[0] * gaps, ddof=1) / np.sqrt(400) / gaps.mean()
    np.testing.assert_allclose(gains.error[0], delta, rtol=0.1)


def test_without_a_gap_there_is_no_gain() -> None:
    gains = relative_gain(_trace([[0.5], [0.7]], optimum=[1.0, 1.0], single=[1.0, 1.0]))
    assert np.isnan(gains.mean).all()
    assert not np.isfinite(gains.ratio).any()
    assert gains.runs_with_gap == 0


def test_one_run_has_no_error() -> None:
    trace = monte_carlo("algorithm1", example_a(), runs=1, rounds=10)
    assert np.isnan(trace.error).all()
    assert np.isnan(relative_gain(trace).error).all()
    assert np.isfinite(relative_gain(trace).ratio).all()


def test_only_checkpoints_can_be_asked_for() -> None:
    trace = monte_carlo("algorithm1", example_a(), runs=3, rounds=10, checkpoints=[5])
    assert trace.rounds == 10
    np.testing.assert_array_equal(trace.at(5), trace.answer[:, 0])
    with pytest.raises(OptionError, match="not a checkpoint"):
        trace.at(7)
