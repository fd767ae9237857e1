"""Worlds for `pasto bench plan`: studies drawn at random, with metrics of several shapes and a known truth.

A cell of a million units is drawn at once: its mean and variance come from the distribution of sums, or close to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import ndtri

import pasto
from pasto.arrays import FloatArray
from pasto.objective import Objective
from pasto.observation import Observation
from pasto.optimize import Program, solve_linear
from pasto.optimize.learners import Thompson
from pasto.planning import MetricFacts, StudyOutline, TrafficOutline, complete_facts

MetricShape = Literal["bell", "share", "purchases"]
EffectShape = Literal["independent", "sparse", "line"]
BUYERS = 0.03
"""Share of units that buy."""
PURCHASE_SHAPE = 0.6
"""Shape of the gamma distribution of a purchase's amount."""
SPARSE_PART = 0.25
"""Part of the candidates that differ from the baseline at all, in a sparse world."""


@dataclass(frozen=True, slots=True)
class UnitMetric:
    """Metric of one unit."""

    shape: MetricShape
    mean: float
    variation: float = 1.0
    """Deviation over mean, of a bell-shaped metric."""

    @property
    def deviation(self) -> float:
        """Standard deviation of one unit."""
        if self.shape == "share":
            return float(np.sqrt(self.mean * (1.0 - self.mean)))
        if self.shape == "purchases":
            return float(self.mean * np.sqrt((1.0 + 1.0 / PURCHASE_SHAPE) / BUYERS - 1.0))
        return self.variation * self.mean

    def sample(self, mean: float, units: int, rng: np.random.Generator) -> tuple[float, float]:
        """Return the mean of a cell's units and the variance of one unit."""
        if self.shape == "share":
            rate = float(rng.binomial(units, mean)) / units
            return rate, rate * (1.0 - rate)
        if self.shape == "purchases":  # more units buy where the mean is higher; a sum of gammas is a gamma
            amount = self.mean / BUYERS
            bought = int(rng.binomial(units, BUYERS * mean / self.mean))
            average = float(rng.gamma(PURCHASE_SHAPE * bought)) * amount / PURCHASE_SHAPE / units if bought else 0.0
            second = bought / units * amount**2 * (1.0 + 1.0 / PURCHASE_SHAPE)
            scatter = 1.0 + 2.0 * rng.standard_normal() / np.sqrt(max(bought, 4))
            return average, max(second * max(scatter, 0.2) - average**2, 0.1 * average**2)
        deviation = self.variation * mean
        variance = deviation**2 * float(rng.chisquare(units - 1)) / (units - 1)
        return float(rng.normal(mean, deviation / np.sqrt(units))), variance


