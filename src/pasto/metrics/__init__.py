"""Metrics: their definitions, and the measurement of rounds as mean and covariance by arm and candidate."""

from pasto.metrics.definitions import MEMBERS, Column, Condition, Covariate, Metric
from pasto.metrics.engines import ENGINES, CovariateWindow, Engine, MeasureRequest
from pasto.metrics.measure_request import OTHER_SOURCES
from pasto.metrics.measurement import Sender, measure, measure_by_sender
from pasto.metrics.moments import Moments
from pasto.metrics.parsing import parse_metrics

__all__ = [
    "ENGINES",
    "MEMBERS",
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
    "measure",
    "measure_by_sender",
    "parse_metrics",
]
