"""Integrity check: reads every row, compares it with its checksum, and compares the tables with each other."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final
from zlib import crc32

import msgspec

from pasto.store import statements
from pasto.store.backup import TABLES
from pasto.store.rows import INSTALLATION

_encode: Final = msgspec.msgpack.Encoder().encode

_HALF: Final = 1 << 31
"""Offset that makes an unsigned 32-bit number signed."""

COLUMNS: Final = {
    "events": "sequence, study, id, kind, unit, version, arm, candidate, name, fields, excluded, source, position, "
    "received_at, key_prefix",
    "policies": "study, version, round, learner_version, document, checksum, after_sequence, published_at",
    "round_closes": "study, round, version, high_water, record, learner_checksum, next_version, closed_at",
    "audit_log": "study, at, who, action, reason, detail",
}
"""Columns that a row checksum covers, by table, in the order in which they are written."""


def row_checksum(values: Sequence[Any]) -> int:
    """Return the CRC-32 of a row's values, as a signed number, which SQLite stores in four bytes.

    The values must have the types that the database returns: a float in a column of real numbers.

    >>> row_checksum((1, "ann", None, 0.5)) == row_checksum((1, "ann", None, 0.5))
    True
    >>> row_checksum((1, "ann", None, 0.5)) == row_checksum((1, "anm", None, 0.5))
    False
    """
    return crc32(_encode(values)) - _HALF


def event_base(study: int, received_at: float, key_prefix: str | None) -> int:
    """Return the start of the checksums of a batch: that of the values which all its events share."""
    return crc32(_encode((study, received_at, key_prefix)))


def event_checksum(base: int, sequence: int, event: Sequence[Any]) -> int:
    """Return the checksum of an event, from its own fields, its sequence and the base of its batch.

    It runs for every stored event, so it copies nothing.
    """
    return crc32(_encode(event), base + sequence) - _HALF


def stored_checksum(table: str, values: Sequence[Any]) -> int:
    """Return the checksum of a stored row of a table, from its values in the order of COLUMNS."""
    if table == "events":
        sequence, study, *event, received_at, key_prefix = values
        return event_checksum(event_base(study, received_at, key_prefix), sequence, event)
    return row_checksum(values)


Query = Callable[[str], Iterator[Sequence[Any]]]
"""Runs a statement and yields its rows."""

_ARCHIVED_EXPOSURE: Final = (
    "(SELECT 1 FROM archived_spans AS span WHERE span.study = latest.study "
    "AND span.version = latest.version AND latest.sequence <= span.last_sequence) "
    "AND NOT EXISTS (SELECT 1 FROM events AS own WHERE own.sequence = latest.sequence)"
)

_COMPUTED_LATEST: Final = (
    "SELECT study, unit, version, arm, candidate, sequence FROM events WHERE sequence IN "  # noqa: S608 -- our own names
    "(SELECT max(sequence) FROM events WHERE kind = 0 AND excluded = 0 AND unit <> '' GROUP BY study, unit) "
    "AND NOT EXISTS (SELECT 1 FROM latest_exposures AS latest "
    "WHERE latest.study = events.study AND latest.unit = events.unit "
    f"AND EXISTS {_ARCHIVED_EXPOSURE})"
)

_STORED_LATEST: Final = (
    "SELECT study, unit, version, arm, candidate, sequence FROM latest_exposures AS latest "  # noqa: S608
    f"WHERE NOT (EXISTS {_ARCHIVED_EXPOSURE})"
)
"""Without units whose latest exposure is in the archive: no event is left to compare it with."""

_JSON: Final = {
    "studies": ("study_file", "details"),
    "round_closes": ("record",),
    "audit_log": ("detail",),
    "api_keys": ("scopes",),
    "events": ("fields",),
    "sender_counts": ("assigned", "dropped"),
    "outbox": ("body",),
    "settings": ("value",),
}
"""Columns that hold JSON, by table."""

_IDENTITY_COLUMNS: Final = {
    "studies": ("name",),
    "api_keys": ("prefix",),
    "audit_log": ("sequence",),
    "events": ("sequence",),
    "outbox": ("id",),
    "settings": ("name",),
}

_OTHER_IDENTITY: Final = ("study", "version", "round", "unit", "source", "kind")
"""Columns by which a finding names a row of any other table."""

MAX_FINDINGS_PER_TABLE: Final = 100
"""Findings of one table that are listed one by one; of others only the number."""


def find_damage(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the damage of an embedded store, in its file and in its tables."""
    for (finding,) in connection.execute("PRAGMA integrity_check"):
        if finding != "ok":
            yield f"the database file is damaged: {finding}"
    before = connection.text_factory
    connection.text_factory = lambda text: text.decode(
        "utf-8", "surrogateescape"
    )  # so that a finding can name such a row
    try:
        yield from check_events(connection.execute, sealed=COLUMNS)
    finally:
        connection.text_factory = before


