"""Close inputs: everything that a close reads from the store, up to one sequence number of the event log."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from pasto.errors import StoreError
from pasto.metrics import Moments, measure
from pasto.report.data_quality_text import describe_held, describe_refused_correction
from pasto.service.close_record import NextPhase, SenderRecord
from pasto.service.covariate_window import covariate_window, first_assignments
from pasto.service.holdout import HOLDOUT, HoldoutSetting
from pasto.service.lifecycle import PHASES
from pasto.service.policy_cache import StudySnapshot
from pasto.service.rounds.data_quality_check import CheckedRounds, DataCheck, add_senders, read_sender_record
from pasto.service.rounds.guardrail_check import lengthen_ranges, phase_length
from pasto.service.rounds.late_events import LateCorrections, read_corrections, read_recorded
from pasto.service.study_file import StudySpec
from pasto.service.study_state import CorrectableRound, MaturingRound, StudyState
from pasto.service.team_sources import measure_there
from pasto.store import PolicyRow, Store, StudyRow
from pasto.study import Study
from pasto_sdk.policy import PublishedPolicy


class Look(NamedTuple):
    """Measurement of a phase in which units keep their arm, from its start to now."""

    elapsed: float
    """Length of the phase so far, in rounds."""
    moments: tuple[Moments, ...]


@dataclass(frozen=True, slots=True)
class CloseInputs:
    """Measurements and learner state that determine the outcome of a close."""

    learns: bool
    """True if the close asks the learner for a new policy."""
    is_phase: bool
    """True if units keep their arm before and after the close."""
    high_water: int
    """Last event of the log that counts."""
    saved: str
    """The learner's state before the close."""
    read_study: Callable[[], Study]
    """Returns the study of that state, which a close must not change. A pause goes on without it."""
    waiting: tuple[MaturingRound, ...]
    """Rounds that are not learned after this close: they mature, or are held."""
    checked: CheckedRounds
    """Matured rounds."""
    late: LateCorrections
    """Rounds that were learned before, with their corrections."""
    correctable: Collection[int]
    """Learned rounds that a later close may correct."""
    recall: Callable[[CorrectableRound], tuple[Moments, ...]]
    """Returns the last recorded measurement of a learned round."""
    look: Look | None = None
    uses_covariates: bool = False
    """True if the learner uses the covariates of the rounds."""
    problems: tuple[str, ...] = ()
    """Sentences about held rounds and refused corrections."""
    senders: SenderRecord | None = None
    """Senders after this close; None before the first round that has any."""
    newly_departed: frozenset[tuple[str, str]] = frozenset()
    """Senders that depart from the others since this close, by kind and name."""
    holdout: int = 0
    """Part of the hash line that no study may use, in millionths."""

    @property
    def matured(self) -> tuple[tuple[MaturingRound, tuple[Moments, ...]], ...]:
        """Rounds that are learned now, each with its measurement."""
        return self.checked.learned

    @property
    def due(self) -> tuple[MaturingRound, ...]:
        """Rounds that are learned now."""
        return tuple(entry for entry, _ in self.matured)

    @property
    def rounds(self) -> list[tuple[int, tuple[Moments, ...]]]:
        """All measurements of this close by round, corrections first."""
        return [*self.late.moments.items(), *((entry.round, cells) for entry, cells in self.matured)]

    @property
    def seconds(self) -> dict[int, float | None]:
        """Time that each of these rounds was served."""
        return {entry.round: entry.seconds for entry in (*(known.waiting for known in self.late.known), *self.due)}

    def list_correctable(self, closing: int) -> tuple[CorrectableRound, ...]:
        """Return the correctable rounds after the close of round `closing`."""
        if not self.learns and self.correctable:
            return self.late.known
        return self.late.list_correctable(self.due, self.correctable, until=self.high_water, closing=closing)


