"""The paper's relative gain, as a number that can show a loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pasto.objective import Array
from pasto.sim.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Gains:
    """Relative gain at each checkpoint: 0 is the best single candidate, 1 the best blend; made by `relative_gain`.

    >>> from pasto.sim import example_a, monte_carlo, relative_gain
    >>> gains = relative_gain(monte_carlo("pasto", example_a(), runs=20, rounds=1, seed=1))
    >>> gains.ratio.round(4), gains.deviation.round(4)                 # equal shares, so every run has the same
    (array([0.9877]), array([0.]))
    """

    ratio: Array
    """(checkpoints,): Σ (f(p̄) − f(single)) / Σ (f* − f(single)) over all runs."""
    error: Array
    """(checkpoints,): its standard error, by resampling runs."""
    mean: Array
    """(checkpoints,): the mean of the runs' own ratios, over runs with a gap of at least `gap`."""
    deviation: Array
    """(checkpoints,): the standard deviation of the runs' own ratios, over the same runs."""
    kept: int
    """How many runs have such a gap."""


def relative_gain(trace: Trace, *, gap: float = 0.02, resamples: int = 400, seed: int = 0) -> Gains:
    """r of a trace, signed: as a ratio of means over all runs, and as a mean of ratios where the gap is not tiny.

    Where no run has a gap at all, the ratios are NaN.

    >>> from pasto.sim import example_a, monte_carlo
    >>> gains = relative_gain(monte_carlo("pasto", example_a(), runs=100, rounds=1_000, seed=1))
    >>> bool(0.8 < gains.ratio[-1] < 1.0), gains.kept
    (True, 100)
    """
    gained = trace.answer - trace.single[:, None]
    gaps = trace.optimum - trace.single
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(trace.runs, np.full(trace.runs, 1.0 / trace.runs), size=resamples).astype(float)
    resampled = _ratios(counts @ gained, counts @ gaps)
    resampled = resampled[np.isfinite(resampled).all(axis=1)]
    kept = gaps >= gap
    own = gained[kept] / gaps[kept, None]
    nothing = np.full(gained.shape[1], np.nan)
    return Gains(
        ratio=_ratios(gained.sum(axis=0)[None], gaps.sum()[None])[0],
        error=np.asarray(resampled.std(axis=0, ddof=1)) if min(trace.runs, len(resampled)) > 1 else nothing,
        mean=np.asarray(own.mean(axis=0)) if len(own) else nothing,
        deviation=np.asarray(own.std(axis=0, ddof=1)) if len(own) > 1 else nothing,
        kept=int(kept.sum()),
    )


def _ratios(tops: Array, bottoms: Array) -> Array:
    """Each row over its bottom, NaN where there is nothing to gain."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(bottoms[:, None] > 0.0, tops / bottoms[:, None], np.nan)
