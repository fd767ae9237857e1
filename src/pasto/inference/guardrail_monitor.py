"""Guardrail monitor: judges every guardrail after each round, with a controlled false-alarm rate.

`GuardrailMonitor` continues from its stored state, so a close reads only new rounds. Its verdicts equal those of
`watch_guardrails` over all rounds together.
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
    error_per_claim,
    running_covariances,
)
from pasto.inference.guardrail_evidence import FloorEvidence
from pasto.inference.round_data import MeasuredRound, RoundRecord
from pasto.inference.stop_level import (
    REFERENCE_SHARE,
    STUDY_ERROR,
    Basis,
    LevelEvidence,
    LevelTrack,
    RoundSum,
    StopLevel,
    gather_evidence,
)

State = Literal["holds", "warning", "breach"]


EVIDENCE_VERSION = 3
"""Version of the method that gathers evidence; stored evidence of another version is not used."""

MONITORED_ARMS = ("learner", "control")
"""Cells of a judged round, in the order of the arrays."""


@dataclass(frozen=True, slots=True)
class GuardrailVerdict:
    """Verdict on one guardrail."""

    name: str
    state: State
    p_value: float
    """p-value, valid at any time and over all guardrails together."""
    round: int | None
    """Round of the first alarm, counted from 0."""
    since: int | None
    """Round in which the harm most likely began, if there is a breach."""
    bounded: bool
    """True if the metric's declared range was used instead of the central limit theorem."""
    basis: Basis | None = None
    """Basis on which a level in the metric's own units is judged."""
    allowed: float | None = None
    """Change against the control that such a level allows now, −0.05 for five percent less."""


@dataclass(frozen=True, slots=True, eq=False)
class FloorState:
    """State of one floor: its evidence, and the highest and the latest log evidence."""

    evidence_state: FloorEvidence | LevelEvidence
    highest: float = -np.inf
    latest: float = -np.inf


