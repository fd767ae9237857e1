"""`pasto simulate`: a learner in a simulated world with known means."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pasto.cli.means_file import note_percent, read_means
from pasto.cli.options import as_json_option
from pasto.cli.output import console, print_json, print_table, progress_bar
from pasto.errors import OptionError
from pasto.formatting import format_number

if TYPE_CHECKING:
    import numpy as np

    from pasto.objective import Objective
    from pasto.sim import World

    Worlds = World | Callable[[np.random.Generator], World]

BUILT_IN_WORLDS = ("example-a", "synthetic-b")
THOMPSON_ROUNDS, THOMPSON_RUNS = 100, 20
PAPER_ROUNDS, PAPER_RUNS = 1_000, 100
"""Defaults of the paper's learners, which need more rounds and compute many runs at once."""


@click.command(
    short_help="Run a learner in a simulated world and print its progress.",
    epilog="""\b
Examples:
  pasto simulate synthetic-b --noise 0.5 --parallel 10
  pasto simulate example-a --learner algorithm1 --rounds 10000 --runs 200
  pasto simulate means.csv --maximize x --keep "y >= 0" --noise x=1
""",
)
@click.argument("world", default="example-a")
@click.option(
    "--learner",
    default="thompson",
    show_default=True,
    metavar="NAME",
    help="thompson, algorithm1 (the paper's Algorithm 1) or scgd.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Rounds in each run; by default {THOMPSON_ROUNDS}, and {PAPER_ROUNDS} for algorithm1 and scgd.",
)
@click.option(
    "--parallel",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="Candidates drawn in each round.",
)
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Independent runs; by default {THOMPSON_RUNS}, and {PAPER_RUNS} for algorithm1 and scgd.",
)
@click.option("--seed", default=1, show_default=True, type=click.IntRange(min=0), metavar="N", help="Random seed.")
@click.option(
    "--noise",
    multiple=True,
    metavar="[METRIC=]STD",
    help="Standard deviation of one measurement, for all metrics or for one. Defaults: the paper's √5 for example-a, "
    "0.5 for synthetic-b, and for a file the metric's standard deviation between candidates.",
)
@click.option(
    "--step-size",
    type=float,
    metavar="X",
    help="For algorithm1 and scgd: step size γ. Default: the paper's 0.1 divided by the number of candidates.",
)
@click.option(
    "--exploration",
    type=float,
    metavar="X",
    help="For thompson: share of traffic spread evenly over all candidates; default 0.01. For algorithm1 and scgd: "
    "ε_t = X / √(t + 10); default: the paper's constant 0.1.",
)
@click.option("--maximize", multiple=True, metavar="METRIC", help="For a file: as in `pasto solve`.")
@click.option("--minimize", multiple=True, metavar="METRIC", help="For a file: as in `pasto solve`.")
@click.option(
    "--keep",
    multiple=True,
    metavar="GUARDRAIL",
    help="For a file: as in `pasto solve`. The learners algorithm1 and scgd need a penalty.",
)
@click.option("--name-column", metavar="COLUMN", help="For a file: the column with the candidates' names.")
@as_json_option
def simulate(
    world: str,
    learner: str,
    rounds: int | None,
    parallel: int,
    runs: int | None,
    seed: int,
    noise: tuple[str, ...],
    step_size: float | None,
    exploration: float | None,
    maximize: tuple[str, ...],
    minimize: tuple[str, ...],
    keep: tuple[str, ...],
    name_column: str | None,
    as_json: bool,
) -> None:
    """Run a learner in a simulated world and print how its answer improves.

    WORLD is example-a (the paper's two candidates), synthetic-b (a hundred random candidates, new in each run), or a
    file of means as for `pasto solve`, with a goal and guardrails as options. The default learner runs as a study that
    gets measurements with standard errors, and its guardrails may be hard.
    """
    from pasto.objective import parse_objective
    from pasto.optimize.learners import Thompson
    from pasto.sim import monte_carlo, relative_gain
    from pasto.sim.runner import run_studies

    chosen = _build_learner(learner, step_size, exploration)
    deviations = _parse_noise(noise)
    if world in BUILT_IN_WORLDS:
        if maximize or minimize or keep or name_column:
            raise OptionError(
                f"{world} has its own goal and guardrails; --maximize, --minimize, --keep and --name-column are only "
                "for files of means"
            )
        place: Worlds = _built_in(world, deviations)
    else:
        if world != "-" and not Path(world).exists():
            raise OptionError(
                f"no world and no file is called {world!r}; the worlds are {' and '.join(BUILT_IN_WORLDS)}, and a file "
                "of means needs --maximize or --minimize as well"
            )
        place = _from_file(
            world, name_column, parse_objective(maximize=maximize, minimize=minimize, keep=keep), deviations
        )
    studied = isinstance(chosen, Thompson)
    rounds, runs = (
        rounds or (THOMPSON_ROUNDS if studied else PAPER_ROUNDS),
        runs or (THOMPSON_RUNS if studied else PAPER_RUNS),
    )
    simulated = run_studies if studied else monte_carlo
    with progress_bar() as progress:
        trace = simulated(
            chosen,
            place,
            runs=runs,
            rounds=rounds,
            parallel=parallel,
            seed=seed,
            checkpoints=_checkpoints(rounds),
            progress=progress,
            label=f"{learner} in {world}",
        )
    best, single = float(trace.optimum.mean()), float(trace.single.mean())
    gap = best - single > 1e-9 * (1.0 + abs(best))
    gains = relative_gain(trace) if gap else None
    held = trace.measures["held"].mean(axis=0) if "held" in trace.measures else None
    if as_json:
        print_json(
            {
                "world": world,
                "learner": learner,
                "settings": {"runs": runs, "rounds": rounds, "parallel": parallel, "seed": seed},
                "optimum": best,
                "best_single": single,
                "rounds": trace.checkpoints,
                "answer": trace.mean,
                "error": trace.error,
                "served": trace.served.mean(axis=0),
                "relative_gain": None if gains is None else gains.ratio,
                "relative_gain_error": None if gains is None else gains.error,
                "held": held,
            }
        )
        return
    screen = console()
    screen.print(f"{learner} in {world}: {runs:,} runs of {rounds:,} rounds, {parallel} in parallel", style="bold")
    screen.print()
    header = ["rounds", "f of the answer", "f of what is served"]
    rows = [
        [f"{mark:,}", _within(mean, error), format_number(served)]
        for mark, mean, error, served in zip(
            trace.checkpoints, trace.mean, trace.error, trace.served.mean(axis=0), strict=True
        )
    ]
    if gains is not None:
        header.append("relative gain")
        rows = [
            [*row, _within(*gain)] for row, gain in zip(rows, zip(gains.ratio, gains.error, strict=True), strict=True)
        ]
    if held is not None:
        header.append("hard guardrails held")
        rows = [[*row, f"{share:.0%}"] for row, share in zip(rows, held, strict=True)]
    print_table(screen, header, rows, text=())
    screen.print()
    if math.isnan(best):
        screen.print("No blend of these candidates meets every hard guardrail.", style="bold red")
    else:
        alone = "no single candidate meets every hard guardrail"
        if not math.isnan(single):
            alone = f"the best single candidate {format_number(single)}"
        screen.print(f"The best blend reaches f = {format_number(best)}, {alone}.")
    if held is not None:
        screen.print(
            "Hard guardrails held: share of runs whose answer truly meets them. f has no penalty for a violation.",
            style="dim",
        )
    if gains is not None:
        screen.print("Relative gain: 0 is the best single candidate, 1 the best blend, below 0 is a loss.", style="dim")


