"""Theorem 2: both regrets of Algorithm 1, with constant and with drifting means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pasto.arrays import FloatArray
from pasto.report import figures
from pasto.sim import LearningTrace, RunRound, World, drift, example_a
from pasto_research.paper.curves import LARGE_T_ROUNDS, TRUE_G, Curve, horizons, measure_curves, schedules
from pasto_research.paper.experiment import Claim, Experiment, Outcome, Size, Table
from pasto_research.paper.theory_bounds import Constants, empirical_regret_bound, regret_bound

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REGRETS = {"first": "first regret: f(V_t p_t)", "second": "second regret: f(V̂_t p_t)"}
BOUNDS = {"first": regret_bound, "second": empirical_regret_bound}
PERIOD = 1_000
SHAPES = ("o", "s", "^")
Curves = Mapping[str, Mapping[str, Mapping[str, Curve]]]
"""By world, by regret, by schedule."""


def worlds(rounds: int) -> dict[str, World]:
    """Return example A with constant means, with waves, and with waves and a ramp that ends after `rounds`.

    The waves have amplitude 1 and a period of 1,000 rounds, in opposite phase for the two arms; the ramp lifts y of the
    first arm by 2, so that more and more of it can be served.

    >>> worlds(10_000)["waves and a ramp"].means(10_000).round(12) + 0.0
    array([[2., 0.],
           [1., 1.]])
    """
    still = example_a()
    phase = np.pi * np.array([[0.0, 1.0], [0.5, -0.5]])
    waves = partial(drift, still, amplitude=1.0, period=PERIOD, phase=phase)
    return {
        "standing still": still,
        "waves": waves(),
        "waves and a ramp": waves(ramp=np.array([[0.0, 0.0], [2.0, 0.0]]) / rounds),
    }


def run(size: Size) -> Outcome:
    """Measure both regrets at several T, in three worlds and under three schedules."""
    marks = horizons(size.rounds)
    since = next(mark for mark in marks if mark >= size.rounds / 10)
    places = worlds(size.rounds)
    constants_by_setting = {name: _constants(world, marks) for name, world in places.items()}
    ceilings = {
        name: {kind: [bound(constants, 2, mark) for mark in marks] for kind, bound in BOUNDS.items()}
        for name, constants in constants_by_setting.items()
    }
    curves = {name: _regrets(name, world, constants_by_setting[name], size) for name, world in places.items()}
    return Outcome(
        name="regret",
        title="Theorem 2: both regrets on the two-arm example, standing still and moving",
        settings={"runs": size.runs, "rounds": size.rounds, "seed": size.seed, "noise variance": 5.0},
        claims=(
            *(_below(name, kinds, ceilings[name]) for name, kinds in curves.items()),
            *(_order(name, kind, curves[name][kind], since) for name in curves for kind in REGRETS),
        ),
        tables=(
            *(_table(name, kinds, ceilings[name]) for name, kinds in curves.items()),
            _constants_table(constants_by_setting),
        ),
        data={
            "rounds": marks,
            "bounds": ceilings,
            "curves": {
                name: {
                    kind: {setting: curve.plain() for setting, curve in settings.items()}
                    for kind, settings in kinds.items()
                }
                for name, kinds in curves.items()
            },
            "best_fixed": {name: best_fixed(world, marks)[1] for name, world in places.items()},
            "fitted_since": since,
        },
        figures={"regret": partial(_scaled, curves), "regret-bound": partial(_bounded, curves, ceilings)},
    )


def best_fixed(world: World, marks: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Return max_p Σ_{t ≤ T} f(V_t p) at each T, and the first arm's share in that p, for a world of two arms.

    The sum is concave in that share, so its slope is followed down to its zero by sixty halvings: the share is exact to
    rounding, and the sum, flat there, all the more.

    >>> totals, shares = best_fixed(worlds(100)["standing still"], (1, 100))
    >>> totals.round(9), shares.round(9)
    (array([  1.0125, 101.25  ]), array([0.5125, 0.5125]))
    """
    form = world.objective.form()
    means = np.array([world.running_means(round) for round in range(1, marks[-1] + 1)])
    turn = means[:, :, 0] - means[:, :, 1]
    totals, shares = [], []
    for mark in marks:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            slope = (form.gradient(means[:mark, :, 1] + middle * turn[:mark]) * turn[:mark]).sum()
            low, high = (middle, high) if slope > 0 else (low, middle)
        share = 1.0 if low >= 1.0 - 1e-15 else low
        totals.append(form.smooth(means[:mark, :, 1] + share * turn[:mark]).sum())
        shares.append(share)
    return np.array(totals), np.array(shares)


