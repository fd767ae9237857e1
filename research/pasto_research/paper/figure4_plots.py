"""Figure 4: plots of the gain, of the runs' own gains, and of the reason for its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.report import figures
from pasto.sim import LearningTrace
from pasto_research.paper.figure4_runs import CANDIDATES, GAP, HELD, PARALLEL, Level

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROUNDS = f"rounds ({PARALLEL} draws each)"


def gain_figure(levels: list[Level]) -> Figure:
    """Draw r against rounds: all rounds, and those close to the goal."""
    sheet, (all_rounds, near) = figures.new_figure(columns=2, width=10.0)
    main, long = levels[0].main, levels[0].long
    for place, (level, colour) in enumerate(zip(levels, figures.COLOURS, strict=False)):
        for axes in (all_rounds, near):
            figures.draw_curve(axes, main.checkpoints, level.main_gains.ratio, name=level.name, colour=colour)
        _bars(all_rounds, level.main, level.main_gains.ratio, level.main_gains.error, place, colour)
        figures.draw_curve(near, long.checkpoints, level.long_gains.ratio, name="", colour=colour, dashes="--")
        _bars(near, long, level.long_gains.ratio, level.long_gains.error, place, colour, after=main.rounds)
    for axes in (all_rounds, near):
        figures.draw_level(axes, 0.0, "best single candidate", above=False, right=False)
        figures.draw_level(axes, 1.0, "best blend", right=False)
    figures.rounds_axis(all_rounds, 0.9, main.rounds * 1.1)
    figures.rounds_axis(near, max(0.9, main.rounds / 3), long.rounds * 1.1)
    all_rounds.set_ylim(top=6.0)
    near.set_ylim(-4.0, 1.5)
    figures.label_axes(
        all_rounds, title=f"All rounds, {main.runs:,} runs", x=ROUNDS, y="relative gain r (ratio of means ± its error)"
    )
    figures.label_axes(
        near, title=f"Close to the goal; dashed: {long.runs:,} runs that go on", x=ROUNDS, y="relative gain r"
    )
    figures.draw_legend(all_rounds, "lower right", "noise")
    return sheet


def runs_figure(levels: list[Level]) -> Figure:
    """Draw the mean and deviation of the runs' own r, as in the paper."""
    sheet, (axes,) = figures.new_figure()
    for place, (level, colour) in enumerate(zip(levels, figures.COLOURS, strict=False)):
        gains = level.main_gains
        figures.draw_curve(axes, level.main.checkpoints, gains.mean, name=level.name, colour=colour)
        _bars(axes, level.main, gains.mean, gains.deviation, place, colour)
    figures.draw_level(axes, 0.0, "best single candidate", right=False)
    figures.rounds_axis(axes, 0.9, levels[0].main.rounds * 1.1)
    runs_with_gap = levels[0].main_gains.runs_with_gap
    figures.label_axes(
        axes,
        title=f"Each run's own r: mean ± deviation over {runs_with_gap:,} runs with a gap of at least {GAP:g}",
        x=ROUNDS,
        y="relative gain r (mean of ratios)",
    )
    figures.draw_legend(axes, "lower right", "noise")
    return sheet


def _bars(
    axes: Any, trace: LearningTrace, y: FloatArray, error: FloatArray, place: int, colour: str, after: int = 0
) -> None:
    """Draw error bars at a few numbers of rounds, the levels side by side."""
    leading = "1246" if after else "13"
    few = np.array([str(mark)[0] in leading and not str(mark)[1:].strip("0") for mark in trace.checkpoints])
    visible = few & (trace.checkpoints > after)
    figures.draw_bars(axes, trace.checkpoints[visible] * 1.05 ** (place - 1), y[visible], error[visible], colour=colour)


def noise_figure(levels: list[Level], held: LearningTrace) -> Figure:
    """Draw the smallest probability and the error of V̂ against rounds."""
    sheet, (left, right) = figures.new_figure(columns=2, width=10.0)
    lines = [(level.name, level.long, colour, "-") for level, colour in zip(levels, figures.COLOURS, strict=False)]
    lines.append((f"{levels[-1].name}, floor held at {HELD:g}", held, lines[-1][2], ":"))
    for name, trace, colour, dashes in lines:
        smallest, error = np.median(trace.measures["smallest"], axis=0), trace.measures["error"].mean(axis=0)
        figures.draw_curve(left, trace.checkpoints, smallest, name=name, colour=colour, dashes=dashes)
        figures.draw_curve(right, trace.checkpoints, error, name=name, colour=colour, dashes=dashes)
    floors = 0.1 / np.sqrt(held.checkpoints + 10.0) / CANDIDATES
    figures.draw_curve(
        left, held.checkpoints, floors, name="the paper's floor, ε_t/K", colour=figures.REFERENCE, dashes="--"
    )
    left.set_yscale("log")
    right.set_ylim(bottom=0.0)
    for axes in (left, right):
        figures.rounds_axis(axes, 0.9, held.rounds * 1.1)
    title = "Unlikely candidates fall to the floor …"
    figures.label_axes(left, title=title, x=ROUNDS, y=f"smallest probability served (median of {held.runs:,} runs)")
    title = "… and 1/p brings the error of the estimate back"
    figures.label_axes(right, title=title, x=ROUNDS, y="error of V̂ (root mean square over candidates)")
    figures.draw_legend(left, "lower left")
    return sheet
