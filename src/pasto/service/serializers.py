"""A study and its rounds in plain JSON, for lists and for people."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pasto.report.records import write_record
from pasto.service.lifecycle import allowed
from pasto.service.policy_cache import StudySnapshot
from pasto.service.rounds.data_check import list_held_rounds
from pasto.service.study_file import StudySpec
from pasto.service.study_state import StudyState
from pasto.space import Candidates
from pasto_sdk.policy import PublishedPolicy


def study_summary(snapshot: StudySnapshot) -> dict[str, Any]:
    """Return a short description of a study."""
    row = snapshot.row
    return {
        "name": row.name,
        "state": row.state,
        "round": row.round,
        "version": row.version,
        "goal": _goal(snapshot.spec),
        "created_at": row.created_at,
    }


def study_overview(snapshot: StudySnapshot, now: float) -> dict[str, Any]:
    """Return the full description of a study."""
    row, spec = snapshot.row, snapshot.spec
    details = StudyState.from_text(row.details)
    monitor = details.guardrail_monitor
    every = spec.rounds.every if row.state == "learning" else None
    found = {
        **study_summary(snapshot),
        "description": spec.description,
        "unit": spec.unit,
        "objective": str(spec.objective),
        "candidates": len(spec.candidates) if isinstance(spec.candidates, Candidates) else _held(snapshot.policy),
        "generation": row.generation,
        "opened_at": row.opened_at,
        "round_age_seconds": max(0.0, now - row.opened_at) if row.round else 0.0,
        "closes_at": None if every is None else row.opened_at + every,
        "maturing_rounds": [one.round for one in details.waiting],
        "held": [write_record(held) for held in list_held_rounds(details)],
        "paused_from": details.paused_from,
        "guardrail_monitor": {
            "verdicts": [asdict(verdict) for verdict in monitor.verdicts],
            "tripped": None if monitor.tripped is None else asdict(monitor.tripped),
        },
        "actions": list(allowed(row.state)),
        "warnings": list(spec.warnings),
        "document": spec.document,
    }
    if spec.history is not None:
        study = snapshot.study or spec.build_study(row.seed)
        assert study.history is not None  # noqa: S101 -- built from a specification with a history
        found["history"] = asdict(study.history)
    if snapshot.policy is not None:
        found["policy"] = _policy(snapshot.policy)
    if (frozen := details.frozen_answer(spec.objective.hard)) is not None:
        found["frozen"] = write_record(frozen)
    return found


def _goal(spec: StudySpec) -> str:
    goal = spec.document["goal"]
    return "; ".join(f"{verb} {what if isinstance(what, str) else json.dumps(what)}" for verb, what in goal.items())


def _policy(policy: PublishedPolicy) -> dict[str, Any]:
    """Return a policy with the traffic shares of candidates, largest first, and of arms."""
    shares: dict[str, float] = {}
    arms: dict[str, float] = {}
    for cell in policy.cells:
        shares[cell.name] = shares.get(cell.name, 0.0) + cell.propensity
        arms[cell.arm] = arms.get(cell.arm, 0.0) + cell.propensity
    largest = sorted(shares.items(), key=lambda share: -share[1])
    return {
        "version": policy.version,
        "checksum": policy.checksum,
        "mode": policy.mode,
        "arms": arms,
        "shares": [{"name": name, "share": share} for name, share in largest],
    }


def _held(policy: PublishedPolicy | None) -> int:
    return 0 if policy is None else len(policy.named)
