"""Learners on a crowd, many times over: each repeat splits the same users anew in every round."""

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
from pasto_research.paper.replay.users import COUNT, Crowd, Splits

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
    answers: FloatArray
    """(repeats, marks, candidates): distributions."""

    def metrics(self, truth: FloatArray) -> FloatArray:
        """(repeats, marks, metrics): what the answers are worth on all users."""
        return np.asarray(self.answers @ truth.T)

    def last(self, truth: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means and standard errors of the metrics over repeats, (metrics,) each, after the last round."""
        final = self.metrics(truth)[:, -1]
        return final.mean(axis=0), standard_error(final)


def standard_error(values: FloatArray) -> FloatArray:
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
        self.squares: list[FloatArray] = []

    def add(self, errors: FloatArray) -> FloatArray:
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
    problem = LearningProblem(objective, tuple(str(place) for place in range(crowd.candidates)))
    learner.check(problem)
    form = objective.form()
    wanted = tuple(mark for mark in sorted({*(marks or ()), rounds}) if mark <= rounds)
    splits = Splits.of(crowd, folds=PARALLEL, count=min(COUNT, rounds), rng=np.random.default_rng([seed, repeats]))
    state = learner.start(problem, (repeats,))
    shares = np.full((repeats, PARALLEL), 1.0 / PARALLEL)
    answers = np.empty((repeats, len(wanted), crowd.candidates))
    for number, uniforms in enumerate(_uniforms(seed, repeats, rounds), start=1):
        served = learner.propose(problem, state)
        drawn = draw_candidates(served, uniforms[:, :PARALLEL])
        seen = splits.measure(drawn, (uniforms[:, PARALLEL] * len(splits.means)).astype(np.intp))
        sample = Sample(drawn, seen, np.take_along_axis(served, drawn, axis=-1), shares)
        learner.advance(problem, state, RoundResult(served, sample), form)
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
                study.tell(assignments, means, standard_errors=pool.add(errors))
            if number in wanted:
                answers[repeat, wanted.index(number)] = study.blend().probabilities
            if progress is not None:
                progress(label, repeat * rounds + number, repeats * rounds)
    return Learned("default learner", wanted, answers)


def _uniforms(seed: int, repeats: int, rounds: int) -> Iterator[FloatArray]:
    """For each round, (repeats, PARALLEL + 1): what decides the candidates, and last the split."""
    chances = [np.random.default_rng([seed, repeat]) for repeat in range(repeats)]
    for start in range(0, rounds, AHEAD):
        block = np.stack([chance.random((AHEAD, PARALLEL + 1)) for chance in chances], axis=1)
        yield from block[: rounds - start]


TRUSTED = 0.9
"""The share of repeats that must keep a hard guardrail for a round to count."""


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """A learner's answers, round by round.

    >>> course = Course("Algorithm 1", (10, 100), np.array([[0.0, 1.0], [0.0, 3.0]]))
    >>> course.told(100), course.reached(1.5), course.reached(5.0), course.highest
    ('2.000 ± 1.000', '100 rounds', 'never', '2.000, after 100 rounds')
    """

    learner: str
    marks: tuple[int, ...]
    """Rounds."""
    values: FloatArray
    """(repeats, marks): f, or the goal where a guardrail is hard."""
    kept: NDArray[np.bool_] | None = None
    """(repeats, marks): whether a hard guardrail is kept."""
    levels: Mapping[str, float] | None = None
    """By name, what is to be reached."""
    digits: int = 3

    def told(self, mark: int) -> str | None:
        """The mean after so many rounds with its standard error, and how often a hard guardrail is kept."""
        if mark not in self.marks:
            return None
        place = self.marks.index(mark)
        error = float(standard_error(self.values)[place])
        text = f"{self._means[place]:.{self.digits}f}" + (f" ± {error:.{self.digits}f}" if np.isfinite(error) else "")
        return text if self.kept is None else f"{text}, kept in {self.kept[:, place].mean():.0%}"

    def reached(self, level: float) -> str:
        """The first of the marks at which the mean is so high, and a hard guardrail kept."""
        high = np.flatnonzero((self._means >= level) & self._counts)
        return f"{self.marks[high[0]]:,} rounds" if len(high) else "never"

    @property
    def highest(self) -> str:
        """The best mean, and when."""
        if not self._counts.any():
            return "never kept"
        place = int(np.argmax(np.where(self._counts, self._means, -np.inf)))
        return f"{self._means[place]:.{self.digits}f}, after {self.marks[place]:,} rounds"

    @property
    def _means(self) -> FloatArray:
        return np.asarray(self.values.mean(axis=0))

    @property
    def _counts(self) -> NDArray[np.bool_]:
        if self.kept is None:
            return np.ones(len(self.marks), dtype=bool)
        return np.asarray(self.kept.mean(axis=0) >= TRUSTED)


def tabulate(title: str, courses: Sequence[Course]) -> Table:
    """Learners side by side: a row for every mark, then when each reaches its levels, and the highest.

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
            *((f"after {mark:,} rounds", *(course.told(mark) for course in courses)) for mark in marks),
            *((f"reaches {name}", *(_level(course, name) for course in courses)) for name in names),
            ("highest", *(course.highest for course in courses)),
        ),
    )


def _level(course: Course, name: str) -> str | None:
    levels = course.levels or {}
    return course.reached(levels[name]) if name in levels else None
