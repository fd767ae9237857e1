"""Audit log lines: who did what, when and why, in text that can be stored and printed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pasto.control_characters import find_control
from pasto.errors import TextError
from pasto.store import AuditRow

MAX_TEXT_CHARACTERS = 10_000
"""Most characters of a reason, or of a caller's name."""


def audit_line(at: float, who: str, action: str, reason: str, detail: Mapping[str, Any]) -> AuditRow:
    """Return a line of the audit log; text that cannot be stored raises TextError."""
    check_reason(who, reason)
    return AuditRow(at, who, action, reason, json.dumps(detail, separators=(",", ":"), default=dict))


def check_reason(who: str, reason: str) -> None:
    """Raise TextError for text that cannot be stored, or that has control characters of a terminal."""
    for name, text in (("who", who), ("reason", reason)):
        if len(text) > MAX_TEXT_CHARACTERS or text.encode("utf-8", "replace").decode() != text:
            raise TextError(f"{name} must be text of up to {MAX_TEXT_CHARACTERS} characters, got {text[:40]!r}")
        if (found := find_control(text)) is not None:
            raise TextError(
                f"{name} must be one line without control characters, got {found} in {text[:40]!r}; leave it out"
            )
