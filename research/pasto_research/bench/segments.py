"""Segments benchmark: the worth of a blend for each segment, the race to learn it, certificates, and speed.

A world has 8 segments of random shares, 30 candidates and two hard guardrails. A candidate's mean of each metric is an
effect common to all segments plus `heterogeneity` times an effect of the segment alone, all standard normal.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from pasto.arrays import FloatArray
from pasto.objective import EACH_SEGMENT, Objective, maximize
from pasto.optimize import solve
from pasto.optimize.exact.segmented import SegmentedProgram, solve_segmented_program, solve_segments_batch
from pasto.sim import Progress
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport
from pasto_research.bench.segment_certificates import calibrate
from pasto_research.bench.segment_race import CHECKPOINTS, measure_race

HETEROGENEITY = (0.0, 0.3, 0.6, 1.0)
WORLDS = 200
QUICK_WORLDS = 20
SEGMENTS = 8
CANDIDATES = 30
RACE_WORLDS, SEPARATE_WORLDS, QUICK_RACE_WORLDS = 200, 40, 4
QUICK_RACE_ROUNDS = 5
STUDIES, MUTANT_STUDIES, QUICK_STUDIES = 400, 100, 8
FIRST_SEED = 1_900
SIZES = ((32, 20, 100), (32, 40, 100), (32, 20, 200), (1, 50, 1_000))
"""Problems, segments and candidates that are timed."""
QUICK_SIZES = ((32, 20, 100),)
REPEATS = 3
RAILS = 4
"""Guardrails on all traffic of the timed problems."""


def measure(
    *,
    worlds: int = WORLDS,
    sizes: Sequence[tuple[int, int, int]] = SIZES,
    repeats: int = REPEATS,
    learned: Sequence[BenchmarkReport] = (),
    progress: Progress | None = None,
) -> BenchmarkReport:
    """Solve random worlds for each heterogeneity, and time problems of some sizes; `learned` are further tables.

    >>> report = measure(worlds=2, sizes=[(2, 3, 5)], repeats=1)
    >>> [row["heterogeneity"] for row in report.rows], round(report.rows[0]["headroom_percent"], 6)
    ([0.0, 0.3, 0.6, 1.0], 0.0)
    """
    rows = []
    total = len(HETEROGENEITY) * worlds
    for place, heterogeneity in enumerate(HETEROGENEITY):
        gains = []
        for world in range(worlds):
            gains.append(measure_world(np.random.default_rng(FIRST_SEED + world), heterogeneity))
            if progress is not None:
                progress("segments", place * worlds + world + 1, total)
        rows.append({"heterogeneity": heterogeneity, "worlds": worlds, **_summarize(np.array(gains))})
    return BenchmarkReport(
        title=f"Headroom of a blend for each of {SEGMENTS} segments, in percent of the best common blend's gain",
        rows=tuple(rows),
        note="Means known, so exact: the most that learning can gain. each_by_itself holds the guardrails in every "
        "segment instead of on all traffic. mixed_segments are those with more than one candidate, of 8.",
        more=(*learned, _time_solvers(sizes, repeats)),
    )


def make_world(
    rng: np.random.Generator, heterogeneity: float, objective: Objective
) -> tuple[dict[str, float], dict[str, dict[str, FloatArray]]]:
    """Return shares and means by segment.

    >>> shares, means = make_world(np.random.default_rng(0), 0.0, maximize("x"))
    >>> len(shares), bool((means["s0"]["x"] == means["s7"]["x"]).all())
    (8, True)
    """
    metrics = len(objective.metrics)
    common = rng.standard_normal((metrics, CANDIDATES))
    own = heterogeneity * rng.standard_normal((SEGMENTS, metrics, CANDIDATES))
    names = [f"s{segment}" for segment in range(SEGMENTS)]
    shares = dict(zip(names, rng.dirichlet(np.full(SEGMENTS, 5.0)).tolist(), strict=True))
    return shares, {name: objective.by_metric(common + part) for name, part in zip(names, own, strict=True)}


def measure_world(rng: np.random.Generator, heterogeneity: float) -> tuple[float, float, float]:
    """Return the headroom, that of segments each by itself (in percent), and the segments that mix."""
    objective = maximize("x").keep("y", at_least=0).keep("z", at_least=0)
    shares, means = make_world(rng, heterogeneity, objective)
    blend = solve(means, objective, segments=shares)
    apart = objective_within_each(objective)
    alone = solve(means, apart, segments=shares)
    if blend.common_value is None:
        return np.nan, np.nan, np.nan
    mixed = sum(len(segment.support) > 1 for segment in blend.segments.values())
    by_itself = 100.0 * (alone.value / blend.common_value - 1.0) if alone.feasible else np.nan
    return 100.0 * (blend.value / blend.common_value - 1.0), by_itself, float(mixed)


def objective_within_each(objective: Objective) -> Objective:
    """Return an objective whose guardrails hold in every segment by itself.

    >>> print(objective_within_each(maximize("x").keep("y", at_least=0)))
    maximize x, keep y >= 0 within each
    """
    apart = Objective(objective.target, objective.sign)
    for rail in objective.guardrails:
        apart = apart.keep(rail.metric, at_least=rail.at, penalty=rail.penalty, within=EACH_SEGMENT)
    return apart


def _summarize(gains: FloatArray) -> dict[str, float]:
    headroom, by_itself, mixed = gains.T
    counted = headroom[np.isfinite(headroom)]
    return {
        "headroom_percent": float(counted.mean()),
        "standard_error": float(counted.std(ddof=1) / np.sqrt(len(counted))),
        "median_percent": float(np.median(counted)),
        "least_percent": float(counted.min()),
        "each_by_itself_percent": float(np.nanmean(by_itself)),
        "mixed_segments": float(np.nanmean(mixed)),
    }


def _time_solvers(sizes: Sequence[tuple[int, int, int]], repeats: int) -> BenchmarkReport:
    rows = []
    for problems, segments, candidates in sizes:
        for own in (False, True):
            times = []
            for turn in range(repeats + 1):
                rng = np.random.default_rng([problems, segments, candidates, turn])
                program = make_programs(rng, problems, segments, candidates, own=own)
                times.append((*_time(program), _time_highs(program)))
            ours, alone, highs = (median(column) for column in list(zip(*times[1:], strict=True)))
            rows.append(
                {
                    "guardrails": "all and each" if own else "all",
                    "problems": problems,
                    "segments": segments,
                    "candidates": candidates,
                    "batch_ms": ours,
                    "one_by_one_ms": alone,
                    "highs_ms": highs,
                }
            )
    return BenchmarkReport(
        title=f"Exact blends of segments: milliseconds for all problems, {RAILS} hard guardrails on all traffic",
        rows=tuple(rows),
        note="With `each`, every segment has one more of its own. HiGHS takes sparse rows, one problem at a time.",
    )


def make_programs(
    rng: np.random.Generator, problems: int, segments: int, candidates: int, *, own: bool
) -> SegmentedProgram:
    """Return posterior draws of one world: its means and errors of 0.3, with guardrails that bind.

    >>> make_programs(np.random.default_rng(0), 2, 3, 4, own=True).own.shape
    (2, 3, 4)
    """
    objective = maximize("x")
    for rail in range(RAILS):
        objective = objective.keep(f"y{rail}", at_least=1.0)
    if own:
        objective = objective.keep("y0", at_least=0.0, within=EACH_SEGMENT)
    form = objective.segmented_form({f"s{segment}": 1.0 / segments for segment in range(segments)})
    truth = rng.standard_normal((1, 1 + RAILS, candidates)) + 0.6 * rng.standard_normal(
        (segments, 1 + RAILS, candidates)
    )
    return SegmentedProgram.of(form, truth + 0.3 * rng.standard_normal((problems, *truth.shape)))


def _time(program: SegmentedProgram) -> tuple[float, float]:
    """Return the milliseconds of a batch, and of its problems one by one."""
    began = perf_counter()
    solve_segments_batch(program)
    middle = perf_counter()
    for place in range(len(program.goal)):
        solve_segmented_program(program.select(place))
    return 1e3 * (middle - began), 1e3 * (perf_counter() - middle)


def _time_highs(program: SegmentedProgram) -> float:
    """Return the milliseconds of HiGHS for all problems, without those of building the matrices."""
    problems, segments, candidates = program.goal.shape
    highs: Any = linprog  # its stubs do not know sparse matrices
    spent = 0.0
    for place in range(problems):
        rows = program.select(place).rows()
        matrix = csr_matrix(-rows.columns(0, np.arange(segments * candidates)))
        sums = csr_matrix(np.repeat(np.eye(segments), candidates, axis=1))
        began = perf_counter()
        highs(
            -program.goal[place].ravel(),
            A_ub=matrix,
            b_ub=np.zeros(matrix.shape[0]),
            A_eq=sums,
            b_eq=np.ones(segments),
            bounds=(0.0, None),
        )
        spent += perf_counter() - began
    return 1e3 * spent


def measure_learning(*, quick: bool, progress: Progress | None = None) -> list[BenchmarkReport]:
    """Race learners in worlds with segments, and compare certificates with the truth."""
    processes = os.cpu_count() or 1
    race = measure_race(
        HETEROGENEITY,
        worlds=QUICK_RACE_WORLDS if quick else RACE_WORLDS,
        separate_worlds=QUICK_RACE_WORLDS if quick else SEPARATE_WORLDS,
        rounds=QUICK_RACE_ROUNDS if quick else CHECKPOINTS[-1],
        processes=processes,
        progress=progress,
    )
    certificates = calibrate(
        studies=QUICK_STUDIES if quick else STUDIES,
        mutant_studies=QUICK_STUDIES if quick else MUTANT_STUDIES,
        processes=processes,
        progress=progress,
    )
    return [replace(race, more=()), *race.more, certificates]


def _run(progress: Progress | None, quick: bool) -> BenchmarkReport:
    learned = measure_learning(quick=quick, progress=progress)
    if quick:
        return measure(worlds=QUICK_WORLDS, sizes=QUICK_SIZES, repeats=1, learned=learned, progress=progress)
    return measure(learned=learned, progress=progress)


BENCHMARK = Benchmark(
    name="segments",
    summary="worth of a blend for each segment: exact and learned, certificates, and speed",
    run=_run,
)
