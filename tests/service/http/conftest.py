from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from pasto.service.http.routes import Route
from pasto.service.http.server import ServiceProcess
from pasto.service.service import Service
from pasto.service.settings import Settings
from pasto.service.study_file import EXAMPLE, read_document


@dataclass
class Site:
    """Live service with a client that reuses its connection."""

    running: ServiceProcess
    client: httpx.Client

    @property
    def url(self) -> str:
        return self.running.url

    def until(self, met: Callable[[], bool]) -> None:
        """Wait until a condition becomes true by itself."""
        ends = time.monotonic() + 60
        while not met():
            assert time.monotonic() < ends, "it never came about"
            time.sleep(0.01)

    def limit_time(self, seconds: float) -> None:
        """Limit the time of the work on a request from now on; the required arrival speed stays the same."""
        context = self.running.application.context
        context.settings = replace(context.settings, request_timeout=seconds)

    def study(self, name: str = "feed", *, start: bool = True, **changes: Any) -> None:
        """Create a study from the changed example; without a request, whose time may be short."""
        document = {**read_document(EXAMPLE, "yaml"), "name": name, **changes}
        self.running.service.create(document, who="local")
        if start:
            self.running.service.change(name, "start", who="local")


@contextmanager
def serving(pages: Callable[[Service], Sequence[Route]] | None = None, **settings: Any) -> Iterator[Site]:
    """Run a service on a free port, in a thread of its own."""
    running = ServiceProcess(
        Settings(**{"store": "memory:", "port": 0, "poll": 0.05, "shutdown_timeout": 2, **settings}), pages
    )
    thread = threading.Thread(target=running.serve)
    thread.start()
    try:
        while not running.started and thread.is_alive():
            time.sleep(0.005)
        with httpx.Client(base_url=running.url, timeout=60) as client:
            yield Site(running, client)
    finally:
        running.stop()
        thread.join()


Serve = Callable[..., Site]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start services that stop with the test."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(serving(**settings))


@pytest.fixture(scope="module")
def serve_long() -> Iterator[Serve]:
    """Start services that stop with the file's last test."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(serving(**settings))


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Return one service with the study "feed", for tests that do not change it."""
    with serving() as site:
        site.study()
        yield site
