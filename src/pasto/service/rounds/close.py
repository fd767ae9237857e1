"""The end of a round and the beginning of the next, computed whole before anything is written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pasto.errors import LifecycleError, OptionError
from pasto.inference.guardrail_monitor import METHOD
from pasto.metrics import Moments, covariances
from pasto.records import Observation
from pasto.report.guardrail_text import verdict_text
from pasto.report.records import ConfirmationVerdict
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
from pasto.service.lifecycle import UNCONFIRMED
from pasto.service.publisher import build_policy, freeze_blend, hold_policy
from pasto.service.reports.confirmation_report import MIN_UNITS_PER_ARM, has_enough_data
from pasto.service.rounds.guardrail_check import (
    Past,
    after_close,
    check_guardrails,
    describe_breach,
    holding,
    must_pause,
    newly_warned,
    nothing,
    rearm,
)
from pasto.service.rounds.inputs import CloseInputs, Look, read_close_inputs
from pasto.service.rounds.late_events import build_correction, recorded
from pasto.service.rounds.learner_step import (
    Correction,
    LearnerUpdate,
    RoundObservations,
    initial_update,
    load_update,
    update_learner,
)
from pasto.service.rounds.round_clock import PHASES
from pasto.service.rounds.sender_check import show_sender
from pasto.service.study_file import StudySpec
from pasto.service.study_state import ArmVerdict, FrozenBlend, GuardrailStatus, MaturingRound, StudyState
from pasto.store import CloseRow, PolicyRow, Store, StudyRow
from pasto_sdk.policy import PublishedPolicy


@dataclass(frozen=True, slots=True)
class StudyTransition:
    """Everything that one commit writes."""

    after: StudyRow
    policy: PolicyRow | None
    close: CloseRow | None
    learner: str | None
    learned_from: tuple[int, ...] = ()
    corrected: tuple[int, ...] = ()
    """Rounds that were learned before, and are learned anew with what came since."""
    held: tuple[int, ...] = ()
    """Rounds that are held back because events seem to be missing."""
    newly_held: tuple[int, ...] = ()
    """Those of them that were not before."""
    discarded: tuple[int, ...] = ()
    """Rounds that a person left out."""
    problems: tuple[str, ...] = ()
    published: PublishedPolicy | None = None
    breaker: GuardrailStatus = field(default_factory=GuardrailStatus)
    """What the breaker says after it."""
    look: Look | None = None
    """What a phase in which units keep their arm has measured so far."""
    warned: tuple[str, ...] = ()
    """Guardrails that it warns of, and did not before."""
    trip: str | None = None
    """Why it pulls traffic now."""
    newly_departed: frozenset[tuple[str, str]] = frozenset()
    """Senders that depart from the others since this close, by kind and name."""


def should_learn(before: str, terms: NextPhase) -> bool:
    """Whether ending a round of one state for one of another state asks the learner.

    A pause never waits for it, and what was frozen does not need it.

    >>> should_learn("learning", NextPhase("learning")), should_learn("learning", NextPhase("paused"))
    (True, False)
    """
    return (before == "learning" and terms.state in ("learning", "confirming", "deployed")) or (
        before == "paused" and terms.state == "learning"
    )


def prepare_close(
    store: Store, spec: StudySpec, row: StudyRow, terms: NextPhase, *, now: float, past: Past = nothing
) -> StudyTransition:
    """End the open round, learn what has matured, and publish the policy of the next; nothing is written yet.

    Rounds that were learned before and are open to correction are learned anew where late events came to them. `past`
    tells the learning rounds that were judged before, where the breaker did not carry what they left. Where it finds
    that what was served has fallen through a floor, the next round is a pause, whatever was asked for.
    """
    details = StudyState.from_text(row.details)
    if not row.version:
        return _first(store, spec, row, terms, now=now)
    learning = should_learn(row.state, terms)
    phase = row.state in PHASES and terms.state in PHASES
    seen = read_close_inputs(store, spec, row, details, learning=learning, phase=phase, now=now)
    stay = seen.late.stay(spec, seen.due, state=terms.state, learning=learning, now=now)
    watch = rearm(details.breaker, row.state, terms.state, row.round)
    judged = check_guardrails(
        spec, row.state, watch, seen.rounds, past, seen.look, first_open=min(stay, default=None), seconds=seen.seconds
    )
    trip: str | None = None
    if must_pause(terms.state, judged.said):
        terms = NextPhase("paused", hold=holding(row.state))
        trip = describe_breach(spec, judged.said)
    if learning:
        lessons = [round_observations(spec, one, moments) for one, moments in seen.matured]
        stepped = update_learner(seen.saved, lessons, _revision(store, spec, row.number, seen, stay))
    else:
        stepped = _kept(spec, row, seen.saved, terms)
    looking = phase and terms.state == row.state
    frozen, policy = details.frozen, None
    if not looking:
        frozen, policy = publication(
            spec, stepped, terms, details.frozen, version=row.version + 1, at=now, identity=details.identity
        )
    tripped = None if trip is None else {"round": row.round, "at": now, "reason": trip}
    watch = after_close(watch, row.state, terms.state, judged, tripped)
    problems = (*seen.problems, *stepped.problems, *judged.problems)
    later = StudyState(
        waiting=seen.waiting,
        paused_from=row.state if terms.state == "paused" else None,
        frozen=frozen,
        horizon=details.horizon if terms.horizon is None else terms.horizon,
        breaker=watch,
        correctable=seen.correctable(stay, row.round) if learning or not stay else seen.late.known,
        identity=details.identity,
    )
    close = CloseRow(
        round=row.round,
        version=row.version,
        high_water=seen.high_water,
        record=_close_record(
            seen,
            stay,
            state=row.state,
            learns=learning,
            engine=store.dialect if spec.source is None else OWN_TABLES,
            problems=problems,
            verdicts=judged.said,
            next_phase=terms,
        ).to_text(),
        learner_checksum=stepped.checksum,
        next_version=row.version if policy is None else row.version + 1,
        closed_at=now,
    )
    after = replace(row, generation=row.generation + 1, state=terms.state, details=later.to_text())
    if policy is not None:
        after = replace(after, round=row.round + 1, version=row.version + 1, opened_at=now)
    elif looking:
        after = replace(after, round=row.round + 1, opened_at=now)
    written = None
    if policy is not None:
        learned = stepped.study.policy.version if terms.state == "learning" else None
        written = PolicyRow(after.version, after.round, learned, policy.text, policy.checksum, seen.high_water, now)
    return StudyTransition(
        after,
        written,
        close,
        stepped.text if learning and policy is not None else None,
        learned_from=tuple(one.round for one in seen.due),
        corrected=tuple(seen.late.moments),
        held=tuple(one.round for one in seen.checked.held),
        newly_held=tuple(one.round for one in seen.checked.held if one.round not in details.held_rounds),
        discarded=tuple(one.round for one in seen.checked.discarded),
        problems=problems,
        published=policy,
        breaker=watch,
        look=seen.look,
        warned=newly_warned(details.breaker, judged.said),
        trip=trip,
        newly_departed=seen.newly_departed,
    )


def publication(
    spec: StudySpec,
    stepped: LearnerUpdate,
    terms: NextPhase,
    frozen: FrozenBlend | None,
    *,
    version: int,
    at: float,
    identity: str | None = None,
) -> tuple[FrozenBlend | None, PublishedPolicy | None]:
    """What a study in that state has frozen, and the policy it serves; archived ones serve none."""
    if terms.state == "archived":
        return frozen, None
    if terms.state in ("confirming", "deployed") and frozen is None:
        frozen = freeze_blend(spec.name, stepped.study, terms.split)
    standing = frozen
    if terms.state == "paused" and frozen is None and terms.hold == "blend":
        standing = _held(stepped)
    policy = build_policy(
        spec,
        stepped.study,
        state=terms.state,
        version=version,
        at=at,
        frozen=standing,
        hold=terms.hold,
        identity=identity,
    )
    return frozen, policy


def round_observations(spec: StudySpec, one: MaturingRound, measured: Sequence[Moments]) -> RoundObservations:
    """A round as the learner sees it: its own units by candidate, and the control's."""
    seen = [cell for cell in measured if cell.arm in ("learner", "control")]
    width = len(spec.objective.metrics)
    observations = []
    for cell, covariance in zip(seen, covariances(seen), strict=True):
        observations.append(
            Observation(
                version=one.learned,
                candidate=cell.candidate,
                units=cell.units,
                mean=cell.mean[:width],
                covariance=None if covariance is None else tuple(line[:width] for line in covariance[:width]),
                control=cell.arm == "control",
            )
        )
    return RoundObservations(one.round, tuple(observations))


