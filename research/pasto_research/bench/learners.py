"""Learners side by side on the same worlds and seeds: rounds until their answer beats the best single candidate."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.optimize.learners import Algorithm1, Scgd, Thompson
from pasto.optimize.learners.mirror_ascent import Schedule
from pasto.report.figures import COLOURS, REFERENCE, draw_curve, label_axes, new_figure
from pasto.sim import Progress, RunRound, World, monte_carlo
from pasto.sim.random_streams import stream
from pasto_research.bench import external_optimizers
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport
from pasto_research.bench.learner_adapters import (
    LearnerAdapter,
    OracleAdapter,
    ScalarThompsonAdapter,
    StudyAdapter,
    SweepAdapter,
    UpperBoundAdapter,
)
from pasto_research.bench.learner_courses import Judge, LearnerCourse
from pasto_research.bench.live_traffic import measure_live_traffic
from pasto_research.bench.worlds import SETTINGS, WorldFamily

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


def race_figure(courses: Mapping[str, Sequence[LearnerCourse]]) -> Figure:
    """Draw the relative gain r against rounds; 1 is the best blend, 0 the best single candidate."""
    columns = min(4, len(courses))
    rows = -(-len(courses) // columns)
    figure, panels = new_figure(columns, rows, width=3.6 * columns, height=3.1 * rows + 0.7)
    for panel, (setting, racers) in zip(panels, courses.items(), strict=False):
        marks = racers[0].marks
        for course in racers:
            if course.player in DRAWN:
                colour, dashes = DRAWN[course.player]
                low = course.relative.clip(min=-1.5)
                draw_curve(panel, marks, low, name=course.player, colour=colour, dashes=dashes)
        label_axes(panel, title=setting, x="rounds", y="relative gain r")
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


CHECKPOINTS = (5, 10, 15, 20, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250, 300)

LEVELS = (0.0, 0.75, 0.9)

TABLE_CHECKPOINTS = (30, 120)
"""Checkpoints in the table."""

PARALLEL = 10

STEPS = (1.0, 10.0, 100.0, 1_000.0)
"""Of the sweep, in units of the paper's γ = 0.1/K."""

FLOORS = (0.1, 1.0, 3.0)
"""Of the sweep: ε_t = c/√(t + 10), clipped at 3/4; the paper's c is 0.1."""

AdapterFactory = Callable[[World, WorldFamily, int], LearnerAdapter]

ADAPTERS: dict[str, AdapterFactory] = {
    "posterior blend": lambda world, setting, seed: StudyAdapter(world, Thompson(), seed, setting.candidates),
    "posterior blend, no geometry": lambda world, setting, seed: StudyAdapter(
        world, Thompson(structure="independent"), seed, setting.candidates
    ),
    "upper confidence bounds": lambda world, _, seed: UpperBoundAdapter(world, seed),
    "even sweep, then exact blend": lambda world, _, seed: SweepAdapter(world, seed),
    "Thompson on f(û)": lambda world, _, seed: ScalarThompsonAdapter(world, seed),
    "oracle that knows the support": lambda world, _, seed: OracleAdapter(world, seed),
}

ADAPTERS |= external_optimizers.installed()


