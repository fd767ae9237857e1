"""Metric definitions, and what events make of them: mean and covariance by arm and candidate."""

from pasto.measure.definitions import Column, Condition, Covariate, Metric
from pasto.measure.engines import ENGINES, Before, Engine, Request
from pasto.measure.measuring import measure
from pasto.measure.moments import Moments, covariances, moments
from pasto.measure.parse import parse_metrics

__all__ = [
    "ENGINES",
    "Before",
    "Column",
    "Condition",
    "Covariate",
    "Engine",
    "Metric",
    "Moments",
    "Request",
    "covariances",
    "measure",
    "moments",
    "parse_metrics",
]
