"""Floods: endless requests, very many connections, and slow questions next to ingest and an emergency pause."""

from __future__ import annotations

import itertools
import random
import resource
import select
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

from pasto_sdk.policy import PublishedPolicy
from tests.chaos.campaign import STORES, Scenario, Workshop
from tests.chaos.load import STUDY, create_studies
from tests.chaos.neighbour import ASSIGN, INGEST, Latencies, Neighbour, measure_quiet
from tests.chaos.report import Outcome
from tests.chaos.service_process import ServiceProcess
from tests.system.conftest import feed_document

HEAD_LIMIT_BYTES = 64_000
PACED_BYTES = 4_096
PACE_SECONDS = 0.02
PACED_LIMIT_BYTES = 4 * HEAD_LIMIT_BYTES
"""The service closes at 64 kB; what it has not read yet when the machine is busy comes on top."""
FLOOD_SECONDS = 4.0
HEAD_MEMORY_MB = 32.0
FLOOD_MEMORY_MB = 256.0
LATENCY_RATIO = 2.0
INGEST_RATIO = 3.0
NOTICEABLE_SECONDS = 0.1
"""A neighbour that waits less than this is not disturbed, however quick it was alone."""
PAUSE_SECONDS = 0.5
SLOW_CALLERS = 600
LONG_POLLS = 3_000
IDLE_CONNECTIONS = 500
QUESTIONS = 24
WIDE_CANDIDATES, WIDE_ROUNDS, WIDE_UNITS = 200, 4, 2_000


