"""Event shortage: a round with too few events for its units, judged by earlier rounds.

Units without events count 0, so a round whose events are missing looks like a round without activity. This module
separates the two. Levels of healthy studies swing between rounds, and candidates differ, so:

- Rounds are compared candidate by candidate (Mantel-Haenszel ratio): a policy that moves to other candidates is not a
  shortage.
- If the concurrent control has its events, a fall is an effect of the candidates, which the guardrails must see.
- The scatter of the level between rounds is estimated from the earlier rounds, on the log scale. With few of them a
  prior makes it wide: PRIOR_SPREAD, with the weight of PRIOR_DEGREES rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from pasto.arrays import FloatArray

MIN_EXPECTED_EVENTS = 20.0
"""Expected units with an event from which their absence is significant."""
MIN_LOWEST_EVENTS = 10.0
"""The same at a level one standard deviation below the average; none occur by chance once in 20,000 such rounds."""
MAX_P_VALUE = 1e-6
"""p-value below which a fall is not explained by chance."""
PRIOR_SPREAD = 0.5
"""Prior standard deviation of the log level between rounds."""
PRIOR_DEGREES = 4.0
"""Weight of this prior in rounds."""
MIN_CONTROL_EVENTS = 5.0
"""Expected units of the control with an event from which the control is used."""
MIN_CONTROL_LEVEL = 0.5
"""Part of its earlier level from which the control has its events."""
MAX_EARLIER_ROUNDS = 16
"""Number of latest earlier rounds that a round is compared with; older levels carry little information."""
MIN_FIRST_UNITS = 1000.0
"""Units from which a study without any event has a shortage."""

Kind = Literal["no_events", "none", "fell"]


@dataclass(frozen=True, slots=True)
class EventShortage:
    """Finding of a shortage: the expected and the observed sum of some units."""

    kind: Kind
    """no_events: no event of any metric came. none: no event of one metric. fell: far less of it than before."""
    column: int | None
    """Column of the metric; None for no_events."""
    units: int
    """Units of the round that were compared."""
    expected: float
    """The sum of the metric over these units, at the earlier rounds' level; for no_events, units with an event."""
    observed: float
    expected_events: float
    """Lower bound of the units that were expected to have an event."""
    rounds: int
    """Number of earlier rounds that it was compared with."""
    p_value: float | None = None
    """p-value of a fall; None for the other kinds."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundTotals:
    """Sums over the units of one round, by candidate."""

    units: FloatArray
    """(candidates,)"""
    sums: FloatArray
    """(candidates, columns): Σ x over units; a unit without an event counts 0."""
    squares: FloatArray
    """(candidates, columns): Σ x²."""
    control: RoundTotals | None = None
    """The same of the control's units alone; None without a control."""

    @property
    def events(self) -> FloatArray:
        """(candidates, columns): lower bound of the units with an event, (Σx)² / Σx² by Cauchy and Schwarz."""
        return _effective_events(self.sums, self.squares)

    @classmethod
    def from_cells(
        cls,
        candidates: NDArray[np.int64],
        units: FloatArray,
        mean: FloatArray,
        variation: FloatArray,
        empty: FloatArray,
    ) -> RoundTotals:
        """Return the totals of cells, several of which may be of one candidate.

        `mean` and `variation` (Σ(x − mean)²) are (cells, columns), and `empty` is the value of a unit without events in
        each column.

        >>> import numpy as np
        >>> cells = np.array([[0.5], [2.0]]), np.array([[1.0], [0.0]])
        >>> totals = RoundTotals.from_cells(np.array([0, 2]), np.array([4.0, 1.0]), *cells, np.zeros(1))
        >>> totals.sums[:, 0].tolist(), totals.squares[:, 0].tolist()
        ([2.0, 0.0, 2.0], [2.0, 0.0, 4.0])
        """
        size = int(candidates.max(initial=-1)) + 1
        width = len(empty)
        totals = cls(np.zeros(size), np.zeros((size, width)), np.zeros((size, width)))
        above = mean - empty
        above[np.abs(above) <= 1e-9 * np.abs(empty)] = 0.0  # engines round a mean of equal numbers
        np.add.at(totals.units, candidates, units)
        np.add.at(totals.sums, candidates, units[:, None] * above)
        np.add.at(totals.squares, candidates, variation + units[:, None] * above**2)
        return totals


