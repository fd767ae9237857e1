"""PostgreSQL store: several nodes, lost connections, and a server that stops."""

import importlib
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from pasto.cli import main
from pasto.errors import MissingExtraError, StoreError, UnsafeStoreError
from pasto.store import EXPOSURE, METRIC, AuditRow, CloseRow, EventRow, PolicyRow, Store, StudyRow, open_store
from pasto.store.postgres_session import LOCKS
from pasto.store.postgres_store import PostgresStore
from pasto.store.schema import migrations

Opened = Callable[[str], Store]
services = pytest.mark.services


def exposures(*ids: str) -> list[EventRow]:
    return [EventRow(identity, EXPOSURE, f"u{identity[-1]}", 1, "learner", 0) for identity in ids]


def create(store: Store) -> StudyRow:
    row = StudyRow("feed", 0, 1, "draft", "{}", 1, 0, 0, 0.0, 0.0)
    return store.create_study(row, AuditRow(0.0, "ann", "create", ""))


def ids(store: Store) -> list[str]:
    with store.read_transaction() as connection:
        return [row[0] for row in connection.execute("SELECT id FROM events ORDER BY sequence").fetchall()]


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def missing(name: str, package: str | None = None) -> Any:
        if name == "psycopg":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[postgres\]'"):
        open_store("postgresql://localhost/pasto")


def test_the_error_of_an_absent_server_does_not_contain_the_password(tmp_path: Path) -> None:
    with pytest.raises(UnsafeStoreError) as caught:
        open_store(f"postgresql://pasto:hunter2@/pasto?host={tmp_path}")
    assert "cannot be opened" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@services
def test_the_address_names_the_schema_of_the_tables(postgres_url: str, opened: Opened) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE SCHEMA apart")
    store = opened(f"{postgres_url}&options=-csearch_path%3Dapart")
    store.append_events(create(store).number, exposures("1")).result()
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT id FROM apart.events").fetchall() == [("1",)]


@services
@pytest.mark.parametrize(("option", "limit"), [("", "1min"), ("&options=-cstatement_timeout%3D10min", "10min")])
def test_the_address_sets_the_statement_timeout(postgres_url: str, opened: Opened, option: str, limit: str) -> None:
    with opened(f"{postgres_url}{option}").read_transaction() as connection:
        assert connection.execute("SHOW statement_timeout").fetchone() == (limit,)
        assert connection.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("10min",)


@services
def test_nodes_that_start_together_make_the_tables_once(postgres_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: open_store(postgres_url), range(4)))
    create(stores[0])
    assert [len(store.list_studies()) for store in stores] == [1, 1, 1, 1]
    for store in stores:
        store.close()


@services
def test_tables_of_a_newer_version_are_refused(postgres_url: str) -> None:
    open_store(postgres_url).close()
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE name = 'schema'")
    with pytest.raises(UnsafeStoreError, match="newer PASTO"):
        open_store(postgres_url)


@services
def test_a_database_of_version_2_is_brought_up_to_date(postgres_url: str, opened: Opened) -> None:
    add = (
        "INSERT INTO events (study, id, kind, unit, version, arm, candidate, excluded, source, position, received_at) "
        "VALUES (1, %s, 0, %s, 1, 'learner', 0, 0, %s, %s, 0)"
    )
    with psycopg.connect(postgres_url) as connection:
        for statement in (statement for step in migrations("postgres")[:2] for statement in step):
            connection.execute(statement.encode())
        connection.execute("INSERT INTO meta VALUES ('schema', '2')")
        # The row that version 2 left of an archived event, and three that are in the store.
        for row in [("ä1", "", "s", 1), ("ä2", "u2", "s", 2), ("3", "u3", None, None), ("4", "u4", None, None)]:
            connection.execute(add, row)
    store = opened(postgres_url)
    number = create(store).number
    assert number == 1
    sent = [*exposures("ä1", "ä2"), *exposures("3", "4", "5")]
    sent = [event._replace(source="s") for event in sent[:2]] + sent[2:]
    answer = store.append_events(number, sent).result()
    assert (answer.new, answer.conflicts) == ((False, False, False, False, True), ())
    assert [tuple(row) for row in store.list_archived_spans(number, 0, 9)] == [(1, 1, 1, 1)]
    assert ids(store) == ["ä2", "3", "4", "5"]
    assert store.measure_size()[2:] == (5, 1)


