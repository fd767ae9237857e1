"""Text form of a report, for terminals and mail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap

from pasto.control_characters import escape_control
from pasto.formatting import UNKNOWN, format_interval, format_number, format_percent
from pasto.report.records import Report, WhatIfAnswer
from pasto.report.sections import build_sections

WIDTH = 100
"""Characters in a line of sentences."""


def render_text(report: Report) -> str:
    r"""Return the whole report as lines.

    >>> render_text(Report("feed", "draft", 0, 0))
    'feed: draft\n===========\n'
    """
    lines: list[str] = []
    for place, section in enumerate(build_sections(report)):
        lines += ([""] if place else []) + [section.title, ("-" if place else "=") * len(section.title)]
        for sentence in section.sentences:
            lines += wrap(sentence, WIDTH)
        if section.rows:
            lines += ([""] if section.sentences else []) + render_table(section.header, section.rows)
    return _join_lines(lines)


def render_what_if(answer: WhatIfAnswer) -> str:
    """Return the answer to another objective as lines."""
    blend = answer.answer
    shares = sorted(blend.probabilities.items(), key=lambda item: -item[1])
    lines = [answer.objective, ""]
    lines += render_table(("candidate", "share"), [(name, format_percent(share)) for name, share in shares])
    metric_rows = []
    for name, level in answer.metrics.items():
        lift = answer.lifts.get(name)
        lift_text = "" if lift is None else format_interval(lift.value, lift.low, lift.high, percent=True)
        metric_rows.append((name, format_number(level.value), lift_text))
    lines += ["", *render_table(("metric", "expected", "lift over the baseline"), metric_rows)]
    if answer.prices:
        prices = [(name, format_interval(price.value, price.low, price.high)) for name, price in answer.prices.items()]
        lines += ["", *render_table(("guardrail", "what relaxing it by one unit buys"), prices)]
    if not blend.feasible:
        missed = ", ".join(f"{name} by {format_number(amount)}" for name, amount in blend.shortfalls.items())
        lines += ["", f"No blend meets every hard guardrail; this one comes nearest and misses {missed}."]
    if answer.from_log:
        lines += ["", *wrap(f"Not learned, but read from the log: {', '.join(answer.from_log)}.", WIDTH)]
    lines += ["", *wrap(answer.assumes, WIDTH)]
    return _join_lines(lines)


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as lines: text to the left, numbers to the right.

    >>> render_table(("arm", "units"), [("control", "90"), ("learner", "1,210")])
    ['arm      units', 'control     90', 'learner  1,210']
    """
    lines = [header, *rows] if any(header) else list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    is_numeric = [all(map(is_numeric_cell, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if numeric else cell.ljust(width)
            for cell, width, numeric in zip(line, widths, is_numeric, strict=True)
        ).rstrip()
        for line in lines
    ]


def is_numeric_cell(cell: str) -> bool:
    """Return whether a cell of a table holds a number, or nothing.

    >>> is_numeric_cell("+1.2%"), is_numeric_cell("> 99.9%"), is_numeric_cell("blend"), is_numeric_cell("")
    (True, True, False, True)
    """
    return not cell or cell == UNKNOWN or cell.lstrip("+-<> ")[:1].isdigit()


def _join_lines(lines: Sequence[str]) -> str:
    return "\n".join(map(escape_control, lines)) + "\n"


def describe_history(listed: int, candidates: int, explained: Mapping[str, float]) -> str:
    """Return the use that a study makes of the results it started from.

    >>> describe_history(12, 25, {"likes": 0.783, "shares": 0.02})
    '12 of 25 candidates; of their differences it explains 78% in likes, 2% in shares'
    >>> describe_history(12, 25, {})
    '12 of 25 candidates; the first round shows how well it predicts'
    """
    known = f"{listed:,} of {candidates:,} candidates"
    if not explained:
        return f"{known}; the first round shows how well it predicts"
    shares = ", ".join(f"{format_percent(share, 0)} in {name}" for name, share in explained.items())
    return f"{known}; of their differences it explains {shares}"
