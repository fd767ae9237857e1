"""Learner protocol: a frozen configuration and pure functions over a state that is a value."""

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
    """Problem of a learner: the objective, the candidates' names, and the baseline among them."""

    objective: Objective
    names: tuple[str, ...]
    baseline: int | None = None
    features: FloatArray | None = None
    """(candidates, dimensions): the position of each candidate, if it is known."""
    retired: frozenset[int] = frozenset()
    """Candidates that are neither served nor part of the answer any more."""
    limits: ExplorationLimits = field(default_factory=ExplorationLimits)
    """Limits of exploration."""

    @property
    def shape(self) -> tuple[int, int]:
        """(metrics, candidates)."""
        return len(self.objective.metrics), len(self.names)

    @property
    def active(self) -> NDArray[np.bool_]:
        """The candidates that may be served, (candidates,)."""
        active = np.ones(len(self.names), dtype=np.bool_)
        active[list(self.retired)] = False
        return active

    @property
    def order(self) -> NDArray[np.intp]:
        """The candidates in the order of their names; random numbers follow it, so that labels do not matter."""
        return np.array(sorted(range(len(self.names)), key=self.names.__getitem__), dtype=np.intp)


@dataclass(frozen=True, slots=True, eq=False)
class RoundCovariates:
    """The units' behaviour before a round, which explains a part of their metrics (CUPED)."""

    means: FloatArray
    """(draws, covariates)."""
    covariances: FloatArray | None = None
    """(draws, columns, columns): of each measured mean, metrics first, then covariates; None if not known."""
    control: ControlMeans | None = None
    """The control with the columns of metrics and covariates."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundResult:
    """One round as a learner reads it: the policy that was served, and the measurements."""

    served: FloatArray
    """(..., candidates): p_t, the policy the draws came from."""
    sample: Sample
    covariances: FloatArray | None = None
    """(draws, metrics, metrics): of each measured mean, if known."""
    units: FloatArray | None = None
    """(draws,): units of each measured mean; None means one each."""
    control: ControlMeans | None = None
    """The measurement of the round's control, if there was one."""
    covariates: RoundCovariates | None = None
    """The covariates of the round's units; None if they were not measured."""


class Learner(Protocol[State]):
    """Learner: equal states and equal random numbers give equal results."""

    name: ClassVar[str]
    even: ClassVar[bool]
    """True if a round's draws are spread evenly over the policy (systematic), False if they are independent."""

    def check(self, problem: LearningProblem) -> None:
        """Raise an error that names the fix if this learner cannot take the problem."""
        ...

    def start(self, problem: LearningProblem) -> State:
        """Return the state before the first round."""
        ...

    def propose(self, problem: LearningProblem, state: State, rng: np.random.Generator) -> FloatArray:
        """Return the next policy, (candidates,)."""
        ...

    def learn(self, problem: LearningProblem, state: State, round: RoundResult) -> State:
        """Return the state after one more round; the given state does not change."""
        ...

    def grow(self, problem: LearningProblem, state: State) -> State:
        """Return the state for a problem with more candidates at the end."""
        ...

    def answer(self, problem: LearningProblem, state: State) -> Blend:
        """Return the blend to deploy, from the rounds so far."""
        ...

    def save(self, state: State) -> dict[str, Any]:
        """Return the state as a plain JSON value, bit for bit."""
        ...

    def load(self, problem: LearningProblem, saved: dict[str, Any]) -> State:
        """Return the state that `save` wrote."""
        ...

    def settings(self) -> dict[str, Any]:
        """Return the configuration as a plain JSON value, for `from_settings`."""
        ...
