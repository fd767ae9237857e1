"""Figure 3: Algorithm 1 and S-SCGD on the two-arm example."""

from __future__ import annotations

from functools import partial
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.optimize.learners import Algorithm1, Learner, Scgd
from pasto.optimize.learners.mirror_ascent import Schedule
from pasto.report import figures
from pasto.sim import LearningTrace, checkpoint_rounds, example_a, monte_carlo
from pasto_research.paper.experiment import Claim, Experiment, Outcome, Size, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS, PLAIN, TUNED = "Algorithm 1", "S-SCGD, default steps", "S-SCGD, tuned"
LEARNERS: dict[str, Learner[Any]] = {
    OURS: Algorithm1(),
    PLAIN: Scgd(),
    TUNED: Scgd(tracking=Schedule(1.0, offset=1, power=1.0), step=0.005),
}
REFERENCE = {1_000: 0.909, 3_000: 0.967, 10_000: 0.997}
"""Mean f(μ p̄_T) of Algorithm 1 over 20,000 runs of an earlier, separate implementation, to three places."""
REFERENCE_RUNS = 20_000
ROUNDING = 0.0005 / sqrt(3.0)
"""Standard deviation of the rounding error of a number with three places."""


def run(size: Size) -> Outcome:
    """Run the three learners on example A and compare their means and quartiles round by round."""
    world = example_a()
    checkpoints = checkpoint_rounds(size.rounds, *REFERENCE)
    traces = {
        name: monte_carlo(
            learner,
            world,
            runs=size.runs,
            rounds=size.rounds,
            seed=size.seed,
            checkpoints=checkpoints,
            progress=size.progress,
            label=f"toy-a: {name}",
        )
        for name, learner in LEARNERS.items()
    }
    table_rounds = tuple(mark for mark in (30, 100, 300, *REFERENCE) if mark <= size.rounds) or (size.rounds,)
    ours = traces[OURS]
    return Outcome(
        name="toy-a",
        title="Figure 3: Algorithm 1 and S-SCGD on the two-arm example",
        settings={
            "runs": size.runs,
            "rounds": size.rounds,
            "seed": size.seed,
            "draws a round": 1,
            "noise variance": 5.0,
            "floor ε_t": "0.1/√(t+10)",
            "step γ": "0.05 (tuned: 0.005)",
            "tracking b_t of S-SCGD": "1/√(t+1) (tuned: 1/(t+1))",
        },
        claims=(
            _converges(ours),
            *(_agrees(ours, mark) for mark in REFERENCE if mark <= size.rounds),
            _faster(traces, PLAIN, table_rounds),
            _faster(traces, TUNED, table_rounds),
        ),
        tables=(_table(traces, table_rounds),),
        data={
            "rounds": ours.checkpoints,
            "optimum": ours.optimum[0],
            "single": ours.single[0],
            "curves": {name: _curve(trace) for name, trace in traces.items()},
        },
        figures={"toy-a": partial(_figure, traces)},
    )


def _curve(trace: LearningTrace) -> dict[str, Any]:
    low, high = np.quantile(trace.answer, (0.25, 0.75), axis=0)
    return {"mean": trace.mean, "error": trace.error, "low": low, "high": high, "served": trace.served.mean(axis=0)}


def _converges(trace: LearningTrace) -> Claim:
    value, optimum, single = float(trace.mean[-1]), float(trace.optimum[0]), float(trace.single[0])
    return Claim(
        what="Algorithm 1 approaches the best blend, above the best single candidate",
        paper=f"converges to the optimum ({optimum:.4f}); the best single has {single:g}",
        measured=f"{value:.3f} after {trace.rounds:,} rounds, {(value - single) / (optimum - single):.1%} of the gap",
        holds=value > 0.95 * optimum if trace.rounds >= max(REFERENCE) else None,
        note="equal shares, where every learner starts, already reach 1.000 in this example: the curves first fall, as "
        "noise moves the weights, and then recover",
    )


