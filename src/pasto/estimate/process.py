"""Learning kernels from what was measured, and whether they predict better than candidates each for itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from pasto.errors import MissingExtra
from pasto.estimate.kernel import Kernel

Array = NDArray[np.float64]
FEWEST = 8
"""Candidates measured before kernels are tried."""
MOST = 300
"""Candidates that kernels are learned from: the best measured ones."""


def fit_kernels(features: Array, estimates: Array, noises: Array) -> tuple[Kernel, ...]:
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
        model = regressor(shape, alpha=np.maximum(variances / size**2, 1e-8), optimizer=_likely)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a scale at its bound is an answer, not a fault
            model.fit(features[chosen], (values - centre) / size)
        amplitude, *scales, nugget = np.exp(model.kernel_.theta)
        kernels.append(
            Kernel(centre, float(amplitude * size**2), float(nugget * size**2), tuple(float(scale) for scale in scales))
        )
    return tuple(kernels)


def _likely(cost: Callable[[Array], tuple[float, Array]], start: Array, bounds: Array) -> tuple[Array, float]:
    """The parameters (logarithms) of least cost, with a prior that keeps a few noisy measurements from extremes.

    An amplitude like the spread, lengths of about half a range and more where there are many dimensions, which then
    can each matter only a little, and a small nugget: all within a factor of about three, more for the nugget.
    """
    dimensions = len(start) - 2
    centre = np.log([1.0, *[0.5 * np.sqrt(dimensions)] * dimensions, 0.01])
    width = np.array([1.0, *[1.0] * dimensions, 2.0])

    def total(parameters: Array) -> tuple[float, Array]:
        value, slope = cost(parameters)
        apart = (parameters - centre) / width
        return value + 0.5 * float(apart @ apart), slope + apart / width

    found = minimize(total, start, jac=True, bounds=bounds.tolist())
    return found.x, float(found.fun)


def held_out(covariance: Array, mean: float, values: Array, variances: Array) -> float:
    """The log density of every measurement as predicted from all the others."""
    inverse = np.linalg.inv(covariance + np.diag(variances))
    pull = inverse @ (values - mean)
    spread = 1.0 / np.diag(inverse)
    return float(-0.5 * np.sum(np.log(2 * np.pi * spread) + np.square(pull) * spread))


def choose_kernels(features: Array, estimates: Array, noises: Array) -> tuple[Kernel, ...] | None:
    """Kernels, where they predict held-out candidates better than a common mean and spread do; otherwise None.

    Better by more than the lengths they have to choose: on candidates without structure those alone win a little.
    """
    chosen = _measured(noises)
    if len(chosen) < max(FEWEST, 2 * features.shape[1] + 4):
        return None
    kernels = fit_kernels(features, estimates, noises)
    advantage = 0.0
    for kernel, values, variances in zip(kernels, estimates[:, chosen], noises[:, chosen], strict=True):
        shared = held_out(kernel.covariance(features[chosen]), kernel.mean, values, variances)
        spreads = float(np.var(values)) * np.linspace(0.05, 1.0, 20)
        alone = max(held_out(spread * np.eye(len(chosen)), kernel.mean, values, variances) for spread in spreads)
        advantage += shared - alone
    return kernels if advantage > 0.5 * sum(len(kernel.scales) for kernel in kernels) else None


def _measured(noises: Array) -> NDArray[np.intp]:
    """The candidates measured in every metric, the best measured ones where there are many."""
    total = np.where(np.isfinite(noises).all(axis=0), noises.sum(axis=0), np.inf)
    seen = np.flatnonzero(np.isfinite(total))
    if len(seen) > MOST:
        seen = np.sort(seen[np.argsort(total[seen], kind="stable")[:MOST]])
    return seen


def available() -> bool:
    """Whether the library behind this file is installed."""
    try:
        _library()
    except MissingExtra:
        return False
    return True


def _library() -> tuple[Any, Any]:
    try:
        from sklearn import gaussian_process
    except ImportError as error:
        raise MissingExtra(
            "sharing strength between neighbouring candidates needs scikit-learn: pip install 'pasto[process]'"
        ) from error
    return gaussian_process.GaussianProcessRegressor, gaussian_process.kernels
