"""The breaker from close to close: what it has gathered of every floor, carried on without looking back.

The verdicts are those of `watch_guardrails` over all rounds together, at the cost of the new rounds alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from pasto.errors import MeasurementError
from pasto.inference import (
    CellStatistics,
    ChangeDetectorState,
    PooledStatistics,
    Quantity,
    chance_of_error,
    running_covariances,
)
from pasto.inference.guardrail_evidence import Basis, FloorEvidence, StopLevel, bounded
from pasto.inference.round_data import MeasuredRound, RoundRecord
from pasto.inference.stop_level import (
    REFERENCE_SHARE,
    STUDY_ERROR,
    LevelEvidence,
    LevelTrack,
    RoundSum,
    gather_evidence,
)

State = Literal["holds", "warning", "breach"]


@dataclass(frozen=True, slots=True)
class GuardrailVerdict:
    """What the breaker says of one guardrail."""

    name: str
    state: State
    p_value: float
    """Valid at any time and over all guardrails together."""
    round: int | None
    """Of the first alarm, counted from 0."""
    since: int | None
    """The round that the harm most likely began in, where there is a breach."""
    bounded: bool
    """Whether the metric's own range was used, and not the central limit theorem."""
    basis: Basis | None = None
    """What a level in the metric's own units is judged against."""
    allowed: float | None = None
    """The change against the control that such a level allows now, −0.05 for five percent less."""


def watch_guardrails(
    record: RoundRecord,
    floors: Sequence[StopLevel],
    *,
    served: str = "learner",
    confidence: float = 0.95,
    warning: float = 0.8,
    seconds: Sequence[float] | None = None,
) -> tuple[GuardrailVerdict, ...]:
    """Hold what one arm was served against every floor, the rounds so far together.

    A breach stays one: only a person re-arms, and then the rounds from there on are what is handed in. `seconds` says
    how long every round lasted; without it, each counts as a whole day.

    >>> from pasto.inference import Quantity
    >>> from pasto.inference.round_data import CellMoments, MeasuredRound, record_rounds
    >>> shares = {("control", 0): 0.5, ("learner", 1): 0.5}
    >>> means = {("control", 0): 1.0, ("learner", 1): 0.6}
    >>> cells = [CellMoments(*key, 200, (mean,), ((200.0,),)) for key, mean in means.items()]
    >>> record = record_rounds([MeasuredRound(version, shares, cells) for version in range(4)])
    >>> [verdict.state for verdict in watch_guardrails(record, [StopLevel("likes", Quantity(0), -0.05, relative=True)])]
    ['breach']
    """
    cells, place, covariances = record.view(served, running=True)
    error, early = (chance_of_error(level, max(len(floors), 1)) for level in (confidence, warning))
    verdicts = []
    for floor in floors:
        against = record.control if floor.relative or floor.basis == "control" else None
        evidence, gathered = gather_evidence(
            cells, floor, place, against, covariances, seconds=seconds, claims=len(floors)
        )
        alarm = evidence >= -np.log(error)
        told = judge_guardrail(floor, float(evidence.max()), float(evidence[-1]), gathered, error, early, len(floors))
        verdicts.append(replace(told, round=int(np.argmax(alarm)) if alarm.any() else None))
    return tuple(verdicts)


def judge_guardrail(
    floor: StopLevel,
    highest: float,
    latest: float,
    gathered: FloorEvidence | LevelEvidence,
    error: float,
    early: float,
    claims: int,
) -> GuardrailVerdict:
    """What evidence says of one floor: the highest so far, for a breach stays one, and the latest for a warning."""
    breached, warned = highest >= -np.log(error), latest >= -np.log(early)
    p_value = claims * float(np.exp(-max(0.0, highest)))
    allowed = None
    if isinstance(gathered, LevelEvidence) and floor.basis == "control":
        allowed = gathered.allowed_change(floor, claims)
        if p_value < 1.0:  # the bounds on the control's level have their part of the error
            p_value = (1.0 - REFERENCE_SHARE) * p_value + REFERENCE_SHARE * STUDY_ERROR
    return GuardrailVerdict(
        name=floor.name,
        state="breach" if breached else "warning" if warned else "holds",
        p_value=min(1.0, p_value),
        round=None,
        since=int(gathered.since) if breached else None,
        bounded=bounded(floor),
        basis=floor.basis,
        allowed=allowed,
    )


METHOD = 3
"""How evidence is gathered: whatever was gathered in another way is not carried on, and not compared."""

ARMS = ("learner", "control")
"""The cells of a judged round, in the order in which they are kept here."""


@dataclass(frozen=True, slots=True, eq=False)
class FloorState:
    """One floor: what to go on from, and the logarithm of the evidence at its highest and at its latest."""

    gathered: FloorEvidence | LevelEvidence
    highest: float = -np.inf
    latest: float = -np.inf


