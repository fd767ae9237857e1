"""An application with users in it: they are served candidates, act on them, and leave events; the truth is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pasto.objective import Array, Objective
from pasto.space import Candidates

Indices = NDArray[np.intp]
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Visits:
    """What users did, one row for each event that a real application would send."""

    unit: Indices
    """(rows,): which of the users, in rising order."""
    fields: Counts
    """(rows, columns): whole numbers, so that sums do not depend on the order in which events arrive."""

    def totals(self, users: int) -> Counts:
        """Each user's sums, (users, columns).

        >>> import numpy as np
        >>> Visits(np.array([0, 2, 2]), np.array([[5, 1], [1, 0], [2, 1]])).totals(3).tolist()
        [[5, 1], [0, 0], [3, 1]]
        """
        sums = np.zeros((users, self.fields.shape[1]), dtype=np.int64)
        np.add.at(sums, self.unit, self.fields)
        return sums


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric by the columns it is made of."""

    numerator: int
    denominator: int | None = None


class Application(Protocol):
    """Users whose requests are served by one of several candidates."""

    def __hash__(self) -> int:
        """Made once, so that what was simulated of it is known when it is asked for again."""

    @property
    def name(self) -> str:
        """Of the application and its study."""

    @property
    def candidates(self) -> Candidates:
        """What a request may be served with."""

    @property
    def baseline(self) -> int:
        """What is served today."""

    @property
    def event(self) -> str:
        """The name of the events that its users leave."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What an event carries."""

    @property
    def measures(self) -> Mapping[str, Measure]:
        """The metrics: the goal first, then those of the guardrails."""

    @property
    def objective(self) -> Objective:
        """What is asked, over the columns."""

    @property
    def document(self) -> dict[str, Any]:
        """The same question as a study file."""

    @property
    def night(self) -> float:
        """How far the mood of its users swings over a day, as a share: its own `Conditions.night`."""

    def visit(self, chosen: Indices, rng: np.random.Generator, mood: float = 1.0) -> Visits:
        """Serve one user each of these candidates, (users,); `mood` is what the hour does to all of them alike."""

    def expected(self, users: int, rng: np.random.Generator) -> Array:
        """What each of some users would do under every candidate, on average, (users, candidates, columns)."""
