"""Figure of a plan: the chance of a decision after each round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pasto.report.figures import COLOURS, draw_curve, draw_legend, draw_level, label_axes, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pasto.inference.power import PowerPlan


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
