"""`pasto holdout`: the share of units that no study may use, and its comparison with all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pasto.cli.connection import api_options, current_user, open_api
from pasto.cli.options import as_json_option, reason_option
from pasto.cli.output import console, echo, format_local_time, print_json, print_table
from pasto.errors import InputError
from pasto.formatting import format_percent

if TYPE_CHECKING:
    from pasto.service.holdout import HoldoutRecord


@click.group(short_help="Hold a share of units out of all studies.", epilog="\b\nExample:\n  pasto holdout set 5%\n")
def holdout() -> None:
    """Hold a share of units out of all studies, to measure the sum of all launches.

    Units of the holdout always get the baseline, without an exposure, also of deployed blends. Each study leaves them
    out from its next policy on.
    """


@holdout.command("set", short_help="Set the share of the holdout.", epilog="\b\nExample:\n  pasto holdout set 5%\n")
@click.argument("share")
@click.option(
    "--unit",
    default="user",
    show_default=True,
    metavar="UNIT",
    help="Unit of the studies that it applies to, as their files name it.",
)
@reason_option
@api_options
@as_json_option
def set_holdout(
    share: str, unit: str, reason: str, store: str, url: str | None, key: str | None, as_json: bool
) -> None:
    """Set the SHARE of units that no study may use, up to 50%. A larger share keeps the units of a smaller one."""
    with open_api(store, url, key, create=True) as api:
        record = api.set_holdout(share, unit=unit, who=current_user(), reason=reason)
    _print_holdout(record, as_json)


@holdout.command("show", short_help="Show the holdout.", epilog="\b\nExample:\n  pasto holdout show\n")
@api_options
@as_json_option
def show_holdout(store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Show the holdout, and since when each study leaves it out."""
    with open_api(store, url, key) as api:
        record = api.holdout()
    _print_holdout(record, as_json)


@holdout.command("delete", short_help="End the holdout.", epilog="\b\nExample:\n  pasto holdout delete\n")
@reason_option
@api_options
@as_json_option
def delete_holdout(reason: str, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """End the holdout. Each study may use all units again, from its next policy on."""
    with open_api(store, url, key) as api:
        record = api.delete_holdout(who=current_user(), reason=reason)
    _print_holdout(record, as_json)


@holdout.command(
    "sql",
    short_help="Print SQL that compares the holdout with all other units.",
    epilog="\b\nExample:\n  pasto holdout sql --table lake.users --column user_id --metric watch_time\n",
)
@click.option("--table", required=True, metavar="NAME", help="Your table or view with one row for each unit.")
@click.option("--column", default="unit", show_default=True, metavar="NAME", help="Its column of units.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    required=True,
    metavar="NAME",
    help="Column of what each unit did, 0 if it did nothing; can be repeated.",
)
@click.option(
    "--dialect",
    type=click.Choice(["duckdb", "postgres", "spark"]),
    default="duckdb",
    show_default=True,
    help="Engine that runs the query.",
)
@api_options
def print_sql(
    table: str,
    column: str,
    metrics: tuple[str, ...],
    dialect: str,
    store: str,
    url: str | None,
    key: str | None,
) -> None:
    """Print a query over your own table that compares the means of the holdout with those of all other units.

    PASTO gets no events of units in the holdout, so the measurement is made where all units are. Take units that were
    active before the time that is compared, and sums over a time in which every study left the holdout out.
    """
    from pasto.metrics.sql.assignment import HoldoutColumns, holdout_query
    from pasto.service.policy_builder import HOLDOUT_SALT, cut_at

    with open_api(store, url, key) as api:
        record = api.holdout()
    if not record.share:
        raise InputError("there is no holdout, so there is nothing to compare; set one with `pasto holdout set 5%`")
    for study in record.studies:
        if study.use != "left out" and study.state != "draft":
            echo(f"note: {study.study} does not leave the holdout out: {study.use}", err=True)
    until = cut_at(round(record.share * 1_000_000))
    echo(holdout_query(HoldoutColumns(table, column, metrics), HOLDOUT_SALT, until, dialect))


def _print_holdout(record: HoldoutRecord, as_json: bool) -> None:
    if as_json:
        print_json(record)
        return
    if record.share:
        since = "" if record.since is None else f", set {format_local_time(record.since)}"
        echo(f"{format_percent(record.share, 2)} of all units ({record.unit}) are held out of every study{since}")
    else:
        echo("there is no holdout")
    rows = [
        [
            study.study,
            study.state,
            study.unit,
            format_percent(study.share, 2),
            "" if study.since is None else format_local_time(study.since),
            study.use,
        ]
        for study in record.studies
        if record.share or study.share
    ]
    if rows:
        print_table(console(), ["study", "state", "unit", "left out", "since", "use"], rows, text=(0, 1, 2, 4, 5))
