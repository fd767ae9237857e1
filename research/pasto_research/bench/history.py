"""Benchmark of the warm start: rounds that a history saves or costs, and certificates that still hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

import pasto
from pasto.arrays import FloatArray
from pasto.optimize.learners import Thompson
from pasto.sim import Progress, World
from pasto.sim.random_streams import stream
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport
from pasto_research.bench.certificate_worlds import WORLDS, Side
from pasto_research.bench.certificates import CONFIDENCE, SIDES
from pasto_research.bench.guardrail_counts import count_guardrails, format_share_held
from pasto_research.bench.learner_courses import Judge
from pasto_research.bench.worlds import Maker, correlated, uniform

HISTORIES = (None, 0.9, 0.5, 0.0, -0.5)
"""Correlations of the history with the truth, in every metric; None is a cold start."""
CERTIFIED_HISTORIES = (None, 0.9, 0.0, -0.5)
"""Correlations of the histories whose certificates are compared with the truth."""
LEVEL = 0.75
PARALLEL = 10
STATED_ERROR = 0.1
"""Standard error of the history's rows, in deviations between candidates."""
RESAMPLES = 400
EARLY_MARKS = (10, 20, 40)
"""Rounds after which r is reported."""
QUICK_INSTANCES = 2
STUDIES, QUICK_STUDIES = 40, 2
FIRST_SEED = 900_000
"""Of worlds and studies; the warm start was built on others."""
LISTED = 0.6
"""Share of the candidates that have a row, in the studies of certificates."""
LOOKS = (3, 10)
"""Rounds after which certificates are compared with the truth."""


@dataclass(frozen=True, slots=True)
class HistoryFamily:
    """Family of worlds, the number of rounds after which a cold start has reached the level, and of its worlds."""

    name: str
    make: Maker
    rounds: int
    instances: int = 40


FAMILIES = (
    HistoryFamily("B, σ = 0.5", uniform(0.5), 160),
    HistoryFamily("B, σ = 1", uniform(1.0), 400, instances=20),
    HistoryFamily("correlated, σ = 0.5", correlated(0.5), 160),
    HistoryFamily("five guardrails, σ = 0.5", uniform(0.5, guardrails=5), 40),
)
CERTIFICATE_WORLDS = tuple(
    world
    for world in WORLDS
    if world.name
    in (
        "clicks 1–5 %, 1,000 a cell, observe",
        "revenue, 98 % zeros, 10,000 a cell, observe",
        "percent, control 10%, steady",
        "default contrast, level ±40 %, 6,000 units",
        "smooth grid",
        "two factors, clicks 1–5 %",
    )
)


def past_results(
    truth: FloatArray, correlation: float, rng: np.random.Generator, stated_error: float = STATED_ERROR
) -> tuple[FloatArray, FloatArray]:
    """Return means of earlier results, (metrics, candidates), and their standard errors, (metrics,).

    They have the mean and the spread of the truth, and the given correlation with it. The rest of their spread is that
    of the truth, with its candidates exchanged.
    """
    mean = truth.mean(axis=1, keepdims=True)
    other = rng.permuted(truth - mean, axis=1)
    past = correlation * (truth - mean) + np.sqrt(1.0 - correlation**2) * other
    errors = stated_error * past.std(axis=1)
    return mean + past + errors[:, None] * rng.standard_normal(past.shape), errors


