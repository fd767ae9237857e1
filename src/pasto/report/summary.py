"""Sentences that sum up a study: its verdict, the advice to go on or stop, and prices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pasto.blend import Blend, LearningForecast
from pasto.formatting import (
    format_confidence,
    format_count,
    format_duration,
    format_lift,
    format_number,
    format_percent,
)

if TYPE_CHECKING:
    from pasto.objective import Guardrail, Objective
    from pasto.report.lift_records import MeasuredInterval, SampleRatioReport
    from pasto.report.records import Report, SourceProblem
    from pasto.report.verdict_records import MetricVerdict, StudyVerdict

NEGLIGIBLE_PRICE = 1e-9
WHAT_IF_ASSUMPTIONS = (
    "Computed from what the study believes now, without new traffic: candidates are taken to stay as they were "
    "measured, hard guardrails are met by the expected means and not with a stated confidence, and a blend's metrics "
    "are taken to be the shares' average of its candidates'. Confirm before you rely on it."
)


def horizon_note(horizon: float | None, *, is_reached: bool) -> str:
    """Return a sentence on the horizon of a confirmation; nothing if none was set.

    >>> horizon_note(None, is_reached=False)
    ''
    """
    if horizon is None:
        return ""
    if is_reached:
        return "The horizon that was set has been reached; this is the look that counts."
    return "The horizon that was set has not been reached; until then these are intervals for any look."


def write_advice(blend: Blend, round_seconds: float | None = None) -> str:
    """Return the advice of a blend's outlook, without a capital letter or a full stop; empty without outlook.

    Numbers of rounds are also written as times if the length of a round is given.

    >>> import pasto
    >>> study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=1)
    >>> for _ in range(3):
    ...     assignments = study.ask(parallel=20)
    ...     study.tell(assignments, [[float(a.candidate)] for a in assignments], standard_errors=[[0.1]] * 20)
    >>> write_advice(study.blend(), round_seconds=86_400)
    'stop learning and ship w=1, since mixing gains nothing: 1 more round (1d) is expected to improve x by 0 ...'
    """
    outlook, certificate = blend.outlook, blend.certificate
    if outlook is None or certificate is None:
        return ""
    if certificate.understated_errors:
        metrics = ", ".join(certificate.understated_errors)
        return f"first find out why the standard errors of {metrics} are too small; nothing can be certified until then"
    forecast = outlook.forecast
    expected = _write_forecast(blend, forecast, outlook.deploy_rounds, outlook.round_cost, round_seconds)
    if not certificate.certified:
        wanted = f"that holds every guardrail with {format_confidence(certificate.confidence)}"
        if outlook.decision == "stop":
            return f"stop learning: {_rounds(forecast.rounds, round_seconds)} are not expected to find a blend {wanted}"
        return f"keep learning: there is no blend yet {wanted}"
    if outlook.decision == "learn":
        if forecast.net <= 0.0:
            return "keep learning: most candidates have not been measured yet"
        return f"keep learning: {expected}"
    if outlook.equal_single is not None:
        return f"stop learning and ship {blend.names[outlook.equal_single]}, since mixing gains nothing: {expected}"
    return f"stop learning and confirm the blend: {expected}"


def _write_forecast(
    blend: Blend, forecast: LearningForecast, deploy_rounds: float, round_cost: float, round_seconds: float | None
) -> str:
    goal, unit = blend.goal.removeprefix("-") or "f", "%" if blend.percent else ""
    verb = "is" if forecast.rounds == 1 else "are"
    length = f"each of the {forecast.rounds:,} rounds" if forecast.rounds > 1 else "that round"
    return (
        f"{_rounds(forecast.rounds, round_seconds)} {verb} expected to improve {goal} by "
        f"{format_number(forecast.gain)}{unit} in each of the {_count(deploy_rounds, round_seconds)} of deployment, "
        f"and to cost {format_number(round_cost)}{unit} in {length}"
    )


def _rounds(count: int, round_seconds: float | None) -> str:
    """Return the words for more rounds.

    >>> _rounds(1, None), _rounds(48, 3600.0)
    ('1 more round', '48 more rounds (2d)')
    """
    noun = "round" if count == 1 else "rounds"
    return f"{count:,} more {noun}{_time(count, round_seconds)}"


def _count(count: float, round_seconds: float | None) -> str:
    return f"{format_number(count)} rounds{_time(count, round_seconds)}"


def _time(count: float, round_seconds: float | None) -> str:
    return "" if round_seconds is None else f" ({format_duration(round(count * round_seconds, 3))})"


def price_text(
    guardrail: Guardrail,
    objective: Objective,
    price: float | None,
    low: float | None = None,
    high: float | None = None,
    *,
    confidence: float | None = None,
) -> str:
    """Return the gain in the goal if a guardrail is relaxed by a step that suits its threshold.

    >>> import pasto
    >>> objective = pasto.maximize("watch").keep("likes", at_least="-2%")
    >>> price_text(objective.guardrails[0], objective, 0.5, 0.41, 0.62, confidence=0.95)
    'relaxing likes by one percentage point buys 0.5% of watch (0.41% to 0.62% with 95% probability)'
    """
    if price is None:
        return f"the price of {guardrail.label} is not known"
    if abs(price) < NEGLIGIBLE_PRICE and not high:
        return f"relaxing {guardrail.label} buys nothing"
    step, size = _price_step(guardrail, objective)
    unit = "%" if objective.relative else ""
    verb = "buys" if objective.sign > 0 else "saves"
    gain = f"{format_number(price * size)}{unit} {_goal_text(objective)}"
    text = f"relaxing {guardrail.label} by {step} {verb} {gain}"
    if low is None or high is None or confidence is None:
        return text
    ends = f"{format_number(low * size)}{unit} to {format_number(high * size)}{unit}"
    return f"{text} ({ends} with {format_confidence(confidence)} probability)"


def _price_step(guardrail: Guardrail, objective: Objective) -> tuple[str, float]:
    """Return a step in words and as a number: one unit, or a hundredth of a small threshold."""
    if guardrail.relative:
        return "one percentage point", 1.0
    size = abs(guardrail.at)
    if objective.relative or size >= 1 or size == 0:
        return "one unit", 1.0
    step = 10.0 ** (math.floor(math.log10(size)) - 1)
    return f"{step:g}", step


def _goal_text(objective: Objective) -> str:
    if len(objective.goal_metrics) != 1:
        return "of the goal"
    (goal,) = objective.goal_metrics
    name = goal if isinstance(goal, str) else goal.name
    return f"of {name}" if objective.relative else name


# The verdict on a study

DAY_SECONDS = 86400.0
MAX_WAIT_SECONDS = 365.0 * DAY_SECONDS
"""Longest wait that is named as a number of days."""
SERVED_BY_ARM = {
    "control": "the baseline",
    "learner": "the learner's policy",
    "blend": "the blend",
    "best_single": "the best single candidate",
}
MONITOR_PREFIX = "guardrail monitor: "


def describe_decision(verdict: StudyVerdict, report: Report) -> tuple[str, str, str]:
    """Return the headline of a verdict, its reason, and the next step."""
    sample_ratio = _phase_sample_ratio(verdict, report)
    problem = report.source_problem
    match verdict.decision:
        case "start":
            return "Not started", "Nothing is served and nothing is measured.", "Check the study file, then start it."
        case "ended":
            return "Archived", f"The study ended and serves nothing. {_describe_final(verdict, report)}".rstrip(), ""
        case "stopped":
            tripped = report.guardrail_monitor.tripped
            reason = "" if tripped is None else tripped.reason.removeprefix(MONITOR_PREFIX)
            return (
                "Stopped by the guardrail monitor",
                f"{reason}.",
                "Find the cause before it is resumed. Until then, serve the baseline.",
            )
        case "paused":
            return "Paused by a person", "Nothing is learned meanwhile.", "Resume to go on where it was paused."
        case "fix_data" if problem is not None:
            return "Data broken", describe_source_problem(problem), "Repair the source; closing is tried again."
        case "fix_data" if sample_ratio is not None and sample_ratio.alarm:
            advice = "Find where units are lost or doubled before anything is decided."
            return "Data broken", describe_mismatch(sample_ratio), advice
        case "fix_data":
            text = "Standard errors are too small, so nothing can be certified."
            return "Data broken", text, f"{_advice(report) or 'Find out why they are too small.'}"
        case "ship":
            return "Ship", describe_rows(judged_rows(verdict)), f"Deploy the blend{_more_to_learn(verdict)}."
        case "may_ship":
            return "May ship", describe_rows(judged_rows(verdict)), f"Deploy the blend{_more_to_learn(verdict)}."
        case "deployed" | "deployed_unconfirmed":
            return _describe_deployed(verdict, report)
        case "confirm":
            text = "The learner predicts that more rounds are not worth their cost. Units that were not used to "
            text += f"choose the blend have not measured it yet. {describe_rows(judged_rows(verdict))}"
            return "Ready to confirm", text, _advice(report)
        case "do_not_ship":
            return "Do not ship", _describe_refusal(verdict), _advise_refused(verdict, report)
        case "collect":
            return _describe_collecting(verdict, report)


def _more_to_learn(verdict: StudyVerdict) -> str:
    unclear = [row.name for row in judged_rows(verdict) if row.role == "guardrail" and row.state != "held"]
    return f", or let the confirmation run on to learn more about {', '.join(unclear)}" if unclear else ""


def _describe_deployed(verdict: StudyVerdict, report: Report) -> tuple[str, str, str]:
    state = "missing" if report.confirmation is None else report.confirmation.verdict.state
    opening = {
        "confirmed": "Its confirmation showed:",
        "missing": "It was deployed without a confirmation. While learning:",
    }.get(state, "It was deployed although it was not confirmed:")
    warned = [entry.name for entry in report.guardrail_monitor.verdicts if entry.state == "warning"]
    advice = f"Watch {', '.join(dict.fromkeys(warned))}: the stop level may soon be reached." if warned else ""
    headline = "Shipped" if state == "confirmed" else "Shipped without being confirmed"
    return headline, f"{opening} {describe_rows(judged_rows(verdict))}", advice


def _describe_final(verdict: StudyVerdict, report: Report) -> str:
    if all(row.state == "not_measured" for row in judged_rows(verdict)):
        return "Its last confirmation measured nothing." if report.confirmation is not None else "It measured nothing."
    source = "Its confirmation showed:" if report.confirmation is not None else "While learning, it measured:"
    return f"{source} {describe_rows(judged_rows(verdict))}"


def _describe_collecting(verdict: StudyVerdict, report: Report) -> tuple[str, str, str]:
    wait = describe_wait(verdict.wait_seconds)
    headline = f"Keep collecting{f', {wait}' if wait else ''}"
    if verdict.phase == "confirming":
        if report.confirmation is None or not report.confirmation.lifts:
            return headline, "The confirmation has measured nothing yet.", "Wait for its first look."
        advice = (
            "Let the confirmation run on."
            if wait
            else (
                "At the values measured so far, more time does not decide for the blend. "
                "Let it run on, or end the study."
            )
        )
        return headline, describe_rows(judged_rows(verdict)), advice
    if report.answer is None:
        problem = report.problem or "nothing has been measured yet"
        waiting = f" {format_count(len(report.waiting), 'round')} may still get late events." if report.waiting else ""
        return headline, f"{problem[:1].upper()}{problem[1:]}.{waiting}", "Wait for the first rounds."
    return headline, describe_rows(judged_rows(verdict)), _advice(report)


def _describe_refusal(verdict: StudyVerdict) -> str:
    """Return why a blend must not be served: what is broken or worse, or that nothing is certified."""
    against = [row for row in judged_rows(verdict) if row.state in ("worse", "broken") and row.kind != "soft"]
    if not against:
        words = describe_rows(judged_rows(verdict))
        return f"No blend is certified, and more rounds are not predicted to find one. {words}"
    parts = []
    for row in against:
        holds = row.predicted_to_hold
        is_surprise = row.state == "broken" and holds is not None and holds >= verdict.confidence
        note = f", although the learner predicted with {format_percent(holds)} that it holds" if is_surprise else ""
        parts.append(f"{describe_row(row)}{note}")
    return f"{_join(parts)}."


def _advise_refused(verdict: StudyVerdict, report: Report) -> str:
    if verdict.phase == "confirming":
        return "Archive the study; callers go back to the baseline."
    return _advice(report) or "Loosen a guardrail, or archive the study."


def _advice(report: Report) -> str:
    """Return the learner's advice as a sentence; it is a prediction."""
    outlook = None if report.answer is None else report.answer.outlook
    advice = "" if outlook is None else outlook.advice
    if not advice:
        return ""
    is_ramping = report.ramp is not None and report.ramp.rounds_left is not None
    note = " It counts with the units of the rounds so far; the ramp will enrol more." if is_ramping else ""
    return f"The learner's advice: {advice}.{note}"


