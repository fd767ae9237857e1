"""Intervals that hold: at one look set beforehand, or at every look; for means, differences and relative lifts."""

from pasto.inference.betting import (
    Range,
    bounded_difference,
    bounded_mean,
    bounded_relative,
    log_bounded_evidence,
    pulls_of_contrast,
    pulls_of_mean,
    sums_of,
)
from pasto.inference.cell_statistics import Cells, Pooled, Side, running_covariances, side, unit_covariances
from pasto.inference.change_detection import Starts, bounded_evidence_since, evidence_since
from pasto.inference.comparison import Comparison, Quantity, Weights, compare
from pasto.inference.intervals import (
    TIGHT,
    Interval,
    around,
    chance_of_error,
    log_evidence,
    progress_of,
    reach_at_any_time,
    reach_at_horizon,
    relative_lift,
    relative_lift_by_logarithm,
)

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
