"""Fixtures of exact solvers: random programs, and a proof of optimality that uses no solver."""

from collections.abc import Callable

import numpy as np
import pytest

from pasto.arrays import FloatArray
from pasto.optimize import Program

Check = Callable[[Program, FloatArray, FloatArray, bool], None]
Draw = Callable[..., Program]


def prove(
    program: Program, probabilities: FloatArray, duals: FloatArray, feasible: bool, tolerance: float = 1e-8
) -> None:
    """Assert that p is a distribution, is feasible (or the nearest miss), and that π proves no p to be better.

    For any π ≥ 0, no p is worth more than max_k (goal_k + π · slack_k) + Σ π²/4λ.
    """
    slack, hard = program.slack, np.isinf(program.penalties)
    assert probabilities.min() >= 0.0
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.count_nonzero(probabilities) <= 1 + len(slack)
    assert (duals >= 0.0).all()
    sizes = np.abs(slack).max(axis=1)
    levels = slack @ probabilities
    missed = np.where(hard, np.maximum(0.0, -levels), 0.0)
    if feasible:
        assert (missed <= 1e-9 * sizes).all()
    else:
        assert (missed > 0.0).any()
        # Least squares over a convex set: no candidate lies further along the gradient than p itself.
        spread = np.ptp(slack, axis=1)
        weights = missed / np.where(spread > 0.0, spread, 1.0) ** 2
        assert (weights @ slack).max() - weights @ levels <= 1e-7 * (weights @ sizes)
        slack = slack + missed[:, None]
    soft = np.where(hard, 1.0, program.penalties)
    cost = np.where(hard, 0.0, soft * np.minimum(levels, 0.0) ** 2).sum()
    bound = (program.goal + duals @ slack).max() + np.where(hard, 0.0, duals**2 / (4.0 * soft)).sum()
    costs = np.where(hard, 0.0, soft)[:, None] * np.minimum(program.slack, 0.0) ** 2
    scale = np.ptp(program.goal) + costs.max(initial=0.0) + duals @ sizes
    gap = bound - (program.goal @ probabilities - cost)
    assert -tolerance * scale <= gap <= tolerance * scale or abs(gap) <= 1e-12 * np.abs(program.goal).max()


def draw(rng: np.random.Generator, candidates: int, hard: int, soft: int, *, tightness: float = 0.3) -> Program:
    """Return a random program whose guardrails usually bind."""
    rails = hard + soft
    return Program(
        goal=rng.normal(size=candidates),
        slack=rng.normal(size=(rails, candidates)) - tightness,
        penalties=np.concatenate([np.full(hard, np.inf), 10.0 ** rng.uniform(-2, 4, size=soft)]),
    )


@pytest.fixture(scope="session")
def proves() -> Check:
    return prove


@pytest.fixture(scope="session")
def random_program() -> Draw:
    return draw