def judged_rows(verdict: StudyVerdict) -> tuple[MetricVerdict, ...]:
    """Return goals and guardrails of a verdict, without the other metrics."""
    return tuple(row for row in verdict.metrics if row.role != "other")


def describe_rows(rows: Sequence[MetricVerdict]) -> str:
    """Return the words of a verdict's metrics as one sentence, with the value of the goal.

    >>> from pasto.report.lift_records import MeasuredInterval
    >>> from pasto.report.verdict_records import MetricVerdict
    >>> up = MeasuredInterval(0.034, 0.02, 0.05)
    >>> goal = MetricVerdict("watch", "watch", "goal", "better", "up", True, up, None, "at_least", 0.0, "")
    >>> rails = [MetricVerdict(name, name, "guardrail", "held", "held", True, up, None, "at_least", -0.02, "")
    ...          for name in ("likes", "shares")]
    >>> describe_rows([goal, *rails])
    'watch is up, +3.40%; likes and shares are held.'
    """
    parts = []
    for row in rows:
        if row.role == "goal":
            value = "" if row.blend is None else f", {format_level(row.blend.value, row.relative)}"
            parts.append(f"{row.name} is {'not shown to be better' if row.state == 'not_shown' else row.word}{value}")
    names: dict[str, list[str]] = {}
    for row in rows:
        if row.role == "guardrail":
            word = row.word
            if row.state == "not_shown":
                is_clear = _is_clear_of_stop(row)
                word = "not shown to hold" if not is_clear else "not shown to hold, but clear of the stop level"
            names.setdefault(word, []).append(row.name)
    for word, listed in names.items():
        subject = f"{', '.join(listed[:-1])} and {listed[-1]}" if len(listed) > 1 else listed[0]
        parts.append(f"{subject} {'are' if len(listed) > 1 else 'is'} {word}")
    return f"{_join(parts)}." if parts else ""


