"""Sufficient statistics of the candidates' means, added up over rounds: units, sums, covariances and overdispersion.

Evidence is weighted by units and never by a cell's own sample variance. In a skewed metric a low mean comes with a
small sample variance; weighted by it, the cell would count more because it is low, and the estimate would stay biased.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from pasto.arrays import FloatArray
from pasto.estimate.covariate_adjustment import SharedNoise

SIZE_CLASS_FACTOR = 100.0
"""Factor between the size classes of cells without units; smaller differences are taken for noise."""

VARIANCE_NOISE_MARGIN = 4.0
"""Multiple of the noise of candidates' variances that their spread must exceed before it counts as real."""

MAX_ERROR_FACTOR = 1.5
"""Factor of understated standard errors from which nothing is certified."""

FALSE_ALARM_RATE = 0.005
"""Chance per metric and look that correct errors raise the alarm, for any factor."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundMeans:
    """The cells that one round measured: means, with their units and covariances if known."""

    candidates: NDArray[np.intp]
    means: FloatArray
    """(cells, metrics)."""
    units: FloatArray | None = None
    """(cells,): None if the cells came with errors only, or with neither."""
    covariances: FloatArray | None = None
    """(cells, metrics, metrics): of the means."""
    measurements: FloatArray | None = None
    """(cells,): number of measurements without units that each cell averages; None is one each."""
    explained: FloatArray | None = None
    """(metrics, metrics): the part of one unit's covariance that adjustment by covariates has removed; None if none."""


@dataclass(frozen=True, slots=True, eq=False)
class ControlMeans:
    """Mean of one round's control, and the covariance of that mean."""

    mean: FloatArray
    """(metrics,)."""
    covariance: FloatArray
    """(metrics, metrics)."""
    units: float = 1.0

    def take(self, metrics: int) -> ControlMeans:
        """Return the first metrics only."""
        return ControlMeans(self.mean[:metrics], self.covariance[:metrics, :metrics], self.units)


