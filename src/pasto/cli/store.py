"""`pasto store`: care of what is kept."""

from __future__ import annotations

from pathlib import Path

import click

from pasto.cli.connection import desk_options, me, open_api, open_service, print_store, store_option
from pasto.cli.duration_option import DurationType
from pasto.cli.output import echo
from pasto.errors import InputError


@click.group(
    short_help="Back up, check, archive and forget what is kept.",
    epilog="\b\nExample:\n  pasto store backup monday.db --store pasto-data\n",
)
def store() -> None:
    """Care of what is kept: back up, restore, check, show, archive, compact, forget.

    A backup is one file, whatever kind of store it came from, and can be restored into another kind: that is also how
    a study moves from a directory to PostgreSQL.
    """


@store.command(short_help="Everything into one file.", epilog="\b\nExample:\n  pasto store backup monday.db\n")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@store_option
def backup(file: Path, store: str) -> None:
    """Write everything into one new file; consistent, also while the service goes on writing."""
    if file.exists():
        raise InputError(f"{str(file)!r} is there already; a backup never writes over a file")
    from pasto.store.read_only_store import open_read_only

    print_store(store)
    with open_read_only(store) as kept:
        kept.write_backup(file)
    echo(f"wrote {file} ({file.stat().st_size / 1e6:,.1f} MB)", err=True)


@store.command(
    short_help="A backup into an empty store.",
    epilog="\b\nExample:\n  pasto store restore monday.db --store postgresql://pasto@db/pasto\n",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@store_option
def restore(file: Path, store: str) -> None:
    """Fill an empty store from a backup."""
    with open_service(store, restoring=True) as kept:
        kept.restore_backup(file)
    echo(f"restored {file} into {store}", err=True)


@store.command(short_help="Look for damage.", epilog="\b\nExample:\n  pasto store check\n")
@store_option
def check(store: str) -> None:
    """Look for damage in a store, one finding a line; exit code 1 if there is any.

    Every row is read and compared with its checksum, and the end of the store with what was acknowledged. PostgreSQL
    compares events with checksums of its own: a warning is printed if the server has none.
    """
    from pasto.store.read_only_store import open_read_only

    print_store(store)
    with open_read_only(store) as kept:
        findings, risks = list(kept.check_integrity()), list(kept.find_risks())
    for risk in risks:
        echo(f"warning: {risk}", err=True)
    for finding in findings:
        echo(finding)
    if findings:
        raise click.exceptions.Exit(1)
    echo("all is well", err=True)


@store.command(short_help="How much is kept, and how much room it takes.", epilog="\b\nExample:\n  pasto store show\n")
@store_option
def show(store: str) -> None:
    """Show how much a store holds and how much room that takes, also while a service writes it."""
    from pasto.store.read_only_store import open_read_only

    print_store(store)
    with open_read_only(store) as kept:
        size = kept.measure_size()
    free = "not known" if size.free_bytes is None else _megabytes(size.free_bytes)
    lines = [
        ("size", _megabytes(size.bytes)),
        ("free", free),
        ("events in the store", f"{size.events:,}"),
        ("archived events", f"{size.archived:,}"),
        ("remembered ids", f"{size.ids:,}"),
        ("bytes an event", f"{size.bytes_an_event:,.1f}"),
    ]
    for name, value in lines:
        echo(f"{name:<19}  {value:>16}")


@store.command(short_help="Give back the room of deleted events.", epilog="\b\nExample:\n  pasto store compact\n")
@store_option
def compact(store: str) -> None:
    """Give back the room of deleted events to the disk.

    New events use that room in any case, so this is only needed if the store shall become smaller. Stop the service
    first: an embedded store is written again whole, which needs as much free disk as it holds. On PostgreSQL the
    service may go on, and what is freed is kept for new events.
    """
    if store != "memory:" and "://" not in store and not Path(store).exists():
        raise InputError(f"there is no store in {store!r}; name another with --store")
    with open_service(store) as kept:
        before = kept.measure_size().bytes
        kept.compact()
        after = kept.measure_size().bytes
    echo(f"compacted {store}: {_megabytes(before)} before, {_megabytes(after)} now", err=True)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


archive_option = click.option(
    "--archive",
    "folder",
    envvar="PASTO_ARCHIVE",
    show_envvar=True,
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the archive is; archive, in the store's directory, if left out.",
)


@store.command(
    short_help="Learned rounds' events into Parquet.",
    epilog="\b\nExamples:\n  pasto store archive feed\n  pasto store archive feed --delete-older 90d\n",
)
@click.argument("study")
@click.option(
    "--delete-older",
    type=DurationType(),
    metavar="TIME",
    help="Then delete archived events of rounds closed longer ago.",
)
@archive_option
@desk_options
def archive(
    study: str, delete_older: float | None, folder: Path | None, store: str, url: str | None, key: str | None
) -> None:
    """Move the events of every round that is final out of the store, into Parquet files by study and round.

    A round is final when it was learned and no late event can correct it any more. About 24 bytes an event stay in the
    store, by which a repeat is recognised; `pasto study replay` reads the files. If it is interrupted, run it again.
    """
    with open_api(store, url, key, folder) as desk:
        done = desk.archive_events(study, who=me(), delete_older=delete_older)
    gone = done["deleted_rounds"]
    echo(f"archived {done['events']:,} events in {done['files']:,} new files", err=True)
    if gone:
        echo(f"deleted the events of {len(gone):,} rounds, up to round {max(gone)}", err=True)


@store.command(
    short_help="Delete all that is kept of a unit.",
    epilog='\b\nExample:\n  pasto store forget feed user-7 --reason "asked to"\n',
)
@click.argument("study")
@click.argument("unit")
@click.option("--reason", default="", metavar="TEXT", help="Why, for the audit log.")
@archive_option
@desk_options
def forget(
    study: str, unit: str, reason: str, folder: Path | None, store: str, url: str | None, key: str | None
) -> None:
    """Delete all that is kept of a unit in a study, archive included.

    What rounds measured stays, and the audit log says how much was deleted, not of whom: `pasto study replay` then
    says identical except for deleted units.
    """
    with open_api(store, url, key, folder) as desk:
        done = desk.forget(study, unit, who=me(), reason=reason)
    echo(f"deleted {done['events']:,} events in {len(done['rounds']):,} rounds", err=True)