def describe_row(row: MetricVerdict) -> str:
    """Return a metric with its word, its interval and its limit.

    >>> from pasto.report.lift_records import MeasuredInterval
    >>> from pasto.report.verdict_records import MetricVerdict
    >>> interval = MeasuredInterval(-0.051, -0.068, -0.032)
    >>> describe_row(MetricVerdict("likes", "likes", "guardrail", "broken", "broken", True, interval, None,
    ...                            "at_least", -0.02, "at least -2%"))
    'likes is broken: -5.10% (-6.80% to -3.20%), limit at least -2%'
    """
    word = row.word
    if row.state == "not_shown":
        word = "not shown to hold" if row.role == "guardrail" else "not shown to be better"
    phrase = describe_metric(row.name, word, row.blend, row.relative)
    if row.role != "guardrail":
        return phrase
    is_clear = _is_clear_of_stop(row) if row.state == "not_shown" else None
    stop = "" if row.stop is None else format_level(row.stop, row.relative)
    return f"{phrase}, limit {row.limit_text}{describe_stop(is_clear, stop)}"


def _is_clear_of_stop(row: MetricVerdict) -> bool | None:
    """Return whether the whole interval is on the right side of the stop level; None if it has another unit."""
    if row.blend is None or row.stop is None:
        return None
    return row.blend.low >= row.stop if row.side == "at_least" else row.blend.high <= row.stop


