"""Blend summary: from a distribution over candidates and their means to the answer that people read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.blend import Blend, Gain
from pasto.objective import NormalForm, Objective, Utility
from pasto.optimize.exact.solver import spreads


def summarize_blend(
    probabilities: FloatArray,
    means: FloatArray,
    objective: Objective,
    *,
    names: Sequence[str],
    baseline: int | None = None,
    duals: FloatArray | None = None,
    others: Mapping[str, FloatArray] | None = None,
    active: NDArray[np.bool_] | None = None,
) -> Blend:
    """Return the blend of a distribution over candidates, given means (metrics, candidates) in the objective's order.

    baseline is a candidate's index; others are further metrics (candidates,) to show; without duals (guardrails,) the
    prices of hard guardrails are left out. The best single candidate is one of the active ones.

    >>> import numpy as np, pasto
    >>> means = np.array([[2.0, 0.0], [-2.0, 2.0]])
    >>> objective = pasto.maximize("x").keep("y", at_least=0)
    >>> print(summarize_blend(np.array([0.25, 0.75]), means, objective, names=("a", "b")))
    25.0% a + 75.0% b: f(x) = 0.5 (x = 0.5, y = 1)
    best single b: f(x) = 0
    """
    form = objective.form(None if baseline is None else means[:, baseline])
    return summarize_form(probabilities, means, objective, form, names, baseline, duals, others or {}, active)


def summarize_form(
    probabilities: FloatArray,
    means: FloatArray,
    objective: Objective,
    form: NormalForm,
    names: Sequence[str],
    baseline: int | None,
    duals: FloatArray | None,
    others: Mapping[str, FloatArray],
    active: NDArray[np.bool_] | None = None,
) -> Blend:
    """Return the blend for an objective whose normal form is given."""
    blended = means @ probabilities
    metrics = name_metrics(blended, objective)
    lifts: dict[str, float] = {}
    metrics |= {name: float(row @ probabilities) for name, row in others.items()}
    if baseline is not None:
        before = name_metrics(means[:, baseline], objective)
        before |= {name: float(row[baseline]) for name, row in others.items()}
        lifts = {name: 100.0 * (metrics[name] / level - 1.0) for name, level in before.items() if level > 0.0}
    prices = form.prices(blended, np.zeros(len(form.at)) if duals is None else duals)
    if duals is None:
        prices = {name: price for (name, price), hard in zip(prices.items(), form.hard, strict=True) if not hard}
    value = float(form.smooth(blended))
    tolerances = form.tolerances(means)
    best_single, best_single_value, gain = _find_best_single(form, means, blended, value, tolerances, active)
    return Blend(
        probabilities=tuple(probabilities.tolist()),
        value=value,
        metrics=metrics,
        prices=prices,
        support=tuple(np.flatnonzero(probabilities).tolist()),
        names=tuple(names),
        best_single=best_single,
        best_single_value=best_single_value,
        gain=gain,
        feasible=bool(form.met(blended, tolerances)),
        shortfalls=form.shortfalls(blended, tolerances),
        lifts=lifts,
        goal=objective.goal_label,
        percent=objective.relative and not isinstance(objective.target, Utility),
    )


def measure_violation(slack: FloatArray) -> FloatArray:
    """Return how far each candidate misses hard guardrails, (guardrails, candidates) → (candidates,).

    The sum of squared shortfalls, each in units of its guardrail's spread over the candidates, so that no guardrail
    counts more because it is written in small units.
    """
    return np.asarray((np.minimum(slack / spreads(slack)[:, None], 0.0) ** 2).sum(axis=0))


def _find_best_single(
    form: NormalForm,
    means: FloatArray,
    blended: FloatArray,
    value: float,
    tolerances: FloatArray,
    active: NDArray[np.bool_] | None,
) -> tuple[int | None, float | None, Gain]:
    """Return the best single candidate, its value, and the blend's gain over it or over the least-violating one."""
    columns = means.T
    values = form.value(columns, tolerances)
    values = values if active is None else np.where(active, values, -np.inf)
    goal = float(form.goal.value(blended))
    best = int(np.argmax(values))
    if values[best] > -np.inf:
        only = float(values[best])
        return best, only, Gain(best, value - only, goal - float(form.goal.value(columns[best])))
    misses = measure_violation(form.slack(columns).T[form.hard])
    misses = misses if active is None else np.where(active, misses, np.inf)
    least = int(np.argmax(np.where(misses <= misses.min(), form.smooth(columns), -np.inf)))
    missed = form.shortfalls(columns[least], tolerances)
    hard = {name for name, firm in zip(form.names, form.hard, strict=True) if firm}
    violations = {name: amount for name, amount in missed.items() if name in hard}
    return None, None, Gain(least, None, goal - float(form.goal.value(columns[least])), violations)


def name_metrics(vector: FloatArray, objective: Objective) -> dict[str, float]:
    """Return raw metrics and ratios, by name.

    >>> import numpy as np, pasto
    >>> name_metrics(np.array([3.0, 4.0]), pasto.maximize(pasto.ratio("likes", "views")))
    {'likes': 3.0, 'views': 4.0, 'likes/views': 0.75}
    """
    metrics = dict(zip(objective.metrics, vector.tolist(), strict=True))
    for ratio in objective.ratios:
        metrics[ratio.name] = metrics[ratio.numerator] / metrics[ratio.denominator]
    return metrics
