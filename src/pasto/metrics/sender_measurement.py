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
"""Engines that know who sent an event."""
MAX_SOURCES = 20
"""Sources that are told apart in a round, those with most exposures."""

_SPAN = "study = {0} AND version = {0} AND sequence > {0} AND sequence <= {0} AND excluded = 0 AND unit <> ''"
_SQLITE_SPAN = "+study = ? AND +version = ? AND sequence > ? AND sequence <= ? AND excluded = 0 AND unit <> ''"
"""The pluses keep SQLite from an index over other columns: a round lies together in the sequence."""


class Sender(NamedTuple):
    """Who sent a unit's exposure."""

    key: str
    """Prefix of the API key; empty without one."""
    source: str
    """As the sender calls itself; empty if it has no name, OTHER_SOURCES for all that are not told apart."""


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
        raise OptionError(f"dialect must be one of {', '.join(STORES)}, got {dialect!r}; only stores know senders.")
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
    found: dict[Sender, list[Moments]] = {}
    for cell in ENGINES[dialect](connection, request):
        key, source, arm = split_label(cell.arm)
        found.setdefault(Sender(key, source), []).append(replace(cell, arm=arm))
    return {sender: tuple(cells) for sender, cells in found.items()}


__all__ = ["MAX_SOURCES", "OTHER_SOURCES", "Sender", "measure_by_sender"]
