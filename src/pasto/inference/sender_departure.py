"""Sender check: find the sender whose units depart from those of the others, at every look.

A sender may have any level and any users. Three things are tested:

- its shares over cells, against the shares that the policy draws;
- its effects, the means of its cells around its own level, against the others' effects in the same rounds: over all
  rounds together, and over recent rounds, which are not diluted by honest rounds before them;
- its level in the last round, against its own level before, moved as the others' level moved.

Effects may differ between senders for good reasons. An effect therefore departs only if it lies outside the range from
none to twice the others' effect, scaled by the senders' levels, by more than a slack. To move a
candidate's mean by the difference between candidates, a sender with a tenth of all units needs ten times as much.

All tests hold over all looks and all senders together: the i-th sender and the t-th look get 1/(i (i + 1)) and
1/(t (t + 1)) of the allowed false alarms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import logsumexp, stdtr

from pasto.arrays import FloatArray
from pasto.inference.round_data import CellKey

MAX_FALSE_EFFECTS = 0.002
MAX_FALSE_SHARES = 0.0005
"""Largest chances of a false alarm over a whole study, for one way of identifying senders."""
ALL_ROUNDS_PART, RECENT_PART, LEVEL_PART = 0.5, 0.25, 0.25
"""Parts of the false alarms of effects: over all rounds, over recent rounds, and of levels."""
RECENT_DECAY = 0.6
"""Weight of a round in the sums of recent rounds, relative to the round after it."""
MAX_EFFECT_FACTOR = 2.0
"""Largest ratio of a sender's effect to the others' effect."""
MAX_LEVEL_FACTOR = 5.0
"""Largest factor by which effects are scaled with a sender's level."""
MAX_LEVEL_CHANGE = 3.0
"""Largest factor, up or down, between a sender's level in a round and its level before."""
SLACK_EFFECTS, SLACK_DEVIATIONS = 0.5, 0.05
"""Slack, in standard deviations of the others' effects and of their units."""
MIN_CELL_UNITS = 10
MIN_ROUND_CELL_UNITS = 2
"""Units that a cell needs in a round to count, because the scatter of one unit is unknown."""
MAX_CELLS = 32
"""Largest number of cells stored for a sender: those with most units."""
SHARE_FACTORS = np.array([0.0, 0.25, 0.5, 0.8, 1.25, 2.0, 4.0, 16.0])
"""Factors by which a sender's share of a cell is wrong, in the alternatives that are tested."""


@dataclass(frozen=True, slots=True, eq=False)
class SenderCells:
    """Units of one sender in a round, by cell."""

    units: FloatArray
    """(cells,)."""
    mean: FloatArray
    """(cells, columns)."""
    scatter: FloatArray
    """(cells, columns): Σ (x − mean)² over the cell's units."""

    @classmethod
    def pooled(cls, senders: Sequence[SenderCells]) -> SenderCells:
        """Return the units of several senders together.

        >>> import numpy as np
        >>> alone = [SenderCells(np.array([2.0]), np.array([[mean]]), np.array([[1.0]])) for mean in (1.0, 3.0)]
        >>> both = SenderCells.pooled(alone)
        >>> both.mean[0, 0], both.scatter[0, 0]
        (np.float64(2.0), np.float64(6.0))
        """
        units = np.sum([cells.units for cells in senders], axis=0)
        sums = np.sum([cells.units[:, None] * cells.mean for cells in senders], axis=0)
        mean = sums / np.maximum(units, 1.0)[:, None]
        scatter = np.sum([cells.scatter + cells.units[:, None] * (cells.mean - mean) ** 2 for cells in senders], axis=0)
        return cls(np.asarray(units), np.asarray(mean), np.asarray(scatter))


@dataclass(frozen=True, slots=True)
class Departure:
    """The first look at which a sender departed from the others."""

    test: str
    """"shares", "effect" or "level"."""
    p_value: float
    """Corrected for looks and senders."""
    cell: CellKey | None = None
    column: int | None = None
    effect: float | None = None
    """The sender's mean in the cell around its own level; for a level, its mean in the round."""
    others: float | None = None
    """The same of the other senders; for a level, the sender's own mean before."""


