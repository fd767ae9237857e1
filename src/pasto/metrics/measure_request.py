"""Measure request: the units and the columns to measure, and the engines that measure them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pasto.metrics.definitions import Column
from pasto.metrics.moments import Moments
from pasto_sdk.policy_document import RENAMED_ARMS

if TYPE_CHECKING:
    from pasto.metrics.sql import QueryBuilder, Relation

SEPARATOR, OTHER_SOURCES = "\x1f", "\x1e"
"""Characters between the parts of a sender label, and in the place of sources that are not listed."""


@dataclass(frozen=True, slots=True)
class CovariateWindow:
    """Part of the log (after, until] that covariates read: all of it was written before the units were assigned."""

    after: int
    """Last sequence before the window."""
    until: int
    """Last sequence of the window."""
    at: float
    """Time of the assignment, in seconds since 1970: a column looks back from here."""


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """Units exposed under one policy in the span (after, until] of the store's sequence, and the columns to measure.

    An engine computes x_uc for each exposed unit u and column c: the column's aggregate of the unit's events, 0 if it
    has none, clipped to [low, high]. Per cell (arm, candidate) with n units and C = len(columns), it returns
    `Moments`: mean of shape (C,) and cross of shape (C, C).

    Excluded events, other versions and other sequences do not count. Columns with a look-back read the events of the
    same units in `before`, of any version.

    If MEMBERS is one of the columns, exposures name the cluster of their unit. Numbers are clipped for each
    unit, which is then a member: x_uc are their sums over the members of cluster u, and n is the number of clusters.
    A unit of several clusters counts for none.
    """

    study: int
    version: int
    after: int
    """Last sequence before the span."""
    until: int
    """Last sequence of the span."""
    columns: tuple[Column, ...]
    before: CovariateWindow | None = None
    """Required if a column looks back."""
    sources: tuple[str, ...] | None = None
    """Sources to measure one by one, if units are measured by sender: arms are then labels of `sender_label`."""

    @property
    def events(self) -> list[str]:
        """Names of the events that the columns read."""
        return sorted({column.event for column in self.columns if column.aggregate != "members"})

    @property
    def timed(self) -> bool:
        """True if any column has a window or a look-back."""
        return any(column.span != (None, None) for column in self.columns)

    @property
    def past(self) -> CovariateWindow:
        """Part of the log before the round; empty if no column looks back."""
        has_lookback = any(column.lookback is not None for column in self.columns)
        return self.before if has_lookback and self.before is not None else CovariateWindow(0, 0, 0.0)


CLUSTER_FIELD = "cluster"
"""Field of an exposure's JSON with the cluster of its unit."""


_RENAMED = " ".join(f"WHEN '{name}' THEN '{arm}'" for name, arm in RENAMED_ARMS.items())
CURRENT_ARM = f"CASE arm {_RENAMED} ELSE arm END"
"""SQL for the present name of an exposure's arm; exposures of policies of format 1 may have an earlier name."""


def sender_label(separator: str, other: str, listed: str, arm: str = "arm") -> str:
    """Return SQL for an exposure's key, source and arm in one text; `listed` is SQL for whether a source is listed."""
    source = f"CASE WHEN source IS NULL THEN '' WHEN {listed} THEN source ELSE {other} END"
    return f"coalesce(key_prefix, '') || {separator} || {source} || {separator} || {arm}"


def split_label(label: str) -> tuple[str, str, str]:
    r"""Return the key, source and arm of a label.

    >>> split_label("ab12\x1fweb\x1flearner")
    ('ab12', 'web', 'learner')
    """
    key, _, rest = label.partition(SEPARATOR)
    source, _, arm = rest.rpartition(SEPARATOR)
    return key, source, arm


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
