"""From a belief to the answer: the cautious blend, its certificate, and whether learning on is worth it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pasto.arrays import FloatArray
from pasto.estimate import Overdispersion, Posterior
from pasto.objective import NormalForm
from pasto.optimize.blend_summary import summarize_blend
from pasto.optimize.chance_constrained.robust_blend import holding_probabilities, intervals, solve_robust
from pasto.optimize.learners.base import LearningProblem
from pasto.optimize.learners.posterior_draws import draw_blends, form_at, offsets_of, within_reach, worth_of_metrics
from pasto.records import Blend, Certificate, Move, Outlook

LOOKS = 64
"""Posterior draws behind an outlook."""


def certified_blend(problem: LearningProblem, belief: Posterior, overdispersion: Overdispersion) -> Blend:
    """Return the blend of the highest expected f, each hard guardrail held with the stated confidence.

    If repeats scatter more than the stated errors allow, nothing is certified.
    """
    form = form_at(problem, belief.mean, belief.mean)
    shares, duals, certified = _shares(problem, belief, form)
    blend = summarize_blend(
        shares,
        within_reach(form, belief.mean),
        problem.objective,
        names=problem.names,
        baseline=problem.baseline,
        duals=duals,
        active=problem.active,
    )
    offsets = offsets_of(problem.objective)
    chances = holding_probabilities(form, belief, shares, offsets=offsets, baseline=problem.baseline)
    best_single_holds = {}
    if blend.best_single is not None:
        alone = np.asarray(np.arange(len(problem.names)) == blend.best_single, dtype=float)
        single = holding_probabilities(form, belief, alone, offsets=offsets, baseline=problem.baseline)
        best_single_holds = {
            name: float(chance) for name, chance, hard in zip(form.names, single, form.hard, strict=True) if hard
        }
    ranges = intervals(belief, shares, np.eye(len(belief.mean)), confidence=problem.limits.confidence)
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


def certified_shares(problem: LearningProblem, belief: Posterior, form: NormalForm) -> FloatArray:
    """The cautious blend alone, (candidates,)."""
    return _shares(problem, belief, form)[0]


def build_outlook(
    problem: LearningProblem,
    belief: Posterior,
    blend: Blend,
    before: tuple[FloatArray, FloatArray] | None,
    rng: np.random.Generator,
) -> Outlook:
    """What could still be gained, what moved in the last round, and what to do."""
    noise = np.empty((LOOKS, *problem.shape))
    noise[:, :, problem.order] = rng.standard_normal(noise.shape)
    truths = belief.draw(noise)
    best, _ = draw_blends(problem, belief.mean, truths)
    shares = np.array(blend.probabilities)
    regrets = np.array([_regret(problem, truth, best[n], shares, belief.mean) for n, truth in enumerate(truths)])
    form = form_at(problem, belief.mean, belief.mean)
    reach = within_reach(form, belief.mean)
    worth = 0.001 * float(np.ptp(form.goal.value(reach[:, problem.active].T)))
    gain, probability = float(regrets.mean()), float((regrets > worth).mean())
    moves = () if before is None else _moves(problem, belief.mean, worth_of_metrics(problem, belief.mean), *before)
    return Outlook(gain, probability, worth, _advice(blend, gain, probability, worth), moves)


def _shares(problem: LearningProblem, belief: Posterior, form: NormalForm) -> tuple[FloatArray, FloatArray, bool]:
    """The cautious blend over the candidates in service."""
    active = np.flatnonzero(problem.active)
    known = belief if len(active) == len(problem.names) else belief.take(active)
    place = None if problem.baseline is None else int(np.searchsorted(active, problem.baseline))
    found = solve_robust(
        form,
        known,
        confidence=problem.limits.confidence,
        offsets=offsets_of(problem.objective),
        baseline=place,
        rng=np.random.default_rng(0),
    )
    shares = np.zeros(len(problem.names))
    shares[active] = found.probabilities
    return shares, found.duals, found.certified


def _regret(
    problem: LearningProblem, truth: FloatArray, best: FloatArray, shares: FloatArray, means: FloatArray
) -> float:
    """What the best blend of a truth has over the answer there, in the goal and the soft guardrails."""
    form = form_at(problem, truth, means)
    reach = within_reach(form, truth)
    return max(0.0, float(form.smooth(reach @ best) - form.smooth(reach @ shares)))


def _moves(
    problem: LearningProblem, mean: FloatArray, row: FloatArray, mean_before: FloatArray, row_before: FloatArray
) -> tuple[Move, ...]:
    """The three candidates whose worth changed most, metric by metric."""
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
