"""Intervals that hold: at one look set beforehand, or at every look; for means, differences and relative lifts."""

from pasto.inference.betting import (
    ValueRange,
    bounded_difference,
    bounded_mean,
    bounded_relative,
    contrast_increments,
    log_bounded_evidence,
    mean_increments,
    sums_of,
)
from pasto.inference.cell_statistics import (
    CellStatistics,
    ComparisonSide,
    PooledStatistics,
    running_covariances,
    side,
    unit_covariances,
)
from pasto.inference.change_detection import ChangeDetectorState, bounded_evidence_since, evidence_since
from pasto.inference.comparison import Comparison, Quantity, Weights, compare
from pasto.inference.intervals import (
    TIGHT,
    Interval,
    chance_of_error,
    interval_around,
    log_evidence,
    progress_of,
    reach_at_any_time,
    reach_at_horizon,
    relative_lift,
    relative_lift_by_logarithm,
)

__all__ = [
    "TIGHT",
    "CellStatistics",
    "ChangeDetectorState",
    "Comparison",
    "ComparisonSide",
    "Interval",
    "PooledStatistics",
    "Quantity",
    "ValueRange",
    "Weights",
    "bounded_difference",
    "bounded_evidence_since",
    "bounded_mean",
    "bounded_relative",
    "chance_of_error",
    "compare",
    "contrast_increments",
    "evidence_since",
    "interval_around",
    "log_bounded_evidence",
    "log_evidence",
    "mean_increments",
    "progress_of",
    "reach_at_any_time",
    "reach_at_horizon",
    "relative_lift",
    "relative_lift_by_logarithm",
    "running_covariances",
    "side",
    "sums_of",
    "unit_covariances",
]
