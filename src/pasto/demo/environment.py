"""Where the demonstration plays: on a real service in a process of its own, or on the same parts inside this one."""

from __future__ import annotations

import gzip
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
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

from pasto.errors import StoreError
from pasto.report.records import Report
from pasto.service.http_client import HttpStudyApi
from pasto.service.service import Service
from pasto.store import Store, open_store
from pasto_sdk import Client
from pasto_sdk.transport import Request, Response

HOST = "127.0.0.1"
PATIENCE = 30.0
"""Seconds for a service to start, and for a client to hear of a policy."""
WHO = "demo"


class Environment(Protocol):
    """A running system that a study can be played on."""

    @property
    def address(self) -> str:
        """Where it listens."""

    def create(self, document: Mapping[str, Any], seed: int) -> None:
        """Take in a study file and start it."""

    def client(self, study: str) -> Client:
        """The SDK, in front of it."""

    def close_round(self, study: str) -> int:
        """End the open round, or look at a confirmation; the version of the policy that then holds."""

    def confirm(self, study: str) -> int:
        """Freeze the answer and test it; the version of the policy that does."""

    def show(self, study: str) -> dict[str, Any]:
        """A study as it stands."""

    def report(self, study: str) -> Report:
        """A study's report."""

    @contextmanager
    def books(self) -> Iterator[Store]:
        """The store, to read what was measured."""


class InProcessEnvironment:
    """The service in this process on a store in memory, with the SDK in front of it and no network between.

    >>> with InProcessEnvironment() as stage:
    ...     stage.address
    'inside'
    """

    address = "inside"

    def __init__(self) -> None:
        self._store = open_store("memory:")
        self._service = Service(self._store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._service.shutdown()

    def create(self, document: Mapping[str, Any], seed: int) -> None:
        """Take in a study file and start it."""
        self._service.create(document, who=WHO, seed=seed)
        self._service.change(document["name"], "start", who=WHO)

    def client(self, study: str) -> Client:
        """The SDK with calls for requests."""
        return Client(
            "http://inside", study=study, cache=None, background=False, transport=lambda sent: self._answer(study, sent)
        )

    def close_round(self, study: str) -> int:
        """End the open round, or look at a confirmation; the version of the policy that then holds."""
        return int(self._service.close_round(study, who=WHO)["next_version"])

    def confirm(self, study: str) -> int:
        """Freeze the answer and test it; the version of the policy that does."""
        return int(self._service.change(study, "confirm", who=WHO, reason="learned enough")["version"])

    def show(self, study: str) -> dict[str, Any]:
        """A study as it stands."""
        return self._service.show(study)

    def report(self, study: str) -> Report:
        """A study's report."""
        return self._service.report(study)

    @contextmanager
    def books(self) -> Iterator[Store]:
        """The store, to read what was measured."""
        yield self._store

    def _answer(self, study: str, sent: Request) -> Response:
        if urlsplit(sent.url).path.endswith("/policy"):
            policy = self._service.board.current(study)
            return Response(200, {"ETag": f'"{policy.checksum}"'}, policy.text.encode())
        packed = sent.headers.get("Content-Encoding") == "gzip"
        body = gzip.decompress(sent.body) if packed else sent.body
        taken = self._service.ingest(study, self._service.decode(body)).result()
        return Response(200, {}, json.dumps(taken).encode())


class ServiceEnvironment:
    """`pasto serve` in a process of its own on an embedded store, asked over HTTP; made by `run_service`."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._port = port
        self._remote = HttpStudyApi(self.address)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self._port}"

    def start(self) -> None:
        """Start the service, and wait until it answers."""
        words = ["-m", "pasto", "serve", "--store", str(self._folder), "--port", str(self._port)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PASTO_")}
        log = (self._folder.parent / "service.log").open("ab")
        with log:
            self._process = subprocess.Popen(  # noqa: S603 -- our own command
                [sys.executable, *words], env=environment, stdout=log, stderr=log
            )
        try:
            self._await(self._process)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the service, and wait until it has ended."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def wait(self) -> None:
        """Stay until the service ends."""
        if self._process is not None:
            self._process.wait()

    def create(self, document: Mapping[str, Any], seed: int) -> None:
        """Take in a study file and start it."""
        request = urllib.request.Request(  # noqa: S310 -- our own address
            f"{self.address}/v1/studies?seed={seed}",
            data=json.dumps(document).encode(),
            headers={"Content-Type": "application/json"},
        )
        with _direct(request):
            pass
        self._remote.change(document["name"], "start", who=WHO)

    def client(self, study: str) -> Client:
        """The SDK over HTTP, without threads: rounds are shorter here than its threads would let pass unasked."""
        return Client(self.address, study=study, cache=None, background=False)

    def close_round(self, study: str) -> int:
        """End the open round, or look at a confirmation; the version of the policy that then holds."""
        return int(self._remote.close_round(study, who=WHO, reason="enough users")["next_version"])

    def confirm(self, study: str) -> int:
        """Freeze the answer and test it; the version of the policy that does."""
        return int(self._remote.change(study, "confirm", who=WHO, reason="learned enough")["version"])

    def show(self, study: str) -> dict[str, Any]:
        """A study as it stands."""
        return self._remote.show(study)

    def report(self, study: str) -> Report:
        """A study's report."""
        return self._remote.report(study)

    @contextmanager
    def books(self) -> Iterator[Store]:
        """The store, to read what was measured; only one process can open it, so the service is stopped for it."""
        self.stop()
        store = open_store(str(self._folder))
        try:
            yield store
        finally:
            store.close()

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        until = monotonic() + PATIENCE
        while monotonic() < until:
            if process.poll() is not None:
                log = (self._folder.parent / "service.log").read_text(errors="replace").strip()
                raise StoreError(f"the service ended with code {process.returncode}: {log[-500:]}")
            try:
                with _direct(f"{self.address}/readyz"):
                    return
            except urllib.error.HTTPError as answer:
                answer.close()
            except OSError:
                pass
            sleep(0.05)
        raise StoreError(f"the service did not answer at {self.address} within {PATIENCE:g} s")


@contextmanager
def run_service(folder: Path) -> Iterator[ServiceEnvironment]:
    """A real service on a free port, its store in that folder; it ends with the block."""
    stage = ServiceEnvironment(folder / "store", _free_port())
    stage.start()
    try:
        yield stage
    finally:
        stage.stop()


def read_line(client: Client, version: int) -> None:
    """Wait until a client decides by that policy or a later one."""
    until = monotonic() + PATIENCE
    while client.status()["version"] < version:
        if monotonic() > until:
            raise StoreError(f"the client did not hear of policy {version} within {PATIENCE:g} s: {client.status()}")
        client.ready(0.1)
        sleep(0.001)


_direct: Callable[..., Any] = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
"""Asks this machine, whatever proxy the environment names."""


def _free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        port: int = one.getsockname()[1]
        return port
