"""Inference: intervals at one look or at every look, and guardrail evidence."""

from pasto.inference.betting import (
    ValueRange,
    add_round_sums,
    bounded_difference,
    bounded_mean,
    bounded_relative,
    contrast_increments,
    log_bounded_evidence,
    mean_increments,
)
from pasto.inference.comparison import Comparison, ComparisonSide, Quantity, Weights, build_side, compare
from pasto.inference.guardrail_evidence import ChangeDetectorState, bounded_drift_evidence, drift_evidence
from pasto.inference.intervals import (
    TIGHTEST_ROUNDS,
    Interval,
    error_per_claim,
    interval_around,
    log_evidence,
    reach_at_any_time,
    reach_at_horizon,
    relative_lift,
    relative_lift_by_logarithm,
    sequence_progress,
)
from pasto.inference.round_data import CellStatistics, PooledStatistics, running_covariances, unit_covariances

__all__ = [
    "TIGHTEST_ROUNDS",
    "CellStatistics",
    "ChangeDetectorState",
    "Comparison",
    "ComparisonSide",
    "Interval",
    "PooledStatistics",
    "Quantity",
    "ValueRange",
    "Weights",
    "add_round_sums",
    "bounded_difference",
    "bounded_drift_evidence",
    "bounded_mean",
    "bounded_relative",
    "build_side",
    "compare",
    "contrast_increments",
    "drift_evidence",
    "error_per_claim",
    "interval_around",
    "log_bounded_evidence",
    "log_evidence",
    "mean_increments",
    "reach_at_any_time",
    "reach_at_horizon",
    "relative_lift",
    "relative_lift_by_logarithm",
    "running_covariances",
    "sequence_progress",
    "unit_covariances",
]
