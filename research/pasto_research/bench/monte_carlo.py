"""Monte Carlo benchmark: Algorithm 1, compared with the same loop written by hand in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from time import process_time

import numpy as np

from pasto.sim import Progress, monte_carlo, synthetic_b

SIGMA = 0.5


@dataclass(frozen=True, slots=True)
class Timing:
    """Processor seconds for the same work done both ways, the median over repeats.

    >>> Timing(ours=3.0, by_hand=2.0, ratio=1.5, runs=10, rounds=10, candidates=5, parallel=2).ratio
    1.5
    """

    ours: float
    by_hand: float
    ratio: float
    """Ours over by hand, timed back to back."""
    runs: int
    rounds: int
    candidates: int
    parallel: int


def measure(
    *,
    runs: int = 1_000,
    rounds: int = 500,
    candidates: int = 100,
    parallel: int = 10,
    repeats: int = 3,
    chunk: int | None = None,
    progress: Progress | None = None,
) -> Timing:
    """Time `pasto.sim.runner` and the hand-written loop on synthetic B, turn and turn about.

    Ours also finds the exact best blend of every run's world, about a millisecond each, which the loop does not.

    >>> timing = measure(runs=5, rounds=5, candidates=4, parallel=2, repeats=1)
    >>> timing.ours > 0 and timing.by_hand > 0
    True
    """
    by_hand(runs=2, rounds=2, candidates=candidates, parallel=parallel)
    _ours(2, 2, candidates, parallel, chunk)
    pairs: list[tuple[float, float]] = []
    for turn in range(repeats):
        if progress is not None:
            progress("monte-carlo", turn, repeats)
        began = process_time()
        _ours(runs, rounds, candidates, parallel, chunk)
        middle = process_time()
        by_hand(runs=runs, rounds=rounds, candidates=candidates, parallel=parallel)
        pairs.append((middle - began, process_time() - middle))
    if progress is not None:
        progress("monte-carlo", repeats, repeats)
    return Timing(
        ours=median(first for first, _ in pairs),
        by_hand=median(second for _, second in pairs),
        ratio=median(first / second for first, second in pairs),
        runs=runs,
        rounds=rounds,
        candidates=candidates,
        parallel=parallel,
    )


def by_hand(*, runs: int, rounds: int, candidates: int, parallel: int, seed: int = 1) -> np.ndarray:
    """Run Algorithm 1 on synthetic B by a loop written for this experiment, and return p̄_T, (runs, candidates).

    >>> by_hand(runs=3, rounds=10, candidates=4, parallel=2).sum(axis=1).round(12)
    array([1., 1., 1.])
    """
    rng = np.random.default_rng(seed)
    truth = rng.uniform(-1.0, 1.0, (runs, 3, candidates))
    weights = np.ones((runs, candidates))
    total = np.zeros((runs, 3, candidates))
    answer = np.zeros((runs, candidates))
    rows = np.arange(runs)[:, None]
    cells = (3 * rows[:, :, None] + np.arange(3)) * candidates
    for t in range(1, rounds + 1):
        floor = 0.1 / np.sqrt(t + 10)
        p = weights * ((1.0 - floor) / weights.sum(axis=1, keepdims=True))
        p += floor / candidates
        edges = np.cumsum(p, axis=1)
        edges[:, -1] = 1.0
        edges += rows
        drawn = np.searchsorted(edges.ravel(), (rng.random((runs, parallel)) + rows).ravel(), side="right")
        drawn = drawn.reshape(runs, parallel) - rows * candidates
        samples = truth[rows, :, drawn] + SIGMA * rng.standard_normal((runs, parallel, 3))
        samples /= (parallel * p[rows, drawn])[:, :, None]
        np.add.at(total.reshape(-1), (cells + drawn[:, :, None]).ravel(), samples.ravel())
        metrics = (total @ p[:, :, None])[:, :, 0] / (t + 1)
        slope = np.concatenate([np.ones((runs, 1)), -10.0 * np.minimum(0.0, metrics[:, 1:] - 0.5)], axis=1)
        weights *= np.exp((0.1 / candidates / (t + 1) * slope[:, None, :] @ total)[:, 0])
        weights /= weights.max(axis=1, keepdims=True)
        answer += p
    return np.asarray(answer / rounds)


def _ours(runs: int, rounds: int, candidates: int, parallel: int, chunk: int | None) -> None:
    monte_carlo(
        "algorithm1",
        lambda rng: synthetic_b(rng, SIGMA, candidates),
        runs=runs,
        rounds=rounds,
        parallel=parallel,
        checkpoints=[rounds],
        chunk=chunk,
    )
