"""Round close: end the open round, learn the matured ones and publish the next policy.

`prepare_close` computes everything before anything is written. `commit_transition` writes it, and exactly one node
succeeds. A replay runs `judge_guardrails` and `compute_close` with inputs from the records of the closes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pasto.control_characters import escape_control
from pasto.inference.guardrail_monitor import EVIDENCE_VERSION
from pasto.metrics import Moments
from pasto.report.records import PauseRecord
from pasto.service.close_record import (
    OWN_TABLES,
    CloseRecord,
    FinalRound,
    HeldRound,
    NextPhase,
    RecordedLook,
    RecordedRound,
    StoredCells,
)
from pasto.service.policy_builder import build_policy, freeze_blend, hold_policy
from pasto.service.policy_cache import StudySnapshot
from pasto.service.ramp import (
    RampState,
    RampTarget,
    RecordedRamp,
    advance_ramp,
    describe_move,
    edit_ramp,
    restart_ramp,
    set_ramp,
)
from pasto.service.rounds.close_inputs import CloseInputs, Look, read_close_inputs, read_holdout
from pasto.service.rounds.guardrail_check import (
    GuardrailResult,
    Past,
    after_close,
    check_guardrails,
    choose_hold,
    describe_breach,
    must_pause,
    newly_warned,
    no_past,
    rearm,
)
from pasto.service.rounds.late_events import build_correction
from pasto.service.rounds.learner_step import (
    Correction,
    LearnerUpdate,
    RoundObservations,
    identify_arithmetic,
    initial_update,
    round_observations,
    update_learner,
)
from pasto.service.rounds.study_edit import EditedStudy, apply_edit
from pasto.service.study_file import StudySpec
from pasto.service.study_file.edit import RecordedEdit, StudyEdit
from pasto.service.study_state import FrozenBlend, GuardrailStatus, MaturingRound, StudyState
from pasto.store import AuditRow, CloseRow, LayerSliceRow, OutboxRow, PolicyRow, Store, StudyRow
from pasto_sdk.policy import PublishedPolicy


@dataclass(frozen=True, slots=True)
class CloseResult:
    """Outcome of a close that its inputs determine, bit for bit."""

    phase: NextPhase
    """The requested phase, or a pause if a guardrail is breached."""
    trip: str | None
    """Reason of that pause; None without a breach."""
    learner: LearnerUpdate
    policy: PublishedPolicy | None
    """Policy of the next round; None for a look and for an archived study."""
    row: StudyRow
    """The study after the close, with its former details."""
    state: StudyState
    """The details after the close."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences about rounds that could not be learned."""
        return self.learner.problems

    def policy_row(self, high_water: int, now: float) -> PolicyRow | None:
        """Return the row of the next policy; its round starts after the event `high_water`."""
        if self.policy is None:
            return None
        learned = self.learner.study.policy.version if self.phase.state == "learning" else None
        text, checksum = self.policy.text, self.policy.checksum
        return PolicyRow(self.row.version, self.row.round, learned, text, checksum, high_water, now)


@dataclass(frozen=True, slots=True)
class StudyTransition:
    """Rows that one commit writes, with what callers report about them."""

    after: StudyRow
    policy: PolicyRow | None
    close: CloseRow | None
    learner: LearnerUpdate | None
    """The learner, if the commit saves a new state of it."""
    learned_from: tuple[int, ...] = ()
    corrected: tuple[int, ...] = ()
    """Rounds that were learned before, and are learned again with late events."""
    held: tuple[int, ...] = ()
    """Rounds that are held because events seem to be missing."""
    newly_held: tuple[int, ...] = ()
    """Held rounds that were not held before this close."""
    discarded: tuple[int, ...] = ()
    """Rounds that a person left out."""
    problems: tuple[str, ...] = ()
    published: PublishedPolicy | None = None
    guardrails: GuardrailStatus = field(default_factory=GuardrailStatus)
    """The guardrail monitor after the close."""
    look: Look | None = None
    """Measurement of a phase in which units keep their arm."""
    warned: tuple[str, ...] = ()
    """Guardrails with a warning since this close."""
    trip: str | None = None
    """Reason why the guardrail monitor pauses the study now."""
    ramp_change: str | None = None
    """Sentence about the step that the ramp moves to; None if it stays."""
    newly_departed: frozenset[tuple[str, str]] = frozenset()
    """Senders that depart from the others since this close, by kind and name."""


