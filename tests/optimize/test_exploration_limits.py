"""Exploration limits: caps, entries and budgets that a served policy must not exceed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import pasto
from pasto.errors import OptionError
from pasto.estimate import IndependentPosterior
from pasto.optimize.learners.base import ExplorationLimits
from pasto.optimize.learners.exploration_limits import ShareBounds, cap_shares, limit_to_budget, lower_bounds


@given(
    st.lists(st.floats(0.001, 1), min_size=2, max_size=8),
    st.lists(st.floats(0.01, 1), min_size=8, max_size=8),
)
def test_capped_shares_are_shares_within_their_caps(weights: list[float], caps: list[float]) -> None:
    shares = np.array(weights) / sum(weights)
    most = np.array(caps[: len(weights)])
    refuge = np.eye(len(weights))[0]
    capped = cap_shares(shares, most, refuge)
    assert_allclose(capped.sum(), 1.0, rtol=1e-12)
    assert (capped[1:] <= most[1:] + 1e-12).all()
    if most.sum() >= 1:
        assert capped[0] <= most[0] + 1e-9
    if (shares <= most).all():
        assert_allclose(capped, shares, rtol=1e-12)


def has_limits(budget: float, spread: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Set limits: the baseline meets y ≥ 0 by 0.2; the estimate of the explorer misses it by 1."""
    form = pasto.maximize("x").keep("y", at_least=0).form()
    posterior = IndependentPosterior(
        np.array([[0.0, 1.0], [0.2, -1.0]]), np.array([1e-12 * np.eye(2), spread**2 * np.eye(2)])
    )
    shares, home = np.array([0.0, 1.0]), np.array([1.0, 0.0])
    limits = ExplorationLimits(loss_budget={"y": budget})
    mixed = limit_to_budget(shares, [home], ShareBounds(form, posterior, np.zeros(1), None, limits))
    return mixed, lower_bounds(form, posterior, mixed, np.zeros(1), None, 1.6448536), budget


@given(st.floats(0, 2), st.floats(0, 2))
def test_a_budget_is_met_and_used_up(budget: float, spread: float) -> None:
    mixed, bounds, allowed = has_limits(budget, spread)
    assert_allclose(mixed.sum(), 1.0, rtol=1e-12)
    assert bounds[0] >= -allowed - 1e-9
    assert mixed[1] == 1.0 or bounds[0] < -allowed + 1e-4


def test_more_uncertainty_explores_less() -> None:
    assert has_limits(0.1, 0.0)[0][1] > has_limits(0.1, 0.5)[0][1] > has_limits(0.1, 2.0)[0][1] > 0


def test_a_safest_candidate_that_breaks_the_budget_is_still_served() -> None:
    form = pasto.maximize("x").keep("y", at_least=1).form()
    posterior = IndependentPosterior(np.array([[0.0, 1.0], [0.0, -1.0]]), np.tile(1e-12 * np.eye(2), (2, 1, 1)))
    home = np.array([1.0, 0.0])
    bounds = ShareBounds(form, posterior, np.zeros(1), None, ExplorationLimits(loss_budget={"y": 0.1}))
    mixed = limit_to_budget(np.array([0.0, 1.0]), [home], bounds)
    assert_allclose(mixed, home, atol=1e-5)


def test_the_candidate_with_the_largest_slack_is_mixed_in() -> None:
    form = pasto.maximize("x").keep("y", at_least=0).form()
    posterior = IndependentPosterior(
        np.array([[0.0, 1.0, 0.0], [0.1, -1.0, 2.0]]), np.tile(1e-12 * np.eye(2), (3, 1, 1))
    )
    bounds = ShareBounds(form, posterior, np.zeros(1), None, ExplorationLimits(loss_budget={"y": 0.0}))
    assert_allclose(bounds.safest_candidate(), [0.0, 0.0, 1.0])
    mixed = limit_to_budget(np.array([0.0, 1.0, 0.0]), [np.array([1.0, 0.0, 0.0]), bounds.safest_candidate()], bounds)
    assert_allclose(mixed, [0.0, 2 / 3, 1 / 3], atol=1e-4)


@pytest.mark.parametrize("rounding", [-1e-12, 0.0, 1e-12])
def test_rounding_does_not_choose_between_equally_safe_candidates(rounding: float) -> None:
    form = pasto.maximize("x").keep("y", at_least=0).form()
    posterior = IndependentPosterior(
        np.array([[0.0, 1.0, 0.0, 0.0], [0.1, -1.0, 2.0, 2.0 + rounding]]), np.tile(0.01 * np.eye(2), (4, 1, 1))
    )
    bounds = ShareBounds(form, posterior, np.zeros(1), None, ExplorationLimits(loss_budget={"y": 0.0}))
    assert_allclose(bounds.safest_candidate(), [0.0, 0.0, 1.0, 0.0])


def test_the_baselines_uncertainty_cancels_in_a_relative_guardrail() -> None:
    objective = pasto.maximize("x").keep("y", at_least="-0%")
    form = objective.form([1.0, 1.0])
    posterior = IndependentPosterior(np.ones((2, 2)), np.tile(0.04 * np.eye(2), (2, 1, 1)))
    at_home = lower_bounds(form, posterior, np.array([1.0, 0.0]), np.ones(1), 0, 2.0)
    away = lower_bounds(form, posterior, np.array([0.0, 1.0]), np.ones(1), 0, 2.0)
    assert_allclose(at_home, 0.0, atol=1e-9)
    assert_allclose(away, -2.0 * 100 * np.sqrt(0.08), rtol=1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {"confidence": 0.4},
        {"confidence": 1.0},
        {"max_share": 0.0},
        {"max_share": 1.5},
        {"new_candidate_share": -0.1},
        {"loss_budget": {"y": -1.0}},
    ],
)
def test_limits_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        ExplorationLimits(**settings)
