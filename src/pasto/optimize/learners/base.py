"""Learner protocol: a frozen configuration and pure functions over a state that is a value.

A learner gets its problem, with the limits of exploration. The functions below it solve the problem exactly for drawn
means, and price the metrics there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import ObjectiveError, OptionError
from pasto.estimate import CandidateHistory, ControlMeans, Sample
from pasto.objective import LinearGoal, NormalForm, Objective, UtilityGoal
from pasto.optimize.exact.solver import Program, solve_batch, solve_exact

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class ExplorationLimits:
    """Limits of exploration.

    >>> ExplorationLimits(max_share=0.3, loss_budget={"like_rate": 1.0}).has_limits
    True
    """

    confidence: float = 0.95
    """The confidence with which the answer meets each hard guardrail, and the served policy each budget."""
    max_share: float | None = None
    """The largest share of any candidate except the baseline."""
    new_candidate_share: float | None = None
    """The largest share of a candidate that was never measured."""
    loss_budget: Mapping[str, float] = field(default_factory=dict)
    """The amount by which the served policy may miss a guardrail while it learns, in the guardrail's own units."""

    def __post_init__(self) -> None:
        if not 0.5 <= self.confidence < 1:
            raise OptionError(f"confidence lies from 0.5 to below 1, got {self.confidence!r}")
        for name, share in (("max_share", self.max_share), ("new_candidate_share", self.new_candidate_share)):
            if share is not None and not 0 < share <= 1:
                raise OptionError(f"{name} is a share of traffic above 0 and up to 1, got {share!r}")
        for name, loss in self.loss_budget.items():
            if not 0 <= loss < float("inf"):
                raise OptionError(f"the loss_budget of {name!r} is a loss of 0 or more, in its own units, got {loss!r}")

    @property
    def has_limits(self) -> bool:
        """True if any limit is set."""
        return self.max_share is not None or self.new_candidate_share is not None or bool(self.loss_budget)


DEPLOY_ROUNDS = 180.0
"""Rounds for which the blend is served after learning, if the study does not say: half a year of days."""


@dataclass(frozen=True, slots=True, eq=False)
class TrafficPlan:
    """Traffic of further rounds, and the rounds for which the blend is served after them.

    >>> import numpy as np
    >>> plan = TrafficPlan(np.array([0.5, 0.5]), control_share=0.2)
    >>> plan.whole_traffic(0).round(2).tolist(), plan.control_units(800.0)
    ([0.6, 0.4], 200.0)
    """

    shares: FloatArray
    """(candidates,): of the learner's units in the next round."""
    control_share: float = 0.0
    """Of the units that take part, held on the baseline."""
    explore_share: float = 1.0
    """Of all units, those that take part; the others get the baseline."""
    deploy_rounds: float = DEPLOY_ROUNDS

    def __post_init__(self) -> None:
        if not 0.0 < self.explore_share <= 1.0:
            raise OptionError(f"explore_share is a share of traffic above 0 and up to 1, got {self.explore_share!r}")
        if not 1.0 <= self.deploy_rounds < float("inf"):
            raise OptionError(f"deploy_rounds is a number of rounds of at least 1, got {self.deploy_rounds!r}")

    def whole_traffic(self, baseline: int | None) -> FloatArray:
        """Return the shares of all units in a round of learning."""
        if baseline is None:
            return self.shares
        steered = (1.0 - self.control_share) * self.explore_share
        held = np.asarray(np.arange(len(self.shares)) == baseline, dtype=float)
        return np.asarray(steered * self.shares + (1.0 - steered) * held)

    def control_units(self, units: float) -> float:
        """Return the units of the control in a round with so many units of the learner."""
        return units * self.control_share / (1.0 - self.control_share)


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
    history: CandidateHistory | None = None
    """Earlier results of the candidates; None without any."""
    traffic: TrafficPlan | None = None
    """Traffic of further rounds, for an outlook; None gives an answer without."""
    segments: tuple[str, ...] = ()
    """Names of the segments, each with a blend of its own; none is one blend for everybody."""
    segment_shares: tuple[float, ...] | None = None
    """The segments' shares of traffic, if they are stated and not learned."""

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
    segments: tuple[RoundResult | None, ...] = ()
    """The round of each segment, None without units. Then the other fields are those of one of them."""


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

    def answer(self, problem: LearningProblem, state: State) -> Any:
        """Return the blend to deploy, from the rounds so far; with segments, a `SegmentedBlend`."""
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


