"""Worlds with known means: candidates with mean metrics, measured with noise; among them the paper's examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pasto.arrays import FloatArray
from pasto.errors import MeansError
from pasto.objective import Objective, maximize
from pasto.optimize.solve_blend import MeansInput
from pasto.space import Candidates

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame

Noise = float | Sequence[float] | Mapping[str, float] | FloatArray
"""Standard deviations: one for all, one for each metric, or an array (metrics, candidates)."""


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """World of candidates with known mean metrics μ, measured with Gaussian noise.

    A study learns in it by ask, draw, and `tell()`.

    >>> import numpy as np, pasto
    >>> from pasto.sim import example_a
    >>> world, rng = example_a(), np.random.default_rng(1)
    >>> study = pasto.Study(world.candidates, world.objective, learner="algorithm1", seed=1)
    >>> for _ in range(500):
    ...     assignments = study.ask(parallel=10)
    ...     study.tell(assignments, world.draw([a.candidate for a in assignments], rng))
    >>> float(world.value(study.blend().probabilities)) > 0.5              # the best single candidate reaches 0
    True
    """

    truth: FloatArray
    """(metrics, candidates): μ."""
    objective: Objective
    noise: FloatArray
    """(metrics, candidates), or (metrics, 1) if it is the same for every candidate: standard deviations."""
    names: tuple[str, ...]
    """Names of the candidates."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics, in the order of the rows of `truth`."""
        return self.objective.metrics

    @property
    def candidates(self) -> Candidates:
        """Candidates for a study, each with its name as its only parameter."""
        return Candidates.from_rows([{"candidate": name} for name in self.names], names=self.names)

    def means(self, round: int) -> FloatArray:
        """Return μ_t, (metrics, candidates): the means in a round, counted from 1."""
        return self.truth

    def running_means(self, round: int) -> FloatArray:
        """Return V_t = (1/t) Σ μ_s over s ≤ t, (metrics, candidates)."""
        return self.truth

    def value(self, probabilities: ArrayLike) -> FloatArray:
        """Return f(μ p), for one distribution or an array (..., candidates) of them."""
        form = self.objective.form()
        return form.value(np.asarray(probabilities, dtype=float) @ self.truth.T, form.tolerances(self.truth))

    def draw(self, candidates: ArrayLike, rng: np.random.Generator, round: int = 1) -> FloatArray:
        """Return one measurement of each of n candidates, (n, metrics).

        >>> import numpy as np
        >>> from pasto.sim import table
        >>> import pasto
        >>> world = table({"x": [2, 0], "y": [-2, 2]}, 0.0, pasto.maximize("x").keep("y", at_least=0, penalty=5.0))
        >>> world.draw([1, 0], np.random.default_rng(0))
        array([[ 0.,  2.],
               [ 2., -2.]])
        """
        chosen = np.asarray(candidates, dtype=np.intp)
        spread = np.broadcast_to(self.noise, self.truth.shape)
        measured = self.means(round).T[chosen] + spread.T[chosen] * rng.standard_normal(
            (*chosen.shape, len(self.truth))
        )
        return np.asarray(measured)


def table(
    means: Mapping[str, Any] | IntoDataFrame | Sequence[Sequence[float]] | FloatArray,
    noise: Noise,
    objective: Objective,
    names: Sequence[str] | None = None,
) -> World:
    """Return a world from a table of means, as `pasto.solve` takes it; metrics outside the objective are left out.

    >>> import pasto
    >>> objective = pasto.maximize("x").keep("y", at_least=0, penalty=5.0)
    >>> table({"x": [2, 0], "y": [-2, 2]}, {"x": 1.0, "y": 0.5}, objective, names=["bold", "careful"]).names
    ('bold', 'careful')
    """
    means_input = MeansInput.read(means, objective, names)
    truth = means_input.means[: len(objective.metrics)]
    return World(truth, objective, read_deviations(noise, objective.metrics, truth.shape[1]), means_input.names)


def read_deviations(noise: Noise, metrics: tuple[str, ...], candidates: int) -> FloatArray:
    """Return checked standard deviations as an array (metrics, 1) or (metrics, candidates)."""
    given: Any = noise
    if isinstance(noise, Mapping):
        if missing := [name for name in metrics if name not in noise]:
            raise MeansError(f"noise= lacks {missing[0]!r}; give one standard deviation for each of {metrics}")
        given = [noise[name] for name in metrics]
    try:
        spread = np.array(given, dtype=float)
    except (TypeError, ValueError) as error:
        raise MeansError(f"noise= must be standard deviations, got {noise!r}") from error
    if spread.ndim < 2:
        spread = spread.reshape(-1, 1)
        if len(spread) == 1:
            spread = np.repeat(spread, len(metrics), axis=0)
    if spread.shape not in {(len(metrics), 1), (len(metrics), candidates)}:
        raise MeansError(
            f"noise= must be one number, one for each of {metrics}, or an array {(len(metrics), candidates)}, got "
            f"shape {np.shape(given)}"
        )
    if not (np.isfinite(spread) & (spread >= 0)).all():
        raise MeansError(f"noise= must be standard deviations, finite and not negative, got {noise!r}")
    return spread


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
