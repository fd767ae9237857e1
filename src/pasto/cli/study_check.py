"""`pasto study check`: validation of a study file and of the tables that it names."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pasto.cli.connection import api_options, open_api
from pasto.cli.options import as_json_option
from pasto.cli.output import console, echo, print_json, print_table

if TYPE_CHECKING:
    from pasto.service.study_api import StudyApi
    from pasto.service.study_check import StudyFileCheck
    from pasto.service.study_file import StudySpec

ENGINES = {"duckdb": "files, read by DuckDB", "postgres": "PostgreSQL", "spark": "Spark"}


history_option = click.option(
    "--history",
    metavar="FILE",
    help="Start from earlier results in this CSV, JSON or Parquet file, a row for each setting.",
)


def load_with_history(file: Path, history: str | None) -> StudySpec:
    """Return the study of a file, which starts from the results in another file if one is named."""
    from pasto.cli.means_file import read_rows
    from pasto.service.study_file import load_spec, parse_spec

    spec = load_spec(file)
    return spec if history is None else parse_spec({**spec.document, "history": read_rows(history)})


@click.command(
    short_help="Check a study file and its tables without creating a study.",
    epilog="\b\nExample:\n  pasto study check feed.yaml\n",
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@history_option
@api_options
@as_json_option
def check(file: Path, history: str | None, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Check a study file and, if it has a `source:`, its tables, columns, types and permissions. No study is created.

    The service at --url, or the one that runs on the store, checks with its own PASTO_SOURCE_… variables. Without a
    service, the command uses the variables of its own environment. The exit code is 2 if there is a problem.
    """
    from pasto.service.study_check import check_file

    document = load_with_history(file, history).document
    with _open_api_if_any(store, url, key) as api:
        result = check_file(document) if api is None else api.check(document)
    for warning in result.warnings:
        echo(f"note: {warning}", err=True)
    if as_json:
        print_json(result)
    else:
        _print(file, result)


def _open_api_if_any(store: str, url: str | None, key: str | None) -> AbstractContextManager[StudyApi | None]:
    """Return the connection to the studies; it is None if there is neither a service nor a store."""
    exists = "://" in store or store == "memory:" or Path(store).exists()
    return open_api(store, url, key) if url or exists else nullcontext()


def _print(file: Path, result: StudyFileCheck) -> None:
    screen = console()
    name, existing = result.name, result.existing
    can = f"the study {name!r} can be created" if existing is None else f"a study {name!r} exists ({existing})"
    screen.print(f"{file}: the file is valid, and {can}. Nothing was created.")
    source = result.source
    if source is None:
        return
    types = source.tables.values()
    checked = "every column fits"
    if None in types:
        checked = "every column that could be checked fits" if any(types) else "no column could be checked yet"
    screen.print(f"source {source.origin}: {ENGINES[source.engine]}; {checked}\n")
    rows = [
        [table, "no files yet" if types is None else ", ".join(f"{name} {kind}" for name, kind in types.items())]
        for table, types in source.tables.items()
    ]
    print_table(screen, ["table", "columns"], rows, text=(0, 1))
