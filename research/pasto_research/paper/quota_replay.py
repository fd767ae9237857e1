"""Quotas of ads retrieval on replayed logs: modules retrieve, one ranking follows, and displayed ads pay their price.

Each campaign of a log is a retrieval module; a tenth of all impressions, drawn at random, play ads that nothing is
known of yet, and a module of their own retrieves them. Both are simulated, because the logs do not identify ads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.space import Candidates, grid
from pasto_research.paper.data.ipinyou import Log
from pasto_research.paper.experiment import Size
from pasto_research.paper.quota_lifts import QuotaOutcomes

TOTAL = 6
"""Ads that may be retrieved for a request."""
DISPLAYED_ADS = 2
POOL = 20
"""Ads that a module looks at for a request; it returns the likeliest to be clicked first."""
COLD_SHARE = 0.1
COLD = "cold"
BOOST = 2.0
"""What the ranking multiplies a cold ad's mean rate by, so that it has a chance among the likeliest of others."""
METRICS = ("revenue", "cold start", "predicted clicks", "clicks")
GUARDRAILS = {"cold start": -1.0, "predicted clicks": -1.0}
"""Hard guardrails, in percent over the baseline."""
QUICK = 2_000
"""Requests of a quick run."""


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """Ads that every module would retrieve for each request, best first, (requests, modules, TOTAL) each."""

    scores: FloatArray
    """What the ranking goes by: predicted rate times the campaign's cost per click."""
    paid: dict[str, FloatArray]
    """By metric: what comes of an ad if it is shown."""


def replayed(logs: tuple[Log, ...], size: Size, requests: int = 10_000) -> QuotaOutcomes:
    """Return requests replayed under every split of the quotas; the baseline is the most even split."""
    modules = (*(f"c{log.campaign}" for log in logs), COLD)
    candidates = shares_of(modules)
    found = retrieve(logs, QUICK if size.quick else requests, np.random.default_rng([size.seed, 4]))
    values = np.array(
        [request_values(found, [int(row[module]) for module in modules]) for row in candidates]
    ).transpose(1, 0, 2)
    even = int(np.argmin([np.var([float(row[module]) for module in modules]) for row in candidates]))
    return QuotaOutcomes("iPinYou", candidates, even, METRICS, values, GUARDRAILS)


def shares_of(modules: tuple[str, ...]) -> Candidates:
    """Return every way to share the total out in whole numbers.

    >>> len(shares_of(("c1", "c2", "cold")))
    28
    """
    levels: dict[str, Any] = {module: range(TOTAL + 1) for module in modules}
    return grid(levels, f"{' + '.join(modules)} == {TOTAL}")


def retrieve(logs: tuple[Log, ...], requests: int, rng: np.random.Generator) -> Requests:
    """Draw the ads of each module for each request: the most likely of a random pool, or random cold ads."""
    cold = [rng.random(len(log.clicks)) < COLD_SHARE for log in logs]
    parts = [_warm(log, np.flatnonzero(~fresh), requests, rng) for log, fresh in zip(logs, cold, strict=True)]
    parts.append(_cold(logs, cold, requests, rng))
    scores, paid = zip(*parts, strict=True)
    return Requests(
        np.stack(scores, axis=1), {metric: np.stack([each[metric] for each in paid], axis=1) for metric in METRICS}
    )


def request_values(found: Requests, quotas: list[int]) -> FloatArray:
    """Return the metrics of each request under these quotas, (metrics, requests)."""
    places = np.flatnonzero((np.arange(TOTAL) < np.array(quotas)[:, None]).ravel())
    scores = found.scores.reshape(len(found.scores), -1)[:, places]
    first = np.argpartition(-scores, DISPLAYED_ADS - 1, axis=1)[:, :DISPLAYED_ADS]
    return np.array(
        [
            np.take_along_axis(values.reshape(len(values), -1)[:, places], first, axis=1).sum(axis=1)
            for values in found.paid.values()
        ]
    )


def _warm(log: Log, known: Any, requests: int, rng: np.random.Generator) -> tuple[FloatArray, dict[str, FloatArray]]:
    drawn = known[rng.integers(len(known), size=(requests, POOL))]
    order = np.argsort(-log.rates[drawn], axis=1)[:, :TOTAL]
    drawn = np.take_along_axis(drawn, order, axis=1)
    return log.rates[drawn] * log.cost_per_click, {
        "revenue": log.prices[drawn],
        "cold start": np.zeros(drawn.shape),
        "predicted clicks": log.rates[drawn],
        "clicks": log.clicks[drawn],
    }


def _cold(
    logs: tuple[Log, ...], cold: list[Any], requests: int, rng: np.random.Generator
) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Draw cold ads, of which only the campaign's mean rate is known."""
    campaigns = np.repeat(np.arange(len(logs)), [int(fresh.sum()) for fresh in cold])
    prices = np.concatenate([log.prices[fresh] for log, fresh in zip(logs, cold, strict=True)])
    clicks = np.concatenate([log.clicks[fresh] for log, fresh in zip(logs, cold, strict=True)])
    rates = np.array([log.rates.mean() for log in logs])[campaigns]
    costs = np.array([log.cost_per_click for log in logs])[campaigns]
    drawn = rng.integers(len(campaigns), size=(requests, TOTAL))
    return BOOST * rates[drawn] * costs[drawn], {
        "revenue": prices[drawn],
        "cold start": np.ones(drawn.shape),
        "predicted clicks": rates[drawn],
        "clicks": clicks[drawn],
    }
