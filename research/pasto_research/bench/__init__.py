"""Benchmarks: PASTO compared with other ways of doing the same work, one file each.

A new benchmark is a new file and one line in `BENCHMARKS`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from pasto.errors import OptionError
from pasto.report.figures import save_figure
from pasto.sim import Progress
from pasto_research.bench import (
    certificates,
    continuous,
    covariates,
    demo_worlds,
    drift,
    history,
    interval_coverage,
    learners,
    long_study,
    many_candidates,
    measure,
    missing_data,
    monte_carlo,
    plan,
    round_cost,
    safe_exploration,
    segments,
    senders,
    serve,
    solve,
    stopping,
)
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport


def _monte_carlo(progress: Progress | None, quick: bool) -> BenchmarkReport:
    timing = asdict(monte_carlo.measure(progress=progress))
    sizes = {name: timing.pop(name) for name in ("candidates", "parallel", "runs", "rounds")}
    return BenchmarkReport(
        "Algorithm 1 on synthetic B: seconds, compared with a hand-written loop", ({**sizes, **timing},)
    )


BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        solve.BENCHMARK,
        Benchmark("monte-carlo", "speed of many runs of Algorithm 1, compared with a hand-written loop", _monte_carlo),
        learners.BENCHMARK,
        many_candidates.BENCHMARK,
        round_cost.BENCHMARK,
        certificates.BENCHMARK,
        stopping.BENCHMARK,
        covariates.BENCHMARK,
        history.BENCHMARK,
        demo_worlds.BENCHMARK,
        safe_exploration.BENCHMARK,
        drift.BENCHMARK,
        plan.BENCHMARK,
        continuous.BENCHMARK,
        serve.BENCHMARK,
        measure.BENCHMARK,
        interval_coverage.BENCHMARK,
        missing_data.BENCHMARK,
        senders.BENCHMARK,
        segments.BENCHMARK,
        long_study.BENCHMARK,
    )
}


def run(name: str, *, quick: bool = False, progress: Progress | None = None) -> BenchmarkReport:
    """Run a benchmark by its name, at full size or quickly.

    >>> run("nothing")
    Traceback (most recent call last):
        ...
    pasto_sdk.errors.OptionError: no benchmark is called 'nothing'; there are solve, monte-carlo, learners, ...
    """
    if name not in BENCHMARKS:
        raise OptionError(f"no benchmark is called {name!r}; there are {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name].run(progress, quick)


def write(name: str, report: BenchmarkReport, directory: str | Path) -> list[Path]:
    """Write a report as JSON, and its figures as PNG and SVG."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{name}.json"]
    written[0].write_text(json.dumps({"name": name, **report.plain()}, indent=2, ensure_ascii=False) + "\n")
    for table in report.tables:
        for figure, draw in table.figures.items():
            written += save_figure(draw(), folder / figure)
    return written


__all__ = ["BENCHMARKS", "Benchmark", "BenchmarkReport", "run", "write"]
