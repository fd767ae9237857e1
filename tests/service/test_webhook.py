"""Webhook: its addresses, its requests, and its thread, which delays no caller."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from pasto.errors import OptionError
from pasto.service.webhook import Webhook


class Listener(HTTPServer):
    """Server that records its requests, and answers with the configured statuses."""

    def __init__(self) -> None:
        self.heard: list[dict[str, object]] = []
        self.paths: list[str] = []
        self.statuses: list[int] = []
        self.came = threading.Semaphore(0)
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = listener.statuses.pop(0) if listener.statuses else 200
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"http://127.0.0.1:{listener.server_port}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()
                listener.paths.append(self.path)
                listener.heard.append(json.loads(body))
                listener.came.release()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def listener() -> Iterator[Listener]:
    server = Listener()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def hook(listener: Listener, **options: object) -> Webhook:
    url = f"http://hooks.test:{listener.server_port}/pasto?team=feed"
    return Webhook(url, frozenset({"hooks.test"}), retry_seconds=(0.0,), resolve=lambda *_: ["127.0.0.1"])


def test_a_message_arrives_as_json(listener: Listener) -> None:
    webhook = hook(listener)
    webhook.start()
    webhook.send({"event": "trip", "study": "feed"})
    assert listener.came.acquire(timeout=60)
    webhook.stop()
    assert listener.heard == [{"event": "trip", "study": "feed"}]
    assert listener.paths == ["/pasto?team=feed"]


def test_a_redirect_is_not_followed_but_tried_again(listener: Listener) -> None:
    listener.statuses = [302, 200]
    webhook = hook(listener)
    webhook.start()
    webhook.send({"event": "trip"})
    assert listener.came.acquire(timeout=60)
    assert listener.came.acquire(timeout=60)
    webhook.stop()
    assert listener.paths == ["/pasto?team=feed"] * 2


def test_a_message_that_fails_too_often_is_dropped_and_the_next_one_is_sent(listener: Listener) -> None:
    listener.statuses = [500, 500]
    webhook = hook(listener)
    webhook.send({"event": "trip"})
    webhook.send({"event": "warning"})
    webhook.start()
    for _ in range(3):
        assert listener.came.acquire(timeout=60)
    webhook.stop()
    assert [message["event"] for message in listener.heard] == ["trip", "trip", "warning"]


def test_a_new_message_does_not_shorten_the_wait_before_a_retry(listener: Listener) -> None:
    listener.statuses = [500]
    url = f"http://hooks.test:{listener.server_port}/pasto"
    webhook = Webhook(url, frozenset({"hooks.test"}), retry_seconds=(1e6,), resolve=lambda *_: ["127.0.0.1"])
    for event in ("trip", "warning"):
        webhook.send({"event": event})
        seconds = webhook._send_messages()
        assert seconds is not None
        assert seconds > 1e5
    assert [message["event"] for message in listener.heard] == ["trip"]


def test_no_caller_waits_for_a_webhook() -> None:
    webhook = Webhook("https://hooks.example.com/", resolve=lambda *_: ["10.0.0.1"])
    for number in range(1000):
        webhook.send({"number": number})
    webhook.stop()


@pytest.mark.parametrize(
    "address",
    ["10.1.2.3", "127.0.0.1", "169.254.169.254", "192.168.0.9", "::1", "fe80::1", "fd00::1", "::ffff:10.0.0.1"],
)
def test_addresses_of_private_networks_are_refused_unless_their_name_is_allowed(address: str) -> None:
    found = [address]
    with pytest.raises(OptionError, match="which is not public"):
        Webhook("https://hooks.example.com/", resolve=lambda *_: found).address()
    allowed = frozenset({"hooks.example.com"})
    assert Webhook("https://hooks.example.com/", allowed, resolve=lambda *_: found).address() == address


def test_a_host_that_is_not_found_now_may_be_found_later(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[list[str]] = [["10.0.0.7"]]

    def resolve(host: str, port: int) -> list[str]:
        if not answers:
            raise OSError("no name server")
        return answers.pop()

    webhook = Webhook("https://hooks.example.com/", resolve=resolve)
    with pytest.raises(OptionError, match=r"is at 10\.0\.0\.7, which is not public"):
        webhook.check()
    webhook.check()
    assert "cannot be resolved now: no name server" in caplog.text


def test_a_name_with_one_public_address_goes_there_and_nowhere_else() -> None:
    found = ["10.0.0.1", "93.184.216.34"]
    assert Webhook("https://hooks.example.com/", resolve=lambda *_: found).address() == "93.184.216.34"


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://hooks.example.com/", "https://", "hooks", "https://a:b@c.example.com/", "http://[::"],
)
def test_what_is_no_web_address_is_refused(url: str) -> None:
    with pytest.raises(OptionError):
        Webhook(url)


def test_a_host_that_is_not_among_those_allowed_is_refused() -> None:
    with pytest.raises(OptionError, match="not among webhook_hosts"):
        Webhook("https://evil.example.com/", frozenset({"hooks.example.com"}))