@dataclass(frozen=True, slots=True, eq=False)
class GuardrailMonitor:
    """Monitor of all guardrails after the rounds so far; equal rounds give an equal monitor, bit for bit."""

    pooled: PooledStatistics | None = None
    has_units: tuple[bool, ...] = (False, False)
    """True if the learner, and if the control, had units in judged rounds."""
    floor_states: Mapping[str, FloorState] | None = None
    """By the floor's name; None before the first round."""

    def add_rounds(
        self, floors: Sequence[StopLevel], rounds: Sequence[MeasuredRound], *, judged: bool = True
    ) -> GuardrailMonitor:
        """Return the monitor with more rounds, in which each arm is at most one cell.

        Rounds without any cell only add to the length of a day. Rounds that are not judged only add to the control's
        level and to the spread of units.

        >>> from pasto.inference.round_data import CellMoments
        >>> floor = StopLevel("likes", Quantity(0), -0.05, relative=True)
        >>> means = {"control": 1.0, "learner": 0.6}
        >>> cells = [CellMoments(arm, -1, 200, (mean,), ((200.0,),)) for arm, mean in means.items()]
        >>> monitor = GuardrailMonitor().add_rounds([floor], [MeasuredRound(7, {}, cells)])
        >>> for number in (8, 9):
        ...     monitor = monitor.add_rounds([floor], [MeasuredRound(number, {}, cells)])
        >>> [(verdict.state, verdict.since) for verdict in monitor.verdicts([floor])]
        [('breach', 7)]
        """
        monitor = self
        for measured in rounds if floors else ():
            monitor = monitor._add_round(floors, measured, judged)
        return monitor

    def _add_round(self, floors: Sequence[StopLevel], measured: MeasuredRound, judged: bool) -> GuardrailMonitor:
        if not measured.cells and self.floor_states is None:
            return self
        columns = floor_columns(floors)
        cells = _build_cells(measured, columns)
        covariances, pooled = running_covariances(cells, self.pooled)
        floor_states = dict(self.floor_states or {})
        for floor in floors:
            if floor.basis is None and not (judged and measured.cells):
                continue
            earlier = floor_states.get(floor.name)
            evidence, evidence_state = gather_evidence(
                cells,
                _renumber_columns(floor, columns),
                0,
                1,
                covariances,
                None if earlier is None else earlier.evidence_state,
                [measured.version],
                seconds=None if measured.seconds is None else [measured.seconds],
                claims=len(floors),
                judged=judged,
            )
            latest = float(evidence[-1])
            highest = max(latest, -np.inf if earlier is None else earlier.highest)
            if not highest < np.inf or np.isnan(latest):
                raise MeasurementError(
                    f"the evidence on {floor.name!r} must be finite, got {latest}; the measured values are out of range"
                )
            floor_states[floor.name] = FloorState(evidence_state, highest, latest)
        if not measured.cells:
            return replace(self, floor_states=floor_states)
        units = cells.units[0] > 0
        has_units = tuple(
            bool(earlier or (has_now and judged)) for earlier, has_now in zip(self.has_units, units, strict=True)
        )
        return GuardrailMonitor(pooled, has_units, floor_states)

    def rearm(self) -> GuardrailMonitor:
        """Return the monitor without evidence; the control's level and the spread of units stay.

        >>> GuardrailMonitor(has_units=(True, True)).rearm().has_units
        (False, False)
        """
        levels = {
            name: FloorState(floor_state.evidence_state.rearm())
            for name, floor_state in (self.floor_states or {}).items()
            if isinstance(floor_state.evidence_state, LevelEvidence)
        }
        return GuardrailMonitor(self.pooled, floor_states=levels or None)

    def restart(self, before: Sequence[StopLevel], after: Sequence[StopLevel]) -> GuardrailMonitor:
        """Return the monitor for other stop levels: evidence against a level that changed is dropped.

        Evidence against one level is no evidence against another. The spread of units stays, and so does the
        control's level while a level is judged on the same basis.

        >>> from pasto.inference.round_data import CellMoments
        >>> floor = StopLevel("likes", Quantity(0), -0.05, relative=True)
        >>> means = {"control": 1.0, "learner": 0.6}
        >>> cells = [CellMoments(arm, -1, 200, (mean,), ((200.0,),)) for arm, mean in means.items()]
        >>> monitor = GuardrailMonitor().add_rounds([floor], [MeasuredRound(7, {}, cells)])
        >>> monitor.restart([floor], [replace(floor, value=-0.5)]).verdicts([floor])
        ()
        """
        levels = {floor.name: floor for floor in before}
        states = dict(self.floor_states or {})
        for floor in after:
            was, floor_state = levels.get(floor.name), states.get(floor.name)
            if floor == was or floor_state is None:
                continue
            evidence = floor_state.evidence_state
            if was is not None and was.basis == floor.basis and isinstance(evidence, LevelEvidence):
                states[floor.name] = FloorState(evidence.rearm())
            else:
                del states[floor.name]
        return replace(self, floor_states=states if self.floor_states is not None else None)

    def allowed_changes(self, floors: Sequence[StopLevel]) -> dict[str, float]:
        """Return, by floor name, the change against the control that a level in the metric's own units allows."""
        changes = {}
        for floor in floors:
            floor_state = (self.floor_states or {}).get(floor.name)
            if (
                floor_state is not None
                and isinstance(floor_state.evidence_state, LevelEvidence)
                and floor.basis == "control"
            ):
                change = floor_state.evidence_state.allowed_change(floor, len(floors))
                if change is not None:
                    changes[floor.name] = change
        return changes

    def verdicts(
        self, floors: Sequence[StopLevel], *, confidence: float = 0.95, warning: float = 0.8
    ) -> tuple[GuardrailVerdict, ...]:
        """Return the verdicts now; none before the learner has units, and none relative to a missing control."""
        if self.floor_states is None or not self.has_units[0]:
            return ()
        judged = [floor for floor in floors if self.has_units[1] or not (floor.relative or floor.basis == "control")]
        error, warning_error = (error_per_claim(level, max(len(judged), 1)) for level in (confidence, warning))
        verdicts = []
        for floor in judged:
            floor_state = self.floor_states.get(floor.name)
            if floor_state is None:  # its level changed, and no round was judged since
                continue
            verdicts.append(
                judge_guardrail(
                    floor,
                    floor_state.highest,
                    floor_state.latest,
                    floor_state.evidence_state,
                    error,
                    warning_error,
                    len(judged),
                )
            )
        return tuple(verdicts)

    def to_saved(self) -> dict[str, Any]:
        """Return a plain JSON value, bit for bit."""
        pooled = self.pooled
        return {
            "seen": list(self.has_units),
            "pooled": None if pooled is None else [_to_list(getattr(pooled, name)) for name in _POOLED_FIELDS],
            "held": None
            if self.floor_states is None
            else {name: _floor_to_saved(floor_state) for name, floor_state in self.floor_states.items()},
        }

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> GuardrailMonitor:
        """Return the monitor that `to_saved` wrote.

        >>> GuardrailMonitor.from_saved(GuardrailMonitor().to_saved()).has_units
        (False, False)
        """
        pooled, floor_states = saved["pooled"], saved["held"]
        return cls(
            None if pooled is None else PooledStatistics(*(np.array(part) for part in pooled)),
            tuple(saved["seen"]),
            None if floor_states is None else {name: _floor_from_saved(floor) for name, floor in floor_states.items()},
        )


