"""The answer to another question, as text."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from typing import Any

from pasto.control_characters import escape_control
from pasto.report.telling.sections import number, span
from pasto.report.telling.text import WIDTH, table


def what_if(told: Mapping[str, Any]) -> str:
    """What a study would answer to another objective, in lines."""
    answer = told["answer"]
    lines = [told["objective"], ""]
    shares = sorted(answer["probabilities"].items(), key=lambda part: -part[1])
    lines += table(("candidate", "share"), [(name, f"{share:.1%}") for name, share in shares])
    rows = [
        (
            name,
            number(level["value"]),
            span(told["lifts"][name], percent=True) if name in told["lifts"] else "",
        )
        for name, level in told["metrics"].items()
    ]
    lines += ["", *table(("metric", "expected", "lift over the baseline"), rows)]
    if told["prices"]:
        priced = [(name, span(price)) for name, price in told["prices"].items()]
        lines += ["", *table(("guardrail", "what relaxing it by one unit buys"), priced)]
    if not answer["feasible"]:
        missed = ", ".join(f"{name} by {amount:.3g}" for name, amount in answer["shortfalls"].items())
        lines += ["", f"No blend meets every hard guardrail; this one comes nearest and misses {missed}."]
    if told["from_log"]:
        lines += ["", *wrap(f"Not learned, but read from the log: {', '.join(told['from_log'])}.", WIDTH)]
    lines += ["", *wrap(told["assumes"], WIDTH)]
    return "\n".join(map(escape_control, lines)) + "\n"
