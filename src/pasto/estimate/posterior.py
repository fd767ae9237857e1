"""Gaussian posteriors over the candidates' mean vectors, and the priors that they come from (empirical Bayes)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.estimate.sufficient_statistics import SufficientStatistics, regularize

MAX_SHARED_CANDIDATES = 500
"""Candidates up to which the prior mean is uncertain; beyond, its variance is about 1/K of theirs and is ignored."""
PRIOR_CANDIDATES = 2.0
"""Candidates that the prior of the spread between candidates counts for; it is centred at their noise."""
FREE_MEAN_VARIANCE = 1e4
"""Prior variance of a mean that all candidates share, relative to their own: large enough to carry no information."""


class Posterior(Protocol):
    """Joint Gaussian over the true means, (metrics, candidates)."""

    @property
    def mean(self) -> FloatArray:
        """The expected means, (metrics, candidates)."""
        ...

    def take(self, places: NDArray[np.intp]) -> Posterior:
        """Return the posterior of some of the candidates."""
        ...

    def draw(self, noise: FloatArray, order: NDArray[np.intp] | None = None) -> FloatArray:
        """Return samples of the means, (count, metrics, candidates), from standard normals of that shape.

        With an order of the candidates, roots of large matrices may be triangular in it: faster, other samples.
        """
        ...

    def variances(self, rows: FloatArray) -> FloatArray:
        """Return the variance of row · means for each row and candidate, (rows, candidates)."""
        ...

    def spread(self, row: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the standard deviation of row · means · weights, for weights (..., candidates)."""
        ...

    def covariance(self) -> FloatArray:
        """Return the covariance of all means, (metrics · candidates)², metric by metric."""
        ...

    def factor(self, row: FloatArray) -> FloatArray:
        """Return a matrix L with ‖Lᵀ w‖ = spread(row, w): (candidates,) if it is diagonal, else (candidates, rank)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class IndependentPosterior:
    """Posterior of candidates that share nothing except, if `shared` is given, the uncertainty of the prior mean.

    Metrics of one candidate are correlated.

    >>> import numpy as np
    >>> posterior = IndependentPosterior(np.zeros((2, 3)), np.tile(np.eye(2), (3, 1, 1)))
    >>> float(posterior.spread(np.array([3.0, 4.0]), np.array([0.6, 0.8, 0.0])))
    5.0
    """

    mean: FloatArray
    covariances: FloatArray
    """(candidates, metrics, metrics): each candidate's own."""
    shared: FloatArray | None = None
    """(candidates, metrics, rank): the covariance of candidates i and j gains shared_i sharedᵀ_j."""

    @classmethod
    def from_statistics(cls, statistics: SufficientStatistics, prior: Prior) -> IndependentPosterior:
        """Return prior times likelihood, candidate by candidate, with the prior mean uncertain.

        Under a prior with several scales a candidate's posterior is a mixture; it is replaced by the Gaussian of the
        same mean and covariance.
        """
        parts = prior.components(statistics)
        means = np.einsum("sk,ski->ki", parts.shares, parts.means)
        deviations = parts.means - means
        covariances = np.einsum("sk,skij->kij", parts.shares, parts.covariances)
        covariances += np.einsum("sk,ski,skj->kij", parts.shares, deviations, deviations)
        origin = np.where(np.isnan(statistics.origin), 0.0, statistics.origin)
        shared = None
        if len(covariances) <= MAX_SHARED_CANDIDATES:
            root = np.linalg.cholesky(regularize(prior.mean_covariance))
            shared = np.einsum("sk,skij->kij", parts.shares, parts.loadings) @ root
            covariance_shifts = [
                covariance_moves(regularize(scale * prior.covariance), scale * prior.covariance_errors, values)
                for scale, values in zip(prior.scales, parts.means - prior.mean, strict=True)
            ]
            covariance_columns = np.einsum(
                "sk,skij,skjr->kir", parts.shares, parts.covariances, np.array(covariance_shifts)
            )
            shared = np.concatenate([shared, covariance_columns], axis=2)
        return cls((means + origin).T.copy(), covariances, shared)

    def with_common_error(self, covariance: FloatArray) -> IndependentPosterior:
        """Return the posterior with one more error that is the same for all candidates, (metrics, metrics)."""
        return replace(self, shared=_append_common(self.shared, covariance, len(self.covariances)))

    def take(self, places: NDArray[np.intp]) -> IndependentPosterior:
        """Select candidates."""
        shared = None if self.shared is None else self.shared[places]
        return IndependentPosterior(self.mean[:, places], self.covariances[places], shared)

    def draw(self, noise: FloatArray, order: NDArray[np.intp] | None = None) -> FloatArray:
        """Transform the normals by a root of own + shared covariance, without forming the matrix of all candidates."""
        factors = np.linalg.cholesky(self.covariances)
        if self.shared is not None:
            noise = _with_shared(noise, np.linalg.solve(factors, self.shared))
        return np.asarray(self.mean + np.einsum("kij,njk->nik", factors, noise))

    def variances(self, rows: FloatArray) -> FloatArray:
        """Return each candidate's own row · covariance · row plus its part of the shared one."""
        own = np.einsum("gi,kij,gj->gk", rows, self.covariances, rows)
        if self.shared is not None:
            own = own + np.square(np.einsum("gi,kir->gkr", rows, self.shared)).sum(axis=2)
        return np.asarray(own)

    def spread(self, row: FloatArray, weights: FloatArray) -> FloatArray:
        """Return √(Σ w_k² v_k + ‖Σ w_k s_k‖²)."""
        own = np.einsum("i,kij,j->k", row, self.covariances, row)
        total = np.square(weights) @ own
        if self.shared is not None:
            total = total + np.square(weights @ np.einsum("i,kir->kr", row, self.shared)).sum(axis=-1)
        return np.asarray(np.sqrt(total))

    def covariance(self) -> FloatArray:
        """Return each candidate's own blocks plus the shared covariance."""
        metrics, count = self.mean.shape
        blocks = np.zeros((metrics, count, metrics, count))
        places = np.arange(count)
        blocks[:, places, :, places] = self.covariances
        return _add_shared(blocks, self.shared)

    def factor(self, row: FloatArray) -> FloatArray:
        """Return the diagonal √v, with the shared columns after it."""
        own = np.sqrt(np.einsum("i,kij,j->k", row, self.covariances, row))
        if self.shared is None:
            return np.asarray(own)
        return np.concatenate([np.diag(own), np.einsum("i,kir->kr", row, self.shared)], axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class JointPosterior:
    """Posterior of correlated candidates: one Gaussian over all candidates per metric, or per component.

    The means are mixing @ components; without a mixing the components are the metrics. Memory is quadratic in the
    candidates.

    >>> import numpy as np
    >>> posterior = JointPosterior(np.zeros((1, 2)), np.array([[[1.0, 1.0], [1.0, 1.0]]]))
    >>> float(posterior.spread(np.ones(1), np.array([1.0, -1.0])))           # a shared part cancels in a contrast
    0.0
    """

    mean: FloatArray
    """(metrics, candidates)."""
    covariances: FloatArray
    """(components, candidates, candidates)."""
    mixing: FloatArray | None = None
    """(metrics, components)."""
    shared: FloatArray | None = None
    """(candidates, metrics, rank): the covariance of candidates i and j gains shared_i sharedᵀ_j."""

    @classmethod
    def from_evidence(
        cls, mean: FloatArray, covariances: FloatArray, precision: FloatArray, weighted: FloatArray
    ) -> JointPosterior:
        """Return the posterior from a prior N(mean, covariances) and Gaussian evidence.

        `precision` is (metrics, candidates, candidates), or (metrics, candidates) if it is diagonal; `weighted` is
        precision times the estimates. The prior may be singular: a candidate known exactly has a zero row.
        """
        count = mean.shape[1]
        if precision.ndim == 2:
            product, residual = covariances * precision[:, None, :], weighted - precision * mean
        else:
            product = covariances @ precision
            residual = weighted - np.einsum("mij,mj->mi", precision, mean)
        posterior = np.linalg.solve(np.eye(count) + product, covariances)
        posterior = 0.5 * (posterior + posterior.transpose(0, 2, 1))
        return cls(mean + np.einsum("mij,mj->mi", posterior, residual), posterior)

    def with_noise(self, precision: FloatArray, actual: FloatArray) -> JointPosterior:
        """Return the posterior with the errors of its estimates if the noise differs from that implied by `precision`.

        `actual` is the covariance of the weighted evidence, which was assumed to be `precision`. Both are (components,
        candidates, candidates). The weights of the evidence, and so the estimates, stay.
        """
        return replace(self, covariances=self.covariances + self.covariances @ (actual - precision) @ self.covariances)

    def with_common_error(self, covariance: FloatArray) -> JointPosterior:
        """Return the posterior with one more error that is the same for all candidates, (metrics, metrics)."""
        return replace(self, shared=_append_common(self.shared, covariance, self.mean.shape[1]))

    def mix(self, mixing: FloatArray, shift: FloatArray) -> JointPosterior:
        """Return the posterior of mixing @ components + shift; `mixing` (metrics, components), `shift` (metrics,)."""
        base = np.eye(len(self.mean)) if self.mixing is None else self.mixing
        shared = None if self.shared is None else np.einsum("ij,kjr->kir", mixing, self.shared)
        return JointPosterior(mixing @ self.mean + shift[:, None], self.covariances, mixing @ base, shared)

    def transform(self, mixing: FloatArray, candidates: FloatArray, shift: FloatArray) -> JointPosterior:
        """Return the posterior of mixing @ components @ candidatesᵀ + shift.

        `mixing` is (metrics, components), `candidates` (candidates, candidates), `shift` (metrics,).
        """
        base = np.eye(len(self.mean)) if self.mixing is None else self.mixing
        shared = None if self.shared is None else np.einsum("lk,ij,kjr->lir", candidates, mixing, self.shared)
        return JointPosterior(
            mixing @ self.mean @ candidates.T + shift[:, None],
            np.asarray(candidates @ self.covariances @ candidates.T),
            mixing @ base,
            shared,
        )

    def take(self, places: NDArray[np.intp]) -> JointPosterior:
        """Select candidates."""
        shared = None if self.shared is None else self.shared[places]
        return JointPosterior(self.mean[:, places], self.covariances[:, places[:, None], places], self.mixing, shared)

    def draw(self, noise: FloatArray, order: NDArray[np.intp] | None = None) -> FloatArray:
        """Transform the normals by the symmetric root: relabelling candidates relabels the samples.

        An order that goes with the labels has the same effect for triangular roots, which cost a tenth of the time.
        """
        if order is not None:
            return self._draw_in_order(noise, order)
        roots = np.array([symmetric_root(covariance) for covariance in self.covariances])
        if self.shared is not None:
            inverse = np.eye(len(self.mean)) if self.mixing is None else np.linalg.pinv(self.mixing)
            parts = np.einsum("mi,kir->mkr", inverse, self.shared)
            noise = _with_shared(noise, (np.linalg.pinv(roots, hermitian=True) @ parts).transpose(1, 0, 2))
        moved = np.einsum("mij,nmj->nmi", roots, noise)
        return np.asarray(self.mean + (moved if self.mixing is None else self.mixing @ moved))

    def _draw_in_order(self, noise: FloatArray, order: NDArray[np.intp]) -> FloatArray:
        """Transform the normals by triangular roots over the candidates in this order."""
        ordered, noise = self.take(order), noise[:, :, order]
        roots = np.array([triangular_root(covariance) for covariance in ordered.covariances])
        if ordered.shared is not None:
            inverse = np.eye(len(self.mean)) if self.mixing is None else np.linalg.pinv(self.mixing)
            parts = np.einsum("mi,kir->mkr", inverse, ordered.shared)
            noise = _with_shared(noise, np.linalg.solve(roots, parts).transpose(1, 0, 2))
        moved = (noise.transpose(1, 0, 2) @ roots.transpose(0, 2, 1)).transpose(1, 0, 2)
        samples = np.empty_like(noise)
        samples[:, :, order] = ordered.mean + (moved if self.mixing is None else self.mixing @ moved)
        return samples

    def variances(self, rows: FloatArray) -> FloatArray:
        """Return Σ row_m² C_m[k, k] plus the candidate's part of the shared covariance."""
        own = np.square(self._mixed(rows)) @ np.maximum(np.einsum("mkk->mk", self.covariances), 0.0)
        if self.shared is not None:
            own = own + np.square(np.einsum("gi,kir->gkr", rows, self.shared)).sum(axis=2)
        return np.asarray(own)

    def spread(self, row: FloatArray, weights: FloatArray) -> FloatArray:
        """Return √(Σ row_m² wᵀ C_m w + ‖Σ w_k s_k‖²)."""
        quadratic = np.einsum("...i,mij,...j->...m", weights, self.covariances, weights)
        total = np.maximum(quadratic @ np.square(self._mixed(row)), 0.0)
        if self.shared is not None:
            total = total + np.square(weights @ np.einsum("i,kir->kr", row, self.shared)).sum(axis=-1)
        return np.asarray(np.sqrt(total))

    def covariance(self) -> FloatArray:
        """Return Σ over components of their mixing times C, plus the shared covariance."""
        mixing = np.eye(len(self.mean)) if self.mixing is None else self.mixing
        return _add_shared(np.einsum("ac,cij,bc->aibj", mixing, self.covariances, mixing, optimize=True), self.shared)

    def factor(self, row: FloatArray) -> FloatArray:
        """Return the symmetric root of Σ row_m² C_m plus the shared covariance, (candidates, candidates)."""
        total = np.einsum("m,mij->ij", np.square(self._mixed(row)), self.covariances)
        if self.shared is not None:
            columns = np.einsum("i,kir->kr", row, self.shared)
            total = total + columns @ columns.T
        return symmetric_root(total)

    def _mixed(self, rows: FloatArray) -> FloatArray:
        """Return rows over metrics as rows over components."""
        return rows if self.mixing is None else rows @ self.mixing


def _add_shared(blocks: FloatArray, shared: FloatArray | None) -> FloatArray:
    """Return blocks (metrics, candidates, metrics, candidates) plus the shared covariance, as one square matrix."""
    if shared is not None:
        blocks = blocks + np.einsum("iar,jbr->aibj", shared, shared, optimize=True)
    size = blocks.shape[0] * blocks.shape[1]
    return np.asarray(blocks.reshape(size, size))


def _with_shared(noise: FloatArray, loading: FloatArray) -> FloatArray:
    """Return normals (count, metrics, candidates) that also carry a shared covariance, whitened by the own covariances.

    With W the loading (candidates, metrics, rank): (I + W Wᵀ)^(1/2) = I + W Q Wᵀ, where Q has the rank of W.
    """
    values, vectors = np.linalg.eigh(np.einsum("kir,kis->rs", loading, loading))
    values = np.maximum(values, 1e-300)
    inner = (vectors * ((np.sqrt(1.0 + values) - 1.0) / values)) @ vectors.T
    return np.asarray(noise + np.einsum("kir,rs,ljs,njl->nik", loading, inner, loading, noise, optimize=True))


def _append_common(shared: FloatArray | None, covariance: FloatArray, count: int) -> FloatArray:
    """Return the shared columns (candidates, metrics, rank) and those of an error that all candidates have."""
    columns = np.tile(symmetric_root(covariance), (count, 1, 1))
    return columns if shared is None else np.concatenate([shared, columns], axis=2)


def symmetric_root(covariance: FloatArray) -> FloatArray:
    """Return R with R R = covariance, with eigenvalues below zero cut off.

    >>> import numpy as np
    >>> symmetric_root(np.array([[4.0, 0.0], [0.0, 9.0]])).round(12).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


JITTER = 1e-10
"""Part of the mean variance that is added to all variances, so that a nearly singular covariance has a root."""


def triangular_root(covariance: FloatArray) -> FloatArray:
    """Return a lower triangular L with L Lᵀ = covariance, up to JITTER.

    >>> import numpy as np
    >>> triangular_root(np.array([[4.0, 2.0], [2.0, 10.0]])).round(6).tolist()
    [[2.0, 0.0], [1.0, 3.0]]
    """
    size = max(float(np.trace(covariance)) / len(covariance), 1e-300)
    for factor in (1.0, 1e3, 1e6):
        try:
            return np.asarray(np.linalg.cholesky(covariance + factor * JITTER * size * np.eye(len(covariance))))
        except np.linalg.LinAlgError:  # rounding made an eigenvalue negative
            continue
    return symmetric_root(covariance)


def uncorrelated_components(noise: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a mixing (metrics, components) and variances such that both matrices are diagonal in the components.

    noise = mixing mixingᵀ, and covariance = mixing diag(variances) mixingᵀ.

    >>> import numpy as np
    >>> mixing, variances = uncorrelated_components(np.diag([4.0, 1.0]), np.array([[8.0, 2.0], [2.0, 2.0]]))
    >>> (mixing * variances @ mixing.T).round(9).tolist(), (mixing @ mixing.T).round(9).tolist()
    ([[8.0, 2.0], [2.0, 2.0]], [[4.0, 0.0], [0.0, 1.0]])
    """
    root = np.linalg.cholesky(noise)
    whitened = np.linalg.solve(root, np.linalg.solve(root, covariance).T)
    variances, vectors = np.linalg.eigh(0.5 * (whitened + whitened.T))
    return np.asarray(root @ vectors, dtype=float), np.asarray(np.maximum(variances, 1e-12), dtype=float)


@dataclass(frozen=True, slots=True, eq=False)
class PosteriorComponents:
    """Posteriors of every candidate under each scale of the prior."""

    shares: FloatArray
    """(scales, candidates): probability of each scale, summing to one over scales."""
    means: FloatArray
    """(scales, candidates, metrics)."""
    covariances: FloatArray
    """(scales, candidates, metrics, metrics)."""
    loadings: FloatArray
    """(scales, candidates, metrics, metrics): derivative of the means by the prior mean."""
    log_likelihoods: FloatArray
    """(scales, candidates): log likelihood of the measurements, up to a constant of the candidate; 0 if unmeasured."""


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """Prior of the candidates' mean vectors: N(mean, covariance), or a mixture of several scales of it.

    One Gaussian is too wide for candidates that are nearly alike and too narrow for a few that are far off. The mean is
    counted from the statistics' origin and is itself known up to mean_covariance.
    """

    mean: FloatArray
    covariance: FloatArray
    mean_covariance: FloatArray
    scales: FloatArray = field(default_factory=lambda: np.ones(1))
    """(scales,): factors of the covariance."""
    shares: FloatArray = field(default_factory=lambda: np.ones(1))
    """(scales,): probability of each scale."""
    covariance_errors: FloatArray = field(default_factory=lambda: np.zeros((0, 1, 1)))
    """(directions, metrics, metrics): the error of the covariance, see `learned_covariance_errors`; none if known."""

    def components(self, statistics: SufficientStatistics) -> PosteriorComponents:
        """Return the posterior of every candidate under each scale."""
        precision, weighted = statistics.likelihood()
        measured = statistics.measured
        deviations = statistics.estimates() - self.mean
        means, covariances, loadings, log_likelihoods = [], [], [], []
        for scale in self.scales:
            inverse = np.linalg.inv(regularize(scale * self.covariance))
            covariance = np.linalg.inv(precision + inverse)
            loading = covariance @ inverse
            means.append(np.einsum("kij,kj->ki", covariance, weighted + inverse @ self.mean))
            covariances.append(covariance)
            loadings.append(loading)
            # Log density of the estimate, N(mean, noise + scale · covariance), up to a constant common to all scales.
            fit = (
                np.einsum("ki,kij,kj->k", deviations, precision @ loading, deviations) if len(self.scales) > 1 else 0.0
            )
            log_likelihoods.append(np.where(measured, 0.5 * (np.linalg.slogdet(loading)[1] - fit), 0.0))
        weights = np.array(log_likelihoods) + np.log(np.maximum(self.shares, 1e-300))[:, None]
        shares = np.exp(weights - weights.max(axis=0))
        return PosteriorComponents(
            shares / shares.sum(axis=0),
            np.array(means),
            np.array(covariances),
            np.array(loadings),
            np.array(log_likelihoods),
        )


SCALES = np.array([1.0 / 16.0, 0.25, 1.0, 4.0])
"""Scales of a prior covariance for candidates of unequal spread; the third is the Gaussian itself."""
SCALE_COUNTS = np.array([0.5, 0.5, 4.0, 0.5])
"""Prior number of candidates of each scale, before any is measured."""
MIN_SCALE_EVIDENCE = 6.0
"""Gain in log likelihood from which several scales replace one Gaussian."""
MIN_SCALED_CANDIDATES = 10
"""Candidates measured before several scales are tried."""
SCALE_EM_STEPS = 3
"""EM steps for the shares of the scales, per round."""


def learn_prior(statistics: SufficientStatistics, start: Prior | None = None, steps: int = 8) -> Prior:
    """Return the prior that makes the candidates' observations most likely, by a few steps of EM from `start`.

    The covariance carries an inverse-Wishart prior that counts like PRIOR_CANDIDATES candidates. It is centred at the
    noise of a typical candidate, in all directions alike. If candidates differ in a few directions only, a prior as
    wide as the metrics' own spread would take noise for signal in all others, and noise would choose the best blend.
    """
    precision, weighted = statistics.likelihood()
    measured = statistics.measured
    metrics = precision.shape[-1]
    if not measured.any():
        return Prior(np.zeros(metrics), np.eye(metrics), np.eye(metrics)) if start is None else start
    precision, weighted = precision[measured], weighted[measured]
    estimates = statistics.estimates()[measured]
    noises = np.asarray(np.linalg.inv(precision), dtype=float)
    count = len(estimates)
    typical_noise = statistics.pooled_covariance() / float(np.median(statistics.units[measured]))
    mean = estimates.mean(axis=0) if start is None else start.mean
    covariance = np.diag(excess_variance(estimates, noises)) if start is None else start.covariance
    for _ in range(steps):
        inverse = np.linalg.inv(regularize(covariance))
        covariances = np.linalg.inv(precision + inverse)
        means = np.einsum("kij,kj->ki", covariances, weighted + inverse @ mean)
        mean = means.mean(axis=0)
        deviations = means - mean
        scatter = covariances.sum(axis=0) + deviations.T @ deviations
        covariance = regularize((scatter + PRIOR_CANDIDATES * typical_noise) / (count + PRIOR_CANDIDATES))
    mean_covariance = np.linalg.inv(np.linalg.inv(covariance + noises).sum(axis=0))
    errors = learned_covariance_errors(covariance, noises, typical_noise)
    single = Prior(mean, covariance, mean_covariance, covariance_errors=errors)
    return _with_scales(statistics, single, noises, start)


def learned_covariance_errors(covariance: FloatArray, noises: FloatArray, typical: FloatArray) -> FloatArray:
    """Return the error of a learned prior covariance as directions E_j, (directions, metrics, metrics).

    The covariance is Σ, known up to the random symmetric matrix Σ_j ε_j E_j with independent standard normals ε_j. The
    directions come from the Fisher information of candidates whose estimates have covariances V_k = Σ + noises_k. In
    directions A and B it is ½ Σ_k tr(V_k⁻¹ A V_k⁻¹ B). The inverse-Wishart prior adds PRIOR_CANDIDATES candidates of
    typical noise.
    """
    root = np.linalg.cholesky(regularize(covariance + typical))
    rows, columns = np.triu_indices(len(root))
    basis = np.zeros((len(rows), *root.shape))
    basis[np.arange(len(rows)), rows, columns] = basis[np.arange(len(rows)), columns, rows] = 1.0
    basis = root @ basis @ root.T
    estimate_covariances = np.concatenate([noises, typical[None]]) + covariance
    counts = np.append(np.ones(len(noises)), PRIOR_CANDIDATES)
    products = np.linalg.inv(estimate_covariances)[:, None] @ basis  # (candidates, directions, metrics, metrics)
    information = 0.5 * np.einsum("k,kaij,kbji->ab", counts, products, products, optimize=True)
    return np.asarray(np.einsum("ab,aij->bij", np.linalg.cholesky(np.linalg.inv(information)), basis))


def covariance_moves(covariance: FloatArray, errors: FloatArray, deviations: FloatArray) -> FloatArray:
    """Return Σ⁻¹ E_j Σ⁻¹ (θ_k − m), (candidates, metrics, directions).

    Times the posterior covariance, it is the change of the posterior means if the prior covariance Σ changes by E_j.
    `deviations` (candidates, metrics) are the posterior means less their prior mean.
    """
    inverse = np.linalg.inv(covariance)
    return np.asarray(np.einsum("ij,rjl,kl->kir", inverse, errors, deviations @ inverse, optimize=True))


def _with_scales(statistics: SufficientStatistics, single: Prior, noises: FloatArray, start: Prior | None) -> Prior:
    """Return the prior with several scales, if they explain the measurements clearly better than one Gaussian."""
    measured = statistics.measured
    if measured.sum() < MIN_SCALED_CANDIDATES:
        return single
    shares = SCALE_COUNTS / SCALE_COUNTS.sum()
    if start is not None and len(start.shares) == len(SCALES):
        shares = start.shares
    prior = replace(single, scales=SCALES, shares=shares)
    estimates = statistics.estimates()[measured]
    weights = np.array([np.linalg.inv(scale * single.covariance + noises) for scale in SCALES])
    for _ in range(SCALE_EM_STEPS):
        parts = prior.components(statistics)
        counts = parts.shares[:, measured].sum(axis=1) + SCALE_COUNTS
        # Candidates that are nearly alike carry most information about the mean.
        precisions = np.einsum("sk,skij->kij", parts.shares[:, measured], weights)
        mean_covariance = np.linalg.inv(precisions.sum(axis=0))
        mean = mean_covariance @ np.einsum("kij,kj->i", precisions, estimates)
        prior = replace(prior, mean=mean, mean_covariance=mean_covariance, shares=counts / counts.sum())
    mixture_log_likelihood = _log_likelihood(prior, statistics)
    single_log_likelihood = _log_likelihood(replace(single, scales=SCALES, shares=np.eye(len(SCALES))[2]), statistics)
    return prior if mixture_log_likelihood - single_log_likelihood > MIN_SCALE_EVIDENCE else single


def _log_likelihood(prior: Prior, statistics: SufficientStatistics) -> float:
    """Return the log likelihood of all estimates, up to a constant common to all priors."""
    logs = prior.components(statistics).log_likelihoods + np.log(np.maximum(prior.shares, 1e-300))[:, None]
    maximum = logs.max(axis=0)
    return float((maximum + np.log(np.exp(logs - maximum).sum(axis=0)))[statistics.measured].sum())


def excess_variance(estimates: FloatArray, noises: FloatArray) -> FloatArray:
    """Return each metric's variance between candidates less its noise, (metrics,), at least a tenth of the noise."""
    noise = np.einsum("kii->ki", noises).mean(axis=0)
    if len(estimates) < 2:
        return np.asarray(noise)
    return np.asarray(np.maximum(estimates.var(axis=0, ddof=1) - noise, 0.1 * noise))
