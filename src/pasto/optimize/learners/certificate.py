"""Certificate: the robust blend under a posterior, its confidence, and the value of further learning.

The value of learning comes from posterior draws: the exact blend of each, and the metrics' prices there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import ObjectiveError
from pasto.estimate import Overdispersion, Posterior
from pasto.objective import LinearGoal, NormalForm, Objective, UtilityGoal
from pasto.optimize.blend_summary import summarize_blend
from pasto.optimize.chance_constrained.robust_blend import holding_probabilities, intervals, solve_robust
from pasto.optimize.exact.linear import solve_batch
from pasto.optimize.exact.program import Program
from pasto.optimize.exact.solver import solve_exact
from pasto.optimize.learners.base import LearningProblem
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


def draw_blends(problem: LearningProblem, means: FloatArray, samples: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the exact blend of each draw, (draws, candidates), and the metrics' prices there, (draws, metrics)."""
    active = np.flatnonzero(problem.active)
    if problem.objective.relative:
        forms = [build_form(problem, truth, means) for truth in samples]
    else:
        forms = [problem.objective.form()] * len(samples)
    samples = clip_to_ranges(forms[0], samples)
    served = samples[:, :, active]
    if isinstance(forms[0].goal, LinearGoal):
        answers = solve_batch(_stack_programs(forms, served))
        active_shares, duals = answers.probabilities, answers.duals
    else:
        solutions = [solve_exact(form, truth) for form, truth in zip(forms, served, strict=True)]
        active_shares = np.array([solution.probabilities for solution in solutions])
        duals = np.array([solution.duals for solution in solutions])
    shares = np.zeros((len(samples), len(problem.names)))
    shares[:, active] = active_shares
    blended = np.einsum("nmk,nk->nm", samples, shares)
    slopes = [form.goal.gradient(y) + dual @ form.rows for form, y, dual in zip(forms, blended, duals, strict=True)]
    return shares, np.array(slopes)


def price_metrics(problem: LearningProblem, means: FloatArray) -> FloatArray:
    """Return the price of each metric at the best blend of the means: the goal's slope and the guardrails' prices."""
    form = build_form(problem, means, means)
    served = clip_to_ranges(form, means)[:, problem.active]
    solution = solve_exact(form, served)
    return np.asarray(form.goal.gradient(served @ solution.probabilities) + solution.duals @ form.rows)


def build_form(problem: LearningProblem, truth: FloatArray, fallback: FloatArray) -> NormalForm:
    """Return the objective's normal form over drawn means; percentages are over their baseline, or the fallback's."""
    if not problem.objective.relative or problem.baseline is None:
        return problem.objective.form()
    try:
        return problem.objective.form(truth[:, problem.baseline])
    except ObjectiveError:  # a draw with a negative baseline
        return problem.objective.form(fallback[:, problem.baseline])


def clip_to_ranges(form: NormalForm, samples: FloatArray) -> FloatArray:
    """Truths (..., metrics, candidates) cut back to the ranges that a utility is known on; others as they are."""
    if not isinstance(form.goal, UtilityGoal):
        return samples
    clipped = samples.copy()
    for column, (low, high) in zip(form.goal.columns, form.goal.over.values(), strict=True):
        clipped[..., column, :] = np.clip(clipped[..., column, :], low, high)
    return clipped


def read_baseline_offsets(objective: Objective) -> FloatArray:
    """Return the part of the baseline's uncertainty in each guardrail: 1 + δ for y ≥ (1 + δ) y₀, 0 for y ≥ c."""
    return np.array([1.0 + rail.at / 100.0 if rail.relative else 0.0 for rail in objective.guardrails])


def _stack_programs(forms: list[NormalForm], samples: FloatArray) -> Program:
    """Return the programs of many draws as one."""
    if all(form is forms[0] for form in forms):
        return Program.of(forms[0], samples)
    programs = [Program.of(form, truth) for form, truth in zip(forms, samples, strict=True)]
    return Program(
        np.array([program.goal for program in programs]),
        np.array([program.slack for program in programs]),
        forms[0].penalties,
    )
