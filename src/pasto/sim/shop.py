"""Shop application: weights for price, popularity and relevance order the products of a page.

There are three kinds of products: bestsellers that visitors save to a wish list, premium products that bring revenue,
and close matches that visitors seldom hide from their page. A page of one kind is coherent. A page that mixes kinds is
saved less and sells less. So weights in the middle lose saves and orders, and weights at the ends break a guardrail.

Two things make the shop hard to learn. Revenue is rare and heavy-tailed: about 2 % of the visitors order, and the value
of an order is log-normal with σ = 1.5. And all levels swing with the hour of the day: orders and hides by ±40 %,
saves by a factor of four. The swing multiplies every candidate's means alike, so true lifts in percent do not move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtr

from pasto.arrays import FloatArray
from pasto.objective import Objective, maximize
from pasto.sim.application import Indices, SimulatedMetric, VisitBatch
from pasto.space import Candidates, grid

WEIGHTS = (0, 2, 4)
"""The levels of price_weight and of popularity_weight."""
BASELINE = {"price_weight": 2, "popularity_weight": 2}
REVENUE_LIMIT = -2.0
"""The least lift of revenue over the baseline, in percent."""
HIDES_LIMIT = 5.0
"""The largest lift of hides over the baseline, in percent."""
CONFIDENCE = 0.999
"""Confidence of the certificate; revenue cannot be certified with more at this traffic."""
CONTROL_SHARE = 0.5
"""The share of users on the baseline: every contrast of revenue carries the noise of its round's control."""
DAILY_SWING = 0.4
"""The swing of orders and hides over a day, up and down, as a share."""
SAVES_EXPONENT = 1.65
"""Saves follow this power of the mood: between 0.6 and 1.4 it is a factor of four."""

RELEVANCE_WEIGHT = 2.0
TEMPERATURE = 0.7
"""Of the softmax that turns the scores of the kinds into their shares of a page."""
TASTE_DEVIATION = 0.5
"""Standard deviation, between visitors, of the score of a kind."""
MIXING_LOSS = 0.30
"""The part of saves and orders that a page with equal shares of all kinds loses."""
SAVES_PER_VISITOR = np.array([1.05, 0.78, 0.71])
"""Saves a visitor on a page of one kind: bestsellers, premium, matches."""
ORDER_PROBABILITIES = np.array([0.020, 0.027, 0.025])
"""Probability of an order on such a page."""
HIDE_PROBABILITIES = np.array([0.14, 0.14, 0.06])
"""Probability that a visitor of such a page hides a product from it."""
MEDIAN_DOLLARS = np.array([8.0, 36.0, 15.0])
"""Of an order of each kind."""
ORDER_DEVIATION = 1.5
"""Standard deviation of the logarithm of an order's value."""
MAX_DOLLARS = 500
"""Largest value of an order; the study file caps revenue there too."""


