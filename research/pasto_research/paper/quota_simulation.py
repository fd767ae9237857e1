"""Quotas of ads retrieval on the demo's ads application: every user visits once under each split of the quotas."""

from __future__ import annotations

import numpy as np

from pasto.sim.ads import LIMIT, ads
from pasto_research.paper.experiment import Size
from pasto_research.paper.quota_lifts import QuotaOutcomes

METRICS = ("revenue", "cold start", "clicks")
COLUMNS = ("cents", "cold", "clicks")
GUARDRAILS = {"cold start": LIMIT, "clicks": LIMIT}
QUICK = 2_000
"""Users of a quick run."""


def simulated(size: Size, users: int = 20_000) -> QuotaOutcomes:
    """Return users with the same ads to choose from under every candidate, so that candidates differ by nothing else.

    All users are shown equally many ads: rates of clicks and cold starts go by their sums.

    >>> shown = simulated(Size(runs=1, rounds=1), users=50)
    >>> shown.values.shape, shown.candidates.names[shown.baseline]
    ((3, 15, 50), 'deep=6,similar=6,fresh=6')
    """
    world = ads()
    count = QUICK if size.quick else users
    places = [world.columns.index(name) for name in COLUMNS]
    values = np.array(
        [
            world.visit(np.full(count, k), np.random.default_rng([size.seed, 6])).totals(count)[:, places].T
            for k in range(len(world.candidates))
        ],
        dtype=float,
    )
    return QuotaOutcomes(
        "the demonstration's world", world.candidates, world.baseline, METRICS, values.transpose(1, 0, 2), GUARDRAILS
    )