def _first(store: Store, spec: StudySpec, row: StudyRow, terms: NextPhase, *, now: float) -> StudyTransition:
    """A study's first round; a draft that is archived has none.

    It begins behind what the store holds of other studies, which nobody then reads through to measure it.
    """
    if terms.state == "archived":
        return StudyTransition(replace(row, generation=row.generation + 1, state="archived"), None, None, None)
    stepped = initial_update(spec.study(row.seed))
    identity = StudyState.from_text(row.details).identity
    _, policy = publication(spec, stepped, terms, None, version=1, at=now, identity=identity)
    assert policy is not None  # noqa: S101 -- only archived studies serve none
    after = replace(row, generation=row.generation + 1, state=terms.state, round=1, version=1, opened_at=now)
    learned = stepped.study.policy.version
    written = PolicyRow(1, 1, learned, policy.text, policy.checksum, store.read_high_water(row.number), now)
    return StudyTransition(after, written, None, stepped.text, published=policy)


def _kept(spec: StudySpec, row: StudyRow, saved: str, terms: NextPhase) -> LearnerUpdate:
    """The study as it was saved; where that cannot be read, a pause and an end must be possible all the same."""
    try:
        return load_update(saved)
    except Exception:
        if terms.state not in ("paused", "archived"):
            raise
        return LearnerUpdate(spec.study(row.seed), saved)


