"""Charts of a report as SVG elements inside a page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from pasto.arrays import FloatArray
from pasto.report.figures import COLOURS, INK, draw_curve, draw_legend, draw_level, label_axes, new_figure
from pasto.report.records import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pasto.report.lift_records import LiftHistoryRecord

FORBIDDEN = "#b3261e"
"""Colour of a limit and of its wrong side."""
MAX_PANELS = 6
"""Metrics that the history is drawn for."""
_lock = Lock()
"""Matplotlib's text layout is not made for several threads at once."""


def draw_chart(name: str, report: Report) -> str | None:
    """Return one of a report's charts as an SVG element; None if there is nothing to draw.

    >>> draw_chart("lifts", Report("feed", "draft", 0, 0)) is None
    True
    """
    with _lock:
        figure = CHARTS[name](report)
        return None if figure is None else render_svg(figure, name)


def render_svg(figure: Figure, name: str) -> str:
    """Return a figure as one SVG element, with ids of its own so that several fit into a page."""
    from matplotlib import rc_context

    stream = io.StringIO()
    with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    element = text[text.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", element)
    return re.sub(r"<svg ", f'<svg role="img" aria-label="{name}" ', element, count=1)


def _draw_lifts(report: Report) -> Figure | None:
    """Draw the cumulative lift by round, one panel for each metric."""
    histories = () if report.learning is None else report.learning.history
    metrics = list(dict.fromkeys(history.metric for history in histories))[:MAX_PANELS]
    if not metrics:
        return None
    rows = (len(metrics) + 1) // 2
    figure, axes = new_figure(columns=min(2, len(metrics)), rows=rows, width=10.0, height=3.2 * rows)
    for panel, metric in zip(axes, metrics, strict=False):
        _draw_lift_panel(panel, metric, [history for history in histories if history.metric == metric])
    for unused in axes[len(metrics) :]:
        unused.set_visible(False)
    draw_legend(axes[0], "lower right")
    return figure


def _draw_lift_panel(panel: Axes, metric: str, histories: Sequence[LiftHistoryRecord]) -> None:
    limits: list[float] = [0.0]
    for colour, history in zip(COLOURS, histories, strict=False):
        series = history.cumulative
        values, low, high = (100.0 * _to_array(numbers) for numbers in (series.value, series.low, series.high))
        draw_curve(panel, history.rounds, values, name=history.target, colour=colour, low=low, high=high)
        # The first quarter has wide intervals; the later rounds set the axis.
        later = np.concatenate([numbers[len(numbers) // 4 :] for numbers in (values, low, high)])
        limits += later[np.isfinite(later)].tolist()
    draw_level(panel, 0.0, "control")
    margin = 0.15 * (max(limits) - min(limits)) or 1.0
    panel.set_ylim(min(limits) - margin, max(limits) + margin)
    label_axes(panel, title=metric, x="round", y="lift so far, %")


def _draw_confirmation(report: Report) -> Figure | None:
    """Draw the lift of each arm in each metric with its interval."""
    lifts = () if report.confirmation is None else report.confirmation.lifts
    lines = []
    for lift in lifts:
        relative = lift.relative
        if relative.value is not None and relative.low is not None and relative.high is not None:
            lines.append((lift, 100.0 * relative.value, 100.0 * relative.low, 100.0 * relative.high))
    if not lines:
        return None
    lines.reverse()
    figure, (panel,) = new_figure(width=8.0, height=1.2 + 0.42 * len(lines))
    targets = list(dict.fromkeys(lift.target for lift in lifts))
    for place, (lift, value, low, high) in enumerate(lines):
        colour = COLOURS[targets.index(lift.target) % len(COLOURS)]
        panel.plot([low, high], [place, place], color=colour, linewidth=2.2)
        panel.plot([value], [place], "o", color=colour)
    panel.axvline(0.0, color=INK, linewidth=1.0)
    panel.set_yticks(range(len(lines)), [f"{lift.metric}: {lift.target}" for lift, *_ in lines])
    label_axes(panel, title="Lift over the control", x="%", y="")
    return figure


def _draw_tradeoff(report: Report) -> Figure | None:
    """Draw blends, single candidates and the answer by goal and guardrail metric."""
    trade_off = report.trade_off
    if trade_off is None or not trade_off.blends:
        return None
    figure, (panel,) = new_figure(width=7.0, height=4.4)
    blends = sorted((point.x, point.y) for point in trade_off.blends)
    singles = trade_off.singles
    # The guardrail is across and the goal is up, as on the dashboard.
    draw_curve(panel, [y for _, y in blends], [x for x, _ in blends], name="blends", colour=COLOURS[0])
    for is_broken, fill, label in (
        (False, COLOURS[1], "single candidates"),
        (True, "none", "single candidates that break a limit"),
    ):
        points = [single for single in singles if bool(single.broken) == is_broken]
        if points:
            across, up = [point.y for point in points], [point.x for point in points]
            panel.plot(across, up, "o", color=COLOURS[1], markerfacecolor=fill, label=label)
    if trade_off.answer is not None:
        panel.plot([trade_off.answer.y], [trade_off.answer.x], "*", markersize=14, color=COLOURS[2], label="answer")
    if trade_off.limit is not None:
        low, high = panel.get_xlim()
        low, high = min(low, trade_off.limit), max(high, trade_off.limit)
        beyond = (low, trade_off.limit) if trade_off.side == "at_least" else (trade_off.limit, high)
        panel.axvspan(*beyond, color=FORBIDDEN, alpha=0.1, linewidth=0)
        panel.axvline(trade_off.limit, color=FORBIDDEN, linestyle="--", linewidth=1.0)
        panel.set_xlim(low, high)
    label_axes(panel, title="Goal and first guardrail", x=trade_off.y, y=trade_off.x)
    draw_legend(panel)
    return figure


def _to_array(values: Sequence[float | None]) -> FloatArray:
    return np.array([np.nan if value is None else value for value in values], dtype=float)


CHARTS: Mapping[str, Callable[[Report], Figure | None]] = {
    "lifts": _draw_lifts,
    "confirmation": _draw_confirmation,
    "trade_off": _draw_tradeoff,
}
