"""Metric definitions: the events that a metric reads, their aggregate per unit, and its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pasto_sdk.policy_document import Value

Aggregate = Literal["sum", "count", "mean", "any", "max", "last", "distinct", "members"]
"""How one unit's events become one number; "members" is 1 for each exposed unit, without events."""
Comparison = Literal["=", "!=", "<", "<=", ">", ">=", "in"]


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition on a field that an event must meet to count; an event without the field does not count.

    >>> Condition("surface", "in", ("home", "search")).comparison
    'in'
    """

    field: str
    comparison: Comparison
    values: tuple[Value, ...]
    """One value, or several for "in"; a number, a text and a bool are never equal."""


@dataclass(frozen=True, slots=True)
class Column:
    """One number per unit: the linear part of which metrics consist.

    >>> Column("watch_time", "watch", "seconds", "sum", 0.0, 7200.0).high
    7200.0
    """

    name: str
    event: str
    value: str | None
    """Field with the number of an event, or for "distinct" with a key; None if events are only counted."""
    aggregate: Aggregate
    low: float | None = None
    """Smaller numbers of a unit are clipped to it, and counted as clipped."""
    high: float | None = None
    """Greater numbers of a unit are clipped to it, and counted as clipped."""
    where: tuple[Condition, ...] = ()
    by: str | None = None
    """For "last": the field whose largest value marks the latest event."""
    window: float | None = None
    """Seconds after the unit's first exposure of the round in which events count; None for the whole round."""
    lookback: float | None = None
    """Makes it a covariate: it reads the events of so many seconds before the round instead of the round's."""

    @property
    def reach(self) -> tuple[float | None, float | None]:
        """Lowest and highest number that a unit can have; None if unknown.

        >>> Column("likes", "like", None, "count").reach, Column("seconds", "watch", "seconds", "sum").reach
        ((0.0, None), (None, None))
        """
        if self.aggregate not in ("count", "any", "distinct", "members"):
            return self.low, self.high
        return max(self.low or 0.0, 0.0), 1.0 if self.aggregate == "any" and self.high is None else self.high

    @property
    def span(self) -> tuple[float | None, float | None]:
        """Its window and look-back: columns with the same ones read the same events."""
        return self.window, self.lookback


MEMBERS = Column("cluster.members", "", None, "members")
"""Number of exposed units. If it is measured, units are added up by their cluster, and each cluster is one row."""


@dataclass(frozen=True, slots=True)
class Covariate:
    """Covariate that adjusts a metric: the behaviour of its units before the round, which no decision can change."""

    metric: str
    """Metric whose definition it uses; usually the adjusted one itself."""
    lookback: float
    """Seconds."""
    columns: tuple[Column, ...] = ()
    """One column, or two for a ratio, each with the look-back."""
    cap: float | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    """Metric of a study: the mean of a column over units, or the ratio of two such means."""

    name: str
    numerator: Column
    denominator: Column | None = None
    """Denominator of a ratio; None for a mean."""
    lower_is_better: bool = False
    covariate: Covariate | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of which it consists."""
        return (self.numerator,) if self.denominator is None else (self.numerator, self.denominator)

    @property
    def is_ratio(self) -> bool:
        """True if it is defined as a ratio of two columns."""
        return self.denominator is not None and not self.is_per_member

    @property
    def is_per_member(self) -> bool:
        """True if it is the mean over the members of all clusters."""
        return self.denominator == MEMBERS

    @property
    def reach(self) -> tuple[float | None, float | None]:
        """Lowest and highest possible value of the metric; None if unknown.

        >>> likes, views = (Column(name, name, None, "count", 0.0, 9.0) for name in ("likes", "views"))
        >>> Metric("likes", likes).reach, Metric("rate", likes, views).reach
        ((0.0, 9.0), (0.0, None))
        """
        low, high = self.numerator.reach
        if self.denominator is None or self.is_per_member:
            return low, high
        # A denominator is positive and may be small: only the sign of a ratio is known.
        return (0.0 if low is not None and low >= 0 else None), (0.0 if high is not None and high <= 0 else None)

    @property
    def bounded(self) -> bool:
        """True if every number of a unit has a low and a high bound."""
        columns = (column for column in self.columns if column != MEMBERS)
        return all(column.low is not None and column.high is not None for column in columns)
