"""Random numbers for many runs at once, each run with streams of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray

AHEAD = 2_048
"""At most how many numbers are drawn ahead for one run and kind: enough to make the generator's own call cheap."""
AHEAD_TOGETHER = 2_000_000
"""At most how many are drawn ahead for all runs of a chunk together, unless a single round needs more."""


class RandomDraws(Protocol):
    """What chance brings to a set of runs."""

    def rounds(self, count: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """For each round, uniforms (runs, parallel) and standard normals (runs, parallel, metrics)."""
        ...


@dataclass(frozen=True, slots=True)
class RandomStreams:
    """Independent streams keyed by (seed, run): a run sees the same numbers whatever runs beside it.

    Which candidates are drawn, what noise they show and what truth they have come from three streams, so that none
    depends on how far ahead another was drawn.
    """

    seed: int
    runs: Sequence[int]
    parallel: int
    metrics: int

    def rounds(self, count: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """For each round, uniforms (runs, parallel) and standard normals (runs, parallel, metrics)."""
        each = self.parallel * self.metrics
        block = min(count, max(1, min(AHEAD, AHEAD_TOGETHER // len(self.runs)) // each))
        choices = [stream(self.seed, run, "choice") for run in self.runs]
        noises = [stream(self.seed, run, "noise") for run in self.runs]
        uniforms = np.empty((len(self.runs), block, self.parallel))
        normals = np.empty((len(self.runs), block, self.parallel, self.metrics))
        for start in range(0, count, block):
            for place, (choice, noise) in enumerate(zip(choices, noises, strict=True)):
                choice.random(out=uniforms[place])
                noise.standard_normal(out=normals[place])
            for step in range(min(block, count - start)):
                yield uniforms[:, step], normals[:, step]


PURPOSES = ("truth", "choice", "noise")


def stream(seed: int, run: int, purpose: str) -> np.random.Generator:
    """One run's generator for one purpose: truth, choice or noise."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, run, PURPOSES.index(purpose)])))


def pick(probabilities: FloatArray, uniforms: FloatArray) -> NDArray[np.intp]:
    """Draw candidates (runs, draws) from policies (runs, candidates): the inverse of the cumulative sum, by bisection.

    >>> import numpy as np
    >>> pick(np.array([[0.2, 0.3, 0.5]]), np.array([[0.1, 0.2, 0.49, 0.51]]))
    array([[0, 1, 1, 2]])
    """
    runs, count = probabilities.shape
    width = 1 << (count - 1).bit_length()
    edges = np.full((runs, width), np.inf)
    np.cumsum(probabilities, axis=1, out=edges[:, :count])
    points = uniforms * edges[:, count - 1, None]
    edges[:, count - 1] = np.inf  # rounding may put a point on the last edge
    flat, left = edges.reshape(-1), np.arange(runs, dtype=np.intp)[:, None] * width
    found = np.repeat(left, uniforms.shape[1], axis=1)
    while width > 1:
        width //= 2
        found += width * (flat.take(found + (width - 1)) <= points)
    return np.asarray(found - left)
