"""Places where teams keep their own events: named by the service's operator, and only by name in a study file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from pasto.assign import Published
from pasto.errors import BadOption, MissingExtra, StoreError
from pasto.measure import Column, Moments
from pasto.measure.sources.files import FORMATS, duckdb_over
from pasto.measure.sources.measuring import measure_tables
from pasto.measure.sources.tables import Tables
from pasto.service.spec.sourced import Sourced

SPARK = ("sc://", "spark://", "local[", "yarn", "k8s://")


def measure_there(
    source: Sourced,
    policy: Published,
    columns: tuple[Column, ...],
    environment: Mapping[str, str] | None = None,
    *,
    since: int | None = None,
) -> tuple[Moments, ...]:
    """What a policy's units did, from a team's own tables.

    The place is what the variable PASTO_SOURCE_NAME says: postgresql://…, Spark's master or remote address, or a folder
    in which each table is a folder or file of Parquet or CSV. `since` is the first version that deals units as the
    policy does, which covariates end before.
    """
    variable = f"PASTO_SOURCE_{source.origin.upper()}"
    place = (os.environ if environment is None else environment).get(variable, "")
    if not place:
        raise BadOption(f"the study's source is {source.origin!r}, and {variable} is not set; set it to where that is")
    if place.startswith(("postgresql://", "postgres://")):
        return _postgres(place, source, policy, columns, since)
    if place.startswith(SPARK):
        return measure_tables(_spark(place), "spark", source.tables, policy, columns, since)
    with closing(duckdb_over(_files(Path(place), source.tables))) as connection:
        return measure_tables(connection, "duckdb", _single(source.tables), policy, columns, since)


def _postgres(
    place: str, source: Sourced, policy: Published, columns: tuple[Column, ...], since: int | None
) -> tuple[Moments, ...]:
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtra("tables in PostgreSQL need its driver: pip install 'pasto[postgres]'") from error
    try:
        with psycopg.connect(place) as connection:
            connection.read_only = True
            return measure_tables(connection, "postgres", source.tables, policy, columns, since)
    except psycopg.Error as error:
        raise StoreError(f"the source {source.origin!r} could not be read: {error}") from error


def _spark(place: str) -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingExtra("tables in Spark need it: pip install 'pasto[spark]'") from error
    builder: Any = SparkSession.builder
    return (builder.remote(place) if place.startswith("sc://") else builder.master(place)).getOrCreate()


def _files(folder: Path, tables: Tables) -> dict[str, str]:
    """Where each table's files are; a dot in its name is a folder."""
    found = {}
    for name in (tables.exposures.table, *(table.table for table in tables.events)):
        path = folder.joinpath(*name.split("."))
        files = [path, *(path.with_name(f"{path.name}.{kind}") for kind in FORMATS)]
        there = next((str(file) for file in files if file.exists()), None)
        if there is None:
            raise BadOption(f"the table {name!r} is no folder of {folder}, and no file of {' or '.join(FORMATS)}")
        found[_flat(name)] = there
    return found


def _single(tables: Tables) -> Tables:
    """The tables by the names that their views have."""
    events = tuple(replace(table, table=_flat(table.table)) for table in tables.events)
    return Tables(replace(tables.exposures, table=_flat(tables.exposures.table)), events)


def _flat(name: str) -> str:
    return name.replace(".", "/")
