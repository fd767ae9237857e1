"""From events to moments, on the engine where the events are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pasto.errors import BadOption
from pasto.measure.definitions import Column
from pasto.measure.engines import ENGINES, Before, Request
from pasto.measure.moments import Moments


def measure(
    connection: Any,
    dialect: str,
    *,
    study: int,
    version: int,
    after: int,
    until: int,
    columns: Sequence[Column],
    before: Before | None = None,
) -> tuple[Moments, ...]:
    """Measure one round: the units exposed under a policy in (after, until], by arm and candidate.

    Each unit's events are aggregated first, units without events count 0, and a column's bounds are applied to the
    unit's number. Events that are excluded, of another version or outside the span do not exist. The answer does not
    depend on the order in which events arrived, to the last bit. A window lasts from when the unit's first exposure was
    received to when the event was. Columns that look back read the units' events in `before`, of whatever version.
    """
    if dialect not in ENGINES:
        raise BadOption(f"no engine measures {dialect!r}; there are {', '.join(ENGINES)}")
    if not columns:
        raise BadOption("there is no column to measure; give at least one")
    looking = next((column.name for column in columns if column.lookback is not None), None)
    if looking is not None and before is None:
        raise BadOption(f"the column {looking!r} looks back, and nothing says where the past ends; give `before`")
    if before is not None and before.until > after:
        raise BadOption(f"the past ends at {before.until}, behind the round's beginning at {after}; it must not")
    return ENGINES[dialect](connection, Request(study, version, after, until, tuple(columns), before))
