"""Intervals that hold: at one look set beforehand, or at every look; for means, differences and relative lifts."""

from pasto.estimate.intervals.bounded import (
    Range,
    bounded_mean,
    log_bounded_evidence,
    pulls_of_contrast,
    pulls_of_mean,
    sums_of,
)
from pasto.estimate.intervals.bounded_lift import bounded_difference, bounded_relative
from pasto.estimate.intervals.cells import Cells, Pooled, Side, running_covariances, side, unit_covariances
from pasto.estimate.intervals.comparison import Comparison, Quantity, Weights, compare
from pasto.estimate.intervals.interval import Interval, chance_of_error
from pasto.estimate.intervals.reach import TIGHT, around, log_evidence, progress_of, reach_at_any_time, reach_at_horizon
from pasto.estimate.intervals.relative import relative_lift, relative_lift_by_logarithm
from pasto.estimate.intervals.restarts import Starts, bounded_evidence_since, evidence_since

__all__ = [
    "TIGHT",
    "Cells",
    "Comparison",
    "Interval",
    "Pooled",
    "Quantity",
    "Range",
    "Side",
    "Starts",
    "Weights",
    "around",
    "bounded_difference",
    "bounded_evidence_since",
    "bounded_mean",
    "bounded_relative",
    "chance_of_error",
    "compare",
    "evidence_since",
    "log_bounded_evidence",
    "log_evidence",
    "progress_of",
    "pulls_of_contrast",
    "pulls_of_mean",
    "reach_at_any_time",
    "reach_at_horizon",
    "relative_lift",
    "relative_lift_by_logarithm",
    "running_covariances",
    "side",
    "sums_of",
    "unit_covariances",
]
