"""What somebody should look at, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pasto.dashboard.logbook import Logbook
from pasto.dashboard.rendering import lasting
from pasto.service.board import Standing

PATIENCE = 30.0
"""Seconds that a round may be overdue: a close takes a moment."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing to look at."""

    level: str
    """"alarm" where traffic or learning stands still, "warning" where something went wrong and the study goes on."""
    text: str


def tripped(line: Mapping[str, Any]) -> bool:
    """Whether the breaker, and no person, paused a study."""
    return bool(line["action"] == "trip" or line["reason"].startswith("breaker: "))


def alarms(standing: Standing, shown: Mapping[str, Any], logbook: Logbook, now: float) -> list[Alarm]:
    """Everything that is wrong with a study as far as its own books know; nothing where all is well."""
    found = []
    row = standing.row
    if row.state == "paused" and (line := logbook.pause(row.number)) is not None:
        if tripped(line):
            found.append(Alarm("alarm", f"Stopped by the breaker: {line['reason'].removeprefix('breaker: ')}"))
        else:
            found.append(Alarm("warning", f"Paused by {line['who']}: {line['reason'] or 'no reason was given'}"))
    if (source := shown.get("source_problem")) is not None:
        message = source["message"]
        found.append(Alarm("alarm", f"Round {source['round']} cannot be measured: {message}"))
    closes_at = shown["closes_at"]
    if closes_at is not None and now > closes_at + max(PATIENCE, 0.1 * (closes_at - shown["opened_at"])):
        late = lasting(now - closes_at)
        found.append(Alarm("alarm", f"Round {row.round} should have been closed {late} ago. Is the scheduler running?"))
    if row.state != "archived":
        held = [one["text"] for one in shown["held"] if one["resolution"] is None]
        problems = [problem for problem in logbook.problems(row.number) if " is held back " not in problem]
        found += [Alarm("warning", problem[:1].upper() + problem[1:]) for problem in (*held, *problems)]
    return found
