"""Limits of request heads and connections: a head that is too large, too slow or unread ends only its connection."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest

from pasto.service.http.descriptor_limit import OpenConnections
from pasto.service.http.request_head_limits import (
    HEAD_TOO_LARGE,
    LINGER_SECONDS,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_URL_BYTES,
    TOO_SLOW,
    LimitedConnection,
    PostResponder,
)
from pasto.service.http.routes import ROUTES
from pasto.service.settings import Settings
from pasto_research.bench.http_load import post

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve, Site

CLOSED_BY_BYTES = 65_536
PATH = "/v1/studies/feed/assign"
CHUNKED = b"POST %b HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" % PATH.encode()
UNIT = b'{"unit":"u"}'
CHUNK = b"%x\r\n%b\r\n" % (len(UNIT), UNIT)
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"

ENDLESS = {
    "header lines": (GET, b"a:b\r\n", 431),
    "header value": (GET + b"a: ", b"b", 431),
    "header name": (GET, b"a", 431),
    "address": (b"GET /", b"a", 414),
    "query": (b"GET /healthz?", b"a=b&", 414),
    "method": (b"", b"G", 400),
    "empty lines": (b"", b"\r\n", 431),
    "trailer lines": (CHUNKED + CHUNK + b"0\r\n", b"a:b\r\n", 431),
    "trailer value": (CHUNKED + CHUNK + b"0\r\na: ", b"b", 431),
    "chunk extension": (CHUNKED + b"5;", b"a", 431),
}


@contextmanager
def connected(site: Site) -> Iterator[socket.socket]:
    host, _, port = site.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        yield connection


def read_response(connection: socket.socket) -> tuple[int, bytes]:
    """Read one response: its status and its body."""
    received = b""
    while True:
        head, found, rest = received.partition(b"\r\n\r\n")
        if found:
            lines = head.lower().split(b"\r\n")
            (length,) = (int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
            if len(rest) >= length:
                assert len(rest) == length
                return int(lines[0].split()[1]), rest
        piece = connection.recv(65_536)
        assert piece, f"the connection ended after {received!r}"
        received += piece


def head_of(size: int, *, headers: int = 2) -> bytes:
    """Return a request head of a number of bytes, with a number of headers besides Host."""
    lines = [b"x%d: " % number for number in range(headers)]
    missing = size - len(GET) - 2 - sum(len(line) + 2 for line in lines)
    return (
        GET + b"".join(line + b"v\r\n" for line in lines[1:]) + lines[0] + b"v" * (missing - headers + 1) + b"\r\n\r\n"
    )


@pytest.mark.parametrize("case", ENDLESS)
def test_a_head_that_does_not_end_is_refused_by_64_kb(site: Site, case: str) -> None:
    start, repeated, status = ENDLESS[case]
    sent = start + repeated * CLOSED_BY_BYTES
    with connected(site) as connection:
        connection.sendall(sent[:CLOSED_BY_BYTES])
        found, body = read_response(connection)
        assert found == status
        assert json.loads(body)["error"]["message"]
        assert connection.recv(10) == b""


def test_a_whole_head_is_refused_by_its_size(site: Site) -> None:
    for size, status in ((MAX_HEAD_BYTES, 200), (MAX_HEAD_BYTES + 200, 431), (6 * MAX_HEAD_BYTES, 431)):
        with connected(site) as connection:
            connection.sendall(head_of(size))
            assert read_response(connection)[0] == status


def test_headers_are_counted(site: Site) -> None:
    for number, status in ((MAX_HEADERS - 1, 200), (MAX_HEADERS, 431)):
        with connected(site) as connection:
            connection.sendall(head_of(4_000, headers=number))
            assert read_response(connection)[0] == status


def test_an_address_is_limited(site: Site) -> None:
    for length, status in ((MAX_URL_BYTES, 404), (MAX_URL_BYTES + 1, 414)):
        with connected(site) as connection:
            connection.sendall(b"GET /%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"a" * (length - 1)))
            assert read_response(connection)[0] == status


def test_each_request_of_a_connection_has_the_whole_limit(site: Site) -> None:
    with connected(site) as connection:
        for _ in range(4):
            connection.sendall(head_of(20_000))
            assert read_response(connection)[0] == 200
        connection.sendall(head_of(40_000))
        assert read_response(connection)[0] == 431


def test_a_body_does_not_count_as_head(site: Site) -> None:
    body = b'{"unit":"u"' + b" " * 200_000 + b"}"
    with connected(site) as connection:
        connection.sendall(post(PATH, body) + head_of(20_000))
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < 2:
            piece = connection.recv(65_536)
            assert piece, received
            received += piece


def test_a_body_of_small_chunks_does_not_count_as_head(site: Site) -> None:
    with connected(site) as connection:
        padding = b"1\r\n \r\n" * 20_000
        connection.sendall(CHUNKED + CHUNK + padding + b"0\r\na: trailer\r\n\r\n")
        assert read_response(connection)[0] == 200


def test_a_refusal_is_not_taken_for_the_answer_of_an_earlier_request(site: Site) -> None:
    with connected(site) as connection:
        connection.sendall(post(PATH, UNIT) + GET + b"a:b\r\n" * 200)
        received = b""
        while piece := connection.recv(65_536):
            received += piece
        assert not received or received.startswith(b"HTTP/1.1 200 OK")


def test_a_small_body_limit_holds_on_every_route(serve: Serve) -> None:
    site = serve(body_limit=1_000)
    site.study()
    body = b'{"unit":"u"' + b" " * 1_000 + b"}"
    for route in ROUTES:
        if route.request is not None:
            path = route.path.replace("{name}", "feed").replace("{key}", "feed")
            answer = site.client.request(route.method, path, content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 413, path


class FakeTransport(asyncio.Transport):
    """Transport that records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = self.aborted = False
        self.unread = 0

    def write(self, data: Any) -> None:
        self.written += data

    def write_eof(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class FakeLoop:
    """Event loop whose time a test moves forward."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, FakeTimer]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(callback)
        self._timers.append((self.now + seconds, timer))
        return timer

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := sorted((each for each in self._timers if each[0] <= end), key=lambda each: each[0]):
            self._timers.remove(due[0])
            self.now = max(self.now, due[0][0])
            due[0][1].run()
        self.now = end


class FakeTimer:
    """Timer of the fake loop."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.run = callback

    def cancel(self) -> None:
        self.run = lambda: None


class FakeServer(asyncio.Protocol):
    """Inner protocol that counts what reaches it."""

    def __init__(self, **_: Any) -> None:
        self.received = 0

    def data_received(self, data: bytes) -> None:
        self.received += len(data)


class Caller:
    """One connection of a caller to fakes."""

    def __init__(self, connections: OpenConnections, loop: FakeLoop, responder: PostResponder | None = None) -> None:
        self.server = FakeServer()
        self.transport = FakeTransport()
        self.connection = LimitedConnection(
            connections, lambda **_: self.server, responder, app_state={}, _loop=cast(asyncio.AbstractEventLoop, loop)
        )
        self.connection.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        self.connection.data_received(data)

    def answer(self) -> None:
        self.connection.begin_request({"headers": []})
        self.connection.end_request()


SETTINGS = Settings(request_timeout=30.0, keep_alive=60)


def test_no_more_than_the_limit_reaches_the_server() -> None:
    for case, (start, repeated, _) in ENDLESS.items():
        caller = Caller(OpenConnections(SETTINGS), FakeLoop())
        caller.send(start)
        for _ in range(40):
            caller.send(repeated * (256_000 // len(repeated)))
        assert caller.server.received <= CLOSED_BY_BYTES, case
        assert caller.transport.written.startswith(b"HTTP/1.1 4"), case
        assert caller.transport.aborted, case


def test_a_refused_caller_has_a_second_to_read_why() -> None:
    loop = FakeLoop()
    caller = Caller(OpenConnections(SETTINGS), loop)
    caller.send(GET + b"a:b\r\n" * 200)
    assert caller.transport.written == HEAD_TOO_LARGE
    loop.advance(LINGER_SECONDS / 2)
    assert not caller.transport.is_closing()
    loop.advance(LINGER_SECONDS)
    assert caller.transport.aborted


def test_deadlines_follow_the_requests() -> None:
    loop = FakeLoop()
    caller = Caller(OpenConnections(SETTINGS), loop)
    loop.advance(20)
    caller.send(GET + b"\r\n")
    loop.advance(1_000)  # an answer may take any time
    caller.answer()
    loop.advance(59)
    caller.send(GET)
    loop.advance(29)
    assert not caller.transport.is_closing()
    loop.advance(2)
    assert caller.transport.written == TOO_SLOW
    assert caller.transport.closed


def test_an_idle_connection_is_closed_without_a_word() -> None:
    loop = FakeLoop()
    caller = Caller(OpenConnections(SETTINGS), loop)
    caller.send(GET + b"\r\n")
    caller.answer()
    loop.advance(59)
    assert not caller.transport.closed
    loop.advance(2)
    assert caller.transport.closed
    assert caller.transport.written == b""


def test_a_request_answered_without_its_body_leaves_the_connection_idle() -> None:
    loop = FakeLoop()
    connections = OpenConnections(SETTINGS)
    caller = Caller(connections, loop)
    request = post("/nowhere", UNIT)
    caller.send(request[:-5])
    caller.answer()
    caller.send(request[-5:])
    assert caller.connection in connections.idle
    loop.advance(61)
    assert caller.transport.closed


def test_a_caller_that_does_not_read_is_disconnected() -> None:
    loop = FakeLoop()
    caller = Caller(OpenConnections(SETTINGS), loop)
    caller.send(GET + b"\r\n")
    caller.transport.unread = 100_000
    caller.connection.pause_writing()
    loop.advance(29)
    caller.transport.unread = 90_000
    loop.advance(30)
    assert not caller.transport.is_closing()  # it reads, though slowly
    loop.advance(31)
    assert caller.transport.aborted


def test_a_new_connection_takes_the_place_of_the_longest_idle() -> None:
    loop = FakeLoop()
    connections = OpenConnections(SETTINGS)
    connections.capacity = 3
    waiting, first, second = (Caller(connections, loop) for _ in range(3))
    waiting.send(GET + b"\r\n")
    first.send(GET + b"\r\n")
    first.answer()  # so the second has been idle longer
    newest = Caller(connections, loop)
    assert [each.transport.closed for each in (waiting, first, second, newest)] == [False, False, True, False]
    second.connection.connection_lost(None)
    for each in (first, newest):
        each.send(GET + b"\r\n")
    refused = Caller(connections, loop)
    assert refused.transport.written.startswith(b"HTTP/1.1 503")
    assert refused.transport.closed
    assert not any(each.transport.closed for each in (waiting, first, newest))
    assert connections.number == 4


ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
WHOLE = post(PATH, UNIT)


class RecordingResponder:
    """Responder that records its requests."""

    suffix = b"/assign"

    def __init__(self, response: bytes | None = ANSWER) -> None:
        self.response = response
        self.asked: list[tuple[bytes, dict[bytes, bytes], bytes]] = []

    def answer(self, address: bytes, headers: dict[bytes, bytes], body: bytes) -> bytes | None:
        self.asked.append((address, headers, body))
        return self.response


def test_a_whole_request_is_answered_without_the_server() -> None:
    loop, connections, answering = FakeLoop(), OpenConnections(SETTINGS), RecordingResponder()
    caller = Caller(connections, loop, answering)
    Caller(connections, loop)
    for turn in range(3):
        loop.advance(20)
        caller.send(WHOLE)
        assert caller.transport.written == ANSWER * (turn + 1)
        assert list(connections.idle)[-1] is caller.connection
    headers = {b"host": b"127.0.0.1", b"content-type": b"application/json", b"content-length": b"%d" % len(UNIT)}
    assert answering.asked == [(PATH.encode(), headers, UNIT)] * 3
    assert caller.server.received == 0
    loop.advance(59)
    assert not caller.transport.closed
    loop.advance(2)
    assert caller.transport.closed


def test_an_answer_without_the_server_leaves_the_next_request_its_own_headers() -> None:
    caller = Caller(OpenConnections(SETTINGS), FakeLoop(), RecordingResponder())
    caller.send(WHOLE)
    caller.send(GET + b"\r\n")
    scope = {"headers": [(b"host", b"localhost"), (b"trailer", b"t")]}
    caller.connection.begin_request(scope)
    assert scope["headers"] == [(b"host", b"localhost")]


def test_a_request_that_is_not_answered_here_reaches_the_server() -> None:
    caller = Caller(OpenConnections(SETTINGS), FakeLoop(), RecordingResponder(None))
    caller.send(WHOLE)
    assert caller.server.received == len(WHOLE)
    caller.answer()


FOR_THE_SERVER = {
    "another method": [WHOLE.replace(b"POST", b"PUT")],
    "another address": [post(PATH + "?", UNIT)],
    "the end of another address": [WHOLE[:10], WHOLE[10:]],
    "an old version": [WHOLE.replace(b"1.1", b"1.0").replace(b"Host:", b"Connection: keep-alive\r\nHost:")],
    "a last request": [WHOLE.replace(b"Host:", b"Connection: close\r\nConnection: keep-alive\r\nHost:")],
    "a question first": [WHOLE.replace(b"Host:", b"Expect: 100-continue\r\nHost:")],
    "an upgrade": [WHOLE.replace(b"Host:", b"Connection: upgrade\r\nUpgrade: h2c\r\nHost:")],
    "two requests": [WHOLE + WHOLE],
    "one and a half": [WHOLE + WHOLE[:50], WHOLE[50:]],
    "pieces": [WHOLE[:-5], WHOLE[-5:]],
    "one after a piece": [WHOLE[:-5], WHOLE[-5:] + WHOLE],
    "one after an unanswered one": [GET + b"\r\n", WHOLE],
}


@pytest.mark.parametrize("case", FOR_THE_SERVER)
def test_other_requests_are_left_to_the_server(case: str) -> None:
    pieces, answering = FOR_THE_SERVER[case], RecordingResponder()
    caller = Caller(OpenConnections(SETTINGS), FakeLoop(), answering)
    for piece in pieces:
        caller.send(piece)
    assert caller.server.received == sum(map(len, pieces))
    assert not answering.asked
    assert not caller.transport.written


def test_the_rest_of_an_answered_request_reaches_the_server() -> None:
    caller = Caller(OpenConnections(SETTINGS), FakeLoop(), RecordingResponder())
    refused = post("/nowhere", UNIT)
    caller.send(refused[:-5])
    caller.answer()
    caller.send(refused[-5:] + WHOLE)
    assert caller.server.received == len(refused) + len(WHOLE)
    caller.answer()
    caller.send(WHOLE)
    assert caller.transport.written == ANSWER


def test_a_caller_that_does_not_read_is_left_to_the_server() -> None:
    caller = Caller(OpenConnections(SETTINGS), FakeLoop(), RecordingResponder())
    caller.connection.pause_writing()
    caller.send(WHOLE)
    assert caller.server.received == len(WHOLE)
    caller.connection.resume_writing()
    caller.answer()
    caller.send(WHOLE)
    assert caller.transport.written == ANSWER


def test_the_timer_of_the_server_does_not_end_while_requests_are_answered_without_it() -> None:
    loop = FakeLoop()
    caller = Caller(OpenConnections(SETTINGS), loop, RecordingResponder())
    caller.send(GET + b"\r\n")
    caller.answer()
    reached = [len(GET) + 2]
    for _ in range(6):
        loop.advance(25)
        caller.send(WHOLE)
        if caller.server.received > reached[-1]:
            caller.answer()
        reached.append(caller.server.received)
    assert [later > before for before, later in pairwise(reached)] == [False, False, True, False, False, True]


def test_the_head_of_a_whole_request_is_limited() -> None:
    for lines in (b"a:b\r\n" * 200, b"a: %b\r\n" % (b"b" * 40_000)):
        answering = RecordingResponder()
        caller = Caller(OpenConnections(SETTINGS), FakeLoop(), answering)
        caller.send(WHOLE.replace(b"Host:", lines + b"Host:"))
        assert caller.transport.written == HEAD_TOO_LARGE
        assert not answering.asked