def _held(stepped: LearnerUpdate) -> FrozenBlend | None:
    """A pause must succeed, so an answer that cannot be computed is none."""
    try:
        return hold_policy(stepped.study)
    except Exception:  # whatever a learner does, a pause falls back to the baseline
        return None


def _revision(store: Store, spec: StudySpec, study: int, seen: CloseInputs, stay: Collection[int]) -> Correction:
    """What the learner is told of the rounds it knows."""
    known = {one.waiting.round: one for one in seen.late.known}

    def recall(number: int) -> RoundObservations:
        moments = seen.late.moments.get(number)
        one = known[number]
        return round_observations(spec, one.waiting, recorded(store, study, one) if moments is None else moments)

    return build_correction([*known], seen.late.moments, [one.round for one in seen.due], stay, recall)


def _close_record(
    inputs: CloseInputs,
    correctable: Collection[int],
    *,
    state: str,
    learns: bool,
    engine: str,
    problems: tuple[str, ...],
    verdicts: Sequence[ArmVerdict],
    next_phase: NextPhase,
) -> CloseRecord:
    """Return the record of a close; of rounds that were learned before, it holds the corrected and the final ones."""
    late = inputs.late
    corrected = [entry.waiting for entry in late.known if entry.waiting.round in late.moments]
    final = [
        FinalRound(entry.waiting.round, entry.waiting.after, inputs.high_water if learns else entry.until)
        for entry in late.known
        if entry.waiting.round not in correctable
    ]
    final += [FinalRound(entry.round, entry.after, inputs.high_water) for entry in inputs.checked.discarded]

    def recorded_round(entry: MaturingRound, cells: Sequence[Moments], *, is_accepted: bool = False) -> RecordedRound:
        return RecordedRound(
            round=entry.round,
            learner_version=entry.learned,
            after=entry.after,
            cells=StoredCells.from_moments(cells),
            seconds=entry.seconds,
            is_correctable=entry.round in correctable,
            is_accepted=is_accepted,
        )

    accepted = inputs.checked.accepted
    look = inputs.look
    return CloseRecord(
        state=state,
        learns=learns,
        engine=engine,
        next_phase=next_phase,
        rounds=tuple(
            recorded_round(entry, cells, is_accepted=entry.round in accepted) for entry, cells in inputs.matured
        ),
        corrected=tuple(recorded_round(entry, late.moments[entry.round]) for entry in corrected),
        held=tuple(
            HeldRound(entry.round, () if entry.missing is None else entry.missing.findings)
            for entry in inputs.checked.held
        ),
        final=tuple(final),
        look=None if look is None else RecordedLook(look.elapsed, StoredCells.from_moments(look.moments)),
        senders=inputs.senders,
        verdicts=tuple(verdicts),
        method=METHOD,
        problems=problems,
    )


