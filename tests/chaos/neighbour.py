"""Neighbour: a caller in a process of its own that times its requests during an attack on the service.

`python -m tests.chaos.neighbour KIND URL KEY` sends requests until its input is closed, then prints its latencies as
JSON. Each request has a planned start time and a connection of its own. Its latency counts from the planned start, so
that a request that waits for the previous one is not measured as a fast one.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

ASSIGN, INGEST = "assign", "ingest"
RATES = {ASSIGN: 40.0, INGEST: 4.0}
"""Requests a second."""
BATCH_EVENTS = 1_000
TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds of each answered request in ascending order, and how many were not answered with 200."""

    seconds: tuple[float, ...]
    failed: int
    statuses: dict[str, int]

    def quantile(self, share: float) -> float:
        """Return the latency that this share of the requests did not exceed.

        >>> Latencies((0.1, 0.2, 0.3, 0.4), 0, {}).quantile(0.5)
        0.3
        """
        if not self.seconds:
            return math.inf
        return self.seconds[min(len(self.seconds) - 1, int(share * len(self.seconds)))]


class Neighbour:
    """Process of the caller, from its start to its report."""

    def __init__(self, url: str, kind: str = ASSIGN, key: str = "") -> None:
        command = [sys.executable, "-m", "tests.chaos.neighbour", kind, url, key]
        self._process = subprocess.Popen(
            command, env=dict(os.environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Neighbour:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def report(self) -> Latencies:
        """Stop the process, and return its measurements."""
        text, _ = self._process.communicate(timeout=3 * TIMEOUT_SECONDS)
        figures = json.loads(text)
        return Latencies(tuple(sorted(figures["seconds"])), figures["failed"], figures["statuses"])


def measure_quiet(url: str, kind: str = ASSIGN, seconds: float = 2.0, key: str = "") -> Latencies:
    """Measure a neighbour without other load."""
    with Neighbour(url, kind, key) as neighbour:
        time.sleep(seconds)
        return neighbour.report()


def _request(kind: str, number: int) -> tuple[str, bytes]:
    if kind == ASSIGN:
        return "/v1/studies/feed/assign", json.dumps({"unit": f"neighbour {number}"}).encode()
    events: list[dict[str, Any]] = [
        {"type": "metric", "id": f"n/{os.getpid()}/{number}/{place}", "unit": f"neighbour {place}", "name": "seen",
         "fields": {"x": place / BATCH_EVENTS, "y": 0.0}}
        for place in range(BATCH_EVENTS)
    ]  # fmt: skip
    return "/v1/studies/feed/events", json.dumps(events).encode()


def _ask(address: str, path: str, body: bytes, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def main(words: Sequence[str]) -> None:
    """Send requests until the input is closed."""
    kind, url, key = words
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    seconds: list[float] = []
    statuses: dict[int, int] = {}
    due = time.perf_counter()
    number = 0
    while not ended.wait(max(0.0, due - time.perf_counter())):
        path, body = _request(kind, number)
        status = _ask(urlsplit(url).netloc, path, body, headers)
        statuses[status] = statuses.get(status, 0) + 1
        if status == 200:
            seconds.append(time.perf_counter() - due)
        number += 1
        due += 1 / RATES[kind]
    failed = sum(count for status, count in statuses.items() if status != 200)
    sys.stdout.write(json.dumps({"seconds": seconds, "failed": failed, "statuses": statuses}))


if __name__ == "__main__":
    main(sys.argv[1:])
