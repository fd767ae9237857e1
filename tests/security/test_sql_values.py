"""SQL values: values of users are bound parameters in every store and engine, and counted exactly."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pasto.metrics import Column, Condition, measure
from pasto.metrics.engines import duckdb as duck
from pasto.metrics.measure_request import MeasureRequest
from pasto.store import AuditRow, EventRow, KeyRow, Store, StudyRow, open_store
from pasto.store.rows import EXPOSURE, METRIC

AUDIT = AuditRow(0.0, "ann", "create", "")


def hostile(payload: str) -> tuple[Column, ...]:
    """Return columns that have the payload as a value in every field of a definition."""
    return (
        Column("plain", "watch", "seconds", "sum"),
        Column("event", payload, None, "count"),
        Column("equal", "watch", None, "count", where=(Condition("surface", "=", (payload,)),)),
        Column("unequal", "watch", None, "count", where=(Condition("surface", "!=", (payload,)),)),
        Column("among", "watch", None, "count", where=(Condition("surface", "in", (payload, "home")),)),
    )


def fields(payload: str) -> tuple[Column, ...]:
    """Return columns that have the payload as the name of a field."""
    return (
        Column("value", "watch", payload, "sum"),
        Column("last", "watch", payload, "last", by=payload),
        Column("where", "watch", None, "count", where=(Condition(payload, "=", ("x",)),)),
    )


def filled(store: Store, payload: str) -> StudyRow:
    """Return a study with one unit whose events have the payload in every name and value."""
    made = store.create_study(StudyRow(f"s{abs(hash(payload))}", 0, 1, "draft", "{}", 1, 0, 0, 0.0, 0.0), AUDIT)
    text = json.dumps({"surface": payload, "seconds": 2})
    mine, theirs = (payload, 1, "learner", 0), (payload, 1, None, None)
    rows = [
        EventRow(f"{payload}/0", EXPOSURE, *mine, source=payload, position=1),
        EventRow(f"{payload}/1", METRIC, *theirs, name="watch", fields=text),
        EventRow(f"{payload}/2", METRIC, *theirs, name=payload),
        EventRow(f"{payload}/3", METRIC, *theirs, name="watch", fields='{"surface": "home", "seconds": 3}'),
    ]
    assert store.append_events(made.number, rows).result().new == (True,) * 4
    assert store.append_events(made.number, rows).result().new == (False,) * 4
    return made


def exact(store: Store, payloads: list[str]) -> None:
    """Check that an event with the payload counts for exactly that payload, without other effects."""
    for payload in payloads:
        study = filled(store, payload)
        until = store.read_high_water(study.number)
        columns = hostile(payload)
        with store.read_transaction() as connection:
            (cell,) = measure(
                connection, store.dialect, study=study.number, version=1, after=0, until=until, columns=columns
            )
            assert (cell.units, cell.mean) == (1, (5.0, 1.0, 1.0, 1.0, 2.0)), payload
        assert store.erase_unit(study.number, payload, AuditRow(1.0, payload, payload, payload)) == 4
        line = store.read_audit_log(study.number)[-1]
        assert (line.who, line.action, line.reason) == (payload, payload, payload)


def test_the_embedded_store_takes_them_as_text(tmp_path: Path, payloads: list[str]) -> None:
    store = open_store(str(tmp_path / "data"))
    with closing(store):
        exact(store, payloads)
        for place, payload in enumerate(payloads):
            store.add_key(KeyRow(f"{place:012x}", "0" * 64, payload, ("read",), 0.0))
            assert store.read_study(payload) is None
            assert not store.revoke_key(payload, 1.0)
        assert [key.name for key in store.list_keys()] == payloads
        assert len(store.list_studies()) == len(payloads)
        assert list(store.check_integrity()) == []


@pytest.mark.services
def test_postgres_takes_them_as_text(postgres_url: str, payloads: list[str]) -> None:
    store = open_store(postgres_url)
    with closing(store):
        exact(store, payloads)
        for place, payload in enumerate(payloads):
            store.add_key(KeyRow(f"{place:012x}", "0" * 64, payload, ("read",), 0.0))
            assert store.read_study(payload) is None
        assert sorted(key.name for key in store.list_keys()) == sorted(payloads)
        assert len(store.list_studies()) == len(payloads)


EVENTS = (
    "CREATE TABLE events (sequence BIGINT, study BIGINT, kind INT, unit TEXT, version BIGINT, arm TEXT, candidate INT, "
    "name TEXT, fields TEXT, excluded INT)"
)
CANARY = "CREATE TABLE canary (n INT)"
ROWS = [
    (1, 1, 0, "u", 1, "learner", 0, None, None, 0),
    (2, 1, 1, "u", 1, None, None, "watch", '{"seconds": 2, "x": 4, "surface": "home"}', 0),
]


class RecordingConnection:
    """Connection that records the text of every statement."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.texts: list[str] = []

    def execute(self, text: str, *bound: Any) -> Any:
        self.texts.append(re.sub(r"\$p\d+", "$", text))
        return self.connection.execute(text, *bound)


