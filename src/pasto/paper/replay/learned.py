"""Learners on a crowd, many times over: each repeat splits the same users anew in every round."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pasto.errors import PastoWarning
from pasto.estimate import Sample
from pasto.objective import Array, Objective
from pasto.optimize.learners import Algorithm1, Learner, Problem, Round
from pasto.paper.replay.crowd import Crowd
from pasto.paper.replay.splits import COUNT, Splits
from pasto.sim import Progress
from pasto.sim.draws import pick
from pasto.space import Candidates
from pasto.study import Study

PARALLEL = 10
"""Q: folds of users, and candidates measured, in a round."""
AHEAD = 1_000
"""Rounds whose random numbers are drawn at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """What a learner would deploy after some numbers of rounds, in each repeat."""

    learner: str
    marks: tuple[int, ...]
    """Rounds."""
    answers: Array
    """(repeats, marks, candidates): distributions."""

    def metrics(self, truth: Array) -> Array:
        """(repeats, marks, metrics): what the answers are worth on all users."""
        return np.asarray(self.answers @ truth.T)

    def last(self, truth: Array) -> tuple[Array, Array]:
        """Means and standard errors of the metrics over repeats, (metrics,) each, after the last round."""
        final = self.metrics(truth)[:, -1]
        return final.mean(axis=0), standard_error(final)


def standard_error(values: Array) -> Array:
    """Of the mean over the first axis; NaN for a single value.

    >>> float(standard_error(np.array([1.0, 3.0])))
    1.0
    """
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    return np.asarray(values.std(axis=0, ddof=1) / np.sqrt(len(values)))


class Pool:
    """Standard errors of folds, as one for all folds of all rounds so far.

    A fold's own error goes with its own mean: where nobody happened to like anything both are zero, and a zero error
    would be believed above everything else. So would that of a round whose candidates all show none.

    >>> pool = Pool()
    >>> pool.add(np.array([[0.0], [0.2]])).round(3).tolist()
    [[0.141], [0.141]]
    >>> pool.add(np.array([[0.0], [0.0]])).round(3).tolist()
    [[0.1], [0.1]]
    """

    def __init__(self) -> None:
        self.squares: list[Array] = []

    def add(self, errors: Array) -> Array:
        """The common errors, with this round's (folds, metrics) counted in."""
        self.squares.append(np.square(errors).mean(axis=0))
        common = np.sqrt(np.mean(self.squares, axis=0))
        return np.broadcast_to(np.maximum(common, 1e-9), errors.shape)


def learn_by_algorithm1(
    crowd: Crowd,
    objective: Objective,
    *,
    repeats: int,
    rounds: int,
    seed: int = 1,
    marks: Sequence[int] | None = None,
    progress: Progress | None = None,
    label: str = "",
) -> Learned:
    """Algorithm 1 with the settings of the paper's Section 6, all repeats at once; rounds draw from common splits."""
    learner = Algorithm1()
    problem = Problem(objective, tuple(str(place) for place in range(crowd.candidates)))
    learner.check(problem)
    form = objective.form()
    wanted = tuple(mark for mark in sorted({*(marks or ()), rounds}) if mark <= rounds)
    splits = Splits.of(crowd, folds=PARALLEL, count=min(COUNT, rounds), rng=np.random.default_rng([seed, repeats]))
    state = learner.start(problem, (repeats,))
    shares = np.full((repeats, PARALLEL), 1.0 / PARALLEL)
    answers = np.empty((repeats, len(wanted), crowd.candidates))
    for number, uniforms in enumerate(_uniforms(seed, repeats, rounds), start=1):
        served = learner.propose(problem, state)
        drawn = pick(served, uniforms[:, :PARALLEL])
        seen = splits.measure(drawn, (uniforms[:, PARALLEL] * len(splits.means)).astype(np.intp))
        sample = Sample(drawn, seen, np.take_along_axis(served, drawn, axis=-1), shares)
        learner.advance(problem, state, Round(served, sample), form)
        if number in wanted:
            answers[:, wanted.index(number)] = state.served / number
        if progress is not None and number % AHEAD == 0:
            progress(label, number, rounds)
    return Learned("Algorithm 1", wanted, answers)


def learn_by_default(
    crowd: Crowd,
    objective: Objective,
    candidates: Candidates,
    *,
    repeats: int,
    rounds: int,
    seed: int = 1,
    marks: Sequence[int] | None = None,
    learner: str | Learner[Any] = "thompson",
    progress: Progress | None = None,
    label: str = "",
) -> Learned:
    """The default learner through a study, told each fold's mean and the folds' common standard error."""
    wanted = tuple(mark for mark in sorted({*(marks or ()), rounds}) if mark <= rounds)
    answers = np.empty((repeats, len(wanted), crowd.candidates))
    for repeat in range(repeats):
        study = Study(candidates, objective, learner=learner, seed=1_000 * seed + repeat)
        chance, pool = np.random.default_rng([seed, repeat]), Pool()
        for number in range(1, rounds + 1):
            assignments = study.ask(PARALLEL)
            means, errors = crowd.measure([assignment.candidate for assignment in assignments], chance)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PastoWarning)  # metrics may be changes in percent already
                study.tell(assignments, means, errors=pool.add(errors))
            if number in wanted:
                answers[repeat, wanted.index(number)] = study.blend().probabilities
            if progress is not None:
                progress(label, repeat * rounds + number, repeats * rounds)
    return Learned("default learner", wanted, answers)


def _uniforms(seed: int, repeats: int, rounds: int) -> Iterator[Array]:
    """For each round, (repeats, PARALLEL + 1): what decides the candidates, and last the split."""
    chances = [np.random.default_rng([seed, repeat]) for repeat in range(repeats)]
    for start in range(0, rounds, AHEAD):
        block = np.stack([chance.random((AHEAD, PARALLEL + 1)) for chance in chances], axis=1)
        yield from block[: rounds - start]
