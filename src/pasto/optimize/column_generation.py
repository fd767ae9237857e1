"""Column generation: what points that are no candidates yet would be worth at a blend's prices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pasto.arrays import FloatArray
from pasto.estimate import Kernel

WAVES = 512
"""Random waves that a kernel's functions are drawn with."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchPath:
    """One metric of a few posterior draws, as functions of the place: waves, bent to pass through the candidates."""

    kernel: Kernel
    mean: float
    frequencies: FloatArray
    """(dimensions, waves)."""
    phases: FloatArray
    """(waves,)."""
    heights: FloatArray
    """(draws, waves)."""
    features: FloatArray
    """(candidates, dimensions)."""
    bends: FloatArray
    """(draws, candidates)."""

    @classmethod
    def through(
        cls, kernel: Kernel, origin: float, features: FloatArray, truths: FloatArray, rng: np.random.Generator
    ) -> SearchPath:
        """Functions from the kernel's own distribution, given their values (draws, candidates) at the candidates.

        A function drawn from the prior, plus what the kernel carries over of its errors at the candidates, is a
        function drawn given their values. The first draw is left out of chance: it is what is expected. Prior functions
        are sums of waves whose frequencies follow the Matérn-5/2
        spectrum, Student's t with five degrees. A candidate's own nugget is its own: places in between have none.
        """
        draws, (count, dimensions) = len(truths), features.shape
        frequencies = rng.standard_normal((dimensions, WAVES)) / np.sqrt(rng.chisquare(5.0, WAVES) / 5.0)
        phases = rng.uniform(0.0, 2.0 * np.pi, WAVES)
        heights = np.sqrt(2.0 * kernel.amplitude / WAVES) * rng.standard_normal((draws, WAVES))
        own = np.sqrt(kernel.nugget) * rng.standard_normal((draws, count))
        heights[0] = own[0] = 0.0
        path = cls(
            kernel,
            kernel.mean + origin,
            frequencies / np.array(kernel.scales)[:, None],
            phases,
            heights,
            features,
            np.zeros((draws, count)),
        )
        errors = truths - path.at(features) - own
        path.bends[:] = np.linalg.solve(kernel.covariance(features), errors.T).T
        return path

    def at(self, points: FloatArray) -> FloatArray:
        """The draws' values, (draws, points)."""
        waves = np.cos(points @ self.frequencies + self.phases)
        return self.mean + self.heights @ waves.T + self.bends @ self.kernel.between(self.features, points)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnProspect:
    """One posterior draw over a whole space, at the prices of that draw's own blend."""

    paths: tuple[SearchPath, ...]
    """One a metric."""
    draw: int
    prices: FloatArray
    """(metrics,): what a unit of each metric is worth."""
    bar: float
    """What the best candidate is worth, and a little: a point worth more would improve the blend."""

    def worth(self, points: FloatArray) -> FloatArray:
        """What points (points, dimensions) are worth there, (points,)."""
        return np.asarray(self.prices @ np.array([path.at(points)[self.draw] for path in self.paths]))


def generate_columns(
    kernels: tuple[Kernel, ...],
    origin: FloatArray,
    features: FloatArray,
    truths: FloatArray,
    priced: FloatArray,
    rng: np.random.Generator,
) -> list[ColumnProspect]:
    """Each posterior draw, `truths` (draws, metrics, candidates) with its prices `priced` (draws, metrics), continued.

    >>> import numpy as np
    >>> kernel = Kernel(mean=0.0, amplitude=1.0, nugget=0.0, scales=(0.3,))
    >>> places, truths = np.array([[0.0], [1.0]]), np.array([[[1.0, 2.0]]])
    >>> [found] = generate_columns((kernel,), np.zeros(1), places, truths, np.ones((1, 1)), np.random.default_rng(0))
    >>> found.worth(places).round(6)
    array([1., 2.])
    """
    paths = tuple(
        SearchPath.through(kernel, origin[metric], features, truths[:, metric], rng)
        for metric, kernel in enumerate(kernels)
    )
    found = []
    for draw, (truth, prices) in enumerate(zip(truths, priced, strict=True)):
        worth = prices @ truth
        found.append(ColumnProspect(paths, draw, prices, float(worth.max() + LEAST * np.ptp(worth))))
    return found


LEAST = 0.002
"""By which part of the candidates' range in worth a point must beat them: less is not worth a candidate."""
