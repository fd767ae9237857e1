"""Learners of the live-traffic race: PASTO's study, and what teams run instead, in a few lines each.

Each names the shares of a day, receives the cells of that day, and can be asked for its answer at any time.
All except the study estimate lifts over the baseline in the same way, with a free level for every day.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from scipy.special import ndtr

import pasto
from pasto.arrays import FloatArray
from pasto.blend import Certificate
from pasto.observation import Observation
from pasto.optimize import solve_exact
from pasto.optimize.learners import Thompson
from pasto_research.bench.live_traffic_worlds import LiveTraffic


class LiveLearner(Protocol):
    """A learner that is asked once a day."""

    certificate: Certificate | None
    """Of the last answer, if it has one."""

    def propose(self) -> FloatArray:
        """Return the shares of the candidates in the next day, control aside."""
        ...

    def observe(self, cells: Sequence[Observation]) -> None:
        """Receive the cells of a day."""
        ...

    def answer(self) -> FloatArray:
        """Return the distribution to deploy."""
        ...


class StudyLearner:
    """A study of PASTO."""

    def __init__(self, family: LiveTraffic, seed: int, *, has_geometry: bool = True, confidence: float = 0.95) -> None:
        self.study = pasto.Study(
            family.candidates,
            family.objective,
            learner=Thompson(contrast="auto", structure="auto" if has_geometry else "independent"),
            seed=seed,
            baseline=family.baseline,
            control_share=family.control_share,
            confidence=confidence,
        )
        self.certificate: Certificate | None = None

    def propose(self) -> FloatArray:
        """Return the study's policy."""
        return np.array(self.study.policy.probabilities)

    def observe(self, cells: Sequence[Observation]) -> None:
        """Pass the cells to the study."""
        self.study.observe(cells)

    def answer(self) -> FloatArray:
        """Return the study's blend."""
        blend = self.study.blend(deploy_rounds=None)
        self.certificate = blend.certificate
        return np.array(blend.probabilities)


LEVEL_STEPS = 10
"""Alternating steps that estimate the days' levels and the lifts from each other."""


class LiftTally:
    """Sums of every day, from which lifts over the baseline are estimated."""

    certificate: Certificate | None = None

    def __init__(self, family: LiveTraffic, seed: int) -> None:
        self.family, self.rng = family, np.random.default_rng(seed)
        self.count = len(family.candidates)
        self.limit = float(family.limit.rstrip("%")) / 100.0
        self.units: list[FloatArray] = []
        self.sums: list[FloatArray] = []
        self.variance_sums = np.zeros(2)

    def observe(self, cells: Sequence[Observation]) -> None:
        """Add the cells of a day."""
        units, sums = np.zeros(self.count), np.zeros((2, self.count))
        for cell in cells:
            units[cell.candidate] += cell.units
            sums[:, cell.candidate] += cell.units * np.array(cell.mean)
            self.variance_sums += cell.units**2 * np.diag(np.array(cell.covariance))
        self.units.append(units)
        self.sums.append(sums)

    def lifts(self) -> FloatArray:
        """Return the lifts over the baseline, (metrics, candidates); 0 for a candidate that was never measured."""
        units, sums = np.array(self.units), np.array(self.sums)
        lifts = np.zeros((2, self.count))
        for _ in range(LEVEL_STEPS):
            levels = sums.sum(axis=2) / np.einsum("tk,mk->tm", units, 1.0 + lifts)
            expected = np.einsum("tk,tm->mk", units, levels)
            lifts = np.where(expected > 0, sums.sum(axis=0) / np.maximum(expected, 1e-12) - 1.0, 0.0)
        return np.asarray((1.0 + lifts) / (1.0 + lifts[:, [self.family.baseline]]) - 1.0)

    def unit_variances(self) -> FloatArray:
        """Return the variance of one user over the squared mean, (metrics,)."""
        return np.asarray(self.variance_sums * np.sum(self.units) / np.square(np.sum(self.sums, axis=(0, 2))))

    def variances(self) -> FloatArray:
        """Return the variances of the lifts, (metrics, candidates), without the control's; infinite if unmeasured."""
        with np.errstate(divide="ignore"):
            return np.asarray(self.unit_variances()[:, None] / np.sum(self.units, axis=0))

    def even_shares(self) -> FloatArray:
        """Return the same share for every candidate."""
        return np.full(self.count, 1.0 / self.count)

    def alone(self, goal: FloatArray, guardrail: FloatArray) -> FloatArray:
        """Return the single candidate with the best goal whose guardrail holds by estimate; the baseline always may."""
        allowed = guardrail >= self.limit
        allowed[self.family.baseline] = True
        return np.asarray(np.arange(self.count) == np.argmax(np.where(allowed, goal, -np.inf)), dtype=float)


class EvenTest(LiftTally):
    """An even A/B/n test; its answer is one candidate, or the best blend for the estimates."""

    def __init__(self, family: LiveTraffic, seed: int, *, is_blend: bool = False) -> None:
        super().__init__(family, seed)
        self.is_blend = is_blend

    def propose(self) -> FloatArray:
        """Return equal shares."""
        return self.even_shares()

    def answer(self) -> FloatArray:
        """Return the best candidate, or the best blend, by estimate."""
        lifts = self.lifts()
        if not self.is_blend:
            return self.alone(*lifts)
        means = 1.0 + lifts
        return solve_exact(self.family.objective.form(means[:, self.family.baseline]), means).probabilities


