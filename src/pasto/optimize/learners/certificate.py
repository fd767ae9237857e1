"""Certificate: the robust blend under a posterior, its confidence, and the value of further learning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pasto.arrays import FloatArray
from pasto.estimate import Overdispersion, Posterior
from pasto.objective import NormalForm
from pasto.optimize.blend_summary import summarize_blend
from pasto.optimize.chance_constrained.robust_blend import holding_probabilities, intervals, solve_robust
from pasto.optimize.learners.base import (
    LearningProblem,
    build_form,
    clip_to_ranges,
    draw_blends,
    price_metrics,
    read_baseline_offsets,
)
from pasto.records import Blend, Certificate, Move, Outlook

LOOKS = 64
"""Posterior draws behind an outlook."""


def certified_blend(problem: LearningProblem, posterior: Posterior, overdispersion: Overdispersion) -> Blend:
    """Return the blend of the highest expected f, each hard guardrail held with the stated confidence.

    If repeats scatter more than the stated errors allow, nothing is certified.
    """
    form = build_form(problem, posterior.mean, posterior.mean)
    shares, duals, certified = _shares(problem, posterior, form)
    blend = summarize_blend(
        shares,
        clip_to_ranges(form, posterior.mean),
        problem.objective,
        names=problem.names,
        baseline=problem.baseline,
        duals=duals,
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
        certified=certified and not understated,
        holds=dict(zip(form.names, chances.tolist(), strict=True)),
        intervals={
            name: (float(low), float(high)) for name, (low, high) in zip(problem.objective.metrics, ranges, strict=True)
        },
        understated_errors=understated,
    )
    return replace(blend, certificate=certificate, best_single_holds=best_single_holds)


def certified_shares(problem: LearningProblem, posterior: Posterior, form: NormalForm) -> FloatArray:
    """Return the shares of the robust blend, (candidates,)."""
    return _shares(problem, posterior, form)[0]


def build_outlook(
    problem: LearningProblem,
    posterior: Posterior,
    blend: Blend,
    before: tuple[FloatArray, FloatArray] | None,
    rng: np.random.Generator,
) -> Outlook:
    """Return the gain that is still possible, the moves of the last round, and an advice."""
    noise = np.empty((LOOKS, *problem.shape))
    noise[:, :, problem.order] = rng.standard_normal(noise.shape)
    samples = posterior.draw(noise)
    best, _ = draw_blends(problem, posterior.mean, samples)
    shares = np.array(blend.probabilities)
    regrets = np.array([_regret(problem, truth, best[n], shares, posterior.mean) for n, truth in enumerate(samples)])
    form = build_form(problem, posterior.mean, posterior.mean)
    reach = clip_to_ranges(form, posterior.mean)
    worth = 0.001 * float(np.ptp(form.goal.value(reach[:, problem.active].T)))
    gain, probability = float(regrets.mean()), float((regrets > worth).mean())
    moves = () if before is None else _moves(problem, posterior.mean, price_metrics(problem, posterior.mean), *before)
    return Outlook(gain, probability, worth, _advice(blend, gain, probability, worth), moves)


def _shares(problem: LearningProblem, posterior: Posterior, form: NormalForm) -> tuple[FloatArray, FloatArray, bool]:
    """Return the robust blend over the candidates in service."""
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
    return shares, solution.duals, solution.certified


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


def _advice(blend: Blend, gain: float, probability: float, worth: float) -> str:
    """One plain sentence."""
    if probability > 0.1:
        return (
            f"keep learning: knowing the truth would raise f by {gain:.3g} on average, and by more than {worth:.3g} "
            f"with probability {probability:.0%}"
        )
    if len(blend.support) == 1:
        return f"ship {blend.names[blend.support[0]]}: mixing buys nothing, and {gain:.3g} is all that is left to gain"
    if blend.gain.value is not None and blend.gain.value <= worth and blend.best_single_certified:
        single = blend.names[blend.gain.candidate]
        return f"ship {single}: mixing buys {max(blend.gain.value, 0.0):.3g}, less than it is worth"
    return f"stop learning and confirm the blend: {gain:.3g} is all that is left to gain"
