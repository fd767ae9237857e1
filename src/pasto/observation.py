"""Observations: what a round measured for one candidate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Observation:
    """Measurement of one candidate in one round: û, the mean over its units, and that mean's covariance.

    >>> Observation(version=3, candidate=0, units=1200, mean=(31.2, 0.02)).units
    1200
    """

    version: int
    """The version of the policy under which the units were drawn."""
    candidate: int
    units: float
    mean: tuple[float, ...]
    """One number a metric, in the objective's order."""
    covariance: tuple[tuple[float, ...], ...] | None = None
    """The covariance of the mean, not of a unit; None if it was not measured. With covariates, it has a row and a
    column for each of them, after the metrics."""
    control: bool = False
    """Units held on the baseline by design, apart from the policy's own draw of it."""
    covariates: tuple[float, ...] = ()
    """The means of what the same units did before the round, which takes noise out of the metrics (CUPED)."""
    segment: str | None = None
    """The segment of the units, in a study with segments."""
