"""`pasto solve`: from a file of means to the best blend."""

from __future__ import annotations

from difflib import get_close_matches

import click

from pasto.cli.means_file import note_percent, read_means
from pasto.cli.output import as_value, console, print_answer, print_json
from pasto.errors import MeansError, OptionError


@click.command(
    short_help="The best blend of candidates with known means.",
    epilog="""\b
Examples:
  pasto solve means.csv --maximize watch_time --keep "like_rate >= 0.03"
  pasto solve means.csv --maximize watch --keep "load <= 9" --keep "likes >= 4"
  pasto solve means.csv --maximize watch --keep "likes >= -2%" --baseline now
""",
)
@click.argument("means")
@click.option(
    "--maximize",
    multiple=True,
    metavar="METRIC",
    help="Raise a metric or a ratio (likes/views); given several times, a sum with weights (comments=0.3).",
)
@click.option("--minimize", multiple=True, metavar="METRIC", help="Lower a metric, likewise.")
@click.option(
    "--keep",
    multiple=True,
    metavar="GUARDRAIL",
    help='Hold a metric: "y >= 0", "latency <= 200", "likes/views >= 0.03"; against the baseline, "y >= -2%"; '
    'soft, "y >= 0, penalty=5".',
)
@click.option("--name", metavar="COLUMN", help="The column that holds the candidates' names.")
@click.option("--baseline", metavar="NAME", help="The candidate that percentages are counted against.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
def solve(
    means: str,
    maximize: tuple[str, ...],
    minimize: tuple[str, ...],
    keep: tuple[str, ...],
    name: str | None,
    baseline: str | None,
    as_json: bool,
) -> None:
    """Find the best blend of candidates whose mean metrics are known.

    MEANS is a CSV file with a header and one row for each candidate, JSON ({"x": [2, 0], "y": [-2, 2]} or a list of
    rows), a Parquet file, or - for stdin. A first column of text holds the candidates' names, and a column in which
    pandas numbered the rows is left out; every column of numbers is a metric. 3% is read as 0.03.

    A guardrail is hard, or soft where it has a penalty. Where no blend meets every hard guardrail the nearest one is
    printed, with what it misses, and the exit code is 1.
    """
    table = read_means(means, name)
    from pasto.objective import parse_objective
    from pasto.optimize import solve as best

    objective = parse_objective(maximize=maximize, minimize=minimize, keep=keep)
    if text := [metric for metric in objective.metrics if metric in table.ignored]:
        raise MeansError(f"column {text[0]!r} holds no numbers, so it cannot be a metric")
    if unknown := [metric for metric in objective.metrics if metric not in table.metrics]:
        close = get_close_matches(unknown[0], table.metrics, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        has = ", ".join(map(repr, table.metrics))
        raise MeansError(f"{'stdin' if means == '-' else means} has no metric {unknown[0]!r}; it has {has}{hint}")
    if baseline is None and any(rail.relative for rail in objective.guardrails):
        raise OptionError(
            "a guardrail in percent is relative to a baseline, and none was named; name the candidate that is "
            "served today with --baseline, or write the threshold in the metric's own units"
        )
    note_percent(table)
    blend = best(table.metrics, objective, names=table.names, baseline=baseline)
    if as_json:
        print_json(as_value(blend, objective))
    else:
        print_answer(console(), blend, objective, table, baseline)
    if not blend.feasible:
        raise click.exceptions.Exit(1)
