"""What is asked of an engine: which units of which policy, and which columns."""

from __future__ import annotations

from dataclasses import dataclass

from pasto.metrics.definitions import Column

SEPARATOR, OTHER_SOURCES = "\x1f", "\x1e"
"""Between the parts of a sender's label, and in the place of a source that is not told apart."""


@dataclass(frozen=True, slots=True)
class CovariateWindow:
    """The part of the log that covariates are made of: all of it was written before the units were dealt."""

    after: int
    """It begins behind this sequence…"""
    until: int
    """…and ends with this one."""
    at: float
    """When the units were dealt, in seconds since 1970: a column looks back from here."""


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """The units exposed under one policy in a span of the store's sequence, and the columns wanted of them."""

    study: int
    version: int
    after: int
    """The span begins behind this sequence…"""
    until: int
    """…and ends with this one."""
    columns: tuple[Column, ...]
    before: CovariateWindow | None = None
    """Needed where a column looks back."""
    sources: tuple[str, ...] | None = None
    """Sources to tell apart, if units are measured by sender: arms are then labels of `sender_label`."""

    @property
    def events(self) -> list[str]:
        """The names of the events that the columns read."""
        return sorted({column.event for column in self.columns})

    @property
    def timed(self) -> bool:
        """Whether any column counts time."""
        return any(column.span != (None, None) for column in self.columns)

    @property
    def past(self) -> CovariateWindow:
        """The part of the log before the round; empty where no column looks back."""
        looking = any(column.lookback is not None for column in self.columns)
        return self.before if looking and self.before is not None else CovariateWindow(0, 0, 0.0)


def sender_label(separator: str, other: str, listed: str) -> str:
    """Return SQL for an exposure's key, source and arm in one text; `listed` is SQL for whether a source is listed."""
    source = f"CASE WHEN source IS NULL THEN '' WHEN {listed} THEN source ELSE {other} END"
    return f"coalesce(key_prefix, '') || {separator} || {source} || {separator} || arm"


def split_label(label: str) -> tuple[str, str, str]:
    r"""Return the key, source and arm of a label.

    >>> split_label("ab12\x1fweb\x1flearner")
    ('ab12', 'web', 'learner')
    """
    key, _, rest = label.partition(SEPARATOR)
    source, _, arm = rest.rpartition(SEPARATOR)
    return key, source, arm
