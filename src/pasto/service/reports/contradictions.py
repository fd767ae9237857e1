"""Contradictions between a certificate and the lifts that were measured of the same blend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pasto.report.guardrail_text import contradiction_text
from pasto.service.rounds.guardrail_check import grows_with_phase
from pasto.service.study_file import GuardrailSpec, StudySpec
from pasto.service.study_file.amounts import GuardrailLevel

BLEND = "the blend"
"""How lifts name the blend."""


def find_contradictions(
    spec: StudySpec,
    answer: Mapping[str, Any] | None,
    learning: Sequence[Mapping[str, Any]],
    confirming: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Return every hard guardrail that is certified although the blend's measured interval lies beyond its limit.

    `learning` and `confirming` are the lifts of these phases in JSON. A limit in percent is compared with the relative
    lift, one in the metric's own units with the level: the control's plus the lift. The confirmation counts more, so
    a guardrail that it contradicts is not listed again for the learning rounds.
    """
    certificate = (answer or {}).get("certificate") or {}
    found: dict[str, dict[str, Any]] = {}
    for phase, lifts in (("learning", learning), ("confirming", confirming)):
        measured = {lift["metric"]: lift for lift in lifts if lift["target"] == BLEND}
        for rail in _certified(spec, certificate):
            grows = phase == "confirming" and not rail.at.relative and grows_with_phase(spec, spec.metrics[rail.metric])
            if rail.metric not in measured or grows:
                continue
            interval = measured_interval(rail.at, measured[rail.metric])
            if interval is not None and is_beyond(rail.at, rail.lower, interval):
                contradiction = {
                    "guardrail": rail.name,
                    "metric": rail.metric,
                    "phase": phase,
                    "side": "at_least" if rail.lower else "at_most",
                    "at": rail.at.written(),
                    "holds": certificate["holds"][rail.name],
                    "measured": interval,
                    "relative": rail.at.relative,
                }
                found[rail.name] = {**contradiction, "text": contradiction_text(contradiction)}
    return list(found.values())


def _certified(spec: StudySpec, certificate: Mapping[str, Any]) -> Iterator[GuardrailSpec]:
    """Yield the hard guardrails that hold by the certificate."""
    for rail in spec.guardrails:
        holds = certificate.get("holds", {}).get(rail.name)
        if rail.penalty is None and holds is not None and holds >= certificate["confidence"]:
            yield rail


def measured_interval(level: GuardrailLevel, lift: Mapping[str, Any]) -> dict[str, float] | None:
    """Return what was measured in a level's terms; None if an end is not known."""
    estimate = lift.get("adjusted") or lift
    start = 0.0 if level.relative else lift["control"]
    ends = estimate["relative" if level.relative else "absolute"]
    if start is None or any(ends[name] is None for name in ("value", "low", "high")):
        return None
    return {name: start + ends[name] for name in ("value", "low", "high")}


def is_beyond(level: GuardrailLevel, lower: bool, interval: Mapping[str, float]) -> bool:
    """Return whether all of an interval lies on the wrong side of a level."""
    return interval["high"] < _number(level) if lower else interval["low"] > _number(level)


def is_within(level: GuardrailLevel, lower: bool, interval: Mapping[str, float]) -> bool:
    """Return whether all of an interval lies on the right side of a level."""
    return interval["low"] >= _number(level) if lower else interval["high"] <= _number(level)


def _number(level: GuardrailLevel) -> float:
    return level.number / 100.0 if level.relative else level.number