def _constants(world: World, marks: Sequence[int]) -> Constants:
    """Return the theorem's constants over all true means and running means."""
    times = np.unique(np.linspace(1, marks[-1], min(marks[-1], 2_000)).astype(int))
    met = np.array([each for time in times for each in (world.means(int(time)), world.running_means(int(time)))])
    return Constants.of(world.objective, met)


def _regrets(name: str, world: World, constants: Constants, size: Size) -> dict[str, dict[str, Curve]]:
    best, _ = best_fixed(world, horizons(size.rounds))
    found: dict[str, dict[str, Curve]] = {kind: {} for kind in REGRETS}
    for setting in schedules(constants):
        earned = measure_curves(
            setting,
            world,
            size,
            {kind: partial(_total, kind) for kind in REGRETS},
            totals={"first": _ideal, "second": _seen},
            label=f"{name}, ",
        )
        for kind, curve in earned.items():
            found[kind][setting.name] = Curve(curve.rounds, best - curve.values)
    return found


def _total(kind: str, trace: LearningTrace) -> FloatArray:
    return trace.totals[kind]


def _ideal(moment: RunRound) -> FloatArray:
    """Return f(V_t p_t)."""
    return moment.value(moment.running, moment.served)


def _seen(moment: RunRound) -> FloatArray:
    """Return f(V̂_t p_t)."""
    return moment.value(moment.estimate, moment.served)


def _below(name: str, kinds: Mapping[str, Mapping[str, Curve]], ceilings: Mapping[str, Sequence[float]]) -> Claim:
    shares = {kind: float((settings[TRUE_G].mean / ceilings[kind]).max()) for kind, settings in kinds.items()}
    first, second = ceilings.values()
    return Claim(
        what=f"Both regrets stay below their bounds ({name}; theorem's schedules)",
        paper="C√T for the first, (C + 2G_U²)√T for the second",
        measured=", ".join(f"{kind}: at most {share:.1e} of its bound at any T" for kind, share in shares.items()),
        holds=all(share <= 1 for share in shares.values()),
        note=f"the bounds say little: after {kinds['first'][TRUE_G].rounds[-1]:,} rounds they are {first[-1]:,.0f} and "
        f"{second[-1]:,.0f}",
    )


def _order(name: str, kind: str, settings: Mapping[str, Curve], since: int) -> Claim:
    curve = settings[TRUE_G]
    scaled = curve.values[:, [curve.rounds.index(since), -1]] / np.sqrt([since, curve.rounds[-1]])
    growth = Curve((1,), scaled[:, 1:] - scaled[:, :1])
    rise, error = growth.at(1)
    ends = ", ".join(f"{setting} {end.mean[-1]:,.0f} ± {end.error[-1]:,.0f}" for setting, end in settings.items())
    below = curve.mean[-1] + 2 * curve.error[-1] < 0
    return Claim(
        what=f"The {kind} regret grows no faster than √T ({name}; theorem's schedules)",
        paper="O(√T)",
        measured=f"divided by √T, {scaled[:, 0].mean():.2f} after {since:,} rounds and "
        f"{scaled[:, 1].mean():.2f} after {curve.rounds[-1]:,}; in full at the end: {ends}",
        holds=bool(rise <= 2 * error) if np.isfinite(error) and curve.rounds[-1] >= LARGE_T_ROUNDS else None,
        note="below zero: one fixed blend cannot follow a truth that goes on moving, and p_t can" if below else "",
    )


