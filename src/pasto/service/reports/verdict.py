"""Verdict on a study: goal and guardrails judged by measured intervals against their limits, and the decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pasto.report.lift_records import (
    ConfirmationReport,
    ConfirmedGuardrail,
    GoalVerdict,
    GuardrailSide,
    LiftRecord,
    MeasuredInterval,
)
from pasto.report.records import ArmVerdict, BlendRecord, GuardrailReport, Report
from pasto.report.summary import describe_decision, describe_served
from pasto.report.verdict_records import Decision, MetricState, MetricVerdict, StudyVerdict
from pasto.service.policy_cache import StudySnapshot
from pasto.service.reports.lift_report import BLEND_TARGET, SINGLE_TARGET, aimed_quantities
from pasto.service.study_file import GuardrailSpec, StudySpec
from pasto.service.study_file.spec import GuardrailLevel, find_stop_basis

SEVERITY = {"holds": 0, "warning": 1, "breach": 2}
"""States of the guardrail monitor, from harmless to severe."""


def report_guardrails(
    spec: StudySpec, answer: BlendRecord | None, verdicts: Sequence[ArmVerdict] = ()
) -> tuple[GuardrailReport, ...]:
    """Report every guardrail with its limit and floor, the answer's certificate and the monitor's worst verdict.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> (guardrail,) = report_guardrails(read_spec(EXAMPLE, "yaml"), None)
    >>> guardrail.name, guardrail.side, guardrail.at, guardrail.floor, guardrail.state
    ('like_rate', 'at_least', '-2%', '-5%', None)
    """
    return tuple(_report_guardrail(spec, guardrail, answer, verdicts) for guardrail in spec.guardrails)


def _report_guardrail(
    spec: StudySpec, guardrail: GuardrailSpec, answer: BlendRecord | None, verdicts: Sequence[ArmVerdict]
) -> GuardrailReport:
    certificate = None if answer is None else answer.certificate
    own_verdicts = [verdict for verdict in verdicts if verdict.name == guardrail.name]
    worst = max(own_verdicts, key=lambda verdict: SEVERITY[verdict.state], default=None)
    return GuardrailReport(
        name=guardrail.name,
        metric=guardrail.metric,
        side=guardrail_side(guardrail),
        at=guardrail.at.written(),
        kind="hard" if guardrail.penalty is None else "soft",
        penalty=guardrail.penalty,
        budget=guardrail.loss_budget,
        floor=guardrail.stop_at.written(),
        judged="days" if find_stop_basis(spec, guardrail) == "days" else "control",
        allowed=None if worst is None else worst.allowed,
        holds=None if certificate is None else certificate.holds.get(guardrail.name),
        price=None if answer is None else answer.prices.get(guardrail.name),
        state=None if worst is None else worst.state,
        p_value=None if worst is None else worst.p_value,
    )


def guardrail_side(guardrail: GuardrailSpec) -> GuardrailSide:
    """Return the side of a guardrail as JSON names it."""
    return "at_least" if guardrail.lower else "at_most"


# Judgements


def judge_lifts(
    spec: StudySpec, lifts: Sequence[LiftRecord], *, is_phase: bool
) -> tuple[GoalVerdict, tuple[ConfirmedGuardrail, ...]]:
    """Judge the goal against the control and every guardrail against its limit, by the whole interval of the blend."""
    measured = _blend_lifts(lifts)
    guardrails = tuple(_judge_guardrail(spec, guardrail, measured, is_phase=is_phase) for guardrail in spec.guardrails)
    return _judge_goal(spec, measured), guardrails


def _blend_lifts(lifts: Sequence[LiftRecord]) -> dict[str, LiftRecord]:
    return {lift.metric: lift for lift in lifts if lift.target == BLEND_TARGET}


def _judge_goal(spec: StudySpec, measured: Mapping[str, LiftRecord]) -> GoalVerdict:
    """Judge the goal's lift over the control; a weighted sum adds the ends of its parts, which is the safe side.

    As in the objective, parts count in percent of the control if any guardrail does, and in their own units otherwise.
    """
    objective = spec.objective
    weights = objective.target if isinstance(objective.target, Mapping) else dict.fromkeys(objective.goal_metrics, 1.0)
    parts = dict(zip(aimed_quantities(spec), weights.values(), strict=False))  # the goal's metrics come first
    relative = objective.relative
    name = next(iter(parts)) if len(parts) == 1 else "the goal"
    value = low = high = 0.0
    for metric, weight in parts.items():
        lift = measured.get(metric)
        if lift is None:
            return GoalVerdict(name, relative, None, "unmeasured")
        estimate = lift.best.relative if relative else lift.best.absolute
        if estimate.value is None or estimate.low is None or estimate.high is None:
            return GoalVerdict(name, relative, None, "unmeasured")
        value += weight * estimate.value
        low += weight * (estimate.low if weight > 0 else estimate.high)
        high += weight * (estimate.high if weight > 0 else estimate.low)
    is_up, is_down = low > 0, high < 0
    if objective.sign < 0:
        is_up, is_down = is_down, is_up
    interval = MeasuredInterval(value, low, high)
    return GoalVerdict(name, relative, interval, "better" if is_up else "worse" if is_down else "unclear")


def _judge_guardrail(
    spec: StudySpec, guardrail: GuardrailSpec, measured: Mapping[str, LiftRecord], *, is_phase: bool
) -> ConfirmedGuardrail:
    interval = comparable_interval(spec, guardrail, guardrail.at, measured, is_phase=is_phase)
    floor_interval = comparable_interval(spec, guardrail, guardrail.stop_at, measured, is_phase=is_phase)
    holds = interval is not None and is_within(guardrail.at, guardrail.lower, interval)
    broken = interval is not None and is_beyond(guardrail.at, guardrail.lower, interval)
    above_floor = floor_interval is not None and is_within(guardrail.stop_at, guardrail.lower, floor_interval)
    return ConfirmedGuardrail(
        name=guardrail.name,
        side=guardrail_side(guardrail),
        at=guardrail.at.written(),
        kind="hard" if guardrail.penalty is None else "soft",
        relative=guardrail.at.relative,
        measured=interval,
        state="unmeasured" if interval is None else "holds" if holds else "broken" if broken else "unclear",
        floor=guardrail.stop_at.written(),
        clear_of_floor=interval is not None and (holds or above_floor),
    )


def comparable_interval(
    spec: StudySpec,
    guardrail: GuardrailSpec,
    level: GuardrailLevel,
    measured: Mapping[str, LiftRecord],
    *,
    is_phase: bool,
) -> MeasuredInterval | None:
    """Return the measured interval in the terms of a level; None if it cannot be compared with the level.

    `is_phase` if units keep their arm for the whole time that was measured.
    """
    # A level in a metric's own units is that of a round, and a sum over the whole phase is not comparable with it.
    is_comparable = level.relative or not (is_phase and spec.grows_with_phase(spec.metrics[guardrail.metric]))
    lift = measured.get(guardrail.metric)
    return measured_interval(level, lift) if lift is not None and is_comparable else None


def measured_interval(level: GuardrailLevel, lift: LiftRecord) -> MeasuredInterval | None:
    """Return the measured interval in the terms of a level; None if an end is not known."""
    start = 0.0 if level.relative else lift.control
    estimate = lift.best.relative if level.relative else lift.best.absolute
    if start is None or estimate.value is None or estimate.low is None or estimate.high is None:
        return None
    return MeasuredInterval(start + estimate.value, start + estimate.low, start + estimate.high)


def is_beyond(level: GuardrailLevel, lower: bool, interval: MeasuredInterval) -> bool:
    """Return whether all of an interval lies on the wrong side of a level."""
    return interval.high < _threshold(level) if lower else interval.low > _threshold(level)


def is_within(level: GuardrailLevel, lower: bool, interval: MeasuredInterval) -> bool:
    """Return whether all of an interval lies on the right side of a level."""
    return interval.low >= _threshold(level) if lower else interval.high <= _threshold(level)


def _threshold(level: GuardrailLevel) -> float:
    return level.number / 100.0 if level.relative else level.number


# The study


STATE_OF_GOAL: Mapping[str, MetricState] = {
    "better": "better",
    "worse": "worse",
    "unclear": "not_shown",
    "unmeasured": "not_measured",
}
STATE_OF_GUARDRAIL: Mapping[str, MetricState] = {
    "holds": "held",
    "broken": "broken",
    "unclear": "not_shown",
    "unmeasured": "not_measured",
}
WORDS: Mapping[MetricState, str] = {
    "held": "held",
    "broken": "broken",
    "not_shown": "not shown",
    "not_measured": "not measured",
}
"""Words for states; a goal that is better or worse, and another metric that changed, is up or down."""


def judge_study(snapshot: StudySnapshot, report: Report) -> StudyVerdict:
    """Return the verdict on a study: the decision, and every metric by its measured interval.

    The intervals of a confirmation count alone once it has begun: those of learning are of rounds that the blend was
    chosen on. A prediction of the learner decides only while no interval contradicts it.
    """
    spec, confirmation = snapshot.spec, report.confirmation
    is_phase = confirmation is not None or report.state == "confirming"
    measured: ConfirmationReport | None = confirmation if is_phase else None
    lifts: Sequence[LiftRecord] = ()
    if measured is not None:
        lifts = measured.lifts
    elif not is_phase and report.learning is not None:
        lifts = report.learning.lifts
    source = measured if is_phase else report.learning
    sample_ratio = None if source is None else source.sample_ratio
    is_balanced = sample_ratio is None or not sample_ratio.alarm
    goal, guardrails = judge_lifts(spec, lifts, is_phase=is_phase)
    rows = _judge_metrics(spec, lifts, report.answer, goal, guardrails, is_phase=is_phase, is_balanced=is_balanced)
    decision = _decide(report, rows, is_balanced=is_balanced)
    wait = None
    if decision == "collect":
        wait = _confirmation_wait(snapshot, report, goal, guardrails) if is_phase else _learning_wait(spec, report)
    policy = snapshot.policy
    arms: dict[str, float] = {}
    for cell in () if policy is None else policy.cells:
        arms[cell.arm] = arms.get(cell.arm, 0.0) + cell.propensity
    only = {cell.name for cell in policy.cells} if policy is not None else set()
    verdict = StudyVerdict(
        decision=decision,
        headline="",
        sentence="",
        next_step="",
        served=describe_served(report.state, arms, next(iter(only)) if len(only) == 1 else None),
        phase="confirming" if is_phase else "learning",
        confidence=spec.confidence,
        sequential=measured is None or measured.sequential,
        metrics=rows,
        wait_seconds=wait,
    )
    headline, sentence, next_step = describe_decision(verdict, report)
    return replace(verdict, headline=headline, sentence=sentence, next_step=next_step)


def _decide(report: Report, rows: Sequence[MetricVerdict], *, is_balanced: bool) -> Decision:
    answer = report.answer
    certificate = None if answer is None else answer.certificate
    if report.state in ("archived", "draft"):
        return "ended" if report.state == "archived" else "start"
    if report.state == "paused":
        return "paused" if report.guardrail_monitor.tripped is None else "stopped"
    if report.source_problem is not None or not is_balanced:
        return "fix_data"
    state = "missing" if report.confirmation is None else report.confirmation.verdict.state
    if report.state == "deployed":
        return "deployed" if state == "confirmed" else "deployed_unconfirmed"
    if report.state == "confirming":
        if any(row.state == "broken" and row.kind != "soft" for row in rows):
            return "do_not_ship"
        if state == "confirmed":
            return "may_ship" if any(map(_is_measured_beyond_limit, rows)) else "ship"
        return "do_not_ship" if state == "failed" else "collect"
    if certificate is not None and certificate.understated_errors:
        return "fix_data"
    if any(row.state in ("worse", "broken") and row.kind != "soft" for row in rows):
        return "do_not_ship"
    outlook = None if answer is None else answer.outlook
    if outlook is None or certificate is None or outlook.decision != "stop":
        return "collect"
    return "confirm" if certificate.certified else "do_not_ship"


def _is_measured_beyond_limit(row: MetricVerdict) -> bool:
    """Return whether the estimate of a hard guardrail is on the wrong side of its limit."""
    if row.role != "guardrail" or row.kind == "soft" or row.blend is None or row.limit is None:
        return False
    return row.blend.value < row.limit if row.side == "at_least" else row.blend.value > row.limit


def _judge_metrics(
    spec: StudySpec,
    lifts: Sequence[LiftRecord],
    answer: BlendRecord | None,
    goal: GoalVerdict,
    guardrails: Sequence[ConfirmedGuardrail],
    *,
    is_phase: bool,
    is_balanced: bool,
) -> tuple[MetricVerdict, ...]:
    single = {lift.metric: lift for lift in lifts if lift.target == SINGLE_TARGET}
    parts = aimed_quantities(spec)
    goals = parts[: len(spec.objective.goal_metrics)]
    blend = _blend_lifts(lifts)
    share = _relative_interval(blend.get(goals[0])) if len(goals) == 1 else None
    relative_goal = goal.relative or goal.measured is None or share is not None
    is_up = spec.objective.sign > 0
    rows = [
        MetricVerdict(
            name=goal.name,
            metric=goals[0] if len(goals) == 1 else "",
            role="goal",
            state=STATE_OF_GOAL[goal.state],
            word="",
            relative=relative_goal,
            blend=share or goal.measured,
            best_single=_goal_interval(spec, single, goals, relative=relative_goal),
            side="at_least" if is_up else "at_most",
            limit=0.0,
            limit_text="above the control" if is_up else "below the control",
            predicted=_predict(answer, goals[0], relative=True) if len(goals) == 1 else None,
        )
    ]
    certificate = None if answer is None else answer.certificate
    for guardrail, judged in zip(spec.guardrails, guardrails, strict=True):
        relative = guardrail.at.relative
        rows.append(
            MetricVerdict(
                name=guardrail.name,
                metric=guardrail.metric,
                role="guardrail",
                state=STATE_OF_GUARDRAIL[judged.state],
                word="",
                relative=relative,
                blend=judged.measured,
                best_single=comparable_interval(spec, guardrail, guardrail.at, single, is_phase=is_phase),
                side=judged.side,
                limit=_threshold(guardrail.at),
                limit_text=f"{'at least' if guardrail.lower else 'at most'} {judged.at}",
                kind=judged.kind,
                stop=_threshold(guardrail.stop_at) if guardrail.stop_at.relative == relative else None,
                predicted=_predict(answer, guardrail.metric, relative=relative),
                predicted_to_hold=None if certificate is None else certificate.holds.get(guardrail.name),
            )
        )
    listed = {row.metric for row in rows}
    rows += [
        _judge_other(name, blend.get(name), single.get(name), answer) for name in spec.metrics if name not in listed
    ]
    if not is_balanced:
        rows = [row if row.state == "not_measured" else replace(row, state="not_shown") for row in rows]
    return tuple(replace(row, word=_word(row)) for row in rows)


def _word(row: MetricVerdict) -> str:
    if row.state in WORDS:
        return WORDS[row.state]
    if row.state == "changed":
        return "up" if row.blend is not None and row.blend.low > 0 else "down"
    return "up" if (row.state == "better") == (row.side == "at_least") else "down"


def _judge_other(
    name: str, blend: LiftRecord | None, single: LiftRecord | None, answer: BlendRecord | None
) -> MetricVerdict:
    """Judge a metric that is neither goal nor guardrail: it changed if its interval excludes the control."""
    interval = _relative_interval(blend)
    is_clear = interval is not None and (interval.low > 0 or interval.high < 0)
    return MetricVerdict(
        name=name,
        metric=name,
        role="other",
        state="not_measured" if interval is None else "changed" if is_clear else "not_shown",
        word="",
        relative=True,
        blend=interval,
        best_single=_relative_interval(single),
        side="at_least",
        limit=None,
        limit_text="",
        predicted=_predict(answer, name, relative=True),
    )


def _goal_interval(
    spec: StudySpec, measured: Mapping[str, LiftRecord], goals: Sequence[str], *, relative: bool
) -> MeasuredInterval | None:
    if relative and len(goals) == 1:
        return _relative_interval(measured.get(goals[0]))
    return _judge_goal(spec, measured).measured


def _relative_interval(lift: LiftRecord | None) -> MeasuredInterval | None:
    return None if lift is None else measured_interval(GuardrailLevel(0.0, True), lift)


def _predict(answer: BlendRecord | None, metric: str, *, relative: bool) -> float | None:
    if answer is None:
        return None
    lift = answer.lifts.get(metric)
    return answer.metrics.get(metric) if not relative else None if lift is None else lift / 100.0


def _learning_wait(spec: StudySpec, report: Report) -> float | None:
    """Return the seconds of learning that the learner predicts to be worth most; None without such a number."""
    outlook = None if report.answer is None else report.answer.outlook
    if outlook is None or outlook.decision != "learn" or not outlook.forecasts or spec.rounds.every is None:
        return None
    best = max(outlook.forecasts, key=lambda forecast: -1e300 if forecast.net is None else forecast.net)
    return best.rounds * spec.rounds.every if best.net is not None and best.net > 0 else None


def _confirmation_wait(
    snapshot: StudySnapshot, report: Report, goal: GoalVerdict, guardrails: Sequence[ConfirmedGuardrail]
) -> float | None:
    """Return the seconds until a confirmation is decided: its horizon, or a projection of its intervals.

    The projection takes the measured values as true. An interval then shrinks with the root of the time, so a distance
    that is a fraction q of the half-width is resolved after 1/q² of the time so far.
    """
    spec, horizon = snapshot.spec, snapshot.state.horizon
    if horizon is not None:
        return max(0.0, horizon - (snapshot.row.opened_at + report.age))
    looks = [look for look in snapshot.rounds.looks if look.state == "confirming"]
    if not looks or goal.measured is None:
        return None
    sign = spec.objective.sign
    gaps = [_gap(goal.measured, 0.0, lower=sign > 0)]
    measured = _blend_lifts(() if report.confirmation is None else report.confirmation.lifts)
    for guardrail, judged in zip(spec.guardrails, guardrails, strict=True):
        if judged.kind == "soft" or judged.clear_of_floor:
            continue
        interval = comparable_interval(spec, guardrail, guardrail.stop_at, measured, is_phase=True)
        gaps.append(None if interval is None else _gap(interval, _threshold(guardrail.stop_at), lower=guardrail.lower))
    needed = [gap for gap in gaps if gap is not None]
    if len(needed) < len(gaps):
        return None
    elapsed = looks[-1].elapsed * spec.rounds.interval_seconds
    return elapsed * max(0.0, max(needed) - 1.0)


def _gap(interval: MeasuredInterval, level: float, *, lower: bool) -> float | None:
    """Return the multiple of the time so far after which an interval is clear of a level; None if it never is."""
    distance = interval.value - level if lower else level - interval.value
    half_width = interval.value - interval.low if lower else interval.high - interval.value
    return (half_width / distance) ** 2 if distance > 0 else None
