"""Benchmarks and their reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pasto.sim import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """Report of a benchmark: rows of measurements, all with the same names.

    >>> BenchmarkReport("Exact answers", ({"case": "soft", "ours_ms": 0.4},)).rows[0]["case"]
    'soft'
    """

    title: str
    rows: tuple[dict[str, Any], ...]
    note: str = ""
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
    """By name; drawn only when they are written."""
    more: tuple[BenchmarkReport, ...] = ()
    """Further tables of the same benchmark, with other columns."""

    @property
    def tables(self) -> tuple[BenchmarkReport, ...]:
        """The table itself and the further ones."""
        return (self, *self.more)

    def plain(self) -> dict[str, Any]:
        """Return title, rows and note as a JSON value, and further tables as `more`."""
        document: dict[str, Any] = {"title": self.title, "rows": list(self.rows), "note": self.note}
        return {**document, "more": [report.plain() for report in self.more]} if self.more else document


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Benchmark that compares PASTO with another way of doing the same work.

    >>> from pasto_research.bench import BENCHMARKS
    >>> {'solve', 'learners', 'stopping', 'certificates'} <= set(BENCHMARKS)
    True
    """

    name: str
    """Name on the command line."""
    summary: str
    """One line."""
    run: Callable[[Progress | None, bool], BenchmarkReport]
    """Function of the progress callback and of a flag for a quick run of a minute or less."""