@dataclass(frozen=True, slots=True, eq=False)
class GuardrailMonitor:
    """What the breaker knows of the rounds so far; equal rounds give an equal vigil, bit for bit."""

    pooled: PooledStatistics | None = None
    seen: tuple[bool, ...] = (False, False)
    """Whether there were units of the learner, and of the control."""
    held: Mapping[str, FloorState] | None = None
    """By the floor's name; nothing before the first round."""

    def after(
        self, floors: Sequence[StopLevel], rounds: Sequence[MeasuredRound], *, judged: bool = True
    ) -> GuardrailMonitor:
        """With more rounds, of which each arm is one cell at most; rounds without any cell only make a day longer.

        Rounds that are not judged say what the control's level is, and how wide units are spread.

        >>> from pasto.inference.round_data import CellMoments
        >>> floor = StopLevel("likes", Quantity(0), -0.05, relative=True)
        >>> means = {"control": 1.0, "learner": 0.6}
        >>> cells = [CellMoments(arm, -1, 200, (mean,), ((200.0,),)) for arm, mean in means.items()]
        >>> vigil = GuardrailMonitor().after([floor], [MeasuredRound(7, {}, cells)])
        >>> for number in (8, 9):
        ...     vigil = vigil.after([floor], [MeasuredRound(number, {}, cells)])
        >>> [(one.state, one.since) for one in vigil.verdicts([floor])]
        [('breach', 7)]
        """
        vigil = self
        for measured in rounds if floors else ():
            vigil = vigil._after_round(floors, measured, judged)
        return vigil

    def _after_round(self, floors: Sequence[StopLevel], measured: MeasuredRound, judged: bool) -> GuardrailMonitor:
        if not measured.cells and self.held is None:
            return self
        columns = columns_of(floors)
        cells = _cells(measured, columns)
        covariances, pooled = running_covariances(cells, self.pooled)
        held = dict(self.held or {})
        for floor in floors:
            if floor.basis is None and not (judged and measured.cells):
                continue
            before = held.get(floor.name)
            evidence, gathered = gather_evidence(
                cells,
                _within(floor, columns),
                0,
                1,
                covariances,
                None if before is None else before.gathered,
                [measured.version],
                seconds=None if measured.seconds is None else [measured.seconds],
                claims=len(floors),
                judged=judged,
            )
            latest = float(evidence[-1])
            highest = max(latest, -np.inf if before is None else before.highest)
            if not highest < np.inf or np.isnan(latest):
                raise MeasurementError(
                    f"the evidence on {floor.name!r} is no number; what was measured is out of range"
                )
            held[floor.name] = FloorState(gathered, highest, latest)
        if not measured.cells:
            return replace(self, held=held)
        units = cells.units[0] > 0
        seen = tuple(bool(before or (now and judged)) for before, now in zip(self.seen, units, strict=True))
        return GuardrailMonitor(pooled, seen, held)

    def rearmed(self) -> GuardrailMonitor:
        """Without any evidence; what is known of the control's level and of the spread of units stays.

        >>> GuardrailMonitor(seen=(True, True)).rearmed().seen
        (False, False)
        """
        levels = {
            name: FloorState(held.gathered.rearmed())
            for name, held in (self.held or {}).items()
            if isinstance(held.gathered, LevelEvidence)
        }
        return GuardrailMonitor(self.pooled, held=levels or None)

    def allowed(self, floors: Sequence[StopLevel]) -> dict[str, float]:
        """By the floor's name: the change against the control that a level in the metric's own units allows."""
        found = {}
        for floor in floors:
            held = (self.held or {}).get(floor.name)
            if held is not None and isinstance(held.gathered, LevelEvidence) and floor.basis == "control":
                change = held.gathered.allowed_change(floor, len(floors))
                if change is not None:
                    found[floor.name] = change
        return found

    def verdicts(
        self, floors: Sequence[StopLevel], *, confidence: float = 0.95, warning: float = 0.8
    ) -> tuple[GuardrailVerdict, ...]:
        """What is to be said now: nothing before the learner had units, and of no control nothing relative to it."""
        if self.held is None or not self.seen[0]:
            return ()
        judged = [floor for floor in floors if self.seen[1] or not (floor.relative or floor.basis == "control")]
        error, early = (chance_of_error(level, max(len(judged), 1)) for level in (confidence, warning))
        found = []
        for floor in judged:
            one = self.held[floor.name]
            found.append(judge_guardrail(floor, one.highest, one.latest, one.gathered, error, early, len(judged)))
        return tuple(found)

    def written(self) -> dict[str, Any]:
        """As plain JSON, without losing a digit."""
        pooled = self.pooled
        return {
            "seen": list(self.seen),
            "pooled": None if pooled is None else [_list(getattr(pooled, name)) for name in _POOLED],
            "held": None if self.held is None else {name: _written(one) for name, one in self.held.items()},
        }

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> GuardrailMonitor:
        """What `written` made.

        >>> GuardrailMonitor.read(GuardrailMonitor().written()).seen
        (False, False)
        """
        pooled, held = written["pooled"], written["held"]
        return cls(
            None if pooled is None else PooledStatistics(*(np.array(part) for part in pooled)),
            tuple(written["seen"]),
            None if held is None else {name: _read(one) for name, one in held.items()},
        )


