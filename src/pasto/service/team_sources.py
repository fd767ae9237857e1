"""Team sources: the places where teams keep their own events, and the last failure to read each.

The service's operator names the places. A study file refers to them only by name.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from pasto.errors import InputError, MissingExtraError, SourceError, StoreError
from pasto.metrics import Column, Moments
from pasto.metrics.measurement import measure_tables
from pasto.metrics.sources.files import FORMATS, open_duckdb
from pasto.metrics.sources.team_tables import TeamTables
from pasto.report.records import SourceProblem
from pasto.service.study_file.spec import TeamSource
from pasto.store import OutboxRow, Store, StudyRow
from pasto_sdk.policy import PublishedPolicy

SPARK = ("sc://", "spark://", "local[", "yarn", "k8s://")
POSTGRES = ("postgresql://", "postgres://")
_DRIVERS = {"postgres": ("postgres", "PostgreSQL"), "spark": ("spark", "Spark"), "duckdb": ("serve", "files")}
"""By dialect: the extra that brings its driver, and what it reads."""
CONNECT_SECONDS = 10
"""Time limit to connect to a source, unless its address has one."""


class OpenSource(NamedTuple):
    """Open source of a team."""

    connection: Any
    """A connection to DuckDB or PostgreSQL, or a Spark session."""
    dialect: str
    tables: TeamTables
    """The study's tables, by the names that they have there."""


def measure_there(
    source: TeamSource,
    policy: PublishedPolicy,
    columns: tuple[Column, ...],
    environment: Mapping[str, str] | None = None,
    *,
    since: int | None = None,
    is_external: bool = False,
) -> tuple[Moments, ...]:
    """Measure a policy's units in a team's own tables; SourceError if they cannot be read or do not fit.

    `since` is the first version that assigns units as the policy does; covariates end before it. With `is_external`,
    the candidates that exposures name count.
    """
    with open_source(source, environment) as opened:
        return measure_tables(*opened, policy, columns, since, is_external=is_external)


def place_of(source: TeamSource, environment: Mapping[str, str] | None = None) -> str:
    """Return the address of a source, from the variable PASTO_SOURCE_NAME.

    That is postgresql://…, Spark's master or remote address, or a folder in which each table is a folder or file of
    Parquet or CSV.
    """
    variable = f"PASTO_SOURCE_{source.origin.upper()}"
    place = (os.environ if environment is None else environment).get(variable, "")
    if not place:
        raise SourceError(
            f"the study's source is {source.origin!r}, and {variable} is not set; set it to where that is, for the "
            "service and for commands that work on its store"
        )
    return place


@contextmanager
def open_source(source: TeamSource, environment: Mapping[str, str] | None = None) -> Iterator[OpenSource]:
    """Open a source; errors of its engine are raised as SourceError."""
    place = place_of(source, environment)
    dialect = dialect_of(place)
    with explain_errors(source.origin, dialect):
        if dialect == "postgres":
            with _postgres(place) as connection:
                connection.read_only = True
                yield OpenSource(connection, dialect, source.tables)
        elif dialect == "spark":
            yield OpenSource(_spark(place), dialect, source.tables)
        else:
            with closing(open_duckdb(_files(Path(place), source.tables))) as connection:
                yield OpenSource(connection, dialect, flatten(source.tables))


def dialect_of(place: str) -> str:
    """Return the engine that reads a place.

    >>> dialect_of("/data/lake"), dialect_of("postgresql://db/events"), dialect_of("sc://cluster")
    ('duckdb', 'postgres', 'spark')
    """
    if place.startswith(POSTGRES):
        return "postgres"
    return "spark" if place.startswith(SPARK) else "duckdb"


@contextmanager
def explain_errors(origin: str, dialect: str) -> Iterator[None]:
    """Turn the errors of an engine, and those of tables that do not fit, into a SourceError."""
    errors = _engine_errors(dialect)
    try:
        yield
    except (InputError, OSError, errors) as error:
        raise SourceError(f"the source {origin!r} could not be read: {str(error).strip()}") from error


