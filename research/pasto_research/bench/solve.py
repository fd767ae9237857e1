"""Solve benchmark: exact best blends, compared with HiGHS in the same run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter

import numpy as np
from scipy.optimize import linprog

from pasto.arrays import FloatArray
from pasto.objective import Objective, maximize
from pasto.optimize import Program, solve, solve_batch
from pasto.sim import Progress
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport

LIMIT = 0.5
PENALTIES: dict[str, tuple[float | None, float | None]] = {
    "soft": (5.0, 5.0),
    "hard": (None, None),
    "mixed": (5.0, None),
}
"""Of the two guardrails; None is hard."""
SINGLES = {100: 60, 100_000: 2}
"""How many problems are timed one by one, by their candidates."""
BATCHES = {64: 10, 256: 4}
"""How many batches are timed, by their size; 100 candidates each."""


def measure(
    *,
    singles: dict[int, int] = SINGLES,
    batches: dict[int, int] = BATCHES,
    progress: Progress | None = None,
) -> BenchmarkReport:
    """Time random problems with one goal and two guardrails, each also by HiGHS, turn and turn about.

    >>> report = measure(singles={5: 2}, batches={3: 1})
    >>> [(row["guardrails"], row["problems"]) for row in report.rows][:3]
    [('soft', 1), ('soft', 3), ('hard', 1)]
    """
    cases = [(kind, size, 1, count) for kind in PENALTIES for size, count in singles.items()]
    width = min(singles)
    cases += [(kind, width, size, count) for kind in PENALTIES for size, count in batches.items()]
    cases.sort(key=lambda case: list(PENALTIES).index(case[0]))
    rows = []
    for place, (kind, candidates, problems, count) in enumerate(cases):
        ours, highs, ratio = _compare(kind, candidates, problems, count)
        rows.append(
            {
                "guardrails": kind,
                "candidates": candidates,
                "problems": problems,
                "ours_ms": ours,
                "highs_ms": highs,
                "ratio": ratio,
            }
        )
        if progress is not None:
            progress("solve", place + 1, len(cases))
    return BenchmarkReport(
        title="Exact best blends: milliseconds for all problems at once, and of HiGHS one by one",
        rows=tuple(rows),
        note="HiGHS (scipy.optimize.linprog) takes no penalties, so soft guardrails are hard for it; ratio is ours "
        "over HiGHS, the median of back-to-back pairs.",
    )


def _compare(kind: str, candidates: int, problems: int, count: int) -> tuple[float, float, float]:
    """Return median milliseconds of ours and of HiGHS, and the median of their ratios."""
    rng = np.random.default_rng([candidates, problems])
    stated = objective(kind)
    pairs = []
    for turn in range(count + 1):
        means = rng.uniform(-1.0, 1.0, (problems, 3, candidates))
        ours = _timed(lambda means=means: _ours(means, stated))  # type: ignore[misc]
        highs = _timed(lambda means=means: _highs(means))  # type: ignore[misc]
        if turn:  # the first one warms up
            pairs.append((ours, highs))
    return _medians(pairs)


def objective(kind: str) -> Objective:
    """Return one goal and two guardrails, soft, hard or one of each.

    >>> print(objective("mixed"))
    maximize x, keep y >= 0.5 (penalty 5), keep z >= 0.5
    """
    first, second = PENALTIES[kind]
    return maximize("x").keep("y", at_least=LIMIT, penalty=first).keep("z", at_least=LIMIT, penalty=second)


def highs(goal: FloatArray, rails: FloatArray) -> float:
    """Solve the hard problem by HiGHS: minus the best goal, over goal (candidates,) and rails (guardrails, candidates).

    >>> import numpy as np
    >>> highs(np.array([2.0, 0.0]), np.array([[-1.5, 2.5]]))
    -1.0
    """
    found = linprog(
        -goal,
        A_ub=-rails,
        b_ub=np.full(len(rails), -LIMIT),
        A_eq=np.ones((1, len(goal))),
        b_eq=np.ones(1),
        bounds=(0.0, None),
        method="highs",
    )
    return float("nan") if found.fun is None else float(found.fun)


def _ours(means: FloatArray, stated: Objective) -> None:
    if len(means) == 1:
        solve(stated.by_metric(means[0]), stated)
    else:
        solve_batch(Program.of(stated.form(), means))


def _highs(means: FloatArray) -> None:
    for candidate_means in means:
        highs(candidate_means[0], candidate_means[1:])


def _timed(work: Callable[[], None]) -> float:
    began = perf_counter()
    work()
    return 1e3 * (perf_counter() - began)


def _medians(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    return (
        median(ours for ours, _ in pairs),
        median(highs for _, highs in pairs),
        median(ours / highs for ours, highs in pairs),
    )


BENCHMARK = Benchmark(
    name="solve",
    summary="speed of exact best blends, compared with HiGHS",
    run=lambda progress, quick: measure(progress=progress),
)
