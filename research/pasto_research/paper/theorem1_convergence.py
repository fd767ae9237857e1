"""Theorem 1: how fast the answer of Algorithm 1 approaches the best blend on the two-arm example."""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from pasto.arrays import FloatArray
from pasto.optimize import solve
from pasto.report import figures
from pasto.sim import LearningTrace, World, example_a
from pasto_research.paper.curves import (
    LARGE_T_ROUNDS,
    TRUE_G,
    Curve,
    describe_power,
    horizons,
    measure_curves,
    schedules,
)
from pasto_research.paper.experiment import Claim, Experiment, Outcome, Size, Table
from pasto_research.paper.theory_bounds import Constants, convergence_bound

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SHAPES = ("o", "s", "^")


def run(size: Size) -> Outcome:
    """Measure f* − E f(μ p̄_T) at several T under three schedules."""
    world = example_a()
    constants = Constants.of(world.objective, world.truth)
    marks = horizons(size.rounds)
    since = next(mark for mark in marks if mark >= size.rounds / 30)  # exponents: over the last decade and a half
    curves = {
        setting.name: measure_curves(setting, world, size, {"gap": _gap})["gap"] for setting in schedules(constants)
    }
    bounds = [convergence_bound(constants, len(world.names), mark) for mark in marks]
    worst, even = _losses(world)
    vacuous = ceil((constants.factor(len(world.names)) / worst) ** 2)
    return Outcome(
        name="convergence",
        title="Theorem 1: the answer's distance from the best blend on the two-arm example",
        settings={"runs": size.runs, "rounds": size.rounds, "seed": size.seed, "noise variance": 5.0},
        claims=(
            _below(curves[TRUE_G], bounds, vacuous, worst),
            *(_order(name, curve, since) for name, curve in curves.items()),
            _learns(constants, curves[TRUE_G], even),
        ),
        tables=(_table(curves, bounds), _constants(constants, len(world.names))),
        data={
            "rounds": marks,
            "bound": bounds,
            "curves": {name: curve.plain() for name, curve in curves.items()},
            "exponents": {name: curve.exponent(since) for name, curve in curves.items()},
            "fitted_since": since,
            "even_split": even,
            "worst_blend": worst,
        },
        figures={"convergence": partial(_figure, curves, bounds, even, worst, constants.factor(len(world.names)))},
    )


def _gap(trace: LearningTrace) -> FloatArray:
    return np.asarray(trace.optimum[:, None] - trace.answer)


def _losses(world: World) -> tuple[float, float]:
    """Return the losses of the worst blend and of the even split against the best one."""
    blend = solve(world.objective.by_metric(world.truth), world.objective)
    values = world.value(np.eye(len(world.names)))  # f is concave, so the worst blend is a single candidate
    even = np.full(len(world.names), 1.0 / len(world.names))
    return float(blend.value - values.min()), float(blend.value - world.value(even))


def _below(curve: Curve, bounds: list[float], vacuous: int, worst: float) -> Claim:
    shares = curve.mean / np.array(bounds)
    return Claim(
        what="The distance stays below the bound, with the theorem's schedules",
        paper="f* − E f(μ p̄_T) ≤ C/√T",
        measured=f"at most {shares.max():.1e} of the bound at any T (C/√T is {bounds[-1]:,.0f} after "
        f"{curve.rounds[-1]:,} rounds, the distance {curve.mean[-1]:.4f})",
        holds=bool((shares <= 1).all()),
        note=f"is weak: no blend can lose more than {worst:.2f}, and the bound falls below that after {vacuous:,} "
        "rounds; its proof does not hold either (docs/theory.md)",
    )


def _order(name: str, curve: Curve, since: int) -> Claim:
    power, few = curve.exponent(since), curve.rounds[-1] < LARGE_T_ROUNDS
    return Claim(
        what=f"The distance shrinks at least like 1/√T ({name})",
        paper="O(1/√T)" if name.startswith("theorem") else "O(1/√T), for the theorem's schedules",
        measured=f"{describe_power(power)} from {since:,} to {curve.rounds[-1]:,} rounds, from "
        f"{curve.at(since)[0]:.4f} to {curve.mean[-1]:.4f}",
        holds=None if few or power is None or not np.isfinite(power[1]) else power[0] <= -0.5 + 2 * power[1],
    )


