"""Fixtures: the dashboard over a small study, called without a network."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from pasto.dashboard import Dashboard
from pasto.service.http.app import Application
from pasto.service.service import Service
from pasto.service.settings import Settings
from pasto.store import open_store

DOCUMENT: dict[str, Any] = {
    "name": "feed",
    "baseline": {"w": 1},
    "parameters": {"w": [0, 1, 2, 3]},
    "metrics": {
        "watch": {"event": "watch", "value": "seconds", "aggregate": "sum", "range": [0, 40], "covariate": "1d"},
        "likes": {"event": "like", "aggregate": "count", "cap": 20},
    },
    "goal": {"maximize": "watch"},
    "guardrails": [{"metric": "likes", "at_least": "-20%", "stop_at": "-90%"}],
    "traffic": {"control": "30%"},
    "rounds": {"every": "1h"},
}


class Browser:
    """Client that calls the application as a browser does: with its cookies, and from the same origin."""

    def __init__(self, application: Application, host: str = "127.0.0.1:8300") -> None:
        self.application = application
        self.cookies = httpx.Cookies()
        self.base = f"http://{host}"

    def ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.application, client=("127.0.0.1", 5))
            async with httpx.AsyncClient(transport=transport, base_url=self.base, cookies=self.cookies) as client:
                answer = await client.request(method, path, **given)
                self.cookies = client.cookies
                return answer

        # In a separate thread, because the client of a real browser runs an event loop in the thread that tests share.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, go()).result()

    def get(self, path: str, **given: Any) -> httpx.Response:
        return self.ask("GET", path, **given)

    def token(self, path: str) -> str:
        """Return the token in a page's forms."""
        found = re.search(r'name="token" value="([0-9a-f]{64})"', self.get(path).text)
        assert found is not None
        return found[1]

    def post(self, path: str, form: dict[str, str], **given: Any) -> httpx.Response:
        return self.ask("POST", path, data=form, **given)


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service(open_store("memory:"))
    yield service
    service.shutdown()


@pytest.fixture
def application(service: Service) -> Iterator[Application]:
    application = Application(service, Settings(), pages=Dashboard(service).routes)
    yield application
    application.context.pools.shutdown()


@pytest.fixture
def browser(application: Application) -> Browser:
    return Browser(application)


@pytest.fixture
def learned(service: Service) -> Service:
    """Return a service whose study "feed" has learned three rounds."""
    service.create(DOCUMENT, who="ann", seed=7)
    service.change("feed", "start", who="ann", reason="go")
    for _ in range(3):
        policy = service.policy_cache.current("feed")
        events: list[dict[str, Any]] = []
        for number in range(400):
            unit = f"user {number}"
            cell = policy.draw(unit)
            drawn = {"unit": unit, "version": policy.version, "candidate": cell.name}
            at = f"{policy.version}/{number}"
            seconds = 10.0 + 2.0 * float(cell.values["w"]) + number % 5
            events.append({"type": "exposure", "id": f"e{at}", **drawn})
            events.append({"type": "metric", "id": f"w{at}", "name": "watch", "fields": {"seconds": seconds}, **drawn})
            for like in range(5 - int(cell.values["w"]) + number % 3):
                events.append({"type": "metric", "id": f"l{at}/{like}", "name": "like", **drawn})
        _sent(service, events)
        service.close_round("feed", who="ann")
    return service


def _sent(service: Service, events: list[dict[str, Any]]) -> None:
    import json

    answer = service.ingest("feed", service.decode(json.dumps(events).encode()))
    assert answer.result().rejected == ()
