"""Figure 4: long runs of Algorithm 1 on random worlds, at several noise levels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pasto.arrays import FloatArray
from pasto.optimize.learners import Algorithm1
from pasto.optimize.learners.mirror_ascent import constant
from pasto.sim import LearningTrace, RelativeGains, RunRound, checkpoint_rounds, monte_carlo, relative_gain, synthetic_b
from pasto_research.paper.experiment import Size

SIGMAS = (0.1, 0.5, 1.0)
"""The paper names no levels; these are ours."""
PARALLEL = 10
CANDIDATES = 100
LONGER, FEWER = 10, 20
"""A twentieth of the runs continues for ten times the rounds."""
GAP = 0.02
"""Runs whose best blend gains less than this over their best single candidate have no ratio worth averaging."""
HELD = 0.03
"""A floor ε that stands still at about the value where the paper's ε_t = 0.1/√(t+10) begins, as a control."""


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """One noise level: the main part, and fewer runs that go on for longer."""

    sigma: float
    main: LearningTrace
    long: LearningTrace
    main_gains: RelativeGains
    long_gains: RelativeGains
    served: RelativeGains
    """Of the policy served in each round of the long part."""

    @property
    def name(self) -> str:
        """The noise, as figures and tables say it."""
        return f"σ = {self.sigma:g}"

    def at(self, mark: int) -> tuple[RelativeGains, LearningTrace, int]:
        """Return the gains that contain a round, their trace, and the round's index in it."""
        short = mark <= self.main.rounds
        gains, trace = (self.main_gains, self.main) if short else (self.long_gains, self.long)
        return gains, trace, int(np.flatnonzero(trace.checkpoints == mark)[0])


def play_level(sigma: float, size: Size) -> Level:
    """Run Algorithm 1 with the paper's settings at one noise level."""
    main = _play(Algorithm1(), sigma, size.runs, size.rounds, size, f"synthetic-b: σ = {sigma:g}")
    runs, rounds = max(2, size.runs // FEWER), size.rounds * LONGER
    long = _play(Algorithm1(), sigma, runs, rounds, size, f"synthetic-b: σ = {sigma:g}, long")
    return Level(sigma, main, long, relative_gain(main, gap=GAP), relative_gain(long, gap=GAP), served_gain(long))


def play_held(level: Level, size: Size) -> LearningTrace:
    """Repeat the long runs of a level with the same random numbers and a constant floor."""
    learner = Algorithm1(floor=constant(HELD))
    runs, rounds = level.long.runs, level.long.rounds
    return _play(learner, level.sigma, runs, rounds, size, f"synthetic-b: {level.name}, floor held")


def served_gain(trace: LearningTrace) -> RelativeGains:
    """Return the gains of the policy served in each round; the answer is the mean of all of them."""
    return relative_gain(replace(trace, answer=trace.served), gap=GAP)


def _play(learner: Algorithm1, sigma: float, runs: int, rounds: int, size: Size, label: str) -> LearningTrace:
    return monte_carlo(
        learner,
        lambda rng: synthetic_b(rng, sigma, CANDIDATES),
        runs=runs,
        rounds=rounds,
        parallel=PARALLEL,
        seed=size.seed,
        checkpoints=checkpoint_rounds(rounds),
        measures={"smallest": _smallest, "error": _error},
        progress=size.progress,
        label=label,
    )


def _smallest(moment: RunRound) -> FloatArray:
    """Return the smallest probability of a candidate."""
    return np.asarray(moment.served.min(axis=1))


def _error(moment: RunRound) -> FloatArray:
    """Return the root mean square of V̂ − μ over metrics and candidates."""
    return np.asarray(np.sqrt(np.square(moment.estimate - moment.running).mean(axis=(1, 2))))
