"""Stop level: the level of a guardrail's metric at which traffic is stopped, and the evidence that it is crossed.

A change against the control is judged round by round (`guardrail_evidence`). The rest of this module judges levels in a
metric's own units, against the concurrent control or over whole days.

A metric changes by the hour for all arms, so a number is not compared with single rounds.

With a control, two kinds of evidence count. The stop level c becomes a share of the control, c over the control's mean
on whole days, and every round asks whether the policy is beyond that share of its own control. And whole days of the
policy are compared with c; that counts as far as the policy is also worse than its control. The share is at most one,
so a policy that is not worse than the control never counts as harm.

Without a control, only whole days are compared with c.

Before a day is over neither is possible. Until then only a crash counts: a policy beyond the stop level by more than
`MAX_DAY_FACTOR`. Without a control, crashes are looked for in every round of every day.

Each kind is an e-process with its share of the allowed error, so their weighted sum has the error of all together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import MeasurementError
from pasto.inference import CellStatistics, Quantity, reach_at_horizon, unit_covariances
from pasto.inference.betting import ValueRange
from pasto.inference.comparison import MIN_SEQUENCE_UNITS
from pasto.inference.guardrail_evidence import (
    FloorEvidence,
    absolute_evidence,
    floor_evidence,
    relative_evidence,
)

Basis = Literal["control", "days"]
"""Basis on which a level in a metric's own units is judged: the concurrent control, or whole days."""

DAY_SECONDS = 86_400.0
MAX_DAY_FACTOR = 2.0
"""Largest factor between the mean of a whole day and that of a part of it."""
STUDY_ERROR = 0.05
"""Chance of error of all guardrails of a study, for which bounds on the control's level are computed."""
REFERENCE_SHARE = 0.1
"""Share of it that the bounds on the control's level get."""
ERROR_SHARES: dict[Basis, tuple[float, float, float]] = {"control": (0.1, 0.4, 0.4), "days": (0.1, 0.0, 0.9)}
"""Shares of the error for a crash, for the share of the control and for whole days."""


@dataclass(frozen=True, slots=True)
class StopLevel:
    """Level of a guardrail's metric at which its traffic is stopped.

    >>> StopLevel("like_rate", Quantity(1, 2), -0.05, relative=True).relative
    True
    """

    name: str
    quantity: Quantity
    value: float
    """The level itself, or the change against the control: −0.05 is five percent below it."""
    relative: bool = False
    at_most: bool = False
    """True for metrics that must not rise above the level."""
    within: ValueRange | None = None
    """Range of a unit's value or, for a ratio, of its numerator."""
    denominator_within: ValueRange | None = None
    basis: Basis | None = None
    """Basis for a level in the metric's own units; None compares every round with the number itself."""

    @property
    def uses_control(self) -> bool:
        """True if every round is compared with its control."""
        return self.relative or self.basis == "control"

    @property
    def has_value_range(self) -> bool:
        """True if the metric is judged by its declared range."""
        if self.quantity.denominator is None:
            return self.within is not None
        return not self.uses_control and self.within is not None and self.denominator_within is not None


