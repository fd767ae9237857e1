"""Trust benchmark: error rates of intervals, alarms and claims over many studies, each with a mutant that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pasto.inference import CellStatistics, Comparison, Quantity, build_side, compare, unit_covariances
from pasto.inference.stop_level import StopLevel
from pasto.report.figures import COLOURS, draw_curve, draw_legend, draw_level, label_axes, new_figure, rounds_axis
from pasto.sim import Progress
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport
from pasto_research.bench.coverage_checks import (
    ERROR,
    METRIC,
    Test,
    alarms,
    batches,
    both,
    coverage,
    ever_missed,
    ever_missed_early,
    false_winners,
    sample_ratio,
    shares_of,
    sticky_coverage,
    swinging_alarms,
)
from pasto_research.bench.coverage_studies import SCENES, STEERED, Scene, Studies, simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCENE = replace(SCENES["drift"], name="drift, covariate", lift=0.05)
"""Shares chase, the day swings, and candidates differ by a half of a unit's deviation."""

CORRELATION = 0.7
"""Of a unit's number with what it did before: half of the variance can go."""

LEAK = 0.3
"""The part of its candidate's lift that a covariate shows which was measured after exposure."""

PAST = Quantity(1)


@dataclass(frozen=True, slots=True)
class CovariateCoverage:
    """Coverage of covariate-adjusted intervals over many studies."""

    covered: float
    relative: float
    """The same for relative lifts."""
    bias: float
    """Mean error in standard errors."""
    reduction: float
    """The mean share of the variance that is gone."""
    mutant: float
    """How often they held with a covariate that was measured after exposure."""


def covariate_coverage(target: str, studies: int, seed: int = 1, scene: Scene = SCENE) -> CovariateCoverage:
    """Measure adjusted intervals of a target: "learner", "candidate" or "blend"."""
    held, relative, errors, less, mutant = [], [], [], [], []
    for size, start in batches(studies, seed):
        drawn = simulate(scene, size, start)
        true = _compared(drawn.truth, drawn.cells, scene, target)
        raw, found, leaky = (
            _compared(cells, cells, scene, target, covariate)
            for cells, covariate in (
                (drawn.cells, None),
                (with_past(drawn, scene, start), PAST),
                (with_past(drawn, scene, start, leak=LEAK), PAST),
            )
        )
        held.append(found.lift(ERROR, sequential=False).covers(true.difference))
        relative.append(found.relative(ERROR, sequential=False).covers(true.treated / true.control - 1.0))
        errors.append((found.difference - true.difference) / np.sqrt(found.variance))
        less.append(1.0 - found.variance / raw.variance)
        mutant.append(leaky.lift(ERROR, sequential=False).covers(true.difference))
    return CovariateCoverage(*(float(np.concatenate(parts).mean()) for parts in (held, relative, errors, less, mutant)))


def with_past(drawn: Studies, scene: Scene, seed: int, *, leak: float = 0.0) -> CellStatistics:
    """Return the cells with a second column: the units' past, of standard deviation one.

    Units are normal, so given what a cell showed, its covariate's mean and sums of products can be drawn at once
    (Bartlett). With `leak` it shows a part of the lift as well, as something measured after exposure would.
    """
    rng = np.random.default_rng([seed, 11])
    units, mean, cross = (part[:, :, :-1] for part in (drawn.cells.units, drawn.cells.mean, drawn.cells.cross))
    truth = drawn.truth.mean[:, :, :-1, 0]
    sigma = scene.noise * truth[..., :1] / scene.level  # a day's noise goes with its level, which the control shows
    filled = np.maximum(units, 1.0)
    rest = np.sqrt(1.0 - CORRELATION**2)
    own = (mean[..., 0] - truth) / sigma
    lift = (truth - truth[..., :1]) / sigma
    past = CORRELATION * own + rest * rng.standard_normal(units.shape) / np.sqrt(filled) + leak * lift
    first = cross[..., 0, 0] / sigma**2
    beside = np.sqrt(first) * rng.standard_normal(units.shape) * (units > 1)
    second = np.where(first > 0, beside**2 / np.where(first > 0, first, 1.0), 0.0)
    second = second + np.where(units > 2, rng.chisquare(np.maximum(units - 2.0, 1.0)), 0.0)
    product = sigma * (CORRELATION * first + rest * beside)
    square = CORRELATION**2 * first + 2.0 * CORRELATION * rest * beside + rest**2 * second
    table = np.stack([np.stack([cross[..., 0, 0], product], -1), np.stack([product, square], -1)], -2)
    both = CellStatistics(units, np.stack([mean[..., 0], past], axis=-1), table)
    return both.join(range(1, scene.candidates + 1))


