"""Study records: a study as lists and pages show it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from pasto.blend import HistoryUse
from pasto.report.data_quality_records import RejectedEvents
from pasto.report.lift_records import ConfirmationVerdict
from pasto.report.ramp_text import EnrolmentShare, RampReport
from pasto.report.records import BlendRecord, HeldRoundRecord, MonitorReport, SourceProblem
from pasto.service.lifecycle import STATES, allowed
from pasto.service.policy_cache import StudySnapshot
from pasto.service.ramp import report_ramp
from pasto.service.rounds.data_quality_check import list_held_rounds
from pasto.service.study_file import StudySpec
from pasto.service.study_file.edit import FieldChange, StudyEdit
from pasto.service.study_state import StudyState
from pasto.space import Candidates
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import BUCKET_TOTAL


class StudySummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Short description of a study."""

    name: str
    state: Annotated[str, Meta(extra_json_schema={"enum": STATES})]
    round: int
    version: int
    """Version of the current policy."""
    goal: str
    created_at: float


class ServedShare(Struct, frozen=True):
    """Share of one candidate in the traffic."""

    name: str
    share: float


class ServedPolicy(Struct, frozen=True):
    """Current policy, with the shares of arms and of candidates, largest first."""

    version: int
    checksum: str
    mode: str
    arms: Mapping[str, float]
    shares: tuple[ServedShare, ...]
    enrolled: float = 1.0
    """Share of all units that take part; arms and shares are shares of those. The audience is not counted."""
    enrolment: tuple[EnrolmentShare, ...] = ()
    """Shares that make up `enrolled` by multiplication; empty if all units take part."""


class StudyOverview(StudySummary, frozen=True, kw_only=True):
    """Full description of a study: its file, its open round, its policy and its problems."""

    description: str
    owner: str = ""
    """Team or person to ask about the study."""
    unit: str
    objective: str
    candidates: int
    generation: int
    """Number of changes so far."""
    opened_at: float
    round_age_seconds: float
    closes_at: float | None
    maturing_rounds: tuple[int, ...]
    held: tuple[HeldRoundRecord, ...]
    paused_from: str | None
    """State before the pause."""
    guardrail_monitor: MonitorReport
    actions: tuple[str, ...]
    """Actions that are possible now."""
    warnings: tuple[str, ...]
    document: Annotated[Mapping[str, Any], Meta(description="The study file.")]
    source_problem: SourceProblem | None
    rejected: RejectedEvents
    assigned_by: Literal["pasto", "external"] = "pasto"
    """"external" if another platform assigns the units."""
    history: HistoryUse | None = None
    """Use of the results that the study started from."""
    policy: ServedPolicy | None = None
    frozen: BlendRecord | None = None
    """Blend that is being confirmed or deployed."""
    archived_as: Annotated[
        str | None, Meta(description="After creating a study: the new name of the archived study of that name.")
    ] = None
    edits: tuple[StudyEdit, ...] = ()
    """Latest edits of the running study, oldest first."""
    ramp: RampReport | None = None
    """Ramp of a study that learns or is being confirmed."""
    changes: Annotated[
        tuple[FieldChange, ...] | None, Meta(description="After an edit: the fields that it changed, or would change.")
    ] = None
    confirmation: Annotated[
        ConfirmationVerdict | None, Meta(description="After deploying a study: the verdict on its confirmation.")
    ] = None


class DeletedStudy(Struct, frozen=True):
    """Draft that was deleted."""

    name: str
    state: Literal["deleted"]
    deleted_as: Annotated[str, Meta(description="The name that its audit log stays under.")]


def summarize_study(snapshot: StudySnapshot) -> StudySummary:
    """Return a short description of a study."""
    row = snapshot.row
    return StudySummary(
        name=row.name,
        state=row.state,
        round=row.round,
        version=row.version,
        goal=_write_goal(snapshot.spec),
        created_at=row.created_at,
    )


def describe_study(
    snapshot: StudySnapshot, now: float, source_problem: SourceProblem | None, rejected: RejectedEvents
) -> StudyOverview:
    """Return the full description of a study."""
    row, spec, policy = snapshot.row, snapshot.spec, snapshot.policy
    details = StudyState.from_text(row.details)
    monitor = details.guardrail_monitor
    every = spec.rounds.every if row.state == "learning" else None
    return StudyOverview(
        name=row.name,
        state=row.state,
        round=row.round,
        version=row.version,
        goal=_write_goal(spec),
        created_at=row.created_at,
        description=spec.description,
        owner=spec.owner,
        unit=spec.unit,
        objective=str(spec.objective),
        candidates=_count_candidates(spec, policy),
        generation=row.generation,
        opened_at=row.opened_at,
        round_age_seconds=max(0.0, now - row.opened_at) if row.round else 0.0,
        closes_at=None if every is None else row.opened_at + every,
        maturing_rounds=tuple(entry.round for entry in details.waiting),
        held=list_held_rounds(details),
        paused_from=details.paused_from,
        guardrail_monitor=MonitorReport(monitor.verdicts, monitor.tripped),
        actions=allowed(row.state),
        warnings=spec.warnings,
        document=spec.document,
        source_problem=source_problem,
        rejected=rejected,
        assigned_by="external" if spec.is_external else "pasto",
        history=_read_history(snapshot),
        edits=details.edits,
        ramp=report_ramp(spec, details.ramp, details.paused_from or row.state, row.round, monitor.verdicts),
        policy=None if policy is None else _describe_policy(policy),
        frozen=details.frozen_answer(spec.objective.hard),
    )


def _write_goal(spec: StudySpec) -> str:
    goal = spec.document["goal"]
    return "; ".join(f"{verb} {what if isinstance(what, str) else json.dumps(what)}" for verb, what in goal.items())


def _read_history(snapshot: StudySnapshot) -> HistoryUse | None:
    if snapshot.spec.history is None:
        return None
    return (snapshot.study or snapshot.spec.build_study(snapshot.row.seed)).history


def _describe_policy(policy: PublishedPolicy) -> ServedPolicy:
    shares: dict[str, float] = {}
    arms: dict[str, float] = {}
    for cell in policy.cells:
        shares[cell.name] = shares.get(cell.name, 0.0) + cell.propensity
        arms[cell.arm] = arms.get(cell.arm, 0.0) + cell.propensity
    largest = sorted(shares.items(), key=lambda share: -share[1])
    parts = tuple(EnrolmentShare(part.kind, (part.until - part.start) / BUCKET_TOTAL) for part in policy.enrolment)
    return ServedPolicy(
        policy.version,
        policy.checksum,
        policy.mode,
        arms,
        tuple(ServedShare(name, share) for name, share in largest),
        math.prod(part.share for part in parts),
        parts,
    )


def _count_candidates(spec: StudySpec, policy: PublishedPolicy | None) -> int:
    """Return the number of candidates in service; those of a continuous space are the ones that the policy serves."""
    if isinstance(spec.candidates, Candidates):
        return len(spec.candidates) - len(spec.retired)
    return 0 if policy is None else len(policy.named)
