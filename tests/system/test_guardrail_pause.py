"""Guardrail pause: a breach pauses the live study, and every interface reports it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import numpy as np
import pytest

from pasto.service.http.server import ServiceProcess
from pasto.service.settings import Settings
from pasto_sdk import Client

DOCUMENT: dict[str, Any] = {
    "name": "feed",
    "baseline": {"w": 1},
    "parameters": {"w": [0, 1, 2]},
    "metrics": {"likes": {"event": "seen", "value": "likes", "aggregate": "sum", "range": [0, 4]}},
    "goal": {"maximize": "likes"},
    "guardrails": [{"metric": "likes", "at_least": "-5%", "stop_at": "-15%"}],
    "traffic": {"control": "30%"},
    "rounds": {"exposures": 250},
    "learner": "thompson",
}


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    ends = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends:
        time.sleep(0.01)
    return condition()


@pytest.fixture
def heard() -> Iterator[tuple[list[dict[str, Any]], str]]:
    """Return the messages of an external webhook listener, and its address."""
    messages: list[dict[str, Any]] = []

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield messages, f"http://127.0.0.1:{server.server_port}/hook"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def running(heard: tuple[list[dict[str, Any]], str]) -> Iterator[ServiceProcess]:
    settings = Settings(
        store="memory:", port=0, poll=0.05, shutdown_timeout=2, webhook=heard[1], webhook_hosts="127.0.0.1"
    )
    live = ServiceProcess(settings)
    live.service.create(DOCUMENT, who="test", seed=7)
    live.service.change("feed", "start", who="test")
    thread = threading.Thread(target=live.serve)
    thread.start()
    try:
        assert until(lambda: live.started)
        yield live
    finally:
        live.stop()
        thread.join()


class SimulatedUsers:
    """Users who come through the SDK, round after round."""

    def __init__(self, running: ServiceProcess, client: Client) -> None:
        self._running, self._client = running, client
        self._rng = np.random.default_rng(7)
        self._came = 0

    def round(self, *, harm: float) -> None:
        """Run one round of users; those outside the control lose likes."""
        before = self._running.service.show("feed").round
        for _ in range(260):
            self._came += 1
            decision = self._client.assign(f"user {self._came}")
            hurt = harm if decision.arm not in ("control", "paused") else 0.0
            decision.track("seen", likes=float(np.clip(self._rng.normal(2.0 - hurt, 0.5), 0.0, 4.0)))
        assert self._client.flush(60)
        assert until(lambda: self._running.service.show("feed").round > before)
        version = self._running.service.show("feed").version
        assert until(lambda: self._client.assign("a looker").version == version)


def test_a_falling_guardrail_pulls_the_traffic_of_a_running_client(
    running: ServiceProcess, heard: tuple[list[dict[str, Any]], str]
) -> None:
    service = running.service
    with Client(running.url, study="feed", cache=None) as client, httpx.Client(base_url=running.url) as site:
        assert client.wait_until_ready(60)
        crowd = SimulatedUsers(running, client)
        for _ in range(3):
            crowd.round(harm=0.0)
        assert service.show("feed").state == "learning"
        for _ in range(8):
            crowd.round(harm=1.0)
            if service.show("feed").state == "paused":
                break
        assert service.show("feed").state == "paused"
        assert until(lambda: client.assign("whoever").arm == "paused")
        served = {client.assign(f"unit {number}").name for number in range(50)}
        held = {cell.name for cell in service.policy_cache.current("feed").cells}
        assert served <= held
        assert 'pasto_guardrail_state{guardrail="likes",study="feed"} 2.0' in site.get("/metrics").text
        report = site.get("/v1/studies/feed/report").json()
        assert report["guardrail_monitor"]["tripped"]["reason"].startswith(
            "guardrail monitor: likes fell below its stop level -15%"
        )
        assert "likes fell below its stop level" in site.get("/v1/studies/feed/report?format=text").text
        refused = site.patch("/v1/studies/feed", json={"action": "resume"})
        assert (refused.status_code, "needs a reason" in refused.json()["error"]["message"]) == (400, True)
        assert service.audit("feed")[-1].who == "guardrail monitor"
        assert until(lambda: any(message["event"] == "guardrail_stop" for message in heard[0]))
        assert service.replay("feed").identical
        site.patch("/v1/studies/feed", json={"action": "resume", "reason": "repaired"}).raise_for_status()
        assert until(lambda: client.assign("whoever").arm != "paused")
        crowd.round(harm=0.0)
        assert service.show("feed").state == "learning"


def test_a_study_of_equal_candidates_raises_no_alarm(
    running: ServiceProcess, heard: tuple[list[dict[str, Any]], str]
) -> None:
    with Client(running.url, study="feed", cache=None) as client:
        assert client.wait_until_ready(60)
        crowd = SimulatedUsers(running, client)
        for _ in range(8):
            crowd.round(harm=0.0)
    assert running.service.show("feed").state == "learning"
    assert heard[0] == []
