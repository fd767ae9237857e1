"""Worlds for `pasto bench certificates`: metrics of many shapes, whose truth is known.

Nothing here uses `pasto.sim`: units are drawn one by one, or as the exact distribution of their sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from scipy.special import ndtr

import pasto
from pasto.arrays import FloatArray
from pasto.objective import Objective
from pasto.observation import Observation
from pasto.optimize.learners import Thompson

Side = Literal["at least", "at most"]
Channel = Literal["observe", "tell", "tell() with units"]
"""How a round reaches the study: observations with covariances, or `tell` without or with units."""


class MetricDistribution(Protocol):
    """A metric whose units are drawn at random."""

    def scale(self, quality: FloatArray) -> FloatArray:
        """Return the true means of candidates whose quality lies in [0, 1]."""
        ...

    def sample(self, mean: float, units: int, rng: np.random.Generator) -> tuple[float, float]:
        """Return the mean of a cell's units and the sample variance of one unit."""
        ...


@dataclass(frozen=True, slots=True)
class Gaussian:
    """A bell-shaped metric; its deviation follows the level where `relative` is set."""

    low: float
    high: float
    deviation: float
    relative: bool = False

    def scale(self, quality: FloatArray) -> FloatArray:
        """Return means spread evenly from low to high."""
        return self.low + (self.high - self.low) * quality

    def sample(self, mean: float, units: int, rng: np.random.Generator) -> tuple[float, float]:
        """Draw the mean and the variance by their exact distributions."""
        deviation = self.deviation * abs(mean) if self.relative else self.deviation
        variance = deviation**2 * rng.chisquare(units - 1) / (units - 1)
        return float(rng.normal(mean, deviation / np.sqrt(units))), float(variance)


@dataclass(frozen=True, slots=True)
class Events:
    """A share of units that did something: zero or one a unit."""

    low: float
    high: float

    def scale(self, quality: FloatArray) -> FloatArray:
        """Return rates spread evenly from low to high."""
        return self.low + (self.high - self.low) * quality

    def sample(self, mean: float, units: int, rng: np.random.Generator) -> tuple[float, float]:
        """Draw the count."""
        rate = rng.binomial(units, mean) / units
        return float(rate), float(rate * (1 - rate) * units / (units - 1))


@dataclass(frozen=True, slots=True)
class Amounts:
    """Log-normal amounts of the few units that buy; every unit buys where `buyers` is 1."""

    low: float
    high: float
    buyers: float
    sigma: float

    def scale(self, quality: FloatArray) -> FloatArray:
        """Return means a unit, spread evenly from low to high."""
        return self.low + (self.high - self.low) * quality

    def sample(self, mean: float, units: int, rng: np.random.Generator) -> tuple[float, float]:
        """Draw every purchase; the share of buyers grows with the mean where not every unit buys."""
        middle = 0.5 * (self.low + self.high)
        buyers = min(1.0, self.buyers * mean / middle) if self.buyers < 1 else 1.0
        bought = int(rng.binomial(units, buyers))
        amounts = rng.lognormal(np.log(mean / buyers) - 0.5 * self.sigma**2, self.sigma, bought)
        average = float(amounts.sum()) / units
        return average, float((np.square(amounts).sum() - units * average**2) / (units - 1))


