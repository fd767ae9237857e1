"""Replay: compute every close of a study again from the study file and the event log, and compare it with its record.

The close's own code computes each step. `RecordedSource` gives it the inputs that the records name, measured again.
Closes that this process's arithmetic computed must be equal bit for bit. Others may differ by rounding: their policies
are compared share by share.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, TypeVar

from pasto.errors import PastoError
from pasto.inference.guardrail_monitor import EVIDENCE_VERSION
from pasto.metrics import Moments
from pasto.report.records import ArmVerdict
from pasto.report.replay_report import (
    ExceptionKind,
    ReplayDifference,
    ReplayException,
    ReplayReport,
    RoundingDifference,
)
from pasto.service.close_record import CloseRecord, NextPhase
from pasto.service.lifecycle import PHASES
from pasto.service.policy_builder import find_holdout
from pasto.service.ramp import RampState
from pasto.service.rounds.close import CloseResult, compute_close, judge_guardrails, open_first_round
from pasto.service.rounds.close_inputs import CloseInputs, Look, list_maturing
from pasto.service.rounds.data_quality_check import CheckedRounds
from pasto.service.rounds.guardrail_check import GuardrailResult, lengthen_ranges, phase_length
from pasto.service.rounds.late_events import LateCorrections, find_changed_rounds
from pasto.service.rounds.learner_step import LearnerUpdate, identify_arithmetic
from pasto.service.rounds.replay_measurement import RoundRemeasurer
from pasto.service.rounds.rounding import MAX_DIFFERENCE, measure_difference, verdicts_match
from pasto.service.study_file import StudySpec, parse_spec
from pasto.service.study_state import CorrectableRound, MaturingRound, StudyState, identity_of
from pasto.store import CloseRow, PolicyRow, Store, StudyRow
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import upgrade_policy

if TYPE_CHECKING:
    from pasto.service.archive import Archive

PAGE_ROWS = 200
"""Rows of closes and policies that are read at a time."""

Row = TypeVar("Row", CloseRow, PolicyRow)


class ReplayMismatchError(Exception):
    """A part of a close that differs from its record: the part, the recorded value and the computed one."""

    def __init__(self, what: str, published: str | None, computed: str | None, problem: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.published = published
        self.computed = computed
        self.problem = problem

    def in_round(self, number: int) -> ReplayDifference:
        """Return the difference as a report names it."""
        return ReplayDifference(number, self.what, self.published, self.computed, self.problem)


def replay_study(store: Store, spec: StudySpec, row: StudyRow, archive: Archive | None = None) -> ReplayReport:
    """Compute every policy and every learner state again, and report whether each is identical, bit for bit.

    Rounds are measured again from the events that their close had read; later events change nothing. The report names
    the first difference with its round. If the study has moved to another kind of store, whose sums may differ in
    their last digits, measurements must match the record except for those. If another kind of arithmetic computed a
    close, its policy must match except for rounding, and the report has the largest difference. Rounds with a unit that
    was deleted since, or whose events are not stored any more, are reported as exceptions.
    """
    if not row.version:
        return _build_report(0)
    closes = _read_pages(
        lambda after: store.list_closes(row.number, after=after, limit=PAGE_ROWS), lambda row: row.round
    )
    policies = _read_pages(
        lambda after: store.list_policies(row.number, after=after, limit=PAGE_ROWS), lambda row: row.version
    )
    first = next(policies, None)
    if first is None or first.version != 1:
        return _build_report(0, ReplayDifference(1, "policy", None, None, "the first policy is missing from the log"))
    spec = read_first_spec(store, spec, row)
    source = RecordedSource(store, spec, row, archive)
    replayed = ReplayedStudy(spec, row, source, first)
    try:
        replayed.compare_policy(replayed.serving, first)
    except ReplayMismatchError as error:
        return _build_report(0, error.in_round(1))
    done = 0
    for close in closes:
        if close.round != done + 1:
            return _build_report(done, ReplayDifference(done + 1, "close", "missing", None))
        try:
            replayed.close(close, policies)
        except ReplayMismatchError as error:
            return _build_report(done, error.in_round(close.round))
        except (PastoError, KeyError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
            return _build_report(done, ReplayDifference(close.round, "close", None, None, problem))
        done += 1
    if done < row.round - (row.state != "archived"):
        return _build_report(done, ReplayDifference(done + 1, "close", "missing", None))
    exceptions = source.remeasurer.exceptions(source.differently_judged)
    return _build_report(done, exceptions=exceptions, rounding=replayed.rounding)


class ReplayedStudy:
    """A study that goes through its recorded closes again, from its first policy on."""

    def __init__(self, spec: StudySpec, row: StudyRow, source: RecordedSource, first: PolicyRow) -> None:
        self._spec = spec
        self._source = source
        sliced = StudyState.from_text(row.details).slices_since
        ramp = RampState() if spec.traffic.ramp and sliced == 1 else None
        state = StudyState(identity=identity_of(row), slices_since=1 if sliced == 1 else None, ramp=ramp)
        held_out = find_holdout(PublishedPolicy.from_text(first.document, first.checksum)) if sliced == 1 else 0
        self._state = state.with_holdout(held_out, 1, first.published_at)
        draft = replace(row, state="draft", round=0, version=0, details=self._state.to_text())
        opened = open_first_round(
            spec, draft, self._state, NextPhase("learning"), high_water=first.after_sequence, now=first.published_at
        )
        assert opened.policy is not None  # noqa: S101 -- a learning study serves a policy
        assert opened.learner is not None  # noqa: S101
        self._row, self._learner = opened.after, opened.learner
        self.serving = opened.policy
        """The policy of the open round, as it was computed."""
        self._round = 0
        self._rounded: set[int] = set()
        """Rounds whose close differs by rounding; 0 is the start."""
        self._largest_difference = 0.0

    @property
    def rounding(self) -> RoundingDifference | None:
        """Differences by rounding; None without any."""
        return RoundingDifference(len(self._rounded), self._largest_difference) if self._rounded else None

    def close(self, close: CloseRow, policies: Iterator[PolicyRow]) -> None:
        """Compute a close from its recorded inputs; ReplayMismatchError if a result differs from the record."""
        self._round = close.round
        record = CloseRecord.from_text(close.record)
        requested = find_requested(record)
        inputs = self._source.read_inputs(
            self._spec, self._row, self._state, self.serving, self._learner, close, record
        )
        judged = judge_guardrails(self._spec, self._row, self._state, requested, inputs)
        guardrails = self._source.compare_verdicts(close, record, judged)
        result = compute_close(
            self._spec,
            self._row,
            self._state,
            requested,
            inputs,
            guardrails,
            now=close.closed_at,
            edit=record.edit,
            ramp_target=None if record.ramp is None else record.ramp.target,
        )
        self._compare(close, record, result)
        policy = result.policy_row(close.high_water, close.closed_at)
        if policy is not None:
            published = next(policies, None)
            if published is None or published.version != close.next_version:
                raise ReplayMismatchError("policy", "missing", None)
            self.compare_policy(policy, published)
            self.serving = policy
        self._row, self._state, self._learner = result.row, result.state, result.learner
        if record.edit is not None:
            self._spec = parse_spec(record.edit.after, stored=True)

    def _compare(self, close: CloseRow, record: CloseRecord, result: CloseResult) -> None:
        if result.phase != record.next_phase:
            raise ReplayMismatchError("guardrail_monitor", record.next_phase.state, result.phase.state)
        recorded = None if record.ramp is None else record.ramp.after
        if result.state.ramp != recorded:
            raise ReplayMismatchError("ramp", str(recorded), str(result.state.ramp))
        if not result.learner.has_checksum(close.learner_checksum):
            if self._source.has_same_bits:
                raise ReplayMismatchError("learner", close.learner_checksum, result.learner.checksum)
            self._rounded.add(close.round)

    def compare_policy(self, computed: PolicyRow, published: PolicyRow) -> None:
        """Raise ReplayMismatchError if a policy is not the published one; rounding is allowed for other arithmetic."""
        if _is_published(computed.document, published.document):
            return
        problem = ""
        if not self._source.has_same_bits:
            difference = measure_difference(computed.document, published.document)
            if difference <= MAX_DIFFERENCE:
                self._rounded.add(self._round)
                self._largest_difference = max(self._largest_difference, difference)
                return
            if math.isfinite(difference):
                problem = (
                    f"the largest difference of a share is {difference:.2g}; other arithmetic explains at most "
                    f"{MAX_DIFFERENCE:g}"
                )
        raise ReplayMismatchError("policy", published.checksum, computed.checksum, problem)


class RecordedSource:
    """Inputs of closes as their records name them, with every round measured again."""

    def __init__(self, store: Store, spec: StudySpec, row: StudyRow, archive: Archive | None = None) -> None:
        self._store = store
        self._study = row.number
        self._corrected_until = 0
        """Last event that earlier closes searched for corrections."""
        self._learned: dict[int, tuple[Moments, ...]] = {}
        """Latest measurements of the correctable rounds."""
        self.remeasurer = RoundRemeasurer(store, spec, row, archive)
        self.differently_judged: list[int] = []
        """Closes whose evidence was gathered by another method: their verdicts are taken from the record."""
        # No record names the arithmetic of the start, which matters if the first policy follows a history.
        self.has_same_bits = spec.history is None
        """True while this process's arithmetic computed all closes so far, so that their bits must be equal."""

    def read_inputs(
        self,
        spec: StudySpec,
        row: StudyRow,
        state: StudyState,
        serving: PolicyRow,
        learner: LearnerUpdate,
        close: CloseRow,
        record: CloseRecord,
    ) -> CloseInputs:
        """Return the inputs of a close; ReplayMismatchError if a measurement differs from the record.

        `spec` is the study file that the round ran under.
        """
        self.has_same_bits = self.has_same_bits and record.arithmetic == identify_arithmetic()
        maturing = {entry.round: entry for entry in list_maturing(row, state, serving, close.closed_at)}
        known = state.correctable
        corrections = self._measure_corrections(known, close, record) if record.learns else {}
        learned = []
        for entry in record.rounds:
            due = replace(maturing.pop(entry.round), seconds=entry.seconds, missing=None)
            learned.append((due, self._measure(due, close, record, entry.cells.moments(), "measurement")))
        discarded = tuple(maturing.pop(number) for number in sorted(record.final_rounds & maturing.keys()))
        correctable = {entry.waiting.round for entry in known} | record.correctable_rounds
        measurements = self._learned | corrections
        self._learned = {
            number: cells
            for number, cells in (measurements | {entry.round: cells for entry, cells in learned}).items()
            if number in correctable - record.final_rounds
        }
        return CloseInputs(
            learns=record.learns,
            is_phase=row.state in PHASES and record.look is not None,
            high_water=close.high_water,
            saved=learner.text,
            read_study=lambda: learner.study,
            waiting=tuple(maturing.values()),
            checked=CheckedRounds(learned=tuple(learned), discarded=discarded),
            late=LateCorrections(known, corrections),
            correctable=correctable - record.final_rounds,
            recall=lambda entry: measurements[entry.waiting.round],
            look=self._measure_look(spec, serving, close, record),
            uses_covariates=record.uses_covariates,
            holdout=record.holdout,
        )

    def compare_verdicts(self, close: CloseRow, record: CloseRecord, judged: GuardrailResult) -> GuardrailResult:
        """Return the result of the guardrail monitor; verdicts of another method are taken from the record."""
        if record.verdicts is None:  # closed before there was a monitor
            return replace(judged, verdicts=())
        if judged.verdicts == record.verdicts:
            return judged
        if record.method == EVIDENCE_VERSION:
            if not self.has_same_bits and verdicts_match(judged.verdicts, record.verdicts):
                return replace(judged, verdicts=record.verdicts)
            raise ReplayMismatchError("guardrail_monitor", _to_json(record.verdicts), _to_json(judged.verdicts))
        self.differently_judged.append(close.round)
        return replace(judged, verdicts=record.verdicts)

    def _measure_corrections(
        self, known: Sequence[CorrectableRound], close: CloseRow, record: CloseRecord
    ) -> dict[int, tuple[Moments, ...]]:
        """Measure again the rounds that got late events, and those that the close recorded as corrected."""
        rounds = {entry.waiting.round: entry.waiting for entry in known}
        recorded = {entry.round: entry.cells.moments() for entry in record.corrected}
        changed = find_changed_rounds(self._store, self._study, rounds, self._corrected_until, close.high_water)
        self._corrected_until = close.high_water
        if not recorded.keys() <= rounds.keys():
            raise ReplayMismatchError("correction", "recorded", "not as recorded")
        corrections = {}
        for number in sorted(changed | recorded.keys()):
            expected = recorded.get(number, self._learned[number])
            cells = self._measure(rounds[number], close, record, expected, "correction")
            if cells != expected:
                raise ReplayMismatchError("correction", "recorded", "not as recorded")
            if number in recorded:
                corrections[number] = cells
        return corrections

    def _measure_look(self, spec: StudySpec, serving: PolicyRow, close: CloseRow, record: CloseRecord) -> Look | None:
        if record.look is None:
            return None
        phase = MaturingRound(close.version, 0, serving.after_sequence, 0.0)
        elapsed = phase_length(spec, serving.published_at, close.closed_at)
        recorded, longer = record.look.cells.moments(), lengthen_ranges(spec, elapsed)
        cells = self._measure(phase, close, record, recorded, "measurement", longer)
        if cells != recorded or elapsed != record.look.elapsed:
            raise ReplayMismatchError("measurement", "recorded", "not as recorded")
        return Look(elapsed, cells)

    def _measure(
        self,
        entry: MaturingRound,
        close: CloseRow,
        record: CloseRecord,
        recorded: Sequence[Moments],
        what: str,
        spec: StudySpec | None = None,
    ) -> tuple[Moments, ...]:
        cells = self.remeasurer.measure(
            entry, close.high_water, recorded, record.engine, spec, has_same_bits=self.has_same_bits
        )
        if cells is None:
            raise ReplayMismatchError(what, "recorded", "not as recorded")
        return cells