@services
def test_of_two_nodes_one_closes_each_round(postgres_url: str, opened: Opened) -> None:
    nodes = [opened(postgres_url), opened(postgres_url)]
    number = create(nodes[0]).number
    wins: list[int] = []

    def race(node: Store) -> None:
        for goal in range(1, 31):
            while True:
                now = node.read_study("feed")
                assert now is not None
                if now.round >= goal:
                    break
                mark = node.read_high_water(number)
                policy = PolicyRow(goal, goal, goal, "{}", "", mark, 0.0)
                close = CloseRow(goal, goal, mark, "[]", "", goal + 1, 0.0)
                audit = [AuditRow(0.0, "ann", "close", "")]
                if node.update_study(now, replace(now, round=goal), policy=policy, close=close, audit=audit):
                    wins.append(goal)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(race, nodes * 2))
    assert sorted(wins) == list(range(1, 31))
    assert len(nodes[1].read_audit_log(number)) == 31


@services
def test_two_nodes_keep_what_both_are_sent_once(postgres_url: str, opened: Opened) -> None:
    nodes = [opened(postgres_url), opened(postgres_url)]
    number = create(nodes[0]).number

    def send(node: Store, order: int) -> int:
        futures = []
        for index in range(0, 400, 20):
            batch = exposures(*(str(index + place) for place in range(20)))
            futures.append(node.append_events(number, batch[::order]))
        return sum(sum(future.result().new) for future in futures)

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(send, nodes * 2, [1, -1, -1, 1]))
    assert sum(counts) == 400
    assert len(ids(nodes[0])) == len(set(ids(nodes[0]))) == 400
    assert list(nodes[0].check_integrity()) == []


@services
def test_no_smaller_sequence_appears_behind_the_mark(postgres_url: str, opened: Opened) -> None:
    store = opened(postgres_url)
    number = create(store).number
    store.append_events(number, exposures("1")).result()
    with psycopg.connect(postgres_url, autocommit=True) as watch, psycopg.connect(postgres_url) as slow:
        # Another node has its sequence already, and has not committed.
        slow.execute("SELECT pg_advisory_xact_lock_shared(%s, %s)", (LOCKS, number))
        slow.execute(
            "INSERT INTO events (study, id, kind, unit, excluded, received_at) VALUES (%s, 'slow', 0, 'u', 1, 0)",
            (number,),
        )
        store.append_events(number, exposures("2")).result()  # appending waits for no other session
        with ThreadPoolExecutor(1) as pool:
            mark = pool.submit(store.read_high_water, number)
            while not watch.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchone():
                assert not mark.done()
                time.sleep(0.005)
            slow.commit()
            assert mark.result() == 3
    assert ids(store) == ["1", "slow", "2"]


@services
def test_a_mark_does_not_wait_for_other_studies(postgres_url: str, opened: Opened) -> None:
    store = opened(postgres_url)
    number = create(store).number
    with psycopg.connect(postgres_url) as slow:
        slow.execute("SELECT pg_advisory_xact_lock_shared(%s, %s)", (LOCKS, number + 1))
        assert store.read_high_water(number) == 0


@services
def test_a_question_that_takes_too_long_is_stopped(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, query_timeout="50ms")
    with pytest.raises(StoreError, match="timeout"), store.read_transaction() as connection:
        connection.execute("SELECT pg_sleep(60)")
    assert store.list_studies() == []
    store.close()


@services
def test_a_restart_of_the_server_loses_nothing(postgres_server: Any, postgres_url: str, opened: Opened) -> None:
    store = opened(postgres_url)
    number = create(store).number
    answers: list[tuple[bool, ...]] = []

    def send(who: int) -> None:
        for index in range(60):
            batch = exposures(*(f"{who}/{index}/{place}" for place in range(10)))
            answers.append(store.append_events(number, batch).result().new)

    with ThreadPoolExecutor(3) as pool:
        senders = [pool.submit(send, who) for who in range(2)]
        for mode in ("immediate", "fast", "immediate"):
            count = len(answers)
            while len(answers) == count and not all(sender.done() for sender in senders):
                time.sleep(0.001)
            postgres_server.stop(mode)
            postgres_server.start()
        for sender in senders:
            sender.result()
    assert answers == [(True,) * 10] * 120
    assert len(ids(store)) == len(set(ids(store))) == 1200
    assert store.revoke_key("none", 1.0) is False
    assert list(store.check_integrity()) == []


