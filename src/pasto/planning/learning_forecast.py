"""Learning forecast: many simulated studies, learned by a short form of the learner, with their answers by round.

A scenario states what is assumed before a study: the traffic, the noise of one unit, and how much candidates differ.
Each simulated study draws its truth from these assumptions. Then, as the learner does, it keeps Gaussian posteriors,
serves shares by the exact blends of posterior draws, and answers with a blend whose hard guardrails hold with the
stated confidence. Noise and prior are known here, and a round's cells are Gaussian, so all studies run as one array.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from pasto.arrays import FloatArray
from pasto.optimize import Program, solve_batch
from pasto.optimize.learners.exploration_limits import cap_shares
from pasto.optimize.learners.thompson import PROBE_SHARE

DRAWS = 16
"""Posterior draws of each policy."""
STEP_GROWTH = 0.2
"""Part of the rounds so far that are served with one policy: later policies change slowly."""
TANGENT_STEPS = 5
"""Steps of the answer, each with the tangents of the chance constraints at the blend before."""
MIXING_STEPS = 10
"""Bisections of the part that the baseline takes in an answer that would not be certified."""
PENALTY_STEPS = 20
"""Parts of the baseline that are tried in an answer with soft guardrails."""


@dataclass(frozen=True, slots=True, eq=False)
class LearningScenario:
    """Scenario of a study before it starts; effects are in the units in which the objective counts a metric."""

    candidates: int
    """Candidates, with the baseline, which comes first."""
    units: float
    """Units a round."""
    deviations: FloatArray
    """(metrics,): standard deviation of one unit."""
    effects: FloatArray
    """(metrics, metrics): covariance of a candidate's effects over the baseline."""
    goal: FloatArray
    """(metrics,): gain of the goal by one unit of each effect."""
    rails: FloatArray
    """(guardrails, metrics): slack that one unit of each effect gives a guardrail."""
    slack: FloatArray
    """(guardrails,): slack of the baseline."""
    penalties: FloatArray
    """(guardrails,): infinite for a hard guardrail."""
    relative: NDArray[np.bool_]
    """(guardrails,): True if the limit is a change against the control, False for a level."""
    control: float = 0.1
    """Share of the units that take part."""
    min_share: float = 0.01
    max_share: float | None = None
    new_candidate_share: float | None = None
    loss_budgets: FloatArray | None = None
    """(guardrails,): infinite for a guardrail without a budget."""
    confidence: float = 0.95
    lag: int = 0
    """Rounds that the policy of a round has not seen, because they mature."""
    factors: FloatArray | None = None
    """(others, rank): what neighbours share. The covariance of the effects of candidates i and j is `effects` times
    factors_i · factors_j, plus own_variance if i is j. None if candidates differ independently."""
    own_variance: float = 1.0
    """Part of the effects' variance that neighbours do not share."""

    @property
    def learner_units(self) -> float:
        """Units of the learner, a round."""
        return self.units * (1.0 - self.control)

    @property
    def design(self) -> FloatArray:
        """Columns of what candidates share, (others, columns): a common mean, which is not known, and the factors."""
        others = self.candidates - 1
        mean = np.ones((others, 1))
        return mean if self.factors is None else np.concatenate([mean, self.factors[:others]], axis=1)

    @property
    def hard(self) -> NDArray[np.bool_]:
        """The hard guardrails, (guardrails,)."""
        return np.isinf(self.penalties)


