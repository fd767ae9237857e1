"""Campaign: its scenarios, and the resources that each of them uses."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.chaos.report import Outcome
from tests.chaos.service_process import ServiceProcess
from tests.conftest import PostgresServer

SQLITE, POSTGRES = "sqlite", "postgres"
STORES = (SQLITE, POSTGRES)
SCENARIO_SECONDS, QUICK_SECONDS = 40.0, 10.0
"""Time after which a scenario begins no further repetition: a slow machine repeats less often."""


class Workshop:
    """Temporary folders, stores and processes of a campaign; all are removed and stopped with it."""

    def __init__(self, *, seed: int, is_quick: bool, judges_latency: bool = True) -> None:
        self.seed = seed
        self.is_quick = is_quick
        self.judges_latency = judges_latency
        """Whether a neighbour that waits is a broken promise; on a busy machine it is only reported."""
        self._stack = ExitStack()
        self._folder = Path(tempfile.mkdtemp(prefix="pasto-chaos-", dir="/tmp"))
        self._folder.chmod(0o755)  # PostgreSQL runs as another user if we are root
        self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        self._numbers = count(1)
        self._postgres: PostgresServer | None = None

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def postgres(self) -> PostgresServer:
        """The campaign's own PostgreSQL server, started at the first use."""
        if self._postgres is None:
            self._postgres = PostgresServer(self.folder())
            self._stack.callback(self._postgres.stop, "immediate")
        return self._postgres

    def folder(self) -> Path:
        """Return a new, empty folder."""
        folder = self._folder / str(next(self._numbers))
        folder.mkdir()
        return folder

    def store(self, kind: str) -> str:
        """Return the address of a new, empty store."""
        return self.postgres.fresh() if kind == POSTGRES else str(self.folder() / "store")

    def node(self, store: str, *options: str) -> ServiceProcess:
        """Return a service that is not started yet; it stops with the campaign at the latest."""
        node = ServiceProcess(store, self._folder / f"service-{next(self._numbers)}.log", *options)
        self._stack.callback(node.close)
        return node

    @contextmanager
    def serving(self, store: str, *options: str) -> Iterator[ServiceProcess]:
        """Run a service for the duration of a block."""
        node = self.node(store, *options)
        try:
            yield node.start()
        finally:
            node.close()

    def turns(self, repetitions: int) -> Iterator[int]:
        """Yield the numbers of the repetitions until there are enough or the scenario's time is over."""
        until = time.monotonic() + (QUICK_SECONDS if self.is_quick else SCENARIO_SECONDS)
        for turn in range(repetitions):
            if turn and time.monotonic() > until:
                return
            yield turn

    def random(self, name: str) -> random.Random:
        """Return the random numbers of a scenario, the same for the same seed."""
        return random.Random(f"{self.seed}/{name}")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of failure or attack, repeated on each store that it concerns."""

    group: str
    name: str
    run: Callable[[Workshop, Outcome, int], None]
    """Fills in the outcome with so many repetitions."""
    repetitions: int
    quick_repetitions: int = 1
    stores: Sequence[str] = (SQLITE,)

    def repetitions_for(self, workshop: Workshop) -> int:
        """Return the number of times that the campaign repeats the scenario."""
        return self.quick_repetitions if workshop.is_quick else self.repetitions