def read_first_spec(store: Store, spec: StudySpec, row: StudyRow) -> StudySpec:
    """Return the study file that a study started with; `spec` is the present one."""
    first = StudyState.from_text(row.details).first_edited
    if first is None:
        return spec
    for close in store.list_closes(row.number, after=first - 1, limit=1):
        edit = CloseRecord.from_text(close.record).edit
        if close.round == first and edit is not None:
            return parse_spec(edit.before, stored=True)
    return spec


def find_requested(record: CloseRecord) -> NextPhase:
    """Return the phase that was requested at a close: a pause after learning or a look was the guardrail monitor's.

    A pause by a person neither learns nor looks.

    >>> close = CloseRecord("learning", learns=True, engine="sqlite", next_phase=NextPhase("paused"))
    >>> find_requested(close).state
    'learning'
    """
    if record.next_phase.state == "paused" and (record.learns or record.look is not None):
        return NextPhase("learning" if record.learns else record.state)
    return record.next_phase


def _is_published(computed: str, stored: str) -> bool:
    """Return whether a document is the stored one.

    A stored policy of format 1 is compared as the present format writes it, and any other byte for byte.
    """
    try:
        return computed == stored or computed == upgrade_policy(stored)
    except (KeyError, TypeError, ValueError):  # a damaged text
        return False


def _to_json(verdicts: Sequence[ArmVerdict]) -> str:
    return json.dumps([asdict(verdict) for verdict in verdicts])


def _read_pages(read: Callable[[int], list[Row]], number: Callable[[Row], int]) -> Iterator[Row]:
    after = 0
    while rows := read(after):
        yield from rows
        after = number(rows[-1])


def _build_report(
    rounds: int,
    difference: ReplayDifference | None = None,
    exceptions: Mapping[ExceptionKind, ReplayException] | None = None,
    rounding: RoundingDifference | None = None,
) -> ReplayReport:
    is_identical = difference is None and rounding is None
    return ReplayReport(is_identical, rounds, difference, exceptions or {}, rounding)
