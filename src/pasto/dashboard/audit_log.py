"""Audit log of a study for the dashboard: its latest entries, and the alarms that follow from them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from threading import Lock

from pasto.formatting import format_time_span
from pasto.service.policy_cache import StudySnapshot
from pasto.service.study_records import StudyOverview
from pasto.store import AuditRow, Store

MAX_ENTRIES = 200
"""Latest entries that are stored of each kind."""
MONITOR_PREFIXES = ("guardrail monitor: ", "breaker: ")
"""Openings of the reasons that the guardrail monitor gives; stores may hold the second, older one."""


@dataclass(slots=True)
class AuditTail:
    """Latest entries of a study."""

    after: int = 0
    """Sequence number of the last entry read."""
    entries: deque[AuditRow] = field(default_factory=lambda: deque(maxlen=MAX_ENTRIES))
    notable_entries: deque[AuditRow] = field(default_factory=lambda: deque(maxlen=MAX_ENTRIES))
    """Entries without the closes of rounds, except closes with problems."""


class AuditLogReader:
    """Reader of audit logs that reads each entry once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tails: dict[int, AuditTail] = {}
        self._lock = Lock()

    def entries(self, study: int, *, only_notable: bool = True) -> list[AuditRow]:
        """Return the latest entries, newest first; `only_notable` omits closes without problems."""
        with self._lock:
            tail = self._tails.setdefault(study, AuditTail())
            while rows := self._store.read_audit_log(study, after=tail.after, limit=1000):
                for row in rows:
                    tail.after = row.sequence
                    tail.entries.append(row)
                    if row.action != "close" or row.detail.get("problems") or _is_pause(row):
                        tail.notable_entries.append(row)
            return list(reversed(tail.notable_entries if only_notable else tail.entries))

    def last_pause(self, study: int) -> AuditRow | None:
        """Return the entry that paused a study last."""
        return next((entry for entry in self.entries(study) if _is_pause(entry)), None)

    def last_problems(self, study: int) -> list[str]:
        """Return the problems of the last close."""
        close = next((entry for entry in self.entries(study, only_notable=False) if "round" in entry.detail), None)
        return [] if close is None else list(close.detail.get("problems", ()))


def _is_pause(entry: AuditRow) -> bool:
    return bool(
        entry.action == "pause" or entry.detail.get("to") == "paused" or entry.reason.startswith(MONITOR_PREFIXES)
    )


MAX_OVERDUE_SECONDS = 30.0
"""Seconds that a round may be overdue without an alarm, because a close takes some time."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """Alarm or warning about a study."""

    level: str
    """"alarm" if the study does not serve or learn, "warning" if it continues."""
    text: str
    is_in_verdict: bool = False
    """True if the verdict on the study is about the same."""


def is_monitor_pause(entry: AuditRow) -> bool:
    """Return whether the guardrail monitor, not a person, paused a study."""
    return bool(entry.action == "trip" or entry.reason.startswith(MONITOR_PREFIXES))


def find_alarms(snapshot: StudySnapshot, study: StudyOverview, audit_log: AuditLogReader, now: float) -> list[Alarm]:
    """Return the alarms and warnings of a study."""
    alarms = []
    row = snapshot.row
    if row.state == "paused" and (entry := audit_log.last_pause(row.number)) is not None:
        if is_monitor_pause(entry):
            alarms.append(Alarm("alarm", f"Stopped by the guardrail monitor: {entry.reason.partition(': ')[2]}", True))
        else:
            alarms.append(Alarm("warning", f"Paused by {entry.who}: {entry.reason or 'no reason given'}"))
    if (problem := study.source_problem) is not None:
        alarms.append(Alarm("alarm", f"Round {problem.round} cannot be measured: {problem.message}", True))
    closes_at = study.closes_at
    if closes_at is not None and now > closes_at + max(MAX_OVERDUE_SECONDS, 0.1 * (closes_at - study.opened_at)):
        late = format_time_span(now - closes_at)
        alarms.append(
            Alarm("alarm", f"Round {row.round} should have been closed {late} ago. Is the scheduler running?")
        )
    if row.state != "archived":
        held = [record.text for record in study.held if record.resolution is None]
        problems = [text for text in audit_log.last_problems(row.number) if " is held back " not in text]
        alarms += [Alarm("warning", text[:1].upper() + text[1:]) for text in (*held, *problems)]
    return alarms
