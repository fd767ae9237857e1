"""Worlds for `pasto bench covariates`: units whose past explains a known share of the variance of their metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtr

import pasto
from pasto.arrays import FloatArray
from pasto.objective import NormalForm, Objective
from pasto.observation import Observation
from pasto.optimize.learners import Thompson

Side = Literal["at least", "at most"]
LEVEL = 2.0
"""Mean of every metric over candidates, and of the baseline."""
CONTROL_SHARE = 0.1
GUARDRAILS = 2
TRADE_OFF = -0.8
"""Correlation between a candidate's goal and each of its guardrails."""
ROUNDS_PER_WEEK = 7


@dataclass(frozen=True, slots=True)
class Normal:
    """Metrics and covariates with normal deviations."""

    deviation: float

    def draw(self, means: FloatArray, explained: float, units: int, rng: np.random.Generator) -> FloatArray:
        """Draw metrics of units, then a covariate for each metric, (units, 2 metrics)."""
        past, rest = rng.standard_normal((2, units, len(means)))
        noise = np.sqrt(explained) * past + np.sqrt(1.0 - explained) * rest
        return np.hstack([means + self.deviation * noise, past])


@dataclass(frozen=True, slots=True)
class Revenue:
    """Log-normal amounts of the units that buy; the deviation of a metric is proportional to its mean."""

    buyers: float
    sigma: float

    def draw(self, means: FloatArray, explained: float, units: int, rng: np.random.Generator) -> FloatArray:
        """Draw metrics of units, then a covariate for each metric, (units, 2 metrics)."""
        buys = rng.random((2, units, len(means))) < self.buyers
        amounts = rng.lognormal(-0.5 * self.sigma**2, self.sigma, buys.shape)
        past, rest = np.where(buys, amounts, 0.0) / self.buyers
        weight = np.sqrt(explained) / (np.sqrt(explained) + np.sqrt(1.0 - explained))
        return np.hstack([means * (weight * past + (1.0 - weight) * rest), past])


def steady(number: int) -> tuple[float, float]:
    """Return factor and shift of the covariates in a round: 1 and 0."""
    return 1.0, 0.0


def drifting(number: int) -> tuple[float, float]:
    """Return factor and shift of covariates that begin at zero, grow with the log, and swing over the week."""
    grown = min(1.0, number / ROUNDS_PER_WEEK)
    return grown, 3.0 * grown * (1.0 + 0.3 * np.sin(2.0 * np.pi * number / ROUNDS_PER_WEEK))


@dataclass(frozen=True, slots=True, kw_only=True)
class CovariateWorld:
    """Family of studies whose units have a past."""

    name: str
    metric: Normal | Revenue
    units: int
    """A round."""
    explained: float = 0.6
    """Share of a unit's variance that its covariate explains."""
    contrast: bool = False
    """True if guardrails are percentages of the baseline, learned against a control, and all metrics swing."""
    covariate_level: Callable[[int], tuple[float, float]] = steady
    """Factor and shift of the covariates in a round; the metrics do not follow them."""
    spread: float = 1.0
    """Largest distance of a candidate's mean from LEVEL."""
    candidates: int = 40
    studies: int = 8
    """Of each side, in a full run."""

    def draw(self, side: Side, rng: np.random.Generator) -> CovariateInstance:
        """Draw the true means."""
        scores = rng.standard_normal((1 + GUARDRAILS, self.candidates))
        scores[1:] = TRADE_OFF * scores[0] + np.sqrt(1.0 - TRADE_OFF**2) * scores[1:]
        scores[1:] *= 1.0 if side == "at least" else -1.0
        means = LEVEL + self.spread * (2.0 * ndtr(scores) - 1.0)
        if self.contrast:
            means[:, 0] = LEVEL
        objective = pasto.maximize("goal")
        for number in range(GUARDRAILS):
            name = f"guardrail {number + 1}"
            if side == "at least":
                objective = objective.keep(name, at_least="-3%" if self.contrast else LEVEL)
            else:
                objective = objective.keep(name, at_most="+3%" if self.contrast else LEVEL)
        return CovariateInstance(self, means, objective)


@dataclass(frozen=True, slots=True)
class CovariateInstance:
    """One truth with its objective."""

    world: CovariateWorld
    means: FloatArray
    """(metrics, candidates) at level 1."""
    objective: Objective

    @property
    def baseline(self) -> int | None:
        """The candidate that the control serves."""
        return 0 if self.world.contrast else None

    @property
    def form(self) -> NormalForm:
        """The objective, with the true baseline."""
        return self.objective.form(None if self.baseline is None else self.means[:, self.baseline])

    def study(self, seed: int, learner: Thompson) -> pasto.Study:
        """Return a study that has learned nothing yet."""
        return pasto.Study(
            [{"id": f"c{k}"} for k in range(self.world.candidates)],
            self.objective,
            learner=learner,
            seed=seed,
            baseline=self.baseline,
            control_share=CONTROL_SHARE if self.world.contrast else 0.0,
        )

    def run_round(self, study: pasto.Study, number: int, rng: np.random.Generator, *, adjusted: bool) -> None:
        """Serve the policy for one round and let the study learn, with or without the covariates."""
        world, policy = self.world, study.policy
        control = round(CONTROL_SHARE * world.units) if world.contrast else 0
        counts = rng.multinomial(world.units - control, policy.probabilities).tolist()
        level = 1.0 + 0.3 * np.sin(2.0 * np.pi * number / ROUNDS_PER_WEEK) if world.contrast else 1.0
        factor, shift = world.covariate_level(number)
        metrics = len(self.means)
        observations = []
        cells = [*((candidate, units, False) for candidate, units in enumerate(counts)), (0, control, True)]
        for candidate, units, is_control in cells:
            if units < 2:
                continue
            values = world.metric.draw(level * self.means[:, candidate], world.explained, units, rng)
            values[:, metrics:] = factor * values[:, metrics:] + shift
            values = values if adjusted else values[:, :metrics]
            mean, covariance = values.mean(axis=0).tolist(), np.cov(values.T) / units
            observations.append(
                Observation(
                    version=policy.version,
                    candidate=candidate,
                    units=units,
                    mean=tuple(mean[:metrics]),
                    covariance=tuple(map(tuple, covariance.tolist())),
                    control=is_control,
                    covariates=tuple(mean[metrics:]),
                )
            )
        study.observe(observations)


NORMAL_LEVELS = CovariateWorld(name="levels, normal", metric=Normal(8.0), units=4_000)
REVENUE = Revenue(buyers=0.5, sigma=1.0)
FAMILIES = (
    NORMAL_LEVELS,
    CovariateWorld(name="levels, revenue", metric=REVENUE, units=600),
    CovariateWorld(name="percent, normal", metric=Normal(4.0), units=6_000, contrast=True, spread=0.5),
    CovariateWorld(name="percent, revenue", metric=REVENUE, units=4_000, contrast=True, spread=0.5),
)
"""Families at all shares that the past explains."""
DRIFTING = CovariateWorld(name="levels, covariates drift", metric=Normal(8.0), units=4_000, covariate_level=drifting)
FEW_CANDIDATES = CovariateWorld(
    name="levels, 8 candidates", metric=Normal(8.0), units=4_000, explained=0.8, candidates=8, studies=40
)
"""World in which the noise that all cells of a round share is the largest part of the errors."""
