"""`pasto simulate`: a learner in a world whose truth is known, and how far it comes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pasto.cli.means_file import note_percent, read_means
from pasto.cli.output import console, print_json, print_table, progress_bar
from pasto.errors import OptionError
from pasto.formatting import format_number

if TYPE_CHECKING:
    import numpy as np

    from pasto.objective import Objective
    from pasto.sim import World

    Worlds = World | Callable[[np.random.Generator], World]

BUILT_IN = ("example-a", "synthetic-b")
ROUNDS, RUNS = 100, 20
MANY_ROUNDS, MANY_RUNS = 1_000, 100
"""For the paper's learners, which need more rounds and advance many runs at once."""


@click.command(
    short_help="A learner in a simulated world, and how far it comes.",
    epilog="""\b
Examples:
  pasto simulate synthetic-b --noise 0.5 --parallel 10
  pasto simulate example-a --learner pasto --rounds 10000 --runs 200
  pasto simulate means.csv --maximize x --keep "y >= 0" --noise x=1
""",
)
@click.argument("world", default="example-a")
@click.option(
    "--learner", default="thompson", show_default=True, metavar="NAME", help="thompson, pasto (Algorithm 1) or scgd."
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Rounds in each run: {ROUNDS} unless given, {MANY_ROUNDS} for pasto and scgd.",
)
@click.option(
    "--parallel", default=1, show_default=True, type=click.IntRange(min=1), metavar="N", help="Draws in each round."
)
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Independent runs: {RUNS} unless given, {MANY_RUNS} for pasto and scgd.",
)
@click.option(
    "--seed", default=1, show_default=True, type=click.IntRange(min=0), metavar="N", help="Of all random numbers."
)
@click.option(
    "--noise",
    multiple=True,
    metavar="[METRIC=]DEVIATION",
    help="The standard deviation of one look at a candidate, for all metrics or by name. By default the paper's √5 for "
    "example-a, 0.5 for synthetic-b, and for a file each metric's own deviation between candidates.",
)
@click.option(
    "--step",
    type=float,
    metavar="X",
    help="For pasto and scgd: the step γ, instead of the paper's 0.1 over the number of candidates.",
)
@click.option(
    "--floor",
    type=float,
    metavar="X",
    help="For thompson: the share of traffic spread over all candidates, instead of 0.01. For pasto and scgd: "
    "exploration ε_t is this over √(t + 10), instead of the paper's 0.1.",
)
@click.option("--maximize", multiple=True, metavar="METRIC", help="For a file: as in pasto solve.")
@click.option("--minimize", multiple=True, metavar="METRIC", help="For a file: as in pasto solve.")
@click.option(
    "--keep", multiple=True, metavar="GUARDRAIL", help="For a file: as in pasto solve; pasto and scgd need a penalty."
)
@click.option("--name", metavar="COLUMN", help="For a file: the column that holds the candidates' names.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
def simulate(
    world: str,
    learner: str,
    rounds: int | None,
    parallel: int,
    runs: int | None,
    seed: int,
    noise: tuple[str, ...],
    step: float | None,
    floor: float | None,
    maximize: tuple[str, ...],
    minimize: tuple[str, ...],
    keep: tuple[str, ...],
    name: str | None,
    as_json: bool,
) -> None:
    """Run a learner in a simulated world and print how its answer improves.

    WORLD is example-a (the paper's two candidates), synthetic-b (a hundred random candidates, new ones in each run), or
    a file of means as pasto solve reads it, with its goal and guardrails as options. The default learner runs as a
    study that is told standard errors; its guardrails may be hard.
    """
    from pasto.objective import parse_objective
    from pasto.optimize.learners import Thompson
    from pasto.sim import monte_carlo, relative_gain
    from pasto.sim.runner import run_studies

    chosen = _learner(learner, step, floor)
    deviations = _deviations(noise)
    if world in BUILT_IN:
        if maximize or minimize or keep or name:
            raise OptionError(
                f"{world} has its own goal and guardrails; --maximize, --minimize, --keep and --name are for files"
            )
        place: Worlds = _built_in(world, deviations)
    else:
        if world != "-" and not Path(world).exists():
            raise OptionError(
                f"there is no world and no file {world!r}; the worlds are {' and '.join(BUILT_IN)}, and a file of "
                "means needs --maximize or --minimize as well"
            )
        place = _from_file(world, name, parse_objective(maximize=maximize, minimize=minimize, keep=keep), deviations)
    studied = isinstance(chosen, Thompson)
    rounds, runs = rounds or (ROUNDS if studied else MANY_ROUNDS), runs or (RUNS if studied else MANY_RUNS)
    sizes: dict[str, Any] = {
        "runs": runs, "rounds": rounds, "parallel": parallel, "seed": seed, "checkpoints": _checkpoints(rounds)
    }  # fmt: skip
    with progress_bar() as progress:
        simulated = run_studies if studied else monte_carlo
        trace = simulated(chosen, place, **sizes, progress=progress, label=f"{learner} in {world}")
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
            "Hard guardrails held: in how many of the runs the answer truly meets them. f does not charge for a miss.",
            style="dim",
        )
    if gains is not None:
        screen.print("Relative gain: 0 is the best single candidate, 1 the best blend, below 0 is a loss.", style="dim")


