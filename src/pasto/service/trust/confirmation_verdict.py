"""The verdict of a confirmation: whether the goal was shown to improve, and which guardrails were shown to hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pasto.service.spec import Rail, Spec
from pasto.service.spec.amounts import Level
from pasto.service.trust.breaker import grows_with_phase
from pasto.service.trust.contradictions import BLEND, is_beyond, is_within, measured_interval
from pasto.service.trust.lifted import aimed


def judge_confirmation(spec: Spec, confirmation: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the verdict on a confirmation as a report shows it; None stands for a blend that was never confirmed.

    `confirmed`: the goal improved and every hard guardrail is clear of its floor, each by its whole interval. `failed`:
    the goal got worse or a hard guardrail is broken, each by its whole interval. Everything else is `inconclusive`, and
    so is a confirmation whose units did not arrive where they were sent.

    The best blend lies at the limits of its guardrails, so few confirmations can show that these hold. What each of
    them must show is that a guardrail stays clear of the level at which traffic is pulled.

    >>> from pasto.service.spec import EXAMPLE, read_spec
    >>> verdict = judge_confirmation(read_spec(EXAMPLE, "yaml"), None)
    >>> verdict["state"], [(rail["name"], rail["state"]) for rail in verdict["guardrails"]]
    ('missing', [('like_rate', 'unmeasured')])
    """
    measured = {lift["metric"]: lift for lift in (confirmation or {}).get("lifts", ()) if lift["target"] == BLEND}
    goal = _judge_goal(spec, measured)
    rails = [_judge_rail(spec, rail, measured) for rail in spec.guardrails]
    hard = [rail for rail in rails if rail["kind"] == "hard"]
    broken, clear = any(rail["state"] == "broken" for rail in hard), all(rail["clear_of_floor"] for rail in hard)
    balanced = not ((confirmation or {}).get("sample_ratio") or {}).get("alarm")
    if confirmation is None:
        state = "missing"
    elif not balanced:
        state = "inconclusive"
    elif goal["state"] == "worse" or broken:
        state = "failed"
    else:
        state = "confirmed" if goal["state"] == "better" and clear else "inconclusive"
    return {"state": state, "balanced": balanced, "goal": goal, "guardrails": rails}


def _judge_goal(spec: Spec, measured: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the goal's lift over the control: a weighted sum adds the ends of its parts, which is the safe side.

    As in the objective, parts count in percent of the control if any guardrail does, and in their own units otherwise.
    """
    objective = spec.objective
    weights = objective.target if isinstance(objective.target, Mapping) else dict.fromkeys(objective.shown, 1.0)
    parts = dict(zip(aimed(spec), weights.values(), strict=False))  # the goal's metrics come first
    relative = objective.relative
    name = next(iter(parts)) if len(parts) == 1 else "the goal"
    judged: dict[str, Any] = {"name": name, "relative": relative, "measured": None}
    total = {"value": 0.0, "low": 0.0, "high": 0.0}
    for metric, weight in parts.items():
        lift = measured.get(metric)
        ends = None if lift is None else (lift.get("adjusted") or lift)["relative" if relative else "absolute"]
        if ends is None or any(ends[end] is None for end in total):
            return {**judged, "state": "unmeasured"}
        low, high = ("low", "high") if weight > 0 else ("high", "low")
        for end, source in (("value", "value"), ("low", low), ("high", high)):
            total[end] += weight * ends[source]
    up, down = total["low"] > 0, total["high"] < 0
    if objective.sign < 0:
        up, down = down, up
    return {**judged, "measured": total, "state": "better" if up else "worse" if down else "unclear"}


def _judge_rail(spec: Spec, rail: Rail, measured: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    interval = _interval(spec, rail, rail.at, measured)
    above_floor = _interval(spec, rail, rail.floor, measured)
    state = "unmeasured"
    if interval is not None and is_within(rail.at, rail.lower, interval):
        state = "holds"
    elif interval is not None:
        state = "broken" if is_beyond(rail.at, rail.lower, interval) else "unclear"
    clear = state == "holds" or (above_floor is not None and is_within(rail.floor, rail.lower, above_floor))
    return {
        "name": rail.name,
        "side": "at_least" if rail.lower else "at_most",
        "at": rail.at.written(),
        "kind": "hard" if rail.penalty is None else "soft",
        "relative": rail.at.relative,
        "measured": interval,
        "state": state,
        "floor": rail.floor.written(),
        "clear_of_floor": clear and state != "unmeasured",
    }


def _interval(
    spec: Spec, rail: Rail, level: Level, measured: Mapping[str, Mapping[str, Any]]
) -> dict[str, float] | None:
    """Return what was measured in a level's terms; None if it cannot be compared with the level."""
    # A level in a metric's own units is that of a round, and a sum over the whole phase is not comparable with it.
    comparable = level.relative or not grows_with_phase(spec, spec.metrics[rail.metric])
    lift = measured.get(rail.metric)
    return measured_interval(level, lift) if lift is not None and comparable else None
