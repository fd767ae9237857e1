"""Figure of docs/guides/when-blends-pay.md: run this file to draw it again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pasto.report.figures import COLOURS, DOTS, REFERENCE, draw_legend, label_axes, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIMIT = 3.0
"""Likes must not fall below it."""
WEIGHTS = np.linspace(0.0, 1.0, 201)


def mixed_page(weight: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return likes and watch time of a page that loses both when it mixes two kinds of content."""
    coherence = 1.0 - 1.2 * weight * (1.0 - weight)
    return coherence * (5.0 - 3.0 * weight), coherence * (30.0 + 10.0 * weight)


def saturating_page(weight: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return likes and watch time that are both concave in the weight."""
    return 5.0 - weight - 2.0 * weight**2, 30.0 + 10.0 * weight - 5.0 * weight**2


def draw() -> Figure:
    """Draw the metrics of every weight, the best single setting and the best blend."""
    figure, axes = new_figure(columns=2, width=9.0, height=3.8)
    panels = (
        ("Non-concave: the blend wins", mixed_page, (0.0, 1.0), 0.0),
        ("Concave: one setting wins", saturating_page, (0.5, 1.0), 0.7808),
    )
    for one, (title, page, ends, single) in zip(axes, panels, strict=True):
        likes, watch = page(WEIGHTS)
        one.plot(likes, watch, color=COLOURS[0], linewidth=2, label="single settings")
        end_likes, end_watch = page(np.array(ends))
        one.plot(end_likes, end_watch, color=COLOURS[1], linestyle="--", linewidth=1.5, label="blends of two settings")
        share = (LIMIT - end_likes[1]) / (end_likes[0] - end_likes[1])
        one.plot(
            [LIMIT],
            share * end_watch[0] + (1.0 - share) * end_watch[1],
            "o",
            color=COLOURS[1],
            label="blend at the limit",
        )
        single_likes, single_watch = page(np.array([single]))
        one.plot(single_likes, single_watch, "s", color=COLOURS[0], label="best single setting")
        one.axvline(LIMIT, color=REFERENCE, linestyle=":", linewidth=1.5)
        one.annotate(
            "limit", (LIMIT, 0.95), xycoords=("data", "axes fraction"), xytext=(4, 0), textcoords="offset points",
            color=REFERENCE, fontsize=9,
        )  # fmt: skip
        label_axes(one, title=title, x="likes", y="watch time")
    axes[0].set_ylim(top=43.0)
    axes[1].set_ylim(top=35.6)
    draw_legend(axes[0], "upper right")
    return figure


if __name__ == "__main__":
    draw().savefig(Path(__file__).with_name("when-blends-pay.png"), dpi=DOTS)
