"""Candidate models: from the rounds measured to a posterior over every candidate's means.

`LevelModel` learns the metrics as they are, `ContrastModel` each round's contrasts with its own control. In both,
candidates are independent, or kernels over the parameters correlate neighbours.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import MeasurementError
from pasto.estimate.control_contrast import ContrastPrior, ControlContrasts
from pasto.estimate.gaussian_process import Kernel, parameter_errors
from pasto.estimate.posterior import (
    FREE_MEAN_VARIANCE,
    MAX_SHARED_CANDIDATES,
    IndependentPosterior,
    JointPosterior,
    Posterior,
    Prior,
    learn_prior,
    uncorrelated_components,
)
from pasto.estimate.sufficient_statistics import (
    Overdispersion,
    RoundMeans,
    SufficientStatistics,
    reference_variances,
    regularize,
    relative_units,
)

Kernels = tuple[Kernel, ...] | None
MAX_PRECISION_RATIO = 1e8
"""Largest precision of a measurement, relative to that of a kernel's prior."""


class CandidateModel(Protocol):
    """Immutable model of all candidates: every method returns a new one."""

    @property
    def kernels(self) -> Kernels:
        """Kernels that neighbouring candidates share, one per component; None if candidates are independent."""
        ...

    def size(self, cells: RoundMeans) -> RoundMeans:
        """Return the cells with units: those given, or relative ones if only errors are known."""
        ...

    def add(self, cells: RoundMeans) -> Self:
        """Return the model with one more round."""
        ...

    def fade(self, factor: float) -> Self:
        """Return the model with every old round at a fraction of its weight."""
        ...

    def grow(self, count: int) -> Self:
        """Return the model with new, unmeasured candidates at the end."""
        ...

    def share(self, kernels: Kernels, mixing: FloatArray | None = None) -> Self:
        """Return the model with these kernels, one per component, or none; mixing as in `components`."""
        ...

    def points(self) -> tuple[FloatArray, FloatArray]:
        """Return each candidate's own estimate and its variance, (metrics, candidates); infinite if unmeasured."""
        ...

    def components(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return a mixing (metrics, components) and the points of the components, as in `points`.

        The metrics are mixing @ components, whose noise and whose differences between candidates are uncorrelated. So
        each can be learned by itself, without losing information that one metric carries about another.
        """
        ...

    def unit_covariance(self) -> FloatArray:
        """Return the covariance of one unit, pooled over candidates, (metrics, metrics)."""
        ...

    def overdispersion(self) -> Overdispersion:
        """Compare the scatter of repeats with the stated errors."""
        ...

    def posterior(self, features: FloatArray | None) -> Posterior:
        """Return the posterior over the true means."""
        ...

    def to_saved(self) -> dict[str, Any]:
        """Return a plain JSON value, bit for bit."""
        ...


def _add_units(cells: RoundMeans, reference: FloatArray | None) -> RoundMeans:
    """Return the cells with units, relative to cells of the reference variances if they came with errors only."""
    if cells.units is not None:
        return cells
    if cells.covariances is None:
        return replace(cells, units=np.ones(len(cells.candidates)))
    typical_variances = _typical_variances(cells, cells.covariances) if reference is None else reference
    count = _measurement_counts(cells)
    return replace(cells, units=count * relative_units(count[:, None, None] * cells.covariances, typical_variances))


def _typical_variances(cells: RoundMeans, covariances: FloatArray) -> FloatArray:
    """Return the typical variances of one measurement without units, (metrics,)."""
    return reference_variances(_measurement_counts(cells)[:, None, None] * covariances)


def _measurement_counts(cells: RoundMeans) -> FloatArray:
    """Return the number of measurements that each cell averages, (cells,)."""
    return np.ones(len(cells.candidates)) if cells.measurements is None else cells.measurements


@dataclass(frozen=True, slots=True, eq=False)
class LevelModel:
    """Model of the candidates' metrics as they are."""

    statistics: SufficientStatistics
    baseline: int | None = None
    prior: Prior | None = None
    kernels: Kernels = None
    mixing: FloatArray | None = None
    """(metrics, components): what the kernels are of; None is the metrics themselves."""
    reference: FloatArray | None = None
    """(metrics,): the variances of a cell of relative size 1, if cells came without units."""

    def size(self, cells: RoundMeans) -> RoundMeans:
        """Sort cells without units into size classes."""
        return _add_units(cells, self.reference)

    def add(self, cells: RoundMeans) -> LevelModel:
        """Add the round and learn the prior again."""
        reference = self.reference
        if cells.units is None and cells.covariances is not None and reference is None:
            reference = _typical_variances(cells, cells.covariances)
        units = self.size(cells).units
        assert units is not None  # noqa: S101 -- `size` has set them
        statistics = self.statistics.add(cells.candidates, cells.means, units, cells.covariances, cells.explained)
        return replace(self, statistics=statistics, prior=learn_prior(statistics, self.prior), reference=reference)

    def fade(self, factor: float) -> LevelModel:
        """Reduce the weight of old rounds."""
        return replace(self, statistics=self.statistics.fade(factor))

    def grow(self, count: int) -> LevelModel:
        """Add candidates that have the prior."""
        return replace(self, statistics=self.statistics.grow(count))

    def share(self, kernels: Kernels, mixing: FloatArray | None = None) -> LevelModel:
        """Set the kernels, or remove them."""
        return replace(self, kernels=kernels, mixing=mixing)

    def points(self) -> tuple[FloatArray, FloatArray]:
        """Return each candidate's own mean, counted from the statistics' origin, and its variance."""
        return self._points(np.eye(len(self.statistics.origin)))

    def components(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the components of the learned prior and the pooled noise."""
        prior = learn_prior(self.statistics) if self.prior is None else self.prior
        mixing = uncorrelated_components(regularize(self.statistics.pooled_covariance()), prior.covariance)[0]
        return (mixing, *self._points(mixing))

    def _points(self, mixing: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the estimates and variances of components."""
        statistics, inverse = self.statistics, np.linalg.inv(mixing)
        with np.errstate(divide="ignore", invalid="ignore"):
            own = np.einsum("ci,kij,cj->ck", inverse, statistics.unit_covariances(), inverse) / statistics.units
        return inverse @ statistics.estimates().T, own

    def unit_covariance(self) -> FloatArray:
        """Return the covariance pooled over candidates and rounds."""
        return self.statistics.pooled_covariance()

    def overdispersion(self) -> Overdispersion:
        """Compare the scatter of a candidate's rounds around its mean with the stated errors."""
        return Overdispersion.from_ratio(*self.statistics.scatter_ratio())

    def posterior(self, features: FloatArray | None) -> Posterior:
        """Return independent candidates with correlated metrics or, with kernels, one Gaussian per component."""
        posterior = self._posterior_of_estimates(features)
        shared = self.statistics.shared
        if shared is None or len(self.statistics.units) > MAX_SHARED_CANDIDATES:
            return posterior
        return posterior.with_common_error(shared.common_covariance(self.statistics.units))

    def _posterior_of_estimates(self, features: FloatArray | None) -> IndependentPosterior | JointPosterior:
        """Return the posterior without the error that all candidates have in common."""
        prior = learn_prior(self.statistics) if self.prior is None else self.prior
        if self.kernels is None or features is None:
            return IndependentPosterior.from_statistics(self.statistics, prior)
        mixing = np.eye(len(self.statistics.origin)) if self.mixing is None else self.mixing
        estimates, variances = self._points(mixing)
        precision = 1.0 / variances
        origin = np.where(np.isnan(self.statistics.origin), 0.0, self.statistics.origin)
        posterior = _with_kernels(self.kernels, features, variances, precision, precision * estimates)
        return posterior.transform(mixing, np.eye(len(features)), origin)

    def to_saved(self) -> dict[str, Any]:
        """Return a plain JSON value."""
        prior = self.prior
        return {
            "statistics": self.statistics.to_saved(),
            "baseline": self.baseline,
            "prior": None
            if prior is None
            else [
                part.tolist()
                for part in (
                    prior.mean,
                    prior.covariance,
                    prior.mean_covariance,
                    prior.scales,
                    prior.shares,
                    prior.covariance_errors,
                )
            ],
            "kernels": _kernels_to_saved(self.kernels),
            "mixing": None if self.mixing is None else self.mixing.tolist(),
            "reference": None if self.reference is None else self.reference.tolist(),
        }

    @classmethod
    def from_saved(cls, saved: dict[str, Any], metrics: int) -> LevelModel:
        """Return what `to_saved` wrote."""
        prior = None if saved["prior"] is None else Prior(*(np.array(part, dtype=float) for part in saved["prior"]))
        statistics = SufficientStatistics.from_saved(saved["statistics"], metrics)
        reference = None if saved["reference"] is None else np.array(saved["reference"], dtype=float)
        mixing = None if saved["mixing"] is None else np.array(saved["mixing"], dtype=float)
        return cls(statistics, saved["baseline"], prior, _kernels_from_saved(saved["kernels"]), mixing, reference)


@dataclass(frozen=True, slots=True, eq=False)
class ContrastModel:
    """Model of the candidates' contrasts with the concurrent control; the baseline's contrast is zero by definition."""

    contrasts: ControlContrasts
    baseline: int
    prior: ContrastPrior | None = None
    kernels: Kernels = None
    mixing: FloatArray | None = None
    """(metrics, components): what the kernels are of; None is the metrics themselves."""
    reference: FloatArray | None = None
    """(metrics,): the variances of a cell of relative size 1, if cells came without units."""

    def size(self, cells: RoundMeans) -> RoundMeans:
        """Sort cells without units into size classes."""
        return _add_units(cells, self.reference)

    def add(self, cells: RoundMeans) -> ContrastModel:
        """Add the round and learn the spread of the candidates again."""
        if cells.covariances is None:
            raise MeasurementError(
                "learning contrasts needs the standard errors or covariances of every measurement, with the control; "
                "without them the control's noise cannot be separated from that of the candidates"
            )
        reference = self.reference
        if cells.units is None and reference is None:
            reference = _typical_variances(cells, cells.covariances)
        effects = None if self.prior is None else self.prior.posterior(self.contrasts, self.baseline).mean
        contrasts = self.contrasts.add(self.size(cells), self.baseline, effects)
        prior = ContrastPrior.learn(contrasts, self.baseline, self.prior)
        return replace(self, contrasts=contrasts, prior=prior, reference=reference)

    def fade(self, factor: float) -> ContrastModel:
        """Reduce the weight of old rounds."""
        return replace(self, contrasts=self.contrasts.fade(factor))

    def grow(self, count: int) -> ContrastModel:
        """Add candidates that have the prior."""
        return replace(self, contrasts=self.contrasts.grow(count))

    def share(self, kernels: Kernels, mixing: FloatArray | None = None) -> ContrastModel:
        """Set the kernels, or remove them."""
        return replace(self, kernels=kernels, mixing=mixing)

    def points(self) -> tuple[FloatArray, FloatArray]:
        """Return each candidate's own contrast, in contrast units, and its variance."""
        return self._points(np.eye(len(self.contrasts.weighted)))

    def components(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the components of the learned prior and the pooled noise."""
        prior = self.prior or ContrastPrior.learn(self.contrasts, self.baseline, None)
        mixing = uncorrelated_components(self.contrasts.noise, prior.covariance)[0]
        return (mixing, *self._points(mixing))

    def _points(self, mixing: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the estimates and variances of components."""
        contrasts, inverse = self.contrasts, np.linalg.inv(mixing)
        weights = np.diag(contrasts.information)
        noise = np.diag(inverse @ contrasts.noise @ inverse.T)
        with np.errstate(divide="ignore", invalid="ignore"):
            estimates = np.where(weights > 0, inverse @ contrasts.weighted / weights, 0.0)
            return estimates, noise[:, None] / weights

    def unit_covariance(self) -> FloatArray:
        """Return the covariance pooled over candidates and rounds, in the metrics' own units."""
        contrasts = self.contrasts
        level = contrasts.scale_sums / max(float(contrasts.units.sum()), 1e-300)
        scale = np.where(contrasts.percent, level / 100.0, 1.0)
        return np.outer(scale, scale) * contrasts.noise

    def overdispersion(self) -> Overdispersion:
        """Compare the scatter of a round's cells around level and effects with the stated errors."""
        return Overdispersion.from_ratio(*self.contrasts.scatter_ratio())

    def posterior(self, features: FloatArray | None) -> JointPosterior:
        """Return the joint posterior of all candidates, because one control's noise is in all their contrasts."""
        contrasts = self.contrasts
        if self.kernels is None or features is None:
            prior = self.prior or ContrastPrior.learn(contrasts, self.baseline, None)
            posterior = prior.posterior(contrasts, self.baseline)
        else:
            mixing = np.eye(len(contrasts.weighted)) if self.mixing is None else self.mixing
            inverse = np.asarray(np.linalg.inv(mixing), dtype=float)
            noise = np.diag(inverse @ contrasts.noise @ inverse.T)
            precision = contrasts.information / noise[:, None, None]
            weighted = inverse @ contrasts.weighted / noise[:, None]
            variances = self._points(mixing)[1]
            posterior = _with_kernels(self.kernels, features, variances, precision, weighted, self.baseline)
            own = contrasts.component_variances(inverse) / np.square(noise)[:, None]
            posterior = posterior.with_noise(precision, contrasts.evidence_covariance(own))
            posterior = posterior.transform(mixing, np.eye(len(features)), np.zeros(len(mixing)))
        return contrasts.to_metrics(posterior)

    def to_saved(self) -> dict[str, Any]:
        """Return a plain JSON value."""
        return {
            "contrasts": self.contrasts.to_saved(),
            "baseline": self.baseline,
            "prior": None if self.prior is None else self.prior.covariance.tolist(),
            "kernels": _kernels_to_saved(self.kernels),
            "mixing": None if self.mixing is None else self.mixing.tolist(),
            "reference": None if self.reference is None else self.reference.tolist(),
        }

    @classmethod
    def from_saved(cls, saved: dict[str, Any]) -> ContrastModel:
        """Return what `to_saved` wrote."""
        prior = None if saved["prior"] is None else ContrastPrior(np.array(saved["prior"], dtype=float))
        reference = None if saved["reference"] is None else np.array(saved["reference"], dtype=float)
        return cls(
            ControlContrasts.from_saved(saved["contrasts"]),
            int(saved["baseline"]),
            prior,
            _kernels_from_saved(saved["kernels"]),
            None if saved["mixing"] is None else np.array(saved["mixing"], dtype=float),
            reference,
        )


def _with_kernels(
    kernels: tuple[Kernel, ...],
    features: FloatArray,
    variances: FloatArray,
    precision: FloatArray,
    weighted: FloatArray,
    baseline: int | None = None,
) -> JointPosterior:
    """Return the posterior under learned kernels, whose parameters are uncertain too.

    `variances` (metrics, candidates) is the noise of each candidate's own estimate. The change of the means with each
    error of the parameters is a part of the covariance that candidates share.
    """
    posterior = _with_known_kernels(kernels, features, precision, weighted, baseline)
    metrics, count = posterior.mean.shape
    if count > MAX_SHARED_CANDIDATES:
        return posterior
    errors = np.array(
        [parameter_errors(kernel, features, noise) for kernel, noise in zip(kernels, variances, strict=True)]
    )
    columns = []
    for step in errors.transpose(1, 0, 2):
        up, down = (
            _with_known_kernels(
                tuple(kernel.shift_logarithms(sign * shift) for kernel, shift in zip(kernels, step, strict=True)),
                features,
                precision,
                weighted,
                baseline,
            ).mean
            for sign in (1.0, -1.0)
        )
        columns.append(0.5 * (up - down))
    # The kernels of different metrics err independently: each has its own columns.
    shared = np.einsum("rmk,mn->kmnr", np.array(columns), np.eye(metrics)).reshape(count, metrics, -1)
    return replace(posterior, shared=shared)


def _with_known_kernels(
    kernels: tuple[Kernel, ...],
    features: FloatArray,
    precision: FloatArray,
    weighted: FloatArray,
    baseline: int | None = None,
) -> JointPosterior:
    """Return the posterior under given kernels with a free mean; the value of candidate `baseline` is exactly zero."""
    means = np.array([np.full(len(features), kernel.mean) for kernel in kernels])
    covariances = np.array([kernel.covariance(features) for kernel in kernels])
    covariances += (
        FREE_MEAN_VARIANCE / 100.0 * np.array([kernel.amplitude + kernel.nugget for kernel in kernels])[:, None, None]
    )
    if baseline is not None:
        # Condition the prior on the value zero of that candidate.
        baseline_variance = covariances[:, baseline, baseline][:, None]
        slopes = covariances[:, :, baseline] / baseline_variance
        means = means - slopes * means[:, [baseline]]
        covariances = covariances - slopes[:, :, None] * covariances[:, None, :, baseline]
        covariances[:, baseline, :] = covariances[:, :, baseline] = 0.0
        means[:, baseline] = 0.0
    if precision.ndim == 2:
        # Measurements ten thousand times better than the prior are as good as exact. A higher precision would cost
        # digits of the rest.
        max_precision = (
            MAX_PRECISION_RATIO / np.array([kernel.amplitude + kernel.nugget for kernel in kernels])[:, None]
        )
        weighted = weighted * max_precision / np.maximum(precision, max_precision)
        precision = np.minimum(precision, max_precision)
    return JointPosterior.from_evidence(means, covariances, precision, weighted)


def _kernels_to_saved(kernels: Kernels) -> list[dict[str, Any]] | None:
    return None if kernels is None else [asdict(kernel) for kernel in kernels]


def _kernels_from_saved(saved: list[dict[str, Any]] | None) -> Kernels:
    return None if saved is None else tuple(Kernel(**{**kernel, "scales": tuple(kernel["scales"])}) for kernel in saved)
