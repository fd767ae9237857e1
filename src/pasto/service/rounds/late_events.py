"""Rounds that were learned and are still open to correction: what late events change in them, and how long."""

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
"""Measures a round, as far as its events have come."""

_STIRRED = """
SELECT DISTINCT version FROM events
WHERE study = ? AND sequence > ? AND sequence <= ? AND version >= ? AND version <= ?
"""


@dataclass(frozen=True, slots=True)
class LateCorrections:
    """What a close finds of the rounds that were learned before it."""

    known: tuple[CorrectableRound, ...] = ()
    """Those that are open to correction, in order."""
    moments: Mapping[int, tuple[Moments, ...]] = field(default_factory=dict)
    """What they measure now, by round, where that is not what is known of them."""

    def stay(
        self, spec: StudySpec, due: Sequence[MaturingRound], *, state: str, learning: bool, now: float
    ) -> set[int]:
        """The learned rounds that a later close may still correct, among those just learned too.

        `state` is the study's after this close. They are the latest ones, and not too many: each needs its policy to be
        kept, so as many stay open as a study keeps policies. What no longer learns is not corrected either; a pause
        leaves everything as it is.
        """
        if state not in ("learning", "paused"):
            return set()
        if not learning:
            return {one.waiting.round for one in self.known}
        learned = [*(known.waiting for known in self.known), *due]
        window = spec.rounds.maturity + spec.rounds.accept_late
        # Rounds are final in the order in which they were learned. One that was held back is learned after younger
        # ones, and stays open as long as they do.
        first = next((place for place, one in enumerate(learned) if one.closed_at + window > now), len(learned))
        return {one.round for one in learned[max(first, len(learned) - spec.kept) :]}

    def later(
        self, due: Sequence[MaturingRound], stay: Collection[int], *, until: int, told: int
    ) -> tuple[CorrectableRound, ...]:
        """The rounds that stay open: known up to the close's mark, and told by it where it measured them."""
        kept = [
            replace(one, until=until, recorded_by=told if one.waiting.round in self.moments else one.recorded_by)
            for one in self.known
            if one.waiting.round in stay
        ]
        return (*kept, *(CorrectableRound(one, until, told) for one in due if one.round in stay))


def read_corrections(
    store: Store, spec: StudySpec, study: int, known: Sequence[CorrectableRound], until: int, measure: Measure
) -> LateCorrections:
    """Measure the rounds again that got events since.

    A team's own tables do not tell, so there all are measured; and sums over them may differ in their last digits from
    one time to the next, which corrects nothing.
    """
    if not known:
        return LateCorrections()
    rounds = {one.waiting.round for one in known}
    if spec.source is None:
        rounds = correctable_rounds(store, study, rounds, min(one.until for one in known), until)
    found = {}
    for one in known:
        if one.waiting.round in rounds:
            measured = measure(one.waiting)
            before = recorded(store, study, one)
            if measured != before and (spec.source is None or not moments_match(before, measured)):
                found[one.waiting.round] = measured
    return LateCorrections(tuple(known), found)


def correctable_rounds(store: Store, study: int, rounds: Collection[int], since: int, until: int) -> set[int]:
    """Those of the rounds that got events in a span of the log."""
    if not rounds or since >= until:
        return set()
    statement = _STIRRED.replace("?", "%s") if store.dialect == "postgres" else _STIRRED
    with store.read_transaction() as connection:
        cursor = connection.cursor()
        try:
            cursor.execute(statement, (study, since, until, min(rounds), max(rounds)))
            return {int(version) for (version,) in cursor.fetchall()} & set(rounds)
        finally:
            cursor.close()


def recorded(store: Store, study: int, one: CorrectableRound) -> tuple[Moments, ...]:
    """What a round is known to have measured, as the close that told it last wrote it down."""
    for close in store.list_closes(study, after=one.recorded_by - 1, limit=1):
        record = CloseRecord.from_text(close.record)
        for entry in (*record.corrected, *record.rounds):
            if entry.round == one.waiting.round:
                return entry.cells.moments()
    raise StoreError(
        f"close {one.recorded_by}, which measured round {one.waiting.round}, is missing; run `pasto store check`"
    )


def build_correction(
    known: Sequence[int],
    corrected: Collection[int],
    due: Sequence[int],
    stay: Collection[int],
    recall: Callable[[int], RoundObservations],
) -> Correction:
    """What the learner is told of rounds that it knows: all of them anew where any is corrected, and those that end.

    `recall` tells a round as it is known now.

    >>> told = build_correction([1, 2, 3], [], [4], {2, 3, 4}, lambda number: RoundObservations(number, ()))
    >>> [one.round for one in told.again], [one.round for one in told.settled], told.ended, told.final
    ([], [1], False, 0)
    """
    gone = [number for number in known if number not in stay]
    final = sum(number not in stay for number in due)
    return Correction(
        again=tuple(map(recall, known)) if corrected else (),
        settled=tuple(map(recall, gone)) if len(gone) < len(known) else (),
        ended=len(gone) == len(known),
        final=None if final == len(due) else final,
    )
