"""Learner adapters of the benchmark: PASTO's learners through a study, and common alternatives in a few lines each.

All have the same interface: each round an adapter names Q candidates and receives their measurements with the noise. It
can be asked for its answer at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import pasto
from pasto.arrays import FloatArray
from pasto.objective import NormalForm
from pasto.optimize import solve_exact
from pasto.optimize.learners import Learner
from pasto.sim import World
from pasto.space import Candidates
from pasto.study.assignment import Assignment

Places = NDArray[np.intp]


class LearnerAdapter(Protocol):
    """Adapter of one way of learning a blend."""

    def ask(self, parallel: int) -> Places:
        """Return the candidates to measure next."""
        ...

    def tell(self, candidates: Places, metrics: FloatArray) -> None:
        """Receive their measurements, (parallel, metrics)."""
        ...

    def served(self) -> FloatArray:
        """Return the distribution of the last round."""
        ...

    def answer(self) -> FloatArray:
        """Return the distribution to deploy."""
        ...


class StudyAdapter:
    """Adapter of a learner of PASTO, by ask and tell."""

    def __init__(
        self, world: World, learner: str | Learner[Any], seed: int, candidates: Candidates | None = None
    ) -> None:
        self.study = pasto.Study(candidates or world.candidates, world.objective, learner=learner, seed=seed)
        self.errors = np.broadcast_to(world.noise, world.truth.shape).T
        self.asked: Sequence[Assignment] = ()

    def ask(self, parallel: int) -> Places:
        """Ask the study."""
        self.now = np.array(self.study.policy.probabilities)
        self.asked = self.study.ask(parallel)
        return np.array([assignment.candidate for assignment in self.asked])

    def tell(self, candidates: Places, metrics: FloatArray) -> None:
        """Pass the measurements to the study, with the standard errors."""
        self.study.tell(self.asked, metrics, standard_errors=self.errors[candidates])

    def served(self) -> FloatArray:
        """Return the policy of the last round."""
        return self.now

    def answer(self) -> FloatArray:
        """Return the study's blend."""
        return np.array(self.study.blend().probabilities)


class Tally:
    """Running means of what was measured; what the players below have in common."""

    def __init__(self, world: World, seed: int) -> None:
        self.form: NormalForm = world.objective.form()
        self.noise = np.broadcast_to(world.noise, world.truth.shape)
        self.counts = np.zeros(world.truth.shape[1])
        self.sums = np.zeros(world.truth.shape)
        self.rng = np.random.default_rng(seed)
        self.now = np.full(len(self.counts), 1.0 / len(self.counts))

    def tell(self, candidates: Places, metrics: FloatArray) -> None:
        """Add to the sums."""
        np.add.at(self.counts, candidates, 1.0)
        np.add.at(self.sums.T, candidates, metrics)

    def served(self) -> FloatArray:
        """Return the last distribution."""
        return self.now

    def means(self) -> FloatArray:
        """Return sample means; an unmeasured candidate counts like the worst one."""
        means = self.sums / np.maximum(self.counts, 1.0)
        measured = self.counts > 0
        if measured.all() or not measured.any():
            return means
        worth = self.form.goal.gradient(means.mean(axis=1)) + self.form.rows.sum(axis=0)
        low, high = means[:, measured].min(axis=1), means[:, measured].max(axis=1)
        means[:, ~measured] = np.where(worth >= 0, low, high)[:, None]
        return means

    def answer(self) -> FloatArray:
        """Return the exact blend of the sample means."""
        return solve_exact(self.form, self.means()).probabilities

    def drawn(self, parallel: int) -> Places:
        """Return independent draws from the distribution of now."""
        edges = np.cumsum(self.now)
        places = np.searchsorted(edges, self.rng.random(parallel) * edges[-1], side="right")
        return np.asarray(places.clip(max=len(edges) - 1), dtype=np.intp)


class SweepAdapter(Tally):
    """Every candidate equally often, then the exact blend of the sample means."""

    def ask(self, parallel: int) -> Places:
        """Return the candidates measured least."""
        order = self.rng.permutation(len(self.counts))
        least = order[np.argsort(self.counts[order], kind="stable")]
        return np.resize(least, parallel).astype(np.intp)


class UpperBoundAdapter(Tally):
    """Bandits with concave rewards: serve the exact blend of upper confidence bounds."""

    def ask(self, parallel: int) -> Places:
        """Draw from the blend that is best if every candidate is as good as it may be."""
        looks = np.maximum(self.counts, 0.25)
        bonus = self.noise * np.sqrt(2.0 * np.log(2.0 + self.counts.sum()) / looks)
        hopes = np.sign(self.form.goal.gradient(np.zeros(len(self.sums))) + self.form.rows.sum(axis=0))
        means = self.sums / np.maximum(self.counts, 1.0)
        self.now = solve_exact(self.form, means + hopes[:, None] * bonus).probabilities
        return self.drawn(parallel)


class ScalarThompsonAdapter(Tally):
    """Thompson sampling on the scalarised reward f(û), as a bandit library would do it; answers one candidate."""

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed)
        self.total = np.zeros(len(self.counts))
        self.squares = 0.0

    def tell(self, candidates: Places, metrics: FloatArray) -> None:
        """Receive measurements and convert each to one number, f(û)."""
        super().tell(candidates, metrics)
        rewards = self.form.smooth(metrics)
        np.add.at(self.total, candidates, rewards)
        self.squares += float(rewards @ rewards)

    def ask(self, parallel: int) -> Places:
        """Return the best candidate of one posterior draw for each slot."""
        count = max(float(self.counts.sum()), 1.0)
        spread = max(self.squares / count - (float(self.total.sum()) / count) ** 2, 1e-6)
        looks = self.counts + 1.0
        draws = self.total / looks + np.sqrt(spread / looks) * self.rng.standard_normal((parallel, len(looks)))
        chosen = np.asarray(draws.argmax(axis=1), dtype=np.intp)
        self.now = np.bincount(chosen, minlength=len(looks)) / parallel
        return chosen

    def answer(self) -> FloatArray:
        """Return the candidate with the best mean reward."""
        means = np.where(self.counts > 0, self.total / np.maximum(self.counts, 1.0), -np.inf)
        return np.asarray(np.arange(len(means)) == np.argmax(means), dtype=float)


class OracleAdapter(Tally):
    """Knows which candidates make the best blend, not in which shares: the limit for any learner."""

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed)
        self.support = np.flatnonzero(solve_exact(self.form, world.truth).probabilities)
        self.now = np.isin(np.arange(len(self.counts)), self.support) / len(self.support)

    def ask(self, parallel: int) -> Places:
        """Return the candidates of the support in turn."""
        order = np.argsort(self.counts[self.support], kind="stable")
        return self.support[np.resize(order, parallel)].astype(np.intp)

    def answer(self) -> FloatArray:
        """Return the exact blend of the support's sample means."""
        shares = np.zeros(len(self.counts))
        measured = self.support[self.counts[self.support] > 0]
        means = self.sums[:, measured] / self.counts[measured]
        shares[measured] = solve_exact(self.form, means).probabilities
        return shares