@dataclass(frozen=True, slots=True, eq=False)
class LevelComparison:
    """Levels of some columns in a round, relative to their levels in earlier rounds."""

    ratios: FloatArray
    """(rounds, columns): log(level now / level then)."""
    precision: FloatArray
    """(rounds, columns): 1 / the relative variance of the sum expected now: events, if all counted alike."""
    expected: FloatArray
    """(rounds, columns): units with an event expected now, at the level of then."""
    weights: FloatArray
    """(rounds, columns), between 0 and 1: weight of each round in the scatter of levels, less for more noise."""

    @classmethod
    def compare(
        cls,
        now_events: FloatArray,
        then_events: FloatArray,
        expected: FloatArray,
        now_units: FloatArray,
        then_units: FloatArray,
    ) -> LevelComparison:
        """Compare a round with earlier ones, given effective events for the units of now.

        Half an event is added to the counts of both rounds, because either may have none.
        """
        compared = (now_units > 0) & (then_units > 0)
        scale = np.where(compared, then_units / np.maximum(now_units, 1.0), 1.0)
        own = then_events * scale
        ratios = np.log(now_events + 0.5) + np.log(scale) - np.log(own + 0.5)
        typical = own.sum(axis=0) / np.maximum(then_units.sum(axis=0), 1.0) * then_units
        weights = np.where(compared, typical / (typical + PRIOR_SPREAD**-2), 0.0)
        return cls(np.where(compared, ratios, 0.0), then_events, expected, weights)

    @property
    def rounds(self) -> FloatArray:
        """(columns,): effective number of rounds of the comparison."""
        return np.asarray(self.weights.sum(axis=0))

    def mean(self, numbers: FloatArray) -> FloatArray:
        """Return the weighted mean over rounds, (columns,)."""
        return np.asarray((self.weights * numbers).sum(axis=0) / np.maximum(self.rounds, 1e-9))

    @property
    def degrees(self) -> FloatArray:
        """(columns,): degrees of freedom of the scatter."""
        return PRIOR_DEGREES + np.maximum(self.rounds - 1.0, 0.0)

    @property
    def spread(self) -> FloatArray:
        """(columns,): the standard deviation with which the next round's log level is predicted."""
        squares = (self.weights * (self.ratios - self.mean(self.ratios)) ** 2).sum(axis=0)
        between = (PRIOR_DEGREES * PRIOR_SPREAD**2 + squares) / self.degrees
        return np.asarray(np.sqrt(between * (1.0 + 1.0 / np.maximum(self.rounds, 1e-9))))

    @property
    def expected_events(self) -> FloatArray:
        """(columns,): units with an event expected at the average level."""
        return self.mean(self.expected)

    @property
    def enough(self) -> NDArray[np.bool_]:
        """(columns,): True if enough events are expected for none to be a shortage."""
        lowest = self.expected_events * np.exp(-self.spread)
        return (self.expected_events >= MIN_EXPECTED_EVENTS) & (lowest >= MIN_LOWEST_EVENTS)

    @property
    def p_values(self) -> FloatArray:
        """(columns,): the chance of so low a level, with Student's t for a scatter that is itself estimated."""
        noise = 1.0 / np.maximum(self.mean(self.precision), 1e-9)
        return np.asarray(stdtr(self.degrees, self.mean(self.ratios) / np.sqrt(self.spread**2 + noise)))


def find_shortages(now: RoundTotals, earlier: Sequence[RoundTotals], events: Sequence[str]) -> list[EventShortage]:
    """Return the shortages of a round; none if it has the events that are expected of its units.

    `events` names the event that each column reads. Of many earlier rounds, pass the latest MAX_EARLIER_ROUNDS.

    >>> import numpy as np
    >>> def likes(number): return RoundTotals(np.array([1000.0]), np.array([[number]]), np.array([[number]]))
    >>> [shortage.kind for shortage in find_shortages(likes(0.0), [likes(90.0), likes(110.0)], ["like"])]
    ['no_events', 'none']
    >>> find_shortages(likes(25.0), [likes(90.0), likes(110.0)], ["like"])
    []
    """
    units = float(now.units.sum())
    if not units:
        return []
    shortages = []
    if not now.squares.any() and (no_events := _no_events(units, earlier, events)) is not None:
        shortages.append(no_events)
    if earlier:
        healthy = _control_has_events(now, earlier)
        shortages += [shortage for shortage in _column_shortages(now, earlier) if shortage.column not in healthy]
    return shortages


