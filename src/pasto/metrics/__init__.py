"""Metric definitions, and what events make of them: mean and covariance by arm and candidate."""

from pasto.metrics.definitions import Column, Condition, Covariate, Metric
from pasto.metrics.engines import ENGINES, Before, Engine, Request
from pasto.metrics.measurement import measure
from pasto.metrics.moments import Moments, covariances, moments
from pasto.metrics.parsing import parse_metrics
from pasto.metrics.sender_measurement import OTHER_SOURCES, Sender, measure_by_sender

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
