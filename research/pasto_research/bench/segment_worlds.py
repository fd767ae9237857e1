"""Worlds with segments for `pasto bench segments`: their rounds of traffic, and the judge of answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pasto.arrays import FloatArray
from pasto.objective import Objective, maximize
from pasto.observation import Observation
from pasto.optimize.exact.segmented import solve_segments
from pasto.optimize.solve_segments import solve_common_blend

OBJECTIVE = maximize("x").keep("y", at_least=0).keep("z", at_least=0)
UNIT_DEVIATION = 10.0
"""Of each metric of a unit, in deviations of the candidates' common effects."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentWorld:
    """World with known means; units arrive in segments by chance."""

    objective: Objective
    shares: FloatArray
    """(segments,)."""
    means: FloatArray
    """(segments, metrics, candidates)."""
    units: int
    """A round."""

    @classmethod
    def draw(
        cls,
        rng: np.random.Generator,
        heterogeneity: float,
        *,
        segments: int = 8,
        candidates: int = 30,
        units: int = 24_000,
        objective: Objective = OBJECTIVE,
        levels: float = 0.0,
    ) -> SegmentWorld:
        """Draw a world as `make_world`; `levels` is the deviation of the segments' levels.

        >>> world = SegmentWorld.draw(np.random.default_rng(0), 0.0)
        >>> world.means.shape, bool((world.means[0] == world.means[7]).all())
        ((8, 3, 30), True)
        """
        metrics = len(objective.metrics)
        common = rng.standard_normal((metrics, candidates))
        own = heterogeneity * rng.standard_normal((segments, metrics, candidates))
        shares = rng.dirichlet(np.full(segments, 5.0))
        level = levels * rng.standard_normal((segments, metrics, 1))
        level -= np.einsum("s,smk->mk", shares, level)
        return cls(objective, shares, common + own + level, units)

    @property
    def names(self) -> list[str]:
        """Names of the segments."""
        return [f"s{segment}" for segment in range(len(self.shares))]

    def draw_round(self, version: int, policies: FloatArray, rng: np.random.Generator) -> list[Observation]:
        """Return the observations of a round with a policy for each segment, (segments, candidates)."""
        metrics = self.means.shape[1]
        observations = []
        counts = rng.multinomial(self.units, self.shares)
        for segment, (name, count) in enumerate(zip(self.names, counts, strict=True)):
            for candidate, units in enumerate(rng.multinomial(count, policies[segment])):
                if units:
                    error = UNIT_DEVIATION / np.sqrt(units)
                    mean = rng.normal(self.means[segment, :, candidate], error)
                    covariance = tuple(map(tuple, (error**2 * np.eye(metrics)).tolist()))
                    observations.append(
                        Observation(version, candidate, float(units), tuple(mean.tolist()), covariance, segment=name)
                    )
        return observations


def pool_segments(observations: Sequence[Observation]) -> list[Observation]:
    """Return the observations of all traffic, for a study without segments.

    >>> rows = [Observation(0, 0, 10 * k, (float(k),), ((1.0,),), segment=str(k)) for k in (1, 3)]
    >>> pool_segments(rows)
    [Observation(version=0, candidate=0, units=40.0, mean=(2.5,), covariance=((0.625,),), ...segment=None)]
    """
    pooled = []
    for candidate in sorted({row.candidate for row in observations}):
        rows = [row for row in observations if row.candidate == candidate]
        weights = np.array([row.units for row in rows]) / sum(row.units for row in rows)
        mean = weights @ np.array([row.mean for row in rows])
        covariance = np.einsum("s,sij->ij", weights**2, np.array([row.covariance for row in rows]))
        pooled.append(
            Observation(
                rows[0].version,
                candidate,
                float(sum(row.units for row in rows)),
                tuple(mean.tolist()),
                tuple(map(tuple, covariance.tolist())),
            )
        )
    return pooled


class SegmentJudge:
    """True value of distributions of segments; a missed guardrail is charged at twice its true price."""

    def __init__(self, world: SegmentWorld) -> None:
        self.world = world
        self.form = world.objective.segmented_form(dict(zip(world.names, world.shares.tolist(), strict=True)))
        solution = solve_segments(self.form, world.means)
        self.feasible = solution.feasible
        self.prices = 2.0 * solution.duals * self.form.common.hard
        self.best = self.value(solution.probabilities)
        common = solve_common_blend(self.form, world.means)
        self.best_common = self.value(np.tile(common, (len(world.shares), 1)))
        self.reference = float(self.form.common.goal.value(self.form.mix(world.means.mean(axis=2))))
        """The goal of an even policy."""

    def value(self, policies: FloatArray) -> float:
        """Return f less the charges, for a distribution of each segment (segments, candidates)."""
        vector = self._blend(policies)
        missed = np.maximum(0.0, -self.form.common.slack(vector))
        return float(self.form.common.smooth(vector)) - float(self.prices @ missed)

    def slack(self, policies: FloatArray) -> FloatArray:
        """Return the true slack of each guardrail on all traffic."""
        return self.form.common.slack(self._blend(policies))

    def own_slacks(self, policies: FloatArray) -> list[FloatArray]:
        """Return the true slack of each guardrail of each segment."""
        vectors = np.einsum("smk,sk->sm", self.world.means, policies)
        return [own.slack(vector) for own, vector in zip(self.form.own, vectors, strict=True)]

    def _blend(self, policies: FloatArray) -> FloatArray:
        return self.form.mix(np.einsum("smk,sk->sm", self.world.means, policies))
