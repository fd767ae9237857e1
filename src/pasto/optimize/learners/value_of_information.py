"""Value of information: the gain that more rounds are expected to bring, and what they cost in traffic.

From posterior draws of the truth, the data of n more rounds are simulated at the planned shares. Each draw then has a
new posterior mean, and all have the same new covariance. The answer is chosen again under each of them; the mean rise
of f is the gain of n rounds (a knowledge gradient). The cost of a round is what its traffic has less than the present
blend: control, floor and exploration. The slack of hard guardrails counts at their prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pasto.arrays import FloatArray
from pasto.blend import LearningForecast
from pasto.estimate import Posterior
from pasto.objective import LinearGoal, NormalForm
from pasto.optimize.chance_constrained.program import expected_penalty
from pasto.optimize.chance_constrained.robust_blend import RobustBlend
from pasto.optimize.exact.solver import Program, solve_batch
from pasto.optimize.learners.base import (
    LearningProblem,
    TrafficPlan,
    build_form,
    clip_to_ranges,
    read_baseline_offsets,
    stack_programs,
)

MAX_FORECAST_CANDIDATES = 48
"""Candidates of which data are simulated: those that take part in the blends of most draws."""
FORECASTS = 6
"""Numbers of rounds that are looked ahead, evenly spaced on a log axis from one to a quarter of the deployment."""
STEP_PARTS = (1.0, 0.5, 0.25, 0.1)
"""Parts of the step to a draw's own blend that are tried."""
CERTIFICATE_DRAWS = 24
"""Draws behind the gain of a certificate; programs that no blend meets are slow to solve."""
HARD_STEPS = 3
"""Steps toward each draw's answer if there are hard guardrails; without, the first step is nearly exact."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundEvidence:
    """Units and noise of one more round."""

    unit_covariance: FloatArray
    """(metrics, metrics)."""
    units: float
    """Units of the learner in a round, control aside."""
    has_free_level: bool
    """True if every round has a level of its own, so that only differences between candidates are measured."""


@dataclass(frozen=True, slots=True, eq=False)
class LearningValue:
    """Forecasts of what more rounds are worth, and the cost of one."""

    forecasts: tuple[LearningForecast, ...]
    round_cost: float
    """Expected f of the present blend less that of the next round's traffic."""


def forecast_learning(
    problem: LearningProblem,
    posterior: Posterior,
    solution: RobustBlend,
    evidence: RoundEvidence,
    traffic: TrafficPlan,
    samples: FloatArray,
    best: FloatArray,
    rng: np.random.Generator,
) -> LearningValue:
    """Return the gain and the cost of several numbers of rounds.

    `samples` (draws, metrics, candidates) are posterior draws, and `best` (draws, candidates) their exact blends.
    """
    present = _PresentAnswer.of(problem, posterior, solution)
    round_cost = present.cost(traffic.whole_traffic(problem.baseline))
    subset = _choose_candidates(problem, best, solution.probabilities)
    forecaster = _Forecaster.of(problem, posterior, present, evidence, traffic, subset, samples, rng)
    rounds = lookahead_rounds(traffic.deploy_rounds)
    gains = np.maximum.accumulate(np.maximum(forecaster.gains(rounds), 0.0))
    forecasts = [
        LearningForecast(
            count, float(gain), count * round_cost, float(traffic.deploy_rounds * gain - count * round_cost)
        )
        for count, gain in zip(rounds, gains, strict=True)
    ]
    return LearningValue(tuple(forecasts), round_cost)


def lookahead_rounds(deploy_rounds: float) -> list[int]:
    """Return the numbers of rounds that are looked ahead.

    >>> lookahead_rounds(180.0), lookahead_rounds(3.0)
    ([1, 2, 5, 10, 21, 45], [1])
    """
    last = max(1.0, deploy_rounds / 4.0)
    return sorted({round(count) for count in np.geomspace(1.0, last, FORECASTS).tolist()})


def _choose_candidates(problem: LearningProblem, best: FloatArray, shares: FloatArray) -> NDArray[np.intp]:
    """Return the candidates that matter, in the order of their names, with the present blend's and the baseline."""
    weight = best.mean(axis=0) + 2.0 * (shares > 0.0)
    if problem.baseline is not None:
        weight[problem.baseline] += 4.0
    order = problem.order
    ranked = order[np.argsort(-weight[order], kind="stable")][:MAX_FORECAST_CANDIDATES]
    chosen = np.zeros(len(shares), dtype=np.bool_)
    chosen[ranked[weight[ranked] > 1e-9]] = True
    return order[chosen[order]]


