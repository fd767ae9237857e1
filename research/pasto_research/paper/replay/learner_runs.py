"""Learner runs on replayed users: each repeat splits the same users again in every round."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import PastoWarning
from pasto.estimate import Sample
from pasto.objective import Objective
from pasto.optimize.learners import Algorithm1, Learner, LearningProblem, RoundResult
from pasto.sim import Progress
from pasto.sim.random_streams import draw_candidates
from pasto.space import Candidates
from pasto.study import Study
from pasto_research.paper.experiment import Table
from pasto_research.paper.replay.users import COUNT, Splits, UserSample

PARALLEL = 10
"""Q: folds of users, and candidates measured, in a round."""

BLOCK_ROUNDS = 1_000
"""Rounds whose random numbers are drawn at once."""


@dataclass(frozen=True, slots=True, eq=False)
class LearnerRuns:
    """Runs of a learner: its answer after some numbers of rounds, in each repeat."""

    learner: str
    marks: tuple[int, ...]
    """Rounds."""
    answers: FloatArray
    """(repeats, marks, candidates): distributions."""

    def metrics(self, truth: FloatArray) -> FloatArray:
        """Return the metrics of the answers on all users, (repeats, marks, metrics)."""
        return np.asarray(self.answers @ truth.T)

    def last(self, truth: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means and standard errors of the metrics over repeats, (metrics,) each, after the last round."""
        final = self.metrics(truth)[:, -1]
        return final.mean(axis=0), standard_error(final)


def standard_error(values: FloatArray) -> FloatArray:
    """Return the standard error of the mean over the first axis; NaN for a single value.

    >>> float(standard_error(np.array([1.0, 3.0])))
    1.0
    """
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    return np.asarray(values.std(axis=0, ddof=1) / np.sqrt(len(values)))


class Pool:
    """Standard errors of folds, as one for all folds of all rounds so far.

    A fold's own error goes with its own mean: if no user liked anything both are zero, and a zero error
    would dominate everything else. So would that of a round in which all candidates have none.

    >>> pool = Pool()
    >>> pool.add(np.array([[0.0], [0.2]])).round(3).tolist()
    [[0.141], [0.141]]
    >>> pool.add(np.array([[0.0], [0.0]])).round(3).tolist()
    [[0.1], [0.1]]
    """

    def __init__(self) -> None:
        self.squares: list[FloatArray] = []

    def add(self, errors: FloatArray) -> FloatArray:
        """Return the common errors, including those of this round (folds, metrics)."""
        self.squares.append(np.square(errors).mean(axis=0))
        common = np.sqrt(np.mean(self.squares, axis=0))
        return np.broadcast_to(np.maximum(common, 1e-9), errors.shape)


def learn_by_algorithm1(
    user_sample: UserSample,
    objective: Objective,
    *,
    repeats: int,
    rounds: int,
    seed: int = 1,
    marks: Sequence[int] | None = None,
    progress: Progress | None = None,
    label: str = "",
) -> LearnerRuns:
    """Run Algorithm 1 with the settings of section 6, all repeats at once; rounds draw from common splits."""
    learner = Algorithm1()
    problem = LearningProblem(objective, tuple(str(place) for place in range(user_sample.candidates)))
    learner.check(problem)
    form = objective.form()
    wanted = tuple(mark for mark in sorted({*(marks or ()), rounds}) if mark <= rounds)
    splits = Splits.of(
        user_sample, folds=PARALLEL, count=min(COUNT, rounds), rng=np.random.default_rng([seed, repeats])
    )
    state = learner.start(problem, (repeats,))
    shares = np.full((repeats, PARALLEL), 1.0 / PARALLEL)
    answers = np.empty((repeats, len(wanted), user_sample.candidates))
    for number, uniforms in enumerate(_uniforms(seed, repeats, rounds), start=1):
        served = learner.propose(problem, state)
        drawn = draw_candidates(served, uniforms[:, :PARALLEL])
        measured = splits.measure(drawn, (uniforms[:, PARALLEL] * len(splits.means)).astype(np.intp))
        sample = Sample(drawn, measured, np.take_along_axis(served, drawn, axis=-1), shares)
        learner.advance(problem, state, RoundResult(served, sample), form)
        if number in wanted:
            answers[:, wanted.index(number)] = state.served / number
        if progress is not None and number % BLOCK_ROUNDS == 0:
            progress(label, number, rounds)
    return LearnerRuns("Algorithm 1", wanted, answers)


