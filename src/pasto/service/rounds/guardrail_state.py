"""Guardrail state: evidence that the monitor carries from one close to the next, so that no close reads the past."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pasto.errors import PastoError
from pasto.inference.guardrail_monitor import EVIDENCE_VERSION, GuardrailMonitor, floor_columns
from pasto.inference.round_data import CellMoments, CellTable, MeasuredCell, MeasuredRound
from pasto.service.close_record import CloseRecord
from pasto.service.study_file import StudySpec
from pasto.service.study_file.spec import build_stop_levels
from pasto.store import Store

PAGE_CLOSES = 20
"""Closes that are read at a time: each holds all measurements of its rounds."""


@dataclass(frozen=True, slots=True, eq=False)
class GuardrailState:
    """Evidence of the final learning rounds, and the rounds that are still correctable."""

    monitor: GuardrailMonitor = field(default_factory=GuardrailMonitor)
    """Evidence of the rounds since the last re-arming, and the control's level in all rounds."""
    open: tuple[MeasuredRound, ...] = ()
    """Judged rounds that may still be corrected, in order; `monitor` does not contain them yet."""

    @classmethod
    def of(
        cls, spec: StudySpec, rounds: Iterable[MeasuredRound], since: int, first: int | None = None
    ) -> GuardrailState:
        """Return the state after judged rounds; those from `first` on stay correctable.

        Rounds before `since` are not evidence. Rounds that cannot be judged are skipped.
        """
        state = cls()
        later = []
        for measured in rounds:
            if first is not None and measured.version >= first:
                later.append(measured)
                continue
            with suppress(PastoError, ArithmeticError, ValueError):
                state = state.settle(spec, [measured], since)
        return state.with_rounds(later)

    def with_rounds(self, rounds: Sequence[MeasuredRound]) -> GuardrailState:
        """Return the state with more rounds; a corrected round replaces its former measurement."""
        by_round = {measured.version: measured for measured in (*self.open, *rounds)}
        return replace(self, open=tuple(by_round[number] for number in sorted(by_round)))

    def until(self, spec: StudySpec, first: int | None, since: int) -> GuardrailState:
        """Return the state in which every round before `first` is final; all rounds if it is None."""
        final = [measured for measured in self.open if first is None or measured.version < first]
        later = [measured for measured in self.open if first is not None and measured.version >= first]
        columns = floor_columns(build_stop_levels(spec))
        return replace(self.settle(spec, final, since), open=tuple(_narrow(measured, columns) for measured in later))

    def settle(self, spec: StudySpec, rounds: Sequence[MeasuredRound], since: int) -> GuardrailState:
        """Return the state after rounds that are final."""
        watched, monitor = build_stop_levels(spec), self.monitor
        for measured in rounds:
            timed = (
                measured if measured.seconds is not None else replace(measured, seconds=spec.rounds.interval_seconds)
            )
            monitor = monitor.add_rounds(watched, [timed], judged=measured.version >= since)
        return replace(self, monitor=monitor)

    def without_evidence(self) -> GuardrailState:
        """Return the state of a re-armed monitor."""
        return replace(self, monitor=self.monitor.rearm())

    def restart(self, before: StudySpec, after: StudySpec) -> GuardrailState:
        """Return the state for an edited study: only correctable rounds, which are judged again, count as before."""
        return replace(self, monitor=self.monitor.restart(build_stop_levels(before), build_stop_levels(after)))

    def written(self) -> dict[str, Any]:
        """Return the state as plain JSON."""
        return {
            "method": EVIDENCE_VERSION,
            "monitor": self.monitor.to_saved(),
            "open": [
                [measured.version, measured.seconds, [_write_cell(cell) for cell in measured.cells]]
                for measured in self.open
            ],
        }

    @classmethod
    def read(cls, written: Mapping[str, Any] | None) -> GuardrailState | None:
        """Read the JSON of a state; None without one, or if another method gathered its evidence.

        >>> cell = CellMoments("control", -1, 20, (0.5,), ((5.0,),))
        >>> state = GuardrailState().with_rounds([MeasuredRound(3, {}, [cell])])
        >>> [measured.version for measured in GuardrailState.read(state.written()).open]
        [3]
        """
        if written is None or written.get("method") != EVIDENCE_VERSION:
            return None
        return cls(
            GuardrailMonitor.from_saved(written["monitor"] if "monitor" in written else written["vigil"]),
            tuple(
                MeasuredRound(number, {}, [_read_cell(cell) for cell in cells], seconds)
                for number, seconds, cells in written["open"]
            ),
        )


def judged_round(number: int, cells: Sequence[MeasuredCell], seconds: float | None = None) -> MeasuredRound:
    """Return a learning round as the guardrail monitor reads it: one cell of the control and one of the learner."""
    return MeasuredRound(number, {}, join_arms(("control", "learner"), cells), seconds)


def join_arms(arms: Sequence[str], cells: Sequence[MeasuredCell]) -> list[CellMoments]:
    """Return the units of each arm as one cell; arms without units are left out."""
    table = cells if isinstance(cells, CellTable) else CellTable.from_cells(cells)
    return [cell for arm in arms if (cell := table.join_arm(arm)) is not None]


def read_judged_rounds(store: Store, study: int) -> list[MeasuredRound]:
    """Read all learning rounds as the guardrail monitor reads them, each with its latest measurement, in order."""
    rounds: dict[int, MeasuredRound] = {}
    after = 0
    while closes := store.list_closes(study, after=after, limit=PAGE_CLOSES):
        for close in closes:
            for entry in CloseRecord.from_text(close.record).measured:
                rounds[entry.round] = judged_round(entry.round, entry.cells.table(), entry.seconds)
        after = closes[-1].round
    return [rounds[number] for number in sorted(rounds)]


def _narrow(measured: MeasuredRound, columns: Sequence[int]) -> MeasuredRound:
    """Return a round without the products that no stop level needs: nearly all in a study with many metrics."""
    cells = []
    for cell in measured.cells:
        cross = np.zeros((len(cell.mean), len(cell.mean)))
        block = np.ix_(columns, columns)
        cross[block] = np.asarray(cell.cross)[block]
        mean = tuple(np.asarray(cell.mean).tolist())
        cells.append(CellMoments(cell.arm, cell.candidate, cell.units, mean, tuple(map(tuple, cross.tolist()))))
    return MeasuredRound(measured.version, measured.shares, cells, measured.seconds)


def _write_cell(cell: Any) -> list[Any]:
    """Return a cell with the columns whose products are not all zero, and these products."""
    cross = np.asarray(cell.cross)
    columns = np.flatnonzero(cross.any(axis=1))
    mean = np.asarray(cell.mean).tolist()
    return [cell.arm, cell.candidate, cell.units, mean, columns.tolist(), cross[np.ix_(columns, columns)].tolist()]


def _read_cell(written: Sequence[Any]) -> CellMoments:
    arm, candidate, units, mean, columns, block = written
    cross = np.zeros((len(mean), len(mean)))
    cross[np.ix_(columns, columns)] = np.array(block).reshape(len(columns), len(columns))
    return CellMoments(arm, candidate, units, tuple(mean), tuple(map(tuple, cross.tolist())))