class GoalThompson(LiftTally):
    """Thompson sampling on the goal alone, with Gaussian posteriors and a learned prior; it answers one candidate."""

    draws = 2_000

    def propose(self) -> FloatArray:
        """Return each candidate's probability to have the highest goal."""
        if not self.units:
            return self.even_shares()
        mean, variance = self._posterior()
        drawn = mean + np.sqrt(variance) * self.rng.standard_normal((self.draws, self.count))
        return np.bincount(drawn.argmax(axis=1), minlength=self.count) / self.draws

    def answer(self) -> FloatArray:
        """Return the candidate with the best expected goal; guardrails do not count."""
        mean = self._posterior()[0]
        return np.asarray(np.arange(self.count) == np.argmax(mean), dtype=float)

    def _posterior(self) -> tuple[FloatArray, FloatArray]:
        lifts, noise = self.lifts()[0], self.variances()[0]
        measured = np.isfinite(noise)
        middle = float(np.average(lifts[measured], weights=1.0 / noise[measured]))
        typical = float(np.median(noise[measured]))
        spread = max(float(np.var(lifts[measured])) - float(noise[measured].mean()), 0.01 * typical)
        weight = spread / (spread + noise)
        return np.where(measured, middle + weight * (lifts - middle), middle), spread * (1.0 - weight)


class ConstrainedImprovement(LiftTally):
    """Constrained Bayesian optimisation: own code, with the Gaussian processes of scikit-learn.

    Each day has an even batch of candidates, chosen one after the other by expected improvement times the probability
    that the guardrail holds. A chosen candidate counts as measured for the next choice. The answer is the candidate of
    the best posterior mean whose guardrail holds by estimate.
    """

    batch = 10

    def __init__(self, family: LiveTraffic, seed: int) -> None:
        super().__init__(family, seed)
        self.places = family.candidates.features()
        self.fitted = 0
        self.kernels: list[Any] = [None, None]

    def propose(self) -> FloatArray:
        """Return the next batch; the first is drawn at random."""
        if not self.units:
            return self._even(self.rng.choice(self.count, self.batch, replace=False).tolist())
        (goal, covariance), (guardrail, guardrail_covariance) = self._predict()
        holds = ndtr((guardrail - self.limit) / np.sqrt(np.diag(guardrail_covariance)))
        incumbent = float(self.alone(goal, guardrail) @ goal)
        users = self.family.users * (1.0 - self.family.control_share) / self.batch
        slot = float(self.unit_variances()[0]) / users
        chosen: list[int] = []
        for _ in range(self.batch):
            deviation = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
            score = (goal - incumbent) / deviation
            density = np.exp(-0.5 * score**2) / np.sqrt(2.0 * np.pi)
            worth = deviation * (score * ndtr(score) + density) * holds
            worth[chosen] = -1.0
            best = int(np.argmax(worth))
            chosen.append(best)
            column = covariance[:, best]
            covariance = covariance - np.outer(column, column) / (column[best] + slot)
        return self._even(chosen)

    def answer(self) -> FloatArray:
        """Return the candidate of the best posterior mean among those whose guardrail holds by estimate."""
        (goal, _), (guardrail, _) = self._predict()
        return self.alone(goal, guardrail)

    def _even(self, chosen: Sequence[int]) -> FloatArray:
        return np.asarray(np.isin(np.arange(self.count), chosen) / len(chosen))

    def _predict(self) -> list[tuple[FloatArray, FloatArray]]:
        """Return mean and covariance of both lifts; kernels are fitted again after half as many days more."""
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern

        lifts, variances = self.lifts(), self.variances()
        measured = np.isfinite(variances[0])
        must_fit = len(self.units) >= 1.5 * self.fitted
        predictions = []
        for metric in range(2):
            values, noise = lifts[metric, measured], variances[metric, measured]
            middle, scale = float(values.mean()), max(float(values.std()), 1e-9)
            if must_fit or self.kernels[metric] is None:
                kernel: Any = ConstantKernel(1.0, (1e-3, 1e2)) * Matern([0.5, 0.5], (0.05, 10.0), nu=2.5)
                process = GaussianProcessRegressor(kernel, alpha=noise / scale**2)
            else:
                process = GaussianProcessRegressor(self.kernels[metric], alpha=noise / scale**2, optimizer=None)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a length at the end of its range
                process.fit(self.places[measured], (values - middle) / scale)
            self.kernels[metric] = process.kernel_
            mean, covariance = process.predict(self.places, return_cov=True)
            floor = 1e-12 * np.eye(self.count)
            predictions.append((middle + scale * mean, scale**2 * (covariance + floor)))
        if must_fit:
            self.fitted = len(self.units)
        return predictions


LIVE_LEARNERS: dict[str, Callable[[LiveTraffic, int], LiveLearner]] = {
    "posterior blend": StudyLearner,
    "posterior blend, no geometry": lambda family, seed: StudyLearner(family, seed, has_geometry=False),
    "posterior blend, confidence 50 %": lambda family, seed: StudyLearner(family, seed, confidence=0.5),
    "even A/B/n test, best single": EvenTest,
    "even A/B/n test, best blend": lambda family, seed: EvenTest(family, seed, is_blend=True),
    "Thompson on the goal alone": GoalThompson,
    "constrained expected improvement (own, scikit-learn)": ConstrainedImprovement,
}
