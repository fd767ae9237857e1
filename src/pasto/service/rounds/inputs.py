"""What a close has to go by: everything it reads of the store, up to one mark of the log."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from pasto.errors import StoreError
from pasto.metrics import Moments, measure
from pasto.report.missing_data_text import describe_held, describe_refused_correction
from pasto.service.close_record import SenderRecord
from pasto.service.covariate_window import covariate_window, first_assignments
from pasto.service.rounds.data_check import CheckedRounds, DataCheck
from pasto.service.rounds.guardrail_check import lengthened, look_elapsed
from pasto.service.rounds.late_events import LateCorrections, read_corrections
from pasto.service.rounds.sender_check import add_round, read_record
from pasto.service.study_file import StudySpec
from pasto.service.study_state import CorrectableRound, MaturingRound, StudyState
from pasto.service.team_sources import measure_there
from pasto.store import Store, StudyRow
from pasto_sdk.policy import PublishedPolicy


class Look(NamedTuple):
    """What a phase in which units keep their arm has measured so far."""

    elapsed: float
    """How long it has run, in rounds."""
    moments: tuple[Moments, ...]


@dataclass(frozen=True, slots=True)
class CloseInputs:
    """What is known of a study at the moment of a close."""

    high_water: int
    """The last event of the log that counts."""
    saved: str
    """What the learner knew before."""
    waiting: tuple[MaturingRound, ...]
    """The rounds that are not learned after this close either: they mature, or are held back."""
    checked: CheckedRounds
    """Those that have matured."""
    late: LateCorrections
    look: Look | None
    problems: tuple[str, ...] = ()
    """What is held back, in sentences."""
    senders: SenderRecord | None = None
    """Senders after this close; None before the first round that has any."""
    newly_departed: frozenset[tuple[str, str]] = frozenset()
    """Senders that depart from the others since this close, by kind and name."""

    @property
    def matured(self) -> tuple[tuple[MaturingRound, tuple[Moments, ...]], ...]:
        """The rounds that are learned now, each with what it measured."""
        return self.checked.learned

    @property
    def due(self) -> tuple[MaturingRound, ...]:
        """The rounds that are learned now."""
        return tuple(one for one, _ in self.matured)

    @property
    def rounds(self) -> list[tuple[int, tuple[Moments, ...]]]:
        """Everything that was measured at this close, by round: corrections first."""
        return [*self.late.moments.items(), *((one.round, moments) for one, moments in self.matured)]

    @property
    def seconds(self) -> dict[int, float | None]:
        """How long each of these rounds was served."""
        return {one.round: one.seconds for one in (*(known.waiting for known in self.late.known), *self.due)}

    def correctable(self, stay: Collection[int], told: int) -> tuple[CorrectableRound, ...]:
        """The rounds that stay open to correction after this close, which is told by its number."""
        return self.late.later(self.due, stay, until=self.high_water, told=told)


def read_close_inputs(
    store: Store, spec: StudySpec, row: StudyRow, details: StudyState, *, learning: bool, phase: bool, now: float
) -> CloseInputs:
    """Read and measure what a close needs: where it learns, what matured or was corrected; in a phase, its course."""
    serving = store.read_policy(row.number, row.version)
    if serving is None:
        raise StoreError(f"policy {row.version} of study {row.name!r} is missing; run `pasto store check`")
    saved = store.read_learner_state(row.number)
    if saved is None:
        raise StoreError(f"what study {row.name!r} learned is missing; run `pasto store check`")
    high_water = store.read_high_water(row.number)

    def measured(one: MaturingRound) -> tuple[Moments, ...]:
        return moments_of(store, spec, row.number, one, high_water)

    waiting = details.waiting
    if row.state == "learning" and serving.learner_version is not None:
        seconds = max(0.0, now - serving.published_at)
        waiting = (*waiting, MaturingRound(row.round, serving.learner_version, serving.after_sequence, now, seconds))
    checked, problems = CheckedRounds(), []
    late = LateCorrections(details.correctable)
    if learning:
        matured = [one for one in waiting if one.closed_at + spec.rounds.maturity <= now]
        data = DataCheck(store, spec, row.number, row.round - 1)
        late = read_corrections(store, spec, row.number, details.correctable, high_water, measured)
        if spec.source is not None:
            late, refused = data.refuse_corrections(late)
            problems += [describe_refused_correction(number, findings) for number, findings in refused.items()]
        checked = data.check(matured, high_water, measured)
        held = {one.round: one for one in checked.held}
        waiting = tuple(held.get(one.round, one) for one in waiting if one not in matured or one.round in held)
        problems += [describe_held(number, one.missing.findings) for number, one in held.items() if one.missing]
    look = None
    whole = MaturingRound(row.version, 0, serving.after_sequence, now)
    if phase:
        elapsed = look_elapsed(spec, serving.published_at, now)
        look = Look(elapsed, moments_of(store, lengthened(spec, elapsed), row.number, whole, high_water))
    known = read_record(store, row.number, row.round - 1) or SenderRecord()
    senders = known
    for learned in checked.learned:
        senders = add_round(store, spec, row.number, senders, learned, until=high_water, closing=row.round)
    if look is not None:
        stretched, served = lengthened(spec, look.elapsed), (whole, look.moments)
        senders = add_round(
            store, stretched, row.number, senders, served, until=high_water, closing=row.round, is_phase=True
        )
    return CloseInputs(
        high_water,
        saved,
        waiting,
        checked,
        late,
        look,
        tuple(problems),
        senders if senders.places["keys"] else None,
        frozenset(senders.departed - known.departed),
    )


def moments_of(
    store: Store, spec: StudySpec, study: int, one: MaturingRound, until: int, *, covariates: bool = True
) -> tuple[Moments, ...]:
    """What a round measured, as far as events had come; covariates stand behind the study's own columns."""
    columns = spec.measured if covariates else spec.columns
    if spec.source is not None:
        policy = store.read_policy(study, one.round)
        if policy is None:
            raise StoreError(f"policy {one.round} of study {spec.name!r} is missing; run `pasto store check`")
        since = first_assignments(store, study, one.round).version if spec.covariates else None
        return measure_there(
            spec.source, PublishedPolicy.from_text(policy.document, policy.checksum), columns, since=since
        )
    before = covariate_window(store, spec, study, one.round) if covariates else None
    with store.read_transaction() as connection:
        return measure(
            connection,
            store.dialect,
            study=study,
            version=one.round,
            after=one.after,
            until=until,
            columns=columns,
            before=before,
        )
