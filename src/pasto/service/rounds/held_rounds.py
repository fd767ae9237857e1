"""Held rounds: those whose events seem to be missing, as people see them, and what a person decides about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pasto.errors import LifecycleError, OptionError
from pasto.report.missing_data_text import describe_held
from pasto.service.rounds.data_check import RESOLUTIONS
from pasto.service.study_state import MaturingRound, StudyState


def held_rounds(details: StudyState) -> list[dict[str, Any]]:
    """Return every round that is held back, with what was expected and what came, and what was decided.

    >>> from pasto.service.study_state import MissingData
    >>> finding = {"kind": "none", "column": "likes", "units": 4000, "expected": 412.0, "seen": 0.0, "rounds": 3}
    >>> held = MaturingRound(4, 3, 90, 7200.0, missing=MissingData((finding,), 120))
    >>> [(one["round"], one["resolution"]) for one in held_rounds(StudyState(waiting=(held,)))]
    [(4, None)]
    """
    return [
        {
            "round": one.round,
            "closed_at": one.closed_at,
            "text": describe_held(one.round, one.missing.findings),
            "findings": [dict(finding) for finding in one.missing.findings],
            "resolution": one.missing.resolution,
        }
        for one in details.waiting
        if one.missing is not None
    ]


def resolve(
    study: str, state: str, details: StudyState, number: int, resolution: str, reason: str
) -> tuple[StudyState, list[dict[str, Any]]]:
    """Return a study's details with a decision about a held round, and what was found of that round."""
    if resolution not in RESOLUTIONS:
        raise OptionError(f"a held round is resolved by {' or '.join(RESOLUTIONS)}, got {resolution!r}")
    if not reason.strip():
        raise OptionError("resolving a held round needs a reason, which the audit log keeps; say why")
    if state not in ("learning", "paused"):
        raise LifecycleError(f"study {study!r} is {state} and learns no round any more, so none can be resolved")
    held = {one.round: one for one in details.waiting if one.missing is not None}
    if number not in held:
        known = ", ".join(map(str, held)) or "none"
        raise OptionError(f"round {number} of study {study!r} is not held back; held rounds: {known}")
    missing = held[number].missing
    assert missing is not None  # noqa: S101 -- only those were taken
    resolved: MaturingRound = replace(held[number], missing=replace(missing, resolution=resolution))
    waiting = tuple(resolved if one.round == number else one for one in details.waiting)
    return replace(details, waiting=waiting), [dict(finding) for finding in missing.findings]
