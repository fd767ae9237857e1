"""Webhooks of a running service: listed and tested over HTTP and by commands, and named by the alert."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from pasto.cli import main
from pasto.service.http.server import ServiceProcess
from pasto.service.settings import Settings


class Receiver(HTTPServer):
    """Server that records messages, and answers with `status`."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.status = 200
        self.came = threading.Semaphore(0)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                receiver.came.release()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def running(receiver: Receiver, tmp_path: Path, document: dict[str, Any]) -> Iterator[ServiceProcess]:
    file = tmp_path / "webhooks.yaml"
    url = f"http://127.0.0.1:{receiver.server_port}/T0/B0"
    entry = {"name": "chat", "url": url, "format": "slack", "events": ["round_closed"]}
    file.write_text(json.dumps({"webhooks": [entry]}))
    settings = Settings(store="memory:", port=0, shutdown_timeout=2, webhook_file=str(file), webhook_hosts="127.0.0.1")
    service = ServiceProcess(settings)
    service.service.create({**document, "learner": "algorithm1", "guardrails": []}, who="ann", seed=7)
    service.service.change("feed", "start", who="ann")
    ready = threading.Event()
    thread = threading.Thread(target=service.serve, args=(ready.set,))
    thread.start()
    assert ready.wait(60)
    yield service
    service.stop()
    thread.join()


def test_a_running_service_lists_tries_and_uses_its_webhooks(running: ServiceProcess, receiver: Receiver) -> None:
    with httpx.Client(base_url=running.url) as client:
        (listed,) = client.get("/v1/webhooks").json()["webhooks"]
        assert (listed["name"], listed["host"], listed["signed"], listed["waiting"]) == ("chat", "127.0.0.1", False, 0)
        assert "T0" not in json.dumps(listed)
        assert client.post("/v1/webhooks/chat/test").json() == {"name": "chat", "delivered": True, "error": None}
        assert receiver.bodies == [{"text": "test: This is a test: messages of PASTO arrive here."}]
        assert client.post("/v1/webhooks/pager/test").json()["error"]["code"] == "unknown_webhook"
        client.post("/v1/studies/feed/rounds/close").raise_for_status()
    assert receiver.came.acquire(timeout=60)
    assert receiver.came.acquire(timeout=60)
    assert receiver.bodies[1]["text"].startswith("*feed*: round closed (round 1, learning): Round 1 was closed")


def test_commands_list_and_try_the_webhooks(running: ServiceProcess, receiver: Receiver) -> None:
    def run(*words: str) -> Any:
        return CliRunner().invoke(main, ["webhook", *words, "--url", running.url])

    listed = json.loads(run("list", "--json").stdout)
    assert [webhook["name"] for webhook in listed] == ["chat"]
    assert "round_closed" in run("list").stdout
    assert run("test", "chat").exit_code == 0
    receiver.status = 410
    refused = run("test", "chat")
    assert refused.exit_code == 1
    assert "did not accept a test message: HTTPException: the receiver answered 410" in refused.stderr
    assert run("test", "pager").exit_code == 2
    assert CliRunner().invoke(main, ["webhook", "secret"]).stdout.startswith("whsec_")
    missing = CliRunner().invoke(main, ["webhook", "list", "--store", "memory:"])
    assert (missing.exit_code, "webhooks belong to a running service" in missing.stderr) == (2, True)
