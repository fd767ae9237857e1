"""HTML form of a verdict, with a drawing of each interval: the same in the report and on the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files

from pasto.formatting import UNKNOWN
from pasto.report.lift_records import MeasuredInterval
from pasto.report.summary import format_level, format_measured, judged_rows
from pasto.report.verdict_records import MetricVerdict, StudyVerdict

WIDTH, HEIGHT = 240.0, 34.0
"""Size of a drawing in its own units."""
BLEND_Y, SINGLE_Y = 12.0, 25.0
MAX_SPAN = 2.0
"""Most that the best single candidate's interval widens a drawing, in spans of the blend and the limit."""
TONES = {
    "ship": "good",
    "may_ship": "warning",
    "deployed": "good",
    "deployed_unconfirmed": "warning",
    "do_not_ship": "bad",
    "fix_data": "bad",
    "stopped": "bad",
    "paused": "warning",
}
STATE_TONES = {"better": "good", "held": "good", "worse": "bad", "broken": "bad"}


@cache
def verdict_style() -> str:
    """Return the style of a verdict; the page around it defines the colours.

    >>> ".interval-bar" in verdict_style()
    True
    """
    return files("pasto.report").joinpath("verdict.css").read_text(encoding="utf-8")


def render_verdict(verdict: StudyVerdict) -> str:
    """Return a verdict as one HTML element.

    >>> page = render_verdict(StudyVerdict("start", "Not started", "5 < 6.", "", "", "learning", 0.95, True))
    >>> '<h2 id="verdict-title">Not started</h2><p>5 &lt; 6.</p>' in page
    True
    """
    tone = TONES.get(verdict.decision, "plain")
    parts = [f'<h2 id="verdict-title">{escape(verdict.headline)}</h2>', _paragraph(verdict.sentence)]
    if any(row.state != "not_measured" or row.predicted is not None for row in judged_rows(verdict)):
        parts.append(_render_rows(judged_rows(verdict)))
    if any(row.blend is not None for row in verdict.metrics):
        parts.append(_render_key(verdict))
    parts += [_paragraph(verdict.next_step, "next-step"), _paragraph(verdict.served, "quiet")]
    others = [row for row in verdict.metrics if row.role == "other" and row.blend is not None]
    if others:
        parts.append(f"<details><summary>Other metrics</summary>{_render_rows(others)}</details>")
    return f'<div class="verdict tone-{tone}" data-decision="{verdict.decision}">{"".join(parts)}</div>'


