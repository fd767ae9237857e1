"""One learner in many worlds at once, round by round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pasto.estimate import Sample
from pasto.objective import Array, Form
from pasto.optimize.learners import Problem, Round
from pasto.optimize.learners.mirror import Mirror, MirrorState
from pasto.sim.draws import Draws, pick
from pasto.sim.world import World


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """All runs of a chunk just after a round was learned: what `measures` and `totals` of `monte_carlo` are given.

    Here the regret against the best blend, summed over rounds:

    >>> from pasto.sim import example_a, monte_carlo
    >>> def regret(moment):
    ...     return 1.0125 - moment.value(moment.running, moment.served)
    >>> trace = monte_carlo("pasto", example_a(), runs=20, rounds=10, totals={"regret": regret})
    >>> trace.totals["regret"].shape == (20, len(trace.checkpoints))
    True
    """

    round: int
    """t, counted from 1."""
    served: Array
    """(runs, candidates): p_t."""
    state: MirrorState
    """After the round; changed in place by the next one, so copy what is kept."""
    worlds: Sequence[World]
    """One for each run."""
    form: Form

    @property
    def answer(self) -> Array:
        """(runs, candidates): p̄_t."""
        return np.asarray(self.state.served / self.round)

    @property
    def estimate(self) -> Array:
        """(runs, metrics, candidates): V̂_t = (V̂_0 + Σ Û_s)/(t + 1), as Algorithm 1 keeps it."""
        return np.asarray(self.state.total / (self.round + 1))

    @property
    def running(self) -> Array:
        """(runs or 1, metrics, candidates): V_t, the running mean of the truth; μ where it stands still."""
        if all(world is self.worlds[0] for world in self.worlds):
            return self.worlds[0].running(self.round)[None]
        return np.array([world.running(self.round) for world in self.worlds])

    def value(self, means: Array, probabilities: Array) -> Array:
        """(runs,): f(means · p), for means (runs or 1, metrics, candidates)."""
        return self.form.smooth((means * probabilities[:, None, :]).sum(axis=-1))


class _Measured:
    """What candidates measure, gathered for all runs at once from tables with one row a candidate, run after run."""

    def __init__(self, worlds: Sequence[World]) -> None:
        self.worlds = worlds if any(world is not worlds[0] for world in worlds) else worlds[:1]
        metrics, count = worlds[0].truth.shape
        self.offsets = np.arange(len(self.worlds), dtype=np.intp)[:, None] * count
        self.moving = any(type(world).means is not World.means for world in self.worlds)
        self.means = self._rows([world.truth for world in self.worlds])
        self.even = all(world.noise.shape[1] == 1 for world in self.worlds)
        if self.even:  # the same for every candidate: nothing to gather
            self.noise = np.array([world.noise.T for world in self.worlds])
        else:
            self.noise = self._rows([np.broadcast_to(world.noise, (metrics, count)) for world in self.worlds])

    def at(self, round: int, chosen: NDArray[np.intp], normals: Array) -> Array:
        """(runs, draws, metrics): û."""
        if self.moving:
            self.means = self._rows([world.means(round) for world in self.worlds])
        places = chosen + self.offsets
        seen = normals * (self.noise if self.even else self.noise.take(places, axis=0))
        seen += self.means.take(places, axis=0)
        return np.asarray(seen)

    @staticmethod
    def _rows(tables: Sequence[Array]) -> Array:
        return np.concatenate([one.T for one in tables])


def play(
    learner: Mirror[Any], problem: Problem, worlds: Sequence[World], draws: Draws, *, rounds: int, parallel: int
) -> Iterator[Moment]:
    """Run the learner's own propose and advance in every world, and yield after each round."""
    state = learner.start(problem, (len(worlds),))
    form = problem.objective.form()
    measured = _Measured(worlds)
    shares = np.full((len(worlds), parallel), 1.0 / parallel)
    for number, (uniforms, normals) in enumerate(draws.rounds(rounds), start=1):
        served = learner.propose(problem, state)
        chosen = pick(served, uniforms)
        sample = Sample(
            candidates=chosen,
            metrics=measured.at(number, chosen, normals),
            probabilities=np.take_along_axis(served, chosen, axis=-1),
            shares=shares,
        )
        learner.advance(problem, state, Round(served, sample), form)
        yield Moment(number, served, state, worlds, form)
