"""Exact blends of posterior draws: where the best blend may lie."""

from __future__ import annotations

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import ObjectiveError
from pasto.objective import LinearGoal, NormalForm, Objective, UtilityGoal
from pasto.optimize.exact.linear import solve_batch
from pasto.optimize.exact.program import Program
from pasto.optimize.exact.solver import solve_exact
from pasto.optimize.learners.base import LearningProblem


def draw_blends(problem: LearningProblem, means: FloatArray, truths: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The exact blend of each truth, (draws, candidates), and what a metric is worth there, (draws, metrics)."""
    active = np.flatnonzero(problem.active)
    if problem.objective.relative:
        forms = [form_at(problem, truth, means) for truth in truths]
    else:
        forms = [problem.objective.form()] * len(truths)
    truths = within_reach(forms[0], truths)
    served = truths[:, :, active]
    if isinstance(forms[0].goal, LinearGoal):
        answers = solve_batch(_stacked(forms, served))
        kept, duals = answers.probabilities, answers.duals
    else:
        solutions = [solve_exact(form, truth) for form, truth in zip(forms, served, strict=True)]
        kept = np.array([solution.probabilities for solution in solutions])
        duals = np.array([solution.duals for solution in solutions])
    shares = np.zeros((len(truths), len(problem.names)))
    shares[:, active] = kept
    blended = np.einsum("nmk,nk->nm", truths, shares)
    slopes = [form.goal.gradient(y) + dual @ form.rows for form, y, dual in zip(forms, blended, duals, strict=True)]
    return shares, np.array(slopes)


def worth_of_metrics(problem: LearningProblem, means: FloatArray) -> FloatArray:
    """What one unit of each metric is worth at the best blend of the means: the goal's slope and the prices."""
    form = form_at(problem, means, means)
    served = within_reach(form, means)[:, problem.active]
    solution = solve_exact(form, served)
    return np.asarray(form.goal.gradient(served @ solution.probabilities) + solution.duals @ form.rows)


def form_at(problem: LearningProblem, truth: FloatArray, fallback: FloatArray) -> NormalForm:
    """The objective's normal form over a truth; percentages are over its own baseline, or the fallback's."""
    if not problem.objective.relative or problem.baseline is None:
        return problem.objective.form()
    try:
        return problem.objective.form(truth[:, problem.baseline])
    except ObjectiveError:  # a draw with a negative baseline
        return problem.objective.form(fallback[:, problem.baseline])


def within_reach(form: NormalForm, truths: FloatArray) -> FloatArray:
    """Truths (..., metrics, candidates) cut back to the ranges that a utility is known on; others as they are."""
    if not isinstance(form.goal, UtilityGoal):
        return truths
    kept = truths.copy()
    for column, (low, high) in zip(form.goal.columns, form.goal.over.values(), strict=True):
        kept[..., column, :] = np.clip(kept[..., column, :], low, high)
    return kept


def offsets_of(objective: Objective) -> FloatArray:
    """How much of the baseline's own uncertainty is in each guardrail: 1 + δ for y ≥ (1 + δ) y₀, none for y ≥ c."""
    return np.array([1.0 + rail.at / 100.0 if rail.relative else 0.0 for rail in objective.guardrails])


def _stacked(forms: list[NormalForm], truths: FloatArray) -> Program:
    """The programs of many truths as one."""
    if all(form is forms[0] for form in forms):
        return Program.of(forms[0], truths)
    programs = [Program.of(form, truth) for form, truth in zip(forms, truths, strict=True)]
    return Program(
        np.array([program.goal for program in programs]),
        np.array([program.slack for program in programs]),
        forms[0].penalties,
    )
