"""Store of studies, policies, closes and events: embedded in one directory, or on PostgreSQL for several nodes."""

from __future__ import annotations

from pathlib import Path

from pasto.store.protocol import Store
from pasto.store.rows import (
    CONFLICT_REASON,
    EXPOSURE,
    INSTALLATION,
    METRIC,
    NO_SLICE,
    AppendResult,
    ArchivedSpan,
    AuditRow,
    CloseRow,
    EventRow,
    KeyRow,
    LayerSliceRow,
    OutboxRow,
    OutboxSize,
    PolicyRow,
    RejectedPositions,
    RejectionReason,
    Rejections,
    SenderCounts,
    StoreSize,
    StudyRow,
)
from pasto.store.sqlite_store import SqliteStore

__all__ = [
    "CONFLICT_REASON",
    "EXPOSURE",
    "INSTALLATION",
    "METRIC",
    "NO_SLICE",
    "AppendResult",
    "ArchivedSpan",
    "AuditRow",
    "CloseRow",
    "EventRow",
    "KeyRow",
    "LayerSliceRow",
    "OutboxRow",
    "OutboxSize",
    "PolicyRow",
    "RejectedPositions",
    "RejectionReason",
    "Rejections",
    "SenderCounts",
    "Store",
    "StoreSize",
    "StudyRow",
    "open_store",
]


def open_store(address: str, *, is_restoring: bool = False, read_only: bool = False) -> Store:
    """Open the store at an address: "memory:", a directory, or "postgresql://…".

    With `is_restoring`, a directory that lost its database opens too, to be filled from a backup. With
    `read_only`, another process may be writing to the store, and writes raise StoreError.

    >>> store = open_store("memory:")
    >>> store.read_high_water(1)
    0
    >>> store.close()
    """
    if address.startswith(("postgresql://", "postgres://")):
        from pasto.store.postgres_store import PostgresStore  # its driver is an optional dependency

        return PostgresStore(address, read_only=read_only)
    return SqliteStore(None if address == "memory:" else Path(address), is_restoring=is_restoring, read_only=read_only)
