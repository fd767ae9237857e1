"""Store versions: a store of every earlier version opens with today's code, also after a killed upgrade.

A new version of the tables needs a new file in versions/: `python tests/store/test_store_versions.py` writes it.
"""

import hashlib
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pasto.report.records import write_record
from pasto.service.event_accounting import EventAccounting
from pasto.store import (
    EXPOSURE,
    METRIC,
    AppendResult,
    AuditRow,
    CloseRow,
    EventRow,
    KeyRow,
    PolicyRow,
    RejectedPositions,
    RejectionReason,
    Rejections,
    SenderCounts,
    Store,
    StudyRow,
)
from pasto.store.backup import TABLES
from pasto.store.schema import migrations
from pasto.store.sqlite_store import SqliteStore

VERSIONS = Path(__file__).parent / "versions"
TEXT = '{"format":1,"note":"naïve"}'


def write_store(folder: Path) -> str:
    """Return a small store of today's version, as text."""
    store = SqliteStore(folder, clock=lambda: 1700000000.25)
    study = StudyRow("feed", 0, 1, "draft", '{"name": "feed"}', 2**64 + 1, 0, 0, 1700000000.0, 1700000000.0)
    before = store.create_study(study, AuditRow(1700000000.0, "ann", "create", "a try"))
    exposures = [
        EventRow(f"e{i}", EXPOSURE, f"unit {i % 3}", 1, "learner", i % 2, source="s", position=i) for i in range(5)
    ]
    liked = [EventRow(f"m{i}", METRIC, f"unit {i}", None, None, None, "like", '{"value": 0.1}') for i in range(4)]
    rejections = Rejections((RejectionReason("no unit", "no unit", 2),), (RejectedPositions("s", 2, 6, 7),))
    tallies = [SenderCounts("s", 1, 5, '{"a": 5}', "{}")]
    store.append_events(before.number, [*exposures, *liked], tallies, rejections, "ab12").result()
    checksum = hashlib.sha256(TEXT.encode()).hexdigest()
    store.update_study(
        before,
        replace(before, state="learning", round=2, version=1),
        policy=PolicyRow(1, 1, 1, TEXT, checksum, 0, 1700000001.0),
        close=CloseRow(1, 1, 9, "[]", "", 1, 1700000002.0),
        learner="{}",
        audit=[AuditRow(1700000002.0, "bob", "close", "")],
    )
    store.add_key(KeyRow("ab12", "0" * 64, "mobile", ("ingest",), 1700000000.0))
    store.close()
    with closing(sqlite3.connect(folder / "pasto.db")) as connection:
        return "\n".join(connection.iterdump()) + "\n"


