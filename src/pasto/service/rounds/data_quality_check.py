"""Data quality check of a close: rounds whose events seem to be missing, and senders that depart from the others.

A round without its events is held, because zeros would be learned otherwise. It stays among the maturing ones. Each
later close measures it again if it got events. It is learned when the events have arrived, or when a person decides so.
`list_held_rounds` and `resolve` are the person's part.

Units and means of the API keys and sources are summed from close to close: each reads the record of the last one, adds
its rounds, and writes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pasto.errors import LifecycleError, OptionError, StoreError
from pasto.inference.event_shortage import MAX_EARLIER_ROUNDS, RoundTotals, find_shortages
from pasto.inference.round_data import CellTable
from pasto.inference.sender_departure import SenderCells, SenderEvidence, update_evidence
from pasto.metrics import OTHER_SOURCES, Column, Moments, measure_by_sender
from pasto.metrics.measurement import STORES
from pasto.report.data_quality_records import SenderDeparture
from pasto.report.data_quality_text import describe_held
from pasto.report.records import HeldRoundRecord, RoundShortage
from pasto.service.close_record import CloseRecord, SenderRecord, SenderTotals
from pasto.service.rounds.late_events import LateCorrections, find_changed_rounds, read_recorded
from pasto.service.study_file import StudySpec
from pasto.service.study_state import MaturingRound, MissingData, StudyState
from pasto.store import Store
from pasto_sdk.policy import PublishedPolicy

CONTROL = "control"
LEARN, DISCARD = "learn", "discard"
RESOLUTIONS = (LEARN, DISCARD)
"""Decisions about a held round."""
MAX_CLOSES = 100
"""Closes that are searched for earlier rounds: a long confirmation has none."""
MAX_SENDERS = 40
"""Senders of each kind that are remembered; those with fewest units are summed as one."""
Findings = tuple[RoundShortage, ...]


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
        return tuple(
            RoundShortage(
                shortage.kind,
                None if shortage.column is None else columns[shortage.column].name,
                shortage.units,
                shortage.expected,
                shortage.observed,
                shortage.rounds,
                shortage.expected_events,
                shortage.p_value,
            )
            for shortage in find_shortages(now, earlier, [column.event for column in columns])
        )

    def _unchanged(self, matured: Sequence[MaturingRound], until: int) -> set[int]:
        """Return the held rounds that need not be measured again: they got no event, and no person decided."""
        held = {entry.round: entry.missing.until for entry in matured if entry.is_held and entry.missing is not None}
        decided = any(_is_resolved(entry, LEARN) for entry in matured)
        if not held or decided or self._spec.source is not None:
            return set()
        return held.keys() - find_changed_rounds(self._store, self._study, held.keys(), min(held.values()), until)


def list_held_rounds(state: StudyState) -> tuple[HeldRoundRecord, ...]:
    """Return the held rounds, with the expected and measured totals and the decision.

    >>> from pasto.service.study_state import MissingData
    >>> finding = RoundShortage("none", "likes", units=4000, expected=412.0, seen=0.0, rounds=3)
    >>> held = MaturingRound(4, 3, 90, 7200.0, missing=MissingData((finding,), 120))
    >>> [(record.round, record.resolution) for record in list_held_rounds(StudyState(waiting=(held,)))]
    [(4, None)]
    """
    return tuple(
        HeldRoundRecord(
            round=entry.round,
            closed_at=entry.closed_at,
            text=describe_held(entry.round, entry.missing.findings),
            findings=entry.missing.findings,
            resolution=entry.missing.resolution,
        )
        for entry in state.waiting
        if entry.missing is not None
    )


def resolve(
    study: str, phase: str, state: StudyState, number: int, resolution: str, reason: str
) -> tuple[StudyState, Findings]:
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
    return replace(state, waiting=waiting), missing.findings


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


def read_sender_record(store: Store, study: int, closed: int) -> SenderRecord | None:
    """Return the record that the close of a round wrote; None if it wrote none."""
    for close in store.list_closes(study, after=closed - 1, limit=1) if closed > 0 else ():
        return CloseRecord.from_text(close.record).senders
    return None


def add_senders(
    store: Store,
    spec: StudySpec,
    study: int,
    record: SenderRecord,
    measured: tuple[MaturingRound, Sequence[Moments]],
    *,
    until: int,
    closing: int,
    is_phase: bool = False,
) -> SenderRecord:
    """Add a round to the record, or a look at a phase, and find senders that depart.

    A study that reads a team's own tables has no senders, and neither has a simulated store.
    """
    one, moments = measured
    if spec.source is not None or store.dialect not in STORES or not moments:
        return record
    row = store.read_policy(study, one.round)
    if row is None:
        raise StoreError(f"policy {one.round} of study {spec.name!r} is missing; run `pasto store check`")
    policy = PublishedPolicy.from_text(row.document, row.checksum)
    width = len(spec.columns)
    with store.read_transaction() as connection:
        found = measure_by_sender(
            connection,
            store.dialect,
            study=study,
            version=one.round,
            after=one.after,
            until=until,
            columns=spec.columns,
            moments=moments,
        )
    arms = {cell.arm for cells in found.values() for cell in cells}
    shares = {(cell.arm, cell.candidate): cell.propensity for cell in policy.cells if cell.arm in arms and cell.width}
    keys = sorted({*shares, *((cell.arm, cell.candidate) for cells in found.values() for cell in cells)})
    drawn = np.array([shares.get(key, 0.0) for key in keys])
    drawn /= max(drawn.sum(), 1e-300)
    groups, places = dict(record.groups), dict(record.places)
    for kind, part in (("keys", 0), ("sources", 1)):
        by_name: dict[str, list[SenderCells]] = {}
        for sender, cells in found.items():
            by_name.setdefault(sender[part], []).append(_sender_cells(cells, keys, width))
        rounds = {
            name: parts[0] if len(parts) == 1 else SenderCells.pooled(parts) for name, parts in sorted(by_name.items())
        }
        known = dict(record.groups[kind])
        for name, own in rounds.items():
            before = known.get(name)
            if before is None:
                places[kind] += 1
                before = SenderTotals(0, (0.0,) * width, SenderEvidence(places[kind]))
            evidence = before.evidence
            if record.is_phase and not is_phase:  # sums of a phase are not those of rounds
                evidence = SenderEvidence(
                    evidence.place, evidence.looks, evidence.share_evidence, departure=evidence.departure
                )
            others = [cells for other, cells in rounds.items() if other != name]
            if others:
                accumulate = not is_phase and policy.mode != "sticky"
                evidence = update_evidence(
                    evidence, own, SenderCells.pooled(others), keys, drawn, accumulate=accumulate
                )
            known[name] = _add_sender_round(before, own, evidence, closing, counts=not is_phase)
        groups[kind] = _bound_senders(_name_suspect(before=record.groups[kind], after=known))
    return SenderRecord(groups, places, is_phase)


def list_departures(spec: StudySpec, record: SenderRecord, names: Sequence[str]) -> tuple[SenderDeparture, ...]:
    """Return the senders that depart, with what departs, in the order in which they were found."""
    columns = [column.name for column in spec.columns]
    departures = []
    for kind, name in record.departed:
        totals = record.groups[kind][name]
        departure = totals.evidence.departure
        if departure is None or totals.departed is None:
            continue
        arm, candidate = departure.cell or (None, None)
        departures.append(
            SenderDeparture(
                kind=kind[:-1],
                sender=show_sender(name),
                round=totals.departed,
                test=departure.test,
                p_value=departure.p_value,
                arm=arm,
                candidate=None if candidate is None or candidate >= len(names) else names[candidate],
                metric=None if departure.column is None else columns[departure.column],
                effect=departure.effect,
                others=departure.others,
            )
        )
    return tuple(sorted(departures, key=lambda departure: (departure.round, departure.kind, departure.sender or "")))


def show_sender(name: str) -> str | None:
    """Return a sender's name as reports show it: None if it has none.

    >>> show_sender(""), show_sender("web")
    (None, 'web')
    """
    return "(others)" if name == OTHER_SOURCES else name or None


def _name_suspect(*, before: Mapping[str, SenderTotals], after: dict[str, SenderTotals]) -> dict[str, SenderTotals]:
    """Leave an alarm with the sender that departs most: the others depart from a sum that contains it."""
    new = [name for name, totals in after.items() if totals.departed is not None and not _is_departed(before, name)]
    if len(new) < 2:
        return after

    def strength(name: str) -> tuple[float, int]:
        departure = after[name].evidence.departure
        return (1.0 if departure is None else departure.p_value), after[name].units

    # Of two senders each departs from the other alike; the smaller one is the likelier suspect.
    smallest = min(strength(name)[0] for name in new)
    first = min(new, key=lambda name: (strength(name)[0] > max(smallest * 1e3, 1e-12), after[name].units, name))
    for name in new:
        if name != first:
            evidence = replace(after[name].evidence, departure=None)
            after[name] = replace(after[name], departed=None, evidence=evidence)
    return after


def _is_departed(senders: Mapping[str, SenderTotals], name: str) -> bool:
    return name in senders and senders[name].departed is not None


def _bound_senders(senders: dict[str, SenderTotals]) -> dict[str, SenderTotals]:
    """Forget the smallest senders beyond the limit: their units count as those of other sources."""
    order = sorted(senders, key=lambda name: (senders[name].departed is None, -senders[name].units, name))
    for name in order[MAX_SENDERS:]:
        if name == OTHER_SOURCES:
            continue
        gone = senders.pop(name)
        rest = senders.get(OTHER_SOURCES, replace(gone, units=0, sums=(0.0,) * len(gone.sums)))
        sums = tuple(a + b for a, b in zip(rest.sums, gone.sums, strict=True))
        senders[OTHER_SOURCES] = replace(rest, units=rest.units + gone.units, sums=sums)
    return senders


def _add_sender_round(
    before: SenderTotals, own: SenderCells, evidence: SenderEvidence, closing: int, *, counts: bool
) -> SenderTotals:
    departed = before.departed
    if departed is None and evidence.departure is not None:
        departed = closing
    if not counts:  # a phase is measured whole at every look
        return SenderTotals(before.units, before.sums, evidence, departed)
    sums = np.array(before.sums) + (own.units[:, None] * own.mean).sum(axis=0)
    return SenderTotals(before.units + int(own.units.sum()), tuple(sums.tolist()), evidence, departed)


def _sender_cells(cells: Sequence[Moments], keys: Sequence[tuple[str, int]], width: int) -> SenderCells:
    places = {key: place for place, key in enumerate(keys)}
    found = SenderCells(np.zeros(len(keys)), np.zeros((len(keys), width)), np.zeros((len(keys), width)))
    for cell in cells:
        place = places[cell.arm, cell.candidate]
        found.units[place] = cell.units
        found.mean[place] = cell.mean[:width]
        found.scatter[place] = [max(0.0, cell.cross[column][column]) for column in range(width)]
    return found
