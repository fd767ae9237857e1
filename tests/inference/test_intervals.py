"""Interval widths, and evidence that holds at every interim analysis."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pasto.errors import OptionError
from pasto.inference import (
    Interval,
    drift_evidence,
    error_per_claim,
    log_evidence,
    reach_at_any_time,
    reach_at_horizon,
    relative_lift,
    relative_lift_by_logarithm,
    sequence_progress,
)
from pasto.inference.guardrail_evidence import (
    BET_SCALES,
    LOG_BET_WEIGHTS,
    MIXTURE_ROUNDS,
    ChangeDetectorState,
    start_shares,
)

ERRORS = st.floats(1e-4, 0.3)


@settings(deadline=None)
@given(ERRORS, st.floats(1e-2, 1e4))
def test_looking_at_any_time_reaches_further_than_one_look(error: float, progress: float) -> None:
    for sides in (1, 2):
        assert reach_at_any_time(progress, error, sides) > reach_at_horizon(error, sides=sides)


@settings(deadline=None)
@given(ERRORS, st.floats(0.1, 1e3))
def test_one_side_reaches_less_than_two(error: float, progress: float) -> None:
    assert reach_at_any_time(progress, error, 1) < reach_at_any_time(progress, error, 2)


@settings(deadline=None)
@given(st.floats(1.0, 500.0))
def test_a_sequence_is_tightest_where_it_was_asked_to_be(tight: float) -> None:
    others = min(
        reach_at_any_time(sequence_progress(tight, tight=tight * scale), 0.05) for scale in np.geomspace(0.2, 5.0, 41)
    )
    assert reach_at_any_time(sequence_progress(tight, tight=tight), 0.05) <= others + 1e-9


@settings(deadline=None)
@given(st.floats(0.1, 1e3), st.floats(0.1, 1e3))
def test_evidence_is_one_on_average_where_nothing_drifts(variance: float, mixture: float) -> None:
    """Compute the mean of E over S ~ N(0, V) by quadrature: it bounds the chance of ever exceeding 1/α by α."""
    places = np.linspace(-12.0, 12.0, 24_001)
    density = np.exp(-0.5 * places**2) / np.sqrt(2.0 * np.pi)
    spread = np.sqrt(variance)
    # Near V ≫ ρ the integrand has heavy shoulders, so the density is taken inside the exponent.
    logs = log_evidence(spread * places, np.array(variance), mixture) + np.log(density)
    wide = np.exp(logs).sum() * (places[1] - places[0])
    assert wide <= 1.0 + 1e-6
    if variance < 5.0 * mixture:
        assert wide == pytest.approx(1.0, abs=1e-3)


def test_starts_share_out_one_whole() -> None:
    assert start_shares(10_000).sum() == pytest.approx(1.0, abs=1e-4)
    assert start_shares(10_000).sum() <= 1.0
    assert start_shares(1).tolist() == [0.5]


def test_bets_are_one_on_average_and_near_the_half_normal_law() -> None:
    """Check that a sum over bets is as valid as an integral over λ, and as sharp near the alarm threshold."""
    assert np.exp(LOG_BET_WEIGHTS).sum() == pytest.approx(1.0, abs=1e-12)
    rng = np.random.default_rng(3)
    rounds, sizes = 120, np.full(120, 200.0)
    for drop in (0.0, 0.05, 0.1):
        steps = sizes * (drop + rng.standard_normal(rounds) / np.sqrt(200.0))
        found, _ = drift_evidence(steps, sizes, sizes)
        sums = np.concatenate([[0.0], np.cumsum(steps)])
        for last in range(rounds):
            spans = np.arange(last + 1, 0, -1.0)
            each = log_evidence(sums[last + 1] - sums[: last + 1], 200.0 * spans, MIXTURE_ROUNDS * 200.0)
            exact = np.logaddexp.reduce(each + np.log(start_shares(last + 1)))
            if exact < 7.0:
                assert found[last] == pytest.approx(exact, abs=0.1)


def test_evidence_continues_from_what_was_left() -> None:
    rng = np.random.default_rng(4)
    steps, sizes = rng.normal(0.0, 5.0, (3, 40)), rng.integers(0, 60, (3, 40)).astype(float)
    steps *= sizes > 0
    complete, last = drift_evidence(steps, sizes, sizes)
    starts, parts = ChangeDetectorState.empty((3,), len(BET_SCALES)), []
    for first in range(0, 40, 8):
        piece = slice(first, first + 8)
        evidence, starts = drift_evidence(steps[:, piece], sizes[:, piece], sizes[:, piece], starts)
        parts.append(evidence)
    assert np.concatenate(parts, axis=1).tolist() == complete.tolist()
    assert starts.likely_start(LOG_BET_WEIGHTS).tolist() == last.likely_start(LOG_BET_WEIGHTS).tolist()


def test_what_never_varied_is_still_judged() -> None:
    evidence, _ = drift_evidence(np.full(30, 2.0), np.zeros(30), np.full(30, 200.0))
    assert evidence[-1] > np.log(20)


@pytest.mark.parametrize("first", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_variance_of_the_first_round_does_not_hide_later_drift(first: float, scale: float) -> None:
    drift, variance = np.full(40, 2.0 * scale), np.full(40, scale**2)
    drift[0], variance[0] = 0.0, first * 1e-6 * scale**2
    evidence, _ = drift_evidence(drift, variance, np.full(40, 200.0))
    assert evidence[-1] > 30.0


def test_few_units_are_not_asked_about() -> None:
    steps = np.full(3, 10.0)
    early, _ = drift_evidence(steps, np.ones(3), np.full(3, 40.0))
    assert np.isneginf(early[:2]).all()
    assert early[2] > np.log(20)


@settings(deadline=None)
@given(
    st.floats(1.0, 1e3),
    st.floats(1.0, 1e3),
    st.floats(1e-6, 1.0),
    st.floats(1e-6, 1.0),
    st.floats(0.5, 4.0),
    st.floats(1e-3, 1e3),
)
def test_a_relative_lift_solves_its_equation_and_knows_no_units(
    treated: float, control: float, own: float, other: float, reach: float, unit: float
) -> None:
    own, other = own * treated**2, other * control**2
    found = relative_lift(np.array(treated), np.array(control), np.array(own), np.array(other), reach)
    assert found.low <= found.estimate <= found.high
    if not np.isfinite(found.high):
        assert reach**2 * other >= (1.0 - 1e-9) * control**2
        return
    if reach**2 * other < 0.9 * control**2:
        for end in (found.low, found.high):
            gap = treated - (1.0 + end) * control
            assert gap**2 == pytest.approx(reach**2 * (own + (1.0 + end) ** 2 * other), rel=1e-6)
        arrays = [np.array(value) for value in (treated * unit, control * unit, own * unit**2, other * unit**2)]
        scaled = relative_lift(arrays[0], arrays[1], arrays[2], arrays[3], reach)
        assert scaled.high == pytest.approx(float(found.high), rel=1e-6, abs=1e-9)


def test_the_logarithm_agrees_where_the_control_is_well_measured() -> None:
    small = np.array(1e-6)
    ours, other = (
        form(np.array(10.5), np.array(10.0), small, small, 1.96) for form in (relative_lift, relative_lift_by_logarithm)
    )
    assert ours.low == pytest.approx(float(other.low), abs=1e-7)
    assert ours.high == pytest.approx(float(other.high), abs=1e-7)


def test_a_noisy_control_tilts_the_logarithm_and_not_the_equation() -> None:
    """Check that each end of a 95 % interval is missed in 2.5 %, for every noise of the control."""
    rng = np.random.default_rng(3)
    size, noise = 100_000, 0.15
    treated = 1.2 + 0.05 * rng.standard_normal(size)
    control = np.maximum(1.0 + noise * rng.standard_normal(size), 0.05)
    variances = np.full(size, 0.05**2), np.full(size, noise**2)
    ours = relative_lift(treated, control, variances[0], variances[1], 1.96)
    other = relative_lift_by_logarithm(treated, control, variances[0], variances[1], 1.96)
    assert ours.above(0.2).mean() == pytest.approx(0.025, abs=0.002)
    assert ours.below(0.2).mean() == pytest.approx(0.025, abs=0.002)
    assert abs(other.above(0.2).mean() - other.below(0.2).mean()) > 0.015


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_a_confidence_is_a_share(confidence: float) -> None:
    with pytest.raises(OptionError, match=r"write 0.95 for 95 %"):
        error_per_claim(confidence)


def test_claims_are_counted() -> None:
    with pytest.raises(OptionError, match="claims must be at least 1"):
        error_per_claim(0.95, claims=0)
    assert Interval(np.array(0.0), np.array(-2.0), np.array(-1.0)).below(0.0)
