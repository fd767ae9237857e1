"""The end of a round and the beginning of the next, computed whole before anything is written."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pasto.assign import Published
from pasto.errors import StoreError
from pasto.measure import Moments, covariances, measure
from pasto.records import Observation
from pasto.service.details import Details, Frozen, Waiting, Watch
from pasto.service.origins import measure_there
from pasto.service.packing import write_cells
from pasto.service.publishing import freeze, held, published
from pasto.service.rounds.judging import (
    Past,
    after_close,
    armed,
    judge,
    lengthened,
    look_elapsed,
    newly_warned,
    nothing,
    trips,
)
from pasto.service.rounds.late import Corrections, corrections, recorded, revision
from pasto.service.rounds.looks import PHASES
from pasto.service.rounds.past import dealt_first, past_of
from pasto.service.rounds.step import Lesson, Revision, Stepped, begun, step, unchanged
from pasto.service.spec import Spec
from pasto.service.trust.breaker import holding, reason
from pasto.store import CloseRow, PolicyRow, Store, StudyRow

OWN_TABLES = "own tables"
"""The engine that a close names where it measured a team's tables."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the next round shall be."""

    state: str
    split: Mapping[str, float] | None = None
    """The arms' shares, where it confirms."""
    hold: str = "blend"
    """What to stand still on, where it is paused."""
    horizon: float | None = None
    """When it is to be judged, where it confirms."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Everything that one commit writes."""

    after: StudyRow
    policy: PolicyRow | None
    close: CloseRow | None
    learner: str | None
    learned_from: tuple[int, ...] = ()
    corrected: tuple[int, ...] = ()
    """Rounds that were learned before, and are learned anew with what came since."""
    problems: tuple[str, ...] = ()
    published: Published | None = None
    breaker: Watch = field(default_factory=Watch)
    """What the breaker says after it."""
    look: Mapping[str, Any] | None = None
    """What a phase in which units keep their arm has measured so far."""
    warned: tuple[str, ...] = ()
    """Guardrails that it warns of, and did not before."""
    trip: str | None = None
    """Why it pulls traffic now."""


def learns(before: str, terms: Terms) -> bool:
    """Whether ending a round of one state for one of another state asks the learner.

    A pause never waits for it, and what was frozen does not need it.

    >>> learns("learning", Terms("learning")), learns("learning", Terms("paused"))
    (True, False)
    """
    return (before == "learning" and terms.state in ("learning", "confirming", "deployed")) or (
        before == "paused" and terms.state == "learning"
    )


