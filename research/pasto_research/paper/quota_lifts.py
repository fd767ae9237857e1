"""Quotas in percent over today's: what every request showed under each of them, what is best, and what is learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import InputError
from pasto.objective import Objective, maximize
from pasto.optimize import solve
from pasto.records import Blend
from pasto.space import Candidates
from pasto_research.paper.experiment import Size
from pasto_research.paper.replay import Crowd, Halves, Learned, halves, learn_by_default

ROUNDS = 60
"""The default learner is run no longer than this."""


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """What each of some requests, or users, brought under every candidate."""

    name: str
    candidates: Candidates
    baseline: int
    metrics: tuple[str, ...]
    """What to raise first."""
    values: FloatArray
    """(metrics, candidates, requests)."""
    kept: Mapping[str, float]
    """Hard guardrails: the least lift of a metric, in percent over the baseline."""


@dataclass(frozen=True, slots=True, eq=False)
class Quotas:
    """Everything measured on one set of requests."""

    shown: Shown
    means: FloatArray
    """(metrics,): of the baseline, a request."""
    crowd: Crowd
    """In percent over the baseline, all metrics that it shows any of."""
    objective: Objective
    best: Blend
    learned: Learned
    halves: Halves

    @property
    def name(self) -> str:
        """Of the requests."""
        return self.shown.name

    def lift(self, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Percent over the baseline and its standard error over requests, (metrics,) each."""
        return self.lead(shares, self.only(self.shown.baseline))

    def lead(self, shares: FloatArray, others: FloatArray) -> tuple[FloatArray, FloatArray]:
        """By how many percentage points one mixture is ahead of another, with its error, (metrics,) each."""
        each = np.einsum("mku,k->mu", self.crowd.values, shares - others)
        return each.mean(axis=1), each.std(axis=1, ddof=1) / sqrt(each.shape[1])

    def only(self, place: int) -> FloatArray:
        """The mixture of one candidate alone."""
        return np.asarray(np.arange(len(self.shown.candidates)) == place, dtype=float)

    @property
    def blend(self) -> FloatArray:
        """The best mixture."""
        return np.array(self.best.probabilities)

    @property
    def answer(self) -> FloatArray:
        """The learner's mixture, averaged over its repeats."""
        return np.asarray(self.learned.answers[:, -1].mean(axis=0))


def learn(shown: Shown, size: Size) -> Quotas:
    """Find the best blend, learn one from folds of the requests, and see what it is worth on other requests."""
    means = shown.values[:, shown.baseline].mean(axis=1)
    wanted = objective(shown)
    if lacking := [metric for metric in wanted.metrics if not means[shown.metrics.index(metric)] > 0]:
        raise InputError(f"{shown.name}: the baseline shows no {lacking[0]}, so nothing can be told in percent of it")
    some = means > 0  # real clicks are rare, and small logs may show none
    crowd = Crowd.of(
        [metric for metric, any_ in zip(shown.metrics, some, strict=True) if any_],
        100.0 * (shown.values[some] / means[some, None, None] - 1.0),
    )
    read = [crowd.metrics.index(each) for each in wanted.metrics]
    aimed = Crowd(wanted.metrics, crowd.values[read], crowd.present[read])
    learned = learn_by_default(
        aimed,
        wanted,
        shown.candidates,
        repeats=size.runs,
        seed=size.seed,
        rounds=min(ROUNDS, size.rounds),
        marks=(10, 20, 40),
        progress=size.progress,
        label=f"ads, {shown.name}: default learner",
    )

    def here(part: Crowd) -> Objective:
        return objective(shown, dict(zip(part.metrics, part.truth[:, shown.baseline].tolist(), strict=True)))

    apart = halves(aimed, here, splits=10 if size.quick else 50, seed=size.seed)
    return Quotas(shown, means, crowd, wanted, solve(wanted.by_metric(aimed.truth), wanted), learned, apart)


def objective(shown: Shown, today: Mapping[str, float] | None = None) -> Objective:
    """Raise the first metric, and keep the others where they have to be.

    Lifts are over the baseline of all requests; `today` is where the baseline of some of them stands.
    """
    wanted = maximize(shown.metrics[0])
    for metric, least in shown.kept.items():
        wanted = wanted.keep(metric, at_least=least + (today or {}).get(metric, 0.0))
    return wanted
