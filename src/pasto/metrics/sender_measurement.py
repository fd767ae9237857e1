"""Measurement by sender: the units of a round by the API key and the source that sent their exposures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pasto.errors import OptionError
from pasto.metrics.definitions import Column
from pasto.metrics.engines import ENGINES, CovariateWindow, MeasureRequest
from pasto.metrics.moments import Moments
from pasto.metrics.request import OTHER_SOURCES, split_label

STORES = ("sqlite", "postgres")
"""Engines whose events have senders."""
MAX_SOURCES = 20
"""Most sources that are measured one by one in a round, those with most exposures."""

_SPAN = "study = {0} AND version = {0} AND sequence > {0} AND sequence <= {0} AND excluded = 0 AND unit <> ''"
_SQLITE_SPAN = "+study = ? AND +version = ? AND sequence > ? AND sequence <= ? AND excluded = 0 AND unit <> ''"
"""The plus signs keep SQLite from other indices: the events of a round are neighbours in the sequence."""


class Sender(NamedTuple):
    """Sender of a unit's exposure."""

    key: str
    """Prefix of the API key; empty without one."""
    source: str
    """Name that the sender gives itself; empty without one, OTHER_SOURCES for all that are not measured one by one."""


def measure_by_sender(
    connection: Any,
    dialect: str,
    *,
    study: int,
    version: int,
    after: int,
    until: int,
    columns: Sequence[Column],
    before: CovariateWindow | None = None,
    moments: Sequence[Moments] = (),
) -> dict[Sender, tuple[Moments, ...]]:
    """Measure one round as `measure` does, by sender.

    A unit whose exposure came from several senders is the first one's, in the order of their names. `moments` are the
    round's own: if there is one sender, they are returned as its.
    """
    if dialect not in STORES:
        raise OptionError(f"dialect must be one of {', '.join(STORES)}, got {dialect!r}; only stores have senders.")
    span = _SQLITE_SPAN if dialect == "sqlite" else _SPAN.format("%s")
    query = f"SELECT key_prefix, source, count(*) FROM events WHERE {span} AND kind = 0 GROUP BY key_prefix, source"  # noqa: S608 -- our own names
    counts = connection.execute(query, (study, version, after, until)).fetchall()
    if not counts:
        return {}
    if len(counts) == 1 and moments:
        key, source, _ = counts[0]
        return {Sender(key or "", source or ""): tuple(moments)}
    by_source: dict[str, int] = {}
    for _, source, count in counts:
        if source is not None:
            by_source[source] = by_source.get(source, 0) + count
    largest = sorted(by_source, key=lambda source: (-by_source[source], source))[:MAX_SOURCES]
    request = MeasureRequest(study, version, after, until, tuple(columns), before, tuple(largest))
    cells_by_sender: dict[Sender, list[Moments]] = {}
    for cell in ENGINES[dialect].measure(connection, request):
        key, source, arm = split_label(cell.arm)
        cells_by_sender.setdefault(Sender(key, source), []).append(replace(cell, arm=arm))
    return {sender: tuple(cells) for sender, cells in cells_by_sender.items()}


__all__ = ["MAX_SOURCES", "OTHER_SOURCES", "Sender", "measure_by_sender"]
