"""Ramp: the step of a study's enrolment, which moves with the verdicts of the guardrail monitor.

After enough learned rounds in which every guardrail held, the ramp goes one step forward. A warning takes it one step
back. Only rounds that were served at the present step count, so late rounds of an earlier step move nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pasto.errors import LifecycleError, OptionError
from pasto.report.ramp_text import RampReport, describe_ramp_change, show_share
from pasto.report.records import ArmVerdict
from pasto.service.study_file.amounts import parse_share
from pasto.service.study_file.spec import StudySpec, TrafficSpec

MOVES = ("next", "back", "hold", "resume")
"""Requests besides the share of a step."""


@dataclass(frozen=True, slots=True)
class RampState:
    """Step that a ramp is at, and the rounds that count towards the next one."""

    step: int = 1
    """From 1 to the number of steps."""
    since: int = 1
    """First round that was served at this step."""
    rounds: int = 0
    """Learned rounds of this step in which every guardrail held, since the last warning."""
    is_held: bool = False
    """True if a person stopped the steps forward; a warning still takes the ramp back."""


@dataclass(frozen=True, slots=True)
class RampTarget:
    """Step that a person asked for."""

    step: int
    is_held: bool


@dataclass(frozen=True, slots=True)
class RecordedRamp:
    """Ramp after a close, as its record holds it."""

    after: RampState
    target: RampTarget | None = None
    """Request that the close applied; None if the verdicts moved the ramp."""

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> RecordedRamp:
        """Decode a ramp from the JSON of a close record."""
        target = saved["target"]
        return cls(RampState(**saved["after"]), None if target is None else RampTarget(**target))


def advance_ramp(
    spec: StudySpec,
    ramp: RampState,
    round: int,
    measured: Sequence[int],
    verdicts: Sequence[ArmVerdict],
    *,
    has_problems: bool = False,
) -> RampState:
    r"""Return the ramp after the close of a round, which measured matured rounds and judged them.

    With `has_problems`, the learner could not learn some of them; then no round counts towards a step forward.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> spec = read_spec(EXAMPLE.replace("explore: 100%", "ramp: [1%, 5%, 100%]\n  advance_after: 2"), "yaml")
    >>> holds, warning = (ArmVerdict("like_rate", "learner", state, p_value=0.5) for state in ("holds", "warning"))
    >>> first = advance_ramp(spec, RampState(), 1, [1], [holds])
    >>> second = advance_ramp(spec, first, 2, [2], [holds])
    >>> first, second
    (RampState(step=1, since=1, rounds=1, is_held=False), RampState(step=2, since=3, rounds=0, is_held=False))
    >>> advance_ramp(spec, second, 3, [2], [warning]) == second  # round 2 was served at step 1
    True
    >>> advance_ramp(spec, second, 3, [3], [warning]).step
    1
    """
    count = sum(number >= ramp.since for number in measured)
    states = {verdict.state for verdict in verdicts}
    if not count or "breach" in states or (spec.guardrails and not verdicts):
        return ramp
    if "warning" in states:
        return replace(ramp, rounds=0) if ramp.step == 1 else _move(ramp, ramp.step - 1, round)
    if has_problems:
        return ramp
    rounds = min(ramp.rounds + count, spec.traffic.advance_after)
    if rounds < spec.traffic.advance_after or ramp.is_held or ramp.step == len(spec.traffic.ramp):
        return replace(ramp, rounds=rounds)
    return _move(ramp, ramp.step + 1, round)


def set_ramp(ramp: RampState, target: RampTarget, round: int) -> RampState:
    """Return the ramp after a round that a request ended."""
    if target.step != ramp.step:
        ramp = _move(ramp, target.step, round)
    return replace(ramp, is_held=target.is_held)


def restart_ramp(ramp: RampState, round: int) -> RampState:
    """Return the ramp of a study that learns again after a round: at the same step, with no rounds counted."""
    return replace(ramp, since=round + 1, rounds=0)


def edit_ramp(before: TrafficSpec, after: TrafficSpec, ramp: RampState | None, round: int) -> RampState | None:
    """Return the ramp after an edit: at its largest step that enrols no more units than the study does.

    >>> edit_ramp(TrafficSpec(explore=0.25), TrafficSpec(ramp=(0.01, 0.1, 1.0)), None, 7)
    RampState(step=2, since=8, rounds=0, is_held=False)
    >>> edit_ramp(TrafficSpec(ramp=(0.01, 1.0)), TrafficSpec(explore=0.25), RampState(), 7)
    """
    if not after.ramp:
        return None
    if ramp is not None and before.ramp == after.ramp:
        return ramp
    share = before.enrolled(1 if ramp is None else ramp.step)
    step = max(1, sum(other <= share for other in after.ramp))
    return RampState(step, round + 1, is_held=ramp is not None and ramp.is_held)


def read_target(name: str, state: str, traffic: TrafficSpec, ramp: RampState | None, to: str | float) -> RampTarget:
    """Return the step that a request names: a share of the ramp, or one of MOVES.

    >>> traffic = TrafficSpec(ramp=(0.01, 0.05, 0.25))
    >>> read_target("feed", "learning", traffic, RampState(), "next"), read_target(
    ...     "feed", "learning", traffic, RampState(), "25%"
    ... )
    (RampTarget(step=2, is_held=False), RampTarget(step=3, is_held=False))
    >>> read_target("feed", "learning", traffic, RampState(), "10%")
    Traceback (most recent call last):
    ...
    pasto_sdk.errors.OptionError: to is '10%', which is not a step of the ramp of study 'feed'; ...
    """
    if not traffic.ramp:
        raise LifecycleError(
            f"study {name!r} has no ramp; give it one with `pasto study edit {name} --set 'traffic.ramp=[1%, 5%, 25%]'`"
        )
    if state != "learning" or ramp is None:
        raise LifecycleError(
            f"study {name!r} is {state}, and a ramp moves only while a study learns: in a confirmation units keep "
            "their arm, and a deployed blend goes to the whole audience"
        )
    steps = ", ".join(map(show_share, traffic.ramp))
    if to in ("hold", "resume"):
        return RampTarget(ramp.step, to == "hold")
    if to in ("next", "back"):
        step = ramp.step + (1 if to == "next" else -1)
        if not 1 <= step <= len(traffic.ramp):
            end = "last" if to == "next" else "first"
            raise OptionError(f"the ramp of study {name!r} is at its {end} step; the steps are {steps}")
        return RampTarget(step, ramp.is_held)
    share = parse_share(to)
    if share is None:
        raise OptionError(f"to is {to!r}; write the share of a step ({steps}) or one of {', '.join(MOVES)}")
    if share not in traffic.ramp:
        raise OptionError(f"to is {to!r}, which is not a step of the ramp of study {name!r}; the steps are {steps}")
    return RampTarget(traffic.ramp.index(share) + 1, ramp.is_held)


def describe_move(traffic: TrafficSpec, before: RampState, after: RampState, verdicts: Sequence[ArmVerdict]) -> str:
    """Return a step that the verdicts caused as one sentence."""
    if after.step > before.step:
        rounds = f"{traffic.advance_after} rounds" if traffic.advance_after > 1 else "a round"
        cause = f"every guardrail held in {rounds}"
    else:
        warned = dict.fromkeys(verdict.name for verdict in verdicts if verdict.state == "warning")
        cause = f"{', '.join(warned)} may soon reach its stop level"
    return describe_ramp_change(after.step, traffic.enrolled(before.step), traffic.enrolled(after.step), cause)


def report_ramp(
    spec: StudySpec, ramp: RampState | None, state: str, round: int, verdicts: Sequence[ArmVerdict]
) -> RampReport | None:
    """Return the ramp as reports show it; None without one, and if the blend goes to the whole audience.

    `round` is the open round, and `verdicts` are those of the last close.
    """
    traffic = spec.traffic
    if ramp is None or not traffic.ramp or state not in ("learning", "confirming"):
        return None
    is_moving = state == "learning" and not ramp.is_held and ramp.step < len(traffic.ramp)
    left = max(1, traffic.advance_after - ramp.rounds) if is_moving else None
    is_unjudged = bool(spec.guardrails) and not (verdicts or ramp.rounds) and round > ramp.since
    return RampReport(ramp.step, traffic.ramp, left, ramp.is_held, is_unjudged and left is not None)


def _move(ramp: RampState, step: int, round: int) -> RampState:
    """Return the ramp at another step, which the round after `round` is the first to serve."""
    return RampState(step, round + 1, 0, ramp.is_held)