@dataclass(frozen=True, slots=True, eq=False)
class _PresentAnswer:
    """The present answer, and expected f of any blend under the present posterior."""

    problem: LearningProblem
    posterior: Posterior
    solution: RobustBlend
    form: NormalForm
    """At the posterior's mean; its goal is linear, or has the slope of the goal at the present blend."""
    offsets: FloatArray
    margin: float
    """Deviations that the slack of a hard guardrail must have to spare."""

    @classmethod
    def of(cls, problem: LearningProblem, posterior: Posterior, solution: RobustBlend) -> _PresentAnswer:
        form = build_form(problem, posterior.mean, posterior.mean)
        if not isinstance(form.goal, LinearGoal):
            metrics = clip_to_ranges(form, posterior.mean) @ solution.probabilities
            slope = form.goal.gradient(metrics)
            form = replace(form, goal=LinearGoal(slope, float(form.goal.value(metrics) - slope @ metrics)))
        offsets = read_baseline_offsets(problem.objective)
        return cls(problem, posterior, solution, form, offsets, float(ndtri(problem.limits.confidence)))

    @property
    def is_deployable(self) -> bool:
        """True if every hard guardrail holds with the confidence asked for."""
        return self.solution.certified

    @property
    def fallback(self) -> float:
        """The goal without an answer: of the baseline, or of the average candidate."""
        goals = self.form.goal.value(self.posterior.mean.T)
        return float(
            goals[self.problem.active].mean() if self.problem.baseline is None else goals[self.problem.baseline]
        )

    def cost(self, shares: FloatArray) -> float:
        """Return what traffic with these shares has less than the answer, or than the fallback, at least 0."""
        present = self._worth(self.solution.probabilities) if self.is_deployable else self.fallback
        return max(0.0, present - self._worth(shares))

    def _worth(self, shares: FloatArray) -> float:
        """Return the expected f of a blend, with the slack of hard guardrails at its price."""
        form, posterior = self.form, self.posterior
        slack = (form.rows @ posterior.mean - form.at[:, None]) @ shares
        spreads = np.array(
            [
                float(posterior.spread(row, shift_by_baseline(shares, offset, self.problem.baseline)))
                for row, offset in zip(form.rows, self.offsets, strict=True)
            ]
        )
        soft = ~form.hard
        worth = float(form.goal.value(posterior.mean @ shares))
        worth -= float(expected_penalty(slack[soft], spreads[soft]) @ form.penalties[soft])
        return worth + (float(self.solution.duals[form.hard] @ slack[form.hard]) if self.is_deployable else 0.0)


def shift_by_baseline(shares: FloatArray, offset: float, baseline: int | None) -> FloatArray:
    """Return the weights (..., candidates) whose spread is that of a guardrail relative to the baseline."""
    if baseline is None or not offset:
        return shares
    weights = shares.copy()
    weights[..., baseline] -= offset
    return weights


def _add_guardrails(
    goal: FloatArray, slack: FloatArray, spreads: FloatArray, form: NormalForm, margin: float, prices: FloatArray
) -> FloatArray:
    """Return the goal less expected penalties of soft guardrails and the price of misses of hard ones, (...)."""
    soft = ~form.hard
    value = np.asarray(goal, dtype=float)
    if soft.any():
        value = value - expected_penalty(slack[..., soft], spreads[..., soft]) @ form.penalties[soft]
    missed = np.maximum(0.0, margin * spreads - slack)
    return np.asarray(value - (np.where(form.hard, prices, 0.0) * missed).sum(axis=-1))


