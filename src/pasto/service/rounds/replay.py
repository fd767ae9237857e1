"""Every close computed again from the study file and the log, and compared with what was published."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from pasto.errors import PastoError
from pasto.inference.guardrail_monitor import METHOD
from pasto.metrics import Moments
from pasto.service.close_record import CloseRecord, NextPhase
from pasto.service.rounds.close import publication, round_observations
from pasto.service.rounds.guardrail_check import (
    after_close,
    check_guardrails,
    holding,
    lengthened,
    look_elapsed,
    must_pause,
    rearm,
)
from pasto.service.rounds.late_events import build_correction, correctable_rounds
from pasto.service.rounds.learner_step import (
    Correction,
    LearnerUpdate,
    RoundObservations,
    initial_update,
    update_learner,
)
from pasto.service.rounds.replay_measurement import RoundRemeasurer
from pasto.service.study_file import StudySpec
from pasto.service.study_state import FrozenBlend, GuardrailStatus, MaturingRound, identity_of
from pasto.store import CloseRow, PolicyRow, Store, StudyRow
from pasto_sdk.policy_document import has_checksum, remove_checksum

if TYPE_CHECKING:
    from pasto.service.archive import Archive


class CorrectionReplay:
    """The rounds that were open to correction, close by close, and what each was known to have measured."""

    def __init__(self, store: Store, spec: StudySpec, row: StudyRow, measuring: RoundRemeasurer) -> None:
        self._store = store
        self._spec = spec
        self._study = row.number
        self._measuring = measuring
        self._known: dict[int, tuple[MaturingRound, tuple[Moments, ...]]] = {}
        self._mark = 0
        self.corrected: dict[int, tuple[Moments, ...]] = {}
        """By the close at hand."""

    def measure(self, close: CloseRow, record: CloseRecord) -> bool:
        """Correct what events since the last close corrected; whether that is what was recorded."""
        claimed = {entry.round: entry.cells.moments() for entry in record.corrected}
        self.corrected = {}
        moved = correctable_rounds(self._store, self._study, self._known, self._mark, close.high_water)
        self._mark = close.high_water
        if not claimed.keys() <= self._known.keys():
            return False
        for number in sorted(moved | claimed.keys()):
            one, before = self._known[number]
            now = self._measuring.measure(one, close.high_water, claimed.get(number, before), record.engine)
            if now is None or now != claimed.get(number, before):
                return False
            if number in claimed:
                self.corrected[number] = now
                self._known[number] = one, now
        return True

    def revision(self, record: CloseRecord) -> Correction:
        """What the learner was told of the rounds it knew."""
        due = [entry.round for entry in record.rounds]
        stay = {*self._known, *record.correctable_rounds} - record.final_rounds
        return build_correction([*self._known], self.corrected, due, stay, self._lesson)

    def add(self, rounds: Iterable[tuple[MaturingRound, Sequence[Moments]]], record: CloseRecord) -> None:
        """Take in the rounds that the close learned and left open, and let go of those that it made final."""
        for number in record.final_rounds:
            self._known.pop(number, None)
        correctable = record.correctable_rounds
        self._known |= {one.round: (one, tuple(moments)) for one, moments in rounds if one.round in correctable}

    def _lesson(self, number: int) -> RoundObservations:
        return round_observations(self._spec, *self._known[number])


Difference = tuple[str, str, str]
"""What differs, what was recorded, and what is found."""


class GuardrailReplay:
    """Judges every close of a study again."""

    def __init__(self, spec: StudySpec, measuring: RoundRemeasurer, after: int, published_at: float) -> None:
        self._spec = spec
        self._measuring = measuring
        self._watch = GuardrailStatus()
        self._open: set[int] = set()
        """Rounds that a later close may correct."""
        self.otherwise: list[int] = []
        """Closes that gathered evidence in another way than now: what they said is taken from the record."""
        self.serving(after, published_at)

    def serving(self, after: int, published_at: float) -> None:
        """Note the policy that the closes to come serve."""
        self._after, self._published_at = after, published_at

    def close(
        self,
        close: CloseRow,
        record: CloseRecord,
        terms: NextPhase,
        rounds: Sequence[tuple[int, Sequence[Moments]]],
        recorded: Sequence[Moments] = (),
        corrected: Mapping[int, Sequence[Moments]] = MappingProxyType({}),
    ) -> Difference | None:
        """Judge one close, with the rounds it corrects; `recorded` is what its look had measured, where it was one."""
        state = record.state
        look = None
        if record.look is not None:
            phase = MaturingRound(close.version, 0, self._after, 0.0)
            elapsed = look_elapsed(self._spec, self._published_at, close.closed_at)
            longer = lengthened(self._spec, elapsed)
            measured = self._measuring.measure(phase, close.high_water, recorded, record.engine, longer)
            if measured != tuple(recorded) or elapsed != record.look.elapsed:
                return "measurement", "recorded", "not as recorded"
            look = elapsed, measured
        self._watch = rearm(self._watch, state, terms.state, close.round)
        self._open |= record.correctable_rounds
        self._open -= record.final_rounds
        known = [*corrected.items(), *rounds]
        seconds = {entry.round: entry.seconds for entry in record.measured}
        first_open = min(self._open, default=None)
        judged = check_guardrails(
            self._spec, state, self._watch, known, look=look, first_open=first_open, seconds=seconds
        )
        said = tuple(judged.said)
        if record.verdicts is None:  # closed before there was one
            self._watch = after_close(self._watch, state, terms.state, judged, None)
            return None
        if said != record.verdicts and record.method != METHOD:
            self.otherwise.append(close.round)
            said = record.verdicts
            judged = replace(judged, said=said)
        if said != record.verdicts:
            return "breaker", json.dumps(list(map(asdict, record.verdicts))), json.dumps(list(map(asdict, said)))
        pulled = NextPhase("paused", hold=holding(state))
        if must_pause(terms.state, said):
            return "breaker", terms.state, "paused"
        trip = {"round": close.round} if terms == pulled and must_pause(state, said) else None
        self._watch = after_close(self._watch, state, terms.state, judged, trip)
        return None


Row = TypeVar("Row", CloseRow, PolicyRow)

PAGE = 200


def replay_study(store: Store, spec: StudySpec, row: StudyRow, archive: Archive | None = None) -> dict[str, Any]:
    """Whether every policy and every state of the learner comes out as it was published, bit for bit.

    Rounds are measured again from the events that their close had seen; whatever arrived later changes nothing. The
    first difference is told with its round. Where the study has moved to another kind of store since, whose sums may
    differ in their last digits, what is measured must agree with what was recorded but for those. Rounds that knew a
    unit which was deleted since, or whose events are no longer kept, are told as exceptions.
    """
    if not row.version:
        return _told(0, None)
    closes = _pages(lambda after: store.list_closes(row.number, after=after, limit=PAGE), lambda close: close.round)
    policies = _pages(
        lambda after: store.list_policies(row.number, after=after, limit=PAGE), lambda policy: policy.version
    )
    first = next(policies, None)
    if first is None or first.version != 1:
        return _told(0, {"round": 1, "what": "policy", "problem": "the first policy is missing from the log"})
    stepped = initial_update(spec.study(row.seed))
    frozen: FrozenBlend | None = None
    identity = identity_of(row)
    _, again = publication(
        spec, stepped, NextPhase("learning"), None, version=1, at=first.published_at, identity=identity
    )
    if again is None or not _is_published(again.text, first.document):
        return _told(0, _difference(1, "policy", first.checksum, None if again is None else again.checksum))
    served = {1: MaturingRound(1, stepped.study.policy.version, first.after_sequence, 0.0)}
    done, measuring = 0, RoundRemeasurer(store, spec, row, archive)
    open_ = CorrectionReplay(store, spec, row, measuring)
    rejudged = GuardrailReplay(spec, measuring, first.after_sequence, first.published_at)
    for close in closes:
        if close.round != done + 1:
            return _told(done, _difference(done + 1, "close", "missing", None))
        try:
            stepped, frozen, difference = _again(
                measuring, open_, rejudged, spec, close, stepped, frozen, served, policies, identity
            )
        except (PastoError, KeyError, ValueError) as error:
            difference = _difference(close.round, "close", None, None, f"{type(error).__name__}: {error}")
        if difference is not None:
            return _told(done, difference)
        done += 1
    if done < row.round - (row.state != "archived"):
        return _told(done, _difference(done + 1, "close", "missing", None))
    return {**_told(done, None), **measuring.exceptions(rejudged.otherwise)}


def _again(
    measuring: RoundRemeasurer,
    open_: CorrectionReplay,
    rejudged: GuardrailReplay,
    spec: StudySpec,
    close: CloseRow,
    stepped: LearnerUpdate,
    frozen: FrozenBlend | None,
    served: dict[int, MaturingRound],
    policies: Iterator[PolicyRow],
    identity: str,
) -> tuple[LearnerUpdate, FrozenBlend | None, dict[str, Any] | None]:
    """One close once more; `served` learns what the next round serves."""
    record = CloseRecord.from_text(close.record)
    rounds: list[tuple[int, Sequence[Moments]]] = []
    if record.learns:
        if not open_.measure(close, record):
            return stepped, frozen, _difference(close.round, "correction", "recorded", "not as recorded")
        due = [served.pop(entry.round) for entry in record.rounds]
        lessons = []
        for one, entry in zip(due, record.rounds, strict=True):
            measured = measuring.measure(one, close.high_water, entry.cells.moments(), record.engine)
            if measured is None:
                return stepped, frozen, _difference(close.round, "measurement", "recorded", "not as recorded")
            lessons.append(round_observations(spec, one, measured))
            rounds.append((one.round, measured))
        stepped = update_learner(stepped.text, lessons, open_.revision(record))
        open_.add([(one, measured) for one, (_, measured) in zip(due, rounds, strict=True)], record)
        rounds = [*open_.corrected.items(), *rounds]
    if stepped.checksum != close.learner_checksum:
        return stepped, frozen, _difference(close.round, "learner", close.learner_checksum, stepped.checksum)
    terms = record.next_phase
    looked = () if record.look is None else record.look.cells.moments()
    if (different := rejudged.close(close, record, terms, rounds, looked)) is not None:
        return stepped, frozen, _difference(close.round, *different)
    if close.next_version == close.version:
        return stepped, frozen, None
    policy = next(policies, None)
    if policy is None or policy.version != close.next_version:
        return stepped, frozen, _difference(close.round, "policy", "missing", None)
    frozen, again = publication(
        spec, stepped, terms, frozen, version=policy.version, at=policy.published_at, identity=identity
    )
    if again is None or not _is_published(again.text, policy.document):
        found = None if again is None else again.checksum
        return stepped, frozen, _difference(close.round, "policy", policy.checksum, found)
    rejudged.serving(close.high_water, policy.published_at)
    if terms.state == "learning":
        learned = stepped.study.policy.version
        served[policy.version] = MaturingRound(policy.round, learned, close.high_water, 0.0)
    return stepped, frozen, None


def _is_published(computed: str, stored: str) -> bool:
    """Return whether a document is the stored one; one that carries no checksum of its own is compared without it."""
    return stored == (computed if has_checksum(stored.encode()) else remove_checksum(computed))


def _pages(read: Callable[[int], list[Row]], number: Callable[[Row], int]) -> Iterator[Row]:
    after = 0
    while rows := read(after):
        yield from rows
        after = number(rows[-1])


def _told(rounds: int, difference: dict[str, Any] | None) -> dict[str, Any]:
    return {"identical": difference is None, "rounds": rounds, "first_difference": difference}


def _difference(
    number: int, what: str, published: str | None, computed: str | None, problem: str = ""
) -> dict[str, Any]:
    told = {"round": number, "what": what, "published": published, "computed": computed}
    return {**told, "problem": problem} if problem else told
