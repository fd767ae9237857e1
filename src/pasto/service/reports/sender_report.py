"""Lines of a report about senders: units, events and means of each API key or source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pasto.metrics import OTHER_SOURCES
from pasto.service.close_record import SenderTotals

MAX_LINES = 20
"""Senders that have a line of their own; the rest are summed."""


def sender_lines(
    events: Mapping[str, tuple[int, int]],
    totals: Mapping[str, SenderTotals],
    rejected: Mapping[str, int],
    columns: Sequence[str],
    labels: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Return a line for each of the largest senders, those that depart first, and one for all others.

    `events` has exposures and metric events by sender, `labels` the names of keys.

    >>> sender_lines({"web": (2, 5), "": (0, 1)}, {}, {"app": 3}, ["likes"])[0]["metrics"]
    5
    """
    names = {*events, *totals, *rejected} - {OTHER_SOURCES}

    def size(name: str) -> tuple[bool, int, int, str]:
        found = totals.get(name)
        is_departed = found is not None and found.departed is not None
        return not is_departed, -(found.units if found else 0), -sum(events.get(name, ())), name

    order = sorted(names, key=size)
    lines = [_line([name], events, totals, rejected, columns) for name in order[:MAX_LINES]]
    for line, name in zip(lines, order, strict=False):
        line["sender"] = name or None
        line["name"] = (labels or {}).get(name)
    rest = [*order[MAX_LINES:], *([OTHER_SOURCES] if OTHER_SOURCES in totals else [])]
    if rest:
        lines.append({**_line(rest, events, totals, rejected, columns), "sender": "(others)", "name": None})
    return lines


def _line(
    names: Iterable[str],
    events: Mapping[str, tuple[int, int]],
    totals: Mapping[str, SenderTotals],
    rejected: Mapping[str, int],
    columns: Sequence[str],
) -> dict[str, Any]:
    names = list(names)
    measured = [totals[name] for name in names if name in totals]
    units = sum(one.units for one in measured)
    sums = [sum(numbers) for numbers in zip(*(one.sums for one in measured), strict=True)]
    return {
        "sender": None,
        "name": None,
        "units": units,
        "exposures": sum(events.get(name, (0, 0))[0] for name in names),
        "metrics": sum(events.get(name, (0, 0))[1] for name in names),
        "rejected": sum(rejected.get(name, 0) for name in names),
        "means": {column: number / units for column, number in zip(columns, sums, strict=False)} if units else {},
        "departs": any(one.departed is not None for one in measured),
    }
