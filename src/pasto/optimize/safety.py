"""What a policy may do on live traffic: caps, small entries, and a loss budget for every guardrail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pasto.errors import BadOption
from pasto.estimate import Belief
from pasto.objective import Form

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Limits:
    """How far exploration may go.

    >>> Limits(cap=0.3, budget={"like_rate": 1.0}).guarded
    True
    """

    confidence: float = 0.95
    """With which the answer meets each hard guardrail, and the served policy each budget."""
    cap: float | None = None
    """The largest share of any candidate but the baseline."""
    entry: float | None = None
    """The largest share of a candidate that nobody has measured yet."""
    budget: Mapping[str, float] = field(default_factory=dict)
    """By how much the served policy may miss a guardrail while it learns, in the guardrail's own units."""

    def __post_init__(self) -> None:
        if not 0.5 <= self.confidence < 1:
            raise BadOption(f"confidence lies from 0.5 to below 1, got {self.confidence!r}")
        for name, share in (("cap", self.cap), ("entry", self.entry)):
            if share is not None and not 0 < share <= 1:
                raise BadOption(f"{name} is a share of traffic above 0 and up to 1, got {share!r}")
        for name, loss in self.budget.items():
            if not 0 <= loss < float("inf"):
                raise BadOption(f"the budget of {name!r} is a loss of 0 or more, in its own units, got {loss!r}")

    @property
    def guarded(self) -> bool:
        """Whether any limit is set."""
        return self.cap is not None or self.entry is not None or bool(self.budget)


def capped(shares: Array, most: Array, refuge: Array) -> Array:
    """Shares cut down to their limits; what is cut off goes to the others as far as they may take it, then to refuge.

    >>> import numpy as np
    >>> capped(np.array([0.7, 0.2, 0.1]), np.array([0.5, 0.5, 1.0]), np.array([0.0, 0.0, 1.0])).round(3)
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


def lower_bounds(form: Form, belief: Belief, shares: Array, offsets: Array, baseline: int | None, z: float) -> Array:
    """What each guardrail's slack is at least, z deviations below its mean, (guardrails,)."""
    mean = form.rows @ (belief.mean @ shares) - form.at
    spreads = np.empty(len(mean))
    for place, row in enumerate(form.rows):
        weights = shares.copy()
        if baseline is not None:
            weights[baseline] -= offsets[place]
        spreads[place] = belief.spread(row, weights)
    return np.asarray(mean - z * spreads)


def within_budget(
    shares: Array, refuge: Array, form: Form, belief: Belief, offsets: Array, baseline: int | None, limits: Limits
) -> Array:
    """The mixture of shares and refuge that explores most while every budget holds with the stated confidence.

    The lower bound of a guardrail is concave along the way from refuge to shares, so the mixtures that hold it are a
    stretch that begins at the refuge; where even the refuge does not hold it, the refuge is served.
    """
    z = float(ndtri(limits.confidence))
    known = [place for place, name in enumerate(form.names) if name in limits.budget]
    losses = np.array([limits.budget[form.names[place]] for place in known])
    units = np.where(form.relief.any(axis=1), form.relief @ (belief.mean @ refuge), 1.0)[known]

    def holds(part: float) -> bool:
        mixed = part * shares + (1.0 - part) * refuge
        bounds = lower_bounds(form, belief, mixed, offsets, baseline, z)[known]
        return bool((bounds >= -losses * units - 1e-12).all())

    if holds(1.0):
        return shares
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low * shares + (1.0 - low) * refuge