@dataclass(frozen=True, slots=True, eq=False)
class RoundSum:
    """Sum of rounds of one arm, in the columns of one stop level."""

    rounds: int
    seconds: float
    first_round: int
    """Number of the first of them."""
    units: FloatArray
    """(…)."""
    mean: FloatArray
    """(…, columns)."""
    cross: FloatArray
    """(…, columns, columns): Σ(x − mean)(x − mean)ᵀ over all units."""
    noise: FloatArray
    """(…, columns, columns): the covariance of a unit within its round, summed over units."""

    @classmethod
    def of_round(
        cls, cells: CellStatistics, covariances: FloatArray, arm: int, number: int, seconds: float
    ) -> RoundSum:
        """Return the only round of `cells`."""
        units = cells.units[..., 0, arm]
        mean = np.where(units[..., None] > 0, cells.mean[..., 0, arm, :], 0.0)
        noise = units[..., None, None] * covariances[..., 0, arm, :, :]
        return cls(1, seconds, number, units, mean, cells.cross[..., 0, arm, :, :], noise)

    def join(self, later: RoundSum) -> RoundSum:
        """Return these rounds together with later ones."""
        units = self.units + later.units
        later_share = later.units / np.maximum(units, 1.0)
        difference = later.mean - self.mean
        between = (self.units * later_share)[..., None, None] * difference[..., :, None] * difference[..., None, :]
        return RoundSum(
            self.rounds + later.rounds,
            self.seconds + later.seconds,
            self.first_round,
            units,
            np.asarray(self.mean + later_share[..., None] * difference),
            np.asarray(self.cross + later.cross + between),
            self.noise + later.noise,
        )

    def as_cells(self) -> tuple[CellStatistics, FloatArray]:
        """Return all units as one cell of one round, with the covariance of a unit."""
        covariance = self.noise / np.maximum(self.units, 1.0)[..., None, None]
        cells = CellStatistics(
            self.units[..., None, None], self.mean[..., None, None, :], self.cross[..., None, None, :, :]
        )
        return cells, covariance[..., None, None, :, :]

    def level(self) -> tuple[FloatArray, FloatArray]:
        """Return the metric's level and its standard error; NaN if there are too few units."""
        value, form = self.mean[..., 0], np.ones_like(self.mean)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.mean.shape[-1] > 1:
                value = value / self.mean[..., 1]
                form = np.stack([np.ones_like(value), -value], axis=-1) / self.mean[..., 1, None]
            variance = np.einsum("...i,...ij,...j->...", form, self.noise, form) / np.maximum(self.units, 1.0) ** 2
        usable = (self.units >= MIN_SEQUENCE_UNITS) & np.isfinite(value) & np.isfinite(variance)
        error = np.sqrt(np.where(usable, np.maximum(variance, 0.0), np.nan))
        return np.asarray(np.where(usable, value, np.nan)), np.asarray(error)


@dataclass(frozen=True, slots=True, eq=False)
class LevelTrack:
    """Track of one kind of evidence: its logarithm so far, and the state to continue from."""

    log: FloatArray | float = -np.inf
    evidence_state: FloorEvidence | None = None

    @property
    def since(self) -> NDArray[np.intp]:
        """Round in which the harm most likely began."""
        return np.asarray(0) if self.evidence_state is None else self.evidence_state.since