def turn(store: Store, spec: Spec, row: StudyRow, terms: Terms, *, now: float, past: Past = nothing) -> Turn:
    """End the open round, learn what has matured, and publish the policy of the next; nothing is written yet.

    Rounds that were learned before and are open to correction are learned anew where late events came to them. `past`
    tells the learning rounds that were judged before, where the breaker did not carry what they left. Where it finds
    that what was served has fallen through a floor, the next round is a pause, whatever was asked for.
    """
    details = Details.from_text(row.details)
    if not row.version:
        return _first(store, spec, row, terms, now=now)
    serving = store.policy(row.number, row.version)
    if serving is None:
        raise StoreError(f"policy {row.version} of study {row.name!r} is missing; run `pasto store check`")
    high_water = store.high_water(row.number)
    waiting = details.waiting
    if row.state == "learning" and serving.learned is not None:
        waiting = (*waiting, Waiting(row.round, serving.learned, serving.after, now))
    due: tuple[Waiting, ...] = ()
    learning = learns(row.state, terms)
    if learning:
        due = tuple(one for one in waiting if one.closed_at + spec.rounds.maturity <= now)
    measured = [moments_of(store, spec, row.number, one, high_water) for one in due]
    late = Corrections(details.correctable)
    if learning:
        late = corrections(
            store,
            spec,
            row.number,
            details.correctable,
            high_water,
            lambda one: moments_of(store, spec, row.number, one, high_water),
        )
    saved = store.learner(row.number)
    if saved is None:
        raise StoreError(f"what study {row.name!r} learned is missing; run `pasto store check`")
    look: dict[str, Any] | None = None
    if row.state in PHASES and terms.state in PHASES:
        elapsed = look_elapsed(spec, serving.published_at, now)
        whole = Waiting(row.version, 0, serving.after, now)
        phase = moments_of(store, lengthened(spec, elapsed), row.number, whole, high_water)
        look = {"elapsed": elapsed, "moments": [asdict(cell) for cell in phase]}
    watch = armed(details.breaker, row.state, terms.state, row.round)
    rounds = [*late.moments.items(), *((one.round, moments) for one, moments in zip(due, measured, strict=True))]
    stay = late.stay(spec, due, state=terms.state, learning=learning, now=now)
    seen = None if look is None else (look["elapsed"], phase)
    judged = judge(spec, row.state, watch, rounds, past, seen, first_open=min(stay, default=None))
    said = judged.said
    trip = None
    if trips(terms.state, said):
        terms = Terms("paused", hold=holding(row.state))
        trip = {"round": row.round, "at": now, "reason": reason(spec, said)}
    lessons = [lesson(spec, one, moments) for one, moments in zip(due, measured, strict=True)]
    if learning:
        stepped = step(saved, lessons, _revision(store, spec, row.number, late, due, stay))
    else:
        stepped = _kept(spec, row, saved, terms)
    problems = (*stepped.problems, *judged.problems)
    looking = look is not None and terms.state == row.state
    frozen, policy = details.frozen, None
    if not looking:
        frozen, policy = publication(spec, stepped, terms, details.frozen, version=row.version + 1, at=now)
    watch = after_close(watch, row.state, terms.state, judged, trip)
    later = Details(
        waiting=tuple(one for one in waiting if one not in due),
        paused_from=row.state if terms.state == "paused" else None,
        frozen=frozen,
        horizon=details.horizon if terms.horizon is None else terms.horizon,
        breaker=watch,
        correctable=late.later(due, stay, until=high_water, told=row.round) if learning or not stay else late.known,
    )
    told: dict[str, Any] = {
        "state": row.state,
        "learns": learning,
        "engine": store.dialect if spec.source is None else OWN_TABLES,
        "rounds": [_observed(one, moments, stay) for one, moments in zip(due, measured, strict=True)],
        "problems": list(problems),
        "breaker": list(said),
        "next": asdict(terms),
        **_told(late, stay, high_water if learning else None),
    }
    if look is not None:
        told["look"] = {**look, "moments": write_cells(phase)}
    close = CloseRow(
        round=row.round,
        version=row.version,
        high_water=high_water,
        observed=json.dumps(told, separators=(",", ":"), allow_nan=False),
        learner_checksum=stepped.checksum,
        next_version=row.version if policy is None else row.version + 1,
        closed_at=now,
    )
    after = replace(row, generation=row.generation + 1, state=terms.state, details=later.to_text())
    turned: dict[str, Any] = {
        "learned_from": tuple(one.round for one in due),
        "corrected": tuple(late.moments),
        "problems": problems,
        "breaker": watch,
        "look": look,
        "warned": newly_warned(details.breaker, said),
        "trip": None if trip is None else trip["reason"],
    }
    if policy is None:
        if looking:
            after = replace(after, round=row.round + 1, opened_at=now)
        return Turn(after, None, close, None, **turned)
    after = replace(after, round=row.round + 1, version=row.version + 1, opened_at=now)
    learned = stepped.study.policy.version if terms.state == "learning" else None
    written = PolicyRow(after.version, after.round, learned, policy.text, policy.checksum, high_water, now)
    learner = stepped.text if learning else None
    return Turn(after, written, close, learner, published=policy, **turned)


def publication(
    spec: Spec, stepped: Stepped, terms: Terms, frozen: Frozen | None, *, version: int, at: float
) -> tuple[Frozen | None, Published | None]:
    """What a study in that state has frozen, and the policy it serves; archived ones serve none."""
    if terms.state == "archived":
        return frozen, None
    if terms.state in ("confirming", "deployed") and frozen is None:
        frozen = freeze(spec.name, stepped.study, terms.split)
    standing = frozen
    if terms.state == "paused" and frozen is None and terms.hold == "blend":
        standing = _held(stepped)
    policy = published(spec, stepped.study, state=terms.state, version=version, at=at, frozen=standing, hold=terms.hold)
    return frozen, policy


