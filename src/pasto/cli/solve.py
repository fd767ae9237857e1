"""`pasto solve`: the best blend for a file of means."""

from __future__ import annotations

import math
from difflib import get_close_matches

import click

from pasto.cli.means_file import SegmentedMeans, note_percent, read_segmented_means
from pasto.cli.options import as_json_option
from pasto.cli.output import (
    as_segmented_value,
    as_value,
    console,
    print_answer,
    print_json,
    print_segmented_answer,
)
from pasto.errors import MeansError, OptionError


@click.command(
    short_help="Find the best blend of candidates with known means.",
    epilog="""\b
Examples:
  pasto solve means.csv --maximize watch_time --keep "like_rate >= 0.03"
  pasto solve means.csv --maximize watch --keep "load <= 9" --keep "likes >= 4"
  pasto solve means.csv --maximize watch --keep "likes >= -2%" --baseline now
  pasto solve means.csv --maximize watch --keep "likes >= 4" --segments new=0.3,heavy=0.7
""",
)
@click.argument("means")
@click.option(
    "--maximize",
    multiple=True,
    metavar="METRIC",
    help="Metric or ratio (likes/views) to maximize. Repeat it for a sum, with weights: comments=0.3.",
)
@click.option(
    "--minimize", multiple=True, metavar="METRIC", help="Metric or ratio to minimize; written like --maximize."
)
@click.option(
    "--keep",
    multiple=True,
    metavar="GUARDRAIL",
    help='Guardrail: "y >= 0", "latency <= 200" or "likes/views >= 0.03". Relative to the baseline: "y >= -2%". Soft: '
    '"y >= 0, penalty=5".',
)
@click.option("--name-column", metavar="COLUMN", help="Column with the candidates' names.")
@click.option("--baseline", metavar="NAME", help="Candidate that percentages refer to.")
@click.option(
    "--segments",
    "shares",
    metavar="NAME=SHARE,...",
    callback=lambda context, parameter, text: None if text is None else read_segment_shares(text),
    help="Shares of traffic, as in new=0.3,heavy=0.7, for a blend for each segment. The column segment of MEANS names "
    'the segment of each row, and a guardrail can limit each: "y >= 0, within=each".',
)
@as_json_option
def solve(
    means: str,
    maximize: tuple[str, ...],
    minimize: tuple[str, ...],
    keep: tuple[str, ...],
    name_column: str | None,
    baseline: str | None,
    shares: dict[str, float] | None,
    as_json: bool,
) -> None:
    """Find the best blend of candidates whose mean metrics are known.

    MEANS is a CSV file with a header and one row for each candidate, JSON ({"x": [2, 0], "y": [-2, 2]} or a list of
    rows), a Parquet file, or - for stdin. If the first column is text, it holds the candidates' names. Every column of
    numbers is a metric, except the row numbers of pandas. 3% is read as 0.03.

    With segments, the answer is a blend for each, with the guardrails on all traffic together. JSON gives them as
    {"segments": {"new": 0.3, ...}, "means": {"new": {"x": [2, 0], ...}, ...}}.

    A guardrail is soft if it has a penalty, otherwise hard. If no blend meets every hard guardrail, the command prints
    the nearest blend with its violations, and the exit code is 1.
    """
    given = read_segmented_means(means, name_column, shares)
    tables = given.tables if isinstance(given, SegmentedMeans) else {"": given}
    table = next(iter(tables.values()))
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
            "a guardrail in percent needs a baseline, and none is given; name the candidate that is served today with "
            "--baseline, or write the threshold in the metric's own units"
        )
    for part in tables.values():
        note_percent(part)
    if isinstance(given, SegmentedMeans):
        means_by_segment = {name: part.metrics for name, part in tables.items()}
        blends = best(means_by_segment, objective, names=table.names, baseline=baseline, segments=given.shares)
        feasible = blends.feasible
        if as_json:
            print_json(as_segmented_value(blends, objective))
        else:
            print_segmented_answer(console(), blends, objective, baseline)
    else:
        blend = best(table.metrics, objective, names=table.names, baseline=baseline)
        feasible = blend.feasible
        if as_json:
            print_json(as_value(blend, objective))
        else:
            print_answer(console(), blend, objective, table, baseline)
    if not feasible:
        raise click.exceptions.Exit(1)


def read_segment_shares(text: str) -> dict[str, float]:
    """Read the shares of traffic of segments.

    >>> read_segment_shares("new=0.3, heavy=0.7")
    {'new': 0.3, 'heavy': 0.7}
    """
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = (piece.strip() for piece in part.rpartition("="))
        try:
            number = float(share)
        except ValueError:
            number = math.nan
        if not name or math.isnan(number):
            raise OptionError(
                f"--segments got {part.strip()!r}; write each segment as NAME=SHARE, as in new=0.3,heavy=0.7"
            )
        if name in shares:
            raise OptionError(f"--segments has {name!r} twice; give each segment one share")
        shares[name] = number
    return shares
