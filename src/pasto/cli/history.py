"""`pasto history`: tables of earlier results, from which a study can start."""

from __future__ import annotations

import csv
import sys
from typing import Any

import click

from pasto.cli.means_file import read_rows
from pasto.cli.options import as_json_option
from pasto.cli.output import print_json
from pasto.errors import InputError

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a text that spreadsheets compute."""
SIGNIFICANT_DIGITS = 12
"""Digits of a number in a table, of which the last few of a double are rounding errors."""


@click.group(
    short_help="Make tables of earlier results, from which a study can start.",
    epilog="\b\nExample:\n  pasto history estimate log.csv --metric watch_time --metric likes > past.csv\n",
)
def history() -> None:
    """Make tables of earlier results, from which `pasto study create --history` starts a study."""


@history.command(
    short_help="Estimate candidates' means from a log with propensities.",
    epilog="""\b
Examples:
  pasto history estimate log.csv --metric watch_time --metric likes > past.csv
  pasto history estimate log.parquet --metric likes --parameter weight --unit user > past.csv
  pasto history estimate log.csv --metric likes --method dr --feature country --feature age > past.csv
""",
)
@click.argument("log")
@click.option("--metric", "metrics", multiple=True, required=True, metavar="COLUMN", help="Metric; repeat it for more.")
@click.option(
    "--candidate",
    default="candidate",
    show_default=True,
    metavar="COLUMN",
    help="Column of the name of the candidate that was served.",
)
@click.option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="COLUMN",
    help="Instead of --candidate: a column of a parameter's value; repeat it for each parameter.",
)
@click.option(
    "--propensity",
    default="propensity",
    show_default=True,
    metavar="COLUMN",
    help="Column of the probability with which the row's candidate was drawn.",
)
@click.option(
    "--method",
    type=click.Choice(["ips", "snips", "dr"]),
    default="snips",
    show_default=True,
    help="Inverse propensity, self-normalised, or doubly robust.",
)
@click.option("--unit", metavar="COLUMN", help="Column of the independent unit, if units have several rows.")
@click.option(
    "--feature",
    "features",
    multiple=True,
    metavar="COLUMN",
    help="For dr: a column that was known before the candidate was drawn; repeat it for more.",
)
@as_json_option
def estimate(
    log: str,
    metrics: tuple[str, ...],
    candidate: str,
    parameters: tuple[str, ...],
    propensity: str,
    method: str,
    unit: str | None,
    features: tuple[str, ...],
    as_json: bool,
) -> None:
    """Estimate every candidate's means, with standard errors, from units that another policy served.

    LOG is a CSV, JSON or Parquet file, or - for stdin, with a row for each user, session or request. The table goes to
    stdout as CSV. Candidates with less than ten effective units are left out, with a note.
    """
    from pasto.study import history_from_log

    if (method == "dr") != bool(features):
        raise InputError(
            "--method dr needs --feature with a column that was known before the candidate was drawn"
            if method == "dr"
            else f"--feature is for --method dr, got --method {method}; add --method dr, or leave --feature out"
        )
    rows = history_from_log(
        read_rows(log),
        list(metrics),
        candidate=list(parameters) or candidate,
        propensity=propensity,
        method=method,  # type: ignore[arg-type]
        unit=unit,
        features=features,
    ).to_rows()
    if as_json:
        print_json(rows)
        return
    _refuse_formulas(rows)
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({column: _shorten(cell) for column, cell in row.items()} for row in rows)


def _shorten(cell: Any) -> Any:
    """Return a number with the digits that an estimate can have, and anything else as it is."""
    return f"{cell:.{SIGNIFICANT_DIGITS}g}" if isinstance(cell, float) else cell


def _refuse_formulas(rows: list[dict[str, Any]]) -> None:
    """Raise an error if a spreadsheet that opens the table would compute one of its texts."""
    for row in rows:
        for column, cell in row.items():
            if isinstance(cell, str) and cell.startswith(FORMULA_STARTS):
                raise InputError(
                    f"{column} {cell!r} would be a formula in a spreadsheet; rename it in the log, or pass --json"
                )
