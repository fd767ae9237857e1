"""What every learner is: a frozen configuration and four pure functions over a state that is a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.estimate import ControlMeans, Sample
from pasto.objective import Objective
from pasto.optimize.exploration_limits import ExplorationLimits
from pasto.records import Blend

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class LearningProblem:
    """What a learner is asked to solve: the objective, the candidates' names, and which of them is the baseline."""

    objective: Objective
    names: tuple[str, ...]
    baseline: int | None = None
    features: FloatArray | None = None
    """(candidates, dimensions): where the candidates lie, where that is known."""
    retired: frozenset[int] = frozenset()
    """Candidates that are served and answered no more."""
    limits: ExplorationLimits = field(default_factory=ExplorationLimits)
    """How far exploration may go."""

    @property
    def shape(self) -> tuple[int, int]:
        """(metrics, candidates)."""
        return len(self.objective.metrics), len(self.names)

    @property
    def active(self) -> NDArray[np.bool_]:
        """Which candidates may be served, (candidates,)."""
        active = np.ones(len(self.names), dtype=np.bool_)
        active[list(self.retired)] = False
        return active

    @property
    def order(self) -> NDArray[np.intp]:
        """The candidates in the order of their names: random numbers are handed out in it, so labels do not matter."""
        return np.array(sorted(range(len(self.names)), key=self.names.__getitem__), dtype=np.intp)


@dataclass(frozen=True, slots=True, eq=False)
class RoundResult:
    """One round as a learner sees it: what was served, and what was measured."""

    served: FloatArray
    """(..., candidates): p_t, the policy the draws came from."""
    sample: Sample
    covariances: FloatArray | None = None
    """(draws, metrics, metrics): of each measured mean, where known."""
    units: FloatArray | None = None
    """(draws,): units behind each measured mean; None is one each."""
    control: ControlMeans | None = None
    """What the round's control measured, where there was one."""


class Learner(Protocol[State]):
    """Equal state and equal random numbers, equal future: nothing is hidden."""

    name: ClassVar[str]
    even: ClassVar[bool]
    """Whether a round's draws are spread evenly over the policy (systematic) or drawn one by one (independent)."""

    def check(self, problem: LearningProblem) -> None:
        """Refuse an objective this learner cannot take, naming the cure."""
        ...

    def start(self, problem: LearningProblem) -> State:
        """The state before the first round."""
        ...

    def propose(self, problem: LearningProblem, state: State, rng: np.random.Generator) -> FloatArray:
        """The next policy, (candidates,)."""
        ...

    def learn(self, problem: LearningProblem, state: State, round: RoundResult) -> State:
        """The state after one more round; the state given is left as it was."""
        ...

    def grow(self, problem: LearningProblem, state: State) -> State:
        """The state for a problem with more candidates at the end than the state knows."""
        ...

    def answer(self, problem: LearningProblem, state: State) -> Blend:
        """The blend to deploy, as far as it is known."""
        ...

    def save(self, state: State) -> dict[str, Any]:
        """The state as a plain JSON value, bit for bit."""
        ...

    def load(self, problem: LearningProblem, saved: dict[str, Any]) -> State:
        """The state that `save` wrote."""
        ...

    def settings(self) -> dict[str, Any]:
        """The configuration as a plain JSON value, for `from_settings`."""
        ...
