"""What a policy may do on live traffic: caps, small entries, and a loss budget for every guardrail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtri

from pasto.arrays import FloatArray
from pasto.errors import OptionError
from pasto.estimate import Posterior
from pasto.objective import NormalForm


@dataclass(frozen=True, slots=True)
class ExplorationLimits:
    """How far exploration may go.

    >>> ExplorationLimits(max_share=0.3, loss_budget={"like_rate": 1.0}).guarded
    True
    """

    confidence: float = 0.95
    """With which the answer meets each hard guardrail, and the served policy each budget."""
    max_share: float | None = None
    """The largest share of any candidate but the baseline."""
    new_candidate_share: float | None = None
    """The largest share of a candidate that nobody has measured yet."""
    loss_budget: Mapping[str, float] = field(default_factory=dict)
    """By how much the served policy may miss a guardrail while it learns, in the guardrail's own units."""

    def __post_init__(self) -> None:
        if not 0.5 <= self.confidence < 1:
            raise OptionError(f"confidence lies from 0.5 to below 1, got {self.confidence!r}")
        for name, share in (("max_share", self.max_share), ("new_candidate_share", self.new_candidate_share)):
            if share is not None and not 0 < share <= 1:
                raise OptionError(f"{name} is a share of traffic above 0 and up to 1, got {share!r}")
        for name, loss in self.loss_budget.items():
            if not 0 <= loss < float("inf"):
                raise OptionError(f"the loss_budget of {name!r} is a loss of 0 or more, in its own units, got {loss!r}")

    @property
    def guarded(self) -> bool:
        """Whether any limit is set."""
        return self.max_share is not None or self.new_candidate_share is not None or bool(self.loss_budget)


def cap_shares(shares: FloatArray, most: FloatArray, refuge: FloatArray) -> FloatArray:
    """Shares cut down to their limits; what is cut off goes to the others as far as they may take it, then to refuge.

    >>> import numpy as np
    >>> cap_shares(np.array([0.7, 0.2, 0.1]), np.array([0.5, 0.5, 1.0]), np.array([0.0, 0.0, 1.0])).round(3)
    array([0.5 , 0.333, 0.167])
    """
    kept = np.minimum(shares, most)
    for _ in range(len(shares)):
        room = most - kept
        missing = 1.0 - kept.sum()
        takers = (room > 1e-15) & (shares > 0)
        if missing <= 1e-15 or not takers.any():
            break
        kept = np.minimum(kept + np.where(takers, missing * shares / shares[takers].sum(), 0.0), most)
    return np.asarray(kept + max(0.0, 1.0 - kept.sum()) * refuge)


def lower_bounds(
    form: NormalForm, belief: Posterior, shares: FloatArray, offsets: FloatArray, baseline: int | None, z: float
) -> FloatArray:
    """What each guardrail's slack is at least, z deviations below its mean, (guardrails,)."""
    mean = form.rows @ (belief.mean @ shares) - form.at
    spreads = np.empty(len(mean))
    for place, row in enumerate(form.rows):
        weights = shares.copy()
        if baseline is not None:
            weights[baseline] -= offsets[place]
        spreads[place] = belief.spread(row, weights)
    return np.asarray(mean - z * spreads)


@dataclass(frozen=True, slots=True, eq=False)
class ShareBounds:
    """Whether policies keep every budget, with the stated confidence for all budgets together."""

    form: NormalForm
    belief: Posterior
    offsets: FloatArray
    baseline: int | None
    limits: ExplorationLimits

    def holds(self, shares: FloatArray) -> bool:
        """Whether the lower bound of every budgeted guardrail is within its loss."""
        form = self.form
        known = [place for place, name in enumerate(form.names) if name in self.limits.loss_budget]
        losses = np.array([self.limits.loss_budget[form.names[place]] for place in known])
        units = np.where(form.relief.any(axis=1), form.relief @ (self.belief.mean @ shares), 1.0)[known]
        allowed = losses * units + form.tolerances(self.belief.mean)[known]
        return bool((self.lower(shares)[known] >= -allowed).all())

    def lower(self, shares: FloatArray) -> FloatArray:
        """What each guardrail's slack is at least."""
        z = float(ndtri(1.0 - (1.0 - self.limits.confidence) / max(len(self.limits.loss_budget), 1)))
        return lower_bounds(self.form, self.belief, shares, self.offsets, self.baseline, z)

    def ballast(self) -> FloatArray:
        """The candidate that leaves most room above the guardrail it has least room above, for sure, as a policy."""
        z = float(ndtri(1.0 - (1.0 - self.limits.confidence) / max(len(self.limits.loss_budget), 1)))
        slack = self.form.rows @ self.belief.mean - self.form.at[:, None]
        room = slack - z * np.sqrt(self.belief.variances(self.form.rows))
        steps = np.maximum(np.ptp(slack, axis=1, keepdims=True), 1e-300)
        return np.asarray(np.arange(slack.shape[1]) == np.argmax((room / steps).min(axis=0)), dtype=float)


def limit_to_budget(shares: FloatArray, refuges: Sequence[FloatArray], bounds: ShareBounds) -> FloatArray:
    """The policy nearest to shares that keeps every budget, by mixing in the refuge that leaves most of shares.

    The first refuge is home: it is served where nothing else keeps the budgets. The lower bound of a guardrail is
    concave along the way from a refuge to shares, so the mixtures that keep a budget are a stretch that begins at the
    refuge.
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
