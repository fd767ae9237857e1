"""Power loss: acknowledged events survive it, for every state in which a disk can leave unsynced writes."""

import random
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest

from pasto.errors import StoreError
from pasto.store import EXPOSURE, METRIC, AuditRow, EventRow, StudyRow
from pasto.store.sqlite_store import SqliteStore

# On a dead disk one failure follows another, and the driver can raise only the first of them.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

T = TypeVar("T")
SECTOR = 512
Write = tuple[int, bytes] | int
"""Bytes at an offset, or a new length."""


class PowerLoss(apsw.VFS):
    """Real files with a journal of synced writes; every operation after the power loss fails."""

    def __init__(self, name: str, limit: int, *, once: bool = False) -> None:
        self.name = name
        self.limit = limit
        self.once = once
        self.operations = 0
        self.durable: dict[str, bytes] = {}
        self.pending: dict[str, list[Write]] = {}
        super().__init__(name, "")

    def operate(self) -> None:
        self.operations += 1
        if self.operations > self.limit and not (self.once and self.operations > self.limit + 1):
            raise apsw.IOError("the disk failed")

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:  # noqa: N802
        return LosingFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self.operate()
        super().xDelete(filename, syncdir)
        self.durable.pop(filename, None)
        self.pending.pop(filename, None)

    def write_surviving_state(self, chance: random.Random, folder: Path) -> None:
        """Write a possible state of the disk: all synced writes, and any part of the others, in any order."""
        folder.mkdir()
        for name in self.durable.keys() | self.pending.keys():
            writes = [write for write in self.pending.get(name, []) if chance.random() < 0.5]
            chance.shuffle(writes)
            if name not in self.durable and not writes:
                continue
            content = bytearray(self.durable.get(name, b""))
            for write in writes:
                _apply(content, _torn(write, chance))
            (folder / Path(name).name).write_bytes(content)


