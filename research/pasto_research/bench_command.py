"""Command `pasto bench`: benchmarks of PASTO and of other ways of doing the same work."""

from __future__ import annotations

from typing import Any

import click

from pasto.cli.environment import missing_extra, use_common_arithmetic
from pasto.cli.options import as_json_option
from pasto.cli.output import console, print_json, print_table, progress_bar
from pasto.formatting import format_number


class BenchmarkCommand(click.Command):
    """Command whose help lists the benchmarks."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the benchmarks, then the examples."""
        try:
            from pasto_research.bench import BENCHMARKS
        except ModuleNotFoundError as error:  # help is there before an extra is installed
            if (missing := missing_extra("pasto bench", error)) is None:
                raise
            formatter.write_paragraph()
            formatter.write_text(str(missing))
            return

        with formatter.section("Benchmarks"):
            formatter.write_dl([(name, benchmark.summary) for name, benchmark in BENCHMARKS.items()])
        super().format_epilog(ctx, formatter)


@click.command(
    cls=BenchmarkCommand,
    short_help="Measure PASTO next to other ways of doing the same work.",
    epilog="""\b
Examples:
  pasto bench
  pasto bench solve --json
  pasto bench learners --quick --out bench-results
""",
)
@click.argument("name", default="list")
@click.option("--quick", is_flag=True, help="Run a smaller size: about a minute, with less precise numbers.")
@click.option("--out", type=click.Path(file_okay=False), help="Write JSON and figures (PNG, SVG) into this directory.")
@as_json_option
def bench(name: str, quick: bool, out: str | None, as_json: bool) -> None:
    """Measure PASTO and other ways of doing the same work, in the same run on this machine.

    NAME is one of the benchmarks below, "all" for every one of them, or "list" (or nothing) to list them.
    """
    use_common_arithmetic()
    from pasto_research.bench import BENCHMARKS, run, write

    if name == "list":
        entries = [{"name": benchmark.name, "summary": benchmark.summary} for benchmark in BENCHMARKS.values()]
        if as_json:
            print_json(entries)
        else:
            print_table(
                console(), ["name", "measures"], [list(benchmark.values()) for benchmark in entries], text={0, 1}
            )
        return
    reports = []
    for each in BENCHMARKS if name == "all" else [name]:
        with progress_bar() as progress:
            report = run(each, quick=quick, progress=progress)
        reports.append({"name": each, **report.plain()})
        if out is not None:
            write(each, report, out)
        if as_json:
            continue
        screen = console()
        for table in report.tables:
            header = [column.replace("_", " ") for column in table.rows[0]]
            rows = [[_cell(cell) for cell in row.values()] for row in table.rows]
            print_table(screen, header, rows, title=table.title)
            if table.note:
                screen.print(table.note, style="dim")
            screen.print()
    if as_json:
        print_json(reports if name == "all" else reports[0])


def _cell(cell: Any) -> str:
    if cell is None:
        return "–"
    return (
        cell if isinstance(cell, str) else f"{cell:,}" if isinstance(cell, int) else format_number(float(f"{cell:.3g}"))
    )
