"""Gaussian processes over the parameters: kernels, one a metric, learned from the measurements."""

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
"""Candidates measured before kernels are tried."""
MAX_FITTED_CANDIDATES = 300
"""Candidates that kernels are learned from: the best measured ones."""
DERIVATIVE_STEP = 1e-3
"""Step of a logarithm by which kernels are differentiated."""
NUGGET_WIDTH = 2.0
"""Prior deviation of the logarithm of a nugget."""


@dataclass(frozen=True, slots=True)
class NuggetPrior:
    """What is expected of a nugget, relative to the variance of the estimates, before anything is measured."""

    middle: float
    expected: bool
    """Whether kernels carry the nugget's posterior mean, or the likeliest nugget."""


SMOOTH = NuggetPrior(0.01, expected=False)
"""For points of a continuous space, over which metrics change gradually."""
ROUGH = NuggetPrior(0.05, expected=True)
"""For given candidates, which may differ in more than their parameters."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """mean + amplitude · Matérn-5/2 over scaled distances + nugget of each candidate's own.

    >>> import numpy as np
    >>> kernel = Kernel(mean=0.0, amplitude=2.0, nugget=0.5, scales=(0.3,))
    >>> kernel.covariance(np.array([[0.0], [0.0], [1.0]])).round(3).tolist()
    [[2.5, 2.0, 0.031], [2.0, 2.5, 0.031], [0.031, 0.031, 2.5]]
    """

    mean: float
    amplitude: float
    """The variance that neighbours share."""
    nugget: float
    """The variance that they do not."""
    scales: tuple[float, ...]
    """One length a dimension."""

    def covariance(self, features: FloatArray) -> FloatArray:
        """Between all candidates, (candidates, candidates)."""
        shared = self.between(features, features)
        shared[np.diag_indices_from(shared)] += self.nugget
        return shared

    def moved(self, step: FloatArray) -> Kernel:
        """Return the kernel with its logarithms of amplitude, lengths and nugget moved, (2 + dimensions,)."""
        amplitude, *factors, nugget = np.exp(step).tolist()
        scales = tuple(scale * factor for scale, factor in zip(self.scales, factors, strict=True))
        return Kernel(self.mean, self.amplitude * amplitude, self.nugget * nugget, scales)

    def between(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """What the points of two sets share, (left, right)."""
        scales = np.array(self.scales)
        one, two = left / scales, right / scales
        squares = np.sum(one**2, axis=1)[:, None] + np.sum(two**2, axis=1) - 2.0 * one @ two.T
        steps = sqrt(5.0) * np.sqrt(np.maximum(squares, 0.0))
        return np.asarray(self.amplitude * (1.0 + steps + steps**2 / 3.0) * np.exp(-steps))


def fit_kernels(
    features: FloatArray, estimates: FloatArray, noises: FloatArray, nugget_prior: NuggetPrior = SMOOTH
) -> tuple[Kernel, ...]:
    """One kernel a metric, by marginal likelihood with each measurement's own noise.

    `features` (candidates, dimensions); `estimates` and `noises`, the variances of the estimates, (metrics,
    candidates), infinite where nothing was measured.
    """
    regressor, parts = _library()
    chosen = _measured(noises)
    kernels = []
    for values, variances in zip(estimates[:, chosen], noises[:, chosen], strict=True):
        weights = 1.0 / (variances + np.median(variances) + 1e-300)
        centre = float(weights @ values / weights.sum())
        size = float(np.std(values)) or 1.0
        shape = parts.ConstantKernel(1.0, (1e-3, 1e3)) * parts.Matern(
            np.full(features.shape[1], 0.5), (0.03, 30.0), nu=2.5
        ) + parts.WhiteKernel(0.01, (1e-6, 1.0))
        model = regressor(
            shape, alpha=np.maximum(variances / size**2, 1e-8), optimizer=partial(_likely, nugget_prior=nugget_prior)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a scale at its bound is an answer, not a fault
            model.fit(features[chosen], (values - centre) / size)
        amplitude, *scales, nugget = np.exp(model.kernel_.theta)
        if nugget_prior.expected:
            nugget = _expected_nugget(model, nugget_prior)
        kernels.append(
            Kernel(centre, float(amplitude * size**2), float(nugget * size**2), tuple(float(scale) for scale in scales))
        )
    return tuple(kernels)


def _expected_nugget(model: Any, nugget_prior: NuggetPrior) -> float:
    """Return the posterior mean of the nugget, the other parameters being those fitted.

    The likeliest nugget is often near zero although a few noisy measurements cannot exclude a large one. Its mean keeps
    the posterior of each candidate wide enough for that.
    """
    theta = model.kernel_.theta.copy()
    grid = np.linspace(np.log(1e-4), 0.0, 24)
    logs = np.empty(len(grid))
    for place, nugget in enumerate(grid):
        theta[-1] = nugget
        logs[place] = (
            model.log_marginal_likelihood(theta) - 0.5 * ((nugget - np.log(nugget_prior.middle)) / NUGGET_WIDTH) ** 2
        )
    weights = np.exp(logs - logs.max())
    return float(weights @ np.exp(grid) / weights.sum())


def _likely(
    cost: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    bounds: FloatArray,
    *,
    nugget_prior: NuggetPrior,
) -> tuple[FloatArray, float]:
    """The parameters (logarithms) of least cost, with a prior that keeps a few noisy measurements from extremes.

    An amplitude like the spread, lengths of about half a range and more where there are many dimensions, which then
    can each matter only a little, and a small nugget: all within a factor of about three, more for the nugget.
    """
    dimensions = len(start) - 2
    centre = np.array([0.0, *np.log([0.5 * np.sqrt(dimensions)] * dimensions), np.log(nugget_prior.middle)])
    width = _prior_widths(dimensions)

    def total(parameters: FloatArray) -> tuple[float, FloatArray]:
        value, slope = cost(parameters)
        apart = (parameters - centre) / width
        return value + 0.5 * float(apart @ apart), slope + apart / width

    found = minimize(total, start, jac=True, bounds=bounds.tolist())
    return found.x, float(found.fun)


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
        inverse @ (kernel.moved(step).covariance(points) - kernel.moved(-step).covariance(points)) for step in steps
    ]
    information = np.einsum("aij,bji->ab", slopes, slopes) / (8.0 * DERIVATIVE_STEP**2)
    return np.asarray(np.linalg.cholesky(np.linalg.inv(information + np.diag(widths**-2.0))).T)


def held_out(covariance: FloatArray, mean: float, values: FloatArray, variances: FloatArray) -> float:
    """The log density of every measurement as predicted from all the others."""
    inverse = np.linalg.inv(covariance + np.diag(variances))
    pull = inverse @ (values - mean)
    spread = 1.0 / np.diag(inverse)
    return float(-0.5 * np.sum(np.log(2 * np.pi * spread) + np.square(pull) * spread))


def choose_kernels(features: FloatArray, estimates: FloatArray, noises: FloatArray) -> tuple[Kernel, ...] | None:
    """Kernels, where they predict held-out candidates better than a common mean and spread do; otherwise None.

    Better by more than the lengths they have to choose: on candidates without structure those alone win a little.
    """
    chosen = _measured(noises)
    if len(chosen) < max(MIN_CANDIDATES, 2 * features.shape[1] + 4):
        return None
    kernels = fit_kernels(features, estimates, noises, ROUGH)
    advantage = 0.0
    for kernel, values, variances in zip(kernels, estimates[:, chosen], noises[:, chosen], strict=True):
        shared = held_out(kernel.covariance(features[chosen]), kernel.mean, values, variances)
        spreads = float(np.var(values)) * np.linspace(0.05, 1.0, 20)
        alone = max(held_out(spread * np.eye(len(chosen)), kernel.mean, values, variances) for spread in spreads)
        advantage += shared - alone
    return kernels if advantage > 0.5 * sum(len(kernel.scales) for kernel in kernels) else None


def _measured(noises: FloatArray) -> NDArray[np.intp]:
    """The candidates measured in every metric, the best measured ones where there are many."""
    total = np.where(np.isfinite(noises).all(axis=0), noises.sum(axis=0), np.inf)
    seen = np.flatnonzero(np.isfinite(total))
    if len(seen) > MAX_FITTED_CANDIDATES:
        seen = np.sort(seen[np.argsort(total[seen], kind="stable")[:MAX_FITTED_CANDIDATES]])
    return seen


def available() -> bool:
    """Whether the library behind this file is installed."""
    try:
        _library()
    except MissingExtraError:
        return False
    return True


def _library() -> tuple[Any, Any]:
    try:
        from sklearn import gaussian_process
    except ImportError as error:
        raise MissingExtraError(
            "sharing strength between neighbouring candidates needs scikit-learn", "process"
        ) from error
    return gaussian_process.GaussianProcessRegressor, gaussian_process.kernels
