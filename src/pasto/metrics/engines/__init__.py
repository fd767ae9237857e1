"""Where metrics are computed: one file an engine, and one line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pasto.metrics.engines import duckdb, parquet, postgres, spark, sqlite
from pasto.metrics.moments import Moments
from pasto.metrics.request import CovariateWindow, MeasureRequest

Engine = Callable[[Any, MeasureRequest], tuple[Moments, ...]]
"""Takes a connection (Spark: its session) and a request; gives the moments sorted by arm and candidate."""

ENGINES: dict[str, Engine] = {
    "sqlite": sqlite.measure,
    "postgres": postgres.measure,
    "duckdb": duckdb.measure,
    "spark": spark.measure,
    "archive": parquet.measure,
}

__all__ = ["ENGINES", "CovariateWindow", "Engine", "MeasureRequest"]