def _no_events(units: float, earlier: Sequence[RoundTotals], events: Sequence[str]) -> EventShortage | None:
    """Judge a round in which no event of any metric came; candidates do not matter then."""
    columns = [[column for column, event in enumerate(events) if event == name] for name in sorted(set(events))]
    counts = np.array(
        [sum(totals.events.sum(axis=0)[event_columns].max() for event_columns in columns) for totals in earlier]
    )
    before = np.array([totals.units.sum() for totals in earlier])
    if not counts.any():
        first = before.sum() < MIN_FIRST_UNITS <= before.sum() + units  # asked once: then a person has confirmed it
        return EventShortage("no_events", None, int(units), 0.0, 0.0, 0.0, len(earlier)) if first else None
    expected = (counts * units / np.maximum(before, 1.0))[:, None]
    levels = LevelComparison.compare(
        np.zeros_like(expected), expected, expected, np.full_like(expected, units), before[:, None]
    )
    if not levels.enough[0]:
        return None
    number = float(levels.expected_events[0])
    return EventShortage("no_events", None, int(units), number, 0.0, number, len(earlier))


def _control_has_events(now: RoundTotals, earlier: Sequence[RoundTotals]) -> set[int]:
    """Return the columns in which the control's level is near its earlier level."""
    before = [totals.control for totals in earlier if totals.control is not None]
    units = sum(float(totals.units.sum()) for totals in before)
    if now.control is None or not units:
        return set()
    share = float(now.control.units.sum()) / units
    expected = share * np.sum([totals.sums.sum(axis=0) for totals in before], axis=0)
    events = share * np.sum([totals.events.sum(axis=0) for totals in before], axis=0)
    level = np.divide(now.control.sums.sum(axis=0), expected, out=np.zeros_like(expected), where=expected != 0)
    return set(np.flatnonzero((events >= MIN_CONTROL_EVENTS) & (level >= MIN_CONTROL_LEVEL)).tolist())


def _column_shortages(now: RoundTotals, earlier: Sequence[RoundTotals]) -> Iterator[EventShortage]:
    """Judge each column by the candidates that the round shares with each earlier one.

    Candidates are weighted by n·m/(n+m), after Mantel and Haenszel, and sums are scaled to the units of now.
    """
    size = max(len(totals.units) for totals in (now, *earlier))
    units_now, units_then = _pad(now.units, size), np.stack([_pad(totals.units, size) for totals in earlier])
    shared = (units_now > 0) & (units_then > 0)
    now_units, then_units = (np.where(shared, units, 0.0).sum(axis=1)[:, None] for units in (units_now, units_then))
    weights = np.where(shared, units_now * units_then / np.maximum(units_now + units_then, 1.0), 0.0)
    weights *= now_units / np.maximum(weights.sum(axis=1), 1e-9)[:, None]

    def weighted(sums: FloatArray, units: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("rk,rkj->rj", weights / np.maximum(units, 1.0), sums))

    earlier_sums = [
        np.stack([_pad(part, size) for part in parts]) for parts in zip(*map(_arrays, earlier), strict=True)
    ]
    observed, observed_squares = (
        weighted(np.broadcast_to(_pad(part, size), earlier_sums[0].shape), units_now)
        for part in (now.sums, now.squares)
    )
    expected, squares, events = (weighted(part, units_then) for part in earlier_sums)
    ratios = np.divide(observed, expected, out=np.zeros_like(observed), where=expected != 0)
    signed = (ratios < 0).any(axis=0)  # a level that changes its sign has no logarithm
    then_events = _effective_events(expected, squares)
    now_events = np.where(
        expected != 0, np.maximum(ratios, 0.0) * then_events, _effective_events(observed, observed_squares)
    )
    levels = LevelComparison.compare(now_events, then_events, events, now_units, then_units)
    empty = ~now.squares.any(axis=0)
    missing = empty & levels.enough
    fell = ~empty & ~signed & (levels.expected_events >= MIN_EXPECTED_EVENTS) & (levels.p_values < MAX_P_VALUE)
    for column in np.flatnonzero((missing | fell) & (levels.rounds > 0)).tolist():
        yield EventShortage(
            kind="none" if missing[column] else "fell",
            column=column,
            units=int(now_units.max()),
            expected=float(levels.mean(expected)[column]),
            observed=float(levels.mean(observed)[column]),
            expected_events=float(levels.expected_events[column]),
            rounds=int(shared.any(axis=1).sum()),
            p_value=None if missing[column] else float(levels.p_values[column]),
        )


def _arrays(totals: RoundTotals) -> tuple[FloatArray, FloatArray, FloatArray]:
    return totals.sums, totals.squares, totals.events


def _pad(numbers: FloatArray, size: int) -> FloatArray:
    return np.concatenate([numbers, np.zeros((size - len(numbers), *numbers.shape[1:]))])


def _effective_events(sums: FloatArray, squares: FloatArray) -> FloatArray:
    """Return (Σx)² / Σx², which is at most the number of units with an event."""
    return np.divide(np.square(sums), squares, out=np.zeros_like(squares), where=squares > 0)
