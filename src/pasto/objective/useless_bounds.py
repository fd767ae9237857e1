"""Useless bounds: guardrails below zero on metrics that are never negative, so that they cannot fail."""

from __future__ import annotations

import warnings

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import PastoWarning
from pasto.objective.goals import Ratio
from pasto.objective.guardrails import likely_percentage
from pasto.objective.objective import Objective


def warn_useless_bounds(objective: Objective, values: FloatArray, where: str, *, stacklevel: int = 2) -> None:
    """Warn of guardrails at less than a negative number whose metric is negative nowhere in values (metrics, n).

    >>> import numpy as np, pasto
    >>> objective = pasto.maximize("watch").keep("likes", at_least=-0.02)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_useless_bounds(objective, np.array([[30.0, 33.0], [0.03, 0.02]]), "among the candidates")
    >>> print(caught[0].message)
    keep('likes', at_least=-0.02) cannot fail: likes is never negative among the candidates. For a change ... '-2%'
    """
    for rail in objective.guardrails:
        if rail.relative or not rail.lower or rail.at >= 0:
            continue
        top = rail.metric.numerator if isinstance(rail.metric, Ratio) else rail.metric  # a denominator is positive
        if np.min(values[objective.metrics.index(top)]) >= 0:
            warnings.warn(
                f"keep({rail.label!r}, at_least={rail.at:g}) cannot fail: {rail.label} is never negative {where}. For "
                f"a change against the baseline write '{likely_percentage(rail.at)}'",
                PastoWarning,
                stacklevel=stacklevel + 1,
            )
