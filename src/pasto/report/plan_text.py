"""Text of a study plan: each recommendation with its reason in plain sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from textwrap import wrap

from pasto.control_characters import escape_control
from pasto.formatting import (
    format_confidence,
    format_count,
    format_duration,
    format_lift,
    format_number,
    format_percent,
    format_signed,
)
from pasto.planning.plan_records import GuardrailPlan, PlanFact, RoundPlan, StudyPlan

LABEL_WIDTH = 18
INDENT = "  "
COURSE_DAYS = (1, 2, 4, 7, 14, 28, 56, 112)
"""Days at which the expected gain is printed."""

ROUND_REASONS = {
    "swing unknown": (
        "Metrics may follow the hour of the day, and nothing here shows that yours do not. A whole day averages that."
    ),
    "swing seen": "The level of the metrics followed the hour in earlier rounds. A whole day averages that.",
    "window": "A unit counts for {window} after its assignment. In a shorter round it is assigned again meanwhile.",
    "few units": "In shorter rounds a candidate has fewer than 100 units, which is too few for the statistics.",
    "maturity": "A round is learned {maturity} after its end, so shorter rounds would hardly be learned sooner.",
    "traffic": "The level does not follow the hour, and such a round has {units} units for each candidate.",
}
SOURCE_TEXTS = {
    "given": "given",
    "history": "from the history",
    "study": "from the earlier study",
    "zero or one": "assumed from the mean, because a unit has 0 or 1",
    "count": "assumed from the mean, as for counts",
    "one event": "assumed from the mean, with one event of a unit in the denominator",
    "default": "assumed",
}


def render_plan(plan: StudyPlan, name: str = "", width: int = 100) -> str:
    """Return a plan as lines of at most `width` characters.

    >>> import pasto
    >>> plan = pasto.plan_study(pasto.maximize("clicks"), 5, 200_000, means={"clicks": 0.1}, studies=8)
    >>> print(render_plan(plan, width=76))
    maximize clicks: 5 candidates, 200,000 units a day
    <BLANKLINE>
    rounds            1d
    ...
    """
    title = f"{name}: " if name else ""
    traffic = f"{plan.candidates.listed} candidates, {format_number(plan.units_per_day)} {plan.unit}s a day"
    lines = wrap(f"{title}{plan.objective}: {traffic}", width, break_on_hyphens=False)
    for label, value, sentences in _sections(plan):
        lines += ["", f"{label:<{LABEL_WIDTH - 1}} {value}".rstrip()]
        for sentence in sentences:
            lines += wrap(sentence, width, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False)
    return "\n".join(map(escape_control, lines)) + "\n"


def _sections(plan: StudyPlan) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield label, value and sentences of each part."""
    rounds, control, candidates = plan.rounds, plan.control, plan.candidates
    note = ""
    if rounds.given is not None and rounds.given != rounds.seconds:
        note = f"the study file has {format_duration(rounds.given)}"
    yield "rounds", _with_note(format_duration(rounds.seconds), note), [round_reason(rounds)]
    note = "" if control.share == control.given else f"now {_share(control.given)}"
    yield "control", _with_note(_share(control.share), note), [control_reason(plan)]
    note = "" if candidates.worth_listing == candidates.listed else f"now {candidates.listed:,}"
    if candidates.is_space:
        note = "to begin with"
    more = " or more" if candidates.worth_listing == candidates.gains[-1].candidates > candidates.listed else ""
    yield "candidates", _with_note(f"{candidates.worth_listing:,}{more}", note), candidate_reasons(plan)
    for guardrail in plan.guardrails:
        yield limit_text(guardrail), certificate_value(guardrail, plan), [certificate_reason(guardrail, plan)]
    yield "half of the gain", days_text(plan.gain.days_to_half, plan), [half_reason(plan)]
    yield "most of the gain", days_text(plan.gain.days_to_most, plan), gain_reasons(plan)
    days = plan.confirmation.days
    yield "confirmation", "more than a year" if days is None else format_count(days, "day"), confirmation_reasons(plan)
    yield "assumptions", "", assumption_texts(plan)