def find_files(folder: Path, table: str) -> Path | None:
    """Return the folder or file of a table; a dot in its name is a folder."""
    path = folder.joinpath(*table.split("."))
    files = (path, *(path.with_name(f"{path.name}.{kind}") for kind in FORMATS))
    there = [file for file in files if os.path.lexists(file)]
    if len(there) > 1:
        raise SourceError(
            f"the table {table!r} is in several places: {', '.join(map(str, there))}. Keep one of them: a folder of "
            "files of one kind, or one file."
        )
    return there[0] if there else None


def flatten(tables: TeamTables) -> TeamTables:
    """Return the tables by the names that their views have in DuckDB."""
    events = tuple(replace(table, table=view_name(table.table)) for table in tables.events)
    return TeamTables(replace(tables.exposures, table=view_name(tables.exposures.table)), events)


def view_name(table: str) -> str:
    """Return the name of a table's view: a dot would separate a schema from a table."""
    return table.replace(".", "/")


def _files(folder: Path, tables: TeamTables) -> dict[str, str]:
    """Return the path of each table's files."""
    paths = {}
    for name in (tables.exposures.table, *(table.table for table in tables.events)):
        files = find_files(folder, name)
        if files is None:
            raise SourceError(
                f"the table {name!r} is not a folder of {folder}, and not a file of {' or '.join(FORMATS)}"
            )
        paths[view_name(name)] = str(files)
    return paths


def _engine_errors(dialect: str) -> type[Exception]:
    """Return the class of all errors of an engine's driver; MissingExtraError if it is not installed."""
    try:
        if dialect == "postgres":
            return importlib.import_module("psycopg").Error  # type: ignore[no-any-return]
        if dialect == "spark":
            return importlib.import_module("pyspark.errors").PySparkException  # type: ignore[no-any-return]
        return importlib.import_module("duckdb").Error  # type: ignore[no-any-return]
    except ImportError as error:
        extra, name = _DRIVERS[dialect]
        raise MissingExtraError(f"tables in {name} need its driver", extra) from error


def _postgres(place: str) -> Any:
    import psycopg

    timeout = psycopg.conninfo.conninfo_to_dict(place).get("connect_timeout", CONNECT_SECONDS)
    return psycopg.connect(place, connect_timeout=timeout)


def _spark(place: str) -> Any:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    return (builder.remote(place) if place.startswith("sc://") else builder.master(place)).getOrCreate()


class SourceHealth:
    """Last failure of each study's source, stored so that every node and command can show it.

    `describe` returns the messages about a source that begins to fail, which are stored with the failure.

    >>> from pasto.store import open_store
    >>> store = open_store("memory:")
    >>> row = StudyRow("feed", 1, 1, "learning", "{}", 7, 3, 3, 0.0, 0.0)
    >>> health = SourceHealth(store, lambda: 60.0, lambda row, problem: [])
    >>> health.record_failure(row, SourceError("no such column"))
    >>> health.problem(row)
    SourceProblem(message='no such column', round=3, since=60.0)
    >>> health.record_success(row)
    >>> health.problem(row) is None
    True
    >>> store.close()
    """

    def __init__(
        self, store: Store, clock: Callable[[], float], describe: Callable[[StudyRow, SourceProblem], list[OutboxRow]]
    ) -> None:
        self._store = store
        self._clock = clock
        self._describe = describe

    def problem(self, row: StudyRow) -> SourceProblem | None:
        """Return the problem of a study's source with its round and start; None if the source works."""
        saved = json.loads(self._store.read_cache(_cache_name(row)) or "null")
        return None if saved is None else SourceProblem(**saved)

    def record_failure(self, row: StudyRow, error: SourceError) -> None:
        """Store why a round could not be measured; the time of the first failure in a row stays."""
        before = self.problem(row)
        problem = SourceProblem(str(error), row.round, self._clock() if before is None else before.since)
        if problem != before:
            messages = self._describe(row, problem) if before is None else []
            self._write(row, json.dumps(asdict(problem)), messages)

    def record_success(self, row: StudyRow) -> None:
        """Store that a round was measured."""
        if self.problem(row) is not None:
            self._write(row, "null")

    def _write(self, row: StudyRow, text: str, messages: Sequence[OutboxRow] = ()) -> None:
        with suppress(StoreError):  # the failure itself is raised, and must not be hidden by this one
            self._store.write_cache(_cache_name(row), text, messages)


def _cache_name(row: StudyRow) -> str:
    return f"source/{row.number}"