def watch_guardrails(
    record: RoundRecord,
    floors: Sequence[StopLevel],
    *,
    served: str = "learner",
    confidence: float = 0.95,
    warning: float = 0.8,
    seconds: Sequence[float] | None = None,
) -> tuple[GuardrailVerdict, ...]:
    """Judge one served arm against every floor, over all rounds so far.

    A breach stays a breach until a person rearms the guardrails; then only later rounds are passed in. `seconds` is
    the length of every round; without it, each counts as a whole day.

    >>> from pasto.inference import Quantity
    >>> from pasto.inference.round_data import CellMoments, MeasuredRound, record_rounds
    >>> shares = {("control", 0): 0.5, ("learner", 1): 0.5}
    >>> means = {("control", 0): 1.0, ("learner", 1): 0.6}
    >>> cells = [CellMoments(*key, 200, (mean,), ((200.0,),)) for key, mean in means.items()]
    >>> record = record_rounds([MeasuredRound(version, shares, cells) for version in range(4)])
    >>> [verdict.state for verdict in watch_guardrails(record, [StopLevel("likes", Quantity(0), -0.05, relative=True)])]
    ['breach']
    """
    cells, served_cell, covariances = record.arm_view(served, running=True)
    error, warning_error = (error_per_claim(level, max(len(floors), 1)) for level in (confidence, warning))
    verdicts = []
    for floor in floors:
        control = record.control if floor.relative or floor.basis == "control" else None
        evidence, evidence_state = gather_evidence(
            cells, floor, served_cell, control, covariances, seconds=seconds, claims=len(floors)
        )
        alarm = evidence >= -np.log(error)
        verdict = judge_guardrail(
            floor, float(evidence.max()), float(evidence[-1]), evidence_state, error, warning_error, len(floors)
        )
        verdicts.append(replace(verdict, round=int(np.argmax(alarm)) if alarm.any() else None))
    return tuple(verdicts)


def judge_guardrail(
    floor: StopLevel,
    highest: float,
    latest: float,
    evidence_state: FloorEvidence | LevelEvidence,
    error: float,
    warning_error: float,
    claims: int,
) -> GuardrailVerdict:
    """Return the verdict on one floor: a breach by the highest evidence so far, a warning by the latest."""
    breached, warned = highest >= -np.log(error), latest >= -np.log(warning_error)
    p_value = claims * float(np.exp(-max(0.0, highest)))
    allowed = None
    if isinstance(evidence_state, LevelEvidence) and floor.basis == "control":
        allowed = evidence_state.allowed_change(floor, claims)
        if p_value < 1.0:  # the bounds on the control's level use their part of the error
            p_value = (1.0 - REFERENCE_SHARE) * p_value + REFERENCE_SHARE * STUDY_ERROR
    return GuardrailVerdict(
        name=floor.name,
        state="breach" if breached else "warning" if warned else "holds",
        p_value=min(1.0, p_value),
        round=None,
        since=int(evidence_state.since) if breached else None,
        bounded=floor.has_value_range,
        basis=floor.basis,
        allowed=allowed,
    )


_POOLED_FIELDS = ("spread", "count", "cross", "degrees")


def floor_columns(floors: Sequence[StopLevel]) -> list[int]:
    """Return the columns that floors use; the state holds only these."""
    pairs = ((floor.quantity.numerator, floor.quantity.denominator) for floor in floors)
    return sorted({column for pair in pairs for column in pair if column is not None})


def _renumber_columns(floor: StopLevel, columns: Sequence[int]) -> StopLevel:
    """Return the floor with its columns numbered among those of the state."""
    numerator, denominator = floor.quantity.numerator, floor.quantity.denominator
    quantity = Quantity(columns.index(numerator), None if denominator is None else columns.index(denominator))
    return replace(floor, quantity=quantity)


