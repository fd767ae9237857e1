"""Ads retrieval with quotas: how many ads each of three modules may bring to the auction, within a compute budget.

A deep model brings ads that earn, a module of similar users ads that are clicked, and a third one fresh ads that nobody
has shown yet. The auction shows the most valuable few of all that were brought. Every module finds the same obvious ads
first, so a small quota is spent on what the others bring as well, and only a large one pays: a budget that is split
among all modules buys little of anything. Revenue, clicks and the share of cold-start ads compete.
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
"""The deep model costs twice as much an ad."""
TODAY = {"deep": 6, "similar": 6, "fresh": 6}
LIMIT = -5.0
"""The loss, in percent of today's value, that click rate and cold-start share may not exceed."""
FLOOR = "-40%"
"""Where the breaker pulls traffic: far off, for a learner that knows nothing yet tries everything."""

WORTH = np.array([1.45, 1.0, 0.95])
"""What a typical ad of each module is worth in the auction; one of the obvious ads is worth 1."""
CLICKED = np.array([0.16, 0.24, 0.15])
"""The chance that an ad of each module is clicked."""
COLD = np.array([0.20, 0.30, 0.90])
"""The chance that an ad of each module is a cold-start ad."""
OBVIOUS = 4
"""Ads that every module finds first."""
OBVIOUS_CLICKED = 0.17
SLOTS = 3
PAGES = 5
"""Requests of a user in a round."""
SPREAD, TASTE, APPEAL = 0.35, 0.1, 0.2
"""By how much worth differs between ads and a module's worth between users, and clicks between ads; of logarithms."""
CENTS = 40.0
"""What an ad that is worth 1 pays for a click that happens one time in six."""