def check_events(query: Query, *, sealed: Collection[str]) -> Iterator[str]:
    """Yield each finding as a sentence; rows of the `sealed` tables are compared with their checksums."""
    studies = list(query("SELECT number, name, version FROM studies"))
    names = {row[0]: row[1] for row in studies}
    served = {row[0]: row[2] for row in studies}
    for table in TABLES:
        yield from _find_row_damage(query, table, is_sealed=table in sealed)
    yield from _find_orphans(query)
    for study, version, text, checksum in query("SELECT study, version, document, checksum FROM policies"):
        if hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest() != checksum:
            yield f"policy {version} of study {names.get(study, study)!r} does not match its checksum"
    for name, version in query(
        "SELECT name, version FROM studies WHERE version > 0 AND NOT EXISTS "
        "(SELECT 1 FROM policies WHERE policies.study = studies.number AND policies.version = studies.version)"
    ):
        yield f"study {name!r} serves policy {version}, which is missing"
    for first, second, layer in query(_OVERLAPPING_SLICES):
        yield f"the slices of studies {names[first]!r} and {names[second]!r} in layer {layer!r} overlap"
    yield from _find_gaps(query, names)
    yield from _find_dangling_references(query, names)
    for study, identity, count in query(
        "SELECT study, id, count(*) FROM events WHERE unit <> '' "
        "GROUP BY study, coalesce(source, ''), id HAVING count(*) > 1"
    ):
        yield f"event {identity!r} of study {names.get(study, study)!r} is stored {count} times"
    ((events, ids),) = query(
        "SELECT (SELECT count(*) FROM events) + (SELECT coalesce(sum(events), 0) FROM archived_spans), "
        "(SELECT count(*) FROM event_ids)"
    )
    if events != ids:
        yield f"the ids of {ids} events are stored, and {events} events came"
    for study, unit, *_ in query(f"{_STORED_LATEST} EXCEPT {_COMPUTED_LATEST}"):
        yield f"unit {unit!r} of study {names.get(study, study)!r} has a latest exposure that is not its latest"
    for study, unit, version, *_ in query(f"{_COMPUTED_LATEST} EXCEPT {_STORED_LATEST}"):
        if version < served.get(study, 0):
            continue  # its policy is not served any more, so nothing may be credited to it
        yield f"the latest exposure of unit {unit!r} of study {names.get(study, study)!r} is not stored"


def _find_row_damage(query: Query, table: str, *, is_sealed: bool) -> Iterator[str]:
    """Read every row of a table: its text must be UTF-8, its JSON readable, and its checksum right if it has one."""
    columns = [column.strip() for column in TABLES[table].split(",")]
    documents = [columns.index(column) for column in _JSON.get(table, ())]
    covered = [columns.index(column.strip()) for column in COLUMNS[table].split(",")] if is_sealed else None
    number = 0
    for row in query(f"SELECT {TABLES[table]} FROM {table}"):  # noqa: S608 -- our own names
        problem = _describe_row_damage(table, row, documents, covered)
        if problem is None:
            continue
        number += 1
        if number <= MAX_FINDINGS_PER_TABLE:
            identity = _IDENTITY_COLUMNS.get(table, _OTHER_IDENTITY)
            place = ", ".join(f"{c} {v!r}" for c, v in zip(columns, row, strict=True) if c in identity)
            yield f"the row of {table} with {place} {problem}"
    if number > MAX_FINDINGS_PER_TABLE:
        yield f"{number - MAX_FINDINGS_PER_TABLE} more rows of {table} are damaged"


def _describe_row_damage(
    table: str, row: Sequence[Any], documents: Sequence[int], covered: Sequence[int] | None
) -> str | None:
    """Return the problem of a row's own values; its checksum is its last value."""
    try:
        if covered is not None and row[-1] is not None:
            same = stored_checksum(table, [row[place] for place in covered]) == row[-1]
            return None if same else "does not match its checksum"
        for value in row:
            if isinstance(value, str):
                value.encode()
    except UnicodeEncodeError:
        return "holds text that is not UTF-8"
    for place in documents:
        if isinstance(row[place], str):
            try:
                json.loads(row[place])
            except ValueError:
                return "holds JSON that cannot be read"
    return None


def _find_orphans(query: Query) -> Iterator[str]:
    """Yield rows of studies that are missing."""
    for table, statement in _ORPHANS.items():
        for study, count in query(statement):
            yield f"{count} rows in {table} belong to study number {study}, which is missing"


_ORPHANS: Final = {
    table: f"SELECT study, count(*) FROM {table} WHERE study NOT IN (SELECT number FROM studies) GROUP BY study"  # noqa: S608 -- our own names
    for table in (
        "policies",
        "round_closes",
        "learner_states",
        "events",
        "archived_spans",
        "latest_exposures",
        "sender_counts",
        "layer_slices",
    )
} | {
    "audit_log": (
        f"SELECT study, count(*) FROM audit_log WHERE study <> {INSTALLATION} "  # noqa: S608 -- our own names
        "AND study NOT IN (SELECT number FROM studies) GROUP BY study"
    )
}


