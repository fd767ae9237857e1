"""Quotas of ads retrieval on a replay: modules retrieve, one ranking follows, and what is shown pays its market price.

Each campaign of a log is a retrieval module; a tenth of all impressions, drawn at random, play ads that nothing is
known of yet, and a module of their own retrieves them. Both are simulated: the logs tell no ads apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pasto.errors import BadInput
from pasto.objective import Array, Objective, maximize
from pasto.optimize import solve
from pasto.paper.data.ipinyou import Log
from pasto.paper.experiment import Size
from pasto.paper.replay import Crowd, Halves, Learned, halves, learn_by_default
from pasto.records import Blend
from pasto.space import Candidates, grid

TOTAL = 6
"""Ads that may be retrieved for a request."""
SHOWN = 2
POOL = 20
"""Ads that a module looks at for a request; it returns the likeliest to be clicked first."""
COLD_SHARE = 0.1
COLD = "cold"
BOOST = 2.0
"""What the ranking multiplies a cold ad's mean rate by, so that it has a chance among the likeliest of others."""
METRICS = ("revenue", "cold start", "predicted clicks", "clicks")
KEPT = {"cold start": -1.0, "predicted clicks": -1.0}
"""Hard guardrails, in percent over the baseline."""
ROUNDS = 60
CAMPAIGNS = (("1000", 50.0, 0.004), ("2000", 65.0, 0.0015), ("3000", 80.0, 0.0006), ("4000", 95.0, 0.0003))
"""Of the made-up logs: name, mean price and mean rate."""


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """What every module would retrieve for each request, best first, (requests, modules, TOTAL) each."""

    scores: Array
    """What the ranking goes by: predicted rate times the campaign's cost per click."""
    paid: dict[str, Array]
    """By metric: what comes of an ad if it is shown."""


@dataclass(frozen=True, slots=True, eq=False)
class Quotas:
    """Everything measured on one set of logs."""

    name: str
    modules: tuple[str, ...]
    candidates: Candidates
    baseline: int
    means: Array
    """(metrics,): of the baseline, a request."""
    crowd: Crowd
    """In percent over the baseline, all metrics that it shows any of."""
    objective: Objective
    best: Blend
    learned: Learned
    halves: Halves
    aimed: Crowd
    """The metrics that the objective reads."""


def play(name: str, logs: tuple[Log, ...], size: Size, requests: int = 10_000) -> Quotas:
    """Replay requests under every way to share out the quotas, and learn which of them to blend."""
    modules = (*(f"c{log.campaign}" for log in logs), COLD)
    candidates = shares_of(modules)
    found = retrieve(logs, 2_000 if size.quick else requests, np.random.default_rng([size.seed, 4]))
    values = np.array([shown(found, [int(row[module]) for module in modules]) for row in candidates]).transpose(1, 0, 2)
    even = int(np.argmin([np.var([float(row[module]) for module in modules]) for row in candidates]))
    means = values[:, even].mean(axis=1)
    wanted = objective()
    if lacking := [metric for metric in wanted.metrics if not means[METRICS.index(metric)] > 0]:
        raise BadInput(f"{name}: the baseline shows no {lacking[0]} at all, so nothing can be told in percent of it")
    some = means > 0  # real clicks are rare, and small logs may show none
    crowd = Crowd.of(
        [metric for metric, any_ in zip(METRICS, some, strict=True) if any_],
        100.0 * (values[some] / means[some, None, None] - 1.0),
    )
    read = [crowd.metrics.index(each) for each in wanted.metrics]
    aimed = Crowd(wanted.metrics, crowd.values[read], crowd.present[read])
    learn = partial(learn_by_default, aimed, wanted, candidates, repeats=size.runs, seed=size.seed)
    learned = learn(
        rounds=min(ROUNDS, size.rounds),
        marks=(10, 20, 40),
        progress=size.progress,
        label=f"ads, {name}: default learner",
    )

    def here(part: Crowd) -> Objective:
        return objective(dict(zip(part.metrics, part.truth[:, even].tolist(), strict=True)))

    apart = halves(aimed, here, splits=10 if size.quick else 50, seed=size.seed)
    best = solve(aimed.truth, wanted)
    return Quotas(name, modules, candidates, even, means, crowd, wanted, best, learned, apart, aimed)


def shares_of(modules: tuple[str, ...]) -> Candidates:
    """Every way to share the total out in whole numbers.

    >>> len(shares_of(("c1", "c2", "cold")))
    28
    """
    levels: dict[str, Any] = {module: range(TOTAL + 1) for module in modules}
    return grid(levels, f"{' + '.join(modules)} == {TOTAL}")


def objective(today: Mapping[str, float] | None = None) -> Objective:
    """Raise revenue; neither cold-start ads nor predicted clicks may lose more than a percent.

    Lifts are over the baseline of all requests; `today` is where the baseline of some of them stands.

    >>> objective().hard
    ('cold start', 'predicted clicks')
    """
    wanted = maximize("revenue")
    for metric, least in KEPT.items():
        wanted = wanted.keep(metric, at_least=least + (today or {}).get(metric, 0.0))
    return wanted


def retrieve(logs: tuple[Log, ...], requests: int, rng: np.random.Generator) -> Requests:
    """What each module finds for each request: the likeliest of a random pool, or cold ads as they come."""
    cold = [rng.random(len(log.clicks)) < COLD_SHARE for log in logs]
    parts = [_warm(log, np.flatnonzero(~fresh), requests, rng) for log, fresh in zip(logs, cold, strict=True)]
    parts.append(_cold(logs, cold, requests, rng))
    scores, paid = zip(*parts, strict=True)
    return Requests(
        np.stack(scores, axis=1), {metric: np.stack([each[metric] for each in paid], axis=1) for metric in METRICS}
    )


def shown(found: Requests, quotas: list[int]) -> Array:
    """What each request brings if modules may retrieve so many ads each, (metrics, requests)."""
    places = np.flatnonzero((np.arange(TOTAL) < np.array(quotas)[:, None]).ravel())
    scores = found.scores.reshape(len(found.scores), -1)[:, places]
    first = np.argpartition(-scores, SHOWN - 1, axis=1)[:, :SHOWN]
    return np.array(
        [
            np.take_along_axis(values.reshape(len(values), -1)[:, places], first, axis=1).sum(axis=1)
            for values in found.paid.values()
        ]
    )


def made_up(rng: np.random.Generator, size: int = 50_000) -> tuple[Log, ...]:
    """Logs of four campaigns from known distributions: the dearer an impression, the less it is clicked.

    >>> [log.campaign for log in made_up(np.random.default_rng(1), 100)]
    ['1000', '2000', '3000', '4000']
    """
    logs = []
    for campaign, price, rate in CAMPAIGNS:
        rates = rate * rng.lognormal(-0.125, 0.5, size)
        clicks = (rng.random(size) < rates).astype(float)
        logs.append(Log(campaign, clicks, price * rng.lognormal(-0.32, 0.8, size), rates))
    return tuple(logs)


def _warm(log: Log, known: Any, requests: int, rng: np.random.Generator) -> tuple[Array, dict[str, Array]]:
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
) -> tuple[Array, dict[str, Array]]:
    """Nothing is known of a cold ad but its campaign's mean rate."""
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
