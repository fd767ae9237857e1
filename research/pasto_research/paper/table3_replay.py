"""Table 3: ensemble-sort weights on real feedback, with models, re-ranked lists, the best blend and learned ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.blend import Blend
from pasto.objective import Objective, maximize
from pasto.optimize import solve
from pasto.space import Candidates, grid
from pasto_research.paper.data.kuairand import Impressions
from pasto_research.paper.experiment import Size
from pasto_research.paper.models.feedback import FeedbackPrediction, predict
from pasto_research.paper.models.ranking import Lists
from pasto_research.paper.replay import Halves, LearnerRuns, UserSample, halves, learn_by_algorithm1, learn_by_default

LEAST, TOP = 6, 3
"""Impressions a user must have, and those of them that count as shown."""
WEIGHTS = {
    "long_view": [0.0, 0.5, 1.0],
    "like": [0.0, 0.1, 0.2, 0.3, 0.5, 1.0],
    "forward": [0.0, 0.2, 0.5, 1.0],
}
"""Powers of the other predictions; that of the predicted watch time is 1."""
TODAY = {"long_view": 0.5, "like": 0.2, "forward": 0.2}
"""The baseline: some of everything."""
TARGET, PENALTY = -2.0, 5.0
"""Percent of the baseline at which soft guardrails begin to pull, and λ, in percent of watch time."""
MARKS = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000)
SHORT = 100
"""The default learner is run no longer than this."""
METRICS = ("time", "like", "forward")


@dataclass(frozen=True, slots=True, eq=False)
class Aim:
    """A set of guardrails: what is best under them, what was learned, and what it is worth elsewhere."""

    name: str
    user_sample: UserSample
    """In percent over the baseline."""
    objective: Objective
    best: Blend
    learned: tuple[LearnerRuns, ...]
    halves: Halves


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """Everything measured."""

    candidates: Candidates
    baseline: int
    predicted: FeedbackPrediction
    lists: Lists
    means: FloatArray
    """(metrics,): of the baseline, in seconds and rates."""
    user_sample: UserSample
    """All three metrics in percent over the baseline."""
    aims: tuple[Aim, ...]


def play(earlier: Impressions, later: Impressions, size: Size) -> Content:
    """Train on the earlier, re-rank each user's later impressions under all weights, and learn which to blend."""
    predicted = predict(earlier, later, size.seed)
    candidates = grid(WEIGHTS)
    baseline = candidates.find(TODAY)
    lists = Lists.of(
        later.users,
        predicted.scores,
        {name: later.feedback[kind] for name, kind in zip(METRICS, ("watch", "like", "forward"), strict=True)},
        LEAST,
        TOP,
    )
    values = np.array([lists.top_values({"watch": 1.0, **_powers(row)}) for row in candidates]).transpose(1, 0, 2)
    means = values[:, baseline].mean(axis=1)
    user_sample = UserSample.of(METRICS, 100.0 * (values / means[:, None, None] - 1.0))
    aims = tuple(_aim(user_sample, guarded, candidates, baseline, size) for guarded in (("like", "forward"), ("like",)))
    return Content(candidates, baseline, predicted, lists, means, user_sample, aims)


def objective(guarded: tuple[str, ...], today: Mapping[str, float] | None = None) -> Objective:
    """Raise watch time; each guardrail's metric is in percent over the baseline, and soft from −2 % on.

    Percentages are over the baseline of all users; `today` is where the baseline of some of them stands.

    >>> objective(("like",)).metrics
    ('time', 'like')
    """
    wanted = maximize("time")
    for name in guarded:
        wanted = wanted.keep(name, at_least=TARGET + (today or {}).get(name, 0.0), penalty=PENALTY)
    return wanted


def _aim(all_metrics: UserSample, guarded: tuple[str, ...], candidates: Candidates, baseline: int, size: Size) -> Aim:
    wanted = objective(guarded)
    read = [METRICS.index(name) for name in wanted.metrics]
    user_sample = UserSample(wanted.metrics, all_metrics.values[read], all_metrics.present[read])
    name = " and ".join(guarded)
    common: dict[str, Any] = {"repeats": size.runs, "seed": size.seed, "progress": size.progress}
    algorithm1 = partial(learn_by_algorithm1, user_sample, wanted, rounds=size.rounds, marks=MARKS)
    default = partial(learn_by_default, user_sample, wanted, candidates, rounds=min(size.rounds, SHORT), marks=MARKS)

    def here(part: UserSample) -> Objective:
        return objective(guarded, dict(zip(part.metrics, part.truth[:, baseline].tolist(), strict=True)))

    return Aim(
        name,
        user_sample,
        wanted,
        solve(wanted.by_metric(user_sample.truth), wanted),
        (
            algorithm1(**common, label=f"content, {name}: Algorithm 1"),
            default(**common, label=f"content, {name}: default learner"),
        ),
        halves(user_sample, here, splits=10 if size.quick else 100, seed=size.seed),
    )


def _powers(row: Any) -> dict[str, float]:
    return {name: float(value) for name, value in row.items()}
