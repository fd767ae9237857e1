"""Command `pasto paper`: the tables, figures and theorems of the paper, claimed and measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pasto.cli.options import as_json_option
from pasto.cli.output import console, echo, print_json, print_table, progress_bar
from pasto.errors import InputError
from pasto.formatting import format_number

if TYPE_CHECKING:
    from rich.console import Console

    from pasto_research.paper import Claim, Outcome

VERDICTS = {True: ("holds", "green"), False: ("does not hold", "red"), None: ("measured only", "dim")}


class ExperimentCommand(click.Command):
    """Command whose help lists the experiments."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the experiments, then the examples."""
        from pasto_research.paper import EXPERIMENTS

        with formatter.section("Experiments"):
            formatter.write_dl([(name, experiment.summary) for name, experiment in EXPERIMENTS.items()])
        super().format_epilog(ctx, formatter)


@click.command(
    cls=ExperimentCommand,
    short_help="Reproduce the paper's tables and figures.",
    epilog="""\b
Examples:
  pasto paper
  pasto paper toy-a --quick
  pasto paper synthetic-b --out figures
  pasto paper movielens --data data --cache models --out figures
""",
)
@click.argument("name", default="list")
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Independent runs; by default, the number of the experiment.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    metavar="N",
    help="Rounds in each run; by default, the number of the experiment.",
)
@click.option("--seed", default=1, show_default=True, type=click.IntRange(min=0), metavar="N", help="Random seed.")
@click.option("--quick", is_flag=True, help="Run a smaller size: less than a minute, or a few minutes on real data.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write figures (PNG, SVG), tables (Markdown) and numbers (JSON) to this directory.",
)
@click.option(
    "--data",
    type=click.Path(exists=True, path_type=Path),
    metavar="DIR",
    help="Directory of a data set, or of several, for experiments on real data.",
)
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Store trained models in this directory, and reuse them in the next run.",
)
@as_json_option
def paper(
    name: str,
    runs: int | None,
    rounds: int | None,
    seed: int,
    quick: bool,
    out: Path | None,
    data: Path | None,
    cache: Path | None,
    as_json: bool,
) -> None:
    """Run an experiment of the paper, and print the claims of the paper with the measured values.

    NAME is one of the experiments below, "all" for every one whose data is available, or "list" (or nothing) to list
    them. With --out, the file index.md links each claim of the paper to its tables and figures.
    """
    from pasto_research.paper import EXPERIMENTS, outcome_document, run, write, write_index

    if name == "list":
        _list(as_json)
        return
    if out is not None:
        _prepare(out)
    outcomes, lacking = [], []
    for each in _chosen(name, data):
        with progress_bar() as progress:
            try:
                outcome = run(
                    each, runs=runs, rounds=rounds, seed=seed, quick=quick, progress=progress, data=data, cache=cache
                )
            except InputError as error:
                if name != "all":
                    raise
                lacking.append(f"left out {each}: {error}")
                continue
        if not as_json:
            _print(console(), outcome)
        if out is not None:
            for path in write(outcome, out):
                echo(f"wrote {path}", err=True)
        outcomes.append(outcome_document(outcome))
    if out is not None:
        echo(f"wrote {write_index(out, EXPERIMENTS.values())}", err=True)
    for line in lacking:
        echo(line, err=True)
    if as_json:
        print_json(outcomes if name == "all" else outcomes[0])


def _chosen(name: str, data: Path | None) -> list[str]:
    """Return the experiments to run; with "all", print those whose data is missing."""
    from pasto_research.paper import EXPERIMENTS

    if name != "all":
        return [name]
    lacking = [each for each, experiment in EXPERIMENTS.items() if experiment.needs and data is None]
    if lacking:
        echo(f"left out, because they need --data: {', '.join(lacking)}", err=True)
    return [each for each in EXPERIMENTS if each not in lacking]


def _list(as_json: bool) -> None:
    from pasto_research.paper import EXPERIMENTS

    if as_json:
        print_json([{"name": each.name, "summary": each.summary} for each in EXPERIMENTS.values()])
        return
    print_table(console(), ["name", "reproduces"], [[e.name, e.summary] for e in EXPERIMENTS.values()], text={0, 1})


def _prepare(directory: Path) -> None:
    """Check before a long run that its figures can be written."""
    from pasto.report.figures import new_figure

    new_figure()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {str(directory)!r}: {error.strerror}") from error


def _print(screen: Console, outcome: Outcome) -> None:
    screen.print(outcome.title, style="bold")
    screen.print(", ".join(f"{name} {value}" for name, value in outcome.settings.items()), style="dim")
    screen.print()
    for claim in outcome.claims:
        _print_claim(screen, claim)
    for table in outcome.tables:
        rows = [[_cell(cell) for cell in row] for row in table.rows]
        words = {place for place, _ in enumerate(table.header) if any(_is_word(row[place]) for row in table.rows)}
        print_table(screen, table.header, rows, title=table.title, text=words)
        screen.print()


def _print_claim(screen: Console, claim: Claim) -> None:
    from rich.padding import Padding
    from rich.text import Text

    verdict, colour = VERDICTS[claim.holds]
    screen.print(Text.assemble((claim.what, "bold"), ": ", (verdict, colour)))
    for label, text in (("paper", claim.paper), ("measured", claim.measured), ("note", claim.note)):
        if text:
            screen.print(Padding(f"{label}: {text}", (0, 0, 0, 2), expand=False))
    screen.print()


def _cell(cell: str | float | int | None) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else f"{cell:,}" if isinstance(cell, int) else format_number(cell)


def _is_word(cell: str | float | int | None) -> bool:
    return isinstance(cell, str) and not cell.lstrip("+-−")[:1].isdigit()
