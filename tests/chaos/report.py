"""Outcomes of a campaign: one record per scenario, the table of all, and the exit code."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field


@dataclass(slots=True)
class Outcome:
    """Counts of one scenario on one store; None means that the scenario does not measure it."""

    scenario: str
    store: str
    repetitions: int = 0
    acknowledged: int = 0
    """Events that the service acknowledged, each id once."""
    lost: int = 0
    """Acknowledged events that the service does not know afterwards."""
    counted_twice: int = 0
    """Events beyond the acknowledged ids that the study counts."""
    replay_identical: bool | None = None
    requests: int = 0
    """Answers that were looked at."""
    server_errors: int = 0
    """5xx answers other than 503 and 507."""
    let_in: int = 0
    """Requests that were served without the right key."""
    latency_ratio: float | None = None
    """The neighbour's 99th percentile under attack, divided by the quiet one."""
    latency_seconds: float | None = None
    """That percentile under attack."""
    memory_growth_mb: float | None = None
    """The largest resident memory under attack, less the memory before."""
    broken: list[str] = field(default_factory=list)
    """Promises that did not hold, one sentence each."""
    left_out: str | None = None
    """The reason why the scenario did not run."""

    @property
    def is_green(self) -> bool:
        """Return true if every promise held.

        >>> Outcome("kill -9", "sqlite").is_green, Outcome("kill -9", "sqlite", lost=1).is_green
        (True, False)
        """
        counts = self.lost, self.counted_twice, self.server_errors, self.let_in, len(self.broken)
        return not any(counts) and self.replay_identical is not False

    def require(self, holds: bool, promise: str) -> None:
        """Record a promise that did not hold."""
        if not holds:
            self.broken.append(promise)

    def count_status(self, status: int) -> None:
        """Count an answer, and whether it is a server error."""
        self.requests += 1
        self.server_errors += is_server_error(status)


def is_server_error(status: int) -> bool:
    """Return true for a status that is never allowed: a 5xx that does not ask the caller to come back.

    >>> [is_server_error(status) for status in (200, 422, 500, 502, 503, 507)]
    [False, False, True, True, False, False]
    """
    return status >= 500 and status not in (503, 507)


NOTES_PER_SCENARIO = 5
HEADINGS = (
    "scenario",
    "store",
    "repeated",
    "acknowledged",
    "lost",
    "twice",
    "replay",
    "5xx / let in",
    "neighbour p99",
    "memory",
    "result",
)


def format_table(outcomes: Sequence[Outcome]) -> str:
    """Return the table of counts and losses in Markdown, and the broken promises below it."""
    rows = [HEADINGS, *(_cells(outcome) for outcome in outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    lines += _notes(outcomes)
    return "\n".join(lines)


def format_json(outcomes: Iterable[Outcome], *, seed: int, seconds: float) -> str:
    """Return every outcome as one JSON document."""
    listed = [{**asdict(outcome), "green": outcome.is_green} for outcome in outcomes]
    return json.dumps({"seed": seed, "seconds": round(seconds, 1), "outcomes": listed}, indent=1)


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """Return 1 if any promise did not hold.

    >>> exit_code([Outcome("kill -9", "sqlite")]), exit_code([Outcome("keys", "sqlite", let_in=1)])
    (0, 1)
    """
    return int(not all(outcome.is_green for outcome in outcomes))


def _cells(outcome: Outcome) -> tuple[str, ...]:
    if outcome.left_out is not None:
        return (outcome.scenario, outcome.store, *("–",) * (len(HEADINGS) - 3), "left out")
    replay = {None: "–", True: "identical", False: "DIFFERS"}[outcome.replay_identical]
    counts_events = bool(outcome.acknowledged)
    return (
        outcome.scenario,
        outcome.store,
        f"{outcome.repetitions:,}",
        f"{outcome.acknowledged:,}" if counts_events else "–",
        f"{outcome.lost:,}" if counts_events else "–",
        f"{outcome.counted_twice:,}" if counts_events else "–",
        replay,
        f"{outcome.server_errors} / {outcome.let_in} of {outcome.requests:,}",
        _latency(outcome),
        "–" if outcome.memory_growth_mb is None else f"+{outcome.memory_growth_mb:,.0f} MB",
        "green" if outcome.is_green else "RED",
    )


def _latency(outcome: Outcome) -> str:
    if outcome.latency_ratio is None or outcome.latency_seconds is None:
        return "–"
    return f"{outcome.latency_ratio:,.1f}x ({1e3 * outcome.latency_seconds:,.0f} ms)"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"


def _notes(outcomes: Iterable[Outcome]) -> list[str]:
    lines: list[str] = []
    for outcome in outcomes:
        name = f"{outcome.scenario} ({outcome.store})"
        broken = Counter(outcome.broken)
        for promise, count in broken.most_common(NOTES_PER_SCENARIO):
            lines.append(f"RED {name}: {promise}" + (f" ({count} times)" if count > 1 else ""))
        if len(broken) > NOTES_PER_SCENARIO:
            lines.append(f"RED {name}: and {len(broken) - NOTES_PER_SCENARIO} more; --json has them all")
        if outcome.left_out is not None:
            lines.append(f"left out: {name}: {outcome.left_out}")
    return ["", *lines] if lines else []
