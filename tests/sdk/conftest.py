from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pasto_sdk import Client, FakeService, Request
from pasto_sdk.policy import PublishedPolicy, publish_policy


class Clock:
    """Clock that a test moves forward."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Server(ThreadingHTTPServer):
    """HTTP server that holds long polls open as the service does, on a real port."""

    daemon_threads = True

    def __init__(self, service: FakeService) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.service = service
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.connections = 0
        self.waiting = 0
        self.changed = threading.Condition()
        self.closing = False

    def publish(self, policy: PublishedPolicy) -> None:
        with self.changed:
            self.service.publish(policy)
            self.changed.notify_all()

    def get_request(self) -> tuple[socket.socket, str]:
        self.connections += 1
        return super().get_request()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.answer(b"")

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, body: bytes) -> None:
        request = Request(self.command, self.path, dict(self.headers.items()), body)
        held = self.headers.get("If-None-Match")
        if "wait=" in self.path:
            with self.server.changed:
                self.server.waiting += 1
                self.server.changed.wait_for(
                    lambda: self.server.closing or f'"{self.server.service.current.checksum}"' != held,  # type: ignore[union-attr]
                    float(self.path.rpartition("=")[2]),
                )
                self.server.waiting -= 1
        response = self.server.service(request)
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        self.wfile.write(response.body)

    def handle_one_request(self) -> None:
        with suppress(ConnectionError):  # The caller may be gone.
            super().handle_one_request()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def no_files_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every test a new cache folder for the user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))


@pytest.fixture
def policy() -> Callable[..., PublishedPolicy]:
    """Return a policy of four candidates with a control; `shares` by candidate, and other options of publish."""

    def make(version: int = 1, shares: tuple[float, ...] = (0.1, 0.2, 0.3, 0.3), **changes: Any) -> PublishedPolicy:
        arms = [("control", 0, 1 - sum(shares)), *(("learner", place, share) for place, share in enumerate(shares))]
        settings: dict[str, Any] = {
            "study": "feed",
            "version": version,
            "round": version,
            "state": "learning",
            "mode": "shuffled",
            "salt": f"feed/{version}",
            "candidates": {place: (f"c{place}", {"weight": place}) for place in range(len(shares))},
            "baseline": 0,
            "shares": [arm for arm in arms if arm[2] > 1e-12],
            "valid_from": 1e9 + version,
            "expires_after": 86400,
        }
        return publish_policy(**(settings | changes))

    return make


@pytest.fixture
def frequent_thread_switches() -> Iterator[None]:
    """Switch threads as often as possible, so that missing locks cause failures."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def service(policy: Callable[..., PublishedPolicy]) -> FakeService:
    return FakeService(policy())


@pytest.fixture
def server(service: FakeService) -> Iterator[Server]:
    running = Server(service)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    with running.changed:
        running.closing = True
        running.changed.notify_all()
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture
def connect(service: FakeService, clock: Clock) -> Iterator[Callable[..., Client]]:
    """Make clients that do their work only when the test asks for it, on the clock of the test."""
    with ExitStack() as stack:

        def make(ready: bool = True, **options: Any) -> Client:
            settings: dict[str, Any] = {
                "study": "feed",
                "cache": None,
                "transport": service,
                "clock": clock,
                "background": False,
            }
            client = stack.enter_context(Client("http://rehearsal", **(settings | options)))
            if ready:
                client.wait_until_ready()
            return client

        yield make
