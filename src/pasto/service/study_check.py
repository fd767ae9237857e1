"""Study check: a study file and the tables that it names, before a study is created from it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from pasto.errors import PastoError, SourceError, StudyFileError
from pasto.metrics.measurement import plan_tables
from pasto.metrics.sources.files import FORMATS, open_duckdb
from pasto.metrics.sources.table_check import find_problems, read_types
from pasto.metrics.sources.team_tables import TeamTables
from pasto.metrics.sql import DIALECTS, QueryBuilder
from pasto.service.study_file import StudySpec, parse_spec
from pasto.service.study_file.spec import TeamSource
from pasto.service.team_sources import dialect_of, explain_errors, find_files, open_source, place_of, view_name
from pasto_sdk.enrolment import AudienceCondition
from pasto_sdk.policy import PublishedPolicy, publish_policy

TableTypes = dict[str, dict[str, str] | None]
"""SQL type of each column, by table; None for a folder without files yet."""


class SourceCheck(Struct, frozen=True, rename={"origin": "from"}):
    """Tables of a study's own source, with the columns found in them."""

    origin: str
    engine: Annotated[str, Meta(extra_json_schema={"enum": ["duckdb", "postgres", "spark"]})]
    """Engine that reads the tables."""
    tables: Annotated[
        Mapping[str, Mapping[str, str] | None],
        Meta(description="The type of each column, by table; null for a folder without files yet."),
    ]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about tables whose columns could not be checked."""
        return tuple(
            f"the table {name!r} of the source {self.origin!r} has no files yet, so its columns were not checked; "
            "`pasto study check` checks them once there are some"
            for name, types in self.tables.items()
            if types is None
        )


@dataclass(frozen=True, slots=True)
class StudyFileCheck:
    """Result of checking a valid study file."""

    name: str
    warnings: tuple[str, ...]
    source: SourceCheck | None
    existing: str | None = None
    """State of the study that has the name already; None if there is none, or an archived one."""


def check_file(document: Mapping[str, Any]) -> StudyFileCheck:
    """Check a study file and the tables that it names, without a store; StudyFileError lists the problems.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> check_file(read_spec(EXAMPLE, "yaml").document)
    StudyFileCheck(name='feed', warnings=(), source=None, existing=None)
    """
    spec = parse_spec(document)
    source = check_source(spec)
    return StudyFileCheck(spec.name, (*spec.warnings, *(source.warnings if source else ())), source)


def check_source(spec: StudySpec, environment: Mapping[str, str] | None = None) -> SourceCheck | None:
    """Check the tables of a study, None if it has none; StudyFileError lists the problems by field.

    No rows are read: columns are described, and the engine plans the query that measures a round, which checks
    permissions too.
    """
    if spec.source is None:
        return None
    source, problems = spec.source, dict[str, str]()
    try:
        place = place_of(source, environment)
        dialect = dialect_of(place)
        types = (
            _folder_types(source, Path(place), problems)
            if dialect == "duckdb"
            else _database_types(source, dialect, environment)
        )
    except PastoError as error:
        raise StudyFileError({"source.from": f"cannot be used: {error}"}) from error
    problems |= find_problems(source.tables, spec.measured_columns, types)
    if problems:
        raise StudyFileError(problems)
    if None not in types.values():
        try:
            with open_source(source, environment) as opened:
                plan_tables(*opened, _build_probe(spec.audience), spec.measured_columns, is_external=spec.is_external)
        except PastoError as error:
            raise StudyFileError({"source": f"cannot be measured: {error}"}) from error
    return SourceCheck(source.origin, dialect, types)


def _build_probe(audience: Sequence[AudienceCondition]) -> PublishedPolicy:
    """Return a policy without traffic, to plan a query with."""
    return publish_policy(
        study="check",
        version=1,
        round=1,
        state="learning",
        mode="shuffled",
        salt="check",
        candidates={0: ("baseline", {})},
        baseline=0,
        shares=[("control", 0, 1.0)],
        valid_from=0,
        expires_after=60,
        audience=audience,
    )


def _database_types(source: TeamSource, dialect: str, environment: Mapping[str, str] | None) -> TableTypes:
    draft = QueryBuilder(DIALECTS[dialect])
    with open_source(source, environment) as opened:
        return {name: read_types(opened.connection, draft, name) for name in _names(source.tables)}


def _folder_types(source: TeamSource, folder: Path, problems: dict[str, str]) -> TableTypes:
    """Describe each table of a folder; tables that cannot be described are noted, and left out."""
    if not folder.is_dir():
        raise SourceError(
            f"the folder of the source {source.origin!r}, {folder}, does not exist; make it, or correct it"
        )
    types: TableTypes = {}
    for name, path in _names(source.tables).items():
        files = find_files(folder, name)
        if files is None:
            problems[path] = (
                f"names {name!r}, and {folder} holds neither a folder nor a file of {' or '.join(FORMATS)} of that "
                "name; make the folder if its files are yet to come"
            )
        elif not os.access(files, os.R_OK | (os.X_OK if files.is_dir() else 0)):
            problems[path] = f"names {name!r}, and this process may not read {files}; give it permission"
        elif files.is_dir() and not any(next(files.rglob(f"*.{kind}"), None) for kind in FORMATS):
            types[name] = None
        else:
            try:
                types[name] = _describe_files(source.origin, name, str(files))
            except SourceError as error:
                problems[path] = f"names {name!r}, which cannot be read: {error}"
    return types


def _describe_files(origin: str, name: str, files: str) -> dict[str, str]:
    view = view_name(name)
    with explain_errors(origin, "duckdb"), closing(open_duckdb({view: files})) as connection:
        return read_types(connection, QueryBuilder(DIALECTS["duckdb"]), view)


def _names(tables: TeamTables) -> dict[str, str]:
    """Return each table's name once, with the first field that names it."""
    names = {tables.exposures.table: "source.exposures.table"}
    for place, table in enumerate(tables.events):
        names.setdefault(table.table, f"source.events[{place}].table")
    return names
