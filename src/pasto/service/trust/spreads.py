"""How much units differ, as a plan needs it: from the control's own rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pasto.estimate.intervals import unit_covariances
from pasto.report.measured import MeasuredRound, recorded
from pasto.service.spec import Spec
from pasto.service.trust.quantities import quantities

RECENT = 50
"""Rounds that a plan is made from, the latest ones."""


def spreads(spec: Spec, rounds: Sequence[MeasuredRound]) -> dict[str, dict[str, float]]:
    """By metric: units a round, the control's mean, the deviation of one unit, and the control's share.

    A ratio's deviation is that of its linear form N − cD, in units of the ratio.
    """
    chosen = [one for one in rounds if any(cell.arm == "control" and cell.units > 1 for cell in one.cells)][-RECENT:]
    if not chosen:
        return {}
    record = recorded(chosen)
    place = record.control
    units = record.cells.units
    weight = units[:, place] / units[:, place].sum()
    mean = weight @ record.cells.mean[:, place]
    covariance = np.einsum("t,tij->ij", weight, unit_covariances(record.cells)[:, place])
    found = {}
    for name, quantity in quantities(spec).items():
        form, level = np.zeros(len(mean)), float(mean[quantity.numerator])
        form[quantity.numerator] = 1.0
        if quantity.denominator is not None:
            bottom = float(mean[quantity.denominator])
            if bottom == 0:
                continue
            level /= bottom
            form[quantity.numerator], form[quantity.denominator] = 1.0 / bottom, -level / bottom
        found[name] = {
            "units": float(units.sum(axis=1).mean()),
            "mean": level,
            "deviation": float(np.sqrt(max(form @ covariance @ form, 0.0))),
            "control": float(record.shares[:, place].mean()),
        }
    return found