def prepare_close(
    store: Store,
    snapshot: StudySnapshot,
    requested: NextPhase,
    *,
    now: float,
    past: Past = no_past,
    edit: RecordedEdit | None = None,
    ramp_target: RampTarget | None = None,
) -> StudyTransition:
    """End the open round, learn the matured ones and build the next policy; nothing is written yet.

    Learned rounds that are correctable are learned again if late events arrived. If a served arm has breached a
    guardrail, the next phase is a pause instead of `requested`. `past` reads the learning rounds before, for a study
    whose state does not carry their evidence. The round is measured and judged under the study file that it ran
    under; an `edit` and the step of a ramp in `ramp_target` apply to what follows.
    """
    row, spec, state = snapshot.row, snapshot.spec, snapshot.state
    if not row.version:
        started = replace(state, slices_since=1, ramp=RampState() if spec.traffic.ramp else None)
        started = started.with_holdout(read_holdout(store, spec), 1, now)
        return open_first_round(spec, row, started, requested, high_water=store.read_high_water(row.number), now=now)
    inputs = read_close_inputs(store, snapshot, requested, now=now)
    guardrails = judge_guardrails(spec, row, state, requested, inputs, past)
    result = compute_close(spec, row, state, requested, inputs, guardrails, now=now, edit=edit, ramp_target=ramp_target)
    problems = (*inputs.problems, *result.problems, *guardrails.problems)
    engine = store.dialect if spec.source is None else OWN_TABLES
    record = build_record(row, inputs, guardrails, result, engine=engine, problems=problems, edit=edit)
    if result.state.ramp is not None:
        record = replace(record, ramp=RecordedRamp(result.state.ramp, ramp_target))
    transition = build_transition(row, state, inputs, guardrails, result, record, now=now)
    before, after = state.ramp, result.state.ramp
    if before is None or after is None or before.step == after.step or edit is not None or ramp_target is not None:
        return transition
    return replace(transition, ramp_change=describe_move(spec.traffic, before, after, guardrails.verdicts))


def open_first_round(
    spec: StudySpec, row: StudyRow, state: StudyState, requested: NextPhase, *, high_water: int, now: float
) -> StudyTransition:
    """Open the first round of a study after the last event in the store; a draft that is archived has none."""
    if requested.state == "archived":
        return StudyTransition(replace(row, generation=row.generation + 1, state="archived"), None, None, None)
    learner = initial_update(spec.build_study(row.seed))
    _, policy = publish_next(spec, learner, requested, state, version=1, now=now)
    assert policy is not None  # noqa: S101 -- only archived studies serve none
    after = replace(row, generation=row.generation + 1, state=requested.state, round=1, version=1, opened_at=now)
    after = replace(after, details=state.to_text())
    learned = learner.study.policy.version
    policy_row = PolicyRow(1, 1, learned, policy.text, policy.checksum, high_water, now)
    return StudyTransition(after, policy_row, None, learner, published=policy)


def judge_guardrails(
    spec: StudySpec,
    row: StudyRow,
    state: StudyState,
    requested: NextPhase,
    inputs: CloseInputs,
    past: Past = no_past,
) -> GuardrailResult:
    """Judge every guardrail on the rounds or the look that the close measured."""
    status = rearm(state.guardrail_monitor, row.state, requested.state, row.round)
    return check_guardrails(
        spec,
        row.state,
        status,
        inputs.rounds,
        past,
        inputs.look,
        first_open=min(inputs.correctable, default=None),
        seconds=inputs.seconds,
    )