def _build_learner(name: str, step_size: float | None, exploration: float | None) -> Any:
    from pasto.optimize.learners import Thompson, make_learner
    from pasto.optimize.learners.mirror_ascent import Schedule

    kind: Any = type(make_learner(name))
    settings: dict[str, float | Schedule] = {}
    if step_size is not None:
        if not 0 < step_size < float("inf"):
            raise OptionError(f"--step-size must be a positive number, got {step_size}")
        settings["step"] = step_size
    if exploration is not None:
        settings["floor"] = exploration if kind is Thompson else Schedule(exploration, offset=10)
    if settings.keys() - {field.name for field in fields(kind)}:
        raise OptionError(f"learner {name!r} has no --step-size; 'algorithm1' and 'scgd' have it")
    return kind(**settings)


def _parse_noise(texts: tuple[str, ...]) -> float | dict[str, float] | None:
    """Return the value of --noise 0.5, or of --noise x=1 --noise y=0.5."""
    named: dict[str, float] = {}
    for text in texts:
        metric, _, amount = text.rpartition("=")
        try:
            named[metric.strip()] = float(amount)
        except ValueError as error:
            raise OptionError(f"--noise must be a number or METRIC=NUMBER, got {text!r}") from error
    if "" not in named:
        return named or None
    if len(texts) > 1:
        raise OptionError("--noise must be one number for all metrics, or METRIC=NUMBER for each metric")
    return named[""]


def _built_in(world: str, noise: float | dict[str, float] | None) -> Worlds:
    from pasto.sim import example_a, synthetic_b

    if isinstance(noise, dict):
        raise OptionError(f"{world} takes one --noise for all its metrics")
    if noise is not None and not 0 <= noise < float("inf"):
        raise OptionError(f"--noise must be a standard deviation of at least 0, got {noise}")
    if world == "example-a":
        return example_a() if noise is None else example_a(variance=noise**2)
    return lambda rng: synthetic_b(rng, sigma=0.5 if noise is None else noise)


def _from_file(
    source: str, name_column: str | None, objective: Objective, noise: float | dict[str, float] | None
) -> World:
    from statistics import pstdev

    from pasto.sim import table

    means = read_means(source, name_column)
    note_percent(means)
    if noise is None:
        noise = {metric: pstdev(row) for metric, row in means.metrics.items()}
    return table(means.metrics, noise, objective, names=means.names)


def _checkpoints(rounds: int) -> list[int]:
    """Return the rounds 1, 3, 10, 30, … and the last round."""
    marks = [digit * 10**power for power in range(len(str(rounds))) for digit in (1, 3)]
    return [mark for mark in marks if mark < rounds] + [rounds]


def _within(value: float, error: float) -> str:
    return format_number(value) if math.isnan(error) else f"{format_number(value)} ± {error if error > 1e-9 else 0:.2g}"