@dataclass(frozen=True, slots=True, eq=False)
class LearningForecast:
    """Forecast of the answers of many studies, after some of their rounds."""

    rounds: NDArray[np.intp]
    """(checkpoints,)."""
    feasible: NDArray[np.bool_]
    """(studies,): whether any blend meets every hard guardrail; without one, nothing is gained."""
    best: FloatArray
    """(studies,): gain of the best blend, with the truth known."""
    gains: FloatArray
    """(checkpoints, studies): true gain of the answer over the baseline."""
    certified: NDArray[np.bool_]
    """(checkpoints, studies)."""
    errors: FloatArray
    """(checkpoints, studies, guardrails): posterior deviation of the slack of the answer's candidates, without the part
    that the answer gives the baseline."""
    dilution: FloatArray
    """(checkpoints, studies): variance of the answer's candidates over that of as many units on the answer alone."""

    def certificate_chance(self, slack: FloatArray, confidence: float) -> FloatArray:
        """Return the chance that a blend with such a true slack is certified, (checkpoints, guardrails).

        The estimate of the slack is Gaussian with the deviation s, so the chance is Φ(slack / s − z).
        """
        return np.asarray(ndtr(slack / self.errors - ndtri(confidence)).mean(axis=1))

    @property
    def relative_gain(self) -> FloatArray:
        """Expected gain of the answer over that of the best blend, (checkpoints,); 1 if there is nothing to gain."""
        possible = float(self.best.mean())
        return np.asarray(self.gains.mean(axis=1) / possible if possible > 0 else np.ones(len(self.rounds)))


def forecast_learning(
    scenario: LearningScenario, rounds: int, *, studies: int = 64, seed: int = 0, draws: int = DRAWS
) -> LearningForecast:
    """Simulate studies of a scenario, and return their answers by round.

    Scenarios that differ in the number of candidates only share the truth of those that they have in common.

    >>> import numpy as np
    >>> one = np.ones(1)
    >>> scenario = LearningScenario(
    ...     5, 10_000.0, 100.0 * one, 4.0 * np.eye(1), one, np.empty((0, 1)), one[:0], one[:0], one[:0] > 0
    ... )
    >>> forecast = forecast_learning(scenario, 30, studies=32)
    >>> forecast.rounds[:4].tolist(), bool(forecast.relative_gain[-1] > 0.8 > forecast.relative_gain[0])
    ([1, 2, 3, 4], True)
    """
    truth = _draw_truth(scenario, studies, seed)
    exact = _Columns.of(scenario, truth, np.zeros((studies, len(scenario.deviations)))).program(scenario)
    solution = solve_batch(exact)
    simulation = _Simulation(scenario, truth, draws, np.random.default_rng([seed, 1]))
    answers = []
    while simulation.done < rounds:
        step = max(1, int(STEP_GROWTH * simulation.done))
        simulation.serve(min(step, rounds - simulation.done))
        answers.append((simulation.done, *simulation.answer()))
    numbers, shares, certified, errors, dilution = zip(*answers, strict=True)
    gains = np.array([exact.value(probabilities) for probabilities in shares])
    return LearningForecast(
        rounds=np.array(numbers, dtype=np.intp),
        feasible=solution.feasible,
        best=np.where(solution.feasible, exact.value(solution.probabilities), 0.0),
        gains=np.where(solution.feasible, gains, 0.0),
        certified=np.array(certified) & solution.feasible,
        errors=np.array(errors),
        dilution=np.array(dilution),
    )


def _draw_truth(scenario: LearningScenario, studies: int, seed: int) -> FloatArray:
    """Draw the effects of every candidate except the baseline, (studies, others, metrics)."""
    others, metrics = scenario.candidates - 1, len(scenario.deviations)
    rng = np.random.default_rng([seed, 0])
    noise = np.stack([rng.standard_normal((studies, metrics)) for _ in range(others)], axis=1)
    if scenario.factors is not None:
        common = rng.standard_normal((studies, scenario.factors.shape[1], metrics))
        noise = np.sqrt(scenario.own_variance) * noise + scenario.factors[:others] @ common
    return np.asarray(noise @ np.linalg.cholesky(scenario.effects).T)


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """Goal and slack of every candidate, the baseline first, over leading axes."""

    goal: FloatArray
    """(..., candidates)."""
    slack: FloatArray
    """(..., guardrails, candidates)."""

    @classmethod
    def of(cls, scenario: LearningScenario, effects: FloatArray, level: FloatArray) -> _Columns:
        """Build columns from effects (..., others, metrics) and the level of the control, (..., metrics)."""
        relative = scenario.relative[:, None]
        own = np.moveaxis(effects @ scenario.rails.T, -1, -2)
        baseline = (level @ scenario.rails.T)[..., None]
        slack = np.concatenate([np.where(relative, 0.0, baseline), own - np.where(relative, baseline, 0.0)], axis=-1)
        goal = (effects - level[..., None, :]) @ scenario.goal
        return cls(np.concatenate([np.zeros((*goal.shape[:-1], 1)), goal], axis=-1), slack + scenario.slack[:, None])

    def program(self, scenario: LearningScenario) -> Program:
        """Return the program of one blend for each place of the leading axis."""
        return Program(self.goal, self.slack, scenario.penalties)