def compute_close(
    spec: StudySpec,
    row: StudyRow,
    state: StudyState,
    requested: NextPhase,
    inputs: CloseInputs,
    guardrails: GuardrailResult,
    *,
    now: float,
    edit: RecordedEdit | None = None,
    ramp_target: RampTarget | None = None,
) -> CloseResult:
    """Compute the learner, the policy and the state after a close; equal arguments give equal results."""
    phase, trip = choose_phase(spec, row, requested, guardrails)
    if edit is not None:
        inputs.read_study()  # a study that cannot be read is not edited
    learner = learn_rounds(spec, inputs) if inputs.learns else _keep_learner(spec, row, inputs, phase)
    edited = None if edit is None else apply_edit(spec, edit, learner)
    if edited is not None:
        spec, learner = edited.spec, edited.learner
    if state.ramp is not None or edited is not None:
        served = spec if edited is None else edited.before
        state = _move_ramp(served, row, state, phase, inputs, guardrails, learner, edited, ramp_target)
    serves_anew = phase.state == "deployed" and inputs.holdout != state.holdout
    is_look = inputs.is_phase and phase.state == row.state and not serves_anew
    paused_from = _find_paused_from(row, state, phase)
    frozen, policy = state.frozen, None
    if not is_look:
        state = state.with_holdout(inputs.holdout, row.version + 1, now)
        before = replace(state, paused_from=paused_from)
        frozen, policy = publish_next(spec, learner, phase, before, version=row.version + 1, now=now)
    status = rearm(state.guardrail_monitor, row.state, requested.state, row.round)
    tripped = None if trip is None else PauseRecord(row.round, now, trip)
    next_state = StudyState(
        waiting=inputs.waiting,
        paused_from=paused_from,
        frozen=frozen,
        horizon=state.horizon if phase.horizon is None else phase.horizon,
        guardrail_monitor=after_close(status, row.state, phase.state, guardrails, tripped),
        correctable=inputs.list_correctable(row.round),
        identity=state.identity,
        edits=state.edits,
        first_edited=state.first_edited,
        slices_since=state.slices_since,
        ramp=state.ramp,
        holdout=state.holdout,
        holdout_since=state.holdout_since,
    )
    next_row = replace(row, generation=row.generation + 1, state=phase.state)
    if edit is not None and edited is not None:
        next_row = replace(next_row, study_file=edited.study_file)
        next_state = edited.update_state(
            next_state, StudyEdit(row.round, next_row.generation, now, edit.who, edit.reason, edit.changes)
        )
    if policy is not None:
        next_row = replace(next_row, round=row.round + 1, version=row.version + 1, opened_at=now)
    elif is_look:
        next_row = replace(next_row, round=row.round + 1, opened_at=now)
    return CloseResult(phase, trip, learner, policy, next_row, next_state)


def _move_ramp(
    spec: StudySpec,
    row: StudyRow,
    state: StudyState,
    phase: NextPhase,
    inputs: CloseInputs,
    guardrails: GuardrailResult,
    learner: LearnerUpdate,
    edited: EditedStudy | None,
    target: RampTarget | None,
) -> StudyState:
    """Return the state with the ramp after a close: moved by the verdicts, by a request or by an edit.

    A study of an earlier release enrols by slices from the edit on that gives it a ramp or an audience.
    """
    ramp = state.ramp
    if ramp is not None:
        if target is not None:
            ramp = set_ramp(ramp, target, row.round)
        elif phase.state == "learning" != row.state:
            ramp = restart_ramp(ramp, row.round)
        elif phase.state == "learning":
            measured = [entry.round for entry, cells in inputs.matured if any(cell.units for cell in cells)]
            has_problems = bool(learner.problems)
            ramp = advance_ramp(spec, ramp, row.round, measured, guardrails.verdicts, has_problems=has_problems)
    if edited is None:
        return replace(state, ramp=ramp)
    ramp = edit_ramp(spec.traffic, edited.spec.traffic, ramp, row.round)
    needs_slices = edited.spec.traffic.ramp or edited.spec.audience
    since = row.version + 1 if needs_slices and state.slices_since is None else state.slices_since
    return replace(state, ramp=ramp, slices_since=since)


def _find_paused_from(row: StudyRow, state: StudyState, phase: NextPhase) -> str | None:
    """Return the state before a pause, which an edit of the paused study does not change."""
    if phase.state != "paused":
        return None
    return state.paused_from if row.state == "paused" else row.state


def choose_phase(
    spec: StudySpec, row: StudyRow, requested: NextPhase, guardrails: GuardrailResult
) -> tuple[NextPhase, str | None]:
    """Return the requested phase, or a pause and its reason if a guardrail is breached."""
    if not must_pause(requested.state, guardrails.verdicts):
        return requested, None
    return NextPhase("paused", hold=choose_hold(row.state)), describe_breach(spec, guardrails.verdicts)


