"""Table 2: the paper's simulation on real data, with two models, one exponent, one goal and one guardrail.

The steps of one data set, from prepared pairs to what was learned; `movielens` and `amazon` choose the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pasto.arrays import FloatArray
from pasto.blend import Blend
from pasto.objective import Objective, maximize
from pasto.optimize import solve
from pasto.space import grid
from pasto_research.paper.data import Split
from pasto_research.paper.experiment import Size
from pasto_research.paper.models.linear import ease, popularity
from pasto_research.paper.models.mult_vae import MultVaeSettings, TrainingResult, settings_document, train
from pasto_research.paper.models.ranking import mixed, rate, weighted
from pasto_research.paper.replay import (
    Cache,
    Halves,
    LearnerRuns,
    UserSample,
    fingerprint,
    halves,
    learn_by_algorithm1,
    learn_by_default,
)

CHOICES = 100
"""K."""
PENALTY = 5.0
"""λ."""
MIDDLE = 0.5
"""The α whose second metric is the threshold; it is not among the hundred."""
ALPHAS = np.linspace(0.0, 1.0, CHOICES)
MARKS = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000)
DEFAULT_ROUNDS = 100
"""The default learner is run no longer than this."""


@dataclass(frozen=True, slots=True, eq=False)
class GuardrailVariant:
    """Variant of the guardrail on the second metric: the best blend and the learned ones."""

    soft: bool
    objective: Objective
    best: Blend
    learned: tuple[LearnerRuns, ...]
    halves: Halves


@dataclass(frozen=True, slots=True, eq=False)
class Table2Replay:
    """Results of the replay on one data set."""

    split: Split
    metrics: tuple[str, str]
    user_sample: UserSample
    threshold: float
    middle: FloatArray
    """(metrics,): at α = 0.5."""
    trainings: tuple[TrainingResult, TrainingResult]
    settings: MultVaeSettings
    baselines: dict[str, tuple[float, float]]
    """Both metrics of other recommenders and of each model alone."""
    soft: GuardrailVariant
    hard: GuardrailVariant

    @property
    def truth(self) -> FloatArray:
        """(metrics, α)."""
        return self.user_sample.truth

    @property
    def top(self) -> int:
        """The α that is best for the first metric alone."""
        return int(np.argmax(self.truth[0]))

    def lead(self, goal: GuardrailVariant) -> tuple[FloatArray, FloatArray]:
        """Return the best blend minus the best single α, and its standard error over users, (metrics,) each."""
        if goal.best.best_single is None:
            return np.full(2, np.nan), np.full(2, np.nan)
        shares = np.array(goal.best.probabilities)
        shares[goal.best.best_single] -= 1.0
        each = np.einsum("mku,k->mu", self.user_sample.values, shares)
        counts = self.user_sample.present.sum(axis=1)
        mean = each.sum(axis=1) / counts
        spread = np.square(each).sum(axis=1) / counts - mean**2
        return mean, np.sqrt(np.maximum(spread, 0.0) / counts)


@dataclass(frozen=True, slots=True, eq=False)
class Models:
    """The two trained models of a data set, and what they are to find."""

    split: Split
    worth: str
    wanted: dict[str, csr_array]
    """By metric: test pairs with their weights."""
    trainings: tuple[TrainingResult, TrainingResult]
    key: dict[str, Any]
    """What everything computed from them depends on."""
    size: Size

    def values(self, alphas: list[float]) -> NDArray[np.float32]:
        """Return each user's metrics at every α, (metrics, alphas, users), computed once."""
        key = {**self.key, "alphas": alphas, "prices": fingerprint(self.split.pairs.worth[self.worth])}
        return Cache(self.size.cache).arrays("mixed", key, lambda: {"values": self._mixed(alphas)})["values"]

    def baselines(self) -> dict[str, NDArray[np.float64]]:
        """Return both metrics of popularity and EASE."""
        return Cache(self.size.cache).arrays("baselines", self.key, lambda: _baselines(self.split, self.wanted))

    def _mixed(self, alphas: list[float]) -> NDArray[np.float32]:
        first, second = self.trainings
        return mixed(
            first.model.score,
            second.model.score,
            self.split.train,
            self.wanted,
            alphas,
            progress=self.size.progress,
            label=f"{self.split.pairs.name}: {len(alphas)} values of α",
        )