@dataclass(frozen=True, slots=True, eq=False)
class LevelEvidence:
    """Evidence on one stop level, and the state to continue from."""

    basis: Basis
    crash: LevelTrack = LevelTrack()
    """Of every round, against the stop level moved by `MAX_DAY_FACTOR`; with a control, on the first day only."""
    share: LevelTrack = LevelTrack()
    """Of every round, that it is beyond the allowed share of its control."""
    worse: LevelTrack = LevelTrack()
    """Of every round, that it is worse than its control."""
    level: LevelTrack = LevelTrack()
    """Of every whole day, that it is beyond the stop level."""
    served_today: RoundSum | None = None
    """Rounds since the last whole day."""
    control_today: RoundSum | None = None
    reference: RoundSum | None = None
    """Whole days of the control."""
    days: int = 0
    """Number of whole days of the control."""

    @property
    def log(self) -> FloatArray:
        """Logarithm of the evidence of all kinds together."""
        return np.asarray(np.logaddexp.reduce(self._weighted(), axis=0))

    @property
    def since(self) -> NDArray[np.intp]:
        """Round in which the harm most likely began."""
        rounds = np.broadcast_arrays(self.crash.since, self.share.since, self.level.since)
        return np.asarray(np.choose(np.argmax(self._weighted(), axis=0), rounds))

    def _weighted(self) -> FloatArray:
        """Return the logarithms for a crash, for the share and for whole days, (3, …), with their shares."""
        level = np.asarray(self.level.log)
        if self.basis == "control":
            level = np.minimum(level, self.worse.log)
        logs = np.stack(np.broadcast_arrays(self.crash.log, self.share.log, level))
        with np.errstate(divide="ignore"):
            parts = np.log(np.array(ERROR_SHARES[self.basis]))
        return np.asarray(logs + parts.reshape(3, *(1,) * (logs.ndim - 1)))

    def rearm(self) -> LevelEvidence:
        """Return the state without evidence; the control's level stays known."""
        return LevelEvidence(self.basis, control_today=self.control_today, reference=self.reference, days=self.days)

    def allowed_share(self, floor: StopLevel, claims: int = 1) -> FloatArray:
        """Return the share of the control at which traffic is stopped, (…); NaN if it is not known yet.

        The control's level is taken at the end of its confidence interval that allows more. The intervals of all days
        hold together, with a chance of error of `REFERENCE_SHARE`, by the union bound.
        """
        if self.reference is not None:
            reference, bounds, factor = self.reference, self.days, 1.0
        elif self.control_today is not None:
            reference, bounds, factor = self.control_today, self.control_today.rounds, MAX_DAY_FACTOR
        else:
            return np.asarray(np.nan)
        error = REFERENCE_SHARE * STUDY_ERROR / claims / 2.0 / (bounds * (bounds + 1.0))
        value, deviation = reference.level()
        reach = reach_at_horizon(error, sides=1) * deviation
        with np.errstate(divide="ignore", invalid="ignore"):
            if floor.at_most:
                lower = (value - reach) / factor
                share = np.where(lower > 0, np.maximum(floor.value / lower, 1.0), np.nan)
            else:
                upper = (value + reach) * factor
                share = np.where(upper > floor.value, floor.value / upper, 1.0)
        return np.asarray(np.where(np.isfinite(value), share, np.nan))

    def allowed_change(self, floor: StopLevel, claims: int = 1) -> float | None:
        """Return the same for a single study as a change against the control, −0.05 for five percent less."""
        share = float(self.allowed_share(floor, claims))
        return share - 1.0 if np.isfinite(share) else None

    def add_round(
        self,
        floor: StopLevel,
        cells: CellStatistics,
        covariances: FloatArray,
        *,
        number: int,
        seconds: float,
        claims: int = 1,
        judged: bool = True,
    ) -> LevelEvidence:
        """Return the state after one round: `cells` has the served arm and the control, in the floor's columns.

        A round that is not judged only adds to the control's level.
        """
        state = self
        if judged and (cells.units[..., 0] > 0).any():
            state = self._judge_round(floor, cells, covariances, number, claims)
        if judged:
            state = state._judge_day(floor, RoundSum.of_round(cells, covariances, 0, number, seconds))
        if self.basis == "control":
            state = state._add_control(RoundSum.of_round(cells, covariances, 1, number, seconds))
        return state

    def _judge_round(
        self, floor: StopLevel, cells: CellStatistics, covariances: FloatArray, number: int, claims: int
    ) -> LevelEvidence:
        """Judge a round by itself."""
        if self.basis == "days":
            crash_value = crash_level(floor)
            if crash_value is None:
                return self
            crash_floor = replace(floor, value=crash_value)
            evidence = absolute_evidence(cells, crash_floor, 0, covariances, self.crash.evidence_state, [number])
            return replace(self, crash=_latest_track(evidence))

        def compare(track: LevelTrack, share: FloatArray) -> LevelTrack:
            has_share = np.isfinite(share)[..., None]
            if not has_share.any():
                return track
            usable_cells = replace(cells, units=np.where(has_share[..., None], cells.units, 0.0))
            factor = np.where(has_share, share[..., None], 1.0)
            return _latest_track(
                relative_evidence(usable_cells, floor, 0, 1, covariances, track.evidence_state, [number], factor)
            )

        studies = cells.units.shape[:-2]
        share = np.broadcast_to(self.allowed_share(floor, claims), studies)
        state = replace(self, worse=compare(self.worse, np.ones(studies)))
        if self.reference is None:
            return replace(state, crash=compare(self.crash, share))
        return replace(state, share=compare(self.share, share))

    def _judge_day(self, floor: StopLevel, served: RoundSum) -> LevelEvidence:
        """Add a round to the day, and judge the day if it is over."""
        today = served if self.served_today is None else self.served_today.join(served)
        if today.seconds < DAY_SECONDS:
            return replace(self, served_today=today)
        if not (today.units > 0).any():
            return replace(self, served_today=None)
        cells, covariances = today.as_cells()
        evidence = absolute_evidence(cells, floor, 0, covariances, self.level.evidence_state, [today.first_round])
        return replace(self, served_today=None, level=_latest_track(evidence))

    def _add_control(self, control: RoundSum) -> LevelEvidence:
        """Add a round to the control's level."""
        today = control if self.control_today is None else self.control_today.join(control)
        if today.seconds < DAY_SECONDS:
            return replace(self, control_today=today)
        reference = today if self.reference is None else self.reference.join(today)
        return replace(self, control_today=None, reference=reference, days=self.days + 1)


