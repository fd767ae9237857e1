"""Mirror ascent, the common part of Algorithm 1 and S-SCGD: logarithmic weights, smoothed policy, averaged answer.

All arrays may have leading axes, so that one call advances many independent runs; a study uses none.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from pasto.arrays import FloatArray
from pasto.blend import Blend
from pasto.errors import ObjectiveError, OptionError, StateError, UnsupportedError
from pasto.estimate import add_samples
from pasto.objective import NormalForm, RatioGoal
from pasto.optimize.blend_summary import summarize_blend
from pasto.optimize.learners.base import LearningProblem, RoundResult


@dataclass(frozen=True, slots=True)
class Schedule:
    """The value min(limit, scale / (t + offset)^power) in round t, counted from 1.

    >>> Schedule(0.1, offset=10).at(90)                     # the paper's ε_t = 0.1/√(t + 10)
    0.01
    >>> Schedule(2.0, limit=0.75).at(1)                     # the theorem's ε_t = G/√t, clipped
    0.75
    >>> Schedule(1.0, offset=1, power=1.0).at(3)            # b_t = 1/(t + 1)
    0.25
    """

    scale: float
    offset: float = 0.0
    power: float = 0.5
    limit: float = 1.0

    def __post_init__(self) -> None:
        if not (self.scale >= 0 and self.offset >= 0 and self.power >= 0 and self.limit >= 0):
            raise OptionError(f"a schedule's scale, offset, power and limit are not negative, got {self}")

    def at(self, round: int) -> float:
        """Return the value in a round, counted from 1."""
        return float(min(self.limit, self.scale / (round + self.offset) ** self.power))


def constant(value: float) -> Schedule:
    """Return a schedule with the same value in every round.

    >>> constant(0.001).at(7)
    0.001
    """
    return Schedule(value, power=0.0, limit=value)


@dataclass(slots=True, eq=False)
class MirrorAscentState:
    """State of a mirror-ascent learner after `rounds` rounds."""

    rounds: int
    log_weights: FloatArray
    """(..., candidates): ln w, shifted so that the largest is 0."""
    total: FloatArray
    """(..., metrics, candidates): V̂_0 + Σ Û."""
    served: FloatArray
    """(..., candidates): Σ p_t."""

    def copy(self) -> Self:
        """Return the state with arrays of its own."""
        state = replace(self)
        for f in fields(self):
            if isinstance(value := getattr(self, f.name), np.ndarray):
                setattr(state, f.name, value.copy())
        return state


State = TypeVar("State", bound=MirrorAscentState)


def smoothed(log_weights: FloatArray, floor: float) -> FloatArray:
    """Return p = (1 − ε) w/|w| + ε/K, from ln w.

    >>> import numpy as np
    >>> smoothed(np.log(np.array([3.0, 1.0])), 0.2)
    array([0.7, 0.3])
    """
    weights = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    weights *= (1.0 - floor) / weights.sum(axis=-1, keepdims=True)
    weights += floor / log_weights.shape[-1]
    return np.asarray(weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorAscent(Generic[State]):
    """The shared half of both learners of the paper."""

    name: ClassVar[str]
    even: ClassVar[bool] = False
    state: ClassVar[type[Any]]
    floor: Schedule = field(default=Schedule(0.1, offset=10))
    """ε_t."""
    step: Schedule | float | None = None
    """γ_t; None is the paper's 0.1/K."""
    initial: tuple[tuple[float, ...], ...] | None = None
    """V̂_0, (metrics, candidates); None is zero."""

    def check(self, problem: LearningProblem) -> None:
        """Refuse objectives without a finite gradient."""
        if problem.objective.hard:
            raise UnsupportedError(
                f"learner {self.name!r} follows a gradient, and the hard guardrail on {problem.objective.hard[0]!r} "
                "has none; give that guardrail a penalty=, which makes it soft"
            )
        if problem.objective.relative:
            if problem.baseline is None:
                problem.objective.form()  # raises an error that names the threshold
        elif isinstance(problem.objective.form().goal, RatioGoal):
            raise UnsupportedError(
                f"learner {self.name!r} needs a concave goal, and a ratio is none; maximise the numerator and keep the "
                "denominator, or solve for it with pasto.solve"
            )
        if problem.limits.has_limits or problem.retired:
            raise UnsupportedError(
                f"learner {self.name!r} knows no caps, budgets or retired candidates; learner='thompson' does"
            )
        if self.initial is not None and np.shape(self.initial) != problem.shape:
            raise OptionError(
                f"initial= needs the shape (metrics, candidates) = {problem.shape}, got {np.shape(self.initial)}"
            )

    def start(self, problem: LearningProblem, runs: tuple[int, ...] = ()) -> State:
        """Equal weights and V̂_0, for one study or for many runs at once."""
        metrics, count = problem.shape
        total = np.zeros((*runs, metrics, count))
        if self.initial is not None:
            total += np.asarray(self.initial)
        began: State = self.state(
            rounds=0, log_weights=np.zeros((*runs, count)), total=total, served=np.zeros((*runs, count))
        )
        return began

    def propose(self, problem: LearningProblem, state: State, rng: np.random.Generator | None = None) -> FloatArray:
        """Return p_t: the weights, smoothed by the round's floor, without randomness."""
        return smoothed(state.log_weights, self.floor.at(state.rounds + 1))

    def learn(self, problem: LearningProblem, state: State, round: RoundResult) -> State:
        """Return the state after one more round."""
        after = state.copy()
        self.advance(problem, after, round, self.form(problem, after))
        return after

    def advance(self, problem: LearningProblem, state: State, round: RoundResult, form: NormalForm | None) -> None:
        """Learn one round in place; `form` is None while a relative objective's baseline is not known yet."""
        state.rounds += 1
        state.served += round.served
        add_samples(state.total, round.sample)
        if form is None:
            return
        state.log_weights += self.pace(problem).at(state.rounds) * self.gradient(state, round, form)
        state.log_weights -= state.log_weights.max(axis=-1, keepdims=True)

    def gradient(self, state: State, round: RoundResult, form: NormalForm) -> FloatArray:
        """Return g_t, (..., candidates)."""
        raise NotImplementedError

    def pace(self, problem: LearningProblem) -> Schedule:
        """Return γ as a schedule."""
        if isinstance(self.step, Schedule):
            return self.step
        return constant(0.1 / len(problem.names) if self.step is None else self.step)

    def form(self, problem: LearningProblem, state: State) -> NormalForm | None:
        """Return the objective's normal form; percentages are over the estimated baseline."""
        if not problem.objective.relative:
            return problem.objective.form()
        try:
            return problem.objective.form(state.total[:, problem.baseline] / (state.rounds + 1))
        except ObjectiveError:  # the baseline has not been drawn yet, or its estimate is still negative
            return None

    def means(self, state: State) -> FloatArray:
        """Return the estimated means, (..., metrics, candidates), without the bias that V̂_0 = 0 leaves in V̂."""
        return np.asarray(state.total / (state.rounds + (self.initial is not None)))

    def grow(self, problem: LearningProblem, state: State) -> State:
        """Refused: the weights of a new candidate would have no history to stand on."""
        raise UnsupportedError(f"learner {self.name!r} cannot take new candidates in mid-study; learner='thompson' can")

    def answer(self, problem: LearningProblem, state: State) -> Blend:
        """Return p̄_T, the mean of the served policies, with its estimated metrics."""
        return summarize_blend(
            state.served / state.rounds,
            self.means(state),
            problem.objective,
            names=problem.names,
            baseline=problem.baseline,
        )

    def save(self, state: State) -> dict[str, Any]:
        """Return the state as lists and numbers."""
        return {
            f.name: value.tolist() if isinstance(value := getattr(state, f.name), np.ndarray) else value
            for f in fields(state)
        }

    def load(self, problem: LearningProblem, saved: dict[str, Any]) -> State:
        """Return the state that `save` wrote."""
        fresh = self.start(problem)
        for f in fields(fresh):
            expected = getattr(fresh, f.name)
            if f.name not in saved or np.shape(saved[f.name]) != np.shape(expected):
                raise StateError(f"the saved learner has no {f.name!r} of shape {np.shape(expected)}")
            value = np.asarray(saved[f.name], dtype=float) if isinstance(expected, np.ndarray) else int(saved[f.name])
            setattr(fresh, f.name, value)
        return fresh

    def settings(self) -> dict[str, Any]:
        """Return the configuration as a plain JSON value."""
        return asdict(self)

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Self:
        """Return the learner that `settings` described."""
        if unknown := set(settings) - {field.name for field in fields(cls)}:
            raise StateError(f"learner {cls.name!r} has no setting {sorted(unknown)[0]!r}")
        values: dict[str, Any] = {
            key: Schedule(**value) if isinstance(value, dict) else value for key, value in settings.items()
        }
        if values.get("initial") is not None:
            values["initial"] = tuple(tuple(float(mean) for mean in row) for row in values["initial"])
        return cls(**values)