@services
def test_a_server_that_stays_away_is_reported(postgres_server: Any, postgres_url: str) -> None:
    store = PostgresStore(postgres_url, retry_seconds=0.5)
    study = create(store)
    postgres_server.stop("immediate")
    try:
        with pytest.raises(StoreError, match="nothing of it is stored"):
            store.append_events(study.number, exposures("1")).result()
        with pytest.raises(StoreError, match="nothing of it is stored"):
            store.update_study(study, study)
        with pytest.raises(StoreError, match="could not be read"):
            store.list_studies()
    finally:
        postgres_server.start()
    assert store.append_events(study.number, exposures("1", "2")).result().new == (True, True)
    assert store.update_study(study, study)
    store.close()


class Cutter:
    """Proxy between a node and its server, which cuts the connection at a commit on request."""

    def __init__(self, folder: Path, server: Path) -> None:
        self.folder = folder
        self.cut: str | None = None
        self.cuts = 0
        self.heard = threading.Event()
        self._server = str(server / ".s.PGSQL.5432")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._server)
            for target, pair in ((self._forth, (near, far)), (self._back, (near, far))):
                thread = threading.Thread(target=target, args=pair, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _forth(self, near: socket.socket, far: socket.socket) -> None:
        with near, far:
            while data := _receive(near):
                if self.cut is not None and b"COMMIT" in data:
                    how, self.cut = self.cut, None
                    self.cuts += 1
                    self.heard.clear()
                    near.shutdown(socket.SHUT_RDWR)  # the server's answer is dropped
                    if how == "after":
                        far.sendall(data)
                        self.heard.wait()  # the server has answered, so it has committed
                    break
                far.sendall(data)
            _hang_up(far)

    def _back(self, near: socket.socket, far: socket.socket) -> None:
        while data := _receive(far):
            try:
                near.sendall(data)
            except OSError:
                self.heard.set()
        _hang_up(near)


def _receive(line: socket.socket) -> bytes:
    try:
        return line.recv(65536)
    except OSError:
        return b""


def _hang_up(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def cutter(postgres_server: Any) -> Iterator[Cutter]:
    with tempfile.TemporaryDirectory(prefix="pasto-cut-", dir="/tmp") as folder:
        one = Cutter(Path(folder), postgres_server.folder)
        yield one
        one.close()


@services
@pytest.mark.parametrize("how", ["before", "after"])
def test_a_line_cut_at_the_commit_counts_nothing_twice(
    postgres_server: Any, postgres_url: str, cutter: Cutter, how: str, opened: Opened
) -> None:
    store = opened(postgres_url.replace(str(postgres_server.folder), str(cutter.folder)))
    study = create(store)
    cutter.cut = how
    batch = [*exposures("1", "2"), EventRow("m", METRIC, "u1", None, None, None, "watch")]
    assert store.append_events(study.number, batch).result().new == (True, True, True)
    assert cutter.cuts == 1
    cutter.cut = how
    assert store.update_study(study, replace(study, state="learning"), audit=[AuditRow(0.0, "ann", "start", "")])
    assert cutter.cuts == 2
    assert ids(store) == ["1", "2", "m"]
    assert len(store.read_audit_log(study.number)) == 2
    assert list(store.check_integrity()) == []


@services
def test_a_check_of_a_server_with_checksums_warns_of_nothing(postgres_server: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="pasto-pg-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = type(postgres_server)(folder, "--data-checksums")
        try:
            checked = _check(server.url())
        finally:
            server.stop("immediate")
    assert (checked.exit_code, "warning" in checked.stderr) == (0, False)


def test_a_check_of_a_server_without_checksums_succeeds_with_a_warning(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        is_off = connection.execute("SHOW data_checksums").fetchone() == ("off",)  # default from PostgreSQL 18
    checked = _check(postgres_url)
    assert (checked.exit_code, checked.stdout) == (0, "")
    assert ("warning: the server has data_checksums off" in checked.stderr) == is_off
    assert ("pg_checksums --enable" in checked.stderr) == is_off


def _check(url: str) -> Result:
    return CliRunner().invoke(main, ["store", "check", "--store", url], prog_name="pasto")