@dataclass(slots=True, eq=False)
class _Evidence:
    """Sums of what studies have measured."""

    units: FloatArray
    """(studies, others)."""
    sums: FloatArray
    """(studies, others, metrics)."""
    control_units: FloatArray
    """(studies,): of the baseline."""
    control_sums: FloatArray
    """(studies, metrics)."""

    def __add__(self, other: _Evidence) -> _Evidence:
        return _Evidence(
            self.units + other.units,
            self.sums + other.sums,
            self.control_units + other.control_units,
            self.control_sums + other.control_sums,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Posterior:
    """Posterior of the level of every candidate, with a prior mean that is not known, and of the control's level."""

    scenario: LearningScenario
    mean: FloatArray
    """(studies, others, metrics)."""
    covariance: FloatArray
    """(studies, others, metrics, metrics): each candidate's own."""
    shared: FloatArray
    """(studies, others, metrics, rank): columns of the covariance that candidates share."""
    level: FloatArray
    """(studies, metrics)."""
    level_variance: FloatArray
    """(studies, metrics)."""
    columns: _Columns
    own: FloatArray
    """(studies, guardrails, others): variance of each candidate's slack."""
    loadings: FloatArray
    """(studies, others, guardrails, rank): what the slacks of candidates share."""

    @classmethod
    def of(cls, scenario: LearningScenario, evidence: _Evidence) -> _Posterior:
        """Return the posterior of what was measured.

        Levels are the design times coefficients, plus a part of each candidate's own. The coefficients of the common
        mean have a flat prior, those of the factors the covariance of the effects.
        """
        metrics, design = len(scenario.goal), scenario.design
        prior = (scenario.own_variance if scenario.factors is not None else 1.0) * scenario.effects
        units = np.maximum(evidence.units, 1e-9)
        weights = np.linalg.inv(prior + np.diag(scenario.deviations**2) / units[:, :, None, None])
        estimates = evidence.sums / units[:, :, None]
        columns = design.shape[1]
        information = np.einsum("kp,skab,kq->spaqb", design, weights, design, optimize=True)
        information = information.reshape(len(units), columns * metrics, columns * metrics)
        flat = np.diag(np.append(0.0, np.ones(columns - 1)))
        information = information + np.kron(flat, np.linalg.inv(scenario.effects))
        coefficient_covariance = np.linalg.inv(information)
        weighted = np.einsum("kp,skab,skb->spa", design, weights, estimates, optimize=True)
        coefficients = np.einsum("sij,sj->si", coefficient_covariance, weighted.reshape(len(units), -1))
        common = np.einsum("kp,spa->ska", design, coefficients.reshape(len(units), columns, metrics))
        shrinkage = prior @ weights
        mean = common + np.einsum("skab,skb->ska", shrinkage, estimates - common)
        covariance = prior - shrinkage @ prior
        covariance = 0.5 * (covariance + np.swapaxes(covariance, -1, -2))
        root = np.linalg.cholesky(coefficient_covariance).reshape(len(units), columns, metrics, -1)
        remaining = np.eye(metrics) - shrinkage
        shared = np.einsum("skab,kp,spbr->skar", remaining, design, root, optimize=True)
        level = evidence.control_sums / evidence.control_units[:, None]
        level_variance = scenario.deviations**2 / evidence.control_units[:, None]
        own = np.einsum("ga,skab,gb->sgk", scenario.rails, covariance, scenario.rails, optimize=True)
        loadings = np.einsum("ga,skab->skgb", scenario.rails, shared)
        columns = _Columns.of(scenario, mean, level)
        return cls(scenario, mean, covariance, shared, level, level_variance, columns, own, loadings)

    def draw(self, draws: int, rng: np.random.Generator) -> _Columns:
        """Return columns of posterior draws, (studies, draws, ...)."""
        studies, others, metrics = self.mean.shape
        floor = 1e-12 * np.trace(self.scenario.effects) * np.eye(metrics)
        own = np.linalg.cholesky(self.covariance + floor)
        effects = self.mean[:, None] + np.einsum(
            "skab,sdkb->sdka", own, rng.standard_normal((studies, draws, others, metrics))
        )
        common = rng.standard_normal((studies, draws, self.shared.shape[-1]))
        effects += np.einsum("skar,sdr->sdka", self.shared, common, optimize=True)
        deviation = np.sqrt(self.level_variance)[:, None]
        level = self.level[:, None] + deviation * rng.standard_normal((studies, draws, metrics))
        return _Columns.of(self.scenario, effects, level)

    def contrast_variances(self, prices: FloatArray) -> FloatArray:
        """Return the variance of each candidate's contrast with the control at prices (studies, metrics)."""
        own = np.einsum("sa,skab,sb->sk", prices, self.covariance, prices)
        shared = np.square(np.einsum("sa,skab->skb", prices, self.shared)).sum(axis=-1)
        level = (prices**2 * self.level_variance).sum(axis=-1)
        return np.concatenate([np.zeros((len(own), 1)), own + shared + level[:, None]], axis=1)

    def slack_deviations(self, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the deviation of each guardrail's slack (studies, guardrails), and its gradient in the shares."""
        rails, relative = self.scenario.rails, self.scenario.relative
        others = shares[:, 1:]
        level = self.level_variance @ np.square(rails).T
        # The control's error is in every contrast with it; of a level, the baseline's part has it.
        exposure = np.where(relative, others.sum(axis=1)[:, None], shares[:, :1])
        combined = np.einsum("sk,skgb->sgb", others, self.loadings)
        variance = np.einsum("sk,sgk->sg", others**2, self.own) + np.square(combined).sum(axis=-1) + exposure**2 * level
        deviations = np.sqrt(np.maximum(variance, 1e-18))
        slope = others[:, None] * self.own + np.einsum("skgb,sgb->sgk", self.loadings, combined)
        slope += np.where(relative, exposure * level, 0.0)[..., None]
        baseline = np.where(relative, 0.0, exposure * level)[..., None]
        return deviations, np.concatenate([baseline, slope], axis=2) / deviations[..., None]

    def expected_value(self, shares: FloatArray) -> FloatArray:
        """Return the expected goal less the expected penalties of soft guardrails, (studies,)."""
        soft = ~self.scenario.hard
        value = (self.columns.goal * shares).sum(axis=1)
        if not soft.any():
            return np.asarray(value)
        mean = np.einsum("sgk,sk->sg", self.columns.slack, shares)[:, soft]
        deviation = self.slack_deviations(shares)[0][:, soft]
        ratio = mean / deviation
        density = np.exp(-0.5 * ratio**2) / np.sqrt(2.0 * np.pi)
        breach = (mean**2 + deviation**2) * ndtr(-ratio) - mean * deviation * density
        return np.asarray(value - breach @ self.scenario.penalties[soft])


class _Simulation:
    """Simulation of studies side by side: what they measured, and the shares that they serve."""

    def __init__(self, scenario: LearningScenario, truth: FloatArray, draws: int, rng: np.random.Generator) -> None:
        self.scenario, self.truth, self.draws, self.rng = scenario, truth, draws, rng
        studies, others, metrics = truth.shape
        self.done = 0
        self.evidence = _Evidence(
            np.zeros((studies, others)), np.zeros(truth.shape), np.zeros(studies), np.zeros((studies, metrics))
        )
        self.maturing: list[tuple[int, _Evidence]] = []
        self.mature = self.evidence
        self.shares = np.tile(_first_shares(scenario), (studies, 1))

    def serve(self, rounds: int) -> None:
        """Serve the shares for some rounds, and choose the next ones from the rounds that have matured."""
        measured = self._measure(rounds)
        self.done += rounds
        self.evidence = self.evidence + measured
        self.maturing.append((self.done, measured))
        while self.maturing and self.maturing[0][0] <= self.done - self.scenario.lag:
            self.mature = self.mature + self.maturing.pop(0)[1]
        if self.mature.control_units.all():
            self.shares = self._choose_shares(_Posterior.of(self.scenario, self.mature))

    def answer(self) -> tuple[FloatArray, NDArray[np.bool_], FloatArray, FloatArray]:
        """Return the answers of all studies: shares, certified, and errors and dilution of their candidates."""
        posterior = _Posterior.of(self.scenario, self.evidence)
        shares, certified = _answer(posterior)
        part = np.where((shares[:, :1] < 1.0 - 1e-3), shares, self.shares)  # what is learned if the answer is today's
        part[:, 0] = 0.0
        part /= part.sum(axis=1, keepdims=True)
        errors, _ = posterior.slack_deviations(part)
        spread = (part[:, 1:] ** 2 / np.maximum(self.evidence.units, 1e-9)).sum(axis=1)
        return shares, certified, errors, spread * self.scenario.learner_units * self.done

    def _measure(self, rounds: int) -> _Evidence:
        """Draw the sums of some rounds under the present shares."""
        scenario, rng = self.scenario, self.rng
        served = self.shares * scenario.learner_units * rounds
        units, control = served[:, 1:], served[:, 0] + scenario.units * scenario.control * rounds
        noise = np.sqrt(units)[:, :, None] * scenario.deviations * rng.standard_normal(self.truth.shape)
        level = np.sqrt(control)[:, None] * scenario.deviations
        level *= rng.standard_normal((len(units), len(scenario.deviations)))
        return _Evidence(units, units[:, :, None] * self.truth + noise, control, level)

    def _choose_shares(self, posterior: _Posterior) -> FloatArray:
        """Return the shares by which the blends of posterior draws learn most, within the limits."""
        scenario = self.scenario
        studies, count = len(self.shares), scenario.candidates
        columns = posterior.draw(self.draws, self.rng)
        slack = columns.slack.reshape(studies * self.draws, len(scenario.slack), count)
        solution = solve_batch(Program(columns.goal.reshape(-1, count), slack, scenario.penalties))
        blends = solution.probabilities.reshape(studies, self.draws, count)
        duals = solution.duals.reshape(studies, self.draws, len(scenario.slack)).mean(axis=1)
        prices = scenario.goal + duals @ scenario.rails
        slot = (prices**2 @ scenario.deviations**2) * self.draws / scenario.learner_units
        named = _allocate_slots(blends, posterior.contrast_variances(prices), slot)
        shares = scenario.min_share / count + (1.0 - scenario.min_share) * named
        if scenario.max_share is not None:
            most = np.full(count, scenario.max_share)
            most[0] = 1.0
            shares = np.array([cap_shares(row, most, np.eye(count)[0]) for row in shares])
        return _limit_losses(posterior, shares)


def _first_shares(scenario: LearningScenario) -> FloatArray:
    """Return the shares before anything is measured, as the learner's limits have them."""
    count = scenario.candidates
    each = 1.0 / count
    for limit in (scenario.max_share, scenario.new_candidate_share):
        each = each if limit is None else min(each, limit)
    if scenario.loss_budgets is not None:
        limit = scenario.new_candidate_share
        each = min(PROBE_SHARE / (count - 1), 1.0 if limit is None else limit)
    return np.append(1.0 - (count - 1) * each, np.full(count - 1, each))


def _allocate_slots(blends: FloatArray, variances: FloatArray, slot: FloatArray) -> FloatArray:
    """Return the shares of slots that candidates are given, (studies, candidates); as `allocate` of the learner.

    `blends` are (studies, draws, candidates), `slot` (studies,) is the variance of one slot's measurement.
    """
    precision = 1.0 / np.maximum(variances, 1e-300)
    gained = (1.0 / slot)[:, None]
    counts = np.zeros_like(variances)
    every = np.arange(len(counts))
    for draw in range(blends.shape[1]):
        now = precision + counts * gained
        worth = blends[:, draw] ** 2 * (1.0 / now - 1.0 / (now + gained))
        counts[every, worth.argmax(axis=1)] += 1.0
    return np.asarray(counts / blends.shape[1], dtype=float)


def _limit_losses(posterior: _Posterior, shares: FloatArray) -> FloatArray:
    """Return shares mixed with the baseline until every budgeted guardrail's lower bound is within its loss."""
    scenario = posterior.scenario
    if scenario.loss_budgets is None:
        return shares
    budgeted = np.isfinite(scenario.loss_budgets)
    z = float(ndtri(1.0 - (1.0 - scenario.confidence) / max(int(budgeted.sum()), 1)))
    part = shares.copy()
    part[:, 0] = 0.0
    loss = z * posterior.slack_deviations(part)[0] - np.einsum(
        "sgk,sk->sg", posterior.columns.slack - posterior.columns.slack[:, :, :1], part
    )
    allowed = scenario.loss_budgets + np.maximum(scenario.slack, -scenario.loss_budgets)
    scale = np.where(loss > 0, allowed / np.maximum(loss, 1e-300), 1.0)[:, budgeted]
    part *= np.clip(scale.min(axis=1), 0.0, 1.0)[:, None]
    part[:, 0] = 1.0 - part.sum(axis=1)
    return part


def _answer(posterior: _Posterior) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the blends of the highest expected value whose hard guardrails hold, and the studies that have one.

    A deviation is convex in the shares, so a tangent relaxes the chance constraint. Each step takes the tangents at the
    blend before, and gives the baseline the part that is then still missing. The best of all steps is the answer.
    """
    scenario, columns = posterior.scenario, posterior.columns
    z = float(ndtri(scenario.confidence)) * scenario.hard[:, None]
    best = np.zeros_like(columns.goal)
    best[:, 0] = 1.0
    value = np.where(_holds(posterior, best), posterior.expected_value(best), -np.inf)
    slack = columns.slack
    for _ in range(TANGENT_STEPS if scenario.hard.any() else 1):
        shares = solve_batch(Program(columns.goal, slack, scenario.penalties)).probabilities
        slack = columns.slack - z * posterior.slack_deviations(shares)[1]
        trial = _mix_until_certified(posterior, shares)
        trial_value = np.where(_holds(posterior, trial), posterior.expected_value(trial), -np.inf)
        best = np.where((trial_value > value)[:, None], trial, best)
        value = np.maximum(value, trial_value)
    if not scenario.hard.all():  # less of the candidates may be better, because an uncertain slack costs penalties
        baseline = np.eye(scenario.candidates)[0]
        for part in np.linspace(0.0, 1.0, PENALTY_STEPS, endpoint=False):
            trial = baseline + part * (shares - baseline)
            trial_value = np.where(_holds(posterior, trial), posterior.expected_value(trial), -np.inf)
            best = np.where((trial_value > value)[:, None], trial, best)
            value = np.maximum(value, trial_value)
    return best, np.isfinite(value)


def _holds(posterior: _Posterior, shares: FloatArray) -> NDArray[np.bool_]:
    """Return the studies in which every hard guardrail holds with the confidence, (studies,)."""
    scenario = posterior.scenario
    margin = float(ndtri(scenario.confidence)) * posterior.slack_deviations(shares)[0]
    slack = np.einsum("sgk,sk->sg", posterior.columns.slack, shares) - margin
    return np.asarray((slack[:, scenario.hard] >= -1e-9).all(axis=1))


def _mix_until_certified(posterior: _Posterior, shares: FloatArray) -> FloatArray:
    """Return shares mixed with the baseline, with the largest part of them that is certified."""
    baseline = np.eye(posterior.scenario.candidates)[0]
    low, high = np.where(_holds(posterior, shares), 1.0, 0.0), np.ones(len(shares))
    for _ in range(MIXING_STEPS):
        middle = 0.5 * (low + high)
        fits = _holds(posterior, baseline + middle[:, None] * (shares - baseline))
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.asarray(baseline + low[:, None] * (shares - baseline))
