"""Confidence sequences for bounded metrics: valid from the first unit, by enumeration of every outcome."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from pasto.errors import OptionError
from pasto.inference import (
    ValueRange,
    bounded_difference,
    bounded_drift_evidence,
    bounded_mean,
    bounded_relative,
    contrast_increments,
    log_bounded_evidence,
    mean_increments,
)
from pasto.inference.betting import MAX_BET_SHARE, log_wealth

UNIT = ValueRange(0.0, 1.0)


@settings(deadline=None)
@given(st.floats(0.01, 10.0), st.floats(0.0, MAX_BET_SHARE), st.floats(-1.0, 50.0))
def test_the_inequality_that_everything_rests_on(scale: float, reduced: float, place: float) -> None:
    bet, deviation = reduced / scale, place * scale
    cost = (-np.log1p(-reduced) - reduced) / scale**2
    assert np.exp(min(bet * deviation - cost * deviation**2, 700.0)) <= 1.0 + bet * deviation + 1e-9


@pytest.mark.parametrize("upward", [True, False])
@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
def test_evidence_on_a_true_mean_is_at_most_one_on_average(rate: float, upward: bool) -> None:
    """Enumerate the 121 outcomes of two rounds of ten coins, with their probabilities."""
    size = 10
    first, second = np.meshgrid(np.arange(size + 1), np.arange(size + 1), indexing="ij")
    chance = (binom.pmf(first, size, rate) * binom.pmf(second, size, rate)).ravel()
    mean = np.stack([first.ravel(), second.ravel()], axis=1) / size
    pulls = mean_increments(np.full(mean.shape, size), mean, size * mean * (1 - mean), UNIT, upward=upward, start=0.5)
    for evidence in (log_bounded_evidence(pulls, rate), bounded_drift_evidence(pulls, rate)[0]):
        assert chance @ np.exp(evidence[:, -1]) <= 1.0 + 1e-12
    assert (chance @ np.exp(log_wealth(pulls, rate)[:, -1]) <= 1.0 + 1e-12).all()


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.2])
@pytest.mark.parametrize("sizes", [(4, 4), (8, 1), (1, 8)])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
def test_evidence_on_a_true_contrast_is_at_most_one_on_average(
    factor: float, sizes: tuple[int, int], rate: float
) -> None:
    """Enumerate the outcomes of two arms in two rounds of a few coins; the first round sets the centres."""
    size = np.repeat(sizes, 2)
    places = np.meshgrid(*(np.arange(one + 1) for one in size), indexing="ij")
    grid = np.stack(places, axis=-1).reshape(-1, 4)
    chance = np.prod(binom.pmf(grid, size, rate * np.array([factor, factor, 1.0, 1.0])), axis=1)
    mean = grid / size
    squares, units = size * mean * (1 - mean), np.broadcast_to(size.astype(float), grid.shape)
    arms = [(units[:, at], mean[:, at], squares[:, at]) for at in ([0, 1], [2, 3])]
    pulls = contrast_increments(arms[0], arms[1], factor, UNIT)
    assert (chance @ np.exp(log_wealth(pulls, 0.0)[:, -1]) <= 1.0 + 1e-12).all()


@settings(max_examples=20, deadline=None)
@given(st.floats(-50.0, 50.0), st.floats(0.01, 1e4))
def test_units_of_measurement_do_not_matter(shift: float, scale: float) -> None:
    draws = (np.random.default_rng(1).random((8, 200)) < 0.3).astype(float)
    plain = bounded_mean(np.full(8, 200.0), draws.mean(1), 200 * draws.var(1), UNIT, 0.05)
    moved = shift + scale * draws
    other = bounded_mean(np.full(8, 200.0), moved.mean(1), 200 * moved.var(1), ValueRange(shift, shift + scale), 0.05)
    assert other.low == pytest.approx(shift + scale * plain.low, rel=1e-6, abs=1e-6 * scale + 1e-6)
    assert other.high == pytest.approx(shift + scale * plain.high, rel=1e-6, abs=1e-6 * scale + 1e-6)


def _arms(seed: int, studies: int, rates: tuple[float, float]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    found = []
    for rate in rates:
        mean = rng.binomial(300, rate, (studies, 30)) / 300
        found.append((np.full(mean.shape, 300.0), mean, 300 * mean * (1 - mean)))
    return found


def test_lifts_of_a_rare_event_are_seldom_missed_and_get_narrow() -> None:
    treated, control = _arms(5, 200, (0.03, 0.02))
    difference = bounded_difference(treated, control, UNIT, 0.05)
    missed = ~difference.covers(0.01).all(axis=1)
    assert missed.mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)
    assert difference.above(0.0)[:, -1].mean() > 0.6
    relative = bounded_relative(treated, control, UNIT, 0.05)
    assert (~relative.covers(0.5)).mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)
    assert ((relative.low > 0) == difference.above(0.0)[:, -1]).mean() > 0.95


def test_a_relative_lift_of_almost_nothing_is_left_open() -> None:
    treated, control = ((np.full(2, 50.0), np.full(2, rate), np.full(2, 50 * rate)) for rate in (0.02, 0.0))
    found = bounded_relative(treated, control, UNIT, 0.05)
    assert np.isinf(found.high)
    assert np.isinf(found.low)


def test_an_arm_without_units_has_no_relative_interval() -> None:
    arm = np.full(3, 50.0), np.full(3, 0.3), np.full(3, 10.5)
    never = np.zeros(3), np.zeros(3), np.zeros(3)
    found = bounded_relative(arm, never, ValueRange(0, 1), 0.05)
    assert np.isnan(found.estimate)
    assert (float(found.low), float(found.high)) == (-np.inf, np.inf)


def test_rounds_without_units_change_nothing() -> None:
    units, mean, cross = np.array([200.0, 0.0, 200.0]), np.array([0.2, 0.0, 0.3]), np.array([32.0, 0.0, 42.0])
    used = [0, 2]
    for start in (None, 0.4):
        complete = log_bounded_evidence(mean_increments(units, mean, cross, UNIT, start=start), 0.1)
        short = log_bounded_evidence(mean_increments(units[used], mean[used], cross[used], UNIT, start=start), 0.1)
        assert complete[-1] == pytest.approx(short[-1])


@pytest.mark.parametrize("ends", [(1.0, 0.0), (0.0, float("inf")), (float("nan"), 1.0)])
def test_a_range_has_two_ends(ends: tuple[float, float]) -> None:
    with pytest.raises(OptionError, match="two finite ends"):
        ValueRange(*ends)