def learn_rounds(spec: StudySpec, inputs: CloseInputs) -> LearnerUpdate:
    """Let the learner learn the matured rounds, and correct the rounds that it learned before."""
    lessons = [
        round_observations(spec, entry, cells, uses_covariates=inputs.uses_covariates)
        for entry, cells in inputs.matured
    ]
    return update_learner(LearnerUpdate(inputs.read_study(), inputs.saved), lessons, _correct_rounds(spec, inputs))


def publish_next(
    spec: StudySpec,
    learner: LearnerUpdate,
    phase: NextPhase,
    state: StudyState,
    *,
    version: int,
    now: float,
) -> tuple[FrozenBlend | None, PublishedPolicy | None]:
    """Return the frozen blend of the next phase and the policy that it serves; an archived study serves none."""
    frozen = state.frozen
    if phase.state == "archived":
        return frozen, None
    if phase.state in ("confirming", "deployed") and frozen is None:
        frozen = freeze_blend(spec.name, learner.study, phase.split)
    served = frozen
    if phase.state == "paused" and frozen is None and phase.hold == "blend":
        served = _hold_blend(learner)
    policy = build_policy(
        spec,
        learner.study,
        state=phase.state,
        version=version,
        at=now,
        frozen=served,
        hold=phase.hold,
        identity=state.identity,
        paused_from=state.paused_from if phase.state == "paused" else None,
        holdout=state.holdout,
        has_slices=state.slices_since is not None and state.slices_since <= version,
        ramp_step=1 if state.ramp is None else state.ramp.step,
    )
    return frozen, policy


def build_record(
    row: StudyRow,
    inputs: CloseInputs,
    guardrails: GuardrailResult,
    result: CloseResult,
    *,
    engine: str,
    problems: tuple[str, ...],
    edit: RecordedEdit | None = None,
) -> CloseRecord:
    """Return the record of a close; of rounds that were learned before, it holds the corrected and the final ones."""
    late, look, accepted = inputs.late, inputs.look, inputs.checked.accepted
    corrected = [entry.waiting for entry in late.known if entry.waiting.round in late.moments]
    final = [
        FinalRound(entry.waiting.round, entry.waiting.after, inputs.high_water if inputs.learns else entry.until)
        for entry in late.known
        if entry.waiting.round not in inputs.correctable
    ]
    final += [FinalRound(entry.round, entry.after, inputs.high_water) for entry in inputs.checked.discarded]

    def record_round(entry: MaturingRound, cells: Sequence[Moments], *, is_accepted: bool = False) -> RecordedRound:
        return RecordedRound(
            round=entry.round,
            learner_version=entry.learned,
            after=entry.after,
            cells=StoredCells.from_moments(cells),
            seconds=entry.seconds,
            is_correctable=entry.round in inputs.correctable,
            is_accepted=is_accepted,
        )

    return CloseRecord(
        state=row.state,
        learns=inputs.learns,
        engine=engine,
        next_phase=result.phase,
        rounds=tuple(
            record_round(entry, cells, is_accepted=entry.round in accepted) for entry, cells in inputs.matured
        ),
        corrected=tuple(record_round(entry, late.moments[entry.round]) for entry in corrected),
        held=tuple(
            HeldRound(entry.round, () if entry.missing is None else entry.missing.findings)
            for entry in inputs.checked.held
        ),
        final=tuple(final),
        look=None if look is None else RecordedLook(look.elapsed, StoredCells.from_moments(look.moments)),
        uses_covariates=inputs.uses_covariates,
        senders=inputs.senders,
        verdicts=guardrails.verdicts,
        method=EVIDENCE_VERSION,
        problems=problems,
        edit=edit,
        holdout=inputs.holdout,
        arithmetic=identify_arithmetic(),
    )


