"""Figure 3: Algorithm 1 and S-SCGD on the two-arm example."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pasto.optimize.learners import Algorithm1, Learner, Scgd
from pasto.optimize.schedule import Schedule
from pasto.paper.experiment import Claim, Experiment, Outcome, Size, Table
from pasto.report import figures
from pasto.sim import Trace, example_a, monte_carlo, spaced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEARNERS: dict[str, Learner[Any]] = {
    "Algorithm 1": Algorithm1(),
    "S-SCGD, default steps": Scgd(),
    "S-SCGD, tuned": Scgd(tracking=Schedule(1.0, offset=1, power=1.0), step=0.005),
}
REFERENCE = {1_000: 0.909, 3_000: 0.967, 10_000: 0.997}
"""Mean f(μ p̄_T) of Algorithm 1 over 20,000 runs of an independent implementation, to three places."""
REFERENCE_RUNS = 20_000


def run(size: Size) -> Outcome:
    """Run the three learners on example A and compare their means and quartiles round by round."""
    world = example_a()
    marks = spaced(size.rounds, *REFERENCE)
    traces = {
        name: monte_carlo(
            learner,
            world,
            runs=size.runs,
            rounds=size.rounds,
            seed=size.seed,
            checkpoints=marks,
            progress=size.progress,
            label=name,
        )
        for name, learner in LEARNERS.items()
    }
    told = tuple(mark for mark in (30, 100, 300, *REFERENCE) if mark <= size.rounds) or (size.rounds,)
    ours = traces["Algorithm 1"]
    return Outcome(
        name="toy-a",
        title="Figure 3: Algorithm 1 and S-SCGD on the two-arm example",
        settings={"runs": size.runs, "rounds": size.rounds, "seed": size.seed, "noise variance": 5.0, "parallel": 1},
        claims=(
            _converges(ours),
            *(_agrees(ours, mark) for mark in REFERENCE if mark <= size.rounds),
            *(_leads(traces, mark) for mark in told),
        ),
        tables=(_table(traces, told),),
        data={
            "rounds": ours.checkpoints,
            "optimum": ours.optimum[0],
            "single": ours.single[0],
            "curves": {name: _curve(trace) for name, trace in traces.items()},
        },
        figures={"toy-a": partial(_figure, traces)},
    )


def _curve(trace: Trace) -> dict[str, Any]:
    low, high = np.quantile(trace.answer, (0.25, 0.75), axis=0)
    return {"mean": trace.mean, "error": trace.error, "low": low, "high": high, "served": trace.served.mean(axis=0)}


def _converges(trace: Trace) -> Claim:
    value, optimum, single = float(trace.mean[-1]), float(trace.optimum[0]), float(trace.single[0])
    return Claim(
        what="Algorithm 1 ends above the best single candidate and near the best blend",
        paper=f"converges to the optimum ({optimum:.4f}), above the best single ({single:g})",
        measured=f"{value:.3f} after {trace.rounds:,} rounds, {(value - single) / (optimum - single):.1%} of the gap",
        holds=value > single if trace.rounds >= min(REFERENCE) else None,
    )


def _agrees(trace: Trace, mark: int) -> Claim:
    values = trace.at(mark)
    mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan
    # The reference has an error of its own, from its runs and from being told to three places.
    spread = float(np.hypot(error * np.sqrt(1.0 + trace.runs / REFERENCE_RUNS), 0.0005 / np.sqrt(3.0)))
    apart = abs(mean - REFERENCE[mark]) / spread
    return Claim(
        what=f"Mean f of Algorithm 1's answer after {mark:,} rounds",
        paper=f"reference {REFERENCE[mark]:.3f}",
        measured=f"{mean:.4f} ± {error:.4f}",
        holds=bool(apart <= 3.0) if np.isfinite(apart) else None,
        note=f"{apart:.1f} standard errors apart; the paper's figure has no numbers, the reference is an independent "
        f"implementation's mean over {REFERENCE_RUNS:,} runs",
    )


def _leads(traces: dict[str, Trace], mark: int) -> Claim:
    means = {name: float(trace.at(mark).mean()) for name, trace in traces.items()}
    leader = max(means, key=means.__getitem__)
    return Claim(
        what=f"Who leads after {mark:,} rounds",
        paper="Algorithm 1 converges faster than S-SCGD",
        measured=f"{leader}: " + ", ".join(f"{name} {mean:.3f}" for name, mean in means.items()),
        holds=leader == "Algorithm 1",
    )


def _table(traces: dict[str, Trace], told: tuple[int, ...]) -> Table:
    rows = []
    for name, trace in traces.items():
        cells = [
            f"{trace.at(mark).mean():.3f} ± {trace.at(mark).std(ddof=1) / np.sqrt(trace.runs):.3f}" for mark in told
        ]
        rows.append((name, *cells))
    header = ("learner", *(f"{mark:,} rounds" for mark in told))
    return Table("Mean f(μ p̄) ± standard error", header, tuple(rows))


def _figure(traces: dict[str, Trace]) -> Figure:
    sheet, (axes,) = figures.sheet()
    for (name, trace), colour in zip(traces.items(), figures.COLOURS, strict=False):
        low, high = np.quantile(trace.answer, (0.25, 0.75), axis=0)
        figures.curve(axes, trace.checkpoints, trace.mean, name=name, colour=colour, low=low, high=high)
    return sheet


EXPERIMENT = Experiment(
    name="toy-a",
    summary="Figure 3: Algorithm 1 against S-SCGD on the two-arm example",
    runs=1_000,
    rounds=10_000,
    quick_runs=400,
    quick_rounds=3_000,
    run=run,
)
