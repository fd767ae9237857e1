"""An estimate and the two ends it lies between."""

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
    """Estimates with their lower and upper ends, of any shape.

    >>> import numpy as np
    >>> found = Interval(np.array([1.0, 2.0]), np.array([0.5, -1.0]), np.array([1.5, 5.0]))
    >>> found.covers(0.0).tolist(), found.above(0.0).tolist()
    ([False, True], [True, False])
    """

    estimate: FloatArray
    low: FloatArray
    high: FloatArray

    def covers(self, value: float | FloatArray) -> NDArray[np.bool_]:
        """Whether the value lies inside."""
        return np.asarray((self.low <= value) & (value <= self.high))

    def above(self, value: float | FloatArray) -> NDArray[np.bool_]:
        """Whether all of it lies above the value."""
        return np.asarray(self.low > value)

    def below(self, value: float | FloatArray) -> NDArray[np.bool_]:
        """Whether all of it lies below the value."""
        return np.asarray(self.high < value)


def chance_of_error(confidence: float, claims: int = 1) -> float:
    """What each of several claims may be wrong with, so that all hold together with the confidence (the union bound).

    >>> round(chance_of_error(0.95), 12), round(chance_of_error(0.95, claims=5), 12)
    (0.05, 0.01)
    """
    if not 0.0 < confidence < 1.0:
        raise OptionError(f"a confidence lies between 0 and 1, got {confidence!r}; write 0.95 for 95 %")
    if claims < 1:
        raise OptionError(f"an error is shared out among at least one claim, got {claims!r}")
    return (1.0 - confidence) / claims


def relative_lift(
    treated: FloatArray,
    control: FloatArray,
    treated_variance: FloatArray,
    control_variance: FloatArray,
    reach: float | FloatArray,
) -> Interval:
    """Every lift r that the data cannot tell from treated = (1 + r) · control (Fieller's interval).

    The question is linear in the means, so it stays exact where the control is noisy and a percentage of it is not even
    symmetric. Where the control cannot be told from zero, nothing is known of a share of it: the ends are infinite.

    >>> import numpy as np
    >>> found = relative_lift(np.array(11.0), np.array(10.0), np.array(0.01), np.array(0.04), 1.96)
    >>> [round(float(end), 4) for end in (found.low, found.estimate, found.high)]
    [0.0543, 0.1, 0.1491]
    >>> float(relative_lift(np.array(11.0), np.array(0.1), np.array(0.01), np.array(0.04), 1.96).high)
    inf
    """
    treated, control = np.asarray(treated, dtype=float), np.asarray(control, dtype=float)
    square = np.square(np.asarray(reach, dtype=float))
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate = treated / control - 1.0
        lead = control**2 - square * control_variance
        product = treated * control
        inside = product**2 - lead * (treated**2 - square * treated_variance)
        root = np.sqrt(np.maximum(inside, 0.0))
        known = (lead > 0) & np.isfinite(root)
        low = np.where(known, (product - root) / np.where(known, lead, 1.0) - 1.0, -np.inf)
        high = np.where(known, (product + root) / np.where(known, lead, 1.0) - 1.0, np.inf)
    return Interval(estimate, low, high)


def relative_lift_by_logarithm(
    treated: FloatArray,
    control: FloatArray,
    treated_variance: FloatArray,
    control_variance: FloatArray,
    reach: float | FloatArray,
) -> Interval:
    """The relative lift from the logarithm of the ratio and its first-order variance, as other tools report it.

    Close to `relative_lift` where the control is well measured, and wrong where it is not.

    >>> import numpy as np
    >>> found = relative_lift_by_logarithm(np.array(11.0), np.array(10.0), np.array(0.01), np.array(0.04), 1.96)
    >>> [round(float(end), 4) for end in (found.low, found.estimate, found.high)]
    [0.0536, 0.1, 0.1484]
    """
    treated, control = np.asarray(treated, dtype=float), np.asarray(control, dtype=float)
    ratio = treated / control
    width = reach * np.sqrt(treated_variance / treated**2 + control_variance / control**2)
    return Interval(ratio - 1.0, np.asarray(ratio * np.exp(-width) - 1.0), np.asarray(ratio * np.exp(width) - 1.0))


Sides = Literal[1, 2]

TIGHT = 20.0
"""Rounds after which a sequence is at its tightest unless another number is asked for."""


def reach_at_horizon(error: float, freedom: float | FloatArray = np.inf, sides: Sides = 2) -> FloatArray:
    """Standard errors to either side that miss with the given chance at one look, set beforehand: Student's t.

    >>> round(float(reach_at_horizon(0.05)), 4), round(float(reach_at_horizon(0.05, freedom=10.0)), 4)
    (1.96, 2.2281)
    """
    return np.asarray(stdtrit(np.minimum(freedom, 1e9), 1.0 - error / sides), dtype=float)


def welch_freedom(variances: tuple[FloatArray, FloatArray], freedoms: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Degrees of freedom of a sum of two variances, by Welch and Satterthwaite; 1 where nothing is known.

    >>> round(float(welch_freedom((np.array(1.0), np.array(3.0)), (np.array(9.0), np.array(99.0)))), 3)
    79.2
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = variances[0] + variances[1]
        inverse = sum((variance / whole) ** 2 / freedom for variance, freedom in zip(variances, freedoms, strict=True))
        return np.asarray(np.where(np.isfinite(inverse), 1.0 / inverse, 1.0))


def reach_at_any_time(progress: float | FloatArray, error: float, sides: Sides = 2) -> FloatArray:
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


def progress_of(information: float | FloatArray, tight: float = TIGHT, error: float = 0.05) -> FloatArray:
    """Information on the scale at which a two-sided sequence is tightest when the information equals `tight`.

    >>> information = np.array([19.0, 20.0, 21.0])
    >>> reach = reach_at_any_time(progress_of(information), 0.05) / np.sqrt(information) * np.sqrt(20)
    >>> best = min((float(reach_at_any_time(scale, 0.05)) for scale in np.linspace(2, 30, 500)))
    >>> abs(float(reach[1]) - best) < 1e-4
    True
    """
    best = -float(lambertw(-(error**2) / np.e, -1).real) - 1.0
    return np.asarray(best * np.asarray(information, dtype=float) / tight)


def interval_around(estimate: float | FloatArray, variance: float | FloatArray, reach: float | FloatArray) -> Interval:
    """The interval that reaches so many standard errors to either side.

    >>> found = interval_around(2.0, 0.25, 1.96)
    >>> float(found.low), float(found.high)
    (1.02, 2.98)
    """
    middle = np.asarray(estimate, dtype=float)
    with np.errstate(invalid="ignore"):
        half = np.where(np.isinf(reach), np.inf, reach * np.sqrt(variance))
    return Interval(middle, np.asarray(middle - half), np.asarray(middle + half))


def log_evidence(deviation: FloatArray, variance: FloatArray, mixture: float | FloatArray) -> FloatArray:
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
