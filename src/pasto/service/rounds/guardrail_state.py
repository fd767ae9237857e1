"""What the breaker carries from one close to the next, so that none of them has to read a study's past."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pasto.errors import PastoError
from pasto.inference.guardrail_monitor import EVIDENCE_VERSION, GuardrailMonitor, floor_columns
from pasto.inference.round_data import CellMoments, MeasuredRound
from pasto.service.study_file import StudySpec
from pasto.service.study_file.quantities import floors


@dataclass(frozen=True, slots=True, eq=False)
class GuardrailState:
    """All that learning rounds have left to the breaker."""

    vigil: GuardrailMonitor = field(default_factory=GuardrailMonitor)
    """Evidence of the rounds since it was armed, and the control's level in all of them."""
    open: tuple[MeasuredRound, ...] = ()
    """Judged rounds that may still be corrected, in order; in none of the above yet."""

    @classmethod
    def of(
        cls, spec: StudySpec, rounds: Iterable[MeasuredRound], since: int, first: int | None = None
    ) -> GuardrailState:
        """What judged rounds leave; those before `since` do not count as evidence, and those out of range at all.

        Rounds from `first` on may be measured again.
        """
        found = cls()
        later = []
        for one in rounds:
            if first is not None and one.version >= first:
                later.append(one)
                continue
            with suppress(PastoError, ArithmeticError, ValueError):
                found = found.settled(spec, [one], since)
        return found.with_rounds(later)

    def with_rounds(self, rounds: Sequence[MeasuredRound]) -> GuardrailState:
        """With more rounds, or with others in the place of those that they correct."""
        known = {one.version: one for one in (*self.open, *rounds)}
        return replace(self, open=tuple(known[number] for number in sorted(known)))

    def until(self, spec: StudySpec, first: int | None, since: int) -> GuardrailState:
        """With every round before `first` taken as final, all of them where there is none."""
        final = [one for one in self.open if first is None or one.version < first]
        later = [one for one in self.open if first is not None and one.version >= first]
        columns = floor_columns(floors(spec))
        return replace(self.settled(spec, final, since), open=tuple(_narrowed(one, columns) for one in later))

    def settled(self, spec: StudySpec, rounds: Sequence[MeasuredRound], since: int) -> GuardrailState:
        """With rounds that no one corrects any more."""
        watched, vigil = floors(spec), self.vigil
        for one in rounds:
            if one.seconds is None:
                one = replace(one, seconds=spec.rounds.pace)
            vigil = vigil.add_rounds(watched, [one], judged=one.version >= since)
        return replace(self, vigil=vigil)

    def re_armed(self) -> GuardrailState:
        """Without any evidence."""
        return replace(self, vigil=self.vigil.rearm())

    def written(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "method": EVIDENCE_VERSION,
            "vigil": self.vigil.to_saved(),
            "open": [[one.version, one.seconds, [_written(cell) for cell in one.cells]] for one in self.open],
        }

    @classmethod
    def read(cls, written: Mapping[str, Any] | None) -> GuardrailState | None:
        """What `written` made; None where there is nothing, or what was gathered in another way.

        >>> cell = CellMoments("control", -1, 20, (0.5,), ((5.0,),))
        >>> carried = GuardrailState().with_rounds([MeasuredRound(3, {}, [cell])])
        >>> [one.version for one in GuardrailState.read(carried.written()).open]
        [3]
        """
        if written is None or written.get("method") != EVIDENCE_VERSION:
            return None
        return cls(
            GuardrailMonitor.from_saved(written["vigil"]),
            tuple(
                MeasuredRound(number, {}, [_read(cell) for cell in cells], seconds)
                for number, seconds, cells in written["open"]
            ),
        )


def _narrowed(one: MeasuredRound, columns: Sequence[int]) -> MeasuredRound:
    """A round without the products that no floor is about, which are nearly all where a study has many metrics."""
    cells = []
    for cell in one.cells:
        cross = np.zeros((len(cell.mean), len(cell.mean)))
        block = np.ix_(columns, columns)
        cross[block] = np.asarray(cell.cross)[block]
        mean = tuple(np.asarray(cell.mean).tolist())
        cells.append(CellMoments(cell.arm, cell.candidate, cell.units, mean, tuple(map(tuple, cross.tolist()))))
    return MeasuredRound(one.version, one.shares, cells, one.seconds)


def _written(cell: Any) -> list[Any]:
    """A cell with the columns whose products are not all zero, and these."""
    cross = np.asarray(cell.cross)
    told = np.flatnonzero(cross.any(axis=1))
    mean = np.asarray(cell.mean).tolist()
    return [cell.arm, cell.candidate, cell.units, mean, told.tolist(), cross[np.ix_(told, told)].tolist()]


def _read(written: Sequence[Any]) -> CellMoments:
    arm, candidate, units, mean, told, block = written
    cross = np.zeros((len(mean), len(mean)))
    cross[np.ix_(told, told)] = np.array(block).reshape(len(told), len(told))
    return CellMoments(arm, candidate, units, tuple(mean), tuple(map(tuple, cross.tolist())))
