"""A report as plain text, for terminals and mail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from pasto.control_characters import escape_control
from pasto.formatting import format_number, format_percent
from pasto.report.sections import build_sections, interval_text

WIDTH = 100


def render_text(report: Mapping[str, Any]) -> str:
    r"""The whole report in lines.

    >>> render_text({"name": "feed", "state": "draft", "round": 0, "version": 0, "claims": "Nothing was measured yet."})
    'feed: draft\n===========\nNothing was measured yet.\n'
    """
    lines: list[str] = []
    for place, section in enumerate(build_sections(report)):
        lines += ([""] if place else []) + [section.title, ("-" if place else "=") * len(section.title)]
        for sentence in section.words:
            lines += wrap(sentence, WIDTH)
        if section.rows:
            lines += ([""] if section.words else []) + render_table(section.header, section.rows)
    return "\n".join(map(escape_control, lines)) + "\n"


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in lines: words to the left, numbers to the right.

    >>> render_table(("arm", "units"), [("control", "90"), ("learner", "1,210")])
    ['arm      units', 'control     90', 'learner  1,210']
    """
    whole = [header, *rows] if any(header) else list(rows)
    widths = [max(len(row[place]) for row in whole) for place in range(len(header))]
    right = [all(_numeric(row[place]) for row in rows) for place in range(len(header))]
    return [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in whole
    ]


def _numeric(cell: str) -> bool:
    return not cell or cell.lstrip("+-")[:1].isdigit()


def render_what_if(told: Mapping[str, Any]) -> str:
    """What a study would answer to another objective, in lines."""
    answer = told["answer"]
    lines = [told["objective"], ""]
    shares = sorted(answer["probabilities"].items(), key=lambda part: -part[1])
    lines += render_table(("candidate", "share"), [(name, format_percent(share)) for name, share in shares])
    rows = [
        (
            name,
            format_number(level["value"]),
            interval_text(told["lifts"][name], percent=True) if name in told["lifts"] else "",
        )
        for name, level in told["metrics"].items()
    ]
    lines += ["", *render_table(("metric", "expected", "lift over the baseline"), rows)]
    if told["prices"]:
        priced = [(name, interval_text(price)) for name, price in told["prices"].items()]
        lines += ["", *render_table(("guardrail", "what relaxing it by one unit buys"), priced)]
    if not answer["feasible"]:
        missed = ", ".join(f"{name} by {format_number(amount)}" for name, amount in answer["shortfalls"].items())
        lines += ["", f"No blend meets every hard guardrail; this one comes nearest and misses {missed}."]
    if told["from_log"]:
        lines += ["", *wrap(f"Not learned, but read from the log: {', '.join(told['from_log'])}.", WIDTH)]
    lines += ["", *wrap(told["assumes"], WIDTH)]
    return "\n".join(map(escape_control, lines)) + "\n"