def _find_gaps(query: Query, names: dict[int, str]) -> Iterator[str]:
    """Yield rounds that were skipped, and high-water marks that do not rise."""
    last = next(iter(query(statements.LAST_SEQUENCE)))[0]
    before: tuple[int, int, int] = (0, 0, 0)
    for study, number, mark in query("SELECT study, round, high_water FROM round_closes ORDER BY study, round"):
        if study != before[0]:
            before = (study, 0, 0)
        name = names.get(study, study)
        if number != before[1] + 1:
            yield f"study {name!r} closed round {number} after round {before[1]}"
        if mark < before[2]:
            yield f"round {number} of study {name!r} read events up to {mark}, the round before it up to {before[2]}"
        if mark > last:
            yield f"round {number} of study {name!r} read events up to {mark}, and the last stored one is {last}"
        before = (study, number, mark)


def _find_dangling_references(query: Query, names: dict[int, str]) -> Iterator[str]:
    """Yield closes, learner states and events that do not fit the policies and rounds of their study."""
    for study, round_number, version in query(_CLOSES_WITHOUT_POLICY):
        yield f"round {round_number} of study {names.get(study, study)!r} refers to policy {version}, which is missing"
    for study, round_number, mark, after in query(_CLOSES_BEFORE_POLICY):
        yield (
            f"round {round_number} of study {names.get(study, study)!r} read events up to {mark}, and its policy "
            f"begins after {after}"
        )
    for name, open_round, last in query(_ROUNDS_MISCOUNTED):
        yield f"study {name!r} has round {open_round} open, and the last one closed is {last}"
    for study, count, version in query(_POLICIES_MISCOUNTED):
        yield f"study {names.get(study, study)!r} has {count} policies, and the last one is number {version}"
    for study, state, checksum in query(_LEARNERS):
        if checksum and hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest() != checksum:
            yield f"the learner's state of study {names.get(study, study)!r} does not match the last round's checksum"
    for study, version, count in query(_EVENTS_WITHOUT_POLICY):
        yield f"{count} events of study {names.get(study, study)!r} name policy {version}, which is missing"


_OVERLAPPING_SLICES: Final = (
    "SELECT a.study, b.study, a.layer FROM layer_slices AS a JOIN layer_slices AS b "
    "ON a.layer = b.layer AND a.study < b.study AND a.start < b.until AND b.start < a.until "
    "WHERE (SELECT count(*) FROM studies WHERE number IN (a.study, b.study) "
    "AND state NOT IN ('archived', 'deleted')) = 2"
)

_CLOSES_WITHOUT_POLICY: Final = (
    "SELECT study, round, wanted FROM (SELECT study, round, version AS wanted FROM round_closes "
    "UNION SELECT study, round, next_version AS wanted FROM round_closes) AS named WHERE NOT EXISTS "
    "(SELECT 1 FROM policies WHERE policies.study = named.study AND policies.version = named.wanted)"
)

_CLOSES_BEFORE_POLICY: Final = (
    "SELECT round_closes.study, round_closes.round, high_water, after_sequence FROM round_closes "
    "JOIN policies ON policies.study = round_closes.study AND policies.version = round_closes.version "
    "WHERE high_water < after_sequence"
)

# The last round of an archived study is closed, and no other was opened.
_ROUNDS_MISCOUNTED: Final = (
    "SELECT name, round, last FROM (SELECT name, state, round, "
    "(SELECT coalesce(max(closes.round), 0) FROM round_closes AS closes WHERE closes.study = studies.number) AS last "
    "FROM studies WHERE version > 0 AND round > 0) AS counted "
    "WHERE last <> round - 1 AND NOT (state = 'archived' AND last = round)"
)

_POLICIES_MISCOUNTED: Final = (
    "SELECT study, count(*), max(version) FROM policies GROUP BY study HAVING count(*) <> max(version)"
)

_LEARNERS: Final = (
    "SELECT learner_states.study, learner_states.state, round_closes.learner_checksum FROM learner_states "
    "JOIN round_closes ON round_closes.study = learner_states.study WHERE round_closes.round = "
    "(SELECT max(round) FROM round_closes AS later WHERE later.study = learner_states.study)"
)

# If a study has no policy at all, the versions of its events cannot be checked.
_EVENTS_WITHOUT_POLICY: Final = (
    "SELECT study, version, number FROM (SELECT study, version, count(*) AS number FROM events "
    "WHERE version IS NOT NULL GROUP BY study, version) AS counted "
    "WHERE EXISTS (SELECT 1 FROM policies WHERE policies.study = counted.study) AND NOT EXISTS "
    "(SELECT 1 FROM policies WHERE policies.study = counted.study AND policies.version = counted.version)"
)
