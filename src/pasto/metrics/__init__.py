"""Metrics: their definitions, and the measurement of rounds as mean and covariance by arm and candidate."""

from pasto.metrics.definitions import Column, Condition, Covariate, Metric
from pasto.metrics.engines import ENGINES, CovariateWindow, Engine, MeasureRequest
from pasto.metrics.measurement import measure
from pasto.metrics.moments import Moments, build_moments, covariances
from pasto.metrics.parsing import parse_metrics
from pasto.metrics.sender_measurement import OTHER_SOURCES, Sender, measure_by_sender

__all__ = [
    "ENGINES",
    "OTHER_SOURCES",
    "Column",
    "Condition",
    "Covariate",
    "CovariateWindow",
    "Engine",
    "MeasureRequest",
    "Metric",
    "Moments",
    "Sender",
    "build_moments",
    "covariances",
    "measure",
    "measure_by_sender",
    "parse_metrics",
]