def _paragraph(text: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{escape(text)}</p>" if text else ""


def _render_rows(rows: Sequence[MetricVerdict]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Metric", "Blend", "Interval", "Best single", ""))
    return (
        f'<table class="verdict-rows"><thead><tr>{head}</tr></thead><tbody>'
        f"{''.join(map(_render_row, rows))}</tbody></table>"
    )


def _render_row(row: MetricVerdict) -> str:
    role = {"goal": "goal", "guardrail": f"limit {row.limit_text}", "other": ""}[row.role]
    if row.kind == "soft":
        role += ", soft"
    tone = STATE_TONES.get(row.state, "")
    if row.blend is None:
        predicted = (
            "" if row.predicted is None else f"<span>predicted {format_level(row.predicted, row.relative)}</span>"
        )
        blend = f"–{predicted}"
    else:
        blend = _render_value(row.blend, row.relative)
    single = UNKNOWN if row.best_single is None else _render_value(row.best_single, row.relative)
    return (
        f'<tr><th scope="row">{escape(row.name)}<span class="role">{escape(role)}</span></th>'
        f'<td class="value" data-label="Blend">{blend}</td><td class="bar">{draw_interval(row)}</td>'
        f'<td class="value single" data-label="Best single">{single}</td>'
        f'<td class="judged"><span class="word {tone}">{escape(row.word)}</span></td></tr>'
    )


def _render_value(interval: MeasuredInterval, relative: bool) -> str:
    low, high = format_level(interval.low, relative), format_level(interval.high, relative)
    return f"<b>{format_level(interval.value, relative)}</b><span>{low} to {high}</span>"


def _render_key(verdict: StudyVerdict) -> str:
    line = '<svg viewBox="0 0 16 7" class="interval-bar" aria-hidden="true">{}</svg>'
    blend = line.format('<line class="blend" x1="0" x2="16" y1="3.5" y2="3.5"/>')
    single = line.format('<line class="single" x1="0" x2="16" y1="3.5" y2="3.5"/>')
    limit = line.format(
        '<rect class="forbidden" x="0" y="0" width="8" height="7"/><line class="limit" x1="8" x2="8" y1="0" y2="7"/>'
    )
    look = "at any look" if verdict.sequential else "at the horizon that was set"
    source = "new units of the confirmation"
    if verdict.phase == "learning":
        source = "the rounds that the blend was chosen on, so it looks better than it is"
    note = f"Lift over the control in {source}. {100 * verdict.confidence:.10g}% intervals, {look}."
    has_single = any(row.best_single is not None for row in verdict.metrics)
    keys = [f"{blend}blend", *([f"{single}best single candidate"] if has_single else [])]
    keys.append(f"{limit}limit, with its wrong side shaded")
    listed = "".join(f"<span>{key}</span>" for key in keys)
    return f'<div class="verdict-key">{listed}</div>{_paragraph(note, "quiet")}'


def draw_interval(row: MetricVerdict) -> str:
    """Return the intervals of the blend and of the best single candidate with the limit, as one SVG element.

    >>> from dataclasses import replace
    >>> row = MetricVerdict("x", "x", "goal", "better", "up", True, None, None, "at_least", 0.0, "")
    >>> draw_interval(row)
    ''
    >>> drawing = draw_interval(replace(row, blend=MeasuredInterval(0.03, 0.01, 0.05)))
    >>> drawing.count("<line"), "forbidden" in drawing
    (2, True)
    """
    if row.blend is None:
        return ""
    low, high = _find_range(row)

    def place(value: float) -> float:
        return round(min(max((value - low) / (high - low), 0.0), 1.0) * WIDTH, 2)

    shapes = []
    if row.limit is not None:
        at = place(row.limit)
        start, width = (0.0, at) if row.side == "at_least" else (at, round(WIDTH - at, 2))
        shapes.append(f'<rect class="forbidden" x="{start}" y="0" width="{width}" height="{HEIGHT:g}"/>')
    if row.relative and row.limit != 0.0 and low < 0.0 < high:
        shapes.append(_line("control", place(0.0), place(0.0), 0.0, HEIGHT))
    if row.limit is not None:
        shapes.append(_line("limit", place(row.limit), place(row.limit), 0.0, HEIGHT))
    for kind, interval, y, radius in (("blend", row.blend, BLEND_Y, 4.5), ("single", row.best_single, SINGLE_Y, 3.0)):
        if interval is not None:
            shapes.append(_line(kind, place(interval.low), place(interval.high), y, y))
            shapes.append(f'<circle class="{kind}" cx="{place(interval.value)}" cy="{y:g}" r="{radius:g}"/>')
    return (
        f'<svg class="interval-bar" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" '
        f'aria-label="{escape(_describe(row))}"><title>{escape(_describe(row))}</title>{"".join(shapes)}</svg>'
    )


def _find_range(row: MetricVerdict) -> tuple[float, float]:
    """Return the ends of a drawing: the limit and the blend are in it, and as much of the best single as fits."""
    marks = [0.0] if row.relative else []
    marks += [] if row.limit is None else [row.limit]
    marks += [] if row.blend is None else [row.blend.low, row.blend.high]
    low, high = min(marks), max(marks)
    span = high - low or abs(high) or 1.0
    if row.best_single is not None:
        low = max(min(low, row.best_single.low), low - MAX_SPAN * span)
        high = min(max(high, row.best_single.high), high + MAX_SPAN * span)
    margin = 0.07 * (high - low or span)
    return low - margin, high + margin


def _line(kind: str, x1: float, x2: float, y1: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:g}" x2="{x2:g}" y1="{y1:g}" y2="{y2:g}"/>'


def _describe(row: MetricVerdict) -> str:
    parts = [] if row.blend is None else [f"blend {format_measured(row.blend, row.relative)}"]
    if row.best_single is not None:
        parts.append(f"best single {format_measured(row.best_single, row.relative)}")
    if row.limit_text:
        parts.append(f"limit {row.limit_text}")
    return f"{row.name}: {', '.join(parts)}"
