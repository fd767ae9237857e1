"""Sender check of a close: units and means by API key and by source, and the senders that depart from the others.

The record of the last close is the state: each close reads it, adds its rounds, and writes it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pasto.errors import StoreError
from pasto.inference.sender_departure import SenderCells, SenderEvidence, update_evidence
from pasto.metrics import OTHER_SOURCES, Moments, measure_by_sender
from pasto.metrics.sender_measurement import STORES
from pasto.report.data_records import SenderDeparture
from pasto.service.close_record import CloseRecord, SenderRecord, SenderTotals
from pasto.service.study_file import StudySpec
from pasto.service.study_state import MaturingRound
from pasto.store import Store
from pasto_sdk.policy import PublishedPolicy

MAX_SENDERS = 40
"""Senders of each kind that are remembered; those with fewest units are summed as one."""


def read_sender_record(store: Store, study: int, closed: int) -> SenderRecord | None:
    """Return the record that the close of a round wrote; None if it wrote none."""
    for close in store.list_closes(study, after=closed - 1, limit=1) if closed > 0 else ():
        return CloseRecord.from_text(close.record).senders
    return None


def add_round(
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
            by_name.setdefault(sender[part], []).append(_cells(cells, keys, width))
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
            known[name] = _added(before, own, evidence, closing, counts=not is_phase)
        groups[kind] = _bounded(_named(before=record.groups[kind], after=known))
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


def _named(*, before: Mapping[str, SenderTotals], after: dict[str, SenderTotals]) -> dict[str, SenderTotals]:
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


def _bounded(senders: dict[str, SenderTotals]) -> dict[str, SenderTotals]:
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


def _added(
    before: SenderTotals, own: SenderCells, evidence: SenderEvidence, closing: int, *, counts: bool
) -> SenderTotals:
    departed = before.departed
    if departed is None and evidence.departure is not None:
        departed = closing
    if not counts:  # a phase is measured whole at every look
        return SenderTotals(before.units, before.sums, evidence, departed)
    sums = np.array(before.sums) + (own.units[:, None] * own.mean).sum(axis=0)
    return SenderTotals(before.units + int(own.units.sum()), tuple(sums.tolist()), evidence, departed)


def _cells(cells: Sequence[Moments], keys: Sequence[tuple[str, int]], width: int) -> SenderCells:
    places = {key: place for place, key in enumerate(keys)}
    found = SenderCells(np.zeros(len(keys)), np.zeros((len(keys), width)), np.zeros((len(keys), width)))
    for cell in cells:
        place = places[cell.arm, cell.candidate]
        found.units[place] = cell.units
        found.mean[place] = cell.mean[:width]
        found.scatter[place] = [max(0.0, cell.cross[column][column]) for column in range(width)]
    return found