@dataclass(frozen=True, slots=True, eq=False)
class SufficientStatistics:
    """Sums over the observations of every candidate.

    Means are counted from `origin`, the first observation. A metric of mean 1e6 and deviation 1 then loses no digits.
    Memory is linear in the candidates.
    """

    origin: FloatArray
    """(metrics,)."""
    units: FloatArray
    """(candidates,): Σ n."""
    sums: FloatArray
    """(candidates, metrics): Σ n (x − origin)."""
    squares: FloatArray
    """(metrics, metrics): Σ n (x − origin)(x − origin)ᵀ over all candidates."""
    repeats: FloatArray
    """(candidates,): number of observations."""
    squared_units: FloatArray
    """(candidates,): Σ w² / n, with w the weight of an observation: its units n, faded by age."""
    known_units: FloatArray
    """(candidates,): Σ n over observations with a covariance S of their mean."""
    known_repeats: FloatArray
    """(candidates,): number of those."""
    covariance_sums: FloatArray
    """(candidates, metrics, metrics): Σ n · nS over those; nS estimates the covariance of one unit."""
    variance_squares: FloatArray
    """(candidates, metrics): Σ n · (nS)² over those, diagonal entries only."""
    expected_scatter: FloatArray
    """(metrics,): Σ nS over those, diagonal entries only."""
    shared: SharedNoise | None = None
    """Noise that the cells of a round share; None if no round was adjusted by covariates."""

    @classmethod
    def empty(cls, metrics: int, candidates: int) -> SufficientStatistics:
        """Return the statistics before the first round."""
        return cls(
            origin=np.full(metrics, np.nan),
            units=np.zeros(candidates),
            sums=np.zeros((candidates, metrics)),
            squares=np.zeros((metrics, metrics)),
            repeats=np.zeros(candidates),
            squared_units=np.zeros(candidates),
            known_units=np.zeros(candidates),
            known_repeats=np.zeros(candidates),
            covariance_sums=np.zeros((candidates, metrics, metrics)),
            variance_squares=np.zeros((candidates, metrics)),
            expected_scatter=np.zeros(metrics),
        )

    def add(
        self,
        candidates: NDArray[np.intp],
        means: FloatArray,
        units: FloatArray,
        covariances: FloatArray | None,
        explained: FloatArray | None = None,
    ) -> SufficientStatistics:
        """Return the statistics with one more round of cells, (cells, metrics) each; `explained` as in `RoundMeans`."""
        origin = means[0] if np.isnan(self.origin).any() else self.origin
        centred = means - origin
        totals = {name: getattr(self, name).copy() for name in _SUMS}
        np.add.at(totals["units"], candidates, units)
        np.add.at(totals["sums"], candidates, units[:, None] * centred)
        np.add.at(totals["repeats"], candidates, 1.0)
        np.add.at(totals["squared_units"], candidates, units)
        totals["squares"] += np.einsum("q,qi,qj->ij", units, centred, centred)
        if covariances is not None:
            per_unit = units[:, None, None] * covariances
            variances = np.einsum("qii->qi", per_unit)
            np.add.at(totals["known_units"], candidates, units)
            np.add.at(totals["known_repeats"], candidates, 1.0)
            np.add.at(totals["covariance_sums"], candidates, units[:, None, None] * per_unit)
            np.add.at(totals["variance_squares"], candidates, units[:, None] * np.square(variances))
            totals["expected_scatter"] += variances.sum(axis=0)
        shared = self.shared
        if explained is not None:
            shared = (shared or SharedNoise.empty(len(origin), len(self.units))).add(candidates, units, explained)
        return SufficientStatistics(origin=origin, **totals, shared=shared)

    def fade(self, factor: float) -> SufficientStatistics:
        """Return the same statistics at a fraction of their weight."""
        faded = {name: factor * getattr(self, name) for name in _SUMS}
        faded["squared_units"] = factor**2 * self.squared_units
        shared = None if self.shared is None else self.shared.fade(factor)
        return SufficientStatistics(origin=self.origin, **faded, shared=shared)

    def grow(self, count: int) -> SufficientStatistics:
        """Return the statistics with `count` new, unmeasured candidates at the end."""
        pooled = {"squares": self.squares, "expected_scatter": self.expected_scatter}
        longer = {
            name: np.concatenate([getattr(self, name), np.zeros((count, *getattr(self, name).shape[1:]))])
            for name in _SUMS
            if name not in pooled
        }
        shared = None if self.shared is None else self.shared.grow(count)
        return SufficientStatistics(origin=self.origin, **longer, **pooled, shared=shared)

    @property
    def measured(self) -> NDArray[np.bool_]:
        """(candidates,): True if the candidate has been measured."""
        return np.asarray(self.units > 0, dtype=np.bool_)

    def estimates(self) -> FloatArray:
        """Return each candidate's mean over its units, counted from the origin, (candidates, metrics); 0 if none."""
        return np.asarray(self.sums / np.where(self.measured, self.units, 1.0)[:, None])

    def pooled_covariance(self) -> FloatArray:
        """Return the covariance of one unit over all candidates, (metrics, metrics).

        It comes from the covariances that came with the observations. Metrics whose errors are all zero, and
        observations without errors, use the scatter of repeats instead.
        """
        stated_units = float(self.known_units.sum())
        scatter = self.repeat_covariance()
        if not stated_units:
            return scatter
        stated = self.covariance_sums.sum(axis=0) / stated_units
        without_errors = np.diag(stated) <= 0.0
        if without_errors.any():
            stated = np.where(np.logical_or.outer(without_errors, without_errors), np.diag(np.diag(scatter)), stated)
        return np.asarray(stated)

    def unit_covariances(self) -> FloatArray:
        """Return the covariance of one unit of each candidate, (candidates, metrics, metrics).

        Variances are each candidate's own, shrunk toward the pooled one; correlations are the pooled ones. The noise
        that cells share is added, except for the error that all candidates have in common.
        """
        pooled = self.pooled_covariance()
        variances = np.diag(pooled)
        sums = np.einsum("kii->ki", self.covariance_sums)
        shrunk = shrink_variances(variances, self.known_units, self.known_repeats, sums, self.variance_squares)
        scales = np.sqrt(shrunk / np.where(variances > 0, variances, 1.0))
        covariances = scales[:, :, None] * scales[:, None, :] * pooled
        stated_units = self.known_units[:, None, None]
        other_units = (self.units - self.known_units)[:, None, None]
        total = np.maximum(stated_units + other_units, 1e-300)
        if other_units.any():
            covariances = np.where(
                total > 1e-300, (stated_units * covariances + other_units * self.repeat_covariance()) / total, pooled
            )
        if self.shared is not None:
            covariances = covariances + self.shared.unit_covariances(self.units)
        return regularize(covariances)

    def repeat_covariance(self) -> FloatArray:
        """Return the covariance of one unit from the scatter of candidates' repeats, (metrics, metrics).

        Without repeats nothing separates noise from differences between candidates. Half of the scatter is then counted
        as noise, like one more repeat. Correlations are shrunk toward zero with the weight of metrics + 1 repeats.
        """
        width = len(self.origin)
        measured = self.measured
        if not measured.any():
            return np.eye(width)
        within = self._scatter()
        degrees = max(0.0, float((self.repeats[measured] - 1.0).sum()))
        overall_mean = self.sums[measured].sum(axis=0) / self.units.sum()
        spread = self.squares / self.units.sum() - np.outer(overall_mean, overall_mean)
        units_per_repeat = float(self.units[measured].sum() / self.repeats[measured].sum())
        metric_variance = np.maximum(np.diag(spread), 1e-12 * overall_mean**2)
        constant_variance = np.where(self.origin != 0.0, 1e-6 * self.origin, 1.0) ** 2
        noise_scatter = 0.5 * units_per_repeat * np.where(metric_variance > 0.0, metric_variance, constant_variance)
        prior_covariance = np.diag((np.maximum(np.diag(within), 0.0) + noise_scatter) / (degrees + 1.0))
        prior_repeats = width + 1.0
        return regularize((within + prior_repeats * prior_covariance) / (degrees + prior_repeats))

    def _scatter(self) -> FloatArray:
        """Return Σ n (x − x̄_k)(x − x̄_k)ᵀ, the scatter of repeats around their candidate's mean."""
        estimates = self.estimates()[self.measured]
        return np.asarray(self.squares - np.einsum("k,ki,kj->ij", self.units[self.measured], estimates, estimates))

    def scatter_ratio(self) -> tuple[FloatArray, float]:
        """Return the scatter of repeats over its expectation from the stated errors, (metrics,), and its degrees.

        The ratio is about 1 if the errors are right, and NaN if an observation had no errors or none was repeated.
        """
        divisor = np.where(self.measured, self.units, 1.0)
        fitted = self.squared_units / divisor  # degrees of freedom that the estimate uses: 1 if nothing fades
        degrees = float(np.maximum(self.repeats - fitted, 0.0).sum())
        if degrees < 1.0 or (self.known_units < self.units).any():
            return np.full(len(self.origin), np.nan), degrees
        variances = np.einsum("kii->ki", self.covariance_sums) / divisor[:, None]
        fitted_scatter = fitted @ variances
        expected = self.expected_scatter - fitted_scatter
        if self.shared is not None:
            expected = expected + self.shared.expected_scatter(self.units)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(expected > 0.0, np.diag(self._scatter()) / expected, np.nan), degrees

    def likelihood(self) -> tuple[FloatArray, FloatArray]:
        """Return each candidate's precision matrix and precision times its estimate, (candidates, metrics, …)."""
        precision = self.units[:, None, None] * np.linalg.inv(self.unit_covariances())
        return precision, np.einsum("kij,kj->ki", precision, self.estimates())

    def to_saved(self) -> dict[str, Any]:
        """Return a plain JSON value, bit for bit."""
        origin = None if np.isnan(self.origin).any() else self.origin.tolist()
        saved = {"origin": origin, **{name: getattr(self, name).tolist() for name in _SUMS}}
        return saved if self.shared is None else {**saved, "shared": self.shared.to_saved()}

    @classmethod
    def from_saved(cls, saved: dict[str, Any], metrics: int) -> SufficientStatistics:
        """Return what `to_saved` wrote."""
        origin = np.full(metrics, np.nan) if saved["origin"] is None else np.array(saved["origin"], dtype=float)
        shared = SharedNoise.from_saved(saved["shared"]) if "shared" in saved else None
        return cls(origin=origin, **{name: np.array(saved[name], dtype=float) for name in _SUMS}, shared=shared)


