"""Figures in one style: plain axes and colours that colour-blind readers can distinguish, saved as PNG and SVG.

Drawing needs matplotlib, which the extra `plots` brings. Figures are built directly, never through pyplot, so no
backend is chosen and no global setting changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pasto.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pasto.inference.power import PowerPlan

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours of Okabe and Ito, in the order in which lines take them."""
INK = "#333333"
GRID = "#E4E4E4"
REFERENCE = "#777777"
DOTS = 160
"""A PNG's dots per inch."""
Place = Literal["best", "upper left", "upper right", "lower left", "lower right", "center right", "upper center"]


def new_figure(
    columns: int = 1, rows: int = 1, *, width: float = 7.0, height: float = 4.4
) -> tuple[Figure, list[Axes]]:
    """Return an empty figure and its axes in reading order; width and height are those of the figure, in inches.

    >>> figure, axes = new_figure(columns=2)
    >>> len(axes)
    2
    """
    try:
        from matplotlib.figure import Figure as Sheet
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise MissingExtraError("figures need matplotlib", "plots") from error
    figure = Sheet(figsize=(width, height), layout=ConstrainedLayoutEngine(wspace=0.06), facecolor="white")
    axes = [figure.add_subplot(rows, columns, place + 1) for place in range(rows * columns)]
    for panel in axes:
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
        for side in ("left", "bottom"):
            panel.spines[side].set_color(INK)
        panel.grid(True, color=GRID, linewidth=0.8)
        panel.set_axisbelow(True)
        panel.tick_params(colors=INK, labelsize=9, which="both")
    return figure, axes


def label_axes(axes: Axes, *, title: str, x: str, y: str) -> None:
    """Write the title of a panel and the names of its axes.

    >>> figure, (axes,) = new_figure()
    >>> label_axes(axes, title="Example A", x="rounds", y="f")
    >>> axes.get_xlabel()
    'rounds'
    """
    axes.set_title(title, fontsize=11, color=INK, loc="left")
    axes.set_xlabel(x, fontsize=10, color=INK)
    axes.set_ylabel(y, fontsize=10, color=INK)


def draw_curve(
    axes: Axes,
    x: Sequence[float] | Any,
    y: Sequence[float] | Any,
    *,
    name: str,
    colour: str,
    low: Sequence[float] | Any = None,
    high: Sequence[float] | Any = None,
    dashes: str = "-",
) -> None:
    """Draw a line, with a shaded band around it if low and high are given.

    >>> figure, (axes,) = new_figure()
    >>> draw_curve(axes, [1, 2], [0.5, 0.7], name="mean", colour=COLOURS[0], low=[0.4, 0.6], high=[0.6, 0.8])
    >>> len(axes.lines), len(axes.collections)
    (1, 1)
    """
    axes.plot(x, y, dashes, color=colour, linewidth=1.8, label=name)
    if low is not None and high is not None:
        axes.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0)


def draw_bars(
    axes: Axes,
    x: Sequence[float] | Any,
    y: Sequence[float] | Any,
    error: Sequence[float] | Any,
    *,
    colour: str,
) -> None:
    """Draw dots with error bars, over a line drawn by `draw_curve`.

    >>> figure, (axes,) = new_figure()
    >>> draw_bars(axes, [1, 2], [0.5, 0.7], [0.1, 0.1], colour=COLOURS[0])
    >>> len(axes.containers)
    1
    """
    axes.errorbar(
        x, y, yerr=error, fmt="o", color=colour, markersize=3.5, elinewidth=1.1, capsize=2.5, label="_nolegend_"
    )


def rounds_axis(axes: Axes, first: float, last: float) -> None:
    """Give a panel a logarithmic x axis from the first round to the last, with its numbers written out.

    >>> figure, (axes,) = new_figure()
    >>> rounds_axis(axes, 1, 10_000)
    >>> axes.get_xscale(), axes.xaxis.get_major_formatter()(1000, 0)
    ('log', '1,000')
    """
    axes.set_xscale("log")
    axes.set_xlim(first, last)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def draw_level(axes: Axes, y: float, name: str, *, above: bool = True, right: bool = True) -> None:
    """Draw a dashed horizontal line with its name at one end, for a level that a curve is compared with.

    >>> figure, (axes,) = new_figure()
    >>> draw_level(axes, 1.0125, "best blend, 1.0125")
    >>> axes.texts[0].get_text()
    'best blend, 1.0125'
    """
    axes.axhline(y, color=REFERENCE, linewidth=1.1, linestyle=(0, (4, 3)), zorder=1)
    axes.annotate(
        name,
        xy=(1.0 if right else 0.0, y),
        xycoords=("axes fraction", "data"),
        xytext=(-2 if right else 4, 3 if above else -3),
        textcoords="offset points",
        ha="right" if right else "left",
        va="bottom" if above else "top",
        fontsize=8.5,
        color=REFERENCE,
    )


def draw_legend(axes: Axes, where: Place = "best", title: str | None = None) -> None:
    """Draw the names of the lines in a plain box.

    >>> figure, (axes,) = new_figure()
    >>> draw_curve(axes, [1, 2], [0.5, 0.7], name="mean", colour=COLOURS[0])
    >>> draw_legend(axes)
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['mean']
    """
    box = axes.legend(
        loc=where, title=title, fontsize=9, title_fontsize=9, frameon=True, framealpha=0.92, edgecolor=GRID
    )
    for text in (*box.get_texts(), box.get_title()):
        text.set_color(INK)


def save_figure(figure: Figure, path: str | Path) -> list[Path]:
    """Write a figure as a PNG file and an SVG file; `path` is the name without an ending.

    >>> import tempfile
    >>> figure, _ = new_figure()
    >>> with tempfile.TemporaryDirectory() as place:
    ...     [written.name for written in save_figure(figure, Path(place) / "toy-a")]
    ['toy-a.png', 'toy-a.svg']
    """
    stem = Path(path)
    image, drawing = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
    figure.savefig(image, format="png", dpi=DOTS)
    figure.savefig(drawing, format="svg", metadata={"Date": None})
    return [image, drawing]


def draw_plan(plan: PowerPlan) -> Figure:
    """Draw the chances of a decision, round by round.

    >>> from pasto.inference.power import plan_power
    >>> figure = draw_plan(plan_power(effect=0.1, deviation=1.0, units=1000, rounds=20, studies=100))
    >>> len(figure.axes)
    1
    """
    figure, (axes,) = new_figure()
    rounds = np.arange(1, len(plan.error) + 1)
    for chances, name, colour in (
        (plan.at_horizon, "one look, set beforehand", COLOURS[0]),
        (plan.at_any_look, "looking after every round", COLOURS[1]),
        (plan.guardrail_monitor, "guardrail monitor, for a drop of this size", COLOURS[2]),
    ):
        draw_curve(axes, rounds, 100.0 * chances, name=name, colour=colour)
    draw_level(axes, 100.0 * plan.power, f"asked for, {plan.power:.0%}", right=False)
    label_axes(axes, title="How long until it shows", x="rounds", y="chance of a decision, %")
    axes.set_ylim(0, 100)
    draw_legend(axes, "lower right")
    return figure
