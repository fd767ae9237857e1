"""Engines that measure rounds. A new engine is a file that defines `ENGINE`, and its name in the tuple below."""

from __future__ import annotations

from pasto.metrics.engines import duckdb, parquet, postgres, spark, sqlite
from pasto.metrics.measure_request import CovariateWindow, Engine, MeasureRequest

ENGINES: dict[str, Engine] = {
    module.ENGINE.name: module.ENGINE for module in (sqlite, postgres, duckdb, spark, parquet)
}

__all__ = ["ENGINES", "CovariateWindow", "Engine", "MeasureRequest"]