def _latest_track(evidence: tuple[FloatArray, FloorEvidence]) -> LevelTrack:
    return LevelTrack(evidence[0][..., -1], evidence[1])


def crash_level(floor: StopLevel) -> float | None:
    """Return the level beyond which a part of a day counts as a crash; None for a stop level of zero.

    >>> lowest, highest = StopLevel("likes", Quantity(0), 0.04), StopLevel("errors", Quantity(0), 0.04, at_most=True)
    >>> crash_level(lowest), crash_level(highest)
    (0.02, 0.08)
    """
    if not floor.value:
        return None
    return floor.value / MAX_DAY_FACTOR if (floor.value > 0) != floor.at_most else floor.value * MAX_DAY_FACTOR


def gather_evidence(
    cells: CellStatistics,
    floor: StopLevel,
    served: int,
    control: int | None,
    covariances: FloatArray | None = None,
    before: FloorEvidence | LevelEvidence | None = None,
    numbers: Sequence[int] | None = None,
    *,
    seconds: Sequence[float] | None = None,
    claims: int = 1,
    judged: bool = True,
) -> tuple[FloatArray, FloorEvidence | LevelEvidence]:
    """Return the logarithm of the evidence on any floor after every round, (…, rounds), and the state to continue from.

    `seconds` is the length of every round; without it, each counts as a whole day. `claims` is the number of
    guardrails that are judged together.

    >>> hours = np.arange(72)
    >>> swing = 1.0 + 0.1 * np.sin(2.0 * np.pi * hours / 24.0)
    >>> mean = 10.0 * swing[:, None] * np.array([0.99, 1.0])
    >>> cells = CellStatistics(np.full((72, 2), 5e4), mean[..., None], np.full((72, 2, 1, 1), 5e4))
    >>> for basis in (None, "control", "days"):
    ...     floor = StopLevel("likes", Quantity(0), 9.5, basis=basis)
    ...     log, _ = gather_evidence(cells, floor, 0, 1, seconds=[3600.0] * 72)
    ...     print(basis, bool(log.max() > np.log(20)))
    None True
    control False
    days False
    """
    if floor.basis is None:
        assert not isinstance(before, LevelEvidence)  # noqa: S101 -- the same floor gathered it
        return floor_evidence(cells, floor, served, control, covariances, before, numbers)
    if control is None and floor.basis == "control":
        raise MeasurementError(
            f"the floor of {floor.name!r} is judged against the control, but the study has no control"
        )
    if covariances is None:
        covariances = unit_covariances(cells, running=True)
    state = before if isinstance(before, LevelEvidence) else LevelEvidence(floor.basis)
    columns = [column for column in (floor.quantity.numerator, floor.quantity.denominator) if column is not None]
    arms = [served] if control is None else [served, control]
    narrow_floor = replace(floor, quantity=Quantity(0, None if len(columns) == 1 else 1))
    units, mean = cells.units[..., arms], cells.mean[..., arms, :][..., columns]
    cross, spread = (table[..., arms, :, :][..., columns, :][..., columns] for table in (cells.cross, covariances))
    evidence = np.empty(units.shape[:-1])
    for index in range(units.shape[-2]):
        rounds = [index]
        state = state.add_round(
            narrow_floor,
            CellStatistics(units[..., rounds, :], mean[..., rounds, :, :], cross[..., rounds, :, :, :]),
            spread[..., rounds, :, :, :],
            number=index if numbers is None else numbers[index],
            seconds=DAY_SECONDS if seconds is None else seconds[index],
            claims=claims,
            judged=judged,
        )
        evidence[..., index] = state.log
    return evidence, state
