"""How many standard errors an interval reaches: at a horizon set beforehand, or whenever somebody looks."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.special import lambertw, log_ndtr, stdtrit

from pasto.estimate.intervals.interval import Array, Interval

Sides = Literal[1, 2]
TIGHT = 20.0
"""Rounds after which a sequence is at its tightest unless another number is asked for."""


def reach_at_horizon(error: float, freedom: float | Array = np.inf, sides: Sides = 2) -> Array:
    """Standard errors to either side that miss with the given chance at one look, set beforehand: Student's t.

    >>> round(float(reach_at_horizon(0.05)), 4), round(float(reach_at_horizon(0.05, freedom=10.0)), 4)
    (1.96, 2.2281)
    """
    return np.asarray(stdtrit(np.minimum(freedom, 1e9), 1.0 - error / sides), dtype=float)


def welch_freedom(variances: tuple[Array, Array], freedoms: tuple[Array, Array]) -> Array:
    """Degrees of freedom of a sum of two variances, by Welch and Satterthwaite; 1 where nothing is known.

    >>> round(float(welch_freedom((np.array(1.0), np.array(3.0)), (np.array(9.0), np.array(99.0)))), 3)
    79.2
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = variances[0] + variances[1]
        inverse = sum((variance / whole) ** 2 / freedom for variance, freedom in zip(variances, freedoms, strict=True))
        return np.asarray(np.where(np.isfinite(inverse), 1.0 / inverse, 1.0))


def reach_at_any_time(progress: float | Array, error: float, sides: Sides = 2) -> Array:
    """Standard errors to either side that, over all looks together, miss with the given chance (Robbins' mixture).

    `progress` is the information so far over that of the mixture: 1/progress = ρ/V in √((V + ρ) log((V + ρ)/(ρ α²))).
    It is counted in units or rounds, never taken from what they measured; `progress_of` chooses its scale.

    >>> [round(float(reach_at_any_time(progress_of(t), 0.05)), 2) for t in (1, 5, 20, 100, 1000)]
    [4.67, 3.25, 3.04, 3.16, 3.47]
    """
    ahead = np.asarray(progress, dtype=float)
    with np.errstate(divide="ignore"):
        if sides == 2:
            inside = np.log1p(ahead) - 2.0 * np.log(error)
        else:
            inside = 2.0 * np.log1p(np.sqrt(1.0 + ahead) / (2.0 * error))
        return np.asarray(np.sqrt((1.0 + 1.0 / ahead) * inside))


def progress_of(information: float | Array, tight: float = TIGHT, error: float = 0.05) -> Array:
    """Information on the scale at which a two-sided sequence is tightest when the information equals `tight`.

    >>> information = np.array([19.0, 20.0, 21.0])
    >>> reach = reach_at_any_time(progress_of(information), 0.05) / np.sqrt(information) * np.sqrt(20)
    >>> best = min((float(reach_at_any_time(scale, 0.05)) for scale in np.linspace(2, 30, 500)))
    >>> abs(float(reach[1]) - best) < 1e-4
    True
    """
    best = -float(lambertw(-(error**2) / np.e, -1).real) - 1.0
    return np.asarray(best * np.asarray(information, dtype=float) / tight)


def around(estimate: float | Array, variance: float | Array, reach: float | Array) -> Interval:
    """The interval that reaches so many standard errors to either side.

    >>> found = around(2.0, 0.25, 1.96)
    >>> float(found.low), float(found.high)
    (1.02, 2.98)
    """
    middle = np.asarray(estimate, dtype=float)
    with np.errstate(invalid="ignore"):
        half = np.where(np.isinf(reach), np.inf, reach * np.sqrt(variance))
    return Interval(middle, np.asarray(middle - half), np.asarray(middle + half))


def log_evidence(deviation: Array, variance: Array, mixture: float | Array) -> Array:
    """The logarithm of the evidence that a sum drifts upward, against no drift or a downward one.

    exp(λS − λ²V/2) averaged over a half-normal λ of variance 1/ρ, with S the `deviation`, V its `variance` and ρ the
    `mixture`. Without an upward drift, the chance that it ever exceeds 1/α is at most α, however often one looks.

    >>> round(float(np.exp(log_evidence(np.array(0.0), np.array(0.0), 1.0))), 12)
    1.0
    >>> round(float(log_evidence(np.array(40.0), np.array(100.0), 20.0)), 2)
    6.46
    """
    whole = variance + mixture
    standard = deviation / np.sqrt(whole)
    return np.asarray(np.log(2.0) + 0.5 * np.log(mixture / whole) + 0.5 * standard**2 + log_ndtr(standard))
