"""Confidence intervals: at one look at a set horizon, or at any look (confidence sequences)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import lambertw, log_ndtr, stdtrit

from pasto.arrays import FloatArray
from pasto.errors import OptionError


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Intervals: estimates with their lower and upper ends, of any shape.

    >>> import numpy as np
    >>> interval = Interval(np.array([1.0, 2.0]), np.array([0.5, -1.0]), np.array([1.5, 5.0]))
    >>> interval.covers(0.0).tolist(), interval.above(0.0).tolist()
    ([False, True], [True, False])
    """

    estimate: FloatArray
    low: FloatArray
    high: FloatArray

    def covers(self, value: float | FloatArray) -> NDArray[np.bool_]:
        """Return True for each interval that contains the value."""
        return np.asarray((self.low <= value) & (value <= self.high))

    def above(self, value: float | FloatArray) -> NDArray[np.bool_]:
        """Return True for each interval that lies above the value."""
        return np.asarray(self.low > value)

    def below(self, value: float | FloatArray) -> NDArray[np.bool_]:
        """Return True for each interval that lies below the value."""
        return np.asarray(self.high < value)


def error_per_claim(confidence: float, claims: int = 1) -> float:
    """Return the error rate of each of several claims that together hold with the confidence (union bound).

    >>> round(error_per_claim(0.95), 12), round(error_per_claim(0.95, claims=5), 12)
    (0.05, 0.01)
    """
    if not 0.0 < confidence < 1.0:
        raise OptionError(f"confidence must lie between 0 and 1, got {confidence!r}; write 0.95 for 95 %")
    if claims < 1:
        raise OptionError(f"claims must be at least 1, got {claims!r}")
    return (1.0 - confidence) / claims


def relative_lift(
    treated: FloatArray,
    control: FloatArray,
    treated_variance: FloatArray,
    control_variance: FloatArray,
    reach: float | FloatArray,
) -> Interval:
    """Return every lift r for which the data do not reject treated = (1 + r) · control (Fieller's interval).

    The hypothesis is linear in the means. So the interval stays exact if the control is noisy and the error of a
    percentage is not symmetric. If the control does not differ significantly from zero, the ends are infinite.

    >>> import numpy as np
    >>> interval = relative_lift(np.array(11.0), np.array(10.0), np.array(0.01), np.array(0.04), 1.96)
    >>> [round(float(end), 4) for end in (interval.low, interval.estimate, interval.high)]
    [0.0543, 0.1, 0.1491]
    >>> float(relative_lift(np.array(11.0), np.array(0.1), np.array(0.01), np.array(0.04), 1.96).high)
    inf
    """
    treated, control = np.asarray(treated, dtype=float), np.asarray(control, dtype=float)
    squared_reach = np.square(np.asarray(reach, dtype=float))
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate = treated / control - 1.0
        leading = control**2 - squared_reach * control_variance
        product = treated * control
        discriminant = product**2 - leading * (treated**2 - squared_reach * treated_variance)
        root = np.sqrt(np.maximum(discriminant, 0.0))
        finite = (leading > 0) & np.isfinite(root)
        low = np.where(finite, (product - root) / np.where(finite, leading, 1.0) - 1.0, -np.inf)
        high = np.where(finite, (product + root) / np.where(finite, leading, 1.0) - 1.0, np.inf)
    return Interval(estimate, low, high)


def relative_lift_by_logarithm(
    treated: FloatArray,
    control: FloatArray,
    treated_variance: FloatArray,
    control_variance: FloatArray,
    reach: float | FloatArray,
) -> Interval:
    """Return the relative lift from the logarithm of the ratio and its first-order variance, as other tools report it.

    It is close to `relative_lift` if the control is well measured, and wrong if it is not.

    >>> import numpy as np
    >>> interval = relative_lift_by_logarithm(np.array(11.0), np.array(10.0), np.array(0.01), np.array(0.04), 1.96)
    >>> [round(float(end), 4) for end in (interval.low, interval.estimate, interval.high)]
    [0.0536, 0.1, 0.1484]
    """
    treated, control = np.asarray(treated, dtype=float), np.asarray(control, dtype=float)
    ratio = treated / control
    width = reach * np.sqrt(treated_variance / treated**2 + control_variance / control**2)
    return Interval(ratio - 1.0, np.asarray(ratio * np.exp(-width) - 1.0), np.asarray(ratio * np.exp(width) - 1.0))


Sides = Literal[1, 2]

TIGHTEST_ROUNDS = 20.0
"""Default number of rounds after which a sequence is tightest."""


