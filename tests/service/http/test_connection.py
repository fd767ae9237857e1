"""Connections: FastAssign answers as the endpoint does, and a connection preserves order and limits."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pasto.report.records import write_record
from pasto.service.http import fast_assign
from pasto.service.http.app import Application
from pasto.service.http.events import ExposureBuffer
from pasto.service.http.fast_assign import MAX_WAITING_EVENTS, SLOW_DOWN_SECONDS
from pasto.service.http.request import Endpoint
from pasto_research.bench.http_load import post

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve, Site

PATH = "/v1/studies/feed/assign"


@contextmanager
def connected(site: Site) -> Iterator[socket.socket]:
    """Return a bare connection, after a first request about the study."""
    site.client.post(PATH, json={"unit": "first"}).raise_for_status()
    host, _, port = site.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        yield connection


def answers(connection: socket.socket, number: int) -> list[tuple[int, dict[str, str], bytes]]:
    """Read this many responses: status, headers and body."""
    heard = b""
    found: list[tuple[int, dict[str, str], bytes]] = []
    while len(found) < number:
        head, found_head, rest = heard.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        length = int(headers.get("content-length", 0))
        if found_head and len(rest) >= length:
            found.append((int(lines[0].split()[1]), headers, rest[:length]))
            heard = rest[length:]
            continue
        piece = connection.recv(65536)
        assert piece, f"the connection ended after {heard!r}"
        heard += piece
    assert not heard
    return found


def other_way(request: bytes) -> bytes:
    """Return the same request as the endpoint answers it: with a content type that FastAssign does not take."""
    return request.replace(b"application/json", b"application/json; charset=utf-8", 1)


BODIES = (
    b'{"unit":"u"}',
    '{"unit":"Zoë \U0001f60a"}'.encode(),
    b'{"unit":""}',
    b'{"unit":"a\\u0000b"}',
    b'{"unit":"\\ud800"}',
    b'{"unit":7}',
    b'{"unit":"u","units":["v"]}',
    b'{"units":["u","v"]}',
    b'{"unit":"u","propensity":1}',
    b"{}",
    b"",
    b"nonsense",
    b'{"unit":"' + b"x" * 300 + b'"}',
    b"[" * 100,
    b'{"unit":"' + b"x" * 70_000 + b'"}',
)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body[:30].decode("ascii", "replace"))
def test_both_ways_answer_alike(site: Site, body: bytes) -> None:
    request = post(PATH, body)
    with connected(site) as connection:
        connection.sendall(request)
        (short,) = answers(connection, 1)
        connection.sendall(other_way(request))
        (long,) = answers(connection, 1)
    assert short[0] == long[0]
    assert short[2] == long[2]
    assert {**short[1], "date": ""} == {**long[1], "date": ""}


@given(unit=st.text(max_size=40))
@settings(max_examples=200)
def test_any_unit_is_answered_alike(site: Site, unit: str) -> None:
    request = post(PATH, json.dumps({"unit": unit}).encode())
    with connected(site) as connection:
        connection.sendall(request + other_way(request))
        short, long = answers(connection, 2)
    assert (short[0], short[2]) == (long[0], long[2])


def test_fast_assign_answers_plain_requests_for_one_unit(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    passed_on: list[str] = []
    endpoint = Endpoint.__call__

    async def note(self: Endpoint, scope: Any, receive: Any, send: Any) -> None:
        passed_on.append(scope["path"])
        await endpoint(self, scope, receive, send)

    with connected(site) as connection:
        monkeypatch.setattr(Endpoint, "__call__", note)
        for request, status, is_fast in (
            (post(PATH, b'{"unit":"u"}'), 200, True),
            (other_way(post(PATH, b'{"unit":"u"}')), 200, False),
            (post(PATH, b'{"unit":7}'), 400, False),
            (post("/v1/studies/x/assign", b"{}"), 404, False),
        ):
            passed_on.clear()
            connection.sendall(request)
            assert [found for found, _, _ in answers(connection, 1)] == [status]
            assert bool(passed_on) is not is_fast


def test_a_whole_request_does_without_uvicorn(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[str] = []
    application = Application.__call__

    async def note(self: Application, scope: Any, receive: Any, send: Any) -> None:
        served.append(scope["path"])
        await application(self, scope, receive, send)

    request = post(PATH, b'{"unit":"u"}')
    with connected(site) as connection:
        monkeypatch.setattr(Application, "__call__", note)
        connection.sendall(request)
        (answer,) = answers(connection, 1)
        assert served == []
        connection.sendall(request[:-5])
        site.until(lambda: site.running.application.context.active_requests == 1)
        connection.sendall(request[-5:])
        (in_pieces,) = answers(connection, 1)
        connection.sendall(other_way(request))
        (by_endpoint,) = answers(connection, 1)
        assert served == [PATH, PATH]
    for each in (in_pieces, by_endpoint):
        assert list(each[1]) == list(answer[1])  # in the same order
        assert (each[0], {**each[1], "date": ""}, each[2]) == (answer[0], {**answer[1], "date": ""}, answer[2])
    dates = [parsedate_to_datetime(each[1]["date"]) for each in (answer, by_endpoint)]
    assert abs(dates[1] - dates[0]) < timedelta(hours=1)


def test_decisions_slow_down_before_the_store_refuses_their_exposures(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = serve()
    site.study()
    delays: list[float] = []

    async def note(seconds: float) -> None:
        delays.append(seconds)

    monkeypatch.setattr(fast_assign, "asyncio", SimpleNamespace(sleep=note))
    with connected(site) as connection:
        for waiting, delayed in ((MAX_WAITING_EVENTS, []), (MAX_WAITING_EVENTS + 1, [SLOW_DOWN_SECONDS])):
            monkeypatch.setattr(type(site.running.service.store), "queued_events", waiting)
            connection.sendall(post(PATH, b'{"unit":"u"}'))
            assert [status for status, _, _ in answers(connection, 1)] == [200]
            assert delays == delayed


@pytest.mark.parametrize("size", [1, 7, 60])
def test_requests_in_pieces(site: Site, size: int) -> None:
    request = post(PATH, b'{"unit":"in pieces"}')
    with connected(site) as connection:
        for start in range(0, len(request), size):
            connection.sendall(request[start : start + size])
        (answer,) = answers(connection, 1)
    assert json.loads(answer[2])["unit"] == "in pieces"


def test_answers_keep_the_order_of_pipelined_requests(site: Site) -> None:
    # Requests in odd positions wait for a thread, and no later one may overtake them.
    slow = post("/v1/studies/feed/replay", b"{}")
    with connected(site) as connection:
        connection.sendall(b"".join(post(PATH, json.dumps({"unit": f"{i}"}).encode()) + slow for i in range(10)))
        bodies = [json.loads(body) for _, _, body in answers(connection, 20)]
    assert [each["unit"] for each in bodies[::2]] == [str(i) for i in range(10)]
    assert all("identical" in each for each in bodies[1::2])


def test_old_and_closing_callers_are_answered_and_let_go(site: Site) -> None:
    for before, after in ((b"HTTP/1.1", b"HTTP/1.0"), (b"Host:", b"Connection: close\r\nHost:")):
        with connected(site) as connection:
            connection.sendall(post(PATH, b'{"unit":"u"}').replace(before, after, 1))
            ((status, headers, _),) = answers(connection, 1)
            assert status == 200
            assert headers["connection"] == "close"
            assert connection.recv(10) == b""


def test_an_old_caller_that_asks_for_more_is_let_go_all_the_same(site: Site) -> None:
    request = post(PATH, b'{"unit":"u"}').replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    with connected(site) as connection:
        connection.sendall(request.replace(b"Host:", b"Connection: keep-alive\r\nHost:", 1))
        ((status, headers, _),) = answers(connection, 1)
        assert (status, headers["connection"]) == (200, "close")
        assert connection.recv(10) == b""


@pytest.mark.parametrize("address", [PATH, PATH + "?"])
def test_what_follows_a_chunked_body_is_no_header(site: Site, address: str) -> None:
    body = b'{"unit":"u"}'
    head, _, _ = post(address, body).partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
    head = b"\r\n".join([*lines, b"Transfer-Encoding: chunked"])
    with connected(site) as connection:
        connection.sendall(b"%b\r\n\r\n%x\r\n%b\r\n0\r\nHost: elsewhere.test\r\n\r\n" % (head, len(body), body))
        ((status, _, _),) = answers(connection, 1)
    assert status == 200


@pytest.mark.parametrize("address", [PATH, PATH + "?"])
def test_a_request_that_has_begun_is_not_idle(serve: Serve, address: str) -> None:
    site = serve(keep_alive=1)
    site.study()
    following = post(address, b'{"unit":"second"}')
    with connected(site) as connection:
        connection.sendall(post(PATH, b'{"unit":"first"}') + following[:-5])
        answers(connection, 1)
        connection.settimeout(1.5)
        with pytest.raises(TimeoutError):
            connection.recv(1)  # longer than the limit for idle connections
        connection.sendall(following[-5:])
        ((_, _, body),) = answers(connection, 1)
    assert json.loads(body)["unit"] == "second"


def test_a_request_that_came_in_part_is_answered_while_the_service_ends(serve: Serve) -> None:
    site = serve(shutdown_timeout=60)
    site.study()
    request = post(PATH, b'{"unit":"last"}')
    with connected(site) as connection:
        connection.sendall(request[:-5])
        site.until(lambda: site.running.application.context.active_requests == 1)
        site.running.stop()
        site.until(lambda: site.running.application.context.long_poll.ended)
        connection.sendall(request[-5:])
        ((status, headers, _),) = answers(connection, 1)
    assert (status, headers["connection"]) == (200, "close")


def test_an_unexpected_error_is_explained_and_counted(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    site = serve()
    site.study()
    with connected(site) as connection:

        def broken(*_: object) -> None:
            raise ValueError("an unexpected error")

        monkeypatch.setattr(ExposureBuffer, "add", broken)
        connection.sendall(post(PATH, b'{"unit":"u"}'))
        ((status, _, body),) = answers(connection, 1)
    assert (status, json.loads(body)["error"]["code"]) == (500, "internal_error")
    counted = site.client.get("/metrics").text
    assert 'pasto_requests_total{method="POST",route="/v1/studies/{name}/assign",status="500"} 1.0' in counted


def test_a_caller_that_expects_100_continue_gets_it(site: Site) -> None:
    request = post(PATH, b'{"unit":"u"}').replace(b"Host:", b"Expect: 100-continue\r\nHost:", 1)
    head, _, body = request.partition(b"\r\n\r\n")
    with connected(site) as connection:
        connection.sendall(head + b"\r\n\r\n")
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        ((status, _, _),) = answers(connection, 1)
    assert status == 200


def test_a_head_without_a_body_is_sent(site: Site) -> None:
    with connected(site) as connection:
        connection.sendall(b"HEAD /v1/studies HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        head = connection.recv(1000)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert head.endswith(b"\r\n\r\n")


def test_an_idle_connection_stays_open(serve: Serve) -> None:
    site = serve(request_timeout=0.3, keep_alive=30)
    site.limit_time(60)
    site.study()
    with connected(site) as connection:
        for _ in range(2):
            connection.sendall(post(PATH, b'{"unit":"u"}'))
            ((status, _, _),) = answers(connection, 1)
            assert status == 200
            connection.settimeout(1.0)
            with pytest.raises(TimeoutError):
                connection.recv(1)  # neither a response nor an end, although the caller is silent for very long


def test_fast_assign_asks_for_a_key(serve: Serve) -> None:
    site = serve()
    site.study()
    keys = site.running.application.context.keys
    may, may_not = (keys.create(scope, [scope]).key for scope in ("evaluate", "read"))
    site.client.headers["Authorization"] = f"Bearer {may}"
    with connected(site) as connection:
        for key, status in ((may, 200), (may + "x", 401), (may_not, 403), (None, 401)):
            connection.sendall(post(PATH, b'{"unit":"u"}', key=key))
            ((status_code, headers, _),) = answers(connection, 1)
            assert status_code == status
            if headers.get("connection") == "close":
                break


def test_decisions_are_logged_and_counted(serve: Serve) -> None:
    site = serve()
    site.study()
    with connected(site) as connection:
        for i in range(5):
            connection.sendall(post(PATH, json.dumps({"unit": f"{i}"}).encode()))
            answers(connection, 1)
    metrics = site.client.get("/metrics").text
    assert 'pasto_decisions_total{study="feed",via="assign"} 6.0' in metrics
    assert 'pasto_requests_total{method="POST",route="/v1/studies/{name}/assign",status="200"} 6.0' in metrics
    service = site.running.service
    site.until(lambda: write_record(service.report("feed"))["accounting"]["events"]["exposures"] == 6)
