"""Webhook addresses: only public ones are reached, in every notation, after every lookup and redirect."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from pasto.errors import OptionError
from pasto.service.webhook import Webhook, WebhookSpec

WRITTEN = [
    "http://127.0.0.1/",
    "http://127.1/",
    "http://127.0.0.1.:80/",
    "http://2130706433/",  # one decimal number
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0177.0.0.1/",  # in octal
    "http://017700000001/",
    "http://0/",
    "http://0.0.0.0/",
    "http://10.0.0.1:8300/v1/keys",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",  # for carriers
    "http://169.254.169.254/latest/meta-data/",
    "http://2852039166/latest/meta-data/",  # the same, as one number
    "http://0xa9fea9fe/",
    "http://169.254.170.2/v2/credentials",
    "http://192.0.0.192/opc/v1/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",  # IPv4 within IPv6
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[::127.0.0.1]/",
    "http://[::a9fe:a9fe]/",
    "http://[64:ff9b::169.254.169.254]/",  # as a translating network reaches it
    "http://[64:ff9b:1::a00:1]/",
    "http://[2002:a9fe:a9fe::1]/",  # as a tunnel reaches it
    "http://[2001:0:a00:1::1]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25lo]/",
    "http://[fec0::1]/",
    "http://[fc00::1]/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://[ff02::1]/",
    "http://[100::1]/",
    "http://[2001:db8::1]/",
    "http://localhost/",
    "http://localhost.:8300/",
    "https://user@127.0.0.1/",
    "https://hooks.example.com@127.0.0.1/",
    "http://127.0.0.1\\@hooks.example.com/",
    "http://hooks.example.com#@127.0.0.1:bad/",
    "http:///127.0.0.1/",
    "//127.0.0.1/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "dict://127.0.0.1:11211/stats",
    "ftp://127.0.0.1/",
    "unix:///var/run/docker.sock",
    "jar:http://127.0.0.1!/",
    "http://①②⑦.⓪.⓪.①/",
    "http://127。0。0。1/",
]


def post(webhook: Webhook) -> None:
    webhook.post("msg_1", "{}", 0)


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record every address of a connection attempt; none is reached."""
    found: list[Any] = []

    def dial(address: Any, *_: Any, **__: Any) -> socket.socket:
        found.append(address)
        raise ConnectionRefusedError("this is a test")

    monkeypatch.setattr(socket, "create_connection", dial)
    return found


def test_there_are_enough_of_them() -> None:
    assert len(set(WRITTEN)) >= 30


@pytest.mark.parametrize("url", WRITTEN)
def test_no_way_of_writing_it_leads_inside(url: str, dialled: list[Any]) -> None:
    """Check notations that only the machine's own resolver reads."""
    with pytest.raises(OptionError):
        post(Webhook(WebhookSpec("ops", url)))
    assert dialled == []


def test_a_public_address_is_dialled(dialled: list[Any]) -> None:
    for url, to in (("http://93.184.216.34/", "93.184.216.34"), ("http://[2606:2800:220:1::1]/", "2606:2800:220:1::1")):
        with pytest.raises(ConnectionRefusedError):
            post(Webhook(WebhookSpec("ops", url)))
        assert dialled.pop() == (to, 80)


@pytest.mark.parametrize(
    "answers",
    [
        ["10.0.0.7"],
        ["169.254.169.254", "::1"],
        ["::ffff:10.0.0.7", "2002:a00:7::"],
        ["fe80::1%eth0"],
        [],
    ],
    ids=str,
)
def test_a_name_that_points_inside_is_not_dialled(answers: list[str], dialled: list[Any]) -> None:
    with pytest.raises(OptionError, match="which is not public"):
        post(Webhook(WebhookSpec("ops", "https://hooks.example.com/"), resolve=lambda *_: answers))
    assert dialled == []


def test_a_name_that_changes_its_mind_is_asked_once(dialled: list[Any]) -> None:
    """Check a name server that gives a public address to the check, and a private one to the connection."""
    answers = [["93.184.216.34"], ["127.0.0.1"], ["127.0.0.1"]]
    webhook = Webhook(WebhookSpec("ops", "http://rebind.example.com/"), resolve=lambda *_: answers.pop(0))
    with pytest.raises(ConnectionRefusedError):
        post(webhook)
    assert dialled == [("93.184.216.34", 80)]
    with pytest.raises(OptionError, match="which is not public"):
        post(webhook)
    assert len(dialled) == 1


class Listener(HTTPServer):
    """Server that answers every POST with one status, and records the request."""

    def __init__(self, status: int, location: str = "") -> None:
        self.paths: list[str] = []
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                listener.paths.append(self.path)
                self.send_response(status)
                self.send_header("Location", location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def private_server() -> Iterator[Listener]:
    """Run a server that the webhook must not reach."""
    with listening(Listener(200)) as server:
        yield server


@contextmanager
def listening(server: Listener) -> Iterator[Listener]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int, private_server: Listener) -> None:
    outside = Listener(status, f"http://127.0.0.1:{private_server.server_port}/v1/keys")
    with listening(outside) as server:
        url = f"http://hooks.test:{server.server_port}/"
        webhook = Webhook(WebhookSpec("ops", url), frozenset({"hooks.test"}), resolve=lambda *_: ["127.0.0.1"])
        with pytest.raises(Exception, match=f"the receiver answered {status}"):
            post(webhook)
    assert (outside.paths, private_server.paths) == (["/"], [])