def _build_cells(measured: MeasuredRound, columns: Sequence[int]) -> CellStatistics:
    count = len(columns)
    units = np.zeros((1, len(MONITORED_ARMS)))
    mean, cross = np.zeros((*units.shape, count)), np.zeros((*units.shape, count, count))
    for cell in measured.cells:
        position = 0, MONITORED_ARMS.index(cell.arm)
        units[position], mean[position] = cell.units, np.asarray(cell.mean)[columns]
        cross[position] = np.asarray(cell.cross)[np.ix_(columns, columns)]
    if not (np.isfinite(mean).all() and np.isfinite(cross).all()):
        raise MeasurementError(
            "moments must be finite numbers, got infinite or missing values; check the measured columns"
        )
    return CellStatistics(units, mean, cross)


def _floor_to_saved(floor_state: FloorState) -> dict[str, Any]:
    evidence_state = floor_state.evidence_state
    saved = (
        _level_to_saved(evidence_state)
        if isinstance(evidence_state, LevelEvidence)
        else _evidence_to_saved(evidence_state)
    )
    return {"highest": _log_to_json(floor_state.highest), "latest": _log_to_json(floor_state.latest), **saved}


def _evidence_to_saved(evidence_state: FloorEvidence) -> dict[str, Any]:
    detector = evidence_state.detector
    return {
        "rounds": detector.rounds,
        "held": [_log_to_json(value) for value in detector.log_totals.tolist()],
        "best": [_log_to_json(value) for value in detector.log_largest.tolist()],
        "since": detector.largest_start.tolist(),
        "scale": float(detector.scale),
        "waiting": detector.pending_sums.tolist(),
        "shares": detector.pending_log_shares.tolist(),
        "numbers": list(detector.pending_rounds),
        "sums": [[float(part) for part in sums] for sums in evidence_state.sums],
    }


def _level_to_saved(level: LevelEvidence) -> dict[str, Any]:
    tracks, sums = {}, {}
    for name in _TRACK_FIELDS:
        track: LevelTrack = getattr(level, name)
        if track.evidence_state is not None:
            tracks[name] = {"log": _log_to_json(float(track.log)), **_evidence_to_saved(track.evidence_state)}
    for name in _SUM_FIELDS:
        rounds: RoundSum | None = getattr(level, name)
        if rounds is not None:
            arrays = [_to_list(part) for part in (rounds.units, rounds.mean, rounds.cross, rounds.noise)]
            sums[name] = [rounds.rounds, rounds.seconds, rounds.first_round, *arrays]
    return {"basis": level.basis, "days": level.days, "tracks": tracks, "sums": sums}


_TRACK_FIELDS = ("crash", "share", "worse", "level")

_SUM_FIELDS = ("served_today", "control_today", "reference")


def _floor_from_saved(saved: Mapping[str, Any]) -> FloorState:
    evidence_state = _level_from_saved(saved) if "basis" in saved else _evidence_from_saved(saved)
    return FloorState(evidence_state, _log_from_json(saved["highest"]), _log_from_json(saved["latest"]))


def _evidence_from_saved(saved: Mapping[str, Any]) -> FloorEvidence:
    detector = ChangeDetectorState(
        saved["rounds"],
        np.array([_log_from_json(value) for value in saved["held"]]),
        np.array([_log_from_json(value) for value in saved["best"]]),
        np.array(saved["since"], dtype=np.intp),
        np.array(saved["scale"]),
        np.array(saved["waiting"], dtype=float).reshape(-1, 3),
        np.array(saved["shares"], dtype=float),
        tuple(saved["numbers"]),
    )
    return FloorEvidence(detector, tuple((np.array(units), np.array(total)) for units, total in saved["sums"]))


def _level_from_saved(saved: Mapping[str, Any]) -> LevelEvidence:
    fields: dict[str, Any] = {"basis": saved["basis"], "days": saved["days"]}
    for name, track in saved["tracks"].items():
        fields[name] = LevelTrack(np.array(_log_from_json(track["log"])), _evidence_from_saved(track))
    for name, (rounds, seconds, first_round, *arrays) in saved["sums"].items():
        fields[name] = RoundSum(rounds, seconds, first_round, *(np.array(part, dtype=float) for part in arrays))
    return LevelEvidence(**fields)


def _to_list(values: Any) -> Any:
    return values.tolist()


def _log_to_json(value: float) -> float | None:
    """Return a logarithm as JSON; None for the logarithm of zero."""
    return None if value == -np.inf else float(value)


def _log_from_json(value: float | None) -> float:
    return -np.inf if value is None else value
