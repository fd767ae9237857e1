"""How learners come along: what their answers are worth after so many rounds, and when they reach what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.objective import Array
from pasto.paper.experiment import Table
from pasto.paper.replay.learned import standard_error

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
    values: Array
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
    def _means(self) -> Array:
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