def build_transition(
    row: StudyRow,
    state: StudyState,
    inputs: CloseInputs,
    guardrails: GuardrailResult,
    result: CloseResult,
    record: CloseRecord,
    *,
    now: float,
) -> StudyTransition:
    """Return the rows that the commit of a close writes."""
    close = CloseRow(
        round=row.round,
        version=row.version,
        high_water=inputs.high_water,
        record=record.to_text(),
        learner_checksum=result.learner.checksum,
        next_version=result.row.version,
        closed_at=now,
    )
    held = tuple(entry.round for entry in inputs.checked.held)
    return StudyTransition(
        after=replace(result.row, details=result.state.to_text()),
        policy=result.policy_row(inputs.high_water, now),
        close=close,
        learner=result.learner if (inputs.learns or record.edit) and result.policy is not None else None,
        learned_from=tuple(entry.round for entry in inputs.due),
        corrected=tuple(inputs.late.moments),
        held=held,
        newly_held=tuple(number for number in held if number not in state.held_rounds),
        discarded=tuple(entry.round for entry in inputs.checked.discarded),
        problems=record.problems,
        published=result.policy,
        guardrails=result.state.guardrail_monitor,
        look=inputs.look,
        warned=newly_warned(state.guardrail_monitor, guardrails.verdicts),
        trip=result.trip,
        newly_departed=inputs.newly_departed,
    )


def commit_transition(
    store: Store,
    before: StudyRow,
    transition: StudyTransition,
    line: AuditRow,
    messages: Sequence[OutboxRow] = (),
    layer_slice: LayerSliceRow | None = None,
) -> bool:
    """Write a transition, its audit line and its messages in one transaction.

    Of several nodes that close a round, one succeeds. Returns False if the study is not as it was in `before`: another
    node closed the round or changed the study. It does so too if another study took space of `layer_slice` first.
    """
    lines, paused = [line], transition.after.state == "paused" != before.state
    if transition.trip is not None:
        trip = escape_control(transition.trip)  # it contains names of metrics, and must be stored
        states = {"from": before.state, "to": transition.after.state}
        lines.append(AuditRow(line.at, "guardrail monitor", "trip", trip, states))
    if transition.ramp_change is not None:
        lines.append(AuditRow(line.at, "guardrail monitor", "ramp", escape_control(transition.ramp_change), {}))
    return store.update_study(
        before,
        transition.after,
        policy=transition.policy,
        close=transition.close,
        learner=None if transition.learner is None else transition.learner.text,
        audit=lines,
        messages=messages,
        layer_slice=layer_slice,
        use_reserve=paused,  # a pause succeeds on a full disk
    )


def summarize_transition(transition: StudyTransition) -> Mapping[str, Any]:
    """Return the details of a transition that its audit line stores."""
    lists = {
        "learned_from": transition.learned_from,
        "corrected": transition.corrected,
        "held": transition.held,
        "discarded": transition.discarded,
        "problems": transition.problems,
    }
    return {
        "round": transition.after.round,
        "version": transition.after.version,
        **{name: list(entries) for name, entries in lists.items() if entries},
    }


def _keep_learner(spec: StudySpec, row: StudyRow, inputs: CloseInputs, phase: NextPhase) -> LearnerUpdate:
    """Return the learner as it was; a pause and an archiving succeed even if it cannot be read."""
    try:
        return LearnerUpdate(inputs.read_study(), inputs.saved)
    except Exception:
        if phase.state not in ("paused", "archived"):
            raise
        return LearnerUpdate(spec.build_study(row.seed), inputs.saved)


def _hold_blend(learner: LearnerUpdate) -> FrozenBlend | None:
    """Return the blend that a pause serves; a pause succeeds even if the blend cannot be computed."""
    try:
        return hold_policy(learner.study)
    except Exception:  # the pause then serves the baseline
        return None


def _correct_rounds(spec: StudySpec, inputs: CloseInputs) -> Correction:
    """Return the correction of the rounds that the learner knows."""
    known = {entry.waiting.round: entry for entry in inputs.late.known}

    def recall(number: int) -> RoundObservations:
        cells = inputs.late.moments.get(number)
        entry = known[number]
        known_cells = inputs.recall(entry) if cells is None else cells
        return round_observations(spec, entry.waiting, known_cells, uses_covariates=inputs.uses_covariates)

    due = [entry.round for entry in inputs.due]
    return build_correction([*known], inputs.late.moments, due, inputs.correctable, recall)
