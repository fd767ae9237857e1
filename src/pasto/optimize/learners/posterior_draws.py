"""Posterior draws: the exact blend of each, and the metrics' prices there."""

from __future__ import annotations

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import ObjectiveError
from pasto.objective import LinearGoal, NormalForm, Objective, UtilityGoal
from pasto.optimize.exact.linear import solve_batch
from pasto.optimize.exact.program import Program
from pasto.optimize.exact.solver import solve_exact
from pasto.optimize.learners.base import LearningProblem


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
