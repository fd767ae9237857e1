"""The running system under load: decisions in process and over HTTP, durable ingest, the close of a large round."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter, sleep
from typing import Any

from pasto.errors import StoreError
from pasto.sim import Progress
from pasto_research.bench import decisions
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport
from pasto_research.bench.http_load import DOCUMENT, drive, post

HOST = "127.0.0.1"
TURNS = 5
BATCH = 100
STEADY = 25_000
"""Events a second under which latencies are measured; a quarter more than are asked for."""


def run(progress: Progress | None, quick: bool) -> BenchmarkReport:
    """Measure each part in turn, never two at once."""
    parts = (_in_process, _assign, _ingest, _close)
    rows: list[dict[str, Any]] = []
    for place, part in enumerate(parts):
        if progress is not None:
            progress("serve", place, len(parts))
        rows += part(quick)
    if progress is not None:
        progress("serve", len(parts), len(parts))
    return BenchmarkReport(
        "The running system, compared with a limit or with another way of doing the same",
        tuple(rows),
        "Medians of five turns in process, and of assign over HTTP. Over HTTP one process serves and another sends, on "
        "the same two cores; an ingest request is answered when its events are on disk. A ratio is ours over theirs, "
        "in the row's unit.",
    )


def _in_process(quick: bool) -> list[dict[str, Any]]:
    return decisions.rows(quick)


def _assign(quick: bool) -> list[dict[str, Any]]:
    return measure_assign(400 if quick else 5_000)


def measure_assign(count: int) -> list[dict[str, Any]]:
    """Measure decisions over HTTP and a bare echo on uvicorn: medians of turns of `count` requests each."""
    path = f"/v1/studies/{DOCUMENT['name']}/assign"

    def measure_rate(port: int, path: str, prefix: str) -> float:
        return drive(HOST, port, lambda i: post(path, json.dumps({"unit": f"{prefix}-{i}"}).encode()), count=count).rate

    with echoing() as echo_port, serving(DOCUMENT) as port:
        measure_rate(echo_port, "/", "warm")
        measure_rate(port, path, "warm")
        turns = []
        for turn in range(TURNS):
            _wait_written(port)
            echo = measure_rate(echo_port, "/", f"user-{turn}")
            fresh = measure_rate(port, path, f"user-{turn}")
            _wait_written(port)
            turns.append((echo, fresh, measure_rate(port, path, f"user-{turn}")))
    echo, fresh, again = (median(rates) for rates in zip(*turns, strict=True))
    return [
        _row("assign over HTTP, units seen before", "req/s", again, 0.6 * echo, "bare ASGI echo", echo),
        _row("assign over HTTP, every unit new", "req/s", fresh, 0.6 * echo, "bare ASGI echo", echo),
    ]


def _ingest(quick: bool) -> list[dict[str, Any]]:
    return measure_ingest(100 if quick else 2_000)


def measure_ingest(batches: int) -> list[dict[str, Any]]:
    """Measure batches of a hundred events, acknowledged when durable: first all at once, then at a steady rate."""
    path = f"/v1/studies/{DOCUMENT['name']}/events"
    with serving(DOCUMENT) as port:
        version = _policy(port)
        bodies = [post(path, json.dumps(_events(version, place)).encode()) for place in range(2 * batches)]
        most = drive(HOST, port, lambda i: bodies[i], count=batches, connections=8)
        paced = drive(HOST, port, lambda i: bodies[batches + i], count=batches, connections=8, rate=STEADY / BATCH)
    return [
        _row("durable ingest over HTTP, batches of 100: all it takes", "events/s", most.rate * BATCH, 20_000, "", None),
        _row(f"{STEADY:,} events/s come, and are taken", "events/s", paced.rate * BATCH, 20_000, "", None),
        _row("the same, 99th percentile of a batch", "ms", 1e3 * paced.quantile(0.99), 50, "", None),
        _row("that percentile under all it takes", "ms", 1e3 * most.quantile(0.99), None, "", None),
    ]


def _close(quick: bool) -> list[dict[str, Any]]:
    """Time the close of a round over a million events in the embedded store."""
    from pasto.service.service import Service
    from pasto.store import EXPOSURE, METRIC, EventRow, open_store

    total = 20_000 if quick else 1_000_000
    with TemporaryDirectory() as directory:
        store = open_store(directory)
        service = Service(store)
        service.create(DOCUMENT, who="bench")
        service.change(DOCUMENT["name"], "start", who="bench")
        policy = service.policy_cache.current(DOCUMENT["name"])
        row = store.read_study(DOCUMENT["name"])
        assert row is not None  # noqa: S101 -- created above
        waiting = []
        for first in range(0, total // 4, 250):
            events = []
            for user in range(first, first + 250):
                unit = f"user-{user}"
                cell = policy.draw(unit)
                place = (policy.version, cell.arm, cell.candidate)
                events.append(EventRow(f"x{user}", EXPOSURE, unit, *place))
                events.append(EventRow(f"w{user}", METRIC, unit, *place, "watch", f'{{"seconds":{user % 97}}}'))
                events.append(EventRow(f"v{user}", METRIC, unit, *place, "watch", f'{{"seconds":{user % 31}}}'))
                events.append(EventRow(f"l{user}", METRIC, unit, *place, "like", "{}"))
            waiting.append(store.append_events(row.number, events))
            if len(waiting) >= 8:
                waiting.pop(0).result()
        for future in waiting:
            future.result()
        began = perf_counter()
        service.close_round(DOCUMENT["name"], who="bench")
        took = perf_counter() - began
        service.shutdown()
        store.close()
    return [_row(f"close of a round over {total:,} events", "s", took, 2 * total / 1e6, "", None)]


def _row(case: str, unit: str, ours: float, limit: float | None, beside: str, other: float | None) -> dict[str, Any]:
    return {
        "case": case,
        "ours": round(ours, 3),
        "unit": unit,
        "limit": None if limit is None else round(limit, 3),
        "beside": beside,
        "theirs": None if other is None else round(other, 3),
        "ratio": None if other is None else round(ours / other, 3),
    }


def _events(document: str, batch: int) -> list[dict[str, Any]]:
    """Return a batch as a recommender sends it: exposures and events."""
    from pasto_sdk.policy import PublishedPolicy

    policy = PublishedPolicy.from_text(document)
    events: list[dict[str, Any]] = []
    for place in range(BATCH // 4):
        unit = f"user-{batch}-{place}"
        credit = {"unit": unit, "version": policy.version, "candidate": policy.draw(unit).name}
        events.append({"type": "exposure", "id": f"{unit}-x", **credit})
        for turn in range(2):
            fields = {"seconds": 17.5 + turn}
            events.append({"type": "metric", "id": f"{unit}-w{turn}", "name": "watch", "fields": fields, **credit})
        events.append({"type": "metric", "id": f"{unit}-l", "name": "like", **credit})
    return events


def _wait_written(port: int) -> None:
    """Wait until no exposure waits to be written, so that writing it does not slow down the next measurement."""
    until = monotonic() + 60
    while monotonic() < until:
        with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as answer:
            if b"\npasto_store_waiting 0.0\n" in answer.read():
                return
        sleep(0.05)
    raise StoreError("the exposures to be written were still waiting after 60 s")


def _policy(port: int) -> str:
    with urllib.request.urlopen(f"http://{HOST}:{port}/v1/studies/{DOCUMENT['name']}/policy", timeout=10) as answer:
        return str(answer.read().decode())


@contextmanager
def serving(document: dict[str, Any]) -> Iterator[int]:
    """Run the service in its own process, on an embedded store, with one learning study; yield its port."""
    from pasto.service.http.server import ADDRESS
    from pasto.service.http_client import HttpStudyApi

    with TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        with _process(["-m", "pasto", "serve", "--store", str(store), "--port", "0"]) as process:
            url = _wait(process, lambda: str(json.loads((store / ADDRESS).read_text())["url"]), "/readyz")
            port = int(url.rpartition(":")[2])
            remote = HttpStudyApi(url)
            remote.create(document, who="bench")
            remote.change(document["name"], "start", who="bench")
            yield port


@contextmanager
def echoing() -> Iterator[int]:
    """Run a bare echo in its own process, on uvicorn with its defaults; yield its port."""
    with TemporaryDirectory() as directory:
        written = Path(directory) / "port"
        with _process(["-m", "pasto_research.bench.echo", str(written)]) as process:
            yield int(_wait(process, lambda: f"http://{HOST}:{int(written.read_text())}", "/").rpartition(":")[2])


@contextmanager
def _process(words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PASTO_")}
    with subprocess.Popen(  # noqa: S603 -- our own command
        [sys.executable, *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(timeout=30)


def _wait(process: subprocess.Popen[bytes], read_url: Callable[[], str], path: str) -> str:
    """Return the address that a process has written, once it answers there."""
    until = monotonic() + 30
    while monotonic() < until:
        if process.poll() is not None:
            raise StoreError(f"the process to be measured ended with code {process.returncode}")
        try:
            url = read_url()
            with urllib.request.urlopen(url + path, timeout=1):  # noqa: S310 -- our own address
                return url
        except urllib.error.HTTPError as answer:
            answer.close()
        except (OSError, ValueError):
            pass  # not written, or not in full
        sleep(0.05)
    raise StoreError("the process to be measured did not answer within 30 s")


BENCHMARK = Benchmark("serve", "decisions, durable ingest and closes of the running system", run)
