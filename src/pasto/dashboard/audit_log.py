"""The end of a study's audit log: what people did, and why it stands where it stands."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from pasto.formatting import format_time_span
from pasto.service.policy_cache import StudySnapshot
from pasto.service.serializers import audit_entry
from pasto.store import Store

SHOWN = 200
"""Lines that are kept of each kind, the latest ones."""


@dataclass(slots=True)
class AuditTail:
    """One study's latest lines."""

    after: int = 0
    lines: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=SHOWN))
    deeds: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=SHOWN))
    """Without the closes of rounds, of which there are many."""


class AuditLogReader:
    """Follows the audit logs, reading each line once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tails: dict[int, AuditTail] = {}
        self._lock = Lock()

    def lines(self, study: int, *, deeds: bool = True) -> list[dict[str, Any]]:
        """The latest lines, the newest first; `deeds` leaves out the closes that went as they should."""
        with self._lock:
            tail = self._tails.setdefault(study, AuditTail())
            while rows := self._store.read_audit_log(study, after=tail.after, limit=1000):
                for row in rows:
                    tail.after = row.sequence
                    line = audit_entry(row)
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


PATIENCE = 30.0
"""Seconds that a round may be overdue: a close takes a moment."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing to look at."""

    level: str
    """"alarm" where traffic or learning stands still, "warning" where something went wrong and the study goes on."""
    text: str


def tripped_guardrails(line: Mapping[str, Any]) -> bool:
    """Whether the breaker, and no person, paused a study."""
    return bool(line["action"] == "trip" or line["reason"].startswith("breaker: "))


def find_alarms(standing: StudySnapshot, shown: Mapping[str, Any], logbook: AuditLogReader, now: float) -> list[Alarm]:
    """Everything that is wrong with a study as far as its own books know; nothing where all is well."""
    found = []
    row = standing.row
    if row.state == "paused" and (line := logbook.pause(row.number)) is not None:
        if tripped_guardrails(line):
            found.append(Alarm("alarm", f"Stopped by the breaker: {line['reason'].removeprefix('breaker: ')}"))
        else:
            found.append(Alarm("warning", f"Paused by {line['who']}: {line['reason'] or 'no reason was given'}"))
    if (source := shown.get("source_problem")) is not None:
        message = source["message"]
        found.append(Alarm("alarm", f"Round {source['round']} cannot be measured: {message}"))
    closes_at = shown["closes_at"]
    if closes_at is not None and now > closes_at + max(PATIENCE, 0.1 * (closes_at - shown["opened_at"])):
        late = format_time_span(now - closes_at)
        found.append(Alarm("alarm", f"Round {row.round} should have been closed {late} ago. Is the scheduler running?"))
    if row.state != "archived":
        held = [one["text"] for one in shown["held"] if one["resolution"] is None]
        problems = [problem for problem in logbook.problems(row.number) if " is held back " not in problem]
        found += [Alarm("warning", problem[:1].upper() + problem[1:]) for problem in (*held, *problems)]
    return found
