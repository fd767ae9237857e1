"""Relative lifts: how much more than the control, as a share of it, when the control is noisy too."""

from __future__ import annotations

import numpy as np

from pasto.estimate.intervals.interval import Array, Interval


def relative_lift(
    treated: Array, control: Array, treated_variance: Array, control_variance: Array, reach: float | Array
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
    treated: Array, control: Array, treated_variance: Array, control_variance: Array, reach: float | Array
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
