"""Data check: hold back the rounds whose events seem to be missing, instead of learning zeros.

A round that is held back stays among those that wait. Each later close measures it again if events came to it. It is
learned when they are there, or when a person says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pasto.inference.event_shortage import MAX_EARLIER_ROUNDS, RoundTotals, find_shortages
from pasto.inference.round_data import CellTable
from pasto.metrics import Column, Moments
from pasto.service.close_record import CloseRecord
from pasto.service.rounds.late_events import LateCorrections, find_changed_rounds, read_recorded
from pasto.service.study_file import StudySpec
from pasto.service.study_state import MaturingRound, MissingData
from pasto.store import Store

CONTROL = "control"
LEARN, DISCARD = "learn", "discard"
RESOLUTIONS = (LEARN, DISCARD)
"""What a person can decide about a round that is held back."""
MAX_CLOSES = 100
"""Closes that are looked through for earlier rounds: a long confirmation has none."""
Findings = tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class CheckedRounds:
    """Matured rounds after the check, each in one of three places, in order."""

    learned: tuple[tuple[MaturingRound, tuple[Moments, ...]], ...] = ()
    """Rounds to learn now, with what they measured."""
    accepted: frozenset[int] = frozenset()
    """Those of them that a person had learned as they are."""
    held: tuple[MaturingRound, ...] = ()
    discarded: tuple[MaturingRound, ...] = ()
    """Rounds that a person left out."""


class DataCheck:
    """Compares rounds of one study with those that were learned before."""

    def __init__(self, store: Store, spec: StudySpec, study: int, last: int) -> None:
        self._store = store
        self._spec = spec
        self._study = study
        self._earlier = _earlier_rounds(store, spec.columns, study, last)

    def check(
        self, matured: Sequence[MaturingRound], until: int, measure: Callable[[MaturingRound], tuple[Moments, ...]]
    ) -> CheckedRounds:
        """Measure and compare rounds; one that passes, or that a person wants learned, counts for those after it."""
        learned: list[tuple[MaturingRound, tuple[Moments, ...]]] = []
        held: list[MaturingRound] = []
        unchanged = self._unchanged(matured, until)
        for one in matured:
            if _is_resolved(one, DISCARD):
                continue
            if one.round in unchanged:
                held.append(one)
                continue
            measured = measure(one)
            totals = _totals(CellTable.from_cells(measured), self._spec.columns)
            accepted = _is_resolved(one, LEARN)
            findings = () if accepted else self._findings(totals, [past for _, past in self._earlier])
            if findings:
                held.append(replace(one, missing=MissingData(findings, until)))
                continue
            learned.append((replace(one, missing=None), measured))
            before = [] if accepted else self._earlier
            self._earlier = [*before, (one.round, totals)][-MAX_EARLIER_ROUNDS:]
        taken, discarded = ([one for one in matured if _is_resolved(one, how)] for how in RESOLUTIONS)
        return CheckedRounds(tuple(learned), frozenset(one.round for one in taken), tuple(held), tuple(discarded))

    def refuse_corrections(self, late: LateCorrections) -> tuple[LateCorrections, dict[int, Findings]]:
        """Leave out corrections that lack the events which were there before; a team's own tables can lose some."""
        refused: dict[int, Findings] = {}
        for one in late.known:
            number = one.waiting.round
            if number in late.moments:
                before = _totals(CellTable.from_cells(read_recorded(self._store, self._study, one)), self._spec.columns)
                others = [past for earlier, past in self._earlier if earlier != number]
                now = _totals(CellTable.from_cells(late.moments[number]), self._spec.columns)
                if findings := self._findings(now, [*others, before]):
                    refused[number] = findings
        kept = {number: moments for number, moments in late.moments.items() if number not in refused}
        return replace(late, moments=kept), refused

    def _findings(self, now: RoundTotals, earlier: Sequence[RoundTotals]) -> Findings:
        columns = self._spec.columns
        findings = []
        for shortage in find_shortages(now, earlier, [column.event for column in columns]):
            finding = asdict(shortage)
            finding["seen"] = finding.pop("observed")
            finding["column"] = None if shortage.column is None else columns[shortage.column].name
            findings.append(finding)
        return tuple(findings)

    def _unchanged(self, matured: Sequence[MaturingRound], until: int) -> set[int]:
        """Return the held rounds that need not be measured again: no event came to them, and nothing was decided."""
        held = {one.round: one.missing.until for one in matured if one.is_held and one.missing is not None}
        decided = any(_is_resolved(one, LEARN) for one in matured)
        if not held or decided or self._spec.source is not None:
            return set()
        return held.keys() - find_changed_rounds(self._store, self._study, held.keys(), min(held.values()), until)


def _is_resolved(one: MaturingRound, resolution: str) -> bool:
    return one.missing is not None and one.missing.resolution == resolution


def _earlier_rounds(store: Store, columns: Sequence[Column], study: int, last: int) -> list[tuple[int, RoundTotals]]:
    """Read the rounds that were learned last, in order, up to the close of round `last`.

    A round that a person had learned as it was begins a new history: its level is the one to compare with.
    """
    found: dict[int, RoundTotals] = {}
    corrected: dict[int, RoundTotals] = {}
    until = last
    while until > max(0, last - MAX_CLOSES) and len(found) < MAX_EARLIER_ROUNDS:
        first = max(1, until - MAX_EARLIER_ROUNDS + 1)
        for close in reversed(store.list_closes(study, after=first - 1, limit=until - first + 1)):
            record = CloseRecord.from_text(close.record)
            for entry in record.corrected:
                if entry.round not in corrected:
                    corrected[entry.round] = _totals(entry.cells.table(), columns)
            for entry in reversed(record.rounds):
                found[entry.round] = corrected.get(entry.round) or _totals(entry.cells.table(), columns)
                if entry.is_accepted or len(found) >= MAX_EARLIER_ROUNDS:
                    return list(reversed(found.items()))
        until = first - 1
    return list(reversed(found.items()))


def _totals(cells: CellTable, columns: Sequence[Column]) -> RoundTotals:
    """Return a round's totals by candidate; a unit without events counts 0, or what the range makes of it."""
    width = len(columns)
    low = np.array([-np.inf if column.low is None else column.low for column in columns])
    high = np.array([np.inf if column.high is None else column.high for column in columns])
    empty = np.clip(0.0, low, high)

    def totals(cells: CellTable, kept: NDArray[np.bool_]) -> RoundTotals:
        variation = np.einsum("kjj->kj", cells.cross)[kept, :width]
        return RoundTotals.from_cells(
            cells.candidates[kept], cells.units[kept], cells.mean[kept, :width], variation, empty
        )

    if not len(cells):
        return RoundTotals(np.zeros(0), np.zeros((0, width)), np.zeros((0, width)))
    control = np.array([arm == CONTROL for arm in cells.arms])
    alone = totals(cells, control) if control.any() else None
    return replace(totals(cells, np.full(len(cells), True)), control=alone)