@dataclass(frozen=True, slots=True)
class PlanWorld:
    """Kind of study: its traffic, metrics and guardrails, and how candidates differ.

    Effects are independent, or zero except for a quarter of the candidates, or cubic curves over one parameter.
    """

    name: str
    candidates: int
    units: float
    """A day, which is a round."""
    metrics: tuple[UnitMetric, ...]
    """The goal, then the metric of each guardrail."""
    limits: tuple[float, ...]
    """Percent over the baseline."""
    spreads: tuple[float, ...]
    """Deviation of the candidates' effects in percent, by metric."""
    competition: float = 0.5
    control: float = 0.1
    soft: bool = False
    loss_budget: float | None = None
    new_candidate_share: float | None = None
    effects: EffectShape = "independent"

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return ("goal", *(f"guard {place}" for place in range(1, len(self.metrics))))

    @property
    def objective(self) -> Objective:
        """The goal and its guardrails."""
        objective = pasto.maximize("goal")
        for label, limit in zip(self.labels[1:], self.limits, strict=True):
            objective = objective.keep(label, at_least=f"{limit:+g}%", penalty=2.0 if self.soft else None)
        return objective

    @property
    def loss_budgets(self) -> dict[str, float]:
        """Loss budgets by guardrail."""
        return {} if self.loss_budget is None else dict.fromkeys(self.labels[1:], self.loss_budget)

    def outline(self) -> StudyOutline:
        """Return what a team knows of it before the study."""
        facts = {
            label: MetricFacts(metric.mean, metric.deviation, spread / 100.0)
            for label, metric, spread in zip(self.labels, self.metrics, self.spreads, strict=True)
        }
        return StudyOutline(
            objective=self.objective,
            facts=complete_facts(self.objective, facts),
            candidates=self.candidates,
            traffic=TrafficOutline(self.units, self.control, new_candidate_share=self.new_candidate_share),
            loss_budgets=self.loss_budgets,
            competition=self.competition,
            points=self.line[:, None] if self.effects == "line" else None,
        )

    @property
    def line(self) -> FloatArray:
        """Positions of candidates on a line, the baseline in the middle first."""
        points = np.linspace(0.0, 1.0, self.candidates)
        return np.roll(points, -(self.candidates // 2))

    def draw_effects(self, rng: np.random.Generator) -> FloatArray:
        """Draw the effects of all candidates in percent, (metrics, candidates); those of the baseline are zero."""
        metrics, others = len(self.metrics), self.candidates - 1
        own = rng.standard_normal((metrics, others))
        common = rng.standard_normal(others)
        if self.effects == "line":
            powers = np.power(2.0 * (self.line - self.line[0]), np.arange(1, 4)[:, None])[:, 1:]
            sizes = np.array([1.0, 0.7, 0.5])
            curves = (rng.standard_normal((metrics + 1, 3)) * sizes) @ powers
            curves /= np.sqrt((sizes**2 @ powers**2).mean())
            own, common = curves[1:], curves[0]
        sides = np.where(np.arange(metrics) == 0, 1.0, -1.0)
        scores = np.sqrt(1.0 - self.competition) * own + np.sqrt(self.competition) * sides[:, None] * common
        if self.effects == "sparse":
            scores *= (rng.permutation(others) < max(1, round(SPARSE_PART * others))) / np.sqrt(SPARSE_PART)
        effects = np.array(self.spreads)[:, None] * scores
        return np.concatenate([np.zeros((metrics, 1)), effects], axis=1)

    def study(self, seed: int, control: float) -> pasto.Study:
        """Return a study of this world that has learned nothing yet."""
        rows = [{"x": float(x)} if self.effects == "line" else {"id": f"c{k}"} for k, x in enumerate(self.line)]
        return pasto.Study(
            rows,
            self.objective,
            learner=Thompson(contrast="auto"),
            seed=seed,
            baseline=0,
            control_share=control,
            loss_budget=self.loss_budgets or None,
            new_candidate_share=self.new_candidate_share,
        )

    def run_round(
        self, study: pasto.Study, means: FloatArray, control: float, units: int, rng: np.random.Generator
    ) -> None:
        """Serve the study's policy to the units of a round, and let it learn."""
        policy = study.policy
        held = round(control * units)
        counts = rng.multinomial(units - held, np.array(policy.probabilities) / sum(policy.probabilities))
        cells = [(k, count, False) for k, count in enumerate(counts.tolist()) if count >= 2]
        if held >= 2:
            cells.append((0, held, True))
        observations = []
        for candidate, count, is_control in cells:
            drawn = [
                metric.sample(mean, count, rng) for metric, mean in zip(self.metrics, means[:, candidate], strict=True)
            ]
            covariance = np.diag([variance / count for _, variance in drawn]).tolist()
            observations.append(
                Observation(
                    policy.version,
                    candidate,
                    count,
                    tuple(mean for mean, _ in drawn),
                    tuple(map(tuple, covariance)),
                    control=is_control,
                )
            )
        study.observe(observations)

    def value(self, effects: FloatArray, shares: FloatArray) -> float:
        """Return the true f of a blend over the baseline: the goal in percent, less the soft penalties."""
        return float(self._program(effects).value(shares))

    def best_value(self, effects: FloatArray) -> float:
        """Return the true f of the best blend."""
        program = self._program(effects)
        return float(program.value(solve_linear(program).probabilities))

    def slack(self, effects: FloatArray, shares: FloatArray) -> FloatArray:
        """Return the true slack of each guardrail in percent of the baseline, (guardrails,)."""
        return np.asarray(effects[1:] @ shares - np.array(self.limits))

    def _program(self, effects: FloatArray) -> Program:
        penalties = np.full(len(self.limits), 2.0 if self.soft else np.inf)
        return Program(effects[0], effects[1:] - np.array(self.limits)[:, None], penalties)


def draw_world(seed: int) -> PlanWorld:
    """Draw a world at random; a guardrail's certificate takes from about three to thirty days.

    >>> world = draw_world(1)
    >>> 4 <= world.candidates <= 60, len(world.limits) == len(world.metrics) - 1
    (True, True)
    """
    rng = np.random.default_rng([seed, 20])
    guardrails = int(rng.integers(1, 4))
    metrics = tuple(_draw_metric(rng) for _ in range(1 + guardrails))
    limits = tuple(float(limit) for limit in -np.round(rng.uniform(1.0, 4.0, guardrails), 1))
    spreads = tuple(float(spread) for spread in np.round(rng.uniform(1.0, 4.0, 1 + guardrails), 1))
    control = float(rng.choice([0.1, 0.2, 0.3]))
    effects: EffectShape = ("independent", "independent", "independent", "sparse", "line")[int(rng.integers(5))]
    limited = rng.random() < 0.2
    world = PlanWorld(
        name="",
        candidates=round(float(np.exp(rng.uniform(np.log(4.0), np.log(60.0))))),
        units=1.0,
        metrics=metrics,
        limits=limits,
        spreads=spreads,
        competition=float(np.round(rng.uniform(0.2, 0.8), 1)),
        control=control,
        soft=rng.random() < 0.15,
        loss_budget=1.0 if limited else None,
        new_candidate_share=0.02 if limited else None,
        effects=effects,
    )
    days = float(np.exp(rng.uniform(np.log(3.0), np.log(25.0))))
    slowest = max(
        (float(ndtri(0.95) + ndtri(0.8)) * 100.0 * metric.deviation / metric.mean / limit) ** 2
        for metric, limit in zip(metrics[1:], limits, strict=True)
    )
    units = slowest * (2.0 / (1.0 - control) + 1.0 / control) / days
    units = float(f"{max(units, 300.0 * world.candidates):.2g}")
    kinds = ", ".join(metric.shape for metric in metrics)
    limits_text = "budget, " if limited else ""
    firmness = "soft, " if world.soft else ""
    name = f"{world.candidates} {effects}, {units:,.0f} a day, {firmness}{limits_text}{kinds}"
    return replace(world, name=name, units=units)


def _draw_metric(rng: np.random.Generator) -> UnitMetric:
    shape: MetricShape = ("bell", "share", "purchases")[int(rng.integers(3))]
    if shape == "share":
        return UnitMetric("share", float(np.round(np.exp(rng.uniform(np.log(0.02), np.log(0.3))), 3)))
    if shape == "bell":
        return UnitMetric("bell", 30.0, float(np.round(rng.uniform(0.5, 2.5), 1)))
    return UnitMetric("purchases", 1.0)
