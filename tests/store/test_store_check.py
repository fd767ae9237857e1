"""Command `store check`: it finds every change of a stored row, down to a flipped bit."""

from __future__ import annotations

import hashlib
import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pasto.errors import UnsafeStoreError
from pasto.store import (
    EXPOSURE,
    METRIC,
    AuditRow,
    CloseRow,
    EventRow,
    PolicyRow,
    Store,
    StudyRow,
    open_store,
)
from pasto.store.integrity_check import COLUMNS, event_base, event_checksum, row_checksum, stored_checksum
from pasto.store.read_only_store import open_read_only


def fill(store: Store, units: int = 3) -> StudyRow:
    """Give a store one study with a closed round."""
    row = StudyRow("feed", 0, 1, "draft", '{"name": "feed"}', 7, 0, 0, 0.0, 0.0)
    study = store.create_study(row, AuditRow(1, "ann", "create", "a try"))
    events = []
    for place in range(units):
        unit = f"unit {place}"
        events.append(EventRow(f"e{place}", EXPOSURE, unit, 1, "learner", place % 2, source="s", position=place))
        events.append(EventRow(f"m{place}", METRIC, unit, 1, "learner", place % 2, "like", '{"value":0.5}'))
    store.append_events(study.number, events).result()

    def policy(version: int) -> PolicyRow:
        text = f'{{"format": 1, "version": {version}}}'
        return PolicyRow(version, version, version, text, hashlib.sha256(text.encode()).hexdigest(), 0, 2)

    started = replace(study, generation=2, version=1, round=1)
    assert store.update_study(study, started, policy=policy(1), learner="{}", audit=[AuditRow(2.0, "ann", "start", "")])
    after = replace(started, generation=3, version=2, round=2)
    close = CloseRow(1, 1, 2 * units, '{"rounds": []}', hashlib.sha256(b"{}").hexdigest(), 2, 3)
    assert store.update_study(started, after, policy=policy(2), close=close, audit=[AuditRow(3.0, "ann", "close", "")])
    return after


def test_a_checksum_is_the_same_in_every_version() -> None:
    # Stored checksums must stay valid: a failure means that the encoding changed, and old rows would look damaged.
    row = (7, 1, "é", 0, "unit 1", None, "learner", 3, None, '{"a":1}', 0, "s", 2**40, 1700000000.25, "pasto_ab")
    assert row_checksum(row) == row_checksum(list(row)) == 210661592
    assert (
        stored_checksum("events", row)
        == event_checksum(event_base(1, 1700000000.25, "pasto_ab"), 7, row[2:13])
        == 1060414761
    )


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("study", "1 + 1"),
        ("id", "'e9'"),
        ("kind", "1"),
        ("unit", "'unit 9'"),
        ("version", "2"),
        ("arm", "'learne2'"),
        ("candidate", "5"),
        ("name", "'like'"),
        ("fields", "'{}'"),
        ("excluded", "1"),
        ("source", "'t'"),
        ("position", "99"),
        ("received_at", "received_at + 0.001"),
    ],
)
def test_every_column_of_an_event_is_covered(column: str, value: str) -> None:
    store = open_store("memory:")
    fill(store)
    assert list(store.check_integrity()) == []
    change = f"UPDATE events SET {column} = {value} WHERE sequence = 1"  # noqa: S608 -- our own names
    store._write(lambda connection: connection.execute(change))  # type: ignore[attr-defined]
    assert "the row of events with sequence 1 does not match its checksum" in list(store.check_integrity())
    store.close()


def test_rows_without_a_checksum_are_still_read() -> None:
    store = open_store("memory:")
    fill(store)
    for change in (
        "UPDATE events SET row_checksum = NULL",
        "UPDATE events SET fields = '{\"value\":' WHERE sequence = 2",
        "UPDATE events SET arm = CAST(x'6cff' AS TEXT) WHERE sequence = 3",
    ):
        store._write(lambda connection, change=change: connection.execute(change))  # type: ignore[attr-defined]
    found = list(store.check_integrity())
    assert "the row of events with sequence 2 holds JSON that cannot be read" in found
    assert "the row of events with sequence 3 holds text that is not UTF-8" in found
    store.close()


def test_many_damaged_rows_are_counted() -> None:
    store = open_store("memory:")
    fill(store, units=100)
    store._write(lambda connection: connection.execute("UPDATE events SET received_at = 1.0"))  # type: ignore[attr-defined]
    found = [finding for finding in store.check_integrity() if "events" in finding]
    assert len(found) == 101
    assert found[-1] == "100 more rows of events are damaged"
    store.close()


def test_restored_events_get_a_checksum(tmp_path: Path) -> None:
    first = open_store("memory:")
    fill(first)
    first._write(lambda connection: connection.execute("UPDATE events SET row_checksum = NULL"))  # type: ignore[attr-defined]
    first.write_backup(tmp_path / "backup.db")
    first.close()
    second = open_store("memory:")
    second.restore_backup(tmp_path / "backup.db")
    with second.read_transaction() as connection:
        assert connection.execute("SELECT count(*) FROM events WHERE row_checksum IS NULL").fetchone() == (0,)
    assert list(second.check_integrity()) == []
    second.close()


def written_once(file: Path) -> Any:
    """Return all rows that never change; None if they cannot be read."""
    with closing(sqlite3.connect(file)) as connection:
        connection.text_factory = bytes
        try:
            statements = [f"SELECT {columns} FROM {table}" for table, columns in COLUMNS.items()]  # noqa: S608 -- our own names
            return [connection.execute(statement).fetchall() for statement in statements]
        except sqlite3.Error:
            return None


def is_found(folder: Path) -> bool:
    try:
        with open_read_only(str(folder)) as store:
            return bool(list(store.check_integrity()))
    except UnsafeStoreError:
        return True


def test_flipped_bits_in_rows_are_found(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    fill(store, units=200)
    store.close()
    file = tmp_path / "pasto.db"
    sound, before = file.read_bytes(), written_once(file)
    assert not is_found(tmp_path)
    chance = random.Random(5)
    changed = 0
    for _ in range(300):
        content = bytearray(sound)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        file.write_bytes(content)
        if written_once(file) != before:
            changed += 1
            assert is_found(tmp_path)
    assert changed > 40
