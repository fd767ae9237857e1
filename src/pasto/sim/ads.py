"""Ads application: quotas of ads that three retrieval modules may send to the auction, within a compute budget.

A deep model retrieves ads with high revenue, a module of similar users ads that are clicked, and a third one new ads.
The auction displays the few most valuable ads. Every module first retrieves the same obvious ads, so a small quota adds
nothing new and only a large one pays. A budget that is split among all modules gains little. Revenue, clicks and the
share of cold-start ads compete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.objective import Objective, maximize, ratio
from pasto.sim.application import Indices, SimulatedMetric, VisitBatch
from pasto.space import Candidates, grid

MODULES = ("deep", "similar", "fresh")
QUOTAS: Mapping[str, tuple[int, ...]] = {"deep": (0, 6, 12), "similar": (0, 6, 12), "fresh": (0, 6, 12)}
BUDGET = "2*deep + similar + fresh <= 24"
"""Compute budget; an ad of the deep model costs twice as much."""
BASELINE = {"deep": 6, "similar": 6, "fresh": 6}
LIMIT = -5.0
"""Smallest allowed lift of click rate and cold-start share over the baseline, in percent."""
FLOOR = "-40%"
"""Stop level of the guardrails: far away, because a learner tries all candidates at the start."""

AD_VALUES = np.array([1.45, 1.0, 0.95])
"""Value in the auction of a typical ad of each module; an obvious ad has the value 1."""
CLICK_PROBABILITIES = np.array([0.16, 0.24, 0.15])
"""Probability of a click on an ad of each module."""
MODULE_COLD_PROBABILITIES = np.array([0.20, 0.30, 0.90])
"""Probability that an ad of each module is a cold-start ad."""
OBVIOUS_ADS = 4
"""Ads that every module retrieves first."""
OBVIOUS_CLICK_PROBABILITY = 0.17
SLOTS = 3
REQUESTS_PER_USER = 5
"""Requests of a user in a round."""
AD_DEVIATION, USER_DEVIATION, CLICK_DEVIATION = 0.35, 0.1, 0.2
"""Standard deviations of logarithms: values between ads, values of a module between users, clicks between ads."""
CLICK_CENTS = 40.0
"""Price of a click on an ad of value 1 that is clicked one time in six."""


@dataclass(frozen=True, slots=True, eq=False)
class Ads:
    """Ads application with every split of the compute budget on a grid; made by `ads`.

    >>> import numpy as np
    >>> application = ads()
    >>> visits = application.visit(np.zeros(5, dtype=int), np.random.default_rng(1))
    >>> application.columns, visits.totals(5)[:, 3].tolist()
    (('cents', 'clicks', 'cold', 'shown'), [15, 15, 15, 15, 15])
    """

    candidates: Candidates
    objective: Objective
    baseline: int
    name: str = "ads"
    event: str = "auction"
    columns: tuple[str, ...] = ("cents", "clicks", "cold", "shown")
    night: float = 0.0

    @property
    def measures(self) -> Mapping[str, SimulatedMetric]:
        """Revenue per user; click rate and cold-start share of the displayed ads."""
        return {"revenue": SimulatedMetric(0), "click_rate": SimulatedMetric(1, 3), "cold_start": SimulatedMetric(2, 3)}

    @property
    def document(self) -> dict[str, Any]:
        """Study file."""
        displayed = {"event": self.event, "value": "shown", "aggregate": "sum", "cap": 20}
        return {
            "name": self.name,
            "unit": "user",
            "description": "Quotas of three retrieval modules within a compute budget",
            "baseline": dict(BASELINE),
            "parameters": {module: list(levels) for module, levels in QUOTAS.items()},
            "constraints": [BUDGET, AT_LEAST_ONE],
            "metrics": {
                "revenue": {"event": self.event, "value": "cents", "aggregate": "sum", "cap": 10_000},
                "click_rate": {
                    "ratio": [{"event": self.event, "value": "clicks", "aggregate": "sum", "cap": 20}, displayed]
                },
                "cold_start": {
                    "ratio": [{"event": self.event, "value": "cold", "aggregate": "sum", "cap": 20}, displayed]
                },
            },
            "goal": {"maximize": "revenue"},
            "guardrails": [
                {"metric": "click_rate", "at_least": f"{LIMIT:g}%", "loss_budget": "3%", "stop_at": FLOOR},
                {"metric": "cold_start", "at_least": f"{LIMIT:g}%", "loss_budget": "3%", "stop_at": FLOOR},
            ],
        }

    def visit(self, chosen: Indices, rng: np.random.Generator, mood: float = 1.0) -> VisitBatch:
        """Serve users; with a mood above 1, ads are clicked more often."""
        users = len(chosen)
        values, click = _draw_pools(users, rng)
        winners = _run_auction(values, self._auction_entries()[np.repeat(chosen, REQUESTS_PER_USER)])
        price = np.take_along_axis(_click_prices(values, click), winners, axis=1)
        clicked = rng.random(winners.shape) < np.minimum(1.0, mood * np.take_along_axis(click, winners, axis=1))
        cents = np.floor((price * clicked).sum(axis=1) + rng.random(len(winners)) * clicked.any(axis=1))
        cold = rng.random(winners.shape) < COLD_PROBABILITIES[winners]
        fields = np.stack([cents, clicked.sum(axis=1), cold.sum(axis=1), np.full(len(winners), SLOTS)], axis=1)
        pages = fields.reshape(users, REQUESTS_PER_USER, -1).sum(axis=1)
        return VisitBatch(np.arange(users), pages.astype(np.int64))

    def expected(self, users: int, rng: np.random.Generator) -> FloatArray:
        """Return the expected columns of each user, given the ads available to that user."""
        values, click = _draw_pools(users, rng)
        parts = (
            _click_prices(values, click) * click,
            click,
            np.broadcast_to(COLD_PROBABILITIES, values.shape),
            np.ones_like(values),
        )
        totals = np.zeros((users, len(self.candidates), len(self.columns)))
        for candidate, entries in enumerate(self._auction_entries()):
            winners = _run_auction(values, entries)
            for column, part in enumerate(parts):
                pages = np.take_along_axis(part, winners, axis=1).sum(axis=1)
                totals[:, candidate, column] = pages.reshape(users, REQUESTS_PER_USER).sum(axis=1)
        return totals

    def _auction_entries(self) -> NDArray[np.bool_]:
        """Return the ads of a pool that each candidate sends to the auction, (candidates, pool)."""
        ranks = np.arange(MAX_OWN_ADS)
        rows = []
        for row in self.candidates:
            own = [ranks < int(row[module]) - OBVIOUS_ADS for module in MODULES]
            rows.append(np.concatenate([np.ones(OBVIOUS_ADS, dtype=bool), *own]))
        return np.array(rows)


MAX_OWN_ADS = max(max(levels) for levels in QUOTAS.values()) - OBVIOUS_ADS
"""Largest number of own ads of a module."""
AD_MODULES = np.repeat(np.arange(len(MODULES)), MAX_OWN_ADS)
"""Module of each ad of a pool, after the obvious ones."""
COLD_PROBABILITIES = np.concatenate([np.zeros(OBVIOUS_ADS), MODULE_COLD_PROBABILITIES[AD_MODULES]])
"""Probability that each ad of a pool is a cold-start ad."""
AT_LEAST_ONE = "deep + similar + fresh >= 6"
"""At least one module must send ads."""


@lru_cache(maxsize=1)
def ads() -> Ads:
    """Return the ads application; its guardrails are hard.

    >>> application = ads()
    >>> len(application.candidates), application.candidates.names[application.baseline]
    (15, 'deep=6,similar=6,fresh=6')
    """
    objective = maximize("cents")
    for name, column in (("click_rate", "clicks"), ("cold_start", "cold")):
        objective = objective.keep(ratio(column, "shown", name=name), at_least=f"{LIMIT:+g}%")
    candidates = grid(QUOTAS, BUDGET, AT_LEAST_ONE)
    return Ads(candidates, objective, candidates.find(BASELINE))


def _draw_pools(users: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Draw the ads available to each request: their values and click probabilities, (requests, pool)."""
    requests, own, module = users * REQUESTS_PER_USER, len(MODULES) * MAX_OWN_ADS, AD_MODULES
    taste = np.repeat(np.exp(USER_DEVIATION * rng.standard_normal((users, len(MODULES)))), REQUESTS_PER_USER, axis=0)
    values = np.exp(AD_DEVIATION * rng.standard_normal((requests, OBVIOUS_ADS + own)))
    values[:, OBVIOUS_ADS:] *= AD_VALUES[module] * taste[:, module]
    click = np.exp(CLICK_DEVIATION * rng.standard_normal((requests, OBVIOUS_ADS + own)))
    click *= np.concatenate([np.full(OBVIOUS_ADS, OBVIOUS_CLICK_PROBABILITY), CLICK_PROBABILITIES[module]])
    return values, click


def _click_prices(values: FloatArray, click: FloatArray) -> FloatArray:
    """Return the cents per click; an ad that is clicked seldom pays more for it."""
    return np.asarray(CLICK_CENTS * OBVIOUS_CLICK_PROBABILITY * values / click)


def _run_auction(values: FloatArray, entries: NDArray[np.bool_]) -> Indices:
    """Return the displayed ads, (requests, slots)."""
    return np.argpartition(np.where(entries, -values, np.inf), SLOTS, axis=1)[:, :SLOTS]