def place(text: str, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with closing(sqlite3.connect(folder / "pasto.db")) as connection:
        connection.executescript(text)


def test_every_version_has_its_file_and_the_last_is_todays(tmp_path: Path) -> None:
    names = [f"{number:04d}.sql" for number in range(1, len(migrations("sqlite")) + 1)]
    assert sorted(path.name for path in VERSIONS.iterdir()) == names
    # A failure means that the tables changed: add a new numbered step, and its file here.
    assert write_store(tmp_path) == (VERSIONS / names[-1]).read_text(encoding="utf-8")


def check_upgraded(store: Store) -> None:
    """Check that an upgraded store has the content of the version before it, and accepts events."""
    study = store.read_study("feed")
    assert study is not None
    assert (study.seed, study.state, study.version, study.generation) == (2**64 + 1, "learning", 1, 2)
    assert study.study_file == '{"name": "feed"}'
    policy = store.read_policy(study.number, 1)
    assert policy is not None
    assert (policy.document, policy.learner_version) == (TEXT, 1)
    assert policy.checksum == hashlib.sha256(TEXT.encode()).hexdigest()
    (close,) = store.list_closes(study.number)
    assert (close.round, close.record, close.high_water) == (1, "[]", 9)
    assert store.read_learner_state(study.number) == "{}"
    assert [row.action for row in store.read_audit_log(study.number)] == ["create", "close"]
    (key,) = store.list_keys()
    assert key.prefix == "ab12"
    assert store.list_sender_counts(study.number, 1) == [SenderCounts("s", 1, 5, '{"a": 5}', "{}")]
    assert store.read_high_water(study.number) == 9
    assert store.read_cache("counts") == "9"
    events = [
        EventRow("e1", EXPOSURE, "unit 1", 1, "learner", 1, source="s", position=1),
        EventRow("e9", EXPOSURE, "unit 1", 1, "learner", 1, source="s", position=9),
    ]
    assert store.append_events(study.number, events).result() == AppendResult((False, True), 10)
    assert list(store.check_integrity()) == []


def read_version(version: int, folder: Path) -> None:
    """Write a database of a version, with a cached value under the name that versions before 5 gave it."""
    place((VERSIONS / f"{version:04d}.sql").read_text(encoding="utf-8"), folder)
    name = "note/counts" if version < 5 else "cache/counts"
    with closing(sqlite3.connect(folder / "pasto.db")) as connection:
        connection.execute("INSERT INTO meta (name, value) VALUES (?, '9')", (name,))
        connection.commit()


@pytest.mark.parametrize("version", range(1, len(migrations("sqlite")) + 1))
def test_every_version_opens_as_it_was(version: int, tmp_path: Path) -> None:
    read_version(version, tmp_path)
    store = SqliteStore(tmp_path)
    try:
        check_upgraded(store)
        with store.read_transaction() as connection:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        assert {name for (name,) in names} == {"meta", "claims", *TABLES}
    finally:
        store.close()


@pytest.mark.services
@pytest.mark.parametrize("version", range(1, len(migrations("sqlite")) + 1))
def test_every_version_opens_on_postgresql(version: int, tmp_path: Path, postgres_url: str) -> None:
    import psycopg

    from pasto.store.postgres_store import PostgresStore

    read_version(version, tmp_path)
    with (
        closing(sqlite3.connect(tmp_path / "pasto.db")) as snapshot,
        psycopg.connect(postgres_url, autocommit=True) as database,
    ):
        for step in migrations("postgres")[:version]:
            for statement in step:
                database.execute(statement.encode())
        for (table,) in snapshot.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = snapshot.execute(f"SELECT * FROM {table}")  # noqa: S608 -- our own names
            columns = [column[0] for column in rows.description]
            marks = ", ".join("%s" for _ in columns)
            insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
            for row in rows:
                values = [
                    None if table == "events" and c == "row_checksum" else v for c, v in zip(columns, row, strict=True)
                ]
                database.execute(insert.encode(), values)
        database.execute("SELECT setval('events_sequence_seq', 9)")
    store = PostgresStore(postgres_url)
    try:
        check_upgraded(store)
        with store.read_transaction() as connection:
            names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert {name for (name,) in names} == {"meta", "claims", *TABLES}
    finally:
        store.close()


def test_archived_events_of_an_older_store_are_deleted_and_counted(tmp_path: Path) -> None:
    """Check a store in which version 2 emptied archived events, and left their ids and counts in their rows."""
    place((VERSIONS / "0002.sql").read_text(encoding="utf-8"), tmp_path)
    with closing(sqlite3.connect(tmp_path / "pasto.db")) as connection:
        connection.execute("DELETE FROM closes")
        connection.execute("UPDATE studies SET round = 1")
        connection.execute("UPDATE events SET unit = '', name = NULL, fields = NULL WHERE version = 1 OR sequence = 9")
        connection.commit()
        events = connection.execute("SELECT id, kind, source, version FROM events WHERE unit = ''").fetchall()
    store = SqliteStore(tmp_path)
    try:
        assert list(store.check_integrity()) == []
        assert store.read_high_water(1) == 9
        credited = [row for row in events if row[3] is not None]
        found = store.list_archived_spans(1, 0, 9)
        assert {row.version: row.events for row in found} == {1: len(credited), 0: len(events) - len(credited)}
        assert (store.measure_size().ids, store.measure_size().archived) == (9, len(events))
        again = [EventRow(row[0], row[1], "any", 1, None, None, source=row[2]) for row in events]
        answer = store.append_events(1, again).result()
        assert answer == AppendResult((False,) * len(events), 9), "the content of older events is not known"
        assert store.append_events(1, [EventRow("new", METRIC, "ann", None, None, None, "like")]).result().last == 10
        accounting = EventAccounting(store, 1)
        assert write_record(accounting.summarize(["a", "b"], []).events) == {
            "exposures": 5,
            "metrics": 5,
            "excluded": 0,
            "uncredited": 1 + len(events) - len(credited),
        }
    finally:
        store.close()


# Two more steps than there are; a child dies before each statement in turn, and its parent comes after it.
UPGRADE = """
import os, sys
from pathlib import Path
from pasto.store import schema, sqlite_connections
from pasto.store.sqlite_store import SqliteStore

known = schema.migrations("sqlite")
steps = [
    ["CREATE TABLE extra (sequence INTEGER)", "INSERT INTO extra SELECT sequence FROM events", "SELECT 1"],
    ["ALTER TABLE studies ADD COLUMN note TEXT", "UPDATE studies SET note = 'new'", "DROP TABLE extra", "SELECT 1"],
]

def connect(address):
    connection = sqlite_connections.connect(address)
    connection.create_function("die", 0, lambda: os.kill(os.getpid(), 9))
    return connection

def upgrade(folder, steps):
    schema.migrations = lambda dialect: [*known, *steps]
    return SqliteStore(folder, connect=connect)

for name, (step, place) in zip(sys.argv[1:], [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)], strict=True):
    child = os.fork()
    if child == 0:
        fatal = [list(statements) for statements in steps]
        fatal[step][place] = "SELECT die()"
        upgrade(Path(name), fatal)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 9
    store = upgrade(Path(name), steps)
    with store.read_transaction() as connection:
        (version,) = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
        (note,) = connection.execute("SELECT note FROM studies").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'extra'").fetchone()
    assert (int(version), note, tables) == (len(known) + 2, "new", 0), (version, note, tables)
    store.close()
"""


def test_an_upgrade_that_was_killed_is_done_by_the_next_start(tmp_path: Path) -> None:
    text = (VERSIONS / f"{len(migrations('sqlite')):04d}.sql").read_text(encoding="utf-8")
    folders = [tmp_path / str(place_of_death) for place_of_death in range(7)]
    for folder in folders:
        place(text, folder)
    done = subprocess.run([sys.executable, "-c", UPGRADE, *folders], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        (VERSIONS / f"{len(migrations('sqlite')):04d}.sql").write_text(write_store(Path(name)), encoding="utf-8")