def _learner(name: str, step: float | None, floor: float | None) -> Any:
    from pasto.optimize.learners import LEARNERS, Thompson, learner
    from pasto.optimize.learners.mirror_ascent import Schedule

    learner(name)  # says which names there are
    kind: Any = LEARNERS[name]
    settings: dict[str, Any] = {}
    if step is not None:
        if not 0 < step < float("inf"):
            raise OptionError(f"--step must be a positive number, got {step}")
        settings["step"] = step
    if floor is not None:
        settings["floor"] = floor if kind is Thompson else Schedule(floor, offset=10)
    if missing := settings.keys() - {field.name for field in fields(kind)}:
        raise OptionError(f"learner {name!r} has no --{min(missing)}; 'pasto' and 'scgd' do")
    return kind(**settings)


def _deviations(texts: tuple[str, ...]) -> float | dict[str, float] | None:
    """--noise 0.5, or --noise x=1 --noise y=0.5."""
    named: dict[str, float] = {}
    for text in texts:
        metric, _, amount = text.rpartition("=")
        try:
            named[metric.strip()] = float(amount)
        except ValueError as error:
            raise OptionError(f"--noise takes a number or METRIC=NUMBER, got {text!r}") from error
    if "" not in named:
        return named or None
    if len(texts) > 1:
        raise OptionError("--noise is either one number for all metrics, or METRIC=NUMBER for each")
    return named[""]


def _built_in(world: str, noise: float | dict[str, float] | None) -> Worlds:
    from pasto.sim import example_a, synthetic_b

    if isinstance(noise, dict):
        raise OptionError(f"{world} takes one --noise for all its metrics")
    if noise is not None and not 0 <= noise < float("inf"):
        raise OptionError(f"--noise is a standard deviation, which is not negative, got {noise}")
    if world == "example-a":
        return example_a() if noise is None else example_a(variance=noise**2)
    return lambda rng: synthetic_b(rng, sigma=0.5 if noise is None else noise)


def _from_file(source: str, name: str | None, objective: Objective, noise: float | dict[str, float] | None) -> World:
    from statistics import pstdev

    from pasto.sim import table

    means = read_means(source, name)
    note_percent(means)
    if noise is None:
        noise = {metric: pstdev(row) for metric, row in means.metrics.items()}
    return table(means.metrics, noise, objective, names=means.names)


def _checkpoints(rounds: int) -> list[int]:
    """1, 3, 10, 30, … and the last round."""
    marks = [digit * 10**power for power in range(len(str(rounds))) for digit in (1, 3)]
    return [mark for mark in marks if mark < rounds] + [rounds]


def _within(value: float, error: float) -> str:
    return format_number(value) if math.isnan(error) else f"{format_number(value)} ± {error if error > 1e-9 else 0:.2g}"
