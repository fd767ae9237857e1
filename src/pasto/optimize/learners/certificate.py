"""Certificate and outlook: the confidence in the robust blend under a posterior, and what more rounds are worth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.blend import Blend, Certificate, Move, Outlook
from pasto.estimate import Overdispersion, Posterior
from pasto.optimize.blend_summary import summarize_blend
from pasto.optimize.chance_constrained.robust_blend import RobustBlend, holding_probabilities, intervals, solve_robust
from pasto.optimize.learners.base import (
    LearningProblem,
    TrafficPlan,
    build_form,
    clip_to_ranges,
    draw_blends,
    price_metrics,
    read_baseline_offsets,
)
from pasto.optimize.learners.value_of_information import RoundEvidence, forecast_learning

OUTLOOK_DRAWS = 64
"""Posterior draws behind an outlook."""
MIN_MEASURED_SHARE = 0.5
"""Share of the candidates in service that must be measured before the advice may be to stop."""


def certified_blend(
    problem: LearningProblem, posterior: Posterior, solution: RobustBlend, overdispersion: Overdispersion
) -> Blend:
    """Return the robust blend with its certificate.

    If repeats scatter more than the stated errors allow, nothing is certified.
    """
    form = build_form(problem, posterior.mean, posterior.mean)
    shares = solution.probabilities
    blend = summarize_blend(
        shares,
        clip_to_ranges(form, posterior.mean),
        problem.objective,
        names=problem.names,
        baseline=problem.baseline,
        duals=solution.duals,
        active=problem.active,
    )
    offsets = read_baseline_offsets(problem.objective)
    chances = holding_probabilities(form, posterior, shares, offsets=offsets, baseline=problem.baseline)
    best_single_holds = {}
    if blend.best_single is not None:
        alone = np.asarray(np.arange(len(problem.names)) == blend.best_single, dtype=float)
        single = holding_probabilities(form, posterior, alone, offsets=offsets, baseline=problem.baseline)
        best_single_holds = {
            name: float(chance) for name, chance, hard in zip(form.names, single, form.hard, strict=True) if hard
        }
    ranges = intervals(posterior, shares, np.eye(len(posterior.mean)), confidence=problem.limits.confidence)
    understated = {
        name: float(factor)
        for name, factor, raised in zip(
            problem.objective.metrics, overdispersion.factors, overdispersion.raised, strict=True
        )
        if raised
    }
    certificate = Certificate(
        confidence=problem.limits.confidence,
        certified=solution.certified and not understated,
        holds=dict(zip(form.names, chances.tolist(), strict=True)),
        intervals={
            name: (float(low), float(high)) for name, (low, high) in zip(problem.objective.metrics, ranges, strict=True)
        },
        understated_errors=understated,
    )
    return replace(blend, certificate=certificate, best_single_holds=best_single_holds)


def solve_certified(problem: LearningProblem, posterior: Posterior) -> RobustBlend:
    """Return the blend of the highest expected f, each hard guardrail held with the stated confidence.

    Only candidates in service take part; the shares are over all.
    """
    form = build_form(problem, posterior.mean, posterior.mean)
    active = np.flatnonzero(problem.active)
    active_posterior = posterior if len(active) == len(problem.names) else posterior.take(active)
    place = None if problem.baseline is None else int(np.searchsorted(active, problem.baseline))
    solution = solve_robust(
        form,
        active_posterior,
        confidence=problem.limits.confidence,
        offsets=read_baseline_offsets(problem.objective),
        baseline=place,
        rng=np.random.default_rng(0),
    )
    shares = np.zeros(len(problem.names))
    shares[active] = solution.probabilities
    return replace(solution, probabilities=shares)


def build_outlook(
    problem: LearningProblem,
    posterior: Posterior,
    blend: Blend,
    solution: RobustBlend,
    evidence: RoundEvidence,
    traffic: TrafficPlan,
    measured: NDArray[np.bool_],
    before: tuple[FloatArray, FloatArray] | None,
    rng: np.random.Generator,
) -> Outlook:
    """Return what more rounds are worth, and the decision that follows.

    `measured` (candidates,) is true for candidates with measurements, and `before` has the means and the metrics'
    prices before the last round.
    """
    noise = np.empty((OUTLOOK_DRAWS, *problem.shape))
    noise[:, :, problem.order] = rng.standard_normal(noise.shape)
    samples = posterior.draw(noise)
    best, _ = draw_blends(problem, posterior.mean, samples)
    shares = solution.probabilities
    regrets = [_regret(problem, truth, best[n], shares, posterior.mean) for n, truth in enumerate(samples)]
    value = forecast_learning(problem, posterior, solution, evidence, traffic, samples, best, rng)
    is_early = float(np.mean(measured[problem.active])) < MIN_MEASURED_SHARE
    is_worthwhile = max(forecast.net for forecast in value.forecasts) > 0.0
    form = build_form(problem, posterior.mean, posterior.mean)
    reach = clip_to_ranges(form, posterior.mean)
    worth = 0.001 * float(np.ptp(form.goal.value(reach[:, problem.active].T)))
    prices = price_metrics(problem, posterior.mean)
    return Outlook(
        decision="learn" if is_early or is_worthwhile else "stop",
        deploy_rounds=traffic.deploy_rounds,
        round_cost=value.round_cost,
        forecasts=value.forecasts,
        gain=float(np.mean(regrets)),
        worth=worth,
        equal_single=find_single(blend, worth),
        moves=() if before is None else _moves(problem, posterior.mean, prices, *before),
    )


def find_single(blend: Blend, worth: float) -> int | None:
    """Return the candidate that is as good as the blend, if there is one whose guardrails hold as surely."""
    if len(blend.support) == 1:
        return blend.support[0]
    if blend.gain.value is not None and blend.gain.value <= worth and blend.best_single_certified:
        return blend.gain.candidate
    return None


def _regret(
    problem: LearningProblem, truth: FloatArray, best: FloatArray, shares: FloatArray, means: FloatArray
) -> float:
    """Return the gain of the best blend of drawn means over the answer, in the goal and the soft guardrails."""
    form = build_form(problem, truth, means)
    reach = clip_to_ranges(form, truth)
    return max(0.0, float(form.smooth(reach @ best) - form.smooth(reach @ shares)))


def _moves(
    problem: LearningProblem, mean: FloatArray, row: FloatArray, mean_before: FloatArray, row_before: FloatArray
) -> tuple[Move, ...]:
    """Return the three candidates whose worth changed most, metric by metric."""
    count = mean_before.shape[1]
    parts = row[:, None] * mean[:, :count] - row_before[:, None] * mean_before
    changes = parts.sum(axis=0)
    changes = np.where(problem.active[:count], changes, 0.0)
    order = np.argsort(-np.abs(changes), kind="stable")[:3]
    names = problem.objective.metrics
    return tuple(
        Move(int(k), float(changes[k]), dict(zip(names, parts[:, k].tolist(), strict=True)))
        for k in order
        if changes[k]
    )