def reach_at_horizon(error: float, degrees: float | FloatArray = np.inf, sides: Sides = 2) -> FloatArray:
    """Return the half-width, in standard errors, for one look at a horizon set beforehand (Student's t).

    >>> round(float(reach_at_horizon(0.05)), 4), round(float(reach_at_horizon(0.05, degrees=10.0)), 4)
    (1.96, 2.2281)
    """
    return np.asarray(stdtrit(np.minimum(degrees, 1e9), 1.0 - error / sides), dtype=float)


def welch_degrees(variances: tuple[FloatArray, FloatArray], degrees: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Return the degrees of freedom of a sum of two variances, by Welch and Satterthwaite; 1 if undefined.

    >>> round(float(welch_degrees((np.array(1.0), np.array(3.0)), (np.array(9.0), np.array(99.0)))), 3)
    79.2
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        total = variances[0] + variances[1]
        inverse = sum((variance / total) ** 2 / degree for variance, degree in zip(variances, degrees, strict=True))
        return np.asarray(np.where(np.isfinite(inverse), 1.0 / inverse, 1.0))


def reach_at_any_time(progress: float | FloatArray, error: float, sides: Sides = 2) -> FloatArray:
    """Return the half-width, in standard errors, that holds over all looks together (Robbins' mixture).

    `progress` is the information so far over that of the mixture: 1/progress = ρ/V in √((V + ρ) log((V + ρ)/(ρ α²))).
    It is counted in units or rounds and must not depend on outcomes; `sequence_progress` sets its scale.

    >>> [round(float(reach_at_any_time(sequence_progress(t), 0.05)), 2) for t in (1, 5, 20, 100, 1000)]
    [4.67, 3.25, 3.04, 3.16, 3.47]
    """
    scaled_information = np.asarray(progress, dtype=float)
    with np.errstate(divide="ignore"):
        if sides == 2:
            log_term = np.log1p(scaled_information) - 2.0 * np.log(error)
        else:
            log_term = 2.0 * np.log1p(np.sqrt(1.0 + scaled_information) / (2.0 * error))
        return np.asarray(np.sqrt((1.0 + 1.0 / scaled_information) * log_term))


def sequence_progress(
    information: float | FloatArray, tight: float = TIGHTEST_ROUNDS, error: float = 0.05
) -> FloatArray:
    """Return information on the scale at which a two-sided sequence is tightest at `tight`.

    >>> information = np.array([19.0, 20.0, 21.0])
    >>> reach = reach_at_any_time(sequence_progress(information), 0.05) / np.sqrt(information) * np.sqrt(20)
    >>> scale = min((float(reach_at_any_time(scale, 0.05)) for scale in np.linspace(2, 30, 500)))
    >>> abs(float(reach[1]) - scale) < 1e-4
    True
    """
    scale = -float(lambertw(-(error**2) / np.e, -1).real) - 1.0
    return np.asarray(scale * np.asarray(information, dtype=float) / tight)


def interval_around(estimate: float | FloatArray, variance: float | FloatArray, reach: float | FloatArray) -> Interval:
    """Return the interval that reaches `reach` standard errors to either side.

    >>> interval = interval_around(2.0, 0.25, 1.96)
    >>> float(interval.low), float(interval.high)
    (1.02, 2.98)
    """
    centre = np.asarray(estimate, dtype=float)
    with np.errstate(invalid="ignore"):
        half_width = np.where(np.isinf(reach), np.inf, reach * np.sqrt(variance))
    return Interval(centre, np.asarray(centre - half_width), np.asarray(centre + half_width))


def log_evidence(deviation: FloatArray, variance: FloatArray, mixture: float | FloatArray) -> FloatArray:
    """Return the logarithm of the evidence that a sum drifts upward, against no drift or a downward one.

    It is exp(λS − λ²V/2) averaged over a half-normal λ of variance 1/ρ, with S the `deviation`, V its `variance` and ρ
    the `mixture`. Without an upward drift, the chance that it ever exceeds 1/α is at most α, for any number of looks.

    >>> round(float(np.exp(log_evidence(np.array(0.0), np.array(0.0), 1.0))), 12)
    1.0
    >>> round(float(log_evidence(np.array(40.0), np.array(100.0), 20.0)), 2)
    6.46
    """
    total_variance = variance + mixture
    standard = deviation / np.sqrt(total_variance)
    return np.asarray(np.log(2.0) + 0.5 * np.log(mixture / total_variance) + 0.5 * standard**2 + log_ndtr(standard))
