"""Figure 2 and Observation 1: why a blend beats a single candidate, on two arms and on random problems."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pasto.blend import Blend
from pasto.errors import PastoWarning
from pasto.objective import Objective, maximize
from pasto.optimize import solve
from pasto.report import figures
from pasto_research.paper.experiment import Claim, Experiment, Outcome, Size, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARMS = {"x": [2.0, 0.0], "y": [-2.0, 2.0]}
PENALTY = 5.0
COUNTS = (2, 5, 20, 100)
"""Candidates in a random problem."""
GUARDRAILS = (1, 2, 3)
SURE = 1e-9
"""What counts as strictly better: well above rounding, well below anything of use."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One random problem and its exact answer."""

    candidates: int
    guardrails: int
    soft: bool
    feasible: bool
    """Whether any blend meets the guardrails; always, where they are soft."""
    gain: float
    """f(blend) − f(single); infinite where a blend meets the hard guardrails and no single candidate does."""
    support: int


def run(size: Size) -> Outcome:
    """Solve the two-arm example and many random problems exactly."""
    hard = solve(ARMS, maximize("x").keep("y", at_least=0), names=["β1", "β2"])
    soft = solve(ARMS, maximize("x").keep("y", at_least=0, penalty=PENALTY), names=["β1", "β2"])
    drawn = problems(size)
    solvable = [problem for problem in drawn if problem.feasible]
    return Outcome(
        name="illustration",
        title="Figure 2 and Observation 1: a blend against the best single candidate",
        settings={"problems": size.runs, "seed": size.seed, "candidates": COUNTS, "guardrails": GUARDRAILS},
        claims=(
            _two_arms(hard),
            _two_arms_soft(soft),
            _never_worse(solvable),
            _often_better(solvable),
            _few_candidates(solvable),
        ),
        tables=tuple(_table(drawn, soft=kind) for kind in (True, False)),
        data={
            "two_arms": {
                kind: {"probabilities": blend.probabilities, "value": blend.value, "single": blend.best_single_value}
                for kind, blend in (("hard", hard), ("soft", soft))
            },
            "problems": {
                name: [getattr(problem, name) for problem in drawn]
                for name in ("candidates", "guardrails", "soft", "feasible", "gain", "support")
            },
        },
        figures={"illustration": partial(_plane, hard), "observation-1": partial(_gains, drawn)},
    )