def _compared(
    cells: CellStatistics, noise: CellStatistics, scene: Scene, target: str, covariate: Quantity | None = None
) -> Comparison:
    covariances = unit_covariances(noise)
    sides = (build_side(cells, covariances, shares_of(scene, target)), build_side(cells, covariances, 0))
    return compare(*sides, METRIC, weights="traffic" if target == "learner" else "even", covariate=covariate)


BAND = "93.5 to 97.5%"

LOW = "≤ 6.5%"

MUTANTS = {
    "learner": "z-test at every look",
    "candidate": "means pooled over rounds",
    "blend": "each round's own variance",
}


def _row(number: str, where: str, measured: str, asked: str, mutant: tuple[str, str] | None, note: str = "") -> Any:
    name, figure = mutant or ("", "")
    return {
        "number": number,
        "where": where,
        "measured": measured,
        "asked": asked,
        "mutant": name,
        "mutant's": figure,
        "note": note,
    }


def _coverage(scene: Scene, target: str, studies: int) -> Any:
    found = coverage(scene, target, studies)
    name = MUTANTS[target] if scene.steering is None else MUTANTS["candidate"]
    mutant = name, f"{found.mutant:.1%}"
    note = f"relative {found.relative:.1%}, bias {found.bias:+.2f} errors"
    return _row(f"coverage, {target}", scene.name, f"{found.covered:.1%}", BAND, mutant, note)


def _adjusted(target: str, studies: int) -> Any:
    found = covariate_coverage(target, studies)
    mutant = "covariate after exposure", f"{found.mutant:.1%}"
    note = f"relative {found.relative:.1%}, bias {found.bias:+.2f} errors, variance less {found.reduction:.0%}"
    return _row(f"coverage, {target}", SCENE.name, f"{found.covered:.1%}", BAND, mutant, note)


def _sticky(studies: int) -> Any:
    found = sticky_coverage(studies)
    mutant = "views as units", f"{found.mutant:.1%}"
    note = f"relative {found.relative:.1%}, bias {found.bias:+.2f} errors"
    return _row("coverage, ratio", "sticky users", f"{found.covered:.1%}", BAND, mutant, note)


def _looks(looks: int, studies: int) -> Any:
    ours, naive = ever_missed(looks, studies)
    return _row("ever missed", f"{looks:,} looks", f"{ours:.1%}", LOW, ("z-test at every look", f"{naive:.1%}"))


def _early(kind: str, studies: int) -> Any:
    ours, naive = ever_missed_early(kind, studies)
    return _row(
        "ever missed", f"{kind}, control of 20", f"{ours:.1%}", LOW, ("each arm's own variance", f"{naive:.1%}")
    )


def _false_alarms(kind: str, guardrails: int, studies: int, control: float | None = None) -> Any:
    ours = alarms(kind, studies, guardrails=guardrails, control=control)
    if kind == "normal":
        name, loose = "z-test at every look", alarms(kind, studies, guardrails=guardrails, control=control, test="z")
    else:
        bare = "skewed, no cap" if kind == "skewed" else kind
        name, loose = "no range declared", alarms(bare, studies, guardrails=guardrails, declared=False)
    where = f"{kind}, {guardrails} guardrail{'s' if guardrails > 1 else ''}"
    if control is not None:
        where = f"{kind}, {control:.0%} control"
    return _row("guardrail monitor, false alarms", where, f"{ours.tripped:.1%}", LOW, (name, f"{loose.tripped:.1%}"))