@dataclass(frozen=True, slots=True)
class Counts:
    """Overdispersed counts: negative binomial with the given shape."""

    low: float
    high: float
    shape: float

    def scale(self, quality: FloatArray) -> FloatArray:
        """Return means spread evenly from low to high."""
        return self.low + (self.high - self.low) * quality

    def sample(self, mean: float, units: int, rng: np.random.Generator) -> tuple[float, float]:
        """Draw every unit."""
        values = rng.negative_binomial(self.shape, self.shape / (self.shape + mean), units)
        return float(values.mean()), float(values.var(ddof=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateWorld:
    """A kind of study whose guardrails can be checked against the truth."""

    name: str
    goal: MetricDistribution = Gaussian(1.0, 3.0, 8.0)
    guard: MetricDistribution
    guardrails: int = 2
    units: int
    """A round."""
    channel: Channel = "observe"
    contrast: Literal["auto", "percent", "difference"] | None = None
    control: float = 0.0
    limit: str | None = None
    """A percentage of the baseline; None is the middle of the guardrail's range, in its own units."""
    level: Callable[[int, np.random.Generator], float] | None = None
    """The factor by which a round's metrics are multiplied."""
    shift: float = 0.0
    """Deviation of what a round adds to every metric, as a part of the candidates' range."""
    correlation: float = 0.0
    """Between the metrics of one unit; Gaussian metrics only."""
    rows: int = 1
    """Rows reported for each independent unit."""
    row_correlation: float = 1.0
    unequal: bool = False
    """Whether cells have 100 or 10,000 units."""
    shape: Literal["spread", "sparse", "factors", "smooth", "rough"] = "spread"
    """How candidates differ: each by itself, few of them, by two factors behind all metrics, or along a grid."""
    ratio: bool = False
    """Whether guardrails are ratios of two metrics."""
    stop_at_first: bool = False
    """Whether the study ends with its first certified blend."""
    rounds: int = 10
    candidates: int = 20
    independent: bool = True
    """Whether rows and rounds are independent, as the certificate assumes."""

    def draw(self, side: Side, rng: np.random.Generator) -> WorldInstance:
        """Draw one truth."""
        count = self.candidates
        latent = self._latent(rng)
        goal = self.goal.scale(ndtr(latent[0]))
        upward = 1.0 if side == "at least" else -1.0
        names = [f"g{place}" for place in range(self.guardrails)]
        guards = np.array([self.guard.scale(ndtr(upward * row)) for row in latent[1:]])
        if self.limit is not None:  # the baseline is a middling candidate
            goal[0], guards[:, 0] = self.goal.scale(np.array([0.5]))[0], self.guard.scale(np.array([0.5]))[0]
        objective: Objective = pasto.maximize("goal")
        bound: float | str = float(self.guard.scale(np.array([0.5]))[0])
        if self.limit is not None:
            bound = self.limit if side == "at least" else self.limit.replace("-", "+")
        means = [goal]
        for name, guard in zip(names, guards, strict=True):
            metric: Any = name
            if self.ratio:
                views = rng.uniform(2.0, 6.0, count)
                means += [guard * views, views]
                metric = pasto.ratio(f"{name}_likes", f"{name}_views")
            else:
                means.append(guard)
            if side == "at least":
                objective = objective.keep(metric, at_least=bound)
            else:
                objective = objective.keep(metric, at_most=bound)
        return WorldInstance(self, np.array(means), objective)

    def _latent(self, rng: np.random.Generator) -> FloatArray:
        """Return standard scores of every candidate, (1 + guardrails, candidates): guardrails compete with the goal."""
        count = self.candidates
        if self.shape in ("smooth", "rough"):
            points = np.linspace(0.0, 1.0, count)
            waves = rng.normal(size=(1 + self.guardrails, 4)) * np.array([1.0, 0.7, 0.4, 0.2])
            phases = rng.uniform(0, 2 * np.pi, (1 + self.guardrails, 4))
            angles = 2 * np.pi * points * np.arange(0.5, 2.5, 0.5)[:, None] + phases[..., None]
            own = np.einsum("gw,gwk->gk", waves, np.sin(angles))
            if self.shape == "rough":
                own = own + 0.5 * rng.normal(size=own.shape)
        elif self.shape == "sparse":
            own = np.where(np.arange(count) < count // 4, rng.normal(size=(1 + self.guardrails, count)), 0.0)
            own = own[:, rng.permutation(count)]
        elif self.shape == "factors":
            loadings = rng.normal(size=(1 + self.guardrails, 2))
            own = loadings / np.linalg.norm(loadings, axis=1, keepdims=True) @ rng.normal(size=(2, count))
        else:
            own = rng.normal(size=(1 + self.guardrails, count))
        own[1:] = -0.6 * own[0] + 0.8 * own[1:]
        return np.asarray(own)


@dataclass(frozen=True, slots=True)
class WorldInstance:
    """One truth with its objective."""

    world: CertificateWorld
    means: FloatArray
    """(metrics, candidates) at level 1."""
    objective: Objective

    def cell(
        self, candidate: int, units: int, level: float, shift: FloatArray, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Draw a cell's mean (metrics,) and the sample covariance of one unit (metrics, metrics)."""
        world = self.world
        real = max(2, units // world.rows) if world.rows > 1 else units
        truth = level * self.means[:, candidate]
        if world.ratio:
            mean, covariance = self._ratio_cell(truth, real, rng)
        elif world.correlation:
            deviations = np.array([world.goal.deviation, *[world.guard.deviation] * world.guardrails])  # type: ignore[attr-defined]
            correlations = np.full((len(truth), len(truth)), world.correlation)
            np.fill_diagonal(correlations, 1.0)
            exact = np.outer(deviations, deviations) * correlations
            values = rng.multivariate_normal(truth, exact, real)
            mean, covariance = values.mean(axis=0), np.cov(values.T)
        else:
            metrics = [world.goal, *[world.guard] * world.guardrails]
            drawn = [metric.sample(float(m), real, rng) for metric, m in zip(metrics, truth, strict=True)]
            mean = np.array([value for value, _ in drawn])
            covariance = np.diag([variance for _, variance in drawn])
        if world.rows > 1:
            # Rows of one unit share a part of its deviation: their mean varies as if units had 1 + (rows − 1) ρ rows.
            part = (1 + (world.rows - 1) * world.row_correlation) / world.rows
            mean = truth + np.sqrt(part) * (mean - truth)
        return mean + shift, covariance

    def _ratio_cell(self, truth: FloatArray, units: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Draw a ratio cell: views are Poisson and gamma, likes a share of them that varies by unit."""
        columns = [rng.normal(truth[0], 2.0, units)]
        for likes, views in zip(truth[1::2], truth[2::2], strict=True):
            view_counts = rng.poisson(views * rng.gamma(2.0, 0.5, units))
            columns += [rng.binomial(view_counts, likes / views), view_counts]
        values = np.array(columns, dtype=float)
        return values.mean(axis=1), np.cov(values)

    @property
    def baseline(self) -> int | None:
        """The candidate that the control serves."""
        return 0 if self.world.limit is not None or self.world.contrast is not None else None

    def slack(self, probabilities: FloatArray) -> FloatArray:
        """Return the true slack of each guardrail under a blend."""
        form = self.objective.form(None if self.baseline is None else self.means[:, self.baseline])
        return np.asarray(form.slack(self.means @ probabilities))

    @property
    def settings(self) -> list[dict[str, Any]]:
        """The candidates: points on a line if neighbours are alike, otherwise names."""
        count = self.world.candidates
        if self.world.shape in ("smooth", "rough"):
            return [{"x": k / (count - 1)} for k in range(count)]
        return [{"id": f"c{k}"} for k in range(count)]

    def study(
        self, seed: int, learner: Thompson | None = None, history: list[dict[str, Any]] | None = None
    ) -> pasto.Study:
        """Return a study of this world that has learned nothing yet."""
        world = self.world
        return pasto.Study(
            self.settings,
            self.objective,
            learner=Thompson(contrast=world.contrast) if learner is None else learner,
            seed=seed,
            baseline=self.baseline,
            control_share=world.control,
            history=history,
        )

    def run_round(self, study: pasto.Study, number: int, rng: np.random.Generator) -> None:
        """Serve the study's policy for one round and let it learn."""
        world = self.world
        level = 1.0 if world.level is None else world.level(number, rng)
        ranges = np.ptp(self.means, axis=1)
        shift = world.shift * ranges * rng.standard_normal(len(ranges))
        if world.channel == "observe":
            self._observe(study, level, shift, rng)
            return
        assignments = study.ask(parallel=world.candidates)
        sizes = np.full(len(assignments), world.units // world.candidates)
        if world.unequal:
            sizes = np.where(rng.random(len(sizes)) < 0.5, 100, 10_000)
        means, errors = [], []
        for assignment, units in zip(assignments, sizes.tolist(), strict=True):
            mean, covariance = self.cell(assignment.candidate, units, level, shift, rng)
            means.append(mean)
            errors.append(np.sqrt(np.diag(covariance) / units))
        units_given = sizes if world.channel == "tell() with units" else None
        study.tell(assignments, np.array(means), np.array(errors), units_given)

    def _observe(self, study: pasto.Study, level: float, shift: FloatArray, rng: np.random.Generator) -> None:
        """Draw the units of every candidate and of the control."""
        world, policy = self.world, study.policy
        control = round(world.control * world.units)
        counts = rng.multinomial(world.units - control, policy.probabilities)
        if world.unequal:
            counts = np.where(np.arange(len(counts)) % 2 == 1, counts // 100, counts)
        cells = [(k, units, False) for k, units in enumerate(counts.tolist()) if units >= 2]
        cells += [(0, control, True)] if control else []
        observations = []
        for candidate, units, is_control in cells:
            mean, covariance = self.cell(candidate, units, level, shift, rng)
            rows = tuple(tuple(row) for row in (covariance / units).tolist())
            observations.append(
                Observation(policy.version, candidate, units, tuple(mean.tolist()), rows, control=is_control)
            )
        study.observe(observations)


def swing(size: float) -> Callable[[int, np.random.Generator], float]:
    """Return a level that swings by ± size over five rounds."""
    return lambda number, rng: 1.0 + size * float(np.sin(2 * np.pi * (number + rng.uniform()) / 5.0))


def fourfold(number: int, rng: np.random.Generator) -> float:
    """Return a level that differs up to four times between rounds."""
    return float(2.0 ** rng.uniform(-1.0, 1.0))


def _worlds() -> tuple[CertificateWorld, ...]:
    bell, rate, watch = Gaussian(-1.0, 1.0, 8.0), Events(0.08, 0.12), Gaussian(9.0, 11.0, 1.0, relative=True)
    revenue = Amounts(0.5, 1.5, buyers=0.02, sigma=1.5)
    world = CertificateWorld
    worlds = [world(name="Gaussian, correlated metrics", guard=bell, units=20_000, correlation=0.5)]
    channels: dict[Channel, str] = {
        "observe": "observe",
        "tell": "tell(), errors",
        "tell() with units": "tell(), errors and units",
    }
    for channel, words in channels.items():
        worlds += [
            world(name=f"clicks 1–5 %, 1,000 a cell, {words}", guard=Events(0.01, 0.05), units=20_000, channel=channel),
            world(name=f"revenue, 98 % zeros, 10,000 a cell, {words}", guard=revenue, units=200_000, channel=channel),
            world(
                name=f"unequal cells, 100 and 10,000, {words}",
                guard=Events(0.02, 0.15),
                units=20_000,
                channel=channel,
                unequal=True,
            ),
        ]
    worlds += [
        world(name="counts, negative binomial", guard=Counts(1.0, 3.0, 0.5), units=10_000),
        world(name="30 units a cell, events 2–15 %", guard=Events(0.02, 0.15), units=600),
        world(name="30 units a cell, log-normal 1.25", guard=Amounts(0.5, 1.5, buyers=1.0, sigma=1.25), units=600),
        world(name="ratio metrics", guard=Events(0.05, 0.15), units=6_000, ratio=True),
    ]
    for control in (0.2, 0.1, 0.05):
        for contrast in ("percent", "difference"):
            worlds.append(
                world(
                    name=f"{contrast}, control {control:.0%}, steady",
                    guard=watch,
                    goal=watch,
                    units=20_000,
                    control=control,
                    contrast=contrast,
                    limit="-2%",
                )
            )
    for words, level in (("±40 %", swing(0.4)), ("4×", fourfold)):
        for units in (6_000, 200_000):
            worlds.append(
                world(
                    name=f"default contrast, level {words}, {units:,} units",
                    guard=rate,
                    goal=watch,
                    units=units,
                    control=0.1,
                    contrast="auto",
                    limit="-2%",
                    level=level,
                )
            )
    worlds += [
        world(
            name="default contrast, revenue, level ±40 %",
            guard=revenue,
            goal=watch,
            units=200_000,
            control=0.1,
            contrast="auto",
            limit="-2%",
            level=swing(0.4),
        ),
        world(
            name="default contrast, ratio metrics",
            guard=Events(0.05, 0.15),
            goal=watch,
            units=10_000,
            control=0.2,
            contrast="auto",
            limit="-5%",
            ratio=True,
        ),
        world(
            name="default contrast, two factors",
            guard=rate,
            goal=watch,
            units=20_000,
            control=0.2,
            contrast="auto",
            limit="-2%",
            shape="factors",
        ),
        world(
            name="default contrast, sparse effects",
            guard=rate,
            goal=watch,
            units=60_000,
            control=0.2,
            contrast="auto",
            limit="-2%",
            shape="sparse",
        ),
        world(name="sparse effects, 15 of 20 alike", guard=bell, units=20_000, shape="sparse"),
        world(name="two factors, clicks 1–5 %", guard=Events(0.01, 0.05), units=20_000, shape="factors"),
        world(name="smooth grid", guard=bell, units=20_000, shape="smooth"),
        world(name="rough grid", guard=bell, units=20_000, shape="rough"),
        world(name="eight guardrails", guard=bell, units=20_000, guardrails=8),
        world(name="first certified look", guard=bell, units=20_000, stop_at_first=True),
        world(name="rounds shift together, no contrast", guard=bell, units=20_000, shift=0.3, independent=False),
        world(name="four rows a user", guard=bell, units=20_000, rows=4, row_correlation=0.6, independent=False),
    ]
    return tuple(worlds)


WORLDS = _worlds()
