"""Side-by-side measurements, one file each.

A new benchmark is a new file and one line in `BENCHMARKS`.
"""

from __future__ import annotations

from dataclasses import asdict

from pasto.bench import monte_carlo, solve
from pasto.bench.benchmark import Benchmark, Report
from pasto.errors import BadOption
from pasto.sim import Progress


def _monte_carlo(progress: Progress | None) -> Report:
    timing = asdict(monte_carlo.measure(progress=progress))
    sizes = {name: timing.pop(name) for name in ("candidates", "parallel", "runs", "rounds")}
    return Report("Algorithm 1 on synthetic B: seconds, beside a loop written by hand", ({**sizes, **timing},))


BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        solve.BENCHMARK,
        Benchmark("monte-carlo", "many runs of Algorithm 1 beside a loop written by hand", _monte_carlo),
    )
}


def run(name: str, *, progress: Progress | None = None) -> Report:
    """Run a benchmark by its name.

    >>> run("nothing")
    Traceback (most recent call last):
        ...
    pasto.errors.BadOption: no benchmark is called 'nothing'; there are solve, monte-carlo
    """
    if name not in BENCHMARKS:
        raise BadOption(f"no benchmark is called {name!r}; there are {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name].run(progress)


__all__ = ["BENCHMARKS", "Benchmark", "Report", "run"]
