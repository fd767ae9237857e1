"""The race as a figure: relative gain against rounds, a panel for each setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pasto.report.figures import COLOURS, REFERENCE, curve, label, sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pasto.bench.learners import Course

DRAWN = {
    "posterior blend": (COLOURS[0], "-"),
    "posterior blend, no geometry": (COLOURS[0], ":"),
    "upper confidence bounds": (COLOURS[1], "-"),
    "even sweep, then exact blend": (COLOURS[2], "-"),
    "Thompson on f(û)": (COLOURS[3], "-"),
    "Algorithm 1, best of a sweep": (COLOURS[4], "-"),
    "Algorithm 1 as printed": (COLOURS[4], ":"),
    "oracle that knows the support": (REFERENCE, "--"),
}


def race_figure(courses: Mapping[str, Sequence[Course]]) -> Figure:
    """Relative gain r against rounds; 1 is the best blend, 0 the best single candidate."""
    columns = min(4, len(courses))
    rows = -(-len(courses) // columns)
    figure, panels = sheet(columns, rows, width=3.6 * columns, height=3.1 * rows + 0.7)
    for panel, (setting, racers) in zip(panels, courses.items(), strict=False):
        marks = racers[0].marks
        for course in racers:
            if course.player in DRAWN:
                colour, dashes = DRAWN[course.player]
                low = course.relative.clip(min=-1.5)
                curve(panel, marks, low, name=course.player, colour=colour, dashes=dashes)
        label(panel, title=setting, x="rounds", y="relative gain r")
        panel.set_xscale("log")
        panel.set_xlim(marks[0], marks[-1])
        panel.set_ylim(-1.4, 1.08)
        ticks = [tick for tick in (5, 10, 30, 100, 300) if tick <= marks[-1]]
        panel.set_xticks(ticks, [str(tick) for tick in ticks])
        panel.minorticks_off()
        for level in (0.0, 1.0):
            panel.axhline(level, color=REFERENCE, linewidth=0.8, zorder=1)
    for panel in panels[len(courses) :]:
        panel.set_visible(False)
    handles: dict[str, Any] = {}
    for panel in panels[: len(courses)]:
        for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=columns, frameon=False, fontsize=9
    )
    return figure
