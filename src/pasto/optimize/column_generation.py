"""Column generation: the worth of points that are not candidates yet, at the prices of a blend."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pasto.arrays import FloatArray
from pasto.estimate import Kernel

RANDOM_WAVES = 512
"""Random waves that a kernel's functions are sums of."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchPath:
    """One metric of a few posterior draws as functions of the point: waves, bent to pass through the candidates."""

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
        cls, kernel: Kernel, origin: float, features: FloatArray, samples: FloatArray, rng: np.random.Generator
    ) -> SearchPath:
        """Draw functions from the kernel's own distribution, given their values (draws, candidates) at the candidates.

        A function drawn from the prior, plus the kernel's interpolation of its errors at the candidates, is a draw
        given their values. The first draw is not random: it is the expectation. Prior functions are sums of waves whose
        frequencies follow the Matérn-5/2 spectrum, Student's t with five degrees. Only candidates have a nugget.
        """
        draws, (count, dimensions) = len(samples), features.shape
        frequencies = rng.standard_normal((dimensions, RANDOM_WAVES)) / np.sqrt(rng.chisquare(5.0, RANDOM_WAVES) / 5.0)
        phases = rng.uniform(0.0, 2.0 * np.pi, RANDOM_WAVES)
        heights = np.sqrt(2.0 * kernel.amplitude / RANDOM_WAVES) * rng.standard_normal((draws, RANDOM_WAVES))
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
        errors = samples - path.at(features) - own
        path.bends[:] = np.linalg.solve(kernel.covariance(features), errors.T).T
        return path

    def at(self, points: FloatArray) -> FloatArray:
        """Return the draws' values, (draws, points)."""
        waves = np.cos(points @ self.frequencies + self.phases)
        return self.mean + self.heights @ waves.T + self.bends @ self.kernel.between(self.features, points)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnProspect:
    """One posterior draw over a space, at the prices of that draw's own blend."""

    paths: tuple[SearchPath, ...]
    """One for each metric."""
    draw: int
    prices: FloatArray
    """(metrics,): the price of a unit of each metric."""
    bar: float
    """The worth of the best candidate, and a little more: a point worth more would improve the blend."""

    def worth(self, points: FloatArray) -> FloatArray:
        """Return the worth of points (points, dimensions), (points,)."""
        return np.asarray(self.prices @ np.array([path.at(points)[self.draw] for path in self.paths]))


def generate_columns(
    kernels: tuple[Kernel, ...],
    origin: FloatArray,
    features: FloatArray,
    samples: FloatArray,
    priced: FloatArray,
    rng: np.random.Generator,
) -> list[ColumnProspect]:
    """Return a prospect for each posterior draw: `samples` (draws, metrics, candidates), `priced` (draws, metrics).

    >>> import numpy as np
    >>> kernel = Kernel(mean=0.0, amplitude=1.0, nugget=0.0, scales=(0.3,))
    >>> places, samples = np.array([[0.0], [1.0]]), np.array([[[1.0, 2.0]]])
    >>> rng, prices = np.random.default_rng(0), np.ones((1, 1))
    >>> [prospect] = generate_columns((kernel,), np.zeros(1), places, samples, prices, rng)
    >>> prospect.worth(places).round(6)
    array([1., 2.])
    """
    paths = tuple(
        SearchPath.through(kernel, origin[metric], features, samples[:, metric], rng)
        for metric, kernel in enumerate(kernels)
    )
    prospects = []
    for draw, (means, prices) in enumerate(zip(samples, priced, strict=True)):
        worth = prices @ means
        prospects.append(ColumnProspect(paths, draw, prices, float(worth.max() + MIN_IMPROVEMENT * np.ptp(worth))))
    return prospects


MIN_IMPROVEMENT = 0.002
"""Part of the candidates' range in worth by which a point must beat them, to become a candidate."""