def race(
    setting: WorldFamily,
    *,
    instances: int,
    rounds: int,
    seed: int = 1,
    players: Sequence[str] | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> list[LearnerCourse]:
    """Run every learner on the same instances of a setting.

    >>> from pasto_research.bench.worlds import WorldFamily, uniform
    >>> small = WorldFamily("small", uniform(0.1, candidates=6))
    >>> course = race(small, instances=2, rounds=10, players=["posterior blend"])[0]
    >>> course.gains.shape
    (2, 2)
    """
    marks = [mark for mark in CHECKPOINTS if mark <= rounds]
    racing = [name for name in ADAPTERS if players is None or name in players]
    if setting.candidates is None and "posterior blend, no geometry" in racing:
        racing.remove("posterior blend, no geometry")
    courses = []
    for name in racing:
        tasks = [(setting, name, run, tuple(marks), seed) for run in range(instances)]
        runs = []
        for done, course in enumerate(_shared_out(tasks, workers), start=1):
            runs.append(course)
            if progress is not None:
                progress(f"{setting.name}: {name}", done, instances)
        courses.append(LearnerCourse.join(runs))
    if setting.follows_gradients and players is None:
        courses += _gradients(setting, instances, rounds, seed, marks, progress)
    return courses


def _shared_out(
    tasks: list[tuple[WorldFamily, str, int, tuple[int, ...], int]], workers: int
) -> Iterator[LearnerCourse]:
    """Return every task's course in order, from a few processes where there is more than one."""
    if workers <= 1:
        yield from map(_task, tasks)
        return
    # The settings hold functions that cannot be sent to another process, so a task goes by the setting's name.
    named = [(setting.name, *rest) for setting, *rest in tasks]
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(_named_task, named)


def _named_task(task: tuple[Any, ...]) -> LearnerCourse:
    return _task((SETTINGS[task[0]], *task[1:]))


def _task(task: tuple[Any, ...]) -> LearnerCourse:
    setting, name, run, marks, seed = task
    world = setting.make(stream(seed, run, "truth"))
    return _course(name, ADAPTERS[name](world, setting, run), world, marks, np.random.default_rng([seed, run]))


def measure(
    settings: Sequence[str] | None = None,
    *,
    instances: int = 40,
    rounds: int | None = None,
    seed: int = 1,
    workers: int = 1,
    progress: Progress | None = None,
) -> BenchmarkReport:
    """Return the report of all learners, with its figure."""
    rows: list[dict[str, Any]] = []
    courses = {}
    for name in settings or SETTINGS:
        setting = SETTINGS[name]
        courses[name] = race(
            setting, instances=instances, rounds=rounds or setting.rounds, seed=seed, workers=workers, progress=progress
        )
        for course in courses[name]:
            reached = {f"r ≥ {level:g}": course.rounds_to(level) for level in LEVELS}
            rows.append(
                {
                    "setting": name,
                    "learner": course.player,
                    **reached,
                    **{f"r at {mark}": course.at(mark) for mark in TABLE_CHECKPOINTS},
                    "r at the end": round(float(course.relative[-1]), 2),
                    "guardrail loss": round(course.loss, 4),
                    "ms a round": round(1e3 * course.seconds, 2),
                }
            )
    note = (
        f"{instances} instances, {PARALLEL} draws a round, with standard errors. r is the ratio of "
        "means; the rounds are the first checkpoint from which r stays at the level. A hard guardrail missed is "
        "charged at twice its true price."
    )
    return BenchmarkReport(
        "Rounds until a learner's answer beats the best single candidate",
        tuple(rows),
        note,
        {"learners": lambda: race_figure(courses)},
    )


def _run(progress: Progress | None, quick: bool) -> BenchmarkReport:
    workers = os.cpu_count() or 1
    if quick:
        settings = ["B, σ = 0.1", "smooth line, σ = 0.5"]
        report = measure(settings, instances=6, rounds=30, workers=workers, progress=progress)
        live_traffic = measure_live_traffic(instances=6, days=14, workers=workers, progress=progress)
    else:
        report = measure(workers=workers, progress=progress)
        live_traffic = measure_live_traffic(workers=workers, progress=progress)
    return replace(report, more=(live_traffic,))


def _course(
    name: str, player: LearnerAdapter, world: World, marks: Sequence[int], rng: np.random.Generator
) -> LearnerCourse:
    gains, loss, seconds = [], 0.0, 0.0
    judge = Judge(world.objective.form(), world.truth)
    for number in range(1, marks[-1] + 1):
        began = perf_counter()
        chosen = player.ask(PARALLEL)
        seconds += perf_counter() - began
        metrics = world.draw(chosen, rng)
        loss += judge.loss(player.served())
        began = perf_counter()
        player.tell(chosen, metrics)
        seconds += perf_counter() - began
        if number in marks:
            gains.append(judge.value(player.answer()) - judge.single)
    return LearnerCourse(
        name,
        tuple(marks),
        np.array([gains]),
        np.array([judge.best - judge.single]),
        loss / marks[-1],
        seconds / marks[-1],
    )


def _gradients(
    setting: WorldFamily, instances: int, rounds: int, seed: int, marks: Sequence[int], progress: Progress | None
) -> list[LearnerCourse]:
    """Run the paper's learners in all instances at once, as printed and with the best of a sweep."""
    count = len(setting.make(stream(seed, 0, "truth")).names)

    def run(learner: Algorithm1 | Scgd, name: str) -> LearnerCourse:
        began = perf_counter()
        trace = monte_carlo(
            learner, setting.make, runs=instances, rounds=rounds, parallel=PARALLEL, seed=seed, checkpoints=marks,
            totals={"loss": _lost},
            progress=progress, label=f"{setting.name}: {name}",
        )  # fmt: skip
        seconds = (perf_counter() - began) / (instances * rounds)
        gains = trace.answer - trace.single[:, None]
        loss = float(trace.totals["loss"][:, -1].mean()) / rounds
        return LearnerCourse(name, tuple(marks), gains, trace.optimum - trace.single, loss, seconds)

    swept = [
        run(
            Algorithm1(step=step * 0.1 / count, floor=Schedule(floor, offset=10, limit=0.75)),
            "Algorithm 1, best of a sweep",
        )
        for step in STEPS
        for floor in FLOORS
    ]
    winner = max(swept, key=lambda course: float(course.relative[-1]))
    return [run(Algorithm1(), "Algorithm 1 as printed"), winner, run(Scgd(), "S-SCGD")]


def _lost(moment: RunRound) -> FloatArray:
    """Return the loss of the served policy to guardrails, (runs,)."""
    blended = (moment.running * moment.served[:, None, :]).sum(axis=-1)
    return np.asarray(moment.form.goal.value(blended) - moment.form.smooth(blended))


BENCHMARK = Benchmark(
    name="learners",
    summary="rounds until a learner's blend beats the best single candidate, and days on live traffic",
    run=_run,
)
