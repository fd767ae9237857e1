"""HTTP transport over real sockets: threads, open connections, deadlines, and servers that misbehave."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from pasto_sdk import Client, FakeService, HttpTransport, Request, Response
from pasto_sdk.policy import PublishedPolicy

Make = Callable[..., PublishedPolicy]


class Server(Protocol):
    service: FakeService
    url: str
    connections: int
    waiting: int
    server_port: int
    socket: socket.socket

    def publish(self, policy: PublishedPolicy) -> None: ...


@contextmanager
def misbehaving(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """Run a server that reads a request and then misbehaves as configured."""
    listening = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve() -> None:
        listening.settimeout(0.05)
        while not stop.is_set():
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                continue
            with connection:
                connection.settimeout(5)
                try:
                    connection.recv(65536)
                    talk(connection)
                except OSError:
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        stop.set()
        thread.join()
        listening.close()


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    ends = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends:
        time.sleep(0.005)
    return condition()


def test_the_whole_way_over_a_real_port(server: Server, policy: Make, tmp_path: Path) -> None:
    service = server.service
    with Client(server.url, study="feed", api_key="pasto_a_b", cache=tmp_path, flush_interval=0.05) as client:
        assert client.wait_until_ready(60)
        for place in range(2500):
            client.assign(f"unit {place}").track("watch", seconds=1.5)
        assert client.flush(60)
        assert (len(service.exposures), len(service.metrics)) == (2500, 2500)
        assert client.status()["buffered"] == 0
        server.publish(policy(2))
        assert until(lambda: client.assign("ann").version == 2)
        # Without a call of flush: the sender works by itself.
        client.track("ann", "like")
        assert until(lambda: any(event["name"] == "like" for event in service.metrics))
        assert {request.headers["Authorization"] for request in service.requests} == {"Bearer pasto_a_b"}
    assert server.connections <= 4
    assert service.duplicates == 0
    assert client.status()["errors"] == 0
    with Client(server.url, study="feed", cache=tmp_path, background=False) as restarted:
        assert restarted.assign("ann").version == 2


def test_close_sends_pending_events_and_wakes_waiting_threads(server: Server) -> None:
    others = set(threading.enumerate())  # tests before this one may have left a thread that is about to end
    client = Client(server.url, study="feed", cache=None, poll_interval=60, flush_interval=60)
    assert client.wait_until_ready(60)
    assert until(lambda: server.waiting > 0)
    client.assign("ann")
    assert client.close(60)
    assert server.waiting == 1  # The request is still open there, and no thread here waits for its answer.
    assert len(server.service.exposures) == 1
    assert not [thread for thread in set(threading.enumerate()) - others if thread.name.startswith("pasto-")]


def test_an_ordinary_close_reports_no_error(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    client = Client(server.url, study="feed", cache=None, poll_interval=60, flush_interval=60)
    assert client.wait_until_ready(60)
    assert until(lambda: server.waiting > 0)
    assert client.close(60)
    assert (client.status()["errors"], client.status()["last_error"], caplog.messages) == (0, None, [])


def test_a_failure_before_the_close_is_still_reported(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    server.service.fault = lambda request: Response(503)
    client = Client(server.url, study="feed", cache=None)
    assert until(lambda: client.status()["errors"] > 0)
    client.close(60)
    assert caplog.messages == [f"no policy from {server.url}/v1/studies/feed/policy: the service answered 503"]


def test_a_connection_that_the_server_gave_up_is_replaced(server: Server) -> None:
    transport = HttpTransport()
    request = Request("GET", f"{server.url}/policy")
    assert transport(request).status == 200
    assert transport(request).status == 200
    assert server.connections == 1
    connection = next(iter(transport._open))
    connection.end()
    assert transport(request).status == 200
    assert server.connections == 2
    transport.close()
    with pytest.raises(ConnectionError):
        transport(request)


def drip(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(1000):
        connection.sendall(b"x")
        time.sleep(0.02)


def drip_headers(connection: socket.socket) -> None:
    for _ in range(1000):
        connection.sendall(b"H")
        time.sleep(0.02)


def say_nothing(connection: socket.socket) -> None:
    connection.recv(1)


@pytest.mark.parametrize("talk", [drip, drip_headers, say_nothing], ids=["drip", "headers", "nothing"])
def test_no_answer_takes_longer_than_it_may(talk: Callable[[socket.socket], None]) -> None:
    transport = HttpTransport()
    with misbehaving(talk) as url:
        with pytest.raises(TimeoutError):
            transport(Request("GET", url, timeout=0.3))
        transport.close()


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"\x00\x01\x02garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx",
    ],
    ids=["nothing", "garbage", "cut short", "cut chunk", "bad chunk"],
)
def test_half_an_answer_is_none(response: bytes) -> None:
    transport = HttpTransport()
    with misbehaving(lambda connection: connection.sendall(response)) as url:
        with pytest.raises((OSError, http.client.HTTPException)):
            transport(Request("GET", url, timeout=2))
        transport.close()


def test_an_answer_may_end_with_its_connection() -> None:
    transport = HttpTransport()
    with misbehaving(lambda connection: connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nwhole")) as url:
        assert transport(Request("GET", url)).body == b"whole"
        transport.close()


def test_a_redirect_is_not_followed(server: Server) -> None:
    transport = HttpTransport()
    answer = f"HTTP/1.1 302 Found\r\nLocation: {server.url}/policy\r\nContent-Length: 0\r\n\r\n".encode()
    with misbehaving(lambda connection: connection.sendall(answer)) as url:
        response = transport(Request("GET", url, {"Authorization": "Bearer pasto_a_b"}))
        transport.close()
    assert (response.status, response.header("location")) == (302, f"{server.url}/policy")
    assert server.connections == 0


def test_an_absent_server_is_an_ordinary_error() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, so that no other process can listen there; without `listen` it refuses
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        with Client(url, study="feed", cache=None, baseline={"weight": 1}) as client:
            assert not client.wait_until_ready(0.2)
            assert dict(client.assign("ann").values) == {"weight": 1}
            assert not client.flush(0.1)
            assert until(lambda: "ConnectionRefusedError" in str(client.status()["last_error"]))
            assert not client.close(0.1)


CERTIFICATE = Path(__file__).with_name("localhost.pem")
"""Self-signed certificate of a test server, with its key; used only in this test."""


def test_a_certificate_is_checked(server: Server) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = f"https://localhost:{server.server_port}/policy"
    stranger = HttpTransport()
    with pytest.raises(ssl.SSLCertVerificationError):
        stranger(Request("GET", url))
    stranger.close()
    friend = HttpTransport(ssl.create_default_context(cafile=str(CERTIFICATE)))
    assert friend(Request("GET", url)).status == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        friend(Request("GET", url.replace("localhost", "127.0.0.1")))
    friend.close()