def _detection(drop: float, asked: str, where: str, options: dict[str, Any], studies: int) -> Any:
    ours = alarms("normal", studies, drop=drop, **options)
    other: Test = "one-start" if options.get("good") else "bonferroni"
    loose = alarms("normal", studies, drop=drop, **options, test=other)
    mutant = f"{other}, missed {1.0 - loose.tripped:.0%}", f"{loose.rounds:.1f} rounds"
    note = f"missed {1.0 - ours.tripped:.1%} in {options.get('rounds', 100)} rounds"
    return _row(f"guardrail monitor, drop of {drop} sd", where, f"{ours.rounds:.1f} rounds", asked, mutant, note)


STOP_LEVEL = StopLevel("likes", METRIC, 9.5)
"""Five percent below the mean of studies whose level swings; compared with single rounds, it is the mutant."""

STOP_PERCENT = StopLevel("likes", METRIC, -0.05, relative=True)


def _swinging(where: str, options: dict[str, Any], studies: int) -> Any:
    judged = replace(STOP_LEVEL, basis="days" if options.get("control", 0.1) is None else "control")
    ours, loose = (swinging_alarms(floor, studies, **options) for floor in (judged, STOP_LEVEL))
    mutant = "every round against the number", f"{loose.tripped:.1%}"
    return _row("stop level, false alarms", f"±10% by the hour, {where}", f"{ours.tripped:.1%}", LOW, mutant)


def _harmed(where: str, asked: str, options: dict[str, Any], studies: int) -> Any:
    no_control = options.get("control", 0.1) is None
    judged = replace(STOP_LEVEL, basis="days" if no_control else "control")
    ours = swinging_alarms(judged, studies, **options)
    mutant = None
    if not no_control:
        percent = swinging_alarms(STOP_PERCENT, studies, **options)
        mutant = "stop level of -5% instead", f"{percent.rounds:.1f} rounds"
    note = f"missed {1.0 - ours.tripped:.1%} in {options.get('rounds', 240)} rounds"
    return _row("stop level, harm", f"±10% by the hour, {where}", f"{ours.rounds:.1f} rounds", asked, mutant, note)


def _quiet(studies: int) -> Any:
    found = sample_ratio(studies, rounds=100)
    note = f"chi-square at every look {found.every_look:.1%}"
    mutant = "last weights", f"{found.last_weights:.0%}"
    return _row("sample ratio, false alarms", "healthy, 100 rounds", f"{found.ours:.2%}", "≤ 0.4%", mutant, note)


def _awake(where: str, left: float, lift: float, asked: str, studies: int) -> Any:
    found = sample_ratio(studies, left=left, lift=lift)
    return _row("sample ratio, found", where, f"{found.ours:.1%}", asked, None)


def _arm_loss(rounds: int, control: float, asked: str, studies: int) -> Any:
    found = sample_ratio(studies, left=0.95, whole_arm=True, control=control, rounds=rounds)
    where = f"5% lost on the learner's arm, {rounds * 1_000:,} units, {control:.0%} control"
    note = f"most powerful test, at one look with the whole error {found.one_look:.1%}"
    return _row(
        "sample ratio, found", where, f"{found.ours:.1%}", asked, ("by cells alone", f"{found.by_cell:.1%}"), note
    )


def _winner(candidates: int, studies: int) -> Any:
    fixed, anytime, alone = false_winners(candidates, studies)
    mutant = "best-looking, alone", f"{alone:.1%}"
    note = f"at any look {anytime:.1%}"
    return _row("false winner", f"{candidates} candidates, A/A", f"{fixed:.1%}", LOW, mutant, note)


