"""Environment of the demonstration: a running service, in a process of its own, that a study runs on."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Protocol

from pasto.errors import StoreError
from pasto.report.records import Report
from pasto.service.http_client import HttpStudyApi
from pasto.service.study_records import StudyOverview
from pasto.store import Store
from pasto.store import open_store as open_store_at
from pasto_sdk import Client

HOST = "127.0.0.1"
TIMEOUT_SECONDS = 30.0
"""Time for a service to start, and for a client to receive a policy."""
USER = "demo"
"""User name in the audit log."""


class Environment(Protocol):
    """Running system that the demonstration uses."""

    @property
    def address(self) -> str:
        """Address that the service listens on."""

    def create(self, document: Mapping[str, Any], seed: int) -> None:
        """Create a study from a study file and start it."""

    def client(self, study: str) -> Client:
        """Return a client of the SDK that uses this system."""

    def close_round(self, study: str) -> int:
        """Close the open round, or evaluate a confirmation; return the version of the next policy."""

    def confirm(self, study: str) -> int:
        """Freeze the blend and start its confirmation; return the version of the new policy."""

    def show(self, study: str) -> StudyOverview:
        """Return the state of a study."""

    def report(self, study: str) -> Report:
        """Return the report of a study."""

    @contextmanager
    def open_store(self) -> Iterator[Store]:
        """Open the store, to read what was measured."""


class ServiceEnvironment:
    """`pasto serve` in a process of its own with an embedded store, used over HTTP; `run_service` creates it."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._port = port
        self._api = HttpStudyApi(self.address)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Address that the service listens on."""
        return f"http://{HOST}:{self._port}"

    def start(self) -> None:
        """Start the service, and wait until it answers."""
        arguments = ["-m", "pasto", "serve", "--store", str(self._folder), "--port", str(self._port)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PASTO_")}
        log = (self._folder.parent / "service.log").open("ab")
        with log:
            self._process = subprocess.Popen(  # noqa: S603 -- our own command
                [sys.executable, *arguments], env=environment, stdout=log, stderr=log
            )
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the service, and wait until its process ends."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def wait(self) -> None:
        """Wait until the service ends."""
        if self._process is not None:
            self._process.wait()

    def create(self, document: Mapping[str, Any], seed: int) -> None:
        """Create a study from a study file and start it."""
        request = urllib.request.Request(  # noqa: S310 -- our own address
            f"{self.address}/v1/studies?seed={seed}",
            data=json.dumps(document).encode(),
            headers={"Content-Type": "application/json"},
        )
        with _direct(request):
            pass
        self._api.change(document["name"], "start", who=USER)

    def client(self, study: str) -> Client:
        """Return an SDK client without background threads, because rounds are shorter than its poll interval."""
        return Client(self.address, study=study, cache=None, background=False)

    def close_round(self, study: str) -> int:
        """Close the open round, or evaluate a confirmation; return the version of the next policy."""
        return self._api.close_round(study, who=USER, reason="enough users").next_version

    def confirm(self, study: str) -> int:
        """Freeze the blend and start its confirmation; return the version of the new policy."""
        return self._api.change(study, "confirm", who=USER, reason="learned enough").version

    def show(self, study: str) -> StudyOverview:
        """Return the state of a study."""
        return self._api.show(study)

    def report(self, study: str) -> Report:
        """Return the report of a study."""
        return self._api.report(study)

    @contextmanager
    def open_store(self) -> Iterator[Store]:
        """Stop the service and open its store, which only one process can open, to read what was measured."""
        self.stop()
        store = open_store_at(str(self._folder))
        try:
            yield store
        finally:
            store.close()

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = monotonic() + TIMEOUT_SECONDS
        while monotonic() < deadline:
            if process.poll() is not None:
                log = (self._folder.parent / "service.log").read_text(errors="replace").strip()
                raise StoreError(f"the service ended with code {process.returncode}: {log[-500:]}")
            try:
                with _direct(f"{self.address}/readyz"):
                    return
            except urllib.error.HTTPError as response:
                response.close()
            except OSError:
                pass
            sleep(0.05)
        raise StoreError(f"the service did not answer at {self.address} within {TIMEOUT_SECONDS:g} s")


@contextmanager
def run_service(folder: Path) -> Iterator[ServiceEnvironment]:
    """Run a real service on a free port, with its store in that folder, until the end of the block."""
    environment = ServiceEnvironment(folder / "store", _free_port())
    environment.start()
    try:
        yield environment
    finally:
        environment.stop()


def wait_for_policy(client: Client, version: int) -> None:
    """Wait until a client uses that version of the policy, or a later one."""
    deadline = monotonic() + TIMEOUT_SECONDS
    while client.status()["version"] < version:
        if monotonic() > deadline:
            raise StoreError(
                f"the client did not receive policy {version} within {TIMEOUT_SECONDS:g} s: {client.status()}"
            )
        client.wait_until_ready(0.1)
        sleep(0.001)


_direct: Callable[..., Any] = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
"""Open an address of this machine without a proxy, also if the environment names one."""


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port
