"""Round benchmark: cost of one round of the default learner, compared with the exact blends of its posterior draws."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import pasto
from pasto.optimize import Program, solve_batch
from pasto.optimize.learners import Thompson
from pasto.optimize.learners.thompson import MIN_DRAWS
from pasto.sim import Progress, World
from pasto.space import Candidates
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport
from pasto_research.bench.worlds import LINE, uniform

CASES: dict[str, tuple[int, bool, int]] = {
    "100 candidates, soft": (100, False, 40),
    "100 candidates, hard": (100, True, 40),
    "100 candidates on a line, Gaussian process": (100, False, 30),
    "1,000 candidates, soft": (1_000, False, 20),
    "100,000 candidates, soft": (100_000, False, 3),
}
"""Candidates, whether guardrails are hard, and rounds."""


def measure(cases: dict[str, tuple[int, bool, int]] = CASES, *, progress: Progress | None = None) -> BenchmarkReport:
    """Time ask(10) and tell() of every round, and one blend at the end.

    >>> report = measure({"5 candidates": (5, False, 3)})
    >>> list(report.rows[0])[:3]
    ['case', 'round ms', 'draws alone ms']
    """
    rows = []
    for place, (name, (count, hard, rounds)) in enumerate(cases.items()):
        rows.append({"case": name, **_timed(count, hard, rounds, shared="process" in name)})
        if progress is not None:
            progress("rounds", place + 1, len(cases))
    return BenchmarkReport(
        "One ask(10) and tell() of the default learner: milliseconds",
        tuple(rows),
        note="Three metrics, 32 posterior draws, medians. The draws alone are 32 exact blends of the same size in one "
        "batch; blend is the cautious answer with its certificate and outlook.",
    )


def _timed(count: int, hard: bool, rounds: int, *, shared: bool) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    world: World = uniform(0.5, candidates=count, hard=hard)(rng)
    candidates: Candidates = LINE if shared else world.candidates
    learner = Thompson(structure="process" if shared else "independent")
    study = pasto.Study(candidates, world.objective, learner=learner, seed=1)
    errors = np.full((10, 3), 0.5)
    spent = []
    for _ in range(rounds):
        began = perf_counter()
        asked = study.ask(parallel=10)
        paused = perf_counter()
        metrics = world.draw([assignment.candidate for assignment in asked], rng)
        resumed = perf_counter()
        study.tell(asked, metrics, standard_errors=errors)
        spent.append(perf_counter() - resumed + paused - began)
    began = perf_counter()
    study.blend()
    blend = perf_counter() - began
    program = Program.of(world.objective.form(), rng.uniform(-1.0, 1.0, (MIN_DRAWS, 3, count)))
    began = perf_counter()
    solve_batch(program)
    alone = perf_counter() - began
    # The first rounds are cheaper: there is no posterior yet.
    typical = median(spent[len(spent) // 2 :])
    return {
        "round ms": round(1e3 * typical, 1),
        "draws alone ms": round(1e3 * alone, 1),
        "ratio": round(typical / alone, 1),
        "blend ms": round(1e3 * blend, 1),
    }


BENCHMARK = Benchmark(
    name="rounds",
    summary="what one round of the default learner costs, by candidates",
    run=lambda progress, quick: measure(
        {name: case for name, case in CASES.items() if case[0] <= 1_000} if quick else CASES, progress=progress
    ),
)
