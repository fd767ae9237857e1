"""Looking for damage: what the tables say must agree with itself."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from pasto.store import statements

Query = Callable[[str], Iterator[Sequence[Any]]]
"""Runs a statement and gives its rows one by one."""

_GONE: Final = (
    "(SELECT 1 FROM archived_rounds WHERE archived_rounds.study = latest.study "
    "AND archived_rounds.version = latest.version AND latest.sequence <= archived_rounds.last_sequence) "
    "AND NOT EXISTS (SELECT 1 FROM events AS own WHERE own.sequence = latest.sequence)"
)
_RECOUNTED: Final = (
    "SELECT study, unit, version, arm, candidate, sequence FROM events WHERE sequence IN "  # noqa: S608 -- our own names
    "(SELECT max(sequence) FROM events WHERE kind = 0 AND excluded = 0 AND unit <> '' GROUP BY study, unit) "
    "AND NOT EXISTS (SELECT 1 FROM latest WHERE latest.study = events.study AND latest.unit = events.unit "
    f"AND EXISTS {_GONE})"
)
_REMEMBERED: Final = f"SELECT study, unit, version, arm, candidate, sequence FROM latest WHERE NOT (EXISTS {_GONE})"  # noqa: S608
"""Units whose latest exposure is in the archive have nothing here to be compared with."""


def damage(connection: sqlite3.Connection) -> Iterator[str]:
    """What is wrong with an embedded store, file and tables."""
    for (finding,) in connection.execute("PRAGMA integrity_check"):
        if finding != "ok":
            yield f"the database file is damaged: {finding}"
    yield from findings(connection.execute)


def findings(query: Query) -> Iterator[str]:
    """Each disagreement in a sentence; nothing where all is well."""
    studies = list(query("SELECT number, name, version FROM studies"))
    names = {row[0]: row[1] for row in studies}
    served = {row[0]: row[2] for row in studies}
    yield from _strays(query)
    for study, version, text, checksum in query("SELECT study, version, text, checksum FROM policies"):
        if hashlib.sha256(text.encode()).hexdigest() != checksum:
            yield f"policy {version} of study {names.get(study, study)!r} does not match its checksum"
    for name, version in query(
        "SELECT name, version FROM studies WHERE version > 0 AND NOT EXISTS "
        "(SELECT 1 FROM policies WHERE policies.study = studies.number AND policies.version = studies.version)"
    ):
        yield f"study {name!r} serves policy {version}, which is missing"
    yield from _gaps(query, names)
    for study, identity, count in query(
        "SELECT study, id, count(*) FROM events WHERE unit <> '' "
        "GROUP BY study, coalesce(source, ''), id HAVING count(*) > 1"
    ):
        yield f"event {identity!r} of study {names.get(study, study)!r} was kept {count} times"
    ((events, ids),) = query(
        "SELECT (SELECT count(*) FROM events) + (SELECT coalesce(sum(events), 0) FROM archived_rounds), "
        "(SELECT count(*) FROM event_ids)"
    )
    if events != ids:
        yield f"the ids of {ids} events are remembered, and {events} events came"
    for study, unit, *_ in query(f"{_REMEMBERED} EXCEPT {_RECOUNTED}"):
        yield f"unit {unit!r} of study {names.get(study, study)!r} has a latest exposure that is not its latest"
    for study, unit, version, *_ in query(f"{_RECOUNTED} EXCEPT {_REMEMBERED}"):
        if version < served.get(study, 0):
            continue  # under a policy that is no longer served, to which nothing may be credited any more
        yield f"the latest exposure of unit {unit!r} of study {names.get(study, study)!r} is not remembered"


def _strays(query: Query) -> Iterator[str]:
    """Rows of studies that are not there."""
    for table, statement in _STRAYS.items():
        for study, count in query(statement):
            yield f"{count} rows in {table} belong to study number {study}, which is missing"


_STRAYS: Final = {
    table: f"SELECT study, count(*) FROM {table} WHERE study NOT IN (SELECT number FROM studies) GROUP BY study"  # noqa: S608 -- our own names
    for table in ("policies", "closes", "learners", "audit", "events", "archived_rounds", "latest", "tallies")
}


def _gaps(query: Query, names: dict[int, str]) -> Iterator[str]:
    """Rounds that were skipped, and marks that do not rise."""
    last = next(iter(query(statements.LAST_SEQUENCE)))[0]
    before: tuple[int, int, int] = (0, 0, 0)
    for study, number, mark in query("SELECT study, round, high_water FROM closes ORDER BY study, round"):
        if study != before[0]:
            before = (study, 0, 0)
        name = names.get(study, study)
        if number != before[1] + 1:
            yield f"study {name!r} closed round {number} after round {before[1]}"
        if mark < before[2]:
            yield f"round {number} of study {name!r} saw events up to {mark}, the round before it up to {before[2]}"
        if mark > last:
            yield f"round {number} of study {name!r} saw events up to {mark}, and the last one kept is {last}"
        before = (study, number, mark)
