"""Costly small requests: refused before they are read, read outside the event loop, answered briefly."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pasto.service.http.events import MAX_REASONS
from pasto.service.http.routes import ROUTES, Route

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve, Site

EVENTS = "/v1/studies/feed/events"
JSON = {"content-type": "application/json"}
LINES = {"content-type": "application/x-ndjson"}
RECORDS = [
    pytest.param(route, field.encode_name, id=f"{route.method} {route.path} {field.encode_name}")
    for route in ROUTES
    if isinstance(route.request, type)
    for field in msgspec.structs.fields(route.request)
]


@pytest.mark.parametrize(("route", "field"), RECORDS)
def test_a_text_that_is_not_utf_8_is_refused(site: Site, route: Route, field: str) -> None:
    path = route.path.replace("{name}", "feed").replace("{key}", "feed").replace("{prefix}", "0123456789ab")
    for value in (b'"\xff"', b'["\xff"]', b'{"targetingKey": "\xff"}'):
        answer = site.client.request(route.method, path, content=b'{"%b": %b}' % (field.encode(), value), headers=JSON)
        assert answer.status_code == 400, (value, answer.text)


@pytest.fixture(scope="module")
def small(serve_long: Serve) -> Site:
    """Return a service whose batches hold 50 events."""
    site = serve_long(batch_limit=50)
    site.study()
    return site


@pytest.fixture
def readers(small: Site, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the names of the threads that read a batch."""
    names: list[str] = []
    read = small.running.service.decode

    def decode(body: bytes, *, lines: bool = False) -> Any:
        names.append(threading.current_thread().name)
        return read(body, lines=lines)

    monkeypatch.setattr(small.running.service, "decode", decode)
    return names


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"1\n" * 51, LINES),
        (b"\n1" * 51, LINES),
        (b"[%b]" % b",".join([b"1"] * 51), JSON),
        (b' {"events": [%b]}' % b",".join([b"{}"] * 51), JSON),
    ],
    ids=["lines", "lines without the last end", "array", "object"],
)
def test_a_batch_with_too_many_events_is_refused_before_one_is_read(
    small: Site, readers: list[str], body: bytes, headers: dict[str, str]
) -> None:
    answer = small.client.post(EVENTS, content=body, headers=headers)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "batch_too_large"
    assert readers == []


@pytest.mark.parametrize("body", [b"1\n\n" * 50, b"1\n" * 49 + b"1\n \n\t\n"], ids=["every other line", "last lines"])
def test_blank_lines_are_not_events(small: Site, readers: list[str], body: bytes) -> None:
    answer = small.client.post(EVENTS, content=body, headers=LINES)
    assert answer.status_code == 422
    assert len(answer.json()["rejected"]) == 50
    assert len(readers) == 1


def test_only_what_is_quickly_read_is_read_in_the_event_loop(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    read = site.running.service.decode

    def decode(body: bytes, *, lines: bool = False) -> Any:
        names.append(threading.current_thread().name)
        return read(body, lines=lines)

    monkeypatch.setattr(site.running.service, "decode", decode)
    costly = [
        (b"1\n" * 1000, LINES),
        (b"[%b]" % b",".join([b"{}"] * 1000), JSON),
        (b'[{"type": "%b"}]' % (b"x" * 20_000), JSON),
    ]
    for body, headers in costly:
        site.client.post(EVENTS, content=body, headers=headers)
    assert [name.partition("_")[0] for name in names] == ["pasto-ingest"] * 3
    names.clear()
    site.client.post(EVENTS, content=b"1\n" * 10, headers=LINES)
    assert not names[0].startswith("pasto-")


def test_an_answer_accounts_for_every_refused_event_and_explains_the_first(site: Site) -> None:
    good = {"type": "metric", "id": "good", "unit": "ann", "name": "like"}
    batch = [{"id": f"bad {place}"} for place in range(9_999)]
    batch[5_000] = good
    answer = site.client.post(EVENTS, json=batch)
    body = answer.json()
    assert body["accepted"] == 1
    refused = body["rejected"]
    assert [one["index"] for one in refused] == [place for place in range(9_999) if place != 5_000]
    assert all("type is missing" in one["reason"] and one["id"] for one in refused[:MAX_REASONS])
    assert all(one == {"index": one["index"], "reason": ""} for one in refused[MAX_REASONS:])
    assert len(answer.content) < 300_000  # 1.2 MB with every reason


def test_a_study_file_with_very_many_problems_is_answered_briefly(site: Site) -> None:
    answer = site.client.post("/v1/check", content=json.dumps({f"field{k}": 1 for k in range(20_000)}), headers=JSON)
    assert answer.status_code == 422
    assert "more problems are not listed" in answer.json()["error"]["problems"][""]
    assert len(answer.content) < 100_000
