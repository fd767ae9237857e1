"""Table 2: figures of the curve of all α with the best blend, and of the learners' answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pasto.arrays import FloatArray
from pasto.report import figures
from pasto_research.paper.table2_replay import GuardrailVariant, Table2Replay

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SLOW = "Algorithm 1"
"""The learner whose way is drawn: it is long."""
LOOKS = {SLOW: ("D", figures.COLOURS[2]), "default learner": ("^", figures.COLOURS[3])}
"""Of each learner: its mark and colour."""


def trade_off(replay: Table2Replay) -> Figure:
    """Draw both metrics for every α with the best blend: one panel soft, one hard."""
    sheet, panels = figures.new_figure(columns=2, width=10.5, height=4.6)
    for axes, goal in zip(panels, (replay.soft, replay.hard), strict=True):
        _panel(axes, replay, goal)
    return sheet


def _panel(axes: Axes, replay: Table2Replay, goal: GuardrailVariant) -> None:
    x, y = replay.truth[1], replay.truth[0]
    axes.plot(x, y, "-", color=figures.REFERENCE, linewidth=1.0, zorder=2)
    axes.plot(x, y, ".", color=figures.REFERENCE, markersize=4, label="one α for everybody, 0 to 1", zorder=2)
    axes.axvline(replay.threshold, color=figures.INK, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
    best = goal.best
    ends = np.array([replay.truth[:, k] for k in best.support])
    if len(ends) > 1:
        axes.plot(ends[:, 1], ends[:, 0], "-", color=figures.COLOURS[0], linewidth=1.2, zorder=3)
        axes.plot(ends[:, 1], ends[:, 0], "o", mfc="white", color=figures.COLOURS[0], markersize=6, zorder=4)
    marks = [("best blend", np.array([best.metrics[name] for name in replay.metrics]), "*", figures.COLOURS[0], 15)]
    if best.best_single is not None:
        marks.append(("best single α", replay.truth[:, best.best_single], "s", figures.COLOURS[1], 7))
    for learned in goal.learned:
        shape, colour = LOOKS[learned.learner]
        path = learned.metrics(replay.truth).mean(axis=0)
        if learned.learner == SLOW:
            axes.plot(path[:, 1], path[:, 0], "-", color=colour, linewidth=1.0, alpha=0.7, zorder=3)
        marks.append((f"{learned.learner}, {learned.marks[-1]:,} rounds", path[-1], shape, colour, 7))
    for name, at, shape, colour, side in marks:
        axes.plot(at[1], at[0], shape, color=colour, markersize=side, label=name, mec="white", mew=0.6, zorder=6)
    if not goal.soft:
        _closer(axes, np.array([*(at for _, at, *_ in marks), *ends]))
    kind = "λ = 5" if goal.soft else "hard guardrail, closer"
    figures.label_axes(
        axes, title=f"{_short(replay)}, {kind}", x=f"{replay.metrics[1]} (dashed: at α = 0.5)", y=replay.metrics[0]
    )
    figures.draw_legend(axes, "best")


def _closer(axes: Axes, points: FloatArray) -> None:
    """Zoom to the part of the curve around some points, (points, metrics)."""
    for limit, values in ((axes.set_ylim, points[:, 0]), (axes.set_xlim, points[:, 1])):
        room = 0.6 * max(float(np.ptp(values)), 0.01 * abs(float(values.mean())))
        limit(float(values.min()) - room, float(values.max()) + room)


def learning(replay: Table2Replay) -> Figure:
    """Draw f of the learners' answers, round by round, and the best values."""
    sheet, (axes,) = figures.new_figure()
    goal = replay.soft
    for learned in goal.learned:
        values = np.asarray(goal.objective.value(learned.metrics(replay.truth)))
        low, high = np.quantile(values, (0.25, 0.75), axis=0)
        figures.draw_curve(
            axes,
            learned.marks,
            values.mean(axis=0),
            name=learned.learner,
            colour=LOOKS[learned.learner][1],
            low=low,
            high=high,
        )
    figures.draw_level(axes, goal.best.value, f"best blend, {goal.best.value:.4f}", right=False)
    if goal.best.best_single_value is not None:
        figures.draw_level(
            axes,
            goal.best.best_single_value,
            f"best single α, {goal.best.best_single_value:.4f}",
            above=False,
            right=False,
        )
    figures.rounds_axis(
        axes, goal.learned[0].marks[0], max(10, 2 * goal.learned[0].marks[0], goal.learned[0].marks[-1])
    )
    _room(axes, np.array([goal.best.value]))
    figures.label_axes(
        axes,
        title=f"{_short(replay)}: mean of {len(goal.learned[0].answers)} repeats, quartiles shaded",
        x="rounds (ten folds of users each)",
        y="f of the answer, λ = 5",
    )
    figures.draw_legend(axes, "lower right")
    return sheet


def _room(axes: Axes, tops: FloatArray) -> None:
    """Add space above the highest line for its label."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, max(high, float(tops.max())) + 0.06 * (high - low))


def _short(replay: Table2Replay) -> str:
    """Return the name of the data without its suffix."""
    return replay.split.pairs.name.split(" (")[0]
