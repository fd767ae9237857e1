"""Exploration limits on live traffic: largest shares, shares of new candidates, and loss budgets of guardrails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import ndtri

from pasto.arrays import FloatArray
from pasto.estimate import Posterior
from pasto.objective import NormalForm
from pasto.optimize.learners.base import ExplorationLimits

EQUAL_MARGIN = 1e-6
"""Candidates are equally safe if their margins differ by less than this part of the candidates' range."""


def cap_shares(shares: FloatArray, most: FloatArray, refuge: FloatArray) -> FloatArray:
    """Return shares cut to their limits; the rest goes to the others within their limits, then to the refuge.

    >>> import numpy as np
    >>> cap_shares(np.array([0.7, 0.2, 0.1]), np.array([0.5, 0.5, 1.0]), np.array([0.0, 0.0, 1.0])).round(3)
    array([0.5 , 0.333, 0.167])
    """
    capped = np.minimum(shares, most)
    for _ in range(len(shares)):
        free = most - capped
        missing = 1.0 - capped.sum()
        takers = (free > 1e-15) & (shares > 0)
        if missing <= 1e-15 or not takers.any():
            break
        capped = np.minimum(capped + np.where(takers, missing * shares / shares[takers].sum(), 0.0), most)
    return np.asarray(capped + max(0.0, 1.0 - capped.sum()) * refuge)


def lower_bounds(
    form: NormalForm, posterior: Posterior, shares: FloatArray, offsets: FloatArray, baseline: int | None, z: float
) -> FloatArray:
    """Return a lower bound of each guardrail's slack, z deviations below its mean, (guardrails,)."""
    mean = form.rows @ (posterior.mean @ shares) - form.at
    spreads = np.empty(len(mean))
    for place, row in enumerate(form.rows):
        weights = shares.copy()
        if baseline is not None:
            weights[baseline] -= offsets[place]
        spreads[place] = posterior.spread(row, weights)
    return np.asarray(mean - z * spreads)


@dataclass(frozen=True, slots=True, eq=False)
class ShareBounds:
    """Test of policies against the loss budgets, with the stated confidence for all budgets together."""

    form: NormalForm
    posterior: Posterior
    offsets: FloatArray
    baseline: int | None
    limits: ExplorationLimits

    def holds(self, shares: FloatArray) -> bool:
        """Return whether the lower bound of every budgeted guardrail is within its loss."""
        form = self.form
        budgeted = [place for place, name in enumerate(form.names) if name in self.limits.loss_budget]
        losses = np.array([self.limits.loss_budget[form.names[place]] for place in budgeted])
        units = np.where(form.relief.any(axis=1), form.relief @ (self.posterior.mean @ shares), 1.0)[budgeted]
        allowed = losses * units + form.tolerances(self.posterior.mean)[budgeted]
        return bool((self.lower(shares)[budgeted] >= -allowed).all())

    def lower(self, shares: FloatArray) -> FloatArray:
        """Return a lower bound of each guardrail's slack."""
        z = float(ndtri(1.0 - (1.0 - self.limits.confidence) / max(len(self.limits.loss_budget), 1)))
        return lower_bounds(self.form, self.posterior, shares, self.offsets, self.baseline, z)

    def safest_candidate(self) -> FloatArray:
        """Return the safest candidate as a policy: the lower bound of its tightest guardrail is the largest.

        Of several that are equally safe it is the first, also if rounding makes one of the others a little larger.
        """
        z = float(ndtri(1.0 - (1.0 - self.limits.confidence) / max(len(self.limits.loss_budget), 1)))
        slack = self.form.rows @ self.posterior.mean - self.form.at[:, None]
        free = slack - z * np.sqrt(self.posterior.variances(self.form.rows))
        steps = np.maximum(np.ptp(slack, axis=1, keepdims=True), 1e-300)
        margins = (free / steps).min(axis=0)
        return np.asarray(np.arange(len(margins)) == np.argmax(margins >= margins.max() - EQUAL_MARGIN), dtype=float)


class BudgetTest(Protocol):
    """Test of policies against loss budgets."""

    def holds(self, shares: FloatArray) -> bool:
        """Return whether a policy is within every budget."""
        ...


def limit_to_budget(shares: FloatArray, refuges: Sequence[FloatArray], bounds: BudgetTest) -> FloatArray:
    """Return the policy nearest to shares within every budget: the mixture with the refuge that keeps most of shares.

    The first refuge is served if nothing else is within the budgets. The lower bound of a guardrail is concave between
    a refuge and shares, so the mixtures within a budget are an interval that begins at the refuge.
    """
    if bounds.holds(shares):
        return shares
    part, chosen = 0.0, refuges[0]
    for refuge in refuges:
        if not bounds.holds(refuge):
            continue
        low, high = 0.0, 1.0
        for _ in range(16):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if bounds.holds(middle * shares + (1.0 - middle) * refuge) else (low, middle)
        if low > part:
            part, chosen = low, refuge
    return part * shares + (1.0 - part) * chosen