def test_sqlite_only_reads_and_only_events(payloads: list[str]) -> None:
    """Check with SQLite's authorizer that a measurement only reads, and only the table of events."""
    accesses: set[tuple[int, str | None]] = set()

    def authorised(action: int, first: str | None, *_: str | None) -> int:
        accesses.add((action, first if action == sqlite3.SQLITE_READ else None))
        allowed = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION) or (
            action == sqlite3.SQLITE_READ and first == "events"
        )
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(EVENTS)
        connection.execute(CANARY)
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", ROWS)
        connection.set_authorizer(authorised)
        known = RecordingConnection(connection)
        assert [describe_outcome(measured, known, columns) for columns in (hostile("plain"), fields("plain"))] == [
            "",
            "",
        ]
        for payload in payloads:
            recorder = RecordingConnection(connection)
            for columns in (hostile(payload), fields(payload)):
                assert re.search("^$|JSON path", describe_outcome(measured, recorder, columns)), payload
            assert recorder.texts == known.texts, payload  # bound values are not part of the text
        assert accesses <= {
            (sqlite3.SQLITE_SELECT, None),
            (sqlite3.SQLITE_FUNCTION, None),
            (sqlite3.SQLITE_READ, "events"),
        }


def describe_outcome(
    work: Callable[[Any, tuple[Column, ...]], Any], connection: Any, columns: tuple[Column, ...]
) -> str:
    """Return the database's response to a measurement: an invalid bound path is an error, and no statement."""
    try:
        work(connection, columns)
    except (sqlite3.OperationalError, duckdb.Error) as error:
        return str(error)
    return ""


def ducks(connection: Any, columns: tuple[Column, ...]) -> Any:
    return duck.measure(connection, MeasureRequest(1, 1, 0, 9, columns))


def measured(connection: Any, columns: tuple[Column, ...]) -> Any:
    return measure(connection, "sqlite", study=1, version=1, after=0, until=9, columns=columns)


def test_duckdb_takes_them_as_values(payloads: list[str]) -> None:
    with duckdb.connect() as connection:
        connection.execute(EVENTS)
        connection.execute(CANARY)
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", ROWS)
        known = RecordingConnection(connection)
        assert [describe_outcome(ducks, known, columns) for columns in (hostile("plain"), fields("plain"))] == ["", ""]
        for payload in payloads:
            recorder = RecordingConnection(connection)
            for columns in (hostile(payload), fields(payload)):
                assert re.search("^$|JSON path", describe_outcome(ducks, recorder, columns)), payload
            assert recorder.texts == known.texts, payload
        assert connection.execute("SELECT count(*) FROM canary").fetchone() == (0,)
        tables = connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()
        assert tables == [("canary",), ("events",)]