def describe_metric(name: str, word: str, measured: MeasuredInterval | None, relative: bool) -> str:
    """Return a metric with its word and its interval.

    >>> describe_metric("likes", "not measured", None, True)
    'likes is not measured'
    """
    return f"{name} is {word}" if measured is None else f"{name} is {word}: {format_measured(measured, relative)}"


def describe_stop(is_clear: bool | None, stop: str) -> str:
    """Return where an interval lies against a stop level; nothing if the word is enough."""
    if is_clear is None:
        return ""
    return f", {'clear of' if is_clear else 'perhaps beyond'} its stop level {stop}"


def format_measured(interval: MeasuredInterval, relative: bool) -> str:
    """Return a measured interval: shares as percentages, levels as numbers.

    >>> from pasto.report.lift_records import MeasuredInterval
    >>> format_measured(MeasuredInterval(0.5, 0.25, 1.0), False), format_measured(MeasuredInterval(0.5, 0, 1), True)
    ('0.5 (0.25 to 1)', '+50.00% (+0.00% to +100.00%)')
    """
    value, low, high = (format_level(end, relative) for end in (interval.value, interval.low, interval.high))
    return f"{value} ({low} to {high})"


def format_level(value: float, relative: bool) -> str:
    """Return one number of a verdict's row in the unit of the row."""
    return format_lift(value) if relative else format_number(value)


