"""Where records rest: embedded in one directory, or on PostgreSQL for several nodes."""

from pasto.store.opening import open_store
from pasto.store.protocol import Store
from pasto.store.rows import (
    EXPOSURE,
    METRIC,
    Appended,
    AuditRow,
    CloseRow,
    EventRow,
    KeyRow,
    PolicyRow,
    RejectedNumbers,
    RejectedReason,
    Rejections,
    StudyRow,
    TallyRow,
)

__all__ = [
    "EXPOSURE",
    "METRIC",
    "Appended",
    "AuditRow",
    "CloseRow",
    "EventRow",
    "KeyRow",
    "PolicyRow",
    "RejectedNumbers",
    "RejectedReason",
    "Rejections",
    "Store",
    "StudyRow",
    "TallyRow",
    "open_store",
]
