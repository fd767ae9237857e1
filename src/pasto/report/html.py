"""HTML form of a report: one page without scripts, links or files, which a person outside the team can read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from html import escape

from pasto.errors import MissingExtraError, PastoWarning
from pasto.report.charts import draw_chart
from pasto.report.records import Report
from pasto.report.sections import VERDICT_DRAWING, ReportSection, build_sections
from pasto.report.text import is_numeric_cell
from pasto.report.verdict_html import render_verdict, verdict_style

STYLE = """
:root { --text: #222; --muted: #5a6373; --line: #e4e4e4; --good: #14663a; --good-background: #e2f4e9;
  --warning: #7a4a00; --bad: #b3261e; --bad-background: #fde7e5; --note-background: #eaeef6;
  --blend: #0072b2; --single: #b35c00; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .3rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p { max-width: 46rem; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid #e4e4e4; vertical-align: top; }
th { font-weight: 600; } .number { text-align: right; } svg { max-width: 100%; height: auto; margin: 1rem 0; }
.wide { overflow-x: auto; } footer { margin-top: 3rem; color: #666; font-size: .85rem; }
@media (prefers-color-scheme: dark) { body { background: #fff; } }
"""
GLOSSARY = (
    "A lift compares units of the same rounds: those served the candidates with those held on the baseline, the "
    "control. The true lift lies in its interval with the stated confidence. A guardrail is a "
    "metric that must hold; beyond its stop level the guardrail monitor stops the study."
)


def render_html(report: Report) -> str:
    """Return the whole report as one page.

    >>> page = render_html(Report("5 < 6 & nothing else", "draft", 0, 0))
    >>> "<h1>5 &lt; 6 &amp; nothing else: draft</h1>" in page, "<script" in page
    (True, False)
    """
    sections = build_sections(report)
    title = escape(f"Report on {report.name}")
    drawings = _draw_charts(sections, report)
    body = "\n".join(_render_section(section, drawings, is_first=not place) for place, section in enumerate(sections))
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}{verdict_style()}</style></head>\n<body>\n{body}\n<footer><p>{escape(GLOSSARY)}</p></footer>\n</body></html>\n"
    )


def _draw_charts(sections: Sequence[ReportSection], report: Report) -> dict[str, str]:
    """Return the drawings of the sections by name; none, with a warning, if the library for them is not installed."""
    names = [section.drawing for section in sections if section.drawing not in (None, VERDICT_DRAWING)]
    drawings = {} if report.verdict is None else {VERDICT_DRAWING: render_verdict(report.verdict)}
    try:
        return drawings | {name: draw_chart(name, report) or "" for name in names if name is not None}
    except MissingExtraError as missing:
        # The person who makes the page can install the library; a reader of the page cannot.
        warnings.warn(f"the page has no figures: {missing}", PastoWarning, stacklevel=3)
        return drawings


def _render_section(section: ReportSection, drawings: Mapping[str, str], *, is_first: bool) -> str:
    heading = "h1" if is_first else "h2"
    if section.drawing == VERDICT_DRAWING:
        return drawings[VERDICT_DRAWING]
    lines = [f"<{heading}>{escape(section.title)}</{heading}>"]
    lines += [f"<p>{escape(sentence)}</p>" for sentence in section.sentences]
    if section.rows:
        lines.append(_render_table(section.header, section.rows))
    if section.drawing is not None and section.drawing in drawings:
        lines.append(drawings[section.drawing])
    return "\n".join(lines)


def _render_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    is_numeric = [all(map(is_numeric_cell, column)) for column in zip(*rows, strict=True)]
    kinds = [' class="number"' if numeric else "" for numeric in is_numeric]

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}{k}>{escape(c)}</{tag}>" for c, k in zip(cells, kinds, strict=True)) + "</tr>"

    head = f"<thead>{line(header, 'th')}</thead>" if any(header) else ""
    return f'<div class="wide"><table>{head}<tbody>{"".join(line(row, "td") for row in rows)}</tbody></table></div>'
