"""What a metric is: which events it reads, what it makes of one unit's, and between which bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pasto.records import Value

Aggregate = Literal["sum", "count", "mean", "any", "max", "last"]
Comparison = Literal["=", "!=", "<", "<=", ">", ">=", "in"]


@dataclass(frozen=True, slots=True)
class Condition:
    """What an event's field must be for the event to count; an event without the field does not.

    >>> Condition("surface", "in", ("home", "search")).comparison
    'in'
    """

    field: str
    comparison: Comparison
    values: tuple[Value, ...]
    """One value, or for "in" several; a number, a text and a bool never equal one another."""


@dataclass(frozen=True, slots=True)
class Column:
    """One number per unit: the linear piece that metrics are made of.

    >>> Column("watch_time", "watch", "seconds", "sum", 0.0, 7200.0).high
    7200.0
    """

    name: str
    event: str
    value: str | None
    """The field that holds an event's number; None where events are only counted."""
    aggregate: Aggregate
    low: float | None = None
    """A unit's number is raised to it, and that is counted."""
    high: float | None = None
    """A unit's number is cut down to it, and that is counted."""
    where: tuple[Condition, ...] = ()
    by: str | None = None
    """For "last": the field that says which event is the latest; of several the one with the largest value."""
    window: float | None = None
    """Seconds after the unit's first exposure of the round in which events count; None for all of the round's."""
    lookback: float | None = None
    """Makes it a covariate: instead of the round's events, those of so many seconds before it are read."""

    @property
    def reach(self) -> tuple[float | None, float | None]:
        """The lowest and the highest number that a unit can have; None where that is not known.

        >>> Column("likes", "like", None, "count").reach, Column("seconds", "watch", "seconds", "sum").reach
        ((0.0, None), (None, None))
        """
        if self.aggregate not in ("count", "any"):
            return self.low, self.high
        return max(self.low or 0.0, 0.0), 1.0 if self.aggregate == "any" and self.high is None else self.high

    @property
    def span(self) -> tuple[float | None, float | None]:
        """Its window and look-back: columns with the same ones read the same events."""
        return self.window, self.lookback


@dataclass(frozen=True, slots=True)
class Covariate:
    """What a metric is adjusted by: what its units did before the round, which no decision of the round can change."""

    metric: str
    """The metric whose definition it takes; most often the adjusted one itself."""
    lookback: float
    """Seconds."""
    columns: tuple[Column, ...] = ()
    """One, or for a ratio two, each with the look-back."""
    cap: float | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    """What a study measures and people see: a column's mean over units, or the ratio of two such means."""

    name: str
    numerator: Column
    denominator: Column | None = None
    """Of a ratio; None for a plain metric."""
    lower_is_better: bool = False
    covariate: Covariate | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns it is made of."""
        return (self.numerator,) if self.denominator is None else (self.numerator, self.denominator)

    @property
    def reach(self) -> tuple[float | None, float | None]:
        """Between which the metric lies whatever happens; None where that is not known.

        >>> likes, views = (Column(name, name, None, "count", 0.0, 9.0) for name in ("likes", "views"))
        >>> Metric("likes", likes).reach, Metric("rate", likes, views).reach
        ((0.0, 9.0), (0.0, None))
        """
        low, high = self.numerator.reach
        if self.denominator is None:
            return low, high
        # A denominator is positive and may be small: only the sign of a ratio is known.
        return (0.0 if low is not None and low >= 0 else None), (0.0 if high is not None and high <= 0 else None)

    @property
    def bounded(self) -> bool:
        """Whether every column's values lie between two stated bounds."""
        return all(column.low is not None and column.high is not None for column in self.columns)