def problems(size: Size) -> list[Drawn]:
    """Return random problems, every mix of size and kind in turn: means uniform in [−1, 1], thresholds in [−0.5, 0.5].

    >>> [one.candidates for one in problems(Size(runs=3, rounds=1))]
    [2, 2, 2]
    """
    kinds = [(count, rails, soft) for count in COUNTS for rails in GUARDRAILS for soft in (True, False)]
    rng = np.random.default_rng(size.seed)
    found = []
    for number in range(size.runs):
        count, rails, soft = kinds[number % len(kinds)]
        objective = _objective(rng.uniform(-0.5, 0.5, size=rails), soft)
        means = objective.by_metric(rng.uniform(-1.0, 1.0, size=(1 + rails, count)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PastoWarning)  # random limits below zero are not meant as percentages
            blend = solve(means, objective)
        gain = np.inf if blend.gain.value is None else blend.gain.value
        found.append(Drawn(count, rails, soft, blend.feasible, gain, len(blend.support)))
        if size.progress is not None and (number % 100 == 99 or number + 1 == size.runs):
            size.progress("random problems", number + 1, size.runs)
    return found


def _objective(thresholds: np.ndarray[tuple[int, ...], np.dtype[np.float64]], soft: bool) -> Objective:
    objective = maximize("x")
    for number, at in enumerate(thresholds, start=1):
        objective = objective.keep(f"y{number}", at_least=float(at), penalty=PENALTY if soft else None)
    return objective


def _shares(blend: Blend) -> str:
    return "(" + ", ".join(f"{share:.4g}" for share in blend.probabilities) + ")"


def _two_arms(blend: Blend) -> Claim:
    return Claim(
        what="Two arms, hard guardrail y ≥ 0",
        paper="best single β2 with f = 0; the blend (0.5, 0.5) reaches f = 1",
        measured=f"best single {blend.names[blend.best_single or 0]} with f = {blend.best_single_value:g}; "
        f"best blend {_shares(blend)} with f = {blend.value:g}",
        holds=blend.best_single == 1 and blend.best_single_value == 0.0 and blend.value == 1.0,
        note=f"the guardrail's price is {blend.prices['y']:g}: one unit of y given up buys half a unit of x",
    )


def _two_arms_soft(blend: Blend) -> Claim:
    return Claim(
        what=f"Two arms, soft guardrail with λ = {PENALTY:g} (example A)",
        paper="the blend is better than the best single; no value printed",
        measured=f"best single f = {blend.best_single_value:g}; best blend {_shares(blend)} with f = {blend.value:.6g}",
        holds=blend.value > (blend.best_single_value or 0.0),
        note=f"y settles at {blend.metrics['y']:.4g}, a little below its target, as soft guardrails do",
    )


def _never_worse(drawn: Sequence[Drawn]) -> Claim:
    count = sum(problem.gain >= -SURE for problem in drawn)
    return Claim(
        what="Observation 1: the best blend is never worse than the best single candidate",
        paper="always",
        measured=f"{count:,} of {len(drawn):,} random problems that have a solution",
        holds=count == len(drawn),
    )


def _often_better(drawn: Sequence[Drawn]) -> Claim:
    better = sum(problem.gain > SURE for problem in drawn)
    only = sum(np.isinf(problem.gain) for problem in drawn)
    return Claim(
        what="How often is it strictly better?",
        paper="called better, shown as ≥",
        measured=f"{better:,} of {len(drawn):,} ({better / max(len(drawn), 1):.0%}); in {only:,} of them no single "
        "candidate meets the hard guardrails and a blend does",
        holds=None,
        note="equal where one candidate is already best among all blends",
    )


def _few_candidates(drawn: Sequence[Drawn]) -> Claim:
    count = sum(problem.support <= 1 + problem.guardrails for problem in drawn)
    most = max((problem.support for problem in drawn), default=0)
    return Claim(
        what="The best blend needs at most one candidate more than there are guardrails",
        paper="not in the paper; docs/theory.md proves it",
        measured=f"{count:,} of {len(drawn):,}, at most {most} candidates",
        holds=count == len(drawn),
    )


def _table(drawn: Sequence[Drawn], *, soft: bool) -> Table:
    rows: list[tuple[str | float | int | None, ...]] = []
    for rails in GUARDRAILS:
        for count in COUNTS:
            asked = [
                problem
                for problem in drawn
                if (problem.soft, problem.guardrails, problem.candidates) == (soft, rails, count)
            ]
            these = [problem for problem in asked if problem.feasible]
            gains = np.array([problem.gain for problem in these if np.isfinite(problem.gain)])
            middle, high = (float(np.quantile(gains, share)) if len(gains) else None for share in (0.5, 0.9))
            rows.append(
                (
                    rails,
                    count,
                    len(these),
                    f"{np.mean([problem.gain > SURE for problem in these]):.0%}" if these else None,
                    None if soft else sum(np.isinf(problem.gain) for problem in these),
                    None if middle is None else round(middle, 4),
                    None if high is None else round(high, 4),
                    max((problem.support for problem in these), default=None),
                )
            )
    header = (
        "guardrails",
        "candidates",
        "solvable",
        "strictly better",
        "only a blend",
        "median gain",
        "90 %",
        "support",
    )
    columns = [place for place, name in enumerate(header) if not (soft and name == "only a blend")]
    return Table(
        f"Random problems, {f'soft guardrails (λ = {PENALTY:g})' if soft else 'hard guardrails'}",
        tuple(header[place] for place in columns),
        tuple(tuple(row[place] for place in columns) for row in rows),
    )


def _plane(blend: Blend) -> Figure:
    sheet, (axes,) = figures.new_figure(width=6.4, height=4.8)
    first, second = np.array(list(ARMS.values())).T
    middle = np.array([blend.metrics["x"], blend.metrics["y"]])
    axes.axhspan(-2.8, 0.0, color=figures.COLOURS[1], alpha=0.09, linewidth=0)
    figures.draw_level(axes, 0.0, "guardrail: y ≥ 0", right=False)
    axes.text(-0.42, -2.6, "guardrail broken", fontsize=9, color=figures.COLOURS[1])
    ends = np.array([first, second])
    axes.plot(ends[:, 0], ends[:, 1], color=figures.COLOURS[0], linewidth=1.8, zorder=2)
    segment = np.array([middle, second])
    axes.plot(segment[:, 0], segment[:, 1], color=figures.COLOURS[0], linewidth=4.5, solid_capstyle="butt", zorder=2)
    axes.plot(*first, "o", color=figures.COLOURS[1], markersize=9, zorder=3)
    axes.plot(*second, "o", color=figures.COLOURS[0], markersize=9, zorder=3)
    axes.plot(*middle, "*", color=figures.COLOURS[2], markersize=19, zorder=4)
    for place, text, shift in (
        (first, "β¹ alone: x = 2, but the guardrail breaks", (-2, -18)),
        (second, "β² alone: x = 0, the best single", (12, 4)),
        (middle, "half β¹, half β²: x = 1, the best blend", (12, 9)),
        (0.55 * second + 0.45 * middle, "blends that keep the guardrail", (12, 2)),
    ):
        axes.annotate(
            text,
            xy=(float(place[0]), float(place[1])),
            xytext=shift,
            textcoords="offset points",
            ha="right" if shift[0] < 0 else "left",
            fontsize=9.5,
            color=figures.INK,
        )
    axes.set_xlim(-0.5, 3.2)
    axes.set_ylim(-2.8, 2.8)
    figures.label_axes(
        axes,
        title="A blend raises x where no single candidate can",
        x="metric x, to be raised (relative to the baseline)",
        y="metric y, to be kept at 0 or more",
    )
    return sheet


def _gains(drawn: Sequence[Drawn]) -> Figure:
    sheet, (axes,) = figures.new_figure()
    for rails, colour in zip(GUARDRAILS, figures.COLOURS, strict=False):
        gains = np.sort([problem.gain for problem in drawn if problem.soft and problem.guardrails == rails])
        share = 100.0 * (1.0 - np.arange(len(gains)) / max(len(gains), 1))
        share, gains = share[gains > SURE], gains[gains > SURE]
        name = f"{rails} guardrail" + "s" * (rails > 1)
        axes.step(gains, share, where="pre", color=colour, linewidth=1.8, label=name)
    axes.set_ylim(0, 100)
    axes.set_xscale("log")
    axes.set_xlim(left=1e-4)
    figures.label_axes(
        axes,
        title=f"What blending gains on random problems (soft guardrails, λ = {PENALTY:g})",
        x="gain of the best blend over the best single candidate, in units of f (means lie in ±1)",
        y="problems with at least that gain, %",
    )
    figures.draw_legend(axes, "upper right")
    return sheet


EXPERIMENT = Experiment(
    name="illustration",
    summary="Figure 2 and Observation 1: a blend against the best single candidate; --runs counts random problems",
    runs=2_400,
    rounds=1,
    quick_runs=480,
    quick_rounds=1,
    run=run,
)
