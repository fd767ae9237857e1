"""Late events: corrections of rounds that were learned before, and the rounds that stay correctable."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pasto.errors import StoreError
from pasto.metrics import Moments
from pasto.metrics.moments import moments_match
from pasto.service.close_record import CloseRecord
from pasto.service.rounds.learner_step import Correction, RoundObservations
from pasto.service.study_file import StudySpec
from pasto.service.study_state import CorrectableRound, MaturingRound
from pasto.store import Store

Measure = Callable[[MaturingRound], tuple[Moments, ...]]
"""Measures a round on the events so far."""

_CHANGED_ROUNDS = """
SELECT DISTINCT version FROM events
WHERE study = ? AND sequence > ? AND sequence <= ? AND version >= ? AND version <= ?
"""


@dataclass(frozen=True, slots=True)
class LateCorrections:
    """Rounds that were learned before a close, with the measurements that late events changed."""

    known: tuple[CorrectableRound, ...] = ()
    """Correctable rounds in order."""
    moments: Mapping[int, tuple[Moments, ...]] = field(default_factory=dict)
    """New measurements by round, if they differ from the recorded ones."""

    def choose_correctable(
        self, spec: StudySpec, due: Sequence[MaturingRound], *, state: str, learns: bool, now: float
    ) -> set[int]:
        """Return the learned rounds, with those just learned, that a later close may still correct.

        `state` is the requested state after this close. They are the latest rounds, at most as many as the study
        stores policies, because a correction needs the policy. A study that stops learning has none; a pause changes
        nothing.
        """
        if state not in ("learning", "paused"):
            return set()
        if not learns:
            return {entry.waiting.round for entry in self.known}
        learned = [*(known.waiting for known in self.known), *due]
        window = spec.rounds.maturity + spec.rounds.accept_late
        # Rounds become final in the order in which they were learned. A held round is learned after younger ones, and
        # stays correctable as long as they do.
        first = next((place for place, entry in enumerate(learned) if entry.closed_at + window > now), len(learned))
        return {entry.round for entry in learned[max(first, len(learned) - spec.remembered_policies) :]}

    def list_correctable(
        self, due: Sequence[MaturingRound], correctable: Collection[int], *, until: int, closing: int
    ) -> tuple[CorrectableRound, ...]:
        """Return the correctable rounds after the close of round `closing`, which measured them up to `until`."""
        earlier = [
            replace(
                entry, until=until, recorded_by=closing if entry.waiting.round in self.moments else entry.recorded_by
            )
            for entry in self.known
            if entry.waiting.round in correctable
        ]
        return (*earlier, *(CorrectableRound(entry, until, closing) for entry in due if entry.round in correctable))


def read_corrections(
    store: Store, spec: StudySpec, study: int, known: Sequence[CorrectableRound], until: int, measure: Measure
) -> LateCorrections:
    """Measure again the rounds that got events since their last measurement.

    A team's own tables do not show that, so all rounds are measured again there. Sums over such tables may differ in
    their last digits each time, which is not a correction.
    """
    if not known:
        return LateCorrections()
    rounds = {entry.waiting.round for entry in known}
    if spec.source is None:
        rounds = find_changed_rounds(store, study, rounds, min(entry.until for entry in known), until)
    corrections = {}
    for entry in known:
        if entry.waiting.round in rounds:
            measured, before = measure(entry.waiting), read_recorded(store, study, entry)
            if measured != before and (spec.source is None or not moments_match(before, measured)):
                corrections[entry.waiting.round] = measured
    return LateCorrections(tuple(known), corrections)


def find_changed_rounds(store: Store, study: int, rounds: Collection[int], since: int, until: int) -> set[int]:
    """Return the rounds that got events in a span of the log."""
    if not rounds or since >= until:
        return set()
    statement = _CHANGED_ROUNDS.replace("?", "%s") if store.dialect == "postgres" else _CHANGED_ROUNDS
    with store.read_transaction() as connection:
        cursor = connection.cursor()
        try:
            cursor.execute(statement, (study, since, until, min(rounds), max(rounds)))
            return {int(version) for (version,) in cursor.fetchall()} & set(rounds)
        finally:
            cursor.close()


def read_recorded(store: Store, study: int, entry: CorrectableRound) -> tuple[Moments, ...]:
    """Read the last recorded measurement of a round."""
    number = entry.waiting.round
    for close in store.list_closes(study, after=entry.recorded_by - 1, limit=1):
        record = CloseRecord.from_text(close.record)
        for measured in (*record.corrected, *record.rounds):
            if measured.round == number:
                return measured.cells.moments()
    raise StoreError(f"close {entry.recorded_by}, which measured round {number}, is missing; run `pasto store check`")


def build_correction(
    known: Sequence[int],
    corrected: Collection[int],
    due: Sequence[int],
    correctable: Collection[int],
    recall: Callable[[int], RoundObservations],
) -> Correction:
    """Return what the learner does with the rounds that it learned: all again if any is corrected, and the final ones.

    `recall` returns the present observations of a round.

    >>> correction = build_correction([1, 2, 3], [], [4], {2, 3, 4}, lambda number: RoundObservations(number, ()))
    >>> [entry.round for entry in correction.settled], correction.again, correction.ended, correction.final
    ([1], (), False, 0)
    """
    gone = [number for number in known if number not in correctable]
    final = sum(number not in correctable for number in due)
    return Correction(
        again=tuple(map(recall, known)) if corrected else (),
        settled=tuple(map(recall, gone)) if len(gone) < len(known) else (),
        ended=len(gone) == len(known),
        final=None if final == len(due) else final,
    )
