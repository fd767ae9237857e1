"""What is asked of an engine: which units of which policy, and which columns."""

from __future__ import annotations

from dataclasses import dataclass

from pasto.measure.definitions import Column


@dataclass(frozen=True, slots=True)
class Before:
    """The part of the log that covariates are made of: all of it was written before the units were dealt."""

    after: int
    """It begins behind this sequence…"""
    until: int
    """…and ends with this one."""
    at: float
    """When the units were dealt, in seconds since 1970: a column looks back from here."""


@dataclass(frozen=True, slots=True)
class Request:
    """The units exposed under one policy in a span of the store's sequence, and the columns wanted of them."""

    study: int
    version: int
    after: int
    """The span begins behind this sequence…"""
    until: int
    """…and ends with this one."""
    columns: tuple[Column, ...]
    before: Before | None = None
    """Needed where a column looks back."""

    @property
    def events(self) -> list[str]:
        """The names of the events that the columns read."""
        return sorted({column.event for column in self.columns})

    @property
    def timed(self) -> bool:
        """Whether any column counts time."""
        return any(column.span != (None, None) for column in self.columns)

    @property
    def past(self) -> Before:
        """The part of the log before the round; empty where no column looks back."""
        looking = any(column.lookback is not None for column in self.columns)
        return self.before if looking and self.before is not None else Before(0, 0, 0.0)
