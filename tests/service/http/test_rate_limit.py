"""Rate limit: a key that sends too many events is asked to come back, and no other key is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pasto.service.http.rate_limit import MAX_KEYS, RateLimit


def _batch(start: int, number: int) -> list[dict[str, Any]]:
    return [
        {"type": "metric", "id": f"m{place}", "unit": "ann", "name": "like"} for place in range(start, start + number)
    ]


def test_a_key_beyond_its_rate_gets_429_and_others_do_not(serve: Callable[..., Any]) -> None:
    site = serve(key_rate=1)
    site.study()
    made: dict[str, str] = {}
    for name, scopes in (("admin", ["admin"]), ("web", ["ingest"]), ("app", ["ingest"])):
        answer = site.client.post("/v1/keys", json={"name": name, "scopes": scopes})
        site.client.headers["authorization"] = f"Bearer {made.setdefault('admin', answer.json()['key'])}"
        made[name] = answer.json()["key"]

    def send(key: str, events: list[dict[str, Any]]) -> Any:
        headers = {"authorization": f"Bearer {made[key]}"}
        return site.client.post("/v1/studies/feed/events", json=events, headers=headers)

    assert send("web", _batch(0, 1000)).status_code == 200
    refused = send("web", _batch(1000, 1))
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "rate_limited"
    assert int(refused.headers["retry-after"]) > 900
    assert send("app", _batch(2000, 1)).status_code == 200


def test_a_bucket_fills_again_and_holds_ten_seconds() -> None:
    now = [0.0]
    limit = RateLimit(10, clock=lambda: now[0])
    limit.take("a", 100)
    assert limit.wait_seconds("a") == 1
    assert limit.wait_seconds("b") == 0
    now[0] = 1.0
    assert limit.wait_seconds("a") == 0
    now[0] = 1000.0
    limit.take("a", 101)
    assert limit.wait_seconds("a") == 2


def test_no_rate_is_no_limit() -> None:
    limit = RateLimit(0)
    limit.take("a", 10**9)
    assert limit.wait_seconds("a") == 0


def test_keys_that_paid_back_are_forgotten() -> None:
    now = [0.0]
    limit = RateLimit(10, clock=lambda: now[0])
    for number in range(MAX_KEYS):
        limit.take(str(number), 1)
    now[0] = 100.0
    limit.take("late", 1)
    assert len(limit._buckets) == 1
