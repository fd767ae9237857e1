"""What an experiment of the paper is, and what running one gives.

An experiment is one file with a constant `EXPERIMENT` and a line in this room's `__init__`. Its `run` takes a `Size`
and returns an `Outcome`: what the paper claims beside what was measured, tables, the numbers behind every curve, and
figures as functions, so that nothing is drawn (and no drawing library loaded) until somebody asks.
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
    """One statement of the paper beside what was measured.

    >>> Claim("Blending beats the best single candidate", paper="yes", measured="1.0125 against 0", holds=True).holds
    True
    """

    what: str
    paper: str
    measured: str
    holds: bool | None
    """None where the paper gives nothing that could fail."""
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
    """What running an experiment gives; `pasto_research.paper.output` puts it on disk.

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
    """How large an experiment is to be run.

    >>> Size(runs=10, rounds=100).seed
    1
    """

    runs: int
    rounds: int
    seed: int = 1
    quick: bool = False
    """Whether parts that runs and rounds do not govern are to be cut short as well."""
    progress: Progress | None = None
    data: Path | None = None
    """The directory with the data sets, for an experiment that needs any."""
    cache: Path | None = None
    """Where trained models and other long computations are kept; None keeps nothing."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One table or figure of the paper, ready to run.

    >>> from pasto_research.paper import EXPERIMENTS
    >>> EXPERIMENTS["toy-a"].runs
    1000
    """

    name: str
    """As typed after `pasto paper`."""
    summary: str
    """One line."""
    runs: int
    rounds: int
    quick_runs: int
    quick_rounds: int
    run: Callable[[Size], Outcome]
    needs: str = ""
    """The data that must be at hand, in a few words; none is needed where this is empty."""

    @property
    def place(self) -> str:
        """Where in the paper it stands: what its summary begins with.

        >>> from pasto_research.paper import EXPERIMENTS
        >>> EXPERIMENTS["toy-a"].place
        'Figure 3'
        """
        return self.summary.split(":")[0]