_POOLED = ("spread", "count", "cross", "freedom")


def columns_of(floors: Sequence[StopLevel]) -> list[int]:
    """The columns that floors are about, which are all that is carried."""
    pairs = ((floor.quantity.numerator, floor.quantity.denominator) for floor in floors)
    return sorted({column for pair in pairs for column in pair if column is not None})


def _within(floor: StopLevel, columns: Sequence[int]) -> StopLevel:
    """The same floor, by its columns' places among those that are carried."""
    top, bottom = floor.quantity.numerator, floor.quantity.denominator
    quantity = Quantity(columns.index(top), None if bottom is None else columns.index(bottom))
    return replace(floor, quantity=quantity)


def _cells(measured: MeasuredRound, columns: Sequence[int]) -> CellStatistics:
    width = len(columns)
    units = np.zeros((1, len(ARMS)))
    mean, cross = np.zeros((*units.shape, width)), np.zeros((*units.shape, width, width))
    for cell in measured.cells:
        at = 0, ARMS.index(cell.arm)
        units[at], mean[at] = cell.units, np.asarray(cell.mean)[columns]
        cross[at] = np.asarray(cell.cross)[np.ix_(columns, columns)]
    if not (np.isfinite(mean).all() and np.isfinite(cross).all()):
        raise MeasurementError("moments must be finite numbers; something that is not was measured")
    return CellStatistics(units, mean, cross)


def _written(held: FloorState) -> dict[str, Any]:
    gathered = held.gathered
    written = _written_level(gathered) if isinstance(gathered, LevelEvidence) else _written_starts(gathered)
    return {"highest": _log(held.highest), "latest": _log(held.latest), **written}


def _written_starts(gathered: FloorEvidence) -> dict[str, Any]:
    starts = gathered.starts
    return {
        "rounds": starts.rounds,
        "held": [_log(value) for value in starts.held.tolist()],
        "best": [_log(value) for value in starts.best.tolist()],
        "since": starts.since.tolist(),
        "scale": float(starts.scale),
        "waiting": starts.waiting.tolist(),
        "shares": starts.shares.tolist(),
        "numbers": list(starts.numbers),
        "sums": [[float(part) for part in sums] for sums in gathered.sums],
    }


def _written_level(level: LevelEvidence) -> dict[str, Any]:
    tracks, sums = {}, {}
    for name in _TRACKS:
        track: LevelTrack = getattr(level, name)
        if track.gathered is not None:
            tracks[name] = {"log": _log(float(track.log)), **_written_starts(track.gathered)}
    for name in _SUMS:
        rounds: RoundSum | None = getattr(level, name)
        if rounds is not None:
            arrays = [_list(part) for part in (rounds.units, rounds.mean, rounds.cross, rounds.noise)]
            sums[name] = [rounds.rounds, rounds.seconds, rounds.first_round, *arrays]
    return {"basis": level.basis, "days": level.days, "tracks": tracks, "sums": sums}


_TRACKS = ("crash", "share", "worse", "level")

_SUMS = ("served_today", "control_today", "reference")


def _read(written: Mapping[str, Any]) -> FloorState:
    gathered = _read_level(written) if "basis" in written else _read_starts(written)
    return FloorState(gathered, _unlog(written["highest"]), _unlog(written["latest"]))


def _read_starts(written: Mapping[str, Any]) -> FloorEvidence:
    starts = ChangeDetectorState(
        written["rounds"],
        np.array([_unlog(value) for value in written["held"]]),
        np.array([_unlog(value) for value in written["best"]]),
        np.array(written["since"], dtype=np.intp),
        np.array(written["scale"]),
        np.array(written["waiting"], dtype=float).reshape(-1, 3),
        np.array(written["shares"], dtype=float),
        tuple(written["numbers"]),
    )
    return FloorEvidence(starts, tuple((np.array(units), np.array(total)) for units, total in written["sums"]))


def _read_level(written: Mapping[str, Any]) -> LevelEvidence:
    fields: dict[str, Any] = {"basis": written["basis"], "days": written["days"]}
    for name, track in written["tracks"].items():
        fields[name] = LevelTrack(np.array(_unlog(track["log"])), _read_starts(track))
    for name, (rounds, seconds, first_round, *arrays) in written["sums"].items():
        fields[name] = RoundSum(rounds, seconds, first_round, *(np.array(part, dtype=float) for part in arrays))
    return LevelEvidence(**fields)


def _list(values: Any) -> Any:
    return values.tolist()


def _log(value: float) -> float | None:
    """A logarithm as JSON has it: nothing for that of zero."""
    return None if value == -np.inf else float(value)


def _unlog(value: float | None) -> float:
    return -np.inf if value is None else value
