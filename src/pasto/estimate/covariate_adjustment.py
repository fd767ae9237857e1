"""Covariate adjustment: cell means without the noise that the units' earlier behaviour explains (CUPED).

In a round with the mean covariates x̄_t over all its units, the mean metrics ȳ_k of a cell become

    ȳ_k − θᵀ(x̄_k − x̄_t)

with the regression θ of metrics on covariates within cells. Each round is centred on its own units, so the covariates
may have another level in every round. The price is the noise of x̄_t, which all cells of the round share: with the
covariance C = θᵀ cov(x) θ of the explained part of one unit, it is C / N_t for N_t units. A contrast does not contain
it. For the metrics as they are, `SharedNoise` keeps account of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import MeasurementError

if TYPE_CHECKING:
    from pasto.estimate.sufficient_statistics import RoundMeans

MAX_PAST_DEGREES = 10_000.0
"""Degrees of freedom that all earlier rounds count for, at most, in the regression of a round."""
MIN_DEGREES_PER_COVARIATE = 10.0
"""Degrees of freedom for each covariate from which cells are adjusted."""
MIN_RELATIVE_DEVIATION = 1e-6
"""Deviation of a covariate, relative to its level, below which it is constant except for rounding errors."""
MAX_CORRELATED_CANDIDATES = 500
"""Candidates up to which their common error is kept apart; with more, it is a part of each candidate's own error."""


@dataclass(frozen=True, slots=True, eq=False)
class CovariateAdjustment:
    """Sums over rounds that determine the regression θ of metrics on covariates."""

    products: FloatArray
    """(columns, columns): sums of products around the cells' means, metrics first, then covariates."""
    degrees: float
    """Degrees of freedom of those sums."""

    @classmethod
    def empty(cls, columns: int) -> CovariateAdjustment:
        """Return the sums before the first round."""
        return cls(np.zeros((columns, columns)), 0.0)

    def adjust(self, cells: RoundMeans, metrics: int) -> tuple[RoundMeans, CovariateAdjustment]:
        """Return a round's adjusted cells, and the sums with this round.

        Means and covariances of the given cells have the columns of the metrics, then those of the covariates. Cells
        without covariances are compared with others of their candidate. Without enough units, the metrics stay.
        """
        width, past_width = cells.means.shape[1] - metrics, len(self.products) - metrics
        if width != past_width:
            raise MeasurementError(
                f"the round has {width} covariates, and the rounds before had {past_width}; give the same ones in each"
            )
        units = np.ones(len(cells.candidates)) if cells.units is None else cells.units
        round_products, round_degrees = _products_within_cells(cells, units)
        fading = min(1.0, MAX_PAST_DEGREES / max(self.degrees, 1.0))
        learned = CovariateAdjustment(round_products + fading * self.products, round_degrees + fading * self.degrees)
        if learned.degrees < MIN_DEGREES_PER_COVARIATE * width:
            covariances = None if cells.covariances is None else cells.covariances[:, :metrics, :metrics]
            return replace(cells, means=cells.means[:, :metrics], covariances=covariances), learned
        covariates = cells.means[:, metrics:]
        level = units @ covariates / units.sum()
        slopes = learned.regress(metrics, level)
        covariances = None
        if cells.covariances is not None:
            # In the sample that it was fitted to, a regression leaves less noise than elsewhere.
            inflation = (learned.degrees + width) / (learned.degrees - width)
            reduction = np.hstack([np.eye(metrics), -slopes.T])
            covariances = inflation * (reduction @ cells.covariances @ reduction.T)
            covariances = 0.5 * (covariances + covariances.transpose(0, 2, 1))
        spread = round_products / round_degrees if round_degrees else learned.products / learned.degrees
        return (
            replace(
                cells,
                means=cells.means[:, :metrics] - (covariates - level) @ slopes,
                covariances=covariances,
                explained=slopes.T @ spread[metrics:, metrics:] @ slopes,
            ),
            learned,
        )

    def regress(self, metrics: int, level: FloatArray) -> FloatArray:
        """Return the regression θ, (covariates, metrics); `level` is the mean of each covariate."""
        products = self.products[metrics:, metrics:]
        own = np.diag(products)
        ridge = 1e-6 * own + self.degrees * np.square(MIN_RELATIVE_DEVIATION * level)
        ridge = np.where(own + ridge > 0.0, ridge, 1.0)  # a covariate that is zero for all units
        return np.asarray(np.linalg.solve(products + np.diag(ridge), self.products[metrics:, :metrics]))

    def to_saved(self) -> dict[str, Any]:
        """Return a plain JSON value, bit for bit."""
        return {"products": self.products.tolist(), "degrees": self.degrees}

    @classmethod
    def from_saved(cls, saved: dict[str, Any]) -> CovariateAdjustment:
        """Return what `to_saved` wrote."""
        return cls(np.array(saved["products"], dtype=float), float(saved["degrees"]))