@dataclass(frozen=True, slots=True)
class SenderEvidence:
    """State of one sender between looks; plain values, to be stored as JSON.

    Sums over rounds are weighted by the sender's units in the cell.
    """

    place: int
    """Among the senders of the study, in the order of their first look, from 1."""
    looks: int = 0
    share_evidence: float = 0.0
    """Average likelihood ratio for wrong shares."""
    cells: tuple[CellKey, ...] = ()
    units: tuple[float, ...] = ()
    """By cell."""
    sums: tuple[tuple[tuple[float, ...], ...], ...] = ()
    """By cell: effect, the others' effect, and both variances, by column each."""
    level: tuple[tuple[float, ...], ...] = field(default=())
    """Σ units × the sender's level, the others' level, and the others' variance of a unit, by column each."""
    recent_units: tuple[float, ...] = ()
    recent_sums: tuple[tuple[tuple[float, ...], ...], ...] = ()
    recent_level: tuple[tuple[float, ...], ...] = ()
    """The same sums over recent rounds: a round weighs RECENT_DECAY times what the next one does."""
    departure: Departure | None = None


def share_log_ratio(units: FloatArray, shares: FloatArray) -> float:
    """Return the logarithm of the likelihood ratio of wrong shares in one round, averaged over cells and factors.

    Its mean is 1 if the units were drawn with the shares, for any number of units. `shares` sum to one.

    >>> import numpy as np
    >>> round(share_log_ratio(np.array([60.0, 0.0]), np.array([0.5, 0.5])), 1)
    38.8
    """
    total = units.sum()
    tested = (shares > 0) & (shares < 1)
    if not total or not tested.any():
        return np.inf if (units[shares <= 0] > 0).any() else 0.0
    if (units[shares <= 0] > 0).any():
        return np.inf
    # A whole cell can take part only if its share times the factor is a share.
    allowed = tested[:, None] & (shares[:, None] * SHARE_FACTORS < 1.0)
    factors = np.where(allowed, SHARE_FACTORS, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.where(units[:, None] > 0, units[:, None] * np.log(factors), 0.0)
        rest = (total - units)[:, None] * np.log((1.0 - shares[:, None] * factors) / (1.0 - shares[:, None]))
        rest = np.where((total - units)[:, None] > 0, rest, 0.0)
    ratios = np.where(allowed, own + rest, 0.0)
    return float(logsumexp(ratios[tested]) - np.log(ratios[tested].size))


def update_evidence(
    evidence: SenderEvidence,
    own: SenderCells,
    others: SenderCells,
    keys: Sequence[CellKey],
    shares: FloatArray,
    *,
    accumulate: bool = True,
) -> SenderEvidence:
    """Add a round's units of a sender, and look.

    `own` and `others` have a row for each of `keys`, and `shares` are the policy's. Without `accumulate` the round
    replaces the sums: its units are those of earlier rounds, or contain them.
    """
    looks = evidence.looks + 1
    ratio = float(np.exp(min(share_log_ratio(own.units, shares), 600.0)))
    weight = 1.0 / (looks * (looks + 1))
    before = evidence.share_evidence
    # Rounds of new units multiply from any first round on; others are averaged, which needs no independence.
    share_evidence = min(ratio * (before + weight) if accumulate else before + weight * ratio, 1e300)
    added = _effect_sums(own, others, keys)
    merged = recent = added
    if accumulate:
        merged, recent = _merge_sums(evidence, added), _merge_sums(_recent_evidence(evidence), added, RECENT_DECAY)
    cells = sorted(merged[0], key=lambda cell: (-merged[0][cell][0], cell))[:MAX_CELLS]
    units, sums = _columns(merged, cells)
    recent_units, recent_sums = _columns(recent, cells)
    updated = replace(
        evidence,
        looks=looks,
        share_evidence=share_evidence,
        cells=tuple(cells),
        units=units,
        sums=sums,
        level=tuple(map(tuple, merged[1].tolist())),
        recent_units=recent_units,
        recent_sums=recent_sums,
        recent_level=tuple(map(tuple, recent[1].tolist())),
    )
    if updated.departure is not None:
        return updated
    level = _largest_level_change(evidence, added) if accumulate else None
    return replace(updated, departure=_find_departure(updated, level))


_Sums = tuple[dict[CellKey, tuple[float, FloatArray]], FloatArray]


def _effect_sums(own: SenderCells, others: SenderCells, keys: Sequence[CellKey]) -> _Sums:
    """Return one round's sums by cell, and of the levels; empty if fewer than two cells can be compared."""
    width = own.mean.shape[1]
    used = (own.units >= MIN_ROUND_CELL_UNITS) & (others.units >= MIN_ROUND_CELL_UNITS)
    if used.sum() < 2:
        return {}, np.zeros((3, width))
    units, their_units = own.units[used], others.units[used]
    weights = (units / units.sum())[:, None]
    mean, their_mean = own.mean[used], others.mean[used]
    pooled = own.scatter[used].sum(axis=0) / (units.sum() - len(units))
    their_pooled = others.scatter[used].sum(axis=0) / (their_units.sum() - len(units))
    least = 1e-3 * SenderCells.pooled([own, others]).scatter[used].sum(axis=0) / (units.sum() + their_units.sum())
    # The largest of three scatters: an outlier raises the mean and its error alike, and its absence lowers neither.
    floor = np.maximum(np.maximum(pooled, their_pooled), least)
    variance = np.maximum(own.scatter[used] / (units - 1.0)[:, None], floor) / units[:, None]
    their_floor = np.maximum(their_pooled, least)
    their_variance = np.maximum(others.scatter[used] / (their_units - 1.0)[:, None], their_floor)
    their_variance /= their_units[:, None]
    level, their_level = (weights * mean).sum(axis=0), (weights * their_mean).sum(axis=0)
    variance = variance + (weights**2 * variance).sum(axis=0)
    their_variance = their_variance + (weights**2 * their_variance).sum(axis=0)
    count = units[:, None]
    sums = np.stack(
        [count * (mean - level), count * (their_mean - their_level), count**2 * variance, count**2 * their_variance],
        axis=1,
    )
    names = [key for key, is_used in zip(keys, used.tolist(), strict=True) if is_used]
    cells = {name: (float(number), part) for name, number, part in zip(names, units.tolist(), sums, strict=True)}
    return cells, units.sum() * np.stack([level, their_level, their_pooled])


def _merge_sums(evidence: SenderEvidence, added: _Sums, decay: float = 1.0) -> _Sums:
    """Add a round to sums whose weights are multiplied by `decay`."""
    weights = (decay ** np.array([1, 1, 2, 2]))[:, None]
    cells = dict(added[0])
    for cell, units, sums in zip(evidence.cells, evidence.units, evidence.sums, strict=True):
        here = cells.get(cell, (0.0, 0.0))
        cells[cell] = (decay * units + here[0], weights * np.array(sums) + here[1])
    return cells, added[1] + decay * np.array(evidence.level) if evidence.level else added[1]


def _recent_evidence(evidence: SenderEvidence) -> SenderEvidence:
    """Return the evidence with the sums of recent rounds in place of those of all rounds; empty in older records."""
    return replace(
        evidence,
        cells=evidence.cells if evidence.recent_units else (),
        units=evidence.recent_units,
        sums=evidence.recent_sums,
        level=evidence.recent_level,
    )


def _columns(
    added: _Sums, cells: Sequence[CellKey]
) -> tuple[tuple[float, ...], tuple[tuple[tuple[float, ...], ...], ...]]:
    """Return units and sums of some cells; zero if there are none."""
    missing = (0.0, np.zeros((4, added[1].shape[1])))
    rows = [added[0].get(cell, missing) for cell in cells]
    return tuple(units for units, _ in rows), tuple(tuple(map(tuple, sums.tolist())) for _, sums in rows)


def _find_departure(updated: SenderEvidence, level: Departure | None) -> Departure | None:
    """Compare a sender's evidence with its part of the allowed false alarms."""
    part = 1.0 / (updated.place * (updated.place + 1))
    by_shares = 1.0 / max(updated.share_evidence, 1.0) / part
    if by_shares <= MAX_FALSE_SHARES:
        return Departure("shares", by_shares)
    candidates = (
        (_largest_effect(updated), ALL_ROUNDS_PART),
        (_largest_effect(_recent_evidence(updated)), RECENT_PART),
        (level, LEVEL_PART),
    )
    part /= updated.looks * (updated.looks + 1)
    corrected = [
        replace(departure, p_value=departure.p_value / (part * weight))
        for departure, weight in candidates
        if departure is not None
    ]
    smallest = min(corrected, key=lambda departure: departure.p_value, default=None)
    return None if smallest is None or smallest.p_value > MAX_FALSE_EFFECTS else smallest


def _largest_level_change(before: SenderEvidence, added: _Sums) -> Departure | None:
    """Return the level of a round that departs most from the rounds before, with a p-value corrected for columns.

    Allowed is a factor of MAX_LEVEL_CHANGE from the level before, and from that level moved as the others' level moved.
    Levels that are not positive have no factor, and are not compared.
    """
    cells, level_sums = added
    counts = np.array([units for units, _ in cells.values()])
    past, units = sum(before.units), float(counts.sum())
    if min(past, units) < MIN_CELL_UNITS:
        return None
    own_before, their_before, _ = np.array(before.level) / past
    own, theirs, deviation = level_sums / units
    tested = (own_before > 0) & (their_before > 0) & (theirs > 0)
    if not tested.any():
        return None
    # A cell's variance contains that of the level, so its sum over cells is the level's times 1 + Σ weight². That is at
    # least 1 + 1 / cells.
    sums = np.array([part for _, part in cells.values()])
    variance, their_variance = sums[:, 2:].sum(axis=0) / (units**2 + (counts**2).sum())
    own_error, their_error = np.array(before.sums)[:, 2:].sum(axis=0) / (past**2 * (1.0 + 1.0 / len(before.cells)))
    ratio = own_before / np.where(tested, their_before, 1.0)
    moved = ratio * theirs
    moved_error = ratio**2 * their_variance
    moved_error += np.where(tested, moved / np.where(tested, own_before, 1.0), 0.0) ** 2 * own_error
    moved_error += np.where(tested, moved / np.where(tested, their_before, 1.0), 0.0) ** 2 * their_error
    is_higher = moved > own_before
    high, high_error = np.where(is_higher, moved, own_before), np.where(is_higher, moved_error, own_error)
    low, low_error = np.where(is_higher, own_before, moved), np.where(is_higher, own_error, moved_error)
    above = own - MAX_LEVEL_CHANGE * high
    below = low / MAX_LEVEL_CHANGE - own
    # If fewer units have a number, the variance falls with the mean; if all numbers are smaller, it falls faster.
    lowered = np.maximum(variance, own_error * past / units) / MAX_LEVEL_CHANGE
    error = np.where(
        above > below, variance + MAX_LEVEL_CHANGE**2 * high_error, lowered + low_error / MAX_LEVEL_CHANGE**2
    )
    excess = np.maximum(above, below) - SLACK_DEVIATIONS * np.sqrt(deviation)
    tested &= error > 0
    statistic = np.where(tested, np.maximum(excess, 0.0) / np.sqrt(np.where(tested, error, 1.0)), 0.0)
    p_values = 2.0 * stdtr(min(past, units) - 1.0, -statistic)
    column = int(p_values.argmin())
    p_value = float(min(1.0, p_values[column] * p_values.size))
    return Departure("level", p_value, None, column, float(own[column]), float(own_before[column]))


def _largest_effect(evidence: SenderEvidence) -> Departure | None:
    """Return the effect that departs most, with a p-value corrected for cells and columns."""
    measured = [cell for cell, units in enumerate(evidence.units) if units > 0]
    all_units, sums = np.array(evidence.units)[measured], np.array(evidence.sums)[measured]
    tested_cells = [cell for cell, units in enumerate(all_units.tolist()) if units >= MIN_CELL_UNITS]
    if len(measured) < 2 or not tested_cells:
        return None
    own_level, their_level, their_variance = np.array(evidence.level) / all_units.sum()
    ratio = np.abs(own_level) / np.maximum(np.abs(their_level), 1e-300)
    scale = np.clip(ratio, 1.0, MAX_LEVEL_FACTOR)
    effects = sums / all_units[:, None, None] ** np.array([1, 1, 2, 2])[:, None]
    spread = np.sqrt((all_units[:, None] * effects[:, 1] ** 2).sum(axis=0) / all_units.sum())
    slack = SLACK_EFFECTS * scale * spread + SLACK_DEVIATIONS * np.sqrt(their_variance)
    own, theirs, variance, their_error = effects[tested_cells].transpose(1, 0, 2)
    bound = MAX_EFFECT_FACTOR * scale * theirs
    excess = np.maximum(own - np.maximum(bound, 0.0), np.minimum(bound, 0.0) - own) - slack
    error = np.sqrt(variance + (MAX_EFFECT_FACTOR * scale) ** 2 * their_error)
    tested = error > 0
    statistic = np.divide(np.maximum(excess, 0.0), error, out=np.zeros_like(excess), where=tested)
    degrees = (all_units[tested_cells] - 1.0)[:, None]
    p_values = 2.0 * stdtr(np.broadcast_to(degrees, statistic.shape), -statistic)
    cell, column = np.unravel_index(int(p_values.argmin()), p_values.shape)
    return Departure(
        "effect",
        float(min(1.0, p_values[cell, column] * p_values.size)),
        evidence.cells[measured[tested_cells[int(cell)]]],
        int(column),
        float(own[cell, column]),
        float(theirs[cell, column]),
    )
