"""Random streams for many runs at once: every run has its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray

MAX_BLOCK_NUMBERS = 2_048
"""Largest number of values drawn in one call for a run and a purpose; the cost of the call is then small."""
MAX_CHUNK_NUMBERS = 2_000_000
"""The same for all runs of a chunk together, unless a single round needs more."""


class RandomDraws(Protocol):
    """Source of random numbers for a set of runs."""

    def rounds(self, count: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield, for each round, uniforms (runs, parallel) and standard normals (runs, parallel, metrics)."""
        ...


@dataclass(frozen=True, slots=True)
class RandomStreams:
    """Independent streams keyed by (seed, run): a run has the same numbers in any set of runs.

    Drawn candidates, their noise and the true means come from three streams. So none depends on how many numbers were
    drawn from another.
    """

    seed: int
    runs: Sequence[int]
    parallel: int
    metrics: int

    def rounds(self, count: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield, for each round, uniforms (runs, parallel) and standard normals (runs, parallel, metrics)."""
        numbers_per_round = self.parallel * self.metrics
        block = min(count, max(1, min(MAX_BLOCK_NUMBERS, MAX_CHUNK_NUMBERS // len(self.runs)) // numbers_per_round))
        choices = [stream(self.seed, run, "choice") for run in self.runs]
        noises = [stream(self.seed, run, "noise") for run in self.runs]
        uniforms = np.empty((len(self.runs), block, self.parallel))
        normals = np.empty((len(self.runs), block, self.parallel, self.metrics))
        for start in range(0, count, block):
            for index, (choice, noise) in enumerate(zip(choices, noises, strict=True)):
                choice.random(out=uniforms[index])
                noise.standard_normal(out=normals[index])
            for step in range(min(block, count - start)):
                yield uniforms[:, step], normals[:, step]


PURPOSES = ("truth", "choice", "noise")


def stream(seed: int, run: int, purpose: str) -> np.random.Generator:
    """Return the generator of one run for one purpose: truth, choice or noise."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, run, PURPOSES.index(purpose)])))


def draw_candidates(probabilities: FloatArray, uniforms: FloatArray) -> NDArray[np.intp]:
    """Draw candidates (runs, draws) from policies (runs, candidates): the inverse of the cumulative sum, by bisection.

    >>> import numpy as np
    >>> draw_candidates(np.array([[0.2, 0.3, 0.5]]), np.array([[0.1, 0.2, 0.49, 0.51]]))
    array([[0, 1, 1, 2]])
    """
    runs, count = probabilities.shape
    width = 1 << (count - 1).bit_length()
    edges = np.full((runs, width), np.inf)
    np.cumsum(probabilities, axis=1, out=edges[:, :count])
    points = uniforms * edges[:, count - 1, None]
    edges[:, count - 1] = np.inf  # rounding may put a point on the last edge
    flat_edges, offsets = edges.reshape(-1), np.arange(runs, dtype=np.intp)[:, None] * width
    positions = np.repeat(offsets, uniforms.shape[1], axis=1)
    while width > 1:
        width //= 2
        positions += width * (flat_edges.take(positions + (width - 1)) <= points)
    return np.asarray(positions - offsets)