def models(split: Split, worth: str, metrics: tuple[str, str], settings: MultVaeSettings, size: Size) -> Models:
    """Train a model for all positives and one for their worth, or take them from the cache."""
    cache = Cache(size.cache)
    key = {
        "data": fingerprint(split.train.indptr, split.train.indices, split.test.indices),
        "model": settings_document(settings),
    }
    wanted = {metrics[0]: split.test, metrics[1]: weighted(split.test, split.pairs.worth[worth])}
    targets = {"all": split.train, worth: _scaled(weighted(split.train, split.pairs.worth[worth]))}
    first, second = (
        train(
            split.train,
            target,
            settings,
            path=cache.path("model", {**key, "target": kind, "weights": fingerprint(target.data)}),
            progress=size.progress,
            label=f"{split.pairs.name}: training for {kind}",
        )
        for kind, target in targets.items()
    )
    return Models(split, worth, wanted, (first, second), {**key, "worth": worth}, size)


def play(split: Split, worth: str, metrics: tuple[str, str], settings: MultVaeSettings, size: Size) -> Table2Replay:
    """Train both models, score every α for every user once, then learn from random folds of the users."""
    trained = models(split, worth, metrics, settings, size)
    name = split.pairs.name
    values = trained.values([*ALPHAS.tolist(), MIDDLE])
    user_sample = UserSample.of(metrics, values)
    middle = user_sample.truth[:, -1]
    user_sample = user_sample.chosen(range(CHOICES))
    baselines = trained.baselines()
    told_baselines: dict[str, tuple[float, float]] = {
        each: (float(pair[0]), float(pair[1])) for each, pair in baselines.items()
    }
    for each, place in {"Mult-VAE, all positives (α = 1)": -1, f"Mult-VAE, {worth} (α = 0)": 0}.items():
        told_baselines[each] = (float(user_sample.truth[0, place]), float(user_sample.truth[1, place]))
    return Table2Replay(
        split,
        metrics,
        user_sample,
        float(middle[1]),
        middle,
        trained.trainings,
        settings,
        told_baselines,
        _goal(user_sample, values[:, -1:], metrics, size, name, soft=True),
        _goal(user_sample, values[:, -1:], metrics, size, name, soft=False),
    )


def objective(metrics: tuple[str, str], threshold: float, *, soft: bool) -> Objective:
    """Raise the first metric, keep the second at a threshold: with the paper's λ = 5, or at all costs.

    >>> objective(("R@20", "REV@20"), 4.28, soft=False).hard
    ('REV@20',)
    """
    return maximize(metrics[0]).keep(metrics[1], at_least=threshold, penalty=PENALTY if soft else None)


def _goal(
    user_sample: UserSample, middle: NDArray[np.float32], metrics: tuple[str, str], size: Size, name: str, *, soft: bool
) -> GuardrailVariant:
    half = UserSample.of(metrics, np.where(user_sample.present[:, None], middle, np.nan))
    wanted = objective(metrics, float(half.truth[1, 0]), soft=soft)
    choices = grid(alpha=ALPHAS.round(6).tolist())
    word = "soft" if soft else "hard"
    learned = [
        learn_by_default(
            user_sample,
            wanted,
            choices,
            repeats=size.runs,
            seed=size.seed,
            marks=MARKS,
            rounds=min(size.rounds, DEFAULT_ROUNDS),
            progress=size.progress,
            label=f"{name}: default learner, {word}",
        )
    ]
    if soft:
        learned.insert(
            0,
            learn_by_algorithm1(
                user_sample,
                wanted,
                repeats=size.runs,
                seed=size.seed,
                marks=MARKS,
                rounds=size.rounds,
                progress=size.progress,
                label=f"{name}: Algorithm 1",
            ),
        )
    both = UserSample(metrics, np.concatenate([user_sample.values, half.values], axis=1), user_sample.present)
    return GuardrailVariant(
        soft,
        wanted,
        solve(wanted.by_metric(user_sample.truth), wanted),
        tuple(learned),
        _halves(both, metrics, size, soft=soft),
    )


def _halves(both: UserSample, metrics: tuple[str, str], size: Size, *, soft: bool) -> Halves:
    """Return the objective with the choosing half's threshold at α = 0.5, the last candidate."""

    def wanted(part: UserSample) -> Objective:
        return objective(metrics, float(part.truth[1, -1]), soft=soft)

    return halves(both, wanted, choices=CHOICES, splits=10 if size.quick else 100, seed=size.seed)


def _baselines(split: Split, wanted: dict[str, csr_array]) -> dict[str, NDArray[np.float64]]:
    models = {"popularity": partial(popularity, split.train), "EASE": partial(ease, split.train)}
    return {name: _both(build, split, wanted) for name, build in models.items()}


def _both(
    build: Callable[[], Callable[[csr_array], NDArray[np.float32]]], split: Split, wanted: dict[str, csr_array]
) -> FloatArray:
    score = build()
    return np.array([np.nanmean(rate(score, split.train, kind)) for kind in wanted.values()])


def _scaled(weights: csr_array) -> csr_array:
    """Scale weights to a mean of one, so that the likelihood and the KL term are balanced as without weights."""
    found = weights.copy()
    found.data = found.data / found.data.mean()
    return found
