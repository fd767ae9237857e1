"""Outline of a study before it starts: objective, candidates, traffic and rounds, and facts about the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import MeansError, OptionError, UnsupportedError
from pasto.objective import Objective
from pasto.objective.objective import Utility
from pasto.objective.ratio_metric import Ratio
from pasto.planning.learning_forecast import LearningScenario

DailySwing = Literal["unknown", "seen", "none"]
FactSource = Literal["given", "history", "study", "zero or one", "count", "one event", "default"]
"""Where a number comes from: the user, a file, an earlier study, or an assumption about the kind of metric."""

DEFAULT_VARIATION = 2.0
"""Assumed deviation of one unit, as a multiple of the mean."""
DEFAULT_SPREAD = 0.02
"""Assumed deviation of the candidates' effects, as a share of the mean."""
DEFAULT_COMPETITION = 0.5
"""Assumed correlation of a candidate's gain in the goal with its loss in a guardrail."""
LENGTH_SCALE = 1.0
"""Assumed distance, as a part of each parameter's range, over which effects are similar."""
OWN_VARIANCE = 0.01
"""Assumed part of the effects' variance that neighbours do not share."""
MAX_FACTORS, MIN_FACTOR_VARIANCE = 8, 0.002
"""Factors that describe what neighbours share, and the least part of the variance of each."""
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class MetricFacts:
    """Facts about one metric; None is not known.

    >>> MetricFacts(mean=0.25, deviation=0.5).variation
    2.0
    """

    mean: float | None = None
    """Mean of the units that get the baseline."""
    deviation: float | None = None
    """Standard deviation of one unit; of a ratio N/D, that of (N − ratio · D) / mean of D."""
    spread: float | None = None
    """Standard deviation of the candidates' effects, as a share of the mean."""
    sources: Mapping[str, FactSource] = field(default_factory=dict)
    """Source of each fact by its name; "given" if it is not named."""

    @property
    def variation(self) -> float | None:
        """Deviation of one unit as a multiple of the mean."""
        return None if self.deviation is None or not self.mean else self.deviation / abs(self.mean)


@dataclass(frozen=True, slots=True)
class TrafficOutline:
    """Traffic of a study."""

    units_per_day: float
    control: float = 0.1
    """Share of the units that take part."""
    explore: float = 1.0
    """Share of all units that take part; of a ramp, its last step."""
    min_share: float = 0.01
    max_share: float | None = None
    new_candidate_share: float | None = None

    @property
    def enrolled_per_day(self) -> float:
        """Units a day that take part."""
        return self.units_per_day * self.explore


@dataclass(frozen=True, slots=True)
class RoundsOutline:
    """Rounds of a study, in seconds."""

    every: float | None = None
    """Length as the study file has it; None if it is not stated."""
    maturity: float = 0.0
    window: float = 0.0
    """Longest window of a metric."""
    daily_swing: DailySwing = "unknown"


