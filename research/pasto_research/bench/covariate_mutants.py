"""Mutants for `pasto bench covariates`: wrong centres of the covariates, so that the benchmark can be red."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from pasto.arrays import FloatArray
from pasto.estimate import CovariateAdjustment, RoundMeans
from pasto.optimize.learners import LearningProblem, Thompson
from pasto.optimize.learners.thompson import ThompsonState


@dataclass(frozen=True, slots=True, eq=False)
class CentredOnRound(CovariateAdjustment):
    """Adjustment that takes each round's mean of the covariates for exact, so it ignores the noise that cells share."""

    def adjust(self, cells: RoundMeans, metrics: int) -> tuple[RoundMeans, CovariateAdjustment]:
        """Return the adjusted cells without the record of the shared noise."""
        adjusted, learned = CovariateAdjustment.adjust(self, cells, metrics)
        return replace(adjusted, explained=None), CentredOnRound(learned.products, learned.degrees)


@dataclass(frozen=True, slots=True, eq=False)
class CentredOnAllRounds(CovariateAdjustment):
    """Adjustment that centres on the mean covariates of all rounds so far, which is wrong if their level moves."""

    sums: FloatArray = field(default_factory=lambda: np.zeros(1))
    """(covariates,): Σ units · covariates."""
    units: float = 0.0

    def adjust(self, cells: RoundMeans, metrics: int) -> tuple[RoundMeans, CovariateAdjustment]:
        """Return the cells, moved from the round's centre to that of all rounds."""
        assert cells.units is not None  # noqa: S101 -- the benchmark observes units
        adjusted, learned = CovariateAdjustment.adjust(self, cells, metrics)
        sums, units = self.sums + cells.units @ cells.means[:, metrics:], self.units + float(cells.units.sum())
        level = cells.units @ cells.means[:, metrics:] / cells.units.sum()
        shift = (level - sums / units) @ learned.regress(metrics, level)
        return replace(adjusted, means=adjusted.means - shift), CentredOnAllRounds(
            learned.products, learned.degrees, sums, units
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantThompson(Thompson):
    """The learner with another adjustment."""

    adjustment: type[CovariateAdjustment] = CentredOnRound

    def start(self, problem: LearningProblem) -> ThompsonState:
        """Start with the mutant adjustment; there is one covariate for each metric."""
        return replace(Thompson.start(self, problem), adjustment=self.adjustment.empty(2 * problem.shape[0]))
