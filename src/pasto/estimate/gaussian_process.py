"""Gaussian processes over the parameters: one kernel per metric, learned from the measurements."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from pasto.arrays import FloatArray
from pasto.errors import MissingExtraError

MIN_CANDIDATES = 8
"""Measured candidates from which kernels are tried."""
MAX_FITTED_CANDIDATES = 300
"""Largest number of candidates that kernels are learned from: those with the least noise."""
DERIVATIVE_STEP = 1e-3
"""Step of a logarithm by which kernels are differentiated."""
NUGGET_WIDTH = 2.0
"""Prior deviation of the logarithm of a nugget."""


@dataclass(frozen=True, slots=True)
class NuggetPrior:
    """Prior of a nugget, relative to the variance of the estimates."""

    median: float
    uses_posterior_mean: bool
    """True if kernels use the nugget's posterior mean, False for the most likely nugget."""


SMOOTH_NUGGET = NuggetPrior(0.01, uses_posterior_mean=False)
"""Prior for points of a continuous space, over which metrics change gradually."""
ROUGH_NUGGET = NuggetPrior(0.05, uses_posterior_mean=True)
"""Prior for given candidates, which may differ in more than their parameters."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """Kernel: mean + amplitude · Matérn-5/2 over scaled distances + nugget of each candidate's own.

    >>> import numpy as np
    >>> kernel = Kernel(mean=0.0, amplitude=2.0, nugget=0.5, scales=(0.3,))
    >>> kernel.covariance(np.array([[0.0], [0.0], [1.0]])).round(3).tolist()
    [[2.5, 2.0, 0.031], [2.0, 2.5, 0.031], [0.031, 0.031, 2.5]]
    """

    mean: float
    amplitude: float
    """Variance that neighbours share."""
    nugget: float
    """Variance that they do not share."""
    scales: tuple[float, ...]
    """One length per dimension."""

    def covariance(self, features: FloatArray) -> FloatArray:
        """Return the covariance between all candidates, (candidates, candidates)."""
        shared = self.between(features, features)
        shared[np.diag_indices_from(shared)] += self.nugget
        return shared

    def shift_logarithms(self, step: FloatArray) -> Kernel:
        """Return the kernel with its logarithms of amplitude, lengths and nugget moved, (2 + dimensions,)."""
        amplitude, *factors, nugget = np.exp(step).tolist()
        scales = tuple(scale * factor for scale, factor in zip(self.scales, factors, strict=True))
        return Kernel(self.mean, self.amplitude * amplitude, self.nugget * nugget, scales)

    def between(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the shared covariance between the points of two sets, (left, right)."""
        scales = np.array(self.scales)
        scaled_left, scaled_right = left / scales, right / scales
        squared_distances = (
            np.sum(scaled_left**2, axis=1)[:, None]
            + np.sum(scaled_right**2, axis=1)
            - 2.0 * scaled_left @ scaled_right.T
        )
        distances = sqrt(5.0) * np.sqrt(np.maximum(squared_distances, 0.0))
        return np.asarray(self.amplitude * (1.0 + distances + distances**2 / 3.0) * np.exp(-distances))