def read_close_inputs(store: Store, snapshot: StudySnapshot, requested: NextPhase, *, now: float) -> CloseInputs:
    """Read and measure what a close needs: matured and corrected rounds if it learns, and the look at a phase."""
    row, spec, state = snapshot.row, snapshot.spec, snapshot.state
    learns = should_learn(row.state, requested.state)
    is_phase = row.state in PHASES and requested.state in PHASES
    serving, saved = _read_serving(store, row)
    high_water = store.read_high_water(row.number)

    def measure_round(entry: MaturingRound) -> tuple[Moments, ...]:
        return moments_of(store, spec, row.number, entry, high_water)

    waiting = list_maturing(row, state, serving, now)
    checked, problems = CheckedRounds(), []
    late = LateCorrections(state.correctable)
    if learns:
        matured = [entry for entry in waiting if entry.closed_at + spec.rounds.maturity <= now]
        data = DataCheck(store, spec, row.number, row.round - 1)
        late = read_corrections(store, spec, row.number, state.correctable, high_water, measure_round)
        if spec.source is not None:
            late, refused = data.refuse_corrections(late)
            problems += [describe_refused_correction(number, findings) for number, findings in refused.items()]
        checked = data.check(matured, high_water, measure_round)
        held = {entry.round: entry for entry in checked.held}
        waiting = tuple(
            held.get(entry.round, entry) for entry in waiting if entry not in matured or entry.round in held
        )
        problems += [describe_held(number, entry.missing.findings) for number, entry in held.items() if entry.missing]
    due = [entry for entry, _ in checked.learned]
    correctable = late.choose_correctable(spec, due, state=requested.state, learns=learns, now=now)
    phase = MaturingRound(row.version, 0, serving.after_sequence, now)
    look = None
    if is_phase:
        elapsed = phase_length(spec, serving.published_at, now)
        look = Look(elapsed, moments_of(store, lengthen_ranges(spec, elapsed), row.number, phase, high_water))
    before = read_sender_record(store, row.number, row.round - 1) or SenderRecord()
    senders = before
    for learned in checked.learned:
        senders = add_senders(store, spec, row.number, senders, learned, until=high_water, closing=row.round)
    if look is not None:
        longer, measured = lengthen_ranges(spec, look.elapsed), (phase, look.moments)
        senders = add_senders(
            store, longer, row.number, senders, measured, until=high_water, closing=row.round, is_phase=True
        )
    return CloseInputs(
        learns=learns,
        is_phase=is_phase,
        high_water=high_water,
        saved=saved,
        read_study=snapshot.read_study,
        waiting=waiting,
        checked=checked,
        late=late,
        correctable=correctable,
        recall=lambda entry: read_recorded(store, row.number, entry),
        look=look,
        uses_covariates=learns and bool(spec.covariates),
        problems=tuple(problems),
        senders=senders if senders.places["keys"] else None,
        newly_departed=frozenset(senders.departed - before.departed),
        holdout=read_holdout(store, spec),
    )


def read_holdout(store: Store, spec: StudySpec) -> int:
    """Return the holdout that the next policy of a study leaves out, in millionths of the hash line."""
    text = store.read_setting(HOLDOUT)
    return 0 if text is None else HoldoutSetting.from_text(text).parts_for(spec)


def should_learn(before: str, after: str) -> bool:
    """Return whether ending a round asks the learner for a new policy, by the states before and after.

    A pause never waits for the learner, and a frozen blend does not need it.

    >>> should_learn("learning", "learning"), should_learn("learning", "paused")
    (True, False)
    """
    return (before == "learning" and after in ("learning", "confirming", "deployed")) or (
        before == "paused" and after == "learning"
    )


def list_maturing(row: StudyRow, state: StudyState, serving: PolicyRow, now: float) -> tuple[MaturingRound, ...]:
    """Return the rounds that are not learned yet, with the round that the close ends if it is a learning one."""
    if row.state != "learning" or serving.learner_version is None:
        return state.waiting
    seconds = max(0.0, now - serving.published_at)
    return (*state.waiting, MaturingRound(row.round, serving.learner_version, serving.after_sequence, now, seconds))


def moments_of(
    store: Store, spec: StudySpec, study: int, entry: MaturingRound, until: int, *, covariates: bool = True
) -> tuple[Moments, ...]:
    """Measure a round on the events up to `until`; covariates follow the study's own columns."""
    columns = spec.measured_columns if covariates else spec.columns
    if spec.source is not None:
        policy = store.read_policy(study, entry.round)
        if policy is None:
            raise StoreError(f"policy {entry.round} of study {spec.name!r} is missing; run `pasto store check`")
        since = first_assignments(store, study, entry.round).version if spec.covariates else None
        published = PublishedPolicy.from_text(policy.document, policy.checksum)
        return measure_there(spec.source, published, columns, since=since, is_external=spec.is_external)
    before = covariate_window(store, spec, study, entry.round) if covariates and spec.covariates else None
    with store.read_transaction() as connection:
        return measure(
            connection,
            store.dialect,
            study=study,
            version=entry.round,
            after=entry.after,
            until=until,
            columns=columns,
            before=before,
        )


def _read_serving(store: Store, row: StudyRow) -> tuple[PolicyRow, str]:
    """Read the policy that the study serves and the state of its learner."""
    serving = store.read_policy(row.number, row.version)
    if serving is None:
        raise StoreError(f"policy {row.version} of study {row.name!r} is missing; run `pasto store check`")
    saved = store.read_learner_state(row.number)
    if saved is None:
        raise StoreError(f"what study {row.name!r} learned is missing; run `pasto store check`")
    return serving, saved