def describe_wait(seconds: float | None) -> str:
    """Return an estimated time in one unit; nothing if it is not known.

    >>> describe_wait(None), describe_wait(7200.0), describe_wait(86400.0 * 5.6), describe_wait(86400.0 * 900)
    ('', 'about 2 more hours', 'about 6 more days', 'more than a year')
    """
    if seconds is None:
        return ""
    if seconds > MAX_WAIT_SECONDS:
        return "more than a year"
    for unit, size in (("day", DAY_SECONDS), ("hour", 3600.0)):
        if seconds > 1.5 * size:
            return f"about {round(seconds / size)} more {unit}s"
    return "about 1 more hour"


def describe_served(state: str, arms: Mapping[str, float], only: str | None) -> str:
    """Return what the units of a study get now; `only` is the candidate that everybody gets.

    >>> describe_served("learning", {"learner": 0.8, "control": 0.2}, None)
    "Served now: the learner's policy to 80%, the baseline to 20%."
    >>> describe_served("paused", {"fallback": 1.0}, "w=1")
    'Served now: w=1 to everyone.'
    """
    if not arms:
        return ""
    if only is not None:
        return f"Served now: {only} to everyone."
    if state == "paused":
        return "Served now: the blend to everyone."
    parts = [f"{SERVED_BY_ARM.get(arm, arm)} to {100.0 * share:.3g}%" for arm, share in arms.items()]
    return f"Served now: {', '.join(parts)}."


def describe_source_problem(problem: SourceProblem) -> str:
    """Return the problem of a study whose own tables cannot be read."""
    return f"Round {problem.round} cannot be measured: {problem.message.rstrip('.')}."


def describe_mismatch(sample_ratio: SampleRatioReport) -> str:
    """Return the claim that a sample-ratio mismatch allows: none."""
    suspect = sample_ratio.suspect
    if suspect is None or suspect.left is None:
        return "Units did not arrive where they were sent, so nothing can be claimed."
    sent = f"the arm {suspect.arm}" + ("" if suspect.candidate is None else f" sent to {suspect.candidate}")
    return (
        f"Of the units of {sent}, {format_percent(suspect.left, 0)} arrived, so nothing can be claimed: what lost or "
        "doubled them may have picked them by what they did."
    )


def _phase_sample_ratio(verdict: StudyVerdict, report: Report) -> SampleRatioReport | None:
    measured = report.confirmation if verdict.phase == "confirming" else report.learning
    return None if measured is None else measured.sample_ratio


def _join(parts: Sequence[str]) -> str:
    return "; ".join(parts)