@dataclass(frozen=True, slots=True, eq=False)
class _Forecaster:
    """Simulation of more rounds for the candidates that matter."""

    present: _PresentAnswer
    problem: LearningProblem
    """Of these candidates alone."""
    shares: FloatArray
    """(candidates,): the present blend."""
    mean: FloatArray
    """(metrics, candidates)."""
    covariance: FloatArray
    """(metrics · candidates)², as `Posterior.covariance`."""
    truths: FloatArray
    """(draws, metrics, candidates)."""
    information: FloatArray
    """(metrics · candidates)²: the information of one round about the means."""
    scores: FloatArray
    """(draws, metrics · candidates): the noise of one round in units of information."""
    effective_noise: FloatArray
    """(guardrails,): variance of a guardrail's slack, measured by a round that serves nothing but the blend."""

    @classmethod
    def of(
        cls,
        problem: LearningProblem,
        posterior: Posterior,
        present: _PresentAnswer,
        evidence: RoundEvidence,
        traffic: TrafficPlan,
        subset: NDArray[np.intp],
        samples: FloatArray,
        rng: np.random.Generator,
    ) -> _Forecaster:
        part = posterior.take(subset)
        baseline = None if problem.baseline is None else int(np.flatnonzero(subset == problem.baseline)[0])
        control = traffic.control_units(evidence.units)
        units = evidence.units * traffic.shares[subset]
        if baseline is not None:
            units[baseline] += control
        information, root = _round_information(units, evidence.units + control, has_free_level=evidence.has_free_level)
        precision = np.linalg.inv(_invertible(evidence.unit_covariance))
        normals = rng.standard_normal((len(samples), len(precision), root.shape[1]))
        scores = np.einsum("ab,jbr,kr->jak", np.linalg.cholesky(precision), normals, root)
        rows = present.form.rows
        unit_variances = np.einsum("ga,ab,gb->g", rows, evidence.unit_covariance, rows)
        noise = unit_variances / evidence.units
        if control:
            noise = noise + np.square(present.offsets) * unit_variances / control
        return cls(
            present,
            replace(problem, names=tuple(problem.names[k] for k in subset), baseline=baseline, retired=frozenset()),
            present.solution.probabilities[subset],
            part.mean,
            part.covariance(),
            samples[:, :, subset],
            np.kron(precision, information),
            scores.reshape(len(samples), -1),
            noise,
        )

    def gains(self, rounds: Sequence[int]) -> FloatArray:
        """Return the expected rise of f after each number of rounds."""
        if not self.present.is_deployable:
            return np.array([self._gain_of_certificate(count) for count in rounds])
        covariances = [self._learn_covariance(count) for count in rounds]
        means = [self._learn_means(count, after) for count, after in zip(rounds, covariances, strict=True)]
        programs = self._programs(np.concatenate(means))
        deviations = [self._deviations(after) for after in covariances]
        draws = len(self.truths)
        groups = [(each, slice(n * draws, (n + 1) * draws)) for n, each in enumerate(deviations)]
        present = np.broadcast_to(self.shares, programs.goal.shape)
        answers, prices = self._improve(programs, groups, present, np.zeros(programs.slack.shape[:2]))
        if self.present.form.hard.any():
            for _ in range(HARD_STEPS - 1):
                answers, prices = self._improve(programs, groups, answers, prices)
        # On average over all data the present blend is worth what it is worth now, however its guardrails turn out.
        rises = self._values(programs, groups, answers, prices)
        rises = rises - self._values(programs, groups, present, np.zeros_like(prices))
        return np.array([float(rises[part].mean()) for _, part in groups])

    def _improve(
        self, programs: Program, groups: Sequence[_Group], answers: FloatArray, prices: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return better answers, (programs, candidates), and the prices of guardrails there, (programs, guardrails).

        The spread of each hard guardrail is linear around the answer; that is exact for small steps, so the step to the
        best blend is taken whole or in part.
        """
        hard, margin = self.present.form.hard, self.present.margin
        slopes = np.concatenate([deviations.slopes(answers[part]) for deviations, part in groups])
        margins = np.where(hard[:, None], margin * slopes, 0.0)
        solved = solve_batch(replace(programs, slack=programs.slack - margins))
        prices = np.maximum(prices, solved.duals)
        tried = [part * solved.probabilities + (1.0 - part) * answers for part in (*STEP_PARTS, 0.0)]
        values = np.array([self._values(programs, groups, shares, prices) for shares in tried])
        return np.take_along_axis(np.array(tried), values.argmax(axis=0)[None, :, None], axis=0)[0], prices

    def _values(
        self, programs: Program, groups: Sequence[_Group], shares: FloatArray, prices: FloatArray
    ) -> FloatArray:
        """Return the expected f of blends under the programs, (programs,)."""
        goal = (programs.goal * shares).sum(axis=1)
        slack = np.einsum("jgk,jk->jg", programs.slack, shares)
        spreads = np.concatenate([deviations.spreads(shares[part]) for deviations, part in groups])
        return _add_guardrails(goal, slack, spreads, self.present.form, self.present.margin, prices)

    def _gain_of_certificate(self, rounds: int) -> float:
        """Return the gain if nothing is certified: that of each truth's blend, certified by rounds that serve it alone.

        That is more than these rounds can bring, because the blend has yet to be found.
        """
        before = np.square(self._deviations(self.covariance).spreads(self.shares[None])[0])
        noise = np.maximum(self.effective_noise / rounds, 1e-300)
        after = np.sqrt(before * noise / np.maximum(before + noise, 1e-300))
        programs = self._programs(self.truths[:CERTIFICATE_DRAWS])
        lowered = replace(
            programs, slack=programs.slack - np.where(self.present.form.hard, self.present.margin * after, 0.0)[:, None]
        )
        answers = solve_batch(lowered)
        rises = (programs.goal * answers.probabilities).sum(axis=1) - self.present.fallback
        return float(np.where(answers.feasible, np.maximum(rises, 0.0), 0.0).mean())

    def _learn_covariance(self, rounds: int) -> FloatArray:
        """Return the posterior covariance after more rounds, C (I + n Λ C)⁻¹."""
        system = np.eye(len(self.covariance)) + rounds * self.information @ self.covariance
        after = np.linalg.solve(system.T, self.covariance)
        return np.asarray(0.5 * (after + after.T))

    def _learn_means(self, rounds: int, after: FloatArray) -> FloatArray:
        """Return a posterior mean for each draw of the truth, (draws, metrics, candidates)."""
        deviations = (self.truths - self.mean).reshape(len(self.truths), -1)
        learned = (rounds * deviations @ self.information + np.sqrt(rounds) * self.scores) @ after
        return np.asarray(self.mean + learned.reshape(self.truths.shape))

    def _programs(self, means: FloatArray) -> Program:
        """Return the programs of many means, with the goal's slope at the present blend."""
        form = self.present.form
        if not self.problem.objective.relative:
            return Program.of(form, means)
        forms = [build_form(self.problem, each, self.mean) for each in means]
        return stack_programs([replace(each, goal=_line(each, form)) for each in forms], means)

    def _deviations(self, covariance: FloatArray) -> _SlackDeviations:
        metrics, count = self.mean.shape
        blocks = covariance.reshape(metrics, count, metrics, count)
        rows = self.present.form.rows
        forms = np.einsum("ga,aibj,gb->gij", rows, blocks, rows, optimize=True)
        return _SlackDeviations(forms, self.present.offsets, self.problem.baseline)


@dataclass(frozen=True, slots=True, eq=False)
class _SlackDeviations:
    """Deviation of each guardrail's slack under blends."""

    covariances: FloatArray
    """(guardrails, candidates, candidates)."""
    offsets: FloatArray
    baseline: int | None

    def spreads(self, shares: FloatArray) -> FloatArray:
        """Return the deviations for shares (blends, candidates), (blends, guardrails)."""
        spreads = np.zeros((len(shares), len(self.offsets)))
        for place, (covariance, offset) in enumerate(zip(self.covariances, self.offsets, strict=True)):
            weights = shift_by_baseline(shares, offset, self.baseline)
            spreads[:, place] = np.sqrt(np.maximum(((weights @ covariance) * weights).sum(axis=1), 0.0))
        return spreads

    def slopes(self, shares: FloatArray) -> FloatArray:
        """Return tangents of the deviations, (blends, guardrails, candidates): there, slopes · p is the deviation."""
        slopes = np.zeros((len(shares), len(self.offsets), shares.shape[1]))
        for place, (covariance, offset) in enumerate(zip(self.covariances, self.offsets, strict=True)):
            weights = shift_by_baseline(shares, offset, self.baseline)
            moved = weights @ covariance
            spread = np.sqrt(np.maximum((moved * weights).sum(axis=1), 1e-300))
            slope = moved / spread[:, None]
            held = slope[:, [self.baseline]] if self.baseline is not None else np.zeros((len(shares), 1))
            slopes[:, place] = slope - offset * held
        return slopes


_Group = tuple[_SlackDeviations, slice]
"""The deviations after some number of rounds, and the programs that they belong to."""


def _line(form: NormalForm, present: NormalForm) -> LinearGoal:
    """Return a draw's own goal if it is linear; otherwise the line that stands for the goal."""
    goal = form.goal if isinstance(form.goal, LinearGoal) else present.goal
    assert isinstance(goal, LinearGoal)  # noqa: S101 -- `_PresentAnswer.of` has made it so
    return goal


def _round_information(units: FloatArray, total: float, *, has_free_level: bool) -> tuple[FloatArray, FloatArray]:
    """Return the information A of a round about candidates, in units, and a root B with A = B Bᵀ.

    With known levels A = diag(n). With a free level it is diag(n) − n nᵀ / Σ n over all cells of the round. Candidates
    that are left out are one more cell.
    """
    cells = np.append(units, max(0.0, total - float(units.sum())))
    root = np.diag(np.sqrt(cells))
    if has_free_level and total > 0.0:
        root = root - np.outer(cells, np.sqrt(cells)) / total
    root = root[:-1]
    return root @ root.T, root


def _invertible(covariance: FloatArray) -> FloatArray:
    """Return the covariance with a little more variance, so that metrics that never vary are not exact."""
    variances = np.diag(covariance)
    largest = float(variances.max(initial=0.0)) or 1.0
    return np.asarray(covariance + np.diag(np.maximum(1e-9 * variances, 1e-15 * largest)))
