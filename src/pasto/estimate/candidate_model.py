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
from pasto.estimate.gaussian_process import Kernel
from pasto.estimate.history import CandidateHistory, HistoryPrior, HistoryTrend, learn_from_levels, posterior_of_levels
from pasto.estimate.history_contrast import learn_from_contrasts, posterior_of_contrasts
from pasto.estimate.kernel_posterior import kernel_posterior
from pasto.estimate.posterior import (
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


class CandidateModel(Protocol):
    """Immutable model of all candidates: every method returns a new one."""

    @property
    def history(self) -> HistoryPrior | None:
        """Earlier results of the candidates, and what was learned about them; None without any."""
        ...

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

    def grow(self, count: int, history: CandidateHistory | None = None) -> Self:
        """Return the model with new, unmeasured candidates at the end; `history` is that of all candidates."""
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
    history: HistoryPrior | None = None
    """Earlier results of the candidates; None without any."""

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
        if self.history is not None:
            history = learn_from_levels(self.history, statistics)
            return replace(self, statistics=statistics, history=history, reference=reference)
        return replace(self, statistics=statistics, prior=learn_prior(statistics, self.prior), reference=reference)

    def fade(self, factor: float) -> LevelModel:
        """Reduce the weight of old rounds."""
        return replace(self, statistics=self.statistics.fade(factor))

    def grow(self, count: int, history: CandidateHistory | None = None) -> LevelModel:
        """Add candidates that have the prior."""
        return replace(self, statistics=self.statistics.grow(count), history=_extend(self.history, history))

    def share(self, kernels: Kernels, mixing: FloatArray | None = None) -> LevelModel:
        """Set the kernels, or remove them."""
        return replace(self, kernels=kernels, mixing=mixing)

    def points(self) -> tuple[FloatArray, FloatArray]:
        """Return each candidate's own mean, counted from the statistics' origin, and its variance."""
        return self._points(np.eye(len(self.statistics.origin)))

    def components(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the components of the learned prior and the pooled noise."""
        noise = regularize(self.statistics.pooled_covariance())
        if self.history is not None:
            mixing = uncorrelated_components(noise, self.history.covariance)[0]
            return _residuals(self.history, mixing, *self._points(mixing))
        prior = learn_prior(self.statistics) if self.prior is None else self.prior
        mixing = uncorrelated_components(noise, prior.covariance)[0]
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
        common = None if shared is None else shared.common_covariance(self.statistics.units)
        return posterior if common is None else posterior.with_common_error(common)

    def _posterior_of_estimates(self, features: FloatArray | None) -> IndependentPosterior | JointPosterior:
        """Return the posterior without the error that all candidates have in common."""
        if self.kernels is None or features is None:
            if self.history is not None:
                return posterior_of_levels(self.history, self.statistics)
            prior = learn_prior(self.statistics) if self.prior is None else self.prior
            return IndependentPosterior.from_statistics(self.statistics, prior)
        mixing = np.eye(len(self.statistics.origin)) if self.mixing is None else self.mixing
        estimates, variances = self._points(mixing)
        precision = 1.0 / variances
        origin = np.where(np.isnan(self.statistics.origin), 0.0, self.statistics.origin)
        trend = None if self.history is None else HistoryTrend.of_mixing(self.history, mixing)
        posterior = kernel_posterior(self.kernels, features, variances, precision, precision * estimates, trend=trend)
        return posterior.mix(mixing, origin)

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
            "kernels": kernels_to_saved(self.kernels),
            "mixing": None if self.mixing is None else self.mixing.tolist(),
            "reference": None if self.reference is None else self.reference.tolist(),
            **({} if self.history is None else {"history": self.history.to_saved()}),
        }

    @classmethod
    def from_saved(cls, saved: dict[str, Any], metrics: int, history: CandidateHistory | None = None) -> LevelModel:
        """Return what `to_saved` wrote; the history itself belongs to the study."""
        prior = None if saved["prior"] is None else Prior(*(np.array(part, dtype=float) for part in saved["prior"]))
        statistics = SufficientStatistics.from_saved(saved["statistics"], metrics)
        reference = None if saved["reference"] is None else np.array(saved["reference"], dtype=float)
        mixing = None if saved["mixing"] is None else np.array(saved["mixing"], dtype=float)
        return cls(
            statistics,
            saved["baseline"],
            prior,
            kernels_from_saved(saved["kernels"]),
            mixing,
            reference,
            None if history is None else HistoryPrior.from_saved(saved["history"], history),
        )


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
    history: HistoryPrior | None = None
    """Earlier results of the candidates; None without any."""

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
        effects = None
        if self.history is not None and self.contrasts.rounds:
            effects = posterior_of_contrasts(self.history, self.contrasts, self.baseline).mean
        elif self.prior is not None:
            effects = self.prior.posterior(self.contrasts, self.baseline).mean
        contrasts = self.contrasts.add(self.size(cells), self.baseline, effects)
        if self.history is not None:
            history = learn_from_contrasts(self.history, contrasts, self.baseline)
            return replace(self, contrasts=contrasts, history=history, reference=reference)
        prior = ContrastPrior.learn(contrasts, self.baseline, self.prior)
        return replace(self, contrasts=contrasts, prior=prior, reference=reference)

    def fade(self, factor: float) -> ContrastModel:
        """Reduce the weight of old rounds."""
        return replace(self, contrasts=self.contrasts.fade(factor))

    def grow(self, count: int, history: CandidateHistory | None = None) -> ContrastModel:
        """Add candidates that have the prior."""
        if history is not None:
            history = history.contrast(self.contrasts.percent, self.baseline)
        return replace(self, contrasts=self.contrasts.grow(count), history=_extend(self.history, history))

    def share(self, kernels: Kernels, mixing: FloatArray | None = None) -> ContrastModel:
        """Set the kernels, or remove them."""
        return replace(self, kernels=kernels, mixing=mixing)

    def points(self) -> tuple[FloatArray, FloatArray]:
        """Return each candidate's own contrast, in contrast units, and its variance."""
        return self._points(np.eye(len(self.contrasts.weighted)))

    def components(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the components of the learned prior and the pooled noise."""
        if self.history is not None:
            mixing = uncorrelated_components(self.contrasts.noise, self.history.covariance)[0]
            return _residuals(self.history, mixing, *self._points(mixing))
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
        if (self.kernels is None or features is None) and self.history is not None:
            posterior = posterior_of_contrasts(self.history, contrasts, self.baseline)
            if not contrasts.rounds:  # the metrics' level is not measured yet: it is that of the history
                history = self.history.history
                return posterior.transform(np.diag(history.unit), np.eye(len(contrasts.units)), history.level)
        elif self.kernels is None or features is None:
            prior = self.prior or ContrastPrior.learn(contrasts, self.baseline, None)
            posterior = prior.posterior(contrasts, self.baseline)
        else:
            mixing = np.eye(len(contrasts.weighted)) if self.mixing is None else self.mixing
            inverse = np.asarray(np.linalg.inv(mixing), dtype=float)
            noise = np.diag(inverse @ contrasts.noise @ inverse.T)
            precision = contrasts.information / noise[:, None, None]
            weighted = inverse @ contrasts.weighted / noise[:, None]
            variances = self._points(mixing)[1]
            trend = None if self.history is None else HistoryTrend.of_mixing(self.history, mixing, self.baseline)
            posterior = kernel_posterior(self.kernels, features, variances, precision, weighted, self.baseline, trend)
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
            "kernels": kernels_to_saved(self.kernels),
            "mixing": None if self.mixing is None else self.mixing.tolist(),
            "reference": None if self.reference is None else self.reference.tolist(),
            **({} if self.history is None else {"history": self.history.to_saved()}),
        }

    @classmethod
    def from_saved(cls, saved: dict[str, Any], history: CandidateHistory | None = None) -> ContrastModel:
        """Return what `to_saved` wrote; the history itself belongs to the study."""
        prior = None if saved["prior"] is None else ContrastPrior(np.array(saved["prior"], dtype=float))
        reference = None if saved["reference"] is None else np.array(saved["reference"], dtype=float)
        contrasts, baseline = ControlContrasts.from_saved(saved["contrasts"]), int(saved["baseline"])
        if history is not None:
            history = history.contrast(contrasts.percent, baseline)
        return cls(
            contrasts,
            baseline,
            prior,
            kernels_from_saved(saved["kernels"]),
            None if saved["mixing"] is None else np.array(saved["mixing"], dtype=float),
            reference,
            None if history is None else HistoryPrior.from_saved(saved["history"], history),
        )


def _residuals(
    history: HistoryPrior, mixing: FloatArray, estimates: FloatArray, variances: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the points of components less what the history predicts; its errors are noise too."""
    errors = HistoryTrend.of_mixing(history, mixing).variances
    return mixing, estimates - np.linalg.inv(mixing) @ history.predict(), variances + errors


def _extend(prior: HistoryPrior | None, history: CandidateHistory | None) -> HistoryPrior | None:
    """Return what was learned about the history, with the history of more candidates."""
    return prior if prior is None or history is None else replace(prior, history=history)


def kernels_to_saved(kernels: Kernels) -> list[dict[str, Any]] | None:
    """Return kernels as a plain JSON value, bit for bit."""
    return None if kernels is None else [asdict(kernel) for kernel in kernels]


def kernels_from_saved(saved: list[dict[str, Any]] | None) -> Kernels:
    """Return what `kernels_to_saved` wrote."""
    return None if saved is None else tuple(Kernel(**{**kernel, "scales": tuple(kernel["scales"])}) for kernel in saved)
