"""Synthetic B of the paper: a hundred random candidates, one goal, two guardrails."""

from __future__ import annotations

import numpy as np

from pasto.objective import maximize
from pasto.sim.world import World, table


def synthetic_b(seed: int | np.random.Generator, sigma: float, candidates: int = 100) -> World:
    """A world whose means are uniform on [−1, 1], with f = x − 5 min(0, y1 − ½)² − 5 min(0, y2 − ½)².

    >>> world = synthetic_b(7, sigma=0.1)
    >>> world.truth.shape, world.metrics
    ((3, 100), ('x', 'y1', 'y2'))
    """
    objective = maximize("x").keep("y1", at_least=0.5, penalty=5.0).keep("y2", at_least=0.5, penalty=5.0)
    means = np.random.default_rng(seed).uniform(-1.0, 1.0, (3, candidates))
    return table(objective.by_metric(means), sigma, objective)
