from __future__ import annotations

import numpy as np

from pasto.optimize import solve as best
from pasto_research.bench import BENCHMARKS, solve


def test_every_kind_and_size_is_measured_both_ways() -> None:
    calls: list[tuple[str, int, int]] = []
    report = solve.measure(
        singles={6: 2}, batches={3: 1}, progress=lambda label, done, total: calls.append((label, done, total))
    )
    cases = [(row["guardrails"], row["candidates"], row["problems"]) for row in report.rows]
    assert cases == [(kind, 6, problems) for kind in ("soft", "hard", "mixed") for problems in (1, 3)]
    for row in report.rows:
        assert row["ours_ms"] > 0
        assert row["highs_ms"] > 0
        assert row["ratio"] > 0
    assert calls == [("solve", place, 6) for place in range(1, 7)]


def test_both_ways_solve_the_same_problem() -> None:
    means = np.random.default_rng(3).uniform(-1, 1, (3, 30))
    goal, *rails = means
    found = solve.highs(goal, np.array(rails))
    assert abs(-found - best(means, solve.objective("hard")).value) < 1e-9


def test_the_registry_names_each_benchmark_once() -> None:
    assert all(name == benchmark.name for name, benchmark in BENCHMARKS.items())
