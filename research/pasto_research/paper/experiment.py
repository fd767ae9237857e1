"""Experiments of the paper and their outcomes.

An experiment is one file with a constant `EXPERIMENT` and a line in the package's `__init__`. Its `run` takes a `Size`
and returns an `Outcome`: the claims of the paper with the measured values, tables, the numbers of every curve, and
figures. Figures are functions, so nothing is drawn, and no drawing library loaded, before they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pasto.sim import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim of the paper with the measured value.

    >>> Claim("Blending beats the best single candidate", paper="yes", measured="1.0125 against 0", holds=True).holds
    True
    """

    what: str
    paper: str
    measured: str
    holds: bool | None
    """None if the paper gives nothing that could fail."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a header, as text or numbers.

    >>> Table("Example A", ("rounds", "f"), ((1_000, 0.909),)).rows
    ((1000, 0.909),)
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str | float | int | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of an experiment; `pasto_research.paper.output` writes it to disk.

    >>> Outcome("toy-a", "Figure 3", settings={"runs": 10}, claims=(), tables=(), data={}).name
    'toy-a'
    """

    name: str
    title: str
    settings: Mapping[str, Any]
    claims: Sequence[Claim]
    tables: Sequence[Table]
    data: Mapping[str, Any]
    """The numbers behind the figures, as plain JSON values."""
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
    """By file name, without its ending."""


@dataclass(frozen=True, slots=True)
class Size:
    """Size of an experiment.

    >>> Size(runs=10, rounds=100).seed
    1
    """

    runs: int
    rounds: int
    seed: int = 1
    quick: bool = False
    """True if parts that do not depend on runs and rounds are shortened as well."""
    progress: Progress | None = None
    data: Path | None = None
    """The directory with the data sets, for an experiment that needs any."""
    cache: Path | None = None
    """Directory that stores trained models and other long computations; None stores nothing."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """Experiment for one table, figure or theorem of the paper.

    >>> from pasto_research.paper import EXPERIMENTS
    >>> EXPERIMENTS["toy-a"].runs
    1000
    """

    name: str
    """Name on the command line."""
    summary: str
    """One line."""
    runs: int
    rounds: int
    quick_runs: int
    quick_rounds: int
    run: Callable[[Size], Outcome]
    needs: str = ""
    """Data that the experiment needs, in a few words; empty if none."""

    @property
    def place(self) -> str:
        """Place in the paper: the beginning of its summary.

        >>> from pasto_research.paper import EXPERIMENTS
        >>> EXPERIMENTS["toy-a"].place
        'Figure 3'
        """
        return self.summary.split(":")[0]