def moments_of(
    store: Store, spec: Spec, study: int, one: Waiting, until: int, *, covariates: bool = True
) -> tuple[Moments, ...]:
    """What a round measured, as far as events had come; covariates stand behind the study's own columns."""
    columns = spec.measured if covariates else spec.columns
    if spec.source is not None:
        policy = store.policy(study, one.round)
        if policy is None:
            raise StoreError(f"policy {one.round} of study {spec.name!r} is missing; run `pasto store check`")
        since = dealt_first(store, study, one.round).version if spec.covariates else None
        return measure_there(spec.source, Published.from_text(policy.text, policy.checksum), columns, since=since)
    before = past_of(store, spec, study, one.round) if covariates else None
    with store.reading() as connection:
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


def lesson(spec: Spec, one: Waiting, measured: Sequence[Moments]) -> Lesson:
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
    return Lesson(one.round, tuple(observations))


def _first(store: Store, spec: Spec, row: StudyRow, terms: Terms, *, now: float) -> Turn:
    """A study's first round; a draft that is archived has none.

    It begins behind what the store holds of other studies, which nobody then reads through to measure it.
    """
    if terms.state == "archived":
        return Turn(replace(row, generation=row.generation + 1, state="archived"), None, None, None)
    stepped = begun(spec.study(row.seed))
    _, policy = publication(spec, stepped, terms, None, version=1, at=now)
    assert policy is not None  # noqa: S101 -- only archived studies serve none
    after = replace(row, generation=row.generation + 1, state=terms.state, round=1, version=1, opened_at=now)
    learned = stepped.study.policy.version
    written = PolicyRow(1, 1, learned, policy.text, policy.checksum, store.high_water(row.number), now)
    return Turn(after, written, None, stepped.text, published=policy)


def _kept(spec: Spec, row: StudyRow, saved: str, terms: Terms) -> Stepped:
    """The study as it was saved; where that cannot be read, a pause and an end must be possible all the same."""
    try:
        return unchanged(saved)
    except Exception:
        if terms.state not in ("paused", "archived"):
            raise
        return Stepped(spec.study(row.seed), saved)


def _held(stepped: Stepped) -> Frozen | None:
    """A pause must succeed, so an answer that cannot be computed is none."""
    try:
        return held(stepped.study)
    except Exception:  # whatever a learner does, a pause falls back to the baseline
        return None


def _revision(
    store: Store, spec: Spec, study: int, late: Corrections, due: Sequence[Waiting], stay: Collection[int]
) -> Revision:
    """What the learner is told of the rounds it knows."""
    known = {one.waiting.round: one for one in late.known}

    def recall(number: int) -> Lesson:
        moments = late.moments.get(number)
        one = known[number]
        return lesson(spec, one.waiting, recorded(store, study, one) if moments is None else moments)

    return revision([*known], late.moments, [one.round for one in due], stay, recall)


def _observed(one: Waiting, measured: Sequence[Moments], stay: Collection[int]) -> dict[str, Any]:
    """A round as a close records it: what it measured, and whether that may still be corrected."""
    told: dict[str, Any] = {"round": one.round, "learned": one.learned, "after": one.after}
    told["moments"] = write_cells(measured)
    return {**told, "open": True} if one.round in stay else told


def _told(late: Corrections, stay: Collection[int], mark: int | None) -> dict[str, Any]:
    """What a close says of rounds that were learned before: those it corrects, and those that are final from now on."""
    told: dict[str, Any] = {}
    again = [one.waiting for one in late.known if one.waiting.round in late.moments]
    if again:
        told["corrected"] = [_observed(one, late.moments[one.round], stay) for one in again]
    ended = [one for one in late.known if one.waiting.round not in stay]
    if ended:
        told["settled"] = [
            {"round": one.waiting.round, "after": one.waiting.after, "until": one.until if mark is None else mark}
            for one in ended
        ]
    return told
