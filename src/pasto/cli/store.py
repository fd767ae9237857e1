"""`pasto store`: care of what is kept."""

from __future__ import annotations

from pathlib import Path

import click

from pasto.cli.desk import opened, store_option
from pasto.errors import BadInput


@click.group(
    short_help="Back up, restore and check a store.",
    epilog="\b\nExample:\n  pasto store backup monday.db --store pasto-data\n",
)
def store() -> None:
    """Back up, restore and check where studies and events rest.

    A backup is one file, whatever kind of store it came from, and can be restored into another kind: that is also how
    a study moves from a directory to PostgreSQL.
    """


@store.command(short_help="Everything into one file.", epilog="\b\nExample:\n  pasto store backup monday.db\n")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@store_option
def backup(file: Path, store: str) -> None:
    """Write everything into one new file; consistent, also while the service goes on writing."""
    if file.exists():
        raise BadInput(f"{str(file)!r} is there already; a backup never writes over a file")
    from pasto.store.looking import looking

    with looking(store) as kept:
        kept.backup(file)
    click.echo(f"wrote {file} ({file.stat().st_size / 1e6:,.1f} MB)", err=True)


@store.command(
    short_help="A backup into an empty store.",
    epilog="\b\nExample:\n  pasto store restore monday.db --store postgresql://pasto@db/pasto\n",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@store_option
def restore(file: Path, store: str) -> None:
    """Fill an empty store from a backup."""
    with opened(store) as kept:
        kept.restore(file)
    click.echo(f"restored {file} into {store}", err=True)


@store.command(short_help="Look for damage.", epilog="\b\nExample:\n  pasto store check\n")
@store_option
def check(store: str) -> None:
    """Look for damage in a store, one finding a line; exit code 1 where there is any."""
    from pasto.store.looking import looking

    with looking(store) as kept:
        findings = list(kept.check())
    for finding in findings:
        click.echo(finding)
    if findings:
        raise click.exceptions.Exit(1)
    click.echo("all is well", err=True)