class LosingFile(apsw.VFSFile):
    def __init__(self, power: PowerLoss, name: Any, flags: Any) -> None:
        super().__init__("", name, flags)
        self._power = power
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        path = Path(self._name)
        if self._name not in power.durable and self._name not in power.pending:
            if path.exists() and path.stat().st_size:
                power.durable[self._name] = path.read_bytes()
            power.pending[self._name] = []

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._power.operate()
        super().xWrite(data, offset)
        self._power.pending.setdefault(self._name, []).append((offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._power.operate()
        super().xTruncate(newsize)
        self._power.pending.setdefault(self._name, []).append(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._power.operate()
        content = bytearray(self._power.durable.get(self._name, b""))
        for write in self._power.pending.get(self._name, []):
            _apply(content, write)
        self._power.durable[self._name] = bytes(content)
        self._power.pending[self._name] = []


def _apply(content: bytearray, write: Write) -> None:
    if isinstance(write, int):
        del content[write:]
        content.extend(bytes(write - len(content)))
        return
    offset, data = write
    content.extend(bytes(max(0, offset + len(data) - len(content))))
    content[offset : offset + len(data)] = data


def _torn(write: Write, chance: random.Random) -> Write:
    """Cut some writes between two sectors."""
    if isinstance(write, int) or chance.random() < 0.5:
        return write
    offset, data = write
    return offset, data[: chance.randrange(len(data) // SECTOR + 1) * SECTOR]


def _fold(connection: apsw.Connection, name: str, pages: int) -> int:
    """Checkpoint the log early, so that the power can fail then too; as in SQLite, it may fail after the commit."""
    if pages > 25:
        with suppress(apsw.Error):
            connection.wal_checkpoint(name)
    return apsw.SQLITE_OK


class Connection:
    """Connection with the store's own statements through the other driver; it has the methods that the store uses."""

    def __init__(self, address: str, power: PowerLoss, synchronous: str) -> None:
        self._synchronous = synchronous
        path = address.removeprefix("file://")
        self._inner = apsw.Connection(path, vfs=power.name)
        # This driver's file systems share no memory: the log's index is kept by the one connection there is.
        self._inner.execute("PRAGMA locking_mode = EXCLUSIVE")

    @property
    def in_transaction(self) -> bool:
        return self._inner.in_transaction

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        if statement == "PRAGMA synchronous = FULL":
            statement = f"PRAGMA synchronous = {self._synchronous}"
        if statement.startswith("PRAGMA wal_autocheckpoint"):
            self._inner.set_wal_hook(_fold)
            return None
        return self._run(self._inner.execute, statement, values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> Any:
        return self._run(self._inner.executemany, statement, rows)

    def create_function(self, name: str, count: int, function: Callable[..., Any], *, deterministic: bool) -> None:
        self._inner.create_scalar_function(name, function, count, deterministic=deterministic)

    def close(self) -> None:
        with suppress(apsw.Error):
            self._inner.close(True)

    def _run(self, call: Any, statement: str, values: Any) -> Any:
        try:
            return call(statement, values)
        except apsw.ConstraintError as error:
            raise sqlite3.IntegrityError(str(error)) from error
        except apsw.Error as error:
            raise sqlite3.OperationalError(str(error)) from error


def batch_of(index: int) -> list[EventRow]:
    """Return twenty new events, and three that were sent before."""
    units = [f"unit-{(index * 7 + place) % 40}" for place in range(10)]
    batch = [EventRow(f"{index}/{u}", EXPOSURE, u, 1, "learner", 0) for u in units]
    batch += [EventRow(f"{index}/m/{u}", METRIC, u, None, None, None, "watch", "{}") for u in units]
    return [*batch, *(EventRow(f"{max(index - 1, 0)}/{u}", EXPOSURE, u, 1, "learner", 0) for u in units[:3])]


def work_until_power_loss(folder: Path, power: PowerLoss, synchronous: str) -> set[str]:
    """Work until the power fails; return the ids that were acknowledged by then."""
    acknowledged: set[str] = set()
    try:
        store = SqliteStore(folder, connect=lambda address: Connection(address, power, synchronous))  # type: ignore[arg-type,return-value]
    except StoreError:
        return acknowledged
    try:
        row = StudyRow("feed", 0, 1, "draft", "{}", 1, 0, 0, 0.0, 0.0)
        number = store.create_study(row, AuditRow(0.0, "ann", "create", "")).number
        for index in range(25):
            batch = batch_of(index)
            if all(store.append_events(number, batch).result().new[:20]):
                acknowledged.update(event.id for event in batch[:20])
    except StoreError:
        pass
    finally:
        store.close()
    return acknowledged


def crash(folder: Path, limit: int, synchronous: str = "FULL") -> tuple[set[str], list[str]]:
    """Return the acknowledged ids that are lost after a power failure, and other errors."""
    power = PowerLoss(f"power-{folder.name}-{limit}-{synchronous}", limit)
    acknowledged = work_until_power_loss(folder / "before", power, synchronous)
    power.write_surviving_state(random.Random(limit), folder / "after")
    power.unregister()
    store = SqliteStore(folder / "after")
    try:
        with store.read_transaction() as connection:
            ids = [row[0] for row in connection.execute("SELECT id FROM events")]
        wrong = list(store.check_integrity())
        if len(ids) != len(set(ids)):
            wrong.append("some events were kept twice")
        return acknowledged - set(ids), wrong
    finally:
        store.close()


def length(folder: Path) -> int:
    """Return the number of operations of a complete run."""
    power = PowerLoss(f"power-{folder.name}-whole", 10**9)
    assert len(work_until_power_loss(folder / "whole", power, "FULL")) == 500
    power.unregister()
    return power.operations


def points(folder: Path, count: int) -> list[int]:
    size = length(folder)
    assert size > count
    return [1 + index * size // count for index in range(count)]


@pytest.mark.parametrize("count", [50, pytest.param(200, marks=pytest.mark.services)])
def test_nothing_acknowledged_is_lost(tmp_path: Path, count: int) -> None:
    for limit in points(tmp_path, count):
        folder = tmp_path / str(limit)
        folder.mkdir()
        assert crash(folder, limit) == (set(), []), f"the power failed after {limit} operations"


def test_the_simulated_disk_loses_unsynced_writes(tmp_path: Path) -> None:
    lost = 0
    for limit in points(tmp_path, 20):
        folder = tmp_path / str(limit)
        folder.mkdir()
        missing, _ = crash(folder, limit, "NORMAL")
        lost += bool(missing)
    assert lost > 5


def persist(folder: Path, power: PowerLoss) -> int:
    """Work on a disk that fails once, and repeat refused writes; return the number of refusals."""
    refused = 0

    def insist(call: Callable[[], T]) -> T:
        nonlocal refused
        while True:
            try:
                return call()
            except StoreError:
                refused += 1
                assert refused < 10

    def connect(address: str) -> Any:
        return Connection(address, power, "FULL")

    store = insist(lambda: SqliteStore(folder, connect=connect))
    row = StudyRow("feed", 0, 1, "draft", "{}", 1, 0, 0, 0.0, 0.0)
    number = insist(lambda: store.create_study(row, AuditRow(0.0, "ann", "create", ""))).number
    for index in range(25):
        batch = batch_of(index)
        answer = insist(lambda batch=batch: store.append_events(number, batch).result())  # type: ignore[misc]
        assert all(answer.new[:20]), "it was refused, and yet kept"
    store.close()
    return refused


@pytest.mark.parametrize("count", [25, pytest.param(150, marks=pytest.mark.services)])
def test_a_disk_that_fails_once_is_reported_and_survived(tmp_path: Path, count: int) -> None:
    refusals = 0
    for limit in points(tmp_path, count):
        power = PowerLoss(f"power-{tmp_path.name}-{limit}-once", limit, once=True)
        folder = tmp_path / str(limit)
        refusals += persist(folder, power)
        power.unregister()
        store = SqliteStore(folder)
        with store.read_transaction() as connection:
            assert connection.execute("SELECT count(*), count(DISTINCT id) FROM events").fetchone() == (500, 500)
        assert list(store.check_integrity()) == []
        store.close()
    assert refusals > count // 2
