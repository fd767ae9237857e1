"""`pasto store`: backup, check, archive and erasure of stored data."""

from __future__ import annotations

from pathlib import Path

import click

from pasto.cli.connection import api_options, current_user, open_api, open_writable_store, print_store, store_option
from pasto.cli.options import DurationType, reason_option
from pasto.cli.output import echo
from pasto.errors import InputError


@click.group(
    short_help="Back up, restore, check, archive and erase stored data.",
    epilog="\b\nExample:\n  pasto store backup monday.db --store pasto-data\n",
)
def store() -> None:
    """Back up, restore, check, measure, archive, compact and erase the data in a store.

    A backup is one file. It can be restored into another kind of store: this is how studies move from a directory to
    PostgreSQL.
    """


@store.command(short_help="Write the whole store to one file.", epilog="\b\nExample:\n  pasto store backup monday.db\n")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@store_option
def backup(file: Path, store: str) -> None:
    """Write the whole store to one new file. The backup is consistent, also while a service writes to the store."""
    if file.exists():
        raise InputError(f"{str(file)!r} exists already, and a backup never overwrites a file; name another file")
    from pasto.store.read_only_store import open_read_only

    print_store(store)
    with open_read_only(store) as opened:
        opened.write_backup(file)
    echo(f"wrote {file} ({file.stat().st_size / 1e6:,.1f} MB)", err=True)


@store.command(
    short_help="Restore a backup into an empty store.",
    epilog="\b\nExample:\n  pasto store restore monday.db --store postgresql://pasto@db/pasto\n",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@store_option
def restore(file: Path, store: str) -> None:
    """Restore a backup into an empty store."""
    with open_writable_store(store, restoring=True) as opened:
        opened.restore_backup(file)
    echo(f"restored {file} into {store}", err=True)


@store.command(short_help="Check a store for damage.", epilog="\b\nExample:\n  pasto store check\n")
@store_option
def check(store: str) -> None:
    """Check a store for damage, and print one line for each problem. The exit code is 1 if there is a problem.

    The command reads every row and compares it with its checksum. It also checks that no acknowledged event is missing
    at the end of the store. PostgreSQL compares events with its own checksums; without these, a warning is printed.
    """
    from pasto.store.read_only_store import open_read_only

    print_store(store)
    with open_read_only(store) as opened:
        problems, risks = list(opened.check_integrity()), list(opened.find_risks())
    for risk in risks:
        echo(f"warning: {risk}", err=True)
    for problem in problems:
        echo(problem)
    if problems:
        raise click.exceptions.Exit(1)
    echo("no damage found", err=True)


@store.command(
    short_help="Print the number of events and the size on disk.", epilog="\b\nExample:\n  pasto store show\n"
)
@store_option
def show(store: str) -> None:
    """Print the number of events in a store and its size on disk. A service may run at the same time."""
    from pasto.store.read_only_store import open_read_only

    print_store(store)
    with open_read_only(store) as opened:
        size = opened.measure_size()
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


@store.command(
    short_help="Return the space of deleted events to the disk.", epilog="\b\nExample:\n  pasto store compact\n"
)
@store_option
def compact(store: str) -> None:
    """Return the space of deleted events to the disk.

    New events reuse that space, so this is only needed to make the store smaller. Stop the service first. An embedded
    store is rewritten completely, which needs free disk space of the same size. With PostgreSQL the service may keep
    running, and the freed space stays reserved for new events.
    """
    if store != "memory:" and "://" not in store and not Path(store).exists():
        raise InputError(f"there is no store in {store!r}; name another with --store")
    with open_writable_store(store) as opened:
        before = opened.measure_size().bytes
        opened.compact()
        after = opened.measure_size().bytes
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
    help="Folder of the archive; by default, `archive` in the store's directory.",
)


@store.command(
    short_help="Move events of finished rounds to Parquet files.",
    epilog="\b\nExamples:\n  pasto store archive feed\n  pasto store archive feed --delete-older-than 90d\n",
)
@click.argument("study")
@click.option(
    "--delete-older-than",
    type=DurationType(),
    metavar="TIME",
    help="Also delete archived events of rounds that closed longer ago than this.",
)
@archive_option
@api_options
def archive(
    study: str, delete_older_than: float | None, folder: Path | None, store: str, url: str | None, key: str | None
) -> None:
    """Move the events of every final round from the store to Parquet files, by study and round.

    A round is final when it is learned and no late event can correct it. About 24 bytes for each event stay in the
    store, to recognize duplicates. `pasto study replay` reads the files. If the command is interrupted, run it again.
    """
    with open_api(store, url, key, folder) as api:
        archived = api.archive_events(study, who=current_user(), delete_older=delete_older_than)
    echo(f"archived {archived.events:,} events in {archived.files:,} new files", err=True)
    if rounds := archived.deleted_rounds:
        echo(f"deleted the events of {len(rounds):,} rounds, up to round {max(rounds)}", err=True)


@store.command(
    "erase-unit",
    short_help="Delete all data of one unit in a study.",
    epilog='\b\nExample:\n  pasto store erase-unit feed user-7 --reason "deletion request"\n',
)
@click.argument("study")
@click.argument("unit")
@reason_option
@archive_option
@api_options
def erase_unit(
    study: str, unit: str, reason: str, folder: Path | None, store: str, url: str | None, key: str | None
) -> None:
    """Delete all data of one unit (such as a user) in a study, also from the archive.

    The measured totals of closed rounds stay. The audit log records how many events were deleted, but not of which
    unit. Afterwards `pasto study replay` reports identical policies except for deleted units.
    """
    with open_api(store, url, key, folder) as api:
        deleted = api.erase_unit(study, unit, who=current_user(), reason=reason)
    echo(f"deleted {deleted.events:,} events in {len(deleted.rounds):,} rounds", err=True)
