"""A report as one HTML page: no script, no link, nothing to fetch; readable by someone who was not there."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from pasto.errors import MissingExtraError, PastoWarning
from pasto.report.charts import draw_chart
from pasto.report.sections import ReportSection, build_sections

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .3rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p { max-width: 46rem; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid #e4e4e4; vertical-align: top; }
th { font-weight: 600; } .number { text-align: right; } svg { max-width: 100%; height: auto; margin: 1rem 0; }
.wide { overflow-x: auto; } footer { margin-top: 3rem; color: #666; font-size: .85rem; }
@media (prefers-color-scheme: dark) { body { background: #fff; } }
"""
WORDS = (
    "A lift compares units of the same rounds: those served the candidates with those held on the baseline, the "
    "control. An interval says between which numbers the true lift lies with the stated confidence. A guardrail is a "
    "metric that must hold; beyond its floor the breaker pulls traffic by itself."
)


def render_html(report: Mapping[str, Any]) -> str:
    """The whole report as one page.

    >>> report = {"name": "feed", "state": "draft", "round": 0, "version": 0, "claims": "5 < 6 & nothing else."}
    >>> page = render_html(report)
    >>> "<p>5 &lt; 6 &amp; nothing else.</p>" in page, "<script" in page
    (True, False)
    """
    parts = build_sections(report)
    title = escape(f"Report on {report['name']}")
    drawings = _drawings(parts, report)
    body = "\n".join(_section(section, drawings, first=not place) for place, section in enumerate(parts))
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n<footer><p>{escape(WORDS)}</p></footer>\n</body></html>\n"
    )


def _drawings(parts: Sequence[ReportSection], report: Mapping[str, Any]) -> dict[str, str]:
    """Return the drawings of the sections by name; none, with a warning, if the library for them is not installed."""
    names = [section.drawing for section in parts if section.drawing is not None]
    try:
        return {name: draw_chart(name, report) or "" for name in names}
    except MissingExtraError as missing:
        # Who makes the page can install it. Who reads the page cannot.
        warnings.warn(f"the page has no figures: {missing}", PastoWarning, stacklevel=3)
        return {}


def _section(section: ReportSection, drawings: Mapping[str, str], *, first: bool) -> str:
    rank = "h1" if first else "h2"
    lines = [f"<{rank}>{escape(section.title)}</{rank}>", *(f"<p>{escape(words)}</p>" for words in section.words)]
    if section.rows:
        lines.append(_table(section.header, section.rows))
    if section.drawing is not None and section.drawing in drawings:
        lines.append(drawings[section.drawing])
    return "\n".join(lines)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    numeric = [all(not row[k] or row[k].lstrip("+-")[:1].isdigit() for row in rows) for k in range(len(header))]
    kinds = [' class="number"' if one else "" for one in numeric]

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}{k}>{escape(c)}</{tag}>" for c, k in zip(cells, kinds, strict=True)) + "</tr>"

    head = f"<thead>{line(header, 'th')}</thead>" if any(header) else ""
    return f'<div class="wide"><table>{head}<tbody>{"".join(line(row, "td") for row in rows)}</tbody></table></div>'
