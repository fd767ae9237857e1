"""A report as plain text, for terminals and mail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from pasto.control_characters import escape_control
from pasto.report.telling.sections import sections

WIDTH = 100


def text(report: Mapping[str, Any]) -> str:
    r"""The whole report in lines.

    >>> text({"name": "feed", "state": "draft", "round": 0, "version": 0, "claims": "Nothing was measured yet."})
    'feed: draft\n===========\nNothing was measured yet.\n'
    """
    lines: list[str] = []
    for place, section in enumerate(sections(report)):
        lines += ([""] if place else []) + [section.title, ("-" if place else "=") * len(section.title)]
        for sentence in section.words:
            lines += wrap(sentence, WIDTH)
        if section.rows:
            lines += ([""] if section.words else []) + table(section.header, section.rows)
    return "\n".join(map(escape_control, lines)) + "\n"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in lines: words to the left, numbers to the right.

    >>> table(("arm", "units"), [("control", "90"), ("learner", "1,210")])
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
