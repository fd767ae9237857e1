"""Durability of exposures: those that the service logs itself are not durable when it answers, as the pages state."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import pytest

from pasto.service.http.events import FLUSH_SECONDS
from pasto.service.http.routes import ROUTES

ROOT = Path(__file__).parents[3]
WINDOW = f"{1000 * FLUSH_SECONDS:g} ms"


def words(page: str) -> str:
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("README.md", f"exposures of the service's own decisions follow [about {WINDOW} later]"),
        ("docs/reference/http.md", "### Exposures that the service logs are not durable when it answers"),
        ("docs/reference/http.md", f"gathered for up to {WINDOW} and then written together"),
        (
            "docs/reference/http.md",
            "A single evaluation is logged as an exposure, which is [not durable when it is answered]",
        ),
        (
            "docs/guides/operations.md",
            "are answered before their exposure is on disk: a kill loses those of about the last",
        ),
        ("docs/guides/sdk.md", "is answered before its exposure is on disk"),
        ("clients/javascript/README.md", "memory of your process, and a kill loses it"),
    ],
)
def test_every_page_with_the_promise_names_its_exceptions(page: str, sentence: str) -> None:
    assert sentence in words(page)


def test_the_openapi_document_states_it_too() -> None:
    (route,) = [route for route in ROUTES if route.path.endswith("/assign")]
    assert "not yet durable when answered" in route.summary


def test_a_decision_is_answered_before_its_exposure_is_written(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site = serve()
    site.study()
    store = site.running.service.store
    with monkeypatch.context() as stalled:
        stalled.setattr(store, "append_events", lambda *_, **__: Future())  # a disk that never answers
        flag = {"context": {"targetingKey": "bob"}}
        decided = site.client.post("/v1/studies/feed/assign", json={"unit": "ann"})
        assert decided.status_code == 200
        assert site.client.post("/ofrep/v1/evaluate/flags/feed", json=flag).status_code == 200
        exposure = {
            "type": "exposure",
            "id": "mine",
            "unit": "ann",
            "version": decided.json()["version"],
            "candidate": decided.json()["candidate"],
        }
        site.limit_time(0.3)
        waited: httpx.Response = site.client.post("/v1/studies/feed/events", json=[exposure])
        assert waited.status_code == 503, "an event is acknowledged when it is durable, and not before"
    site.limit_time(60)
    # The documented way: send it as an event, and wait. The unit still counts once.
    assert site.client.post("/v1/studies/feed/events", json=[exposure]).json()["accepted"] == 1
    site.client.post("/v1/studies/feed/assign", json={"unit": "ann"}).raise_for_status()