@dataclass(frozen=True, slots=True, eq=False)
class StudyOutline:
    """Outline of a study, and the facts about every metric of its objective."""

    objective: Objective
    facts: Mapping[str, MetricFacts]
    """By metric or ratio; complete, see `complete_facts`."""
    candidates: int
    traffic: TrafficOutline
    rounds: RoundsOutline = RoundsOutline()
    confidence: float = 0.95
    loss_budgets: Mapping[str, float] = field(default_factory=dict)
    """By guardrail, in its own terms."""
    stop_levels: Mapping[str, float] = field(default_factory=dict)
    """By guardrail, in its own terms."""
    competition: float = DEFAULT_COMPETITION
    points: FloatArray | None = None
    """(candidates, columns): positions of the candidates with the baseline first; None if they have no numbers."""
    is_space: bool = False
    """True if the study begins with these candidates and chooses others from ranges."""
    unit: str = "unit"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics and ratios of the goal, then of the guardrails."""
        return planned_metrics(self.objective)

    def scenario(self, *, candidates: int, control: float, round_seconds: float) -> LearningScenario:
        """Return the scenario that the forecast simulates, with another number of candidates, control or round."""
        objective, traffic = self.objective, self.traffic
        scales = np.array([self._scale(name) for name in self.metrics])
        goal, rails = self._rows(scales)
        budgets = [self.loss_budgets.get(name, np.inf) for name in objective.names]
        return LearningScenario(
            candidates=candidates,
            units=traffic.enrolled_per_day * round_seconds / DAY_SECONDS,
            deviations=scales * np.array([self.facts[name].variation or 0.0 for name in self.metrics]),
            effects=self._effects(scales),
            goal=goal,
            rails=rails,
            slack=np.array([self.slack(name) for name in objective.names]),
            penalties=np.array([np.inf if rail.penalty is None else rail.penalty for rail in objective.guardrails]),
            relative=np.array([rail.relative for rail in objective.guardrails], dtype=bool),
            control=control,
            min_share=traffic.min_share,
            max_share=traffic.max_share,
            new_candidate_share=traffic.new_candidate_share,
            loss_budgets=np.array(budgets) if self.loss_budgets else None,
            confidence=self.confidence,
            lag=int(np.ceil(self.rounds.maturity / round_seconds)),
            factors=self._factors(candidates),
            own_variance=OWN_VARIANCE,
        )

    def slack(self, guardrail: str) -> float:
        """Return the distance of the baseline from a guardrail's limit, in the guardrail's terms; negative beyond."""
        rail = self.objective.guardrails[self.objective.names.index(guardrail)]
        level = 0.0 if rail.relative else self.facts[rail.label].mean or 0.0
        return (level - rail.at) * (1.0 if rail.lower else -1.0)

    def stop_distance(self, guardrail: str) -> float | None:
        """Return the distance from a guardrail's limit to its stop level, in its own terms; None without one."""
        stop = self.stop_levels.get(guardrail)
        rail = self.objective.guardrails[self.objective.names.index(guardrail)]
        return None if stop is None else (rail.at - stop) * (1.0 if rail.lower else -1.0)

    def deviation(self, metric: str) -> float:
        """Return the deviation of one unit, in the terms in which the objective counts the metric."""
        return self._scale(metric) * (self.facts[metric].variation or 0.0)

    @property
    def goal_deviation(self) -> float:
        """Deviation of one unit in the goal; its metrics are taken to be uncorrelated."""
        scales = np.array([self._scale(name) for name in self.metrics])
        goal, _ = self._rows(scales)
        variations = np.array([self.facts[name].variation or 0.0 for name in self.metrics])
        return float(np.sqrt(np.square(goal * scales * variations).sum()))

    def _scale(self, metric: str) -> float:
        """Return the baseline's mean in the terms of the metric: 100 if it is counted in percent."""
        if metric in relative_names(self.objective):
            return 100.0
        return abs(self.facts[metric].mean or 0.0)

    def _rows(self, scales: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the goal (metrics,) and the guardrails (guardrails, metrics) as rows over effects."""
        objective, names = self.objective, self.metrics
        goal = np.zeros(len(names))
        for name, weight in goal_weights(objective).items():
            goal[names.index(name)] = objective.sign * weight
        rails = np.zeros((len(objective.guardrails), len(names)))
        relative = relative_names(objective)
        for place, rail in enumerate(objective.guardrails):
            column = names.index(rail.label)
            # A limit in the metric's own units may meet a metric that is counted in percent.
            unit = 1.0 if rail.relative or rail.label not in relative else abs(self.facts[rail.label].mean or 0) / 100.0
            rails[place, column] = unit if rail.lower else -unit
        return goal, rails

    def _effects(self, scales: FloatArray) -> FloatArray:
        """Return the covariance of the effects: one factor moves the goal against the guardrails."""
        goal, rails = self._rows(scales)
        sides = np.sign(goal) - np.where(goal == 0.0, np.sign(rails.sum(axis=0)), 0.0)
        loadings = np.sqrt(self.competition) * sides
        correlations = np.outer(loadings, loadings)
        np.fill_diagonal(correlations, 1.0)
        spreads = scales * np.array([self.facts[name].spread or 0.0 for name in self.metrics])
        return np.asarray(np.outer(spreads, spreads) * correlations)

    def _factors(self, candidates: int) -> FloatArray | None:
        """Return what neighbours share, in a random order of the candidates; None if they have no positions."""
        if self.points is None:
            return None
        others = self.points[1:][np.random.default_rng([len(self.points), 0]).permutation(len(self.points) - 1)]
        missing = candidates - 1 - len(others)
        if missing > 0:  # more settings of the same ranges
            rng = np.random.default_rng([len(self.points), 1])
            low, high = self.points.min(axis=0), self.points.max(axis=0)
            others = np.concatenate([others, rng.uniform(low, high, (missing, self.points.shape[1]))])
        return neighbour_factors(np.concatenate([self.points[:1], others]))


def neighbour_factors(points: FloatArray) -> FloatArray:
    """Return factors (points − 1, rank) of smooth effects over the first point.

    Their variance is 1 − OWN_VARIANCE on average over the points.

    >>> factors = neighbour_factors(np.array([[0.5], [0.0], [1.0], [0.55]]))
    >>> (factors @ factors.T).round(1).tolist()
    [[1.5, -1.0, -0.1], [-1.0, 1.5, 0.1], [-0.1, 0.1, 0.0]]
    """
    squares = np.square(points[:, None] - points[None]).sum(axis=-1)
    kernel = np.exp(-0.5 * squares / LENGTH_SCALE**2)
    effects = kernel[1:, 1:] - kernel[1:, :1] - kernel[:1, 1:] + 1.0
    smooth = (1.0 - OWN_VARIANCE) * effects / max(float(np.diag(effects).mean()), 1e-9)
    values, vectors = np.linalg.eigh(smooth)
    first = values[::-1][:MAX_FACTORS]
    is_large = first > MIN_FACTOR_VARIANCE * values.sum()
    return np.asarray(vectors[:, ::-1][:, : len(first)][:, is_large] * np.sqrt(first[is_large]))


def planned_metrics(objective: Objective) -> tuple[str, ...]:
    """Return the metrics and ratios of the goal, then of the guardrails.

    >>> import pasto
    >>> objective = pasto.maximize("watch").keep(pasto.ratio("likes", "views", name="like_rate"), at_least="-2%")
    >>> planned_metrics(objective)
    ('watch', 'like_rate')
    """
    sources = [*objective.goal_metrics, *(rail.metric for rail in objective.guardrails)]
    return tuple(dict.fromkeys(source.name if isinstance(source, Ratio) else source for source in sources))


def relative_names(objective: Objective) -> frozenset[str]:
    """Return the metrics and ratios that are counted in percent over the baseline."""
    if not objective.relative:
        return frozenset()
    goals = [source.name if isinstance(source, Ratio) else source for source in objective.goal_metrics]
    return frozenset([*goals, *(rail.label for rail in objective.guardrails if rail.relative)])


def goal_weights(objective: Objective) -> dict[str, float]:
    """Return the weight of each metric of the goal, or refuse a utility."""
    match objective.target:
        case Utility():
            raise UnsupportedError(
                "a plan needs a goal that is a metric, a ratio or a weighted sum of metrics, got a utility; plan with "
                "its most important metric instead"
            )
        case Ratio(name=name):
            return {name: 1.0}
        case weights:
            return dict(weights)


def complete_facts(objective: Objective, facts: Mapping[str, MetricFacts]) -> dict[str, MetricFacts]:
    """Return facts about every metric of an objective; what is missing is assumed and marked as such.

    >>> import pasto
    >>> complete_facts(pasto.maximize("watch"), {"watch": MetricFacts(mean=30.0)})
    {'watch': MetricFacts(mean=30.0, deviation=60.0, spread=0.02, sources={'deviation': 'default', 'spread': ...
    """
    goal_weights(objective)
    names = planned_metrics(objective)
    if unknown := [name for name in facts if name not in names]:
        raise OptionError(f"{unknown[0]!r} is not a metric of the goal or a guardrail; there are {', '.join(names)}")
    return {name: _complete(objective, name, facts.get(name, MetricFacts())) for name in names}


def _complete(objective: Objective, name: str, facts: MetricFacts) -> MetricFacts:
    """Return the facts about one metric, checked, with assumptions for those that are missing."""
    for label, value in (("mean", facts.mean), ("deviation", facts.deviation), ("spread", facts.spread)):
        if value is not None and not (np.isfinite(value) and (value > 0 or label == "mean")):
            need = "a finite number" if label == "mean" else "a positive number"
            raise MeansError(f"the {label} of {name} must be {need}, got {value:g}")
    sources = dict(facts.sources)
    mean = facts.mean
    if not mean:
        own_units = [rail for rail in objective.guardrails if rail.label == name and not rail.relative]
        if own_units or name not in relative_names(objective):
            reason = f"its guardrail {own_units[0]} is" if own_units else "it is counted"
            if mean is None:
                raise MeansError(
                    f"the mean of {name} is needed, because {reason} in its own units; add --mean {name}=X, or "
                    "means= in Python"
                )
            raise MeansError(f"the mean of {name} must not be 0, because {reason} in its own units")
        if facts.deviation is not None:
            raise MeansError(f"the standard deviation of {name} needs its mean, because it is counted in percent")
        mean = 1.0
        sources["mean"] = "default"
    deviation = facts.deviation
    if deviation is None:
        deviation = DEFAULT_VARIATION * abs(mean)
        sources["deviation"] = "default"
    spread = facts.spread
    if spread is None:
        spread = DEFAULT_SPREAD
        sources["spread"] = "default"
    return MetricFacts(mean, deviation, spread, sources)
