"""Results of many runs of a learner, at checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import OptionError


class Progress(Protocol):
    """Callback that receives the progress of a long computation.

    >>> from pasto.sim import example_a, monte_carlo
    >>> def print_progress(label, done, total):
    ...     print(f"{label}: {done} of {total} run-rounds")
    >>> trace = monte_carlo("algorithm1", example_a(), runs=4, rounds=50, progress=print_progress)
    algorithm1: 200 of 200 run-rounds
    """

    def __call__(self, label: str, done: int, total: int) -> None:
        """Receive that `done` of `total` steps of the computation `label` are finished."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LearningTrace:
    """Trace of a Monte Carlo experiment: f of every run's answer and policy at checkpoints, and the optimum.

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
    """(runs, checkpoints) each: values of `monte_carlo(measures=)`."""
    totals: Mapping[str, FloatArray] = field(default_factory=dict)
    """(runs, checkpoints) each: values of `monte_carlo(totals=)`, summed over all rounds so far."""

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self.answer)

    @property
    def rounds(self) -> int:
        """Number of rounds of each run."""
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
        """Return f(μ p̄_t) at one checkpoint, (runs,)."""
        columns = np.flatnonzero(self.checkpoints == round)
        if not len(columns):
            raise OptionError(f"round {round} is not a checkpoint of this trace; add it to checkpoints=")
        return np.asarray(self.answer[:, columns[0]])


def join_traces(parts: Sequence[LearningTrace]) -> LearningTrace:
    """Return one trace from the traces of parts of its runs, in order."""
    first = parts[0]
    return replace(
        first,
        answer=np.concatenate([part.answer for part in parts]),
        served=np.concatenate([part.served for part in parts]),
        probabilities=np.concatenate([part.probabilities for part in parts]),
        optimum=np.concatenate([part.optimum for part in parts]),
        single=np.concatenate([part.single for part in parts]),
        measures={name: np.concatenate([part.measures[name] for part in parts]) for name in first.measures},
        totals={name: np.concatenate([part.totals[name] for part in parts]) for name in first.totals},
    )


def checkpoint_rounds(rounds: int, *extra: int) -> tuple[int, ...]:
    """Return checkpoints evenly spaced on a log axis, ten per decade, with `rounds` and any extra ones.

    >>> checkpoint_rounds(30, 17)
    (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 17, 20, 25, 30)
    """
    checkpoints = {rounds, *(round for round in extra if 1 <= round <= rounds)}
    decade = 1
    while decade <= rounds:
        steps = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
        checkpoints |= {
            decade * step // 10 for step in steps if decade * step % 10 == 0 and decade * step // 10 <= rounds
        }
        decade *= 10
    return tuple(sorted(checkpoints))


@dataclass(frozen=True, slots=True, eq=False)
class RelativeGains:
    """Relative gain r at each checkpoint: 0 is the best single candidate, 1 the best blend; made by `relative_gain`.

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
    runs_with_gap: int
    """Number of runs with such a gap."""


def relative_gain(trace: LearningTrace, *, gap: float = 0.02, resamples: int = 400, seed: int = 0) -> RelativeGains:
    """Return the signed relative gain r of a trace, as a ratio of means and as a mean of ratios.

    The ratio of means is over all runs, and the mean of ratios over runs with a gap of at least `gap`. If no run has a
    gap, the ratios are NaN.

    >>> from pasto.sim import example_a, monte_carlo
    >>> gains = relative_gain(monte_carlo("algorithm1", example_a(), runs=100, rounds=1_000, seed=1))
    >>> bool(0.8 < gains.ratio[-1] < 1.0), gains.runs_with_gap
    (True, 100)
    """
    gains = trace.answer - trace.single[:, None]
    gaps = trace.optimum - trace.single
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(trace.runs, np.full(trace.runs, 1.0 / trace.runs), size=resamples).astype(float)
    resampled = _ratios(counts @ gains, counts @ gaps)
    resampled = resampled[np.isfinite(resampled).all(axis=1)]
    has_gap = gaps >= gap
    run_ratios = gains[has_gap] / gaps[has_gap, None]
    undefined = np.full(gains.shape[1], np.nan)
    return RelativeGains(
        ratio=_ratios(gains.sum(axis=0)[None], gaps.sum()[None])[0],
        error=np.asarray(resampled.std(axis=0, ddof=1)) if min(trace.runs, len(resampled)) > 1 else undefined,
        mean=np.asarray(run_ratios.mean(axis=0)) if len(run_ratios) else undefined,
        deviation=np.asarray(run_ratios.std(axis=0, ddof=1)) if len(run_ratios) > 1 else undefined,
        runs_with_gap=int(has_gap.sum()),
    )


def _ratios(numerators: FloatArray, denominators: FloatArray) -> FloatArray:
    """Return each row of numerators over its denominator, NaN if that is not positive."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(denominators[:, None] > 0.0, numerators / denominators[:, None], np.nan)