def _products_within_cells(cells: RoundMeans, units: FloatArray) -> tuple[FloatArray, float]:
    """Return sums of products of all columns around their means in a cell, with the degrees of freedom.

    With covariances they are those of units around their cell's mean, otherwise those of cells around the mean of their
    candidate.
    """
    if cells.covariances is not None:
        degrees = np.maximum(units - 1.0, 0.0)
        return np.einsum("q,qij->ij", degrees * units, cells.covariances), float(degrees.sum())
    _, places = np.unique(cells.candidates, return_inverse=True)
    totals = np.bincount(places, weights=units)
    sums = np.zeros((len(totals), cells.means.shape[1]))
    np.add.at(sums, places, units[:, None] * cells.means)
    deviations = cells.means - (sums / totals[:, None])[places]
    return np.einsum("q,qi,qj->ij", units, deviations, deviations), float(len(places) - len(totals))


@dataclass(frozen=True, slots=True, eq=False)
class SharedNoise:
    """Sums over rounds that determine the noise of adjusted estimates that candidates share.

    In round t, the mean of the covariates has an error u_t of covariance C_t / N_t, which is in every cell. The
    estimate of a candidate with n_kt of its n_k units in round t contains Σ_t (n_kt / n_k) u_t. That is the error of
    the mean of all N units, Σ_t (N_t / N) u_t, which is common to all candidates, and a part of the candidate's own.
    """

    own: FloatArray
    """(candidates, metrics, metrics): Σ n_k² C / N over rounds."""
    total: FloatArray
    """(metrics, metrics): Σ N C."""
    rounds: FloatArray
    """(metrics,): Σ C, diagonal entries only."""

    @classmethod
    def empty(cls, metrics: int, candidates: int) -> SharedNoise:
        """Return the sums before the first adjusted round."""
        return cls(np.zeros((candidates, metrics, metrics)), np.zeros((metrics, metrics)), np.zeros(metrics))

    def add(self, candidates: NDArray[np.intp], units: FloatArray, explained: FloatArray) -> SharedNoise:
        """Return the sums with one more round of cells; `explained` is C."""
        total = float(units.sum())
        by_candidate = np.bincount(candidates, weights=units, minlength=len(self.own))
        return SharedNoise(
            self.own + (np.square(by_candidate) / total)[:, None, None] * explained,
            self.total + total * explained,
            self.rounds + np.diag(explained),
        )

    def fade(self, factor: float) -> SharedNoise:
        """Return the same sums at a fraction of their weight."""
        return SharedNoise(factor * self.own, factor * self.total, factor * self.rounds)

    def grow(self, count: int) -> SharedNoise:
        """Return the sums with `count` new, unmeasured candidates at the end."""
        return replace(self, own=np.concatenate([self.own, np.zeros((count, *self.total.shape))]))

    def common_covariance(self, units: FloatArray) -> FloatArray | None:
        """Return the covariance of the error that all candidates have in common, (metrics, metrics).

        None if they are too many to keep it apart.
        """
        if len(self.own) > MAX_CORRELATED_CANDIDATES:
            return None
        return np.asarray(self.total / max(float(units.sum()), 1e-300) ** 2)

    def unit_covariances(self, units: FloatArray) -> FloatArray:
        """Return the rest of the shared noise as that of one unit of each candidate, (candidates, metrics, metrics)."""
        measured, common = units > 0, self.common_covariance(units)
        divisor = np.where(measured, units, 1.0)[:, None, None]
        excess = self.own / divisor - (0.0 if common is None else divisor * common)
        excess = np.where(measured[:, None, None], excess, 0.0)
        values, vectors = np.linalg.eigh(excess)
        return np.asarray((vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.transpose(0, 2, 1))

    def expected_scatter(self, units: FloatArray) -> FloatArray:
        """Return the expectation of Σ n (u − ū_k)² over all cells, (metrics,), ū_k being the mean of a candidate's."""
        fitted = np.einsum("kii->ki", self.own) / np.where(units > 0, units, 1.0)[:, None]
        return np.asarray(self.rounds - fitted.sum(axis=0))

    def to_saved(self) -> dict[str, Any]:
        """Return a plain JSON value, bit for bit."""
        return {"own": self.own.tolist(), "total": self.total.tolist(), "rounds": self.rounds.tolist()}

    @classmethod
    def from_saved(cls, saved: dict[str, Any]) -> SharedNoise:
        """Return what `to_saved` wrote."""
        return cls(*(np.array(saved[name], dtype=float) for name in ("own", "total", "rounds")))
