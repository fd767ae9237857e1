"""Certificate: the robust blend under a posterior, and its confidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pasto.estimate import Overdispersion, Posterior
from pasto.optimize.blend_summary import summarize_blend
from pasto.optimize.chance_constrained.robust_blend import RobustBlend, holding_probabilities, intervals, solve_robust
from pasto.optimize.learners.base import (
    LearningProblem,
    build_form,
    clip_to_ranges,
    read_baseline_offsets,
)
from pasto.records import Blend, Certificate


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
