"""File descriptors: callers that wait or stay idle do not block others, even under a low limit."""

from __future__ import annotations

import asyncio
import re
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO

import httpx
import pytest

from pasto.service.http.descriptor_limit import plan_connections
from pasto.service.settings import Settings
from pasto.service.study_file import EXAMPLE

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
sys.argv = ["pasto", "serve", "--port", "0", "--store", "memory:", "--log-format", "text"]
from pasto.cli import main
main()
"""
FEW_DESCRIPTORS = 256
ASSIGN = "/v1/studies/feed/assign"


@dataclass
class LimitedService:
    """Service in a process with a limit of open files, and a client that stays connected."""

    client: httpx.Client
    log: IO[str]
    long_poll: bytes

    @property
    def address(self) -> tuple[str, int]:
        return self.client.base_url.host, self.client.base_url.port or 80

    def read_gauge(self, name: str) -> int:
        found = re.search(rf"^{name} (\S+)$", self.client.get("/metrics").text, re.MULTILINE)
        assert found is not None
        return int(float(found[1]))

    def await_gauge(self, name: str, value: int) -> None:
        """Request a gauge until it has a value; every request is answered, so this needs no clock."""
        for _ in range(2_000):
            if self.read_gauge(name) == value:
                return
        raise AssertionError(f"{name} is {self.read_gauge(name)}, not {value}")

    def count_refused(self, requests: int) -> int:
        """Request decisions, each on a connection of its own, and count those without an answer of 200."""
        refused = 0
        for number in range(requests):
            try:
                status = httpx.post(
                    f"{self.client.base_url}{ASSIGN}", json={"unit": f"{number}"}, timeout=60
                ).status_code
            except httpx.HTTPError:
                status = 0
            refused += status != 200
        return refused

    def read_log(self) -> str:
        self.log.seek(0)
        return self.log.read()


@contextmanager
def serving(soft: int, hard: int) -> Iterator[LimitedService]:
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            [sys.executable, "-c", LIMITED, str(soft), str(hard)], stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            with httpx.Client(base_url=url, timeout=60) as client:
                yaml = {"content-type": "application/yaml"}
                client.post("/v1/studies", content=EXAMPLE, headers=yaml).raise_for_status()
                client.patch("/v1/studies/feed", json={"action": "start"}).raise_for_status()
                tag = client.get("/v1/studies/feed/policy").headers["etag"]
                request = (
                    f"GET /v1/studies/feed/policy?wait=60 HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {tag}\r\n\r\n"
                )
                yield LimitedService(client, log, request.encode())
        finally:
            process.kill()


def test_waiting_and_idle_callers_do_not_block_others() -> None:
    # Fails if the soft limit of 64 is left as it is, or if waiting or idle callers take every connection.
    with serving(soft=64, hard=FEW_DESCRIPTORS) as service, ExitStack() as stack:
        capacity = service.read_gauge("pasto_connections_limit")
        assert 64 < capacity < FEW_DESCRIPTORS
        warned = re.search(r"the system allows 256 open files.* at most (\d+) callers", service.read_log())
        assert warned is not None
        waiters = int(warned[1])
        polls = [stack.enter_context(socket.create_connection(service.address, timeout=60)) for _ in range(waiters)]
        for poll in polls:
            poll.sendall(service.long_poll)
        service.await_gauge("pasto_policy_waiters", waiters)
        for _ in range(20):  # more than the limit
            with socket.create_connection(service.address, timeout=60) as poll:
                poll.sendall(service.long_poll)
                received = b""
                while piece := poll.recv(65_536):
                    received += piece
                assert received.startswith(b"HTTP/1.1 304")
        for _ in range(2 * FEW_DESCRIPTORS):
            stack.enter_context(socket.create_connection(service.address, timeout=60))
        assert service.count_refused(20) == 0


@pytest.mark.services
def test_ten_thousand_long_polls_refuse_no_decision() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    settings = Settings()
    fits = hard >= plan_connections(settings, descriptors=hard, open_files=64).needed
    waiters = settings.max_waiters if fits else hard // 2
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with serving(soft=min(1024, hard), hard=hard) as service:
            # In a separate thread, because a browser test may have left an event loop running in this one.
            with ThreadPoolExecutor(1) as pool:
                refused = pool.submit(lambda: asyncio.run(_poll_and_decide(service, waiters))).result()
            assert refused == 0
            assert ("the system allows" in service.read_log()) is not fits
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _poll_and_decide(service: LimitedService, waiters: int) -> int:
    writers = []
    for _ in range(waiters):
        _, writer = await asyncio.open_connection(*service.address)
        writer.write(service.long_poll)
        writers.append(writer)
    await asyncio.to_thread(service.await_gauge, "pasto_policy_waiters", waiters)
    refused = await asyncio.to_thread(service.count_refused, 300)
    for writer in writers:
        writer.close()
    return refused
