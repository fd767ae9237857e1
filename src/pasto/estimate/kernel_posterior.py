"""Posterior of candidates whose means are a Gaussian process over their parameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pasto.arrays import FloatArray
from pasto.estimate.gaussian_process import Kernel, parameter_errors
from pasto.estimate.history import HistoryTrend
from pasto.estimate.posterior import FREE_MEAN_VARIANCE, MAX_SHARED_CANDIDATES, JointPosterior

MAX_PRECISION_RATIO = 1e8
"""Largest precision of a measurement, relative to that of a kernel's prior."""


def kernel_posterior(
    kernels: tuple[Kernel, ...],
    features: FloatArray,
    variances: FloatArray,
    precision: FloatArray,
    weighted: FloatArray,
    baseline: int | None = None,
    trend: HistoryTrend | None = None,
) -> JointPosterior:
    """Return the posterior under learned kernels, whose parameters are uncertain too.

    `variances` (metrics, candidates) is the noise of each candidate's own estimate. The kernels are those of the
    deviations from the trend, if there is one. The change of the means with each
    error of the parameters is a part of the covariance that candidates share.
    """
    posterior = _with_known_kernels(kernels, features, precision, weighted, baseline, trend)
    metrics, count = posterior.mean.shape
    if count > MAX_SHARED_CANDIDATES:
        return posterior
    errors = np.array(
        [
            parameter_errors(kernel, features, noise)
            for kernel, noise in zip(kernels, variances if trend is None else variances + trend.variances, strict=True)
        ]
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
                trend,
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
    trend: HistoryTrend | None = None,
) -> JointPosterior:
    """Return the posterior under given kernels with a free mean; the value of candidate `baseline` is exactly zero."""
    means = np.array([np.full(len(features), kernel.mean) for kernel in kernels])
    covariances = np.array([kernel.covariance(features) for kernel in kernels])
    covariances += (
        FREE_MEAN_VARIANCE / 100.0 * np.array([kernel.amplitude + kernel.nugget for kernel in kernels])[:, None, None]
    )
    if trend is not None:
        means, covariances = means + trend.means, covariances + trend.covariance()
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