@dataclass(frozen=True, slots=True, eq=False)
class Ads:
    """The retrieval of ads with every split of the compute budget on a grid; made by `ads`.

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
        """Revenue a user; clicks and cold-start ads among those shown."""
        return {"revenue": SimulatedMetric(0), "click_rate": SimulatedMetric(1, 3), "cold_start": SimulatedMetric(2, 3)}

    @property
    def document(self) -> dict[str, Any]:
        """The study file."""
        shown = {"event": self.event, "value": "shown", "aggregate": "sum", "cap": 20}
        return {
            "name": self.name,
            "unit": "user",
            "description": "Quotas of three retrieval modules within a compute budget",
            "baseline": dict(TODAY),
            "parameters": {module: list(levels) for module, levels in QUOTAS.items()},
            "constraints": [BUDGET, AT_LEAST_ONE],
            "metrics": {
                "revenue": {"event": self.event, "value": "cents", "aggregate": "sum", "cap": 10_000},
                "click_rate": {
                    "ratio": [{"event": self.event, "value": "clicks", "aggregate": "sum", "cap": 20}, shown]
                },
                "cold_start": {"ratio": [{"event": self.event, "value": "cold", "aggregate": "sum", "cap": 20}, shown]},
            },
            "goal": {"maximize": "revenue"},
            "guardrails": [
                {"metric": "click_rate", "at_least": f"{LIMIT:g}%", "loss_budget": "3%", "stop_at": FLOOR},
                {"metric": "cold_start", "at_least": f"{LIMIT:g}%", "loss_budget": "3%", "stop_at": FLOOR},
            ],
        }

    def visit(self, chosen: Indices, rng: np.random.Generator, mood: float = 1.0) -> VisitBatch:
        """Serve users; in a good mood, above 1, ads are clicked more often."""
        users = len(chosen)
        worth, click = _pools(users, rng)
        won = _auction(worth, self._brought()[np.repeat(chosen, PAGES)])
        price = np.take_along_axis(_price(worth, click), won, axis=1)
        clicked = rng.random(won.shape) < np.minimum(1.0, mood * np.take_along_axis(click, won, axis=1))
        cents = np.floor((price * clicked).sum(axis=1) + rng.random(len(won)) * clicked.any(axis=1))
        cold = rng.random(won.shape) < FRESHNESS[won]
        fields = np.stack([cents, clicked.sum(axis=1), cold.sum(axis=1), np.full(len(won), SLOTS)], axis=1)
        pages = fields.reshape(users, PAGES, -1).sum(axis=1)
        return VisitBatch(np.arange(users), pages.astype(np.int64))

    def expected(self, users: int, rng: np.random.Generator) -> FloatArray:
        """What each user does on average, given the ads that there are for him."""
        worth, click = _pools(users, rng)
        parts = (_price(worth, click) * click, click, np.broadcast_to(FRESHNESS, worth.shape), np.ones_like(worth))
        found = np.zeros((users, len(self.candidates), len(self.columns)))
        for candidate, brought in enumerate(self._brought()):
            won = _auction(worth, brought)
            for column, part in enumerate(parts):
                pages = np.take_along_axis(part, won, axis=1).sum(axis=1)
                found[:, candidate, column] = pages.reshape(users, PAGES).sum(axis=1)
        return found

    def _brought(self) -> NDArray[np.bool_]:
        """Which ads of a pool each candidate brings to the auction, (candidates, pool)."""
        places = np.arange(DEPTH)
        rows = []
        for row in self.candidates:
            own = [places < int(row[module]) - OBVIOUS for module in MODULES]
            rows.append(np.concatenate([np.ones(OBVIOUS, dtype=bool), *own]))
        return np.array(rows)


DEPTH = max(max(levels) for levels in QUOTAS.values()) - OBVIOUS
"""Ads of its own that a module brings at most."""
OF_MODULE = np.repeat(np.arange(len(MODULES)), DEPTH)
"""Whose the ads of a pool are, behind the obvious ones."""
FRESHNESS = np.concatenate([np.zeros(OBVIOUS), COLD[OF_MODULE]])
"""The chance that each of a pool is a cold-start ad."""
AT_LEAST_ONE = "deep + similar + fresh >= 6"
"""Somebody must bring something."""


@lru_cache(maxsize=1)
def ads() -> Ads:
    """The retrieval of ads; its guardrails are hard.

    >>> application = ads()
    >>> len(application.candidates), application.candidates.names[application.baseline]
    (15, 'deep=6,similar=6,fresh=6')
    """
    objective = maximize("cents")
    for name, column in (("click_rate", "clicks"), ("cold_start", "cold")):
        objective = objective.keep(ratio(column, "shown", name=name), at_least=f"{LIMIT:+g}%")
    candidates = grid(QUOTAS, BUDGET, AT_LEAST_ONE)
    return Ads(candidates, objective, candidates.find(TODAY))


def _pools(users: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """The ads that there are for each request: what they are worth, and the chance of a click; (requests, pool)."""
    requests, own, module = users * PAGES, len(MODULES) * DEPTH, OF_MODULE
    taste = np.repeat(np.exp(TASTE * rng.standard_normal((users, len(MODULES)))), PAGES, axis=0)
    worth = np.exp(SPREAD * rng.standard_normal((requests, OBVIOUS + own)))
    worth[:, OBVIOUS:] *= WORTH[module] * taste[:, module]
    click = np.exp(APPEAL * rng.standard_normal((requests, OBVIOUS + own)))
    click *= np.concatenate([np.full(OBVIOUS, OBVIOUS_CLICKED), CLICKED[module]])
    return worth, click


def _price(worth: FloatArray, click: FloatArray) -> FloatArray:
    """Cents for a click: an ad that is clicked seldom pays more for it."""
    return np.asarray(CENTS * OBVIOUS_CLICKED * worth / click)


def _auction(worth: FloatArray, brought: NDArray[np.bool_]) -> Indices:
    """The ads shown, (requests, slots)."""
    return np.argpartition(np.where(brought, -worth, np.inf), SLOTS, axis=1)[:, :SLOTS]
