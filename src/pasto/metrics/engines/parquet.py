"""Archive engine: measures events in the Parquet archive, bit for bit as the embedded store measured them.

DuckDB reads the files and selects the round; the SQLite engine then adds up its rows.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from pasto.metrics.engines import sqlite
from pasto.metrics.measure_request import Engine, MeasureRequest
from pasto.metrics.moments import Moments

BATCH_ROWS = 10_000
_COLUMNS = "sequence, study, kind, unit, version, arm, candidate, name, fields, excluded, received_at"


def measure(connection: Any, request: MeasureRequest) -> tuple[Moments, ...]:
    """Return the moments of every cell, sorted by arm and candidate, from DuckDB's table or view of events."""
    query = (
        f"SELECT {_COLUMNS} FROM events WHERE study = ? AND unit <> '' AND ("  # noqa: S608 -- our own names
        "(version = ? AND sequence > ? AND sequence <= ? AND excluded = 0 AND (kind = 0 OR list_contains(?, name))) "
        "OR (sequence > ? AND sequence <= ? AND kind = 1 AND list_contains(?, name)))"
    )
    names, past = request.events, request.past
    bound = [request.study, request.version, request.after, request.until, names, past.after, past.until, names]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
        memory.execute(f"CREATE TABLE events ({_COLUMNS.replace('sequence', 'sequence INTEGER PRIMARY KEY')})")
        memory.execute("BEGIN")
        selected = connection.execute(query, bound)
        insert = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        while rows := selected.fetchmany(BATCH_ROWS):
            memory.executemany(insert, rows)
        return sqlite.measure(memory, request)


ENGINE = Engine("archive", measure)