def _learns(constants: Constants, curve: Curve, even: float) -> Claim:
    ahead = [rounds for rounds, gap in zip(curve.rounds, curve.mean, strict=True) if gap < even]
    when = f"from {min(ahead):,} rounds on" if ahead else f"not within {curve.rounds[-1]:,} rounds"
    return Claim(
        what="The theorem's own G, and whether it learns more than to split evenly",
        paper="no value of G given",
        measured=f"G = {constants.gradient:.1f}; ahead of the even split, which loses {even:.4f}: {when}",
        holds=None,
        note=f"ε_t = G/√t is above 1 for {ceil(constants.gradient**2 - 1e-6) - 1:,} rounds and clipped at 3/4 for "
        f"{ceil((constants.gradient / 0.75) ** 2) - 1:,}, where each arm keeps at least 3/8 of the traffic; here the "
        "best blend (0.5125, 0.4875) lies within that, elsewhere it need not",
    )


def _table(curves: dict[str, Curve], bounds: list[float]) -> Table:
    rows: list[tuple[str | int, ...]] = []
    for place, mark in enumerate(next(iter(curves.values())).rounds):
        cells = (f"{curve.mean[place]:.4f} ± {curve.error[place]:.4f}" for curve in curves.values())
        rows.append((mark, *cells, f"{bounds[place]:,.0f}"))
    return Table("f* − mean f(μ p̄_T) ± standard error", ("rounds", *curves, "bound C/√T"), tuple(rows))


def _constants(constants: Constants, candidates: int) -> Table:
    rows = (
        ("G, of the gradient by p", round(constants.gradient, 4)),
        ("G_f, of the slope of f", round(constants.slope, 4)),
        ("G_U, of the truth", round(constants.size, 4)),
        ("L_f, of the smoothness of f", round(constants.smoothness, 4)),
        ("C", round(constants.factor(candidates), 1)),
    )
    return Table("The theorem's constants on this example, over all blends", ("constant", "value"), rows)


def _figure(curves: dict[str, Curve], bounds: list[float], even: float, worst: float, factor: float) -> Figure:
    sheet, (axes,) = figures.new_figure(height=5.0)
    for (name, curve), colour, shape in zip(curves.items(), figures.COLOURS, SHAPES, strict=False):
        low, high = curve.mean - 2 * curve.error, curve.mean + 2 * curve.error
        figures.draw_curve(axes, curve.rounds, curve.mean, name=name, colour=colour, low=low, high=high)
        axes.plot(curve.rounds, curve.mean, shape, color=colour, markersize=5)
    rounds = np.array(next(iter(curves.values())).rounds, dtype=float)
    axes.plot(rounds, 2.0 / np.sqrt(rounds), ":", color=figures.INK, linewidth=1.4, label="2/√T, for the slope")
    axes.plot(rounds, bounds, "--", color=figures.INK, linewidth=1.4, label=f"bound of Theorem 1, {factor:,.0f}/√T")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(1e-4, 3e4)  # space for the legend below the even split
    figures.draw_level(axes, worst, f"the most that any blend can lose, {worst:.2f}", right=False)
    figures.draw_level(axes, even, f"what the even split loses, {even:.4f}", right=False)
    figures.label_axes(
        axes,
        title="Distance of the answer from the best blend (bands: ± 2 standard errors)",
        x="rounds T",
        y="f* − mean f(μ p̄_T)",
    )
    figures.draw_legend(axes, "lower left")
    return sheet


EXPERIMENT = Experiment(
    name="convergence",
    summary="Theorem 1: distance from the best blend against T, with 1/√T and the bound",
    runs=1_000,
    rounds=30_000,
    quick_runs=200,
    quick_rounds=10_000,
    run=run,
)
