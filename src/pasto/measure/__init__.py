"""Metric definitions, and what events make of them: mean and covariance by arm and candidate."""

from pasto.measure.by_sender import OTHER_SOURCES, Sender, measure_by_sender
from pasto.measure.definitions import Column, Condition, Covariate, Metric
from pasto.measure.engines import ENGINES, Before, Engine, Request
from pasto.measure.measuring import measure
from pasto.measure.moments import Moments, covariances, moments
from pasto.measure.parse import parse_metrics

__all__ = [
    "ENGINES",
    "OTHER_SOURCES",
    "Before",
    "Column",
    "Condition",
    "Covariate",
    "Engine",
    "Metric",
    "Moments",
    "Request",
    "Sender",
    "covariances",
    "measure",
    "measure_by_sender",
    "moments",
    "parse_metrics",
]
