"""Held round over HTTP: reported, counted, and resolved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pasto.errors import InputError
from pasto.service.http_client import HttpStudyApi

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve

RESOLVE = "/v1/studies/feed/rounds/resolve"


def test_a_held_round_is_reported_counted_and_resolved(serve: Serve) -> None:
    site = serve()
    site.study(rounds={"every": "1h"})
    units = [f"user {number}" for number in range(1000)]
    assert site.client.post("/v1/studies/feed/assign", json={"units": units}).status_code == 200
    site.until(lambda: site.client.get("/v1/studies/feed/report").json()["accounting"]["events"]["exposures"] == 1000)
    closed = site.client.post("/v1/studies/feed/rounds/close").json()
    assert (closed["held"], closed["learned_from"]) == ([1], [])
    (held,) = site.client.get("/v1/studies/feed").json()["held"]
    assert (held["round"], held["resolution"], held["findings"][0]["units"]) == (1, None, 1000)
    assert 'pasto_held_rounds{study="feed"} 1.0' in site.client.get("/metrics").text
    assert site.client.post(RESOLVE, json={"round": 1, "resolution": "learn"}).status_code == 400
    wrong = site.client.post(RESOLVE, json={"round": 9, "resolution": "learn", "reason": "so"})
    assert (wrong.status_code, "held rounds: 1" in wrong.json()["error"]["message"]) == (400, True)
    answer = site.client.post(RESOLVE, json={"round": 1, "resolution": "discard", "reason": "no events were sent"})
    assert answer.json()["held"][0]["resolution"] == "discard"
    remote = HttpStudyApi(site.url)
    with pytest.raises(InputError, match="is not held back"):
        remote.resolve_round("feed", 7, "learn", who="ann", reason="so")
    assert remote.resolve_round("feed", 1, "learn", who="ann", reason="so").held[0].resolution == "learn"
    assert remote.audit("feed")[-1].who == "ann"
    assert remote.audit("feed")[-1].reason == "so"
    assert site.client.post("/v1/studies/feed/rounds/close").json()["learned_from"] == [1, 2]