def draw_blends(problem: LearningProblem, means: FloatArray, samples: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the exact blend of each draw, (draws, candidates), and the metrics' prices there, (draws, metrics)."""
    active = np.flatnonzero(problem.active)
    if problem.objective.relative:
        forms = [build_form(problem, truth, means) for truth in samples]
    else:
        forms = [problem.objective.form()] * len(samples)
    samples = clip_to_ranges(forms[0], samples)
    served = samples[:, :, active]
    if isinstance(forms[0].goal, LinearGoal):
        answers = solve_batch(stack_programs(forms, served))
        active_shares, duals = answers.probabilities, answers.duals
    else:
        solutions = [solve_exact(form, truth) for form, truth in zip(forms, served, strict=True)]
        active_shares = np.array([solution.probabilities for solution in solutions])
        duals = np.array([solution.duals for solution in solutions])
    shares = np.zeros((len(samples), len(problem.names)))
    shares[:, active] = active_shares
    blended = np.einsum("nmk,nk->nm", samples, shares)
    slopes = [form.goal.gradient(y) + dual @ form.rows for form, y, dual in zip(forms, blended, duals, strict=True)]
    return shares, np.array(slopes)


def price_metrics(problem: LearningProblem, means: FloatArray) -> FloatArray:
    """Return the price of each metric at the best blend of the means: the goal's slope and the guardrails' prices."""
    form = build_form(problem, means, means)
    served = clip_to_ranges(form, means)[:, problem.active]
    solution = solve_exact(form, served)
    return np.asarray(form.goal.gradient(served @ solution.probabilities) + solution.duals @ form.rows)


def build_form(problem: LearningProblem, truth: FloatArray, fallback: FloatArray) -> NormalForm:
    """Return the objective's normal form over drawn means; percentages are over their baseline, or the fallback's."""
    if not problem.objective.relative or problem.baseline is None:
        return problem.objective.form()
    try:
        return problem.objective.form(truth[:, problem.baseline])
    except ObjectiveError:  # a draw with a negative baseline
        return problem.objective.form(fallback[:, problem.baseline])


def clip_to_ranges(form: NormalForm, samples: FloatArray) -> FloatArray:
    """Clip true means (..., metrics, candidates) to the ranges of the utility; others stay unchanged."""
    if not isinstance(form.goal, UtilityGoal):
        return samples
    clipped = samples.copy()
    for column, (low, high) in zip(form.goal.columns, form.goal.over.values(), strict=True):
        clipped[..., column, :] = np.clip(clipped[..., column, :], low, high)
    return clipped


def read_baseline_offsets(objective: Objective) -> FloatArray:
    """Return the part of the baseline's uncertainty in each guardrail: 1 + δ for y ≥ (1 + δ) y₀, 0 for y ≥ c."""
    return np.array([1.0 + rail.at / 100.0 if rail.relative else 0.0 for rail in objective.guardrails])


def stack_programs(forms: list[NormalForm], samples: FloatArray) -> Program:
    """Return the programs of many draws as one."""
    if all(form is forms[0] for form in forms):
        return Program.of(forms[0], samples)
    programs = [Program.of(form, truth) for form, truth in zip(forms, samples, strict=True)]
    return Program(
        np.array([program.goal for program in programs]),
        np.array([program.slack for program in programs]),
        forms[0].penalties,
    )
