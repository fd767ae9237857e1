"""Race on live traffic: days until a learner's answer has three quarters and nine tenths of the possible gain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np

from pasto.report.figures import COLOURS, REFERENCE, draw_curve, label_axes, new_figure
from pasto.sim import Progress
from pasto_research.bench.benchmark import BenchmarkReport
from pasto_research.bench.guardrail_counts import count_guardrails, format_share_held
from pasto_research.bench.learner_courses import LearnerCourse
from pasto_research.bench.live_traffic_learners import LIVE_LEARNERS
from pasto_research.bench.live_traffic_worlds import LIVE_TRAFFIC, LiveTraffic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHECKPOINTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 21, 24, 28, 35, 42, 49, 56)
"""Days."""
TABLE_CHECKPOINTS = (7, 14, 28, 56)
LEVELS = (0.75, 0.9)
FIRST_SEED = 810_000
"""Of the worlds; nothing was chosen on them."""

DRAWN = {
    "posterior blend": (COLOURS[0], "-"),
    "posterior blend, no geometry": (COLOURS[0], ":"),
    "even A/B/n test, best single": (COLOURS[2], "-"),
    "even A/B/n test, best blend": (COLOURS[2], ":"),
    "Thompson on the goal alone": (COLOURS[3], "-"),
    "constrained expected improvement (own, scikit-learn)": (COLOURS[1], "-"),
}


def race_live_traffic(
    family: LiveTraffic,
    *,
    instances: int,
    days: int,
    seed: int = FIRST_SEED,
    players: Sequence[str] | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> list[LearnerCourse]:
    """Run every learner on the same worlds and with the same random numbers of users.

    >>> small = LiveTraffic("small", goal="clicks", users=5_000)
    >>> course = race_live_traffic(small, instances=2, days=3, players=["even A/B/n test, best single"])[0]
    >>> course.gains.shape
    (2, 3)
    """
    courses = []
    for name in LIVE_LEARNERS if players is None else players:
        tasks = [(family, name, run, days, seed) for run in range(instances)]
        runs = []
        for done, course in enumerate(_run_tasks(tasks, workers), start=1):
            runs.append(course)
            if progress is not None:
                progress(f"{family.name}: {name}", done, instances)
        courses.append(LearnerCourse.join(runs))
    return courses


Task = tuple[LiveTraffic, str, int, int, int]


def _run_tasks(tasks: Sequence[Task], workers: int) -> Iterator[LearnerCourse]:
    if workers <= 1:
        yield from map(_run, tasks)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(_run, tasks)


def _run(task: Task) -> LearnerCourse:
    """Run one learner in one world."""
    family, name, run, days, seed = task
    world = family.draw(np.random.default_rng([seed, run, 1]))
    rng, judge, learner = np.random.default_rng([seed, run, 2]), world.judge(), LIVE_LEARNERS[name](family, run)
    base = judge.value(world.whole_traffic(np.zeros(len(family.candidates))) / family.control_share)
    marks = tuple(mark for mark in CHECKPOINTS if mark <= days)
    gains, holds, counts, loss, seconds = [], [], [], 0.0, 0.0
    for day in range(marks[-1]):
        began = process_time()
        shares = learner.propose()
        seconds += process_time() - began
        loss += judge.best - judge.value(world.whole_traffic(shares))
        cells = world.draw_day(shares, day, day, rng)
        began = process_time()
        learner.observe(cells)
        seconds += process_time() - began
        if day + 1 in marks:
            answer = learner.answer()
            gains.append(judge.value(answer) - base)
            holds.append(float(judge.holds(answer)))
            counts.append(count_guardrails(learner.certificate, judge.form.slack(world.means @ answer)))
    return LearnerCourse(
        name,
        marks,
        gains=np.array([gains]),
        gaps=np.array([judge.best - base]),
        loss=loss / marks[-1],
        seconds=seconds / marks[-1],
        holds=np.array([holds]),
        guardrail_counts=np.array([counts]).sum(axis=1),
    )


def measure_live_traffic(
    *,
    instances: int = 40,
    days: int = CHECKPOINTS[-1],
    seed: int = FIRST_SEED,
    players: Sequence[str] | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> BenchmarkReport:
    """Return the report of all learners on live traffic, with its figure."""
    rows: list[dict[str, Any]] = []
    courses = {}
    for family in LIVE_TRAFFIC:
        courses[family.name] = race_live_traffic(
            family, instances=instances, days=days, seed=seed, players=players, workers=workers, progress=progress
        )
        rows += [_row(family, course) for course in courses[family.name]]
    note = (
        f"{instances} worlds each, 50 candidates, {LIVE_TRAFFIC[0].users:,} users a day, "
        f"{LIVE_TRAFFIC[0].control_share:.0%} control, one close a day. A gain is that of the answer over the "
        "baseline, as a part of the exact best blend's, with its standard error. Days are the first checkpoint from "
        "which it stays at the level. A missed guardrail is charged at twice its true price; held is the part of "
        "answers under which it truly holds. Binding guardrails are those of certified answers, at all checkpoints, "
        "that are stated with the learner's confidence and no more; errors are over worlds. Lost while learning is "
        "what the traffic of a day had less than the best blend would, control included, as a part of the possible "
        "gain."
    )
    return BenchmarkReport(
        "Days until a learner's answer has most of the possible gain, on live traffic",
        tuple(rows),
        note,
        {"live-traffic": lambda: live_traffic_figure(courses)},
    )


def _row(family: LiveTraffic, course: LearnerCourse) -> dict[str, Any]:
    held, counts = course.holds, course.guardrail_counts
    assert held is not None and counts is not None  # noqa: S101, PT018 -- `_run` records them
    return {
        "world": family.name,
        "learner": course.player,
        **{f"days to {level:.0%}": course.rounds_to(level) for level in LEVELS},
        **{
            f"gain after {mark}": f"{course.at(mark)} ± {course.standard_error(mark):.2f}"
            if mark in course.marks
            else None
            for mark in TABLE_CHECKPOINTS
        },
        "held at the end": f"{held[:, -1].mean():.0%}",
        "binding": int(counts[:, 0].sum()) or None,
        "binding that hold": format_share_held(counts),
        "lost while learning": round(course.loss / float(course.gaps.mean()), 2),
        "CPU ms a day": round(1e3 * course.seconds, 1),
    }


def live_traffic_figure(courses: Mapping[str, Sequence[LearnerCourse]]) -> Figure:
    """Draw the gain of every learner's answer against days; 1 is the best blend, 0 the baseline."""
    figure, panels = new_figure(len(courses), 1, width=4.4 * len(courses), height=4.2)
    for panel, (name, racers) in zip(panels, courses.items(), strict=True):
        marks = racers[0].marks
        for course in racers:
            if course.player in DRAWN:
                colour, dashes = DRAWN[course.player]
                draw_curve(
                    panel, marks, course.relative.clip(min=-0.5), name=course.player, colour=colour, dashes=dashes
                )
        label_axes(panel, title=name, x="days", y="part of the possible gain")
        panel.set_xscale("log")
        panel.set_xlim(marks[0], marks[-1])
        panel.set_ylim(-0.55, 1.05)
        ticks = [tick for tick in (1, 2, 4, 7, 14, 28, 56) if tick <= marks[-1]]
        panel.set_xticks(ticks, [str(tick) for tick in ticks])
        panel.minorticks_off()
        for level in (0.0, 1.0):
            panel.axhline(level, color=REFERENCE, linewidth=0.8, zorder=1)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure
