"""What a benchmark is, and what running one gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pasto.sim import Progress


@dataclass(frozen=True, slots=True)
class Report:
    """Rows of measurements, all with the same names.

    >>> Report("Exact answers", ({"case": "soft", "ours_ms": 0.4},)).rows[0]["case"]
    'soft'
    """

    title: str
    rows: tuple[dict[str, Any], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One measurement beside another way of doing the same work, ready to run.

    >>> from pasto.bench import BENCHMARKS
    >>> list(BENCHMARKS)
    ['solve', 'monte-carlo']
    """

    name: str
    """As typed after `pasto bench`."""
    summary: str
    """One line."""
    run: Callable[[Progress | None], Report]
