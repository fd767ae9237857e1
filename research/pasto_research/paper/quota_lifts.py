"""Quota lifts of the ads application: outcomes of every request under each quota, and blends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np

from pasto.arrays import FloatArray
from pasto.blend import Blend
from pasto.errors import InputError
from pasto.objective import Objective, maximize
from pasto.optimize import solve
from pasto.space import Candidates
from pasto_research.paper.experiment import Size
from pasto_research.paper.replay import Halves, LearnerRuns, UserSample, halves, learn_by_default

ROUNDS = 60
"""The default learner is run no longer than this."""


@dataclass(frozen=True, slots=True, eq=False)
class QuotaOutcomes:
    """Outcomes of requests, or users, under every candidate."""

    name: str
    candidates: Candidates
    baseline: int
    metrics: tuple[str, ...]
    """What to raise first."""
    values: FloatArray
    """(metrics, candidates, requests)."""
    guardrails: Mapping[str, float]
    """Hard guardrails: the least lift of a metric, in percent over the baseline."""


@dataclass(frozen=True, slots=True, eq=False)
class Quotas:
    """Results on one set of requests."""

    outcomes: QuotaOutcomes
    means: FloatArray
    """(metrics,): of the baseline, a request."""
    user_sample: UserSample
    """In percent over the baseline, all metrics that it shows any of."""
    objective: Objective
    best: Blend
    learned: LearnerRuns
    halves: Halves

    @property
    def name(self) -> str:
        """Of the requests."""
        return self.outcomes.name

    def lift(self, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return percent over the baseline and its standard error over requests, (metrics,) each."""
        return self.lead(shares, self.only(self.outcomes.baseline))

    def lead(self, shares: FloatArray, others: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the lead of one mixture over another in percentage points, with its error, (metrics,) each."""
        each = np.einsum("mku,k->mu", self.user_sample.values, shares - others)
        return each.mean(axis=1), each.std(axis=1, ddof=1) / sqrt(each.shape[1])

    def only(self, place: int) -> FloatArray:
        """Return the shares of a single candidate."""
        return np.asarray(np.arange(len(self.outcomes.candidates)) == place, dtype=float)

    @property
    def blend(self) -> FloatArray:
        """The best mixture."""
        return np.array(self.best.probabilities)

    @property
    def answer(self) -> FloatArray:
        """The learner's mixture, averaged over its repeats."""
        return np.asarray(self.learned.answers[:, -1].mean(axis=0))


def learn(outcomes: QuotaOutcomes, size: Size) -> Quotas:
    """Find the best blend, learn one from folds of the requests, and see what it is worth on other requests."""
    means = outcomes.values[:, outcomes.baseline].mean(axis=1)
    wanted = objective(outcomes)
    if lacking := [metric for metric in wanted.metrics if not means[outcomes.metrics.index(metric)] > 0]:
        raise InputError(f"{outcomes.name}: the baseline shows no {lacking[0]}, so a percentage of it is undefined")
    some = means > 0  # real clicks are rare, and small logs may show none
    user_sample = UserSample.of(
        [metric for metric, any_ in zip(outcomes.metrics, some, strict=True) if any_],
        100.0 * (outcomes.values[some] / means[some, None, None] - 1.0),
    )
    read = [user_sample.metrics.index(each) for each in wanted.metrics]
    aimed = UserSample(wanted.metrics, user_sample.values[read], user_sample.present[read])
    learned = learn_by_default(
        aimed,
        wanted,
        outcomes.candidates,
        repeats=size.runs,
        seed=size.seed,
        rounds=min(ROUNDS, size.rounds),
        marks=(10, 20, 40),
        progress=size.progress,
        label=f"ads, {outcomes.name}: default learner",
    )

    def here(part: UserSample) -> Objective:
        return objective(outcomes, dict(zip(part.metrics, part.truth[:, outcomes.baseline].tolist(), strict=True)))

    apart = halves(aimed, here, splits=10 if size.quick else 50, seed=size.seed)
    return Quotas(outcomes, means, user_sample, wanted, solve(wanted.by_metric(aimed.truth), wanted), learned, apart)


def objective(outcomes: QuotaOutcomes, today: Mapping[str, float] | None = None) -> Objective:
    """Raise the first metric, and keep the others where they have to be.

    Lifts are over the baseline of all requests; `today` is where the baseline of some of them stands.
    """
    wanted = maximize(outcomes.metrics[0])
    for metric, least in outcomes.guardrails.items():
        wanted = wanted.keep(metric, at_least=least + (today or {}).get(metric, 0.0))
    return wanted