CHECKS: tuple[Callable[[int], Any], ...] = (
    *(partial(_coverage, scene, target) for scene in (*SCENES.values(), STEERED) for target in MUTANTS),
    *(partial(_adjusted, target) for target in MUTANTS),
    _sticky,
    *(partial(_looks, looks) for looks in (100, 1_000)),
    *(partial(_early, kind) for kind in ("rare", "skewed")),
    *(partial(_false_alarms, kind, count) for kind in ("normal", "rare", "skewed") for count in (1, 5)),
    *(partial(_false_alarms, "normal", 1, control=control) for control in (0.5, 0.1)),
    partial(_detection, 0.1, "≤ 8 rounds", "absolute floor", {}),
    partial(_detection, 0.05, "≤ 20 rounds", "absolute floor", {}),
    partial(_detection, 0.1, "told", "after 50 good rounds", {"good": 50, "rounds": 150}),
    *(
        partial(_detection, drop, "told", f"{control:.0%} control", {"control": control, "rounds": 400})
        for drop in (0.1, 0.05)
        for control in (0.5, 0.1)
    ),
    partial(_swinging, "policy as the control", {}),
    partial(_swinging, "policy 3% below the control", {"ratio": 0.97}),
    partial(_swinging, "policy at the stop level", {"ratio": 0.95}),
    partial(_swinging, "no control", {"control": None}),
    partial(_swinging, "no control, policy at the stop level", {"control": None, "ratio": 0.95}),
    partial(_harmed, "policy 10% below the control", "≤ 26 rounds", {"ratio": 0.9}),
    partial(_harmed, "the same after 100 good rounds", "≤ 5 rounds", {"ratio": 0.9, "good": 100}),
    partial(_harmed, "policy 60% below the control", "≤ 5 rounds", {"ratio": 0.4}),
    partial(_harmed, "no control, policy 10% below", "≤ 26 rounds", {"ratio": 0.9, "control": None}),
    _quiet,
    partial(_awake, "10% lost on one of five", 0.9, 0.0, "≥ 75%"),
    partial(_awake, "the same, most of them starved", 0.9, 0.02, "told"),
    partial(_awake, "one of five silent", 0.0, 0.0, "100%"),
    partial(_arm_loss, 50, 0.1, "reported"),
    partial(_arm_loss, 50, 0.2, "≥ 75%"),
    partial(_arm_loss, 50, 0.5, "≥ 75%"),
    partial(_arm_loss, 100, 0.1, "≥ 75%"),
    *(partial(_winner, candidates) for candidates in (20, 100)),
)
"""Every measurement, given how many studies to run."""


def measure(*, studies: int = 2_000, progress: Progress | None = None) -> BenchmarkReport:
    """Return every check as a row."""
    rows = []
    for number, check in enumerate(CHECKS):
        rows.append(check(studies))
        if progress is not None:
            progress("trust", number + 1, len(CHECKS))
    error = 3.0 * float(np.sqrt(0.05 * 0.95 / studies))
    return BenchmarkReport(
        f"What the report's numbers are worth, {studies:,} studies each",
        tuple(rows),
        note=f"Shares chase what was measured. Three standard errors of a 5 % rate are {error:.1%} here.",
        figures={"trust-looks": lambda: looks_figure(min(studies, 1_000))},
    )


def looks_figure(studies: int, looks: int = 200) -> Figure:
    """Draw the share of studies that were wrong at least once, by look."""
    scene = Scene("looks", rounds=looks, units=200, control=0.3)
    found, true = both(simulate(scene, studies, 1), scene, "learner", running=True)
    figure, (axes,) = new_figure()
    for sequential, name, colour in (
        (False, "95 % interval at every look", COLOURS[1]),
        (True, "confidence sequence", COLOURS[0]),
    ):
        wrong = ~found.lift(ERROR, sequential=sequential).covers(true.difference)
        ever = 100.0 * np.maximum.accumulate(wrong, axis=-1).mean(axis=0)
        draw_curve(axes, np.arange(1, looks + 1), ever, name=name, colour=colour)
    draw_level(axes, 100.0 * ERROR, "promised, 5 %")
    rounds_axis(axes, 1, looks)
    label_axes(axes, title="Looking is free, with the right interval", x="looks", y="studies wrong at least once, %")
    draw_legend(axes, "upper left")
    return figure


BENCHMARK = Benchmark(
    name="trust",
    summary="error rates of lifts, alarms and winners, compared with simpler ways",
    run=lambda progress, quick: measure(studies=250 if quick else 2_000, progress=progress),
)