@dataclass(frozen=True, slots=True, eq=False)
class Shop:
    """Shop with nine settings of two weights; made by `shop`.

    >>> import numpy as np
    >>> application = shop()
    >>> visits = application.visit(np.full(10_000, application.baseline), np.random.default_rng(1))
    >>> saves, dollars, hides = visits.totals(10_000).T
    >>> round(float((dollars == 0).mean()), 2)
    0.98
    """

    candidates: Candidates
    objective: Objective
    baseline: int
    name: str = "shop"
    event: str = "visit"
    columns: tuple[str, ...] = ("saves", "dollars", "hides")
    night: float = DAILY_SWING

    @property
    def measures(self) -> Mapping[str, SimulatedMetric]:
        """Saves, revenue and hides, each a mean over visitors."""
        return {"saves": SimulatedMetric(0), "revenue": SimulatedMetric(1), "hides": SimulatedMetric(2)}

    @property
    def document(self) -> dict[str, Any]:
        """The study file."""

        def total(value: str, cap: int) -> dict[str, Any]:
            return {"event": self.event, "value": value, "aggregate": "sum", "cap": cap}

        return {
            "name": self.name,
            "unit": "user",
            "description": "Weights that order the products of a shop",
            "baseline": dict(BASELINE),
            "parameters": {"price_weight": list(WEIGHTS), "popularity_weight": list(WEIGHTS)},
            "metrics": {
                "saves": total("saves", 20),
                "revenue": total("dollars", MAX_DOLLARS),
                "hides": total("hides", 1),
            },
            "goal": {"maximize": "saves"},
            "guardrails": [
                {"metric": "revenue", "at_least": f"{REVENUE_LIMIT:g}%", "stop_at": "-60%"},
                {"metric": "hides", "at_most": f"{HIDES_LIMIT:+g}%", "stop_at": "+60%"},
            ],
            "traffic": {"control": CONTROL_SHARE},
            "confidence": CONFIDENCE,
            "learner": {"name": "thompson", "structure": "independent"},
        }

    def visit(self, chosen: Indices, rng: np.random.Generator, mood: float = 1.0) -> VisitBatch:
        """Serve visitors; with a mood above 1, they save, order and hide more often.

        A visitor who does none of these sends no event.
        """
        users = len(chosen)
        shares, coherence = _pages(self._weights()[chosen], TASTE_DEVIATION * rng.standard_normal((users, 3)))
        saves = rng.poisson(mood**SAVES_EXPONENT * coherence * (shares @ SAVES_PER_VISITOR))
        ordered = mood * coherence[:, None] * shares * ORDER_PROBABILITIES
        kind = (rng.random((users, 1)) >= ordered.cumsum(axis=1)).sum(axis=1)  # 3 orders nothing
        dollars = np.append(MEDIAN_DOLLARS, 0.0)[kind] * np.exp(ORDER_DEVIATION * rng.standard_normal(users))
        rounded_dollars = np.floor(
            np.minimum(dollars, MAX_DOLLARS) + rng.random(users) * (kind < 3)
        )  # unbiased rounding
        hides = rng.random(users) < mood * (shares @ HIDE_PROBABILITIES)
        fields = np.stack([saves, np.minimum(rounded_dollars, MAX_DOLLARS), hides], axis=1).astype(np.int64)
        unit = np.flatnonzero(fields.any(axis=1))
        return VisitBatch(unit, fields[unit])

    def expected(self, users: int, rng: np.random.Generator) -> FloatArray:
        """Return the expected columns of each visitor, given the preferred kinds of products."""
        taste = TASTE_DEVIATION * rng.standard_normal((users, 3))
        totals = np.zeros((users, len(self.candidates), len(self.columns)))
        for candidate, weights in enumerate(self._weights()):
            shares, coherence = _pages(weights, taste)
            totals[:, candidate, 0] = coherence * (shares @ SAVES_PER_VISITOR)
            totals[:, candidate, 1] = coherence * (shares @ (ORDER_PROBABILITIES * _mean_dollars()))
            totals[:, candidate, 2] = shares @ HIDE_PROBABILITIES
        return totals

    def _weights(self) -> FloatArray:
        """Return the weight of each kind in the score, (candidates, 3)."""
        rows = [[float(row["popularity_weight"]), float(row["price_weight"])] for row in self.candidates]
        return np.array([[*row, RELEVANCE_WEIGHT] for row in rows])


@lru_cache(maxsize=1)
def shop() -> Shop:
    """Return the shop; its guardrails are hard.

    >>> application = shop()
    >>> len(application.candidates), application.candidates.names[application.baseline]
    (9, 'price_weight=2,popularity_weight=2')
    """
    objective = maximize("saves").keep("dollars", at_least=f"{REVENUE_LIMIT:+g}%")
    objective = objective.keep("hides", at_most=f"{HIDES_LIMIT:+g}%")
    candidates = grid(price_weight=WEIGHTS, popularity_weight=WEIGHTS)
    return Shop(candidates, objective, candidates.find(BASELINE))


def _pages(weights: FloatArray, taste: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the shares of the kinds on each visitor's page, (users, 3), and the factor of the page's coherence."""
    scores = np.exp((weights + taste) / TEMPERATURE)
    shares = scores / scores.sum(axis=1, keepdims=True)
    return shares, 1.0 - 1.5 * MIXING_LOSS * (1.0 - (shares**2).sum(axis=1))


def _mean_dollars() -> FloatArray:
    """Return the mean value of an order of each kind: a log-normal, cut at its largest value."""
    deviations = np.log(MAX_DOLLARS / MEDIAN_DOLLARS) / ORDER_DEVIATION
    below = MEDIAN_DOLLARS * np.exp(ORDER_DEVIATION**2 / 2.0) * ndtr(deviations - ORDER_DEVIATION)
    return np.asarray(below + MAX_DOLLARS * ndtr(-deviations))