def round_reason(rounds: RoundPlan) -> str:
    """Return why a round has its length."""
    return ROUND_REASONS[rounds.reason].format(
        window=format_duration(rounds.window),
        maturity=format_duration(rounds.maturity),
        units=_rounded(rounds.units_per_candidate),
    )


def control_reason(plan: StudyPlan) -> str:
    """Return why the control has its share."""
    control = plan.control
    best = f"The error of the blend's lift is smallest with a control of {_share(control.most_precise)}"
    if control.share == control.given:
        return f"{best}, and only {_share(control.excess_error)} larger with this one, which takes less traffic."
    if not control.given:
        return f"{best}. Without a control nothing shows what the day did to everybody."
    larger = "smaller" if control.share < control.given else "larger"
    return (
        f"{best}. It is {_share(control.excess_error)} above that with a {larger} control of {_share(control.share)}, "
        f"and {_share(control.given_excess_error)} above it with {_share(control.given)}."
    )


def candidate_reasons(plan: StudyPlan) -> list[str]:
    """Return why a list of candidates has its length."""
    if plan.candidates.is_space:
        return ["The study begins with so many settings of its ranges, and adds others that would enter the blend."]
    gains = ", ".join(f"{_gain(plan, entry.gain)} with {entry.candidates:,}" for entry in plan.candidates.gains)
    sentences = [
        f"Expected gain after {_rounded(plan.days)} days: {gains}. A longer list has a better best candidate, and "
        "fewer units for each."
    ]
    if plan.candidates.neighbours:
        sentences.append("Candidates with similar numbers are taken to have similar effects.")
    return sentences


def limit_text(guardrail: GuardrailPlan) -> str:
    """Return a guardrail as its metric, side and limit.

    >>> limit_text(GuardrailPlan("likes", "likes", True, -2.0, True, "soft", None, 2.0, None, 250.0))
    'likes >= -2%'
    """
    level = f"{guardrail.limit:+g}%" if guardrail.relative else f"{guardrail.limit:g}"
    return f"{guardrail.metric} {'>=' if guardrail.lower else '<='} {level}"


def certificate_value(guardrail: GuardrailPlan, plan: StudyPlan) -> str:
    """Return the days until a certificate, or why there are none."""
    if guardrail.state == "soft":
        return "no certificate"
    return "not known" if guardrail.state == "no slack" else f"certificate after {days_text(guardrail.days, plan)}"


def certificate_reason(guardrail: GuardrailPlan, plan: StudyPlan) -> str:
    """Return why the certificate of a guardrail takes its time."""
    if guardrail.state == "soft":
        return "A soft guardrail has no certificate: a breach costs its penalty."
    if guardrail.state == "no slack":
        return (
            "Today's setting has nothing to spare at this limit, so the days depend on how far candidates are beyond "
            "it, which is not known before the study."
        )
    chance = "" if guardrail.days is None else f" By then it holds with a chance of {_share(plan.chance)}."
    slack, margin = _amount(guardrail, guardrail.slack), _amount(guardrail, guardrail.first_margin)
    return (
        f"A blend as good as today's setting is {slack} inside the limit. The certificate needs a margin for the "
        f"error: {margin} after the first round, and less with every day.{chance}"
    )


def days_text(days: float | None, plan: StudyPlan) -> str:
    """Return a number of days, rounded up, or that they are too many to be forecast."""
    if days is None:
        return f"more than {_rounded(plan.horizon)} days"
    if days < 1:
        return format_count(math.ceil(24.0 * days - 1e-9), "hour")
    return format_count(math.ceil(days - 1e-9), "day")


def half_reason(plan: StudyPlan) -> str:
    """Return when a certified blend is worth serving."""
    text = (
        f"By then {_share(plan.chance)} of simulated studies have a certified blend with at least half of the gain "
        "that their candidates allow."
    )
    if plan.gain.feasible < 1.0:
        text += f" Only {_share(plan.gain.feasible)} have a blend that meets every hard guardrail at all."
    given = days_text(plan.given_days_to_half, plan)
    if plan.control.given in (0.0, plan.control.share) or given == days_text(plan.gain.days_to_half, plan):
        return text
    return f"{text} With the control of {_share(plan.control.given)} they need {given}."


