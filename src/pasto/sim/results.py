"""What many runs of a learner did, at checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import OptionError


class Progress(Protocol):
    """Told how far a long computation has come; any such function will do.

    >>> from pasto.sim import example_a, monte_carlo
    >>> def tell(label, done, total):
    ...     print(f"{label}: {done} of {total} run-rounds")
    >>> trace = monte_carlo("algorithm1", example_a(), runs=4, rounds=50, progress=tell)
    algorithm1: 200 of 200 run-rounds
    """

    def __call__(self, label: str, done: int, total: int) -> None:
        """`done` of `total` steps of what `label` names."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LearningTrace:
    """Every run of a Monte Carlo experiment: f of its answer and of its policy at checkpoints, and what was possible.

    >>> from pasto.sim import example_a, monte_carlo
    >>> trace = monte_carlo("algorithm1", example_a(), runs=50, rounds=100, seed=1)
    >>> trace.answer.shape == (50, len(trace.checkpoints))
    True
    >>> float(trace.optimum[0].round(6)), float(trace.single[0])
    (1.0125, 0.0)
    >>> bool(abs(trace.mean[-1] - trace.at(100).mean()) < 1e-12)
    True
    """

    learner: str
    parallel: int
    seed: int
    checkpoints: NDArray[np.intp]
    """(checkpoints,): rounds, counted from 1."""
    answer: FloatArray
    """(runs, checkpoints): f(μ p̄_t), the blend to deploy if learning stopped there."""
    served: FloatArray
    """(runs, checkpoints): f(μ p_t), the policy served in that round."""
    probabilities: FloatArray
    """(runs, candidates): p̄_T."""
    optimum: FloatArray
    """(runs,): f at the exact best blend."""
    single: FloatArray
    """(runs,): f at the best single candidate."""
    measures: Mapping[str, FloatArray] = field(default_factory=dict)
    """(runs, checkpoints) each: what `monte_carlo(measures=)` asked for."""
    totals: Mapping[str, FloatArray] = field(default_factory=dict)
    """(runs, checkpoints) each: what `monte_carlo(totals=)` asked for, summed over all rounds so far."""

    @property
    def runs(self) -> int:
        """How many runs there were."""
        return len(self.answer)

    @property
    def rounds(self) -> int:
        """How many rounds each run had."""
        return int(self.checkpoints[-1])

    @property
    def mean(self) -> FloatArray:
        """(checkpoints,): the mean of f(μ p̄_t) over runs."""
        return np.asarray(self.answer.mean(axis=0))

    @property
    def error(self) -> FloatArray:
        """(checkpoints,): the standard error of `mean`; NaN for a single run."""
        if self.runs == 1:
            return np.full(len(self.checkpoints), np.nan)
        return np.asarray(self.answer.std(axis=0, ddof=1) / np.sqrt(self.runs))

    def at(self, round: int) -> FloatArray:
        """(runs,): f(μ p̄_t) at one checkpoint."""
        places = np.flatnonzero(self.checkpoints == round)
        if not len(places):
            raise OptionError(f"round {round} is no checkpoint of this trace; pass checkpoints= with it among them")
        return np.asarray(self.answer[:, places[0]])


def join_traces(parts: Sequence[LearningTrace]) -> LearningTrace:
    """One trace from the traces of parts of its runs, in order."""
    whole = parts[0]
    return replace(
        whole,
        answer=np.concatenate([part.answer for part in parts]),
        served=np.concatenate([part.served for part in parts]),
        probabilities=np.concatenate([part.probabilities for part in parts]),
        optimum=np.concatenate([part.optimum for part in parts]),
        single=np.concatenate([part.single for part in parts]),
        measures={name: np.concatenate([part.measures[name] for part in parts]) for name in whole.measures},
        totals={name: np.concatenate([part.totals[name] for part in parts]) for name in whole.totals},
    )


def spaced(rounds: int, *extra: int) -> tuple[int, ...]:
    """Checkpoints evenly spaced on a log axis, ten to a decade at round numbers, with `rounds` and any extra ones.

    >>> spaced(30, 17)
    (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 17, 20, 25, 30)
    """
    found = {rounds, *(round for round in extra if 1 <= round <= rounds)}
    decade = 1
    while decade <= rounds:
        steps = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
        found |= {decade * step // 10 for step in steps if decade * step % 10 == 0 and decade * step // 10 <= rounds}
        decade *= 10
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True, eq=False)
class RelativeGains:
    """Relative gain at each checkpoint: 0 is the best single candidate, 1 the best blend; made by `relative_gain`.

    >>> from pasto.sim import example_a, monte_carlo, relative_gain
    >>> gains = relative_gain(monte_carlo("algorithm1", example_a(), runs=20, rounds=1, seed=1))
    >>> gains.ratio.round(4), gains.deviation.round(4)                 # equal shares, so every run has the same
    (array([0.9877]), array([0.]))
    """

    ratio: FloatArray
    """(checkpoints,): Σ (f(p̄) − f(single)) / Σ (f* − f(single)) over all runs."""
    error: FloatArray
    """(checkpoints,): its standard error, by resampling runs."""
    mean: FloatArray
    """(checkpoints,): the mean of the runs' own ratios, over runs with a gap of at least `gap`."""
    deviation: FloatArray
    """(checkpoints,): the standard deviation of the runs' own ratios, over the same runs."""
    kept: int
    """How many runs have such a gap."""


def relative_gain(trace: LearningTrace, *, gap: float = 0.02, resamples: int = 400, seed: int = 0) -> RelativeGains:
    """r of a trace, signed: as a ratio of means over all runs, and as a mean of ratios where the gap is not tiny.

    Where no run has a gap at all, the ratios are NaN.

    >>> from pasto.sim import example_a, monte_carlo
    >>> gains = relative_gain(monte_carlo("algorithm1", example_a(), runs=100, rounds=1_000, seed=1))
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
    return RelativeGains(
        ratio=_ratios(gained.sum(axis=0)[None], gaps.sum()[None])[0],
        error=np.asarray(resampled.std(axis=0, ddof=1)) if min(trace.runs, len(resampled)) > 1 else nothing,
        mean=np.asarray(own.mean(axis=0)) if len(own) else nothing,
        deviation=np.asarray(own.std(axis=0, ddof=1)) if len(own) > 1 else nothing,
        kept=int(kept.sum()),
    )


def _ratios(tops: FloatArray, bottoms: FloatArray) -> FloatArray:
    """Each row over its bottom, NaN where there is nothing to gain."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(bottoms[:, None] > 0.0, tops / bottoms[:, None], np.nan)
