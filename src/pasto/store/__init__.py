"""Where records rest: embedded in one directory, or on PostgreSQL for several nodes."""

from pasto.store.opening import open_store
from pasto.store.protocol import Store
from pasto.store.rows import (
    CONFLICT_REASON,
    EXPOSURE,
    INSTALLATION,
    METRIC,
    Appended,
    ArchivedRow,
    AuditRow,
    CloseRow,
    EventRow,
    KeyRow,
    PolicyRow,
    RejectedNumbers,
    RejectedReason,
    Rejections,
    StoreSize,
    StudyRow,
    TallyRow,
)

__all__ = [
    "CONFLICT_REASON",
    "EXPOSURE",
    "INSTALLATION",
    "METRIC",
    "Appended",
    "ArchivedRow",
    "AuditRow",
    "CloseRow",
    "EventRow",
    "KeyRow",
    "PolicyRow",
    "RejectedNumbers",
    "RejectedReason",
    "Rejections",
    "Store",
    "StoreSize",
    "StudyRow",
    "TallyRow",
    "open_store",
]