DAY = 86400.0

LONGEST = 3660.0
"""Days that a confirmation may be set to run."""


def horizon_of(options: Mapping[str, Any], now: float) -> float | None:
    """When a confirmation is to be judged, in seconds since 1970; None where nobody said.

    >>> horizon_of({"days": 2}, 1000.0), horizon_of({"until": "1970-01-03"}, 1000.0), horizon_of({}, 1000.0)
    (173800.0, 172800.0, None)
    """
    days, until = options.get("days"), options.get("until")
    if days is not None and until is not None:
        raise OptionError("a confirmation is set to run for some days, or until a moment; give one of them")
    if days is not None:
        if isinstance(days, bool) or not isinstance(days, (int, float)) or not 0 < days <= LONGEST:
            raise OptionError(f"days is {days!r}; it is a number above 0 and up to {LONGEST:g}")
        return now + DAY * days
    if until is None:
        return None
    moment = _moment(until)
    if not now < moment <= now + DAY * LONGEST:
        raise OptionError(f"until is {until!r}; a confirmation is judged at a moment to come, within ten years")
    return moment


def _moment(given: Any) -> float:
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return float(given)
    try:
        moment = datetime.fromisoformat(str(given))
    except ValueError:
        raise OptionError(
            f"until is {given!r}; write a day or a moment such as 2026-03-01 or 2026-03-01T09:00"
        ) from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def check_confirmed(name: str, turned: StudyTransition, verdict: ConfirmationVerdict) -> None:
    """Refuse to deploy what its confirmation has not confirmed."""
    units: dict[str, int] = {}
    for cell in () if turned.look is None else turned.look.moments:
        units[cell.arm] = units.get(cell.arm, 0) + cell.units
    if not has_enough_data(units):
        counted = ", ".join(f"{arm} {count}" for arm, count in sorted(units.items())) or "none"
        raise LifecycleError(
            f"the confirmation of study {name!r} has too few units to say anything (needed: {MIN_UNITS_PER_ARM} in "
            f"the control and in the blend; measured: {counted}); let it run, or {UNCONFIRMED}"
        )
    if verdict.state != "confirmed":
        raise LifecycleError(
            f"study {name!r} is not confirmed. {' '.join(verdict_text(verdict))} Let the confirmation run on, or "
            + UNCONFIRMED
        )


def messages(study: str, turned: StudyTransition) -> Iterator[dict[str, Any]]:
    """Return what a webhook gets of a close: warnings, a trip, senders that depart, and rounds that are held back."""
    about = {"study": study, "round": turned.after.round, "version": turned.after.version, "state": turned.after.state}
    verdicts = [asdict(verdict) for verdict in turned.breaker.verdicts]
    if turned.trip is not None:
        yield {"event": "trip", **about, "reason": turned.trip, "verdicts": verdicts}
    elif turned.warned:
        names = ", ".join(turned.warned)
        reason = f"breaker: {names} may be about to fall through its floor"
        yield {"event": "warning", **about, "reason": reason, "verdicts": verdicts}
    for kind, name in sorted(turned.newly_departed):
        reason = f"units of {kind[:-1]} {show_sender(name) or 'none'} depart from those of other senders"
        yield {"event": "sender", **about, "reason": reason, kind[:-1]: show_sender(name)}
    if turned.newly_held:
        reason = f"held back for lack of events: round {', '.join(map(str, turned.newly_held))}"
        yield {"event": "held", **about, "reason": reason, "held": list(turned.newly_held)}
