"""The end of a study's audit log: what people did, and why it stands where it stands."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from pasto.service.overview import audited
from pasto.store import Store

SHOWN = 200
"""Lines that are kept of each kind, the latest ones."""


@dataclass(slots=True)
class Tail:
    """One study's latest lines."""

    after: int = 0
    lines: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=SHOWN))
    deeds: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=SHOWN))
    """Without the closes of rounds, of which there are many."""


class Logbook:
    """Follows the audit logs, reading each line once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tails: dict[int, Tail] = {}
        self._lock = Lock()

    def lines(self, study: int, *, deeds: bool = True) -> list[dict[str, Any]]:
        """The latest lines, the newest first; `deeds` leaves out the closes that went as they should."""
        with self._lock:
            tail = self._tails.setdefault(study, Tail())
            while rows := self._store.audit(study, after=tail.after, limit=1000):
                for row in rows:
                    tail.after = row.sequence
                    line = audited(row)
                    tail.lines.append(line)
                    if row.action != "close" or line["detail"].get("problems") or _pauses(line):
                        tail.deeds.append(line)
            return list(reversed(tail.deeds if deeds else tail.lines))

    def pause(self, study: int) -> dict[str, Any] | None:
        """The line that paused a study last."""
        return next((line for line in self.lines(study) if _pauses(line)), None)

    def problems(self, study: int) -> list[str]:
        """What went wrong when the last round was closed."""
        closed = next((line for line in self.lines(study, deeds=False) if "round" in line["detail"]), None)
        return [] if closed is None else list(closed["detail"].get("problems", ()))


def _pauses(line: dict[str, Any]) -> bool:
    return bool(
        line["action"] == "pause" or line["detail"].get("to") == "paused" or line["reason"].startswith("breaker")
    )