def fit_kernels(
    features: FloatArray, estimates: FloatArray, noises: FloatArray, nugget_prior: NuggetPrior = SMOOTH_NUGGET
) -> tuple[Kernel, ...]:
    """Return one kernel per metric, by marginal likelihood with each measurement's own noise.

    `features` (candidates, dimensions); `estimates` and `noises`, the variances of the estimates, (metrics,
    candidates), infinite if nothing was measured.
    """
    regressor, kernel_types = _load_library()
    measured = _select_measured(noises)
    kernels = []
    for values, variances in zip(estimates[:, measured], noises[:, measured], strict=True):
        weights = 1.0 / (variances + np.median(variances) + 1e-300)
        mean = float(weights @ values / weights.sum())
        standard_deviation = float(np.std(values)) or 1.0
        kernel = kernel_types.ConstantKernel(1.0, (1e-3, 1e3)) * kernel_types.Matern(
            np.full(features.shape[1], 0.5), (0.03, 30.0), nu=2.5
        ) + kernel_types.WhiteKernel(0.01, (1e-6, 1.0))
        model = regressor(
            kernel,
            alpha=np.maximum(variances / standard_deviation**2, 1e-8),
            optimizer=partial(_fit_parameters, nugget_prior=nugget_prior),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a scale at its bound is a valid result
            model.fit(features[measured], (values - mean) / standard_deviation)
        amplitude, *scales, nugget = np.exp(model.kernel_.theta)
        if nugget_prior.uses_posterior_mean:
            nugget = _expected_nugget(model, nugget_prior)
        kernels.append(
            Kernel(
                mean,
                float(amplitude * standard_deviation**2),
                float(nugget * standard_deviation**2),
                tuple(float(scale) for scale in scales),
            )
        )
    return tuple(kernels)


def _expected_nugget(model: Any, nugget_prior: NuggetPrior) -> float:
    """Return the posterior mean of the nugget, the other parameters being those fitted.

    The most likely nugget is often near zero although a few noisy measurements cannot exclude a large one. Its mean
    gives the posterior of each candidate enough width for that.
    """
    theta = model.kernel_.theta.copy()
    grid = np.linspace(np.log(1e-4), 0.0, 24)
    log_posteriors = np.empty(len(grid))
    for index, nugget in enumerate(grid):
        theta[-1] = nugget
        log_posteriors[index] = (
            model.log_marginal_likelihood(theta) - 0.5 * ((nugget - np.log(nugget_prior.median)) / NUGGET_WIDTH) ** 2
        )
    weights = np.exp(log_posteriors - log_posteriors.max())
    return float(weights @ np.exp(grid) / weights.sum())


def _fit_parameters(
    cost: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    bounds: FloatArray,
    *,
    nugget_prior: NuggetPrior,
) -> tuple[FloatArray, float]:
    """Return the parameters (logarithms) of least cost, under a prior that prevents extreme values.

    The prior expects an amplitude like the spread, lengths of about half a range and a small nugget. Each is expected
    within a factor of about three, the nugget within more. Lengths grow with the number of dimensions, because each
    of many dimensions can matter only a little.
    """
    dimensions = len(start) - 2
    prior_median = np.array([0.0, *np.log([0.5 * np.sqrt(dimensions)] * dimensions), np.log(nugget_prior.median)])
    prior_width = _prior_widths(dimensions)

    def penalized_cost(parameters: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = cost(parameters)
        deviation = (parameters - prior_median) / prior_width
        return value + 0.5 * float(deviation @ deviation), gradient + deviation / prior_width

    result = minimize(penalized_cost, start, jac=True, bounds=bounds.tolist())
    return result.x, float(result.fun)


def _prior_widths(dimensions: int) -> FloatArray:
    """Return the prior deviations of the logarithms of amplitude, lengths and nugget."""
    return np.array([1.0, *[1.0] * dimensions, NUGGET_WIDTH])


def parameter_errors(kernel: Kernel, features: FloatArray, variances: FloatArray) -> FloatArray:
    """Return independent errors of a learned kernel's parameters, (errors, 2 + dimensions), in logarithms.

    They come from the Fisher information ½ tr(V⁻¹ ∂ᵢK V⁻¹ ∂ⱼK) of the measured candidates, V being their covariance K
    plus the noise `variances` (candidates,), and from the prior of `fit_kernels`.
    """
    measured = np.isfinite(variances)
    points, widths = features[measured], _prior_widths(len(kernel.scales))
    inverse = np.linalg.inv(kernel.covariance(points) + np.diag(variances[measured]))
    steps = DERIVATIVE_STEP * np.eye(len(widths))
    slopes = [
        inverse @ (kernel.shift_logarithms(step).covariance(points) - kernel.shift_logarithms(-step).covariance(points))
        for step in steps
    ]
    information = np.einsum("aij,bji->ab", slopes, slopes) / (8.0 * DERIVATIVE_STEP**2)
    return np.asarray(np.linalg.cholesky(np.linalg.inv(information + np.diag(widths**-2.0))).T)


def held_out_log_density(covariance: FloatArray, mean: float, values: FloatArray, variances: FloatArray) -> float:
    """Return the log density of every measurement as predicted from all the others."""
    inverse = np.linalg.inv(covariance + np.diag(variances))
    weighted_residuals = inverse @ (values - mean)
    predictive_variances = 1.0 / np.diag(inverse)
    return float(
        -0.5 * np.sum(np.log(2 * np.pi * predictive_variances) + np.square(weighted_residuals) * predictive_variances)
    )


def choose_kernels(features: FloatArray, estimates: FloatArray, noises: FloatArray) -> tuple[Kernel, ...] | None:
    """Return kernels if they predict held-out candidates better than a common mean and spread do, otherwise None.

    The gain must exceed half a unit per length: on candidates without structure, fitted lengths alone gain a little.
    """
    measured = _select_measured(noises)
    if len(measured) < max(MIN_CANDIDATES, 2 * features.shape[1] + 4):
        return None
    kernels = fit_kernels(features, estimates, noises, ROUGH_NUGGET)
    gain = 0.0
    for kernel, values, variances in zip(kernels, estimates[:, measured], noises[:, measured], strict=True):
        kernel_density = held_out_log_density(kernel.covariance(features[measured]), kernel.mean, values, variances)
        candidate_variances = float(np.var(values)) * np.linspace(0.05, 1.0, 20)
        independent_density = max(
            held_out_log_density(variance * np.eye(len(measured)), kernel.mean, values, variances)
            for variance in candidate_variances
        )
        gain += kernel_density - independent_density
    return kernels if gain > 0.5 * sum(len(kernel.scales) for kernel in kernels) else None


def _select_measured(noises: FloatArray) -> NDArray[np.intp]:
    """Return the candidates measured in every metric: those with the least noise if there are many."""
    total_noise = np.where(np.isfinite(noises).all(axis=0), noises.sum(axis=0), np.inf)
    measured = np.flatnonzero(np.isfinite(total_noise))
    if len(measured) > MAX_FITTED_CANDIDATES:
        measured = np.sort(measured[np.argsort(total_noise[measured], kind="stable")[:MAX_FITTED_CANDIDATES]])
    return measured


def is_available() -> bool:
    """Return True if scikit-learn, which fits the kernels, is installed."""
    try:
        _load_library()
    except MissingExtraError:
        return False
    return True


def _load_library() -> tuple[Any, Any]:
    try:
        from sklearn import gaussian_process
    except ImportError as error:
        raise MissingExtraError(
            "sharing strength between neighbouring candidates needs scikit-learn", "process"
        ) from error
    return gaussian_process.GaussianProcessRegressor, gaussian_process.kernels
