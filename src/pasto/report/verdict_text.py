"""Verdict text: the table of a study's verdict, and the sentences about a confirmation, for terminals and messages."""

from __future__ import annotations

from pasto.formatting import UNKNOWN
from pasto.report.lift_records import ConfirmationVerdict
from pasto.report.summary import describe_metric, describe_stop, format_level, format_measured
from pasto.report.verdict_records import StudyVerdict

Row = tuple[str, ...]


def verdict_table(verdict: StudyVerdict) -> tuple[Row, tuple[Row, ...]]:
    """Return header and rows: a line for each metric of the blend and of the best single candidate.

    >>> verdict_table(StudyVerdict("start", "Not started", "", "", "", "learning", 0.95, True))
    ((), ())
    """
    rows: list[Row] = []
    for row in verdict.metrics:
        if row.blend is not None:
            measured = format_measured(row.blend, row.relative)
        elif row.role == "other":
            continue
        else:
            measured = UNKNOWN if row.predicted is None else f"predicted {format_level(row.predicted, row.relative)}"
        rows.append((row.name, "blend", measured, row.limit_text, row.word))
        if row.best_single is not None:
            rows.append(("", "best single", format_measured(row.best_single, row.relative), "", ""))
    return (("metric", "served", "measured", "limit", "") if rows else ()), tuple(rows)


def verdict_text(verdict: ConfirmationVerdict) -> tuple[str, ...]:
    """Return the result of a confirmation, a sentence each: the outcome, the goal and the guardrails.

    >>> from pasto.report.lift_records import ConfirmedGuardrail, GoalVerdict, MeasuredInterval
    >>> goal = GoalVerdict("watch_time", True, MeasuredInterval(0.3, -0.131, 0.87), "unclear")
    >>> likes = ConfirmedGuardrail("like_rate", "at_least", "-2%", "hard", True, None, "unmeasured", "-5%", False)
    >>> for sentence in verdict_text(ConfirmationVerdict("inconclusive", True, goal, (likes,))):
    ...     print(sentence)
    The confirmation is inconclusive.
    watch_time is not shown to be better: +30.00% (-13.10% to +87.00%).
    like_rate is not measured, limit at least -2%.
    """
    opening = {
        "confirmed": "The blend is confirmed.",
        "failed": "The confirmation failed.",
        "missing": "The blend was not confirmed: its lift was never measured on fresh traffic.",
    }
    sentences = [opening.get(verdict.state, "The confirmation is inconclusive.")]
    if not verdict.balanced:
        sentences.append("Units did not arrive where they were sent, so nothing can be claimed.")
    goal = verdict.goal
    if verdict.state != "missing":
        word = {"unclear": "not shown to be better", "unmeasured": "not measured"}.get(goal.state)
        if word is None:
            word = "up" if goal.measured is not None and goal.measured.low > 0 else "down"
        sentences.append(f"{describe_metric(goal.name, word, goal.measured, goal.relative)}.")
    for guardrail in verdict.guardrails:
        phrase = describe_metric(
            guardrail.name, GUARDRAIL_WORDS[guardrail.state], guardrail.measured, guardrail.relative
        )
        side = "at least" if guardrail.side == "at_least" else "at most"
        is_clear = guardrail.clear_of_floor if guardrail.state == "unclear" else None
        stop = describe_stop(is_clear, str(guardrail.floor))
        sentences.append(f"{phrase}, limit {side} {guardrail.at}{stop}.")
    return tuple(sentences)


GUARDRAIL_WORDS = {"holds": "held", "broken": "broken", "unclear": "not shown to hold", "unmeasured": "not measured"}