def learn_by_default(
    user_sample: UserSample,
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
) -> LearnerRuns:
    """Run the default learner in a study, with each fold's mean and the folds' common standard error."""
    wanted = tuple(mark for mark in sorted({*(marks or ()), rounds}) if mark <= rounds)
    answers = np.empty((repeats, len(wanted), user_sample.candidates))
    for repeat in range(repeats):
        study = Study(candidates, objective, learner=learner, seed=1_000 * seed + repeat)
        chance, pool = np.random.default_rng([seed, repeat]), Pool()
        for number in range(1, rounds + 1):
            assignments = study.ask(PARALLEL)
            means, errors = user_sample.measure([assignment.candidate for assignment in assignments], chance)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PastoWarning)  # metrics may be changes in percent already
                study.tell(assignments, means, standard_errors=pool.add(errors))
            if number in wanted:
                answers[repeat, wanted.index(number)] = study.blend().probabilities
            if progress is not None:
                progress(label, repeat * rounds + number, repeats * rounds)
    return LearnerRuns("default learner", wanted, answers)


def _uniforms(seed: int, repeats: int, rounds: int) -> Iterator[FloatArray]:
    """Yield the uniforms of each round, (repeats, PARALLEL + 1): for the candidates, and last for the split."""
    chances = [np.random.default_rng([seed, repeat]) for repeat in range(repeats)]
    for start in range(0, rounds, BLOCK_ROUNDS):
        block = np.stack([chance.random((BLOCK_ROUNDS, PARALLEL + 1)) for chance in chances], axis=1)
        yield from block[: rounds - start]


TRUSTED = 0.9
"""Share of repeats that must meet a hard guardrail for a round to count."""


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """A learner's answers, round by round.

    >>> course = Course("Algorithm 1", (10, 100), np.array([[0.0, 1.0], [0.0, 3.0]]))
    >>> course.describe(100), course.reached(1.5), course.reached(5.0), course.highest
    ('2.000 ± 1.000', '100 rounds', 'never', '2.000, after 100 rounds')
    """

    learner: str
    marks: tuple[int, ...]
    """Rounds."""
    values: FloatArray
    """(repeats, marks): f, or the goal where a guardrail is hard."""
    guardrail_met: NDArray[np.bool_] | None = None
    """(repeats, marks): True if a hard guardrail is met."""
    levels: Mapping[str, float] | None = None
    """By name, what is to be reached."""
    digits: int = 3

    def describe(self, mark: int) -> str | None:
        """Return mean and standard error at a checkpoint, and the share of repeats that meet a hard guardrail."""
        if mark not in self.marks:
            return None
        index = self.marks.index(mark)
        error = float(standard_error(self.values)[index])
        text = f"{self._means[index]:.{self.digits}f}" + (f" ± {error:.{self.digits}f}" if np.isfinite(error) else "")
        return text if self.guardrail_met is None else f"{text}, kept in {self.guardrail_met[:, index].mean():.0%}"

    def reached(self, level: float) -> str:
        """Return the first checkpoint at which the mean reaches a level and a hard guardrail is met."""
        high = np.flatnonzero((self._means >= level) & self._counts)
        return f"{self.marks[high[0]]:,} rounds" if len(high) else "never"

    @property
    def highest(self) -> str:
        """Best mean and its checkpoint."""
        if not self._counts.any():
            return "never kept"
        place = int(np.argmax(np.where(self._counts, self._means, -np.inf)))
        return f"{self._means[place]:.{self.digits}f}, after {self.marks[place]:,} rounds"

    @property
    def _means(self) -> FloatArray:
        return np.asarray(self.values.mean(axis=0))

    @property
    def _counts(self) -> NDArray[np.bool_]:
        if self.guardrail_met is None:
            return np.ones(len(self.marks), dtype=bool)
        return np.asarray(self.guardrail_met.mean(axis=0) >= TRUSTED)


def tabulate(title: str, courses: Sequence[Course]) -> Table:
    """Return a table of learners: a row for every checkpoint, the rounds to each level, and the highest value.

    >>> course = Course("Algorithm 1", (10,), np.array([[0.5], [0.5]]), levels={"best single": 0.4})
    >>> tabulate("f", [course]).rows
    (('after 10 rounds', '0.500 ± 0.000'), ('reaches best single', '10 rounds'), ('highest', '0.500, after 10 rounds'))
    """
    marks = sorted({mark for course in courses for mark in course.marks})
    names = list(dict.fromkeys(name for course in courses for name in course.levels or {}))
    return Table(
        title,
        ("", *(course.learner for course in courses)),
        (
            *((f"after {mark:,} rounds", *(course.describe(mark) for course in courses)) for mark in marks),
            *((f"reaches {name}", *(_level(course, name) for course in courses)) for name in names),
            ("highest", *(course.highest for course in courses)),
        ),
    )


def _level(course: Course, name: str) -> str | None:
    levels = course.levels or {}
    return course.reached(levels[name]) if name in levels else None