def _table(name: str, kinds: Mapping[str, Mapping[str, Curve]], ceilings: Mapping[str, Sequence[float]]) -> Table:
    rows: list[tuple[str | int, ...]] = []
    for kind, settings in kinds.items():
        for place, mark in enumerate(next(iter(settings.values())).rounds):
            cells = (f"{curve.mean[place]:,.1f} ± {curve.error[place]:.1f}" for curve in settings.values())
            rows.append((kind, mark, *cells, f"{ceilings[kind][place]:,.0f}"))
    header = ("regret", "rounds", *kinds["first"], "bound")
    return Table(f"Mean regret ± standard error, {name}", header, tuple(rows))


def _constants_table(constants_by_setting: Mapping[str, Constants]) -> Table:
    rows = tuple(
        (
            name,
            round(constants.gradient, 2),
            round(constants.slope, 2),
            round(constants.size, 2),
            constants.smoothness,
            round(constants.factor(2)),
        )
        for name, constants in constants_by_setting.items()
    )
    return Table("The theorem's constants, the largest over the run", ("world", "G", "G_f", "G_U", "L_f", "C"), rows)


def _scaled(curves: Curves) -> Figure:
    """Draw every regret divided by √T; growth like √T is a horizontal line."""
    sheet, panels = figures.new_figure(columns=len(curves), rows=2, width=11.0, height=6.8)
    for row, (kind, title) in enumerate(REGRETS.items()):
        for column, (name, kinds) in enumerate(curves.items()):
            axes = panels[row * len(curves) + column]
            for (setting, curve), colour, shape in zip(kinds[kind].items(), figures.COLOURS, SHAPES, strict=False):
                root = np.sqrt(curve.rounds)
                mean, error = curve.mean / root, 2 * curve.error / root
                figures.draw_curve(
                    axes, curve.rounds, mean, name=setting, colour=colour, low=mean - error, high=mean + error
                )
                axes.plot(curve.rounds, mean, shape, color=colour, markersize=4)
            axes.set_xscale("log")
            axes.axhline(0.0, color=figures.REFERENCE, linewidth=1.0)
            figures.label_axes(axes, title="" if row else name, x="rounds T" if row else "", y="" if column else title)
    figures.draw_legend(panels[-1], "lower left")
    sheet.suptitle("Regret divided by √T (level: grows like √T; bands: ± 2 standard errors)", fontsize=12)
    return sheet


def _bounded(curves: Curves, ceilings: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    """Draw both regrets of the theorem's schedules and their bounds, with constant means."""
    sheet, (axes,) = figures.new_figure()
    name = next(iter(curves))
    for kind, colour, shape in zip(REGRETS, figures.COLOURS, SHAPES, strict=False):
        curve = curves[name][kind][TRUE_G]
        positive = curve.mean > 0
        rounds = np.array(curve.rounds)
        axes.plot(rounds[positive], curve.mean[positive], f"-{shape}", color=colour, linewidth=1.8, label=REGRETS[kind])
    axes.plot(rounds, np.sqrt(rounds), ":", color=figures.INK, linewidth=1.4, label="√T, for the slope")
    axes.plot(rounds, ceilings[name]["second"], "--", color=figures.INK, linewidth=1.4, label="bound of Theorem 2")
    axes.set_xscale("log")
    axes.set_yscale("log")
    figures.label_axes(
        axes,
        title="Both regrets under the theorem's schedules, the truth standing still",
        x="rounds T",
        y="mean regret, in units of f",
    )
    figures.draw_legend(axes, "center right")
    return sheet


EXPERIMENT = Experiment(
    name="regret",
    summary="Theorem 2: both regrets against √T and the bound, standing still and drifting",
    runs=600,
    rounds=10_000,
    quick_runs=100,
    quick_rounds=3_000,
    run=run,
)
