"""What a benchmark is, and what running one gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pasto.sim import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Report:
    """Rows of measurements, all with the same names.

    >>> Report("Exact answers", ({"case": "soft", "ours_ms": 0.4},)).rows[0]["case"]
    'soft'
    """

    title: str
    rows: tuple[dict[str, Any], ...]
    note: str = ""
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
    """By name, drawn when they are asked for."""

    def plain(self) -> dict[str, Any]:
        """Title, rows and note as a JSON value."""
        return {"title": self.title, "rows": list(self.rows), "note": self.note}


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One measurement beside another way of doing the same work, ready to run.

    >>> from pasto_research.bench import BENCHMARKS
    >>> list(BENCHMARKS)
    ['solve', 'monte-carlo', 'learners', 'rounds', 'certificates', 'demo', 'safety', 'drift', 'continuous', 'serve',
     'measure', 'trust', 'missing-data', 'senders', 'long']
    """

    name: str
    """As typed after `pasto bench`."""
    summary: str
    """One line."""
    run: Callable[[Progress | None, bool], Report]
    """Given where to tell progress, and whether to be quick: a minute or less, with rougher numbers."""
