"""Checksums of stored rows: a flipped bit in a row that is written once is found by `pasto store check`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from zlib import crc32

import msgspec

_encode: Final = msgspec.msgpack.Encoder().encode
_HALF: Final = 1 << 31

COLUMNS: Final = {
    "events": "sequence, study, id, kind, unit, version, arm, candidate, name, fields, excluded, source, position, "
    "received_at, key_prefix",
    "policies": "study, version, round, learned, text, checksum, after_sequence, published_at",
    "closes": "study, round, version, high_water, observed, learner_checksum, next_version, closed_at",
    "audit": "study, at, who, action, reason, detail",
}
"""The columns that a row's checksum covers, by table, in the order in which they are written."""


def row_checksum(values: Sequence[Any]) -> int:
    """Return the CRC-32 of a row's values, as a signed number: SQLite then keeps it in four bytes.

    The values must have the types that the database gives back: a float in a column of real numbers.

    >>> row_checksum((1, "ann", None, 0.5)) == row_checksum((1, "ann", None, 0.5))
    True
    >>> row_checksum((1, "ann", None, 0.5)) == row_checksum((1, "anm", None, 0.5))
    False
    """
    return crc32(_encode(values)) - _HALF


def event_base(study: int, received_at: float, key_prefix: str | None) -> int:
    """Return what the checksums of a batch's events begin with: what all of them have in common."""
    return crc32(_encode((study, received_at, key_prefix)))


def event_checksum(base: int, sequence: int, event: Sequence[Any]) -> int:
    """Return the checksum of an event: its own fields, from its id to its position, its sequence and its batch's base.

    One is computed for every event that is stored, so nothing is copied for it.
    """
    return crc32(_encode(event), base + sequence) - _HALF


def stored_checksum(table: str, values: Sequence[Any]) -> int:
    """Return the checksum of a stored row of a table, from its values in the order of COLUMNS."""
    if table == "events":
        sequence, study, *event, received_at, key_prefix = values
        return event_checksum(event_base(study, received_at, key_prefix), sequence, event)
    return row_checksum(values)
