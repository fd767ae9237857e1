"""A report's figures as SVG that stands by itself inside a page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from pasto.report.figures import COLOURS, INK, draw_curve, draw_legend, draw_level, label_axes, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PANELS = 6
"""Metrics that the history is drawn for."""
_lock = Lock()
"""Matplotlib's text layout is not made for several threads at once."""


def draw_chart(name: str, report: Mapping[str, Any]) -> str | None:
    """One of a report's drawings as an SVG element; None where there is nothing to draw.

    >>> draw_chart("lifts", {"learning": {"history": []}}) is None
    True
    """
    with _lock:
        figure = DRAWINGS[name](report)
        return None if figure is None else render_svg(figure, name)


def render_svg(figure: Figure, name: str) -> str:
    """A figure as one SVG element, with ids of its own so that several fit into a page."""
    from matplotlib import rc_context

    written = io.StringIO()
    with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    found = written.getvalue()
    body = found[found.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", body)
    return re.sub(r"<svg ", f'<svg role="img" aria-label="{name}" ', body, count=1)


def _lifts(report: Mapping[str, Any]) -> Figure | None:
    """Lift by round, cumulatively, one panel a metric."""
    series = (report.get("learning") or {}).get("history") or []
    metrics = list(dict.fromkeys(one["metric"] for one in series))[:MOST_PANELS]
    if not metrics:
        return None
    rows = (len(metrics) + 1) // 2
    figure, axes = new_figure(columns=min(2, len(metrics)), rows=rows, width=10.0, height=3.2 * rows)
    for panel, metric in zip(axes, metrics, strict=False):
        reach: list[float] = [0.0]
        for colour, one in zip(COLOURS, [one for one in series if one["metric"] == metric], strict=False):
            told = {end: 100.0 * _array(values) for end, values in one["cumulative"].items()}
            ends = {"low": told["low"], "high": told["high"]}
            draw_curve(panel, one["rounds"], told["value"], name=one["target"], colour=colour, **ends)
            later = [values[len(values) // 4 :] for values in told.values()]
            reach += [float(value) for values in later for value in values if np.isfinite(value)]
        draw_level(panel, 0.0, "control")
        margin = 0.15 * (max(reach) - min(reach)) or 1.0
        panel.set_ylim(min(reach) - margin, max(reach) + margin)
        label_axes(panel, title=metric, x="round", y="lift so far, %")
    for spare in axes[len(metrics) :]:
        spare.set_visible(False)
    draw_legend(axes[0], "lower right")
    return figure


def _confirmation(report: Mapping[str, Any]) -> Figure | None:
    """Each arm's lift in each metric with its interval."""
    told = (report.get("confirmation") or {}).get("lifts") or []
    known = [lift for lift in told if lift["relative"]["low"] is not None and lift["relative"]["high"] is not None]
    if not known:
        return None
    figure, (panel,) = new_figure(width=8.0, height=1.2 + 0.42 * len(known))
    targets = list(dict.fromkeys(lift["target"] for lift in known))
    for place, lift in enumerate(reversed(known)):
        ends = [100.0 * lift["relative"][end] for end in ("low", "value", "high")]
        colour = COLOURS[targets.index(lift["target"]) % len(COLOURS)]
        panel.plot([ends[0], ends[2]], [place, place], color=colour, linewidth=2.2)
        panel.plot([ends[1]], [place], "o", color=colour)
    panel.axvline(0.0, color=INK, linewidth=1.0)
    panel.set_yticks(range(len(known)), [f"{lift['metric']}: {lift['target']}" for lift in reversed(known)])
    label_axes(panel, title="Lift over the control", x="%", y="")
    return figure


def _trade_off(report: Mapping[str, Any]) -> Figure | None:
    told = report.get("trade_off")
    if not told or not told["blends"]:
        return None
    figure, (panel,) = new_figure(width=7.0, height=4.4)
    blends = sorted((one["x"], one["y"]) for one in told["blends"])
    singles = told["singles"]
    draw_curve(panel, [x for x, _ in blends], [y for _, y in blends], name="blends", colour=COLOURS[0])
    panel.plot(
        [one["x"] for one in singles], [one["y"] for one in singles], "o", color=COLOURS[1], label="single candidates"
    )
    if told.get("answer"):
        panel.plot([told["answer"]["x"]], [told["answer"]["y"]], "*", markersize=14, color=COLOURS[2], label="answer")
    label_axes(panel, title="What can be had of both", x=told["x"], y=told["y"])
    draw_legend(panel)
    return figure


def _array(values: Sequence[float | None]) -> Any:
    return np.array([np.nan if value is None else value for value in values], dtype=float)


DRAWINGS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "lifts": _lifts,
    "confirmation": _confirmation,
    "trade_off": _trade_off,
}