def history_rows(
    metrics: Sequence[str], settings: Sequence[dict[str, Any]], means: FloatArray, errors: FloatArray
) -> list[dict[str, Any]]:
    """Return a history with a row for each setting."""
    return [
        {
            **setting,
            **{name: float(mean) for name, mean in zip(metrics, column, strict=True)},
            **{f"{name}_se": float(error) for name, error in zip(metrics, errors, strict=True)},
        }
        for setting, column in zip(settings, means.T, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class HistoryTask:
    """One instance of a family, with one history."""

    family: int
    correlation: float | None
    instance: int
    seed: int
    marks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HistoryCourse:
    """Course of one study at its checkpoints."""

    gains: tuple[float, ...]
    """f of the answer, less that of the best single candidate."""
    gap: float
    """f of the best blend, less that of the best single candidate."""


def run_instance(task: HistoryTask) -> HistoryCourse:
    """Run one study, and compare its answers with the truth at each checkpoint."""
    world = FAMILIES[task.family].make(stream(task.seed, task.instance, "truth"))
    study = start_study(world, task.correlation, task.instance, np.random.default_rng([task.seed, task.instance, 1]))
    judge, rng = Judge(world.objective.form(), world.truth), np.random.default_rng([task.seed, task.instance])
    noise = np.broadcast_to(world.noise, world.truth.shape).T
    gains = []
    for number in range(1, task.marks[-1] + 1):
        assignments = study.ask(PARALLEL)
        chosen = np.array([assignment.candidate for assignment in assignments])
        study.tell(assignments, world.draw(chosen, rng), standard_errors=noise[chosen])
        if number in task.marks:
            gains.append(judge.value(np.array(study.blend(deploy_rounds=None).probabilities)) - judge.single)
    return HistoryCourse(tuple(gains), judge.best - judge.single)


def start_study(world: World, correlation: float | None, seed: int, rng: np.random.Generator) -> pasto.Study:
    """Return a study with a history of that correlation, or without one."""
    history = None
    if correlation is not None:
        settings = [{"candidate": name} for name in world.names]
        history = history_rows(world.metrics, settings, *past_results(world.truth, correlation, rng))
    learner = Thompson(structure="independent")  # candidates are only names
    return pasto.Study(world.candidates, world.objective, learner=learner, seed=seed, history=history)


def checkpoints(rounds: int) -> tuple[int, ...]:
    """Return the rounds after which answers are judged, about a tenth apart."""
    marks = [2, 5]
    while marks[-1] < rounds:
        marks.append(min(rounds, max(marks[-1] + 5, int(1.1 * marks[-1] / 5) * 5)))
    return tuple(marks)


def rounds_to(gains: FloatArray, gaps: FloatArray, marks: Sequence[int], level: float = LEVEL) -> float:
    """Return the round at which the smoothed r reaches a level; infinite if it does not.

    r is a ratio of means over instances. It is smoothed to the nearest curve that does not fall.

    >>> rounds_to(np.array([[0.0, 0.5, 1.0]]), np.array([1.0]), (10, 20, 30))
    25.0
    """
    curve = _rising(gains.sum(axis=0) / gaps.sum())
    if curve[-1] < level:
        return float("inf")
    place = int(np.argmax(curve >= level))
    if not place:
        return float(marks[0])
    part = (level - curve[place - 1]) / (curve[place] - curve[place - 1])
    return float(marks[place - 1] + part * (marks[place] - marks[place - 1]))


def _rising(values: FloatArray) -> FloatArray:
    """Return the nearest curve that does not fall, by averaging neighbours that are out of order."""
    blocks: list[tuple[float, int]] = []
    for value in values.tolist():
        blocks.append((value, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (right, more), (left, count) = blocks.pop(), blocks.pop()
            blocks.append(((left * count + right * more) / (count + more), count + more))
    return np.concatenate([np.full(count, value) for value, count in blocks])


def measure_rounds(
    families: Sequence[int], instances: int | None, seed: int, processes: int, progress: Progress | None
) -> BenchmarkReport:
    """Return the rounds to the level with each history, compared with a cold start on the same worlds and noise.

    Without a number of instances, each family has its own.
    """
    rows: list[dict[str, Any]] = []
    for family in families:
        marks = checkpoints(FAMILIES[family].rounds)
        tasks = [
            HistoryTask(family, correlation, instance, seed, marks)
            for correlation in HISTORIES
            for instance in range(instances or FAMILIES[family].instances)
        ]
        courses = []
        for done, course in enumerate(_map(run_instance, tasks, processes), start=1):
            courses.append(course)
            if progress is not None:
                progress(FAMILIES[family].name, done, len(tasks))
        rows += summarize_rounds(FAMILIES[family].name, courses, marks)
    note = (
        f"The worlds and their noise are the same for every history, {PARALLEL} draws a round. r is 0 at the best "
        "single candidate and 1 at the best blend, a ratio of means, with its standard error over worlds. Its curve is "
        "smoothed to one that does not fall. The interval (68 %) is from resampled worlds."
    )
    return BenchmarkReport(f"Rounds to r ≥ {LEVEL:g} with a history", tuple(rows), note)


def summarize_rounds(name: str, courses: Sequence[HistoryCourse], marks: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Return a row for each history; the courses are those of all worlds with the first history, then the next."""
    instances = len(courses) // len(HISTORIES)
    gains = np.array([course.gains for course in courses]).reshape(len(HISTORIES), instances, len(marks))
    gaps = np.array([course.gap for course in courses[:instances]])
    rng = np.random.default_rng(0)
    picks = rng.integers(len(gaps), size=(RESAMPLES, len(gaps)))
    drawn = np.array([[rounds_to(each[pick], gaps[pick], marks) for pick in picks] for each in gains])
    for place, correlation in enumerate(HISTORIES):
        curve = gains[place].sum(axis=0) / gaps.sum()
        errors = np.sqrt(np.square(gains[place] - np.outer(gaps, curve)).sum(axis=0)) / gaps.sum()
        needed, cold = (rounds_to(each, gaps, marks) for each in (gains[place], gains[0]))
        with np.errstate(invalid="ignore"):
            ratios = np.nan_to_num(drawn[place] / drawn[0], nan=1.0, posinf=99.0)
        low, high = np.quantile(ratios, [0.16, 0.84])
        yield {
            "worlds": name,
            "instances": instances,
            "history": _history_name(correlation),
            **{
                f"r at {mark}": f"{curve[marks.index(mark)]:.2f} ± {errors[marks.index(mark)]:.2f}"
                for mark in EARLY_MARKS
            },
            f"rounds to r ≥ {LEVEL:g}": round(needed) if np.isfinite(needed) else f"> {marks[-1]}",
            "of the cold start": "" if place == 0 else _ratio(needed, cold),
            "interval": "" if place == 0 else f"{low:.2f} to {high:.2f}",
        }


def _history_name(correlation: float | None) -> str:
    return "cold start" if correlation is None else f"correlation {correlation:g}"


def _ratio(needed: float, cold: float) -> str:
    return f"{needed / cold:.2f}" if np.isfinite(needed) and np.isfinite(cold) else "–"


@dataclass(frozen=True, slots=True)
class CertificateTask:
    """One study whose certificates are compared with the truth."""

    world: int
    side: Side
    correlation: float | None
    seed: int


def run_study(task: CertificateTask) -> list[tuple[int, int]] | None:
    """Return, at each look, the binding guardrails and those that truly hold; None if no blend is feasible."""
    world = CERTIFICATE_WORLDS[task.world]
    instance = world.draw(task.side, np.random.default_rng([task.seed, 1]))
    exact = pasto.solve(instance.objective.by_metric(instance.means), instance.objective, baseline=instance.baseline)
    if not exact.feasible:
        return None
    history = None
    if task.correlation is not None:
        rng = np.random.default_rng([task.seed, 3])
        means, errors = past_results(instance.means, task.correlation, rng, stated_error=0.3)
        listed = np.sort(rng.permutation(world.candidates)[: round(LISTED * world.candidates)])
        settings = [instance.settings[k] for k in listed.tolist()]
        history = history_rows(instance.objective.metrics, settings, means[:, listed], errors)
    study, rng = instance.study(task.seed, history=history), np.random.default_rng([task.seed, 2])
    looks = []
    for number in range(LOOKS[-1]):
        instance.run_round(study, number, rng)
        if number + 1 in LOOKS:
            blend = study.blend(deploy_rounds=None)
            looks.append(count_guardrails(blend.certificate, instance.slack(np.array(blend.probabilities))))
    return looks


def measure_certificates(
    worlds: Sequence[int], studies: int, seed: int, processes: int, progress: Progress | None
) -> BenchmarkReport:
    """Return how often binding guardrails truly hold, without a history, with a good one and with bad ones."""
    runs: dict[tuple[int, float | None], list[list[tuple[int, int]] | None]] = {}
    for world in worlds:
        for correlation in CERTIFIED_HISTORIES:
            tasks = [CertificateTask(world, side, correlation, seed + n) for side in SIDES for n in range(studies)]
            looks = runs[world, correlation] = []
            for done, look in enumerate(_map(run_study, tasks, processes), start=1):
                looks.append(look)
                if progress is not None:
                    progress(f"{CERTIFICATE_WORLDS[world].name}, {_history_name(correlation)}", done, len(tasks))
    return summarize_certificates(runs, studies)


def summarize_certificates(
    runs: Mapping[tuple[int, float | None], Sequence[list[tuple[int, int]] | None]], studies: int
) -> BenchmarkReport:
    """Return the table from the looks of each world and history: those of all seeds of one side, then of the other."""
    rows = [
        _certificate_row(CERTIFICATE_WORLDS[world].name, correlation, [looks], studies)
        for (world, correlation), looks in runs.items()
    ]
    for correlation in dict.fromkeys(correlation for _, correlation in runs):
        together = [looks for (_, other), looks in runs.items() if other == correlation]
        if len(together) > 1:
            rows.append(_certificate_row("all", correlation, together, studies))
    note = (
        f"Stated: {CONFIDENCE:.0%}. {studies} studies of each side and history, 20 candidates, of which {LISTED:.0%} "
        "have a row with an error of 0.3 deviations between candidates. All worlds have the same seeds; errors are "
        "over seeds."
    )
    return BenchmarkReport("Certified guardrails that hold, with a history", tuple(rows), note)


def _certificate_row(
    name: str, correlation: float | None, runs: Sequence[Sequence[list[tuple[int, int]] | None]], studies: int
) -> dict[str, Any]:
    row: dict[str, Any] = {"world": name, "history": _history_name(correlation)}
    for place, look in enumerate(LOOKS):
        counts = np.zeros((studies, 2))
        for looks in runs:
            for number, study in enumerate(looks):
                counts[number % studies] += (0, 0) if study is None else study[place]
        row[f"binding after {look} rounds"] = int(counts[:, 0].sum())
        row[f"hold after {look}"] = format_share_held(counts)
    return row


def _map(function: Callable[[Any], Any], tasks: Sequence[Any], processes: int) -> Iterable[Any]:
    """Return the results in order, from a few processes if there is more than one."""
    if processes <= 1:
        yield from map(function, tasks)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(function, tasks)


def measure(
    *,
    instances: int | None = None,
    studies: int = STUDIES,
    families: Sequence[int] = range(len(FAMILIES)),
    worlds: Sequence[int] = range(len(CERTIFICATE_WORLDS)),
    seed: int = FIRST_SEED,
    progress: Progress | None = None,
) -> BenchmarkReport:
    """Return both tables."""
    processes = os.cpu_count() or 1
    rounds = measure_rounds(families, instances, seed, processes, progress)
    certificates = measure_certificates(worlds, studies, seed, processes, progress)
    return BenchmarkReport(rounds.title, rounds.rows, rounds.note, more=(certificates,))


def _run(progress: Progress | None, quick: bool) -> BenchmarkReport:
    if not quick:
        return measure(progress=progress)
    return measure(instances=QUICK_INSTANCES, studies=QUICK_STUDIES, families=(0,), worlds=(0, 2), progress=progress)


BENCHMARK = Benchmark(
    name="history",
    summary="rounds that a study saves by starting from earlier results, good and bad ones",
    run=_run,
)
