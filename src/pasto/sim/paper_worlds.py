"""Worlds of the paper: example A with two candidates, and example B with random means."""

from __future__ import annotations

from math import sqrt

import numpy as np

from pasto.objective import maximize
from pasto.sim.world import World, table


def example_a(variance: float = 5.0) -> World:
    """Return example A: μX = (2, 0), μY = (−2, 2), f = x − 5 min(0, y)², noise of variance 5 on each metric.

    >>> import pasto
    >>> world = example_a()
    >>> blend = pasto.solve(world.objective.by_metric(world.truth), world.objective)
    >>> round(blend.value, 6), blend.best_single_value
    (1.0125, 0.0)
    """
    objective = maximize("x").keep("y", at_least=0, penalty=5.0)
    return table({"x": [2, 0], "y": [-2, 2]}, sqrt(variance), objective)


def synthetic_b(seed: int | np.random.Generator, sigma: float, candidates: int = 100) -> World:
    """Return example B, with means uniform on [−1, 1] and f = x − 5 min(0, y1 − ½)² − 5 min(0, y2 − ½)².

    >>> world = synthetic_b(7, sigma=0.1)
    >>> world.truth.shape, world.metrics
    ((3, 100), ('x', 'y1', 'y2'))
    """
    objective = maximize("x").keep("y1", at_least=0.5, penalty=5.0).keep("y2", at_least=0.5, penalty=5.0)
    means = np.random.default_rng(seed).uniform(-1.0, 1.0, (3, candidates))
    return table(objective.by_metric(means), sigma, objective)