def _agrees(trace: LearningTrace, mark: int) -> Claim:
    values = trace.at(mark)
    mean, error = float(values.mean()), _error(values)
    spread = float(np.hypot(error * sqrt(1.0 + trace.runs / REFERENCE_RUNS), ROUNDING))
    apart = abs(mean - REFERENCE[mark]) / spread
    return Claim(
        what=f"Mean f of Algorithm 1's answer after {mark:,} rounds",
        paper=f"no number; reference {REFERENCE[mark]:.3f}",
        measured=f"{mean:.4f} ± {error:.4f}",
        holds=bool(apart <= 3.0) if np.isfinite(apart) else None,
        note=f"{apart:.1f} standard errors apart; the reference is the mean of {REFERENCE_RUNS:,} runs of a separate "
        "implementation",
    )


def _faster(traces: dict[str, LearningTrace], rival: str, table_rounds: tuple[int, ...]) -> Claim:
    """Compare Algorithm 1 with a rival at each checkpoint, within two standard errors of the difference."""
    found: dict[str, list[int]] = {"ahead": [], "level": [], "behind": []}
    for mark in table_rounds:
        difference = traces[OURS].at(mark) - traces[rival].at(mark)
        lead, error = float(difference.mean()), _error(difference)
        found["ahead" if lead > 2 * error else "behind" if lead < -2 * error else "level"].append(mark)
    places = [
        f"{word} at {', '.join(f'{mark:,}' for mark in checkpoints)}"
        for word, checkpoints in found.items()
        if checkpoints
    ]
    return Claim(
        what=f"Algorithm 1 converges faster than {rival}",
        paper="yes",
        measured=f"Algorithm 1 is {'; '.join(places)} rounds",
        holds=not found["behind"] if traces[OURS].runs > 1 else None,
        note="level: the means differ by less than two standard errors",
    )


def _error(values: FloatArray) -> float:
    return float(values.std(ddof=1) / sqrt(len(values))) if len(values) > 1 else float("nan")


def _table(traces: dict[str, LearningTrace], table_rounds: tuple[int, ...]) -> Table:
    rows = tuple(
        (name, *(f"{trace.at(mark).mean():.3f} ± {_error(trace.at(mark)):.3f}" for mark in table_rounds))
        for name, trace in traces.items()
    )
    return Table("Mean f(μ p̄) ± standard error", ("learner", *(f"{mark:,} rounds" for mark in table_rounds)), rows)


def _figure(traces: dict[str, LearningTrace]) -> Figure:
    sheet, (axes,) = figures.new_figure()
    for (name, trace), colour in zip(traces.items(), figures.COLOURS, strict=False):
        low, high = np.quantile(trace.answer, (0.25, 0.75), axis=0)
        figures.draw_curve(axes, trace.checkpoints, trace.mean, name=name, colour=colour, low=low, high=high)
    ours = traces[OURS]
    figures.draw_level(axes, float(ours.optimum[0]), f"best blend, {ours.optimum[0]:.4f}", right=False)
    figures.draw_level(
        axes, float(ours.single[0]), f"best single candidate, {ours.single[0]:g}", above=False, right=False
    )
    figures.rounds_axis(axes, 1, max(2, ours.rounds))
    axes.set_ylim(-0.32, 1.15)
    figures.label_axes(
        axes,
        title=f"Example A: mean of {ours.runs:,} runs, quartiles shaded",
        x="rounds (one draw each)",
        y="objective f of the averaged policy",
    )
    figures.draw_legend(axes, "lower right")
    return sheet


EXPERIMENT = Experiment(
    name="toy-a",
    summary="Figure 3: Algorithm 1 against S-SCGD on the two-arm example",
    runs=1_000,
    rounds=10_000,
    quick_runs=300,
    quick_rounds=10_000,
    run=run,
)
