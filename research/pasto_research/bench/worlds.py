"""The worlds that learners race in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from pasto.objective import Objective, maximize
from pasto.sim import World, synthetic_b, table
from pasto.space import Candidates, grid

Maker = Callable[[np.random.Generator], World]


@dataclass(frozen=True, slots=True)
class WorldFamily:
    """Family of random worlds, with or without a space of candidates."""

    name: str
    make: Maker
    candidates: Candidates | None = None
    """Where the candidates' places are known to the learner; None where they are only names."""
    follows_gradients: bool = True
    """False where a guardrail is hard, which learners that follow a gradient refuse."""
    rounds: int = 300
    """Number of rounds that separates the learners."""


def uniform(sigma: float, candidates: int = 100, guardrails: int = 2, *, hard: bool = False) -> Maker:
    """Return means uniform on [−1, 1], guardrails at 0.5: the paper's synthetic B with other sizes."""
    objective = _objective(guardrails, hard=hard)

    def make(rng: np.random.Generator) -> World:
        return table(objective.by_metric(rng.uniform(-1.0, 1.0, (1 + guardrails, candidates))), sigma, objective)

    return make


def correlated(sigma: float, candidates: int = 100, guardrails: int = 2) -> Maker:
    """Return means uniform on [−1, 1] whose guardrails fall with the goal: correlation −0.6, guardrails at 0.5."""
    objective = _objective(guardrails, hard=False)

    def make(rng: np.random.Generator) -> World:
        scores = rng.standard_normal((1 + guardrails, candidates))
        scores[1:] = -0.6 * scores[0] + 0.8 * scores[1:]
        return table(objective.by_metric(2.0 * ndtr(scores) - 1.0), sigma, objective)

    return make


def smooth(sigma: float, points: int = 100) -> Maker:
    """Return three smooth random functions of one parameter: sums of a few slow waves, scaled to [−1, 1]."""
    objective = _objective(2, hard=False)
    places = np.linspace(0.0, 1.0, points)

    def make(rng: np.random.Generator) -> World:
        waves = np.arange(1, 5)
        heights = rng.standard_normal((3, 4)) / waves
        phases = rng.uniform(0.0, 2.0 * np.pi, (3, 4))
        curves = np.einsum("mw,mwk->mk", heights, np.sin(np.pi * waves[:, None] * places + phases[:, :, None]))
        low, high = curves.min(axis=1, keepdims=True), curves.max(axis=1, keepdims=True)
        return table(objective.by_metric(2.0 * (curves - low) / (high - low) - 1.0), sigma, objective, names=LINE.names)

    return make


def _objective(guardrails: int, *, hard: bool) -> Objective:
    objective = maximize("goal")
    for number in range(guardrails):
        objective = objective.keep(f"guardrail {number + 1}", at_least=0.5, penalty=None if hard else 5.0)
    return objective


LINE = grid(alpha=[round(place, 4) for place in np.linspace(0.0, 1.0, 100).tolist()])
SETTINGS: dict[str, WorldFamily] = {
    setting.name: setting
    for setting in (
        WorldFamily("B, σ = 0.1", lambda rng: synthetic_b(rng, sigma=0.1)),
        WorldFamily("B, σ = 0.5", lambda rng: synthetic_b(rng, sigma=0.5)),
        WorldFamily("B, σ = 1", lambda rng: synthetic_b(rng, sigma=1.0)),
        WorldFamily("B, σ = 2", lambda rng: synthetic_b(rng, sigma=2.0)),
        WorldFamily("smooth line, σ = 0.5", smooth(0.5), candidates=LINE, rounds=120),
        WorldFamily("hard guardrails, σ = 0.5", uniform(0.5, hard=True), follows_gradients=False),
        WorldFamily("5 metrics, σ = 0.5", uniform(0.5, guardrails=4)),
        WorldFamily("1,000 candidates, σ = 0.5", uniform(0.5, candidates=1_000), rounds=200),
    )
}