_SUMS = (
    "units",
    "sums",
    "squares",
    "repeats",
    "squared_units",
    "known_units",
    "known_repeats",
    "covariance_sums",
    "variance_squares",
    "expected_scatter",
)


def shrink_variances(
    pooled: FloatArray, units: FloatArray, repeats: FloatArray, sums: FloatArray, squares: FloatArray
) -> FloatArray:
    """Return the variance of one unit of each candidate, (candidates, metrics), shrunk toward the pooled ones.

    `pooled` is (metrics,). `sums` and `squares` are Σ n v and Σ n v² over a candidate's cells, v being a cell's sample
    variance. The shrinkage grows with the scatter of v from round to round, relative to the differences between
    candidates (empirical Bayes). A cell in which an event never happened has a sample variance of 0. It is not taken
    as exact: the pooled variance counts like one more cell.
    """
    measured = units > 0
    degrees = float(np.maximum(repeats - 1.0, 0.0).sum())
    count = int(measured.sum())
    divisor = np.where(measured, units, 1.0)[:, None]
    own = sums / divisor
    weights = np.zeros(sums.shape)
    if count >= 2 and degrees >= 1.0:
        within = np.maximum(squares - units[:, None] * np.square(own), 0.0)
        # Variance of a unit's variance. Heavy tails make its estimate too small more often than not, hence the margin.
        noise = VARIANCE_NOISE_MARGIN * within.sum(axis=0) / degrees
        overall_mean = (units @ own) / units.sum()
        scatter = (units[:, None] * np.square(own - overall_mean))[measured].sum(axis=0)
        spread = np.maximum(scatter - (count - 1) * noise, 0.0) / (units.sum() - np.square(units).sum() / units.sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = spread / (spread + noise / divisor)
        weights = np.where(measured[:, None] & np.isfinite(weights) & own.any(axis=0), weights, 0.0)
    return np.asarray(np.maximum(weights * own + (1.0 - weights) * pooled, pooled / (1.0 + repeats[:, None])))


def relative_units(covariances: FloatArray, reference: FloatArray) -> FloatArray:
    """Return the units of cells that came with errors only, relative to a cell with the reference variances.

    A cell's own variance must not decide its weight, but a cell of 100 units should not count like one of 10,000. So
    cells are sorted into size classes a factor of 100 apart, by the geometric mean of their variances over metrics.

    >>> import numpy as np
    >>> variances = np.array([1.0, 1.7, 0.6, 90.0, 0.0])
    >>> relative_units(variances[:, None, None], np.ones(1)).tolist()
    [1.0, 1.0, 1.0, 0.01, 1.0]
    """
    variances = np.einsum("qii->qi", covariances)
    usable = (variances > 0.0) & (reference > 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(usable, np.log(variances / reference), 0.0)
    average = logs.sum(axis=1) / np.maximum(usable.sum(axis=1), 1)
    return np.asarray(SIZE_CLASS_FACTOR ** np.round(-average / np.log(SIZE_CLASS_FACTOR)))


def reference_variances(covariances: FloatArray) -> FloatArray:
    """Return the median positive variance of each metric, (metrics,); 0 if a metric has none."""
    variances = np.einsum("qii->qi", covariances)
    return np.array([float(np.median(column[column > 0])) if (column > 0).any() else 0.0 for column in variances.T])


def regularize(covariances: FloatArray) -> FloatArray:
    """Return covariances made safely invertible: the diagonal grows by a millionth of the metric's own variance.

    A metric that did not vary has no variance of its own and takes a part of the largest.

    >>> import numpy as np
    >>> regularize(np.array([[1.0, 1.0], [1.0, 1.0]])).round(9).tolist()
    [[1.000001, 1.0], [1.0, 1.000001]]
    """
    diagonal = np.einsum("...ii->...i", covariances)
    largest = diagonal.max(axis=-1, keepdims=True)
    ridge = np.where(diagonal > 0.0, 1e-6 * diagonal, 1e-12 * np.where(largest > 0.0, largest, 1.0))
    return np.asarray(covariances + ridge[..., None] * np.eye(covariances.shape[-1]))


@dataclass(frozen=True, slots=True, eq=False)
class Overdispersion:
    """Factors by which the errors of each metric are too small, estimated from the scatter of repeats between rounds.

    It finds errors that were computed too small, rows that are not independent (several rows of one user), and rounds
    in which all candidates shift together.
    """

    factors: FloatArray
    """(metrics,): √(observed scatter / expected scatter); NaN if it cannot be estimated."""
    degrees: float
    """Degrees of freedom of the factors."""

    @classmethod
    def from_ratio(cls, ratio: FloatArray, degrees: float) -> Overdispersion:
        """Return the factors from ratios of variances.

        >>> import numpy as np
        >>> Overdispersion.from_ratio(np.array([1.1, 4.0]), 100.0).raised.tolist()
        [False, True]
        """
        return cls(np.sqrt(np.maximum(ratio, 0.0)), degrees)

    @property
    def raised(self) -> NDArray[np.bool_]:
        """(metrics,): True if a metric's errors are too small by MAX_ERROR_FACTOR or more, beyond chance."""
        ratio = np.nan_to_num(np.square(self.factors))
        chance = chdtrc(max(self.degrees, 1e-9), ratio * self.degrees)
        return np.asarray((ratio >= MAX_ERROR_FACTOR**2) & (chance < FALSE_ALARM_RATE))