def flood_header_lines(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Send endless header lines."""
    _flood_head(workshop, outcome, repetitions, b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"a:b\r\n")


def flood_header_value(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Send one endless header value."""
    _flood_head(workshop, outcome, repetitions, b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ", b"abcd")


def flood_url(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Send an endless URL."""
    _flood_head(workshop, outcome, repetitions, b"GET /", b"abcd")


def flood_trailers(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Send endless trailers of a chunked body."""
    head = f"POST /v1/studies/{STUDY}/assign HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    start = head.encode() + b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n"
    _flood_head(workshop, outcome, repetitions, start, b"a:b\r\n")


def _flood_head(workshop: Workshop, outcome: Outcome, repetitions: int, start: bytes, piece: bytes) -> None:
    """Send a head slowly, then at full speed; neighbours and memory must not be affected."""
    with _service(workshop, outcome) as node:
        for _ in workshop.turns(repetitions):
            accepted, answer = send_until_closed(node.url, start, piece)
            outcome.repetitions += 1
            outcome.require(accepted <= PACED_LIMIT_BYTES, f"{accepted:,} bytes of a head were taken and not refused")
            status = int(answer.split()[1]) if answer.startswith(b"HTTP/1.1 ") else 0
            outcome.count_status(status)
            is_refused = status in (0, 400, 401, 408, 413, 414, 431)
            outcome.require(is_refused, f"a head without end was answered {status}")
        with measured_attack(workshop, node, outcome, memory_mb=HEAD_MEMORY_MB):
            _blast(node.url, start, piece, FLOOD_SECONDS if not workshop.is_quick else 1.5)


def send_until_closed(url: str, start: bytes, piece: bytes) -> tuple[int, bytes]:
    """Send pieces slowly until the service answers or closes; return the number of bytes sent, and the answer."""
    block = piece * (PACED_BYTES // len(piece))
    answer = b""
    with connect(url) as connection:
        sent = len(start)
        try:
            connection.sendall(start)
            while sent <= PACED_LIMIT_BYTES:
                if select.select([connection], [], [], PACE_SECONDS)[0]:
                    answer += connection.recv(65536)
                    break
                connection.sendall(block)
                sent += len(block)
        except OSError:
            pass
        return sent, answer


def _blast(url: str, start: bytes, piece: bytes, seconds: float) -> None:
    """Send as fast as the service accepts; connect again when it closes."""
    block, until = piece * (65_536 // len(piece)), time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            with connect(url) as connection:
                connection.settimeout(1.0)
                connection.sendall(start)
                while time.monotonic() < until:
                    connection.sendall(block)
        except OSError:
            time.sleep(0.05)


def flood_slow_callers(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Hold many connections whose heads or bodies arrive byte by byte."""
    head = f"POST /v1/studies/{STUDY}/assign HTTP/1.1\r\nHost: localhost\r\n".encode()
    body = head + b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    count = SLOW_CALLERS // (4 if workshop.is_quick else 1)
    with _service(workshop, outcome) as node:
        for _ in workshop.turns(repetitions):
            with measured_attack(workshop, node, outcome, memory_mb=FLOOD_MEMORY_MB), ExitStack() as stack:
                opened = [stack.enter_context(connect(node.url)) for _ in range(count)]
                for place, connection in enumerate(opened):
                    connection.sendall(body if place % 2 else head)
                for _ in range(2 if workshop.is_quick else 6):
                    time.sleep(0.5)
                    _drip(opened)
            outcome.repetitions += 1


def _drip(connections: Sequence[socket.socket]) -> None:
    for connection in connections:
        try:
            connection.sendall(b" ")
        except OSError:
            continue


def flood_waiting_callers(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Hold more long polls and idle connections than the soft descriptor limit; other callers must still be served."""
    polls = 1_200 if workshop.is_quick else LONG_POLLS
    idle = 100 if workshop.is_quick else IDLE_CONNECTIONS
    _raise_descriptor_limit()
    with _service(workshop, outcome) as node, node.client() as client:
        for turn in workshop.turns(repetitions):
            tag = client.get(f"/v1/studies/{STUDY}/policy").headers["etag"]
            poll = (
                f"GET /v1/studies/{STUDY}/policy?wait=60 HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {tag}\r\n\r\n"
            ).encode()
            with ExitStack() as stack:
                waiting: list[socket.socket] = []

                def open_all(
                    stack: ExitStack = stack, poll: bytes = poll, waiting: list[socket.socket] = waiting
                ) -> None:
                    waiting += _open_many(stack, node.url, polls, poll)
                    _open_many(stack, node.url, idle, b"")

                with measured_attack(
                    workshop, node, outcome, memory_mb=FLOOD_MEMORY_MB, refuse_none=True, prepare=open_all
                ):
                    time.sleep(1.0 if workshop.is_quick else 3.0)
                outcome.require(len(waiting) == polls, f"only {len(waiting):,} of {polls:,} long polls were accepted")
                action = "resume" if turn % 2 else "pause"
                change = {"action": action, "reason": "chaos", **({} if turn % 2 else {"hold": "baseline"})}
                changed = _request_status(client, "PATCH", f"/v1/studies/{STUDY}", change)
                outcome.count_status(changed)
                outcome.require(changed == 200, f"a {action} while {polls:,} callers wait answered {changed}")
                heard = _count_answers(waiting, seconds=15)
                outcome.require(heard == polls, f"{heard:,} of {polls:,} long polls heard of the new policy")
            outcome.repetitions += 1


def _open_many(stack: ExitStack, url: str, count: int, sent: bytes) -> list[socket.socket]:
    opened: list[socket.socket] = []
    for _ in range(count):
        try:
            connection = stack.enter_context(connect(url))
            connection.sendall(sent)
        except OSError:
            break
        opened.append(connection)
    return opened


def _count_answers(connections: Sequence[socket.socket], seconds: float) -> int:
    """Return how many connections received a 200 in time."""
    until, count = time.monotonic() + seconds, 0
    for connection in connections:
        connection.settimeout(max(0.01, until - time.monotonic()))
        try:
            count += connection.recv(100).startswith(b"HTTP/1.1 200")
        except OSError:
            continue
    return count


def _raise_descriptor_limit() -> None:
    """Raise this process's own descriptor limit to the system's, because it holds the callers' connections."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def ask_slow_questions(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Ask 24 replays and what-ifs at once, repeatedly, next to ingest of large batches and emergency pauses."""
    with _service(workshop, outcome) as node:
        build_wide_study(node.url, workshop.random("wide"), rounds=2 if workshop.is_quick else WIDE_ROUNDS)
        quiet = measure_quiet(node.url, INGEST, 3.0)
        pauses: list[float] = []
        statuses: list[int] = []
        with _questions(node.url, statuses), Neighbour(node.url, INGEST) as neighbour:
            for _ in workshop.turns(repetitions):
                time.sleep(1.0)
                pauses.append(_time_pause(node.url, outcome))
                outcome.repetitions += 1
            busy = neighbour.report()
        for status in statuses:
            outcome.count_status(status)
        outcome.require(0 not in statuses or node.is_up, "the service ended under questions")
        _compare(workshop, outcome, quiet, busy, ratio=INGEST_RATIO)
        outcome.require(
            busy.failed == 0, f"{busy.failed} batches were refused while questions were asked: {busy.statuses}"
        )
        median = statistics.median(pauses)
        is_prompt = median <= PAUSE_SECONDS or not workshop.judges_latency
        outcome.require(is_prompt, f"an emergency pause took {median:.2f} s (median of {len(pauses)})")
        code, seconds = node.stop()
        outcome.require(code == 0 and seconds < 20, f"SIGTERM under questions: code {code} after {seconds:.0f} s")


def build_wide_study(url: str, rng: random.Random, *, rounds: int) -> None:
    """Create the study "wide" with very many candidates and a few learned rounds."""
    document = {**feed_document(), "name": "wide", "parameters": {"w": list(range(WIDE_CANDIDATES))}}
    with httpx.Client(base_url=url, timeout=60) as client:
        client.post("/v1/studies?seed=7", json=document).raise_for_status()
        client.patch("/v1/studies/wide", json={"action": "start"}).raise_for_status()
        for number in range(rounds):
            policy = PublishedPolicy.from_text(client.get("/v1/studies/wide/policy").raise_for_status().text)
            events = []
            for user in range(WIDE_UNITS):
                unit = f"user {user}"
                drawn = {"unit": unit, "version": policy.version, "candidate": policy.draw(unit).name}
                fields = {"x": rng.gauss(0, 1), "y": rng.gauss(0, 1)}
                events.append({"type": "exposure", "id": f"e/{number}/{user}", **drawn})
                events.append({"type": "metric", "id": f"m/{number}/{user}", "name": "seen", "fields": fields, **drawn})
            client.post("/v1/studies/wide/events", json=events).raise_for_status()
            client.post("/v1/studies/wide/rounds/close", json={}).raise_for_status()


@contextmanager
def _questions(url: str, statuses: list[int]) -> Iterator[None]:
    """Ask slow questions from 24 threads."""
    ended = threading.Event()

    def ask(place: int) -> None:
        with httpx.Client(base_url=url, timeout=60) as client:
            for number in itertools.count():
                if ended.is_set():
                    return
                if place % 2:
                    body = {"keep": [f"y >= {(100 * place + number) / 1e4}"]}
                    statuses.append(_request_status(client, "POST", "/v1/studies/wide/what-if", body))
                else:
                    statuses.append(_request_status(client, "POST", "/v1/studies/wide/replay", {}))
                if statuses[-1] in (0, 503):
                    ended.wait(0.1)

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(QUESTIONS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _time_pause(url: str, outcome: Outcome) -> float:
    """Pause a study and resume it; return the seconds that the pause took."""
    with httpx.Client(base_url=url, timeout=60) as client:
        began = time.perf_counter()
        pause = {"action": "pause", "reason": "chaos", "hold": "baseline"}
        answer = client.patch(f"/v1/studies/{STUDY}", json=pause)
        seconds = time.perf_counter() - began
        outcome.count_status(answer.status_code)
        outcome.require(answer.status_code == 200, f"an emergency pause answered {answer.status_code}")
        client.patch(f"/v1/studies/{STUDY}", json={"action": "resume", "reason": "chaos"})
        return seconds


@contextmanager
def _service(workshop: Workshop, outcome: Outcome) -> Iterator[ServiceProcess]:
    with workshop.serving(workshop.store(outcome.store)) as node:
        create_studies(node)
        yield node


@contextmanager
def measured_attack(
    workshop: Workshop,
    node: ServiceProcess,
    outcome: Outcome,
    *,
    memory_mb: float,
    refuse_none: bool = False,
    prepare: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Measure a neighbour and the memory, first without load and then during the block.

    Work in `prepare` counts for the memory, and not for the neighbour.
    """
    quiet = measure_quiet(node.url, ASSIGN, 1.5)
    memory = node.memory_mb()
    node.reset_peak_memory()
    prepare()
    with Neighbour(node.url, ASSIGN) as neighbour:
        yield
        attacked = neighbour.report()
    growth = max(0.0, node.peak_memory_mb() - memory)
    outcome.memory_growth_mb = max(growth, outcome.memory_growth_mb or 0.0)
    outcome.require(growth <= memory_mb, f"memory grew by {growth:,.0f} MB; at most {memory_mb:g} MB is promised")
    _compare(workshop, outcome, quiet, attacked, ratio=LATENCY_RATIO)
    is_served = attacked.failed == 0 if refuse_none else attacked.failed <= len(attacked.seconds) // 10
    outcome.require(is_served, f"{attacked.failed} of the neighbour's requests failed: {attacked.statuses}")


def _compare(workshop: Workshop, outcome: Outcome, quiet: Latencies, busy: Latencies, *, ratio: float) -> None:
    """Record the ratio of the neighbour's latencies, and require that it stays within the limit."""
    if not quiet.seconds or not busy.seconds:
        outcome.broken.append("no request of the neighbour was answered")
        return
    before, during = quiet.quantile(0.99), busy.quantile(0.99)
    found = during / before
    if outcome.latency_ratio is None or found > outcome.latency_ratio:
        outcome.latency_ratio, outcome.latency_seconds = found, during
    is_noticed = workshop.judges_latency and found > ratio and during > NOTICEABLE_SECONDS
    outcome.require(not is_noticed, f"the neighbour's p99 rose from {1e3 * before:.0f} to {1e3 * during:,.0f} ms")


def _request_status(client: httpx.Client, method: str, path: str, body: dict[str, Any]) -> int:
    """Return the status of an answer, 0 if there was none."""
    try:
        return client.request(method, path, json=body).status_code
    except httpx.TransportError:
        return 0


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 80), timeout=10)


SCENARIOS = (
    Scenario("floods", "endless header lines", flood_header_lines, 3),
    Scenario("floods", "endless header value", flood_header_value, 3),
    Scenario("floods", "endless URL", flood_url, 3),
    Scenario("floods", "endless trailers", flood_trailers, 3),
    Scenario("floods", "slow heads and bodies", flood_slow_callers, 2),
    Scenario("floods", "idle and long-polling callers", flood_waiting_callers, 2),
    Scenario("floods", "24 slow questions", ask_slow_questions, 5, 1, STORES),
)
