"""Engine: the functions by which one database measures a round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pasto.metrics.definitions import Column
from pasto.metrics.moments import Moments
from pasto.metrics.request import MeasureRequest
from pasto.metrics.sql import QueryBuilder, Relation


@dataclass(frozen=True, slots=True)
class TableEngine:
    """Functions of an engine that reads the tables of a team: (connection, query builder, relation, columns) each."""

    measure: Callable[[Any, QueryBuilder, Relation, tuple[Column, ...]], tuple[Moments, ...]]
    plan: Callable[[Any, QueryBuilder, Relation, tuple[Column, ...]], None]
    """Plans the query of `measure` without running it, and raises what would fail."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Database that measures rounds; `connection` is a DB-API connection, or the session of Spark.

    A measurement has one `Moments` per cell, sorted by arm and candidate.
    """

    name: str
    measure: Callable[[Any, MeasureRequest], tuple[Moments, ...]]
    """(connection, request): measures events in the tables of a store."""
    tables: TableEngine | None = None
    """Measures the tables of a team; None if the engine cannot."""
