"""Data check: hold the rounds whose events seem to be missing, instead of learning zeros.

A held round stays among the maturing ones. Each later close measures it again if it got events. It is learned when the
events have arrived, or when a person decides so. `describe_held_rounds` and `resolve` are the person's part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pasto.errors import LifecycleError, OptionError
from pasto.inference.event_shortage import MAX_EARLIER_ROUNDS, RoundTotals, find_shortages
from pasto.inference.round_data import CellTable
from pasto.metrics import Column, Moments
from pasto.report.missing_data_text import describe_held
from pasto.service.close_record import CloseRecord
from pasto.service.rounds.late_events import LateCorrections, find_changed_rounds, read_recorded
from pasto.service.study_file import StudySpec
from pasto.service.study_state import MaturingRound, MissingData, StudyState
from pasto.store import Store

CONTROL = "control"
LEARN, DISCARD = "learn", "discard"
RESOLUTIONS = (LEARN, DISCARD)
"""Decisions about a held round."""
MAX_CLOSES = 100
"""Closes that are searched for earlier rounds: a long confirmation has none."""
Findings = tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class CheckedRounds:
    """Matured rounds after the check: learned, held or discarded, each in order."""

    learned: tuple[tuple[MaturingRound, tuple[Moments, ...]], ...] = ()
    """Rounds to learn now, with their measurements."""
    accepted: frozenset[int] = frozenset()
    """Learned rounds that a person accepted despite missing events."""
    held: tuple[MaturingRound, ...] = ()
    discarded: tuple[MaturingRound, ...] = ()
    """Rounds that a person left out."""


class DataCheck:
    """Comparison of a study's matured rounds with those that were learned before."""

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
        for entry in matured:
            if _is_resolved(entry, DISCARD):
                continue
            if entry.round in unchanged:
                held.append(entry)
                continue
            measured = measure(entry)
            totals = _totals(CellTable.from_cells(measured), self._spec.columns)
            accepted = _is_resolved(entry, LEARN)
            findings = () if accepted else self._findings(totals, [past for _, past in self._earlier])
            if findings:
                held.append(replace(entry, missing=MissingData(findings, until)))
                continue
            learned.append((replace(entry, missing=None), measured))
            before = [] if accepted else self._earlier
            self._earlier = [*before, (entry.round, totals)][-MAX_EARLIER_ROUNDS:]
        taken, discarded = ([entry for entry in matured if _is_resolved(entry, how)] for how in RESOLUTIONS)
        return CheckedRounds(tuple(learned), frozenset(entry.round for entry in taken), tuple(held), tuple(discarded))

    def refuse_corrections(self, late: LateCorrections) -> tuple[LateCorrections, dict[int, Findings]]:
        """Drop corrections that lack events of the former measurement: a team's own tables can lose some."""
        refused: dict[int, Findings] = {}
        for entry in late.known:
            number = entry.waiting.round
            if number in late.moments:
                before = _totals(
                    CellTable.from_cells(read_recorded(self._store, self._study, entry)), self._spec.columns
                )
                others = [past for earlier, past in self._earlier if earlier != number]
                now = _totals(CellTable.from_cells(late.moments[number]), self._spec.columns)
                if findings := self._findings(now, [*others, before]):
                    refused[number] = findings
        accepted = {number: moments for number, moments in late.moments.items() if number not in refused}
        return replace(late, moments=accepted), refused

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
        """Return the held rounds that need not be measured again: they got no event, and no person decided."""
        held = {entry.round: entry.missing.until for entry in matured if entry.is_held and entry.missing is not None}
        decided = any(_is_resolved(entry, LEARN) for entry in matured)
        if not held or decided or self._spec.source is not None:
            return set()
        return held.keys() - find_changed_rounds(self._store, self._study, held.keys(), min(held.values()), until)


def describe_held_rounds(state: StudyState) -> list[dict[str, Any]]:
    """Return the held rounds in JSON, with the expected and measured totals and the decision.

    >>> from pasto.service.study_state import MissingData
    >>> finding = {"kind": "none", "column": "likes", "units": 4000, "expected": 412.0, "seen": 0.0, "rounds": 3}
    >>> held = MaturingRound(4, 3, 90, 7200.0, missing=MissingData((finding,), 120))
    >>> [(one["round"], one["resolution"]) for one in describe_held_rounds(StudyState(waiting=(held,)))]
    [(4, None)]
    """
    return [
        {
            "round": entry.round,
            "closed_at": entry.closed_at,
            "text": describe_held(entry.round, entry.missing.findings),
            "findings": [dict(finding) for finding in entry.missing.findings],
            "resolution": entry.missing.resolution,
        }
        for entry in state.waiting
        if entry.missing is not None
    ]


def resolve(
    study: str, phase: str, state: StudyState, number: int, resolution: str, reason: str
) -> tuple[StudyState, list[dict[str, Any]]]:
    """Return a study's state with a decision about a held round, and the findings of that round."""
    if resolution not in RESOLUTIONS:
        raise OptionError(f"a held round is resolved by {' or '.join(RESOLUTIONS)}, got {resolution!r}")
    if not reason.strip():
        raise OptionError("resolving a held round needs a reason, which the audit log keeps; say why")
    if phase not in ("learning", "paused"):
        raise LifecycleError(f"study {study!r} is {phase} and learns no round any more, so none can be resolved")
    held = {entry.round: entry for entry in state.waiting if entry.missing is not None}
    if number not in held:
        known = ", ".join(map(str, held)) or "none"
        raise OptionError(f"round {number} of study {study!r} is not held back; held rounds: {known}")
    missing = held[number].missing
    assert missing is not None  # noqa: S101 -- only those were taken
    resolved: MaturingRound = replace(held[number], missing=replace(missing, resolution=resolution))
    waiting = tuple(resolved if entry.round == number else entry for entry in state.waiting)
    return replace(state, waiting=waiting), [dict(finding) for finding in missing.findings]


def _is_resolved(entry: MaturingRound, resolution: str) -> bool:
    return entry.missing is not None and entry.missing.resolution == resolution


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

    def totals(cells: CellTable, mask: NDArray[np.bool_]) -> RoundTotals:
        variation = np.einsum("kjj->kj", cells.cross)[mask, :width]
        return RoundTotals.from_cells(
            cells.candidates[mask], cells.units[mask], cells.mean[mask, :width], variation, empty
        )

    if not len(cells):
        return RoundTotals(np.zeros(0), np.zeros((0, width)), np.zeros((0, width)))
    control = np.array([arm == CONTROL for arm in cells.arms])
    alone = totals(cells, control) if control.any() else None
    return replace(totals(cells, np.full(len(cells), True)), control=alone)