def gain_reasons(plan: StudyPlan) -> list[str]:
    """Return when the expected gain is most of the possible one, and its course."""
    gain = plan.gain
    first, last = gain.course[0].day, gain.course[-1].day
    course = ", ".join(
        f"{_gain(plan, gain.after(day))} on day {day}" for day in COURSE_DAYS if math.floor(first) <= day <= last
    )
    return [
        f"By then the expected gain is {_share(plan.most)} of {_gain(plan, gain.possible)}, the gain of the best blend "
        "if all means were known.",
        f"Expected gain of the certified blend: {course}.",
    ]


def confirmation_reasons(plan: StudyPlan) -> list[str]:
    """Return why a confirmation has its length, and what it cannot show."""
    confirmation = plan.confirmation
    length = "a year" if confirmation.days is None else format_count(confirmation.days, "day")
    sentences = [
        f"A third of the units in each arm for {length} shows a lift of {_gain(plan, confirmation.detectable_lift)} "
        f"with a chance of {_share(plan.chance)}. The expected lift is {_gain(plan, confirmation.expected_lift)}."
    ]
    needed = {name: days for name, days in confirmation.guardrail_days.items() if days is not None}
    if confirmation.days == 7:
        sentences.append("A whole week has every weekday once.")
    elif needed and max(needed.values()) > confirmation.goal_days:
        slowest = max(needed, key=needed.__getitem__)
        sentences.append(f"It takes that long to show that {slowest} is clear of its stop level.")
    if unshown := [name for name, days in confirmation.guardrail_days.items() if days is None]:
        sentences.append(
            f"No confirmation can show that {' and '.join(unshown)} {'is' if len(unshown) == 1 else 'are'} clear of "
            "the stop level, because that is the limit itself. Write a stop_at beyond the limit."
        )
    return sentences


def assumption_texts(plan: StudyPlan) -> list[str]:
    """Return every number that the plan rests on, with its source."""
    metrics = dict.fromkeys(fact.metric for fact in plan.facts)
    return [
        *(_metric_text(metric, plan) for metric in metrics),
        f"Each day brings {format_number(plan.units_per_day)} {plan.unit}s that count by themselves. Candidates differ "
        "from today's setting in both directions alike. Their gains in the goal and losses in the guardrails have a "
        f"correlation of {plan.competition:g}. Guardrails hold with {format_confidence(plan.confidence)}.",
    ]


def _metric_text(metric: str, plan: StudyPlan) -> str:
    """Return the numbers of one metric with their sources."""
    mean, deviation, spread = (_find_fact(plan, metric, name) for name in ("mean", "deviation", "spread"))
    parts = []
    if mean.source != "default":
        parts.append(f"mean {format_number(mean.value)} ({SOURCE_TEXTS[mean.source]})")
    size = format_number(deviation.value)
    if "default" in (mean.source, deviation.source):
        size = f"{format_number(deviation.value / abs(mean.value))} times the mean"
    parts.append(f"standard deviation of one {plan.unit} {size} ({SOURCE_TEXTS[deviation.source]})")
    parts.append(f"effects of candidates differ by {format_percent(spread.value)} ({SOURCE_TEXTS[spread.source]})")
    return f"{metric}: {', '.join(parts)}."


def _find_fact(plan: StudyPlan, metric: str, quantity: str) -> PlanFact:
    return next(fact for fact in plan.facts if (fact.metric, fact.quantity) == (metric, quantity))


def _with_note(value: str, note: str) -> str:
    return f"{value} ({note})" if note else value


def _share(value: float) -> str:
    return format_percent(value, 0)


def _rounded(value: float) -> str:
    return format_number(float(f"{value:.3g}"))


def _gain(plan: StudyPlan, gain: float) -> str:
    return format_lift(gain / 100.0) if plan.gain.percent else format_signed(float(f"{gain:.3g}"))


def _amount(guardrail: GuardrailPlan, amount: float | None) -> str:
    size = _rounded(amount or 0.0)
    return f"{size} percentage points" if guardrail.relative else size
