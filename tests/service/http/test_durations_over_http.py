"""Durations in bodies and queries, written as in a study file."""

from __future__ import annotations

from typing import Any

import pytest

from tests.service.http.conftest import Serve, Site


def test_keys_expire_after_a_written_duration(serve: Serve) -> None:
    site = serve()
    admin = {"name": "ann", "scopes": ["admin"], "expires_in": "30min"}
    made = site.client.post("/v1/keys", json=admin).json()
    site.client.headers["authorization"] = f"Bearer {made['key']}"
    (listed,) = site.client.get("/v1/keys").json()["keys"]
    assert listed["expires_at"] - listed["created_at"] == 1800
    rotated = site.client.post(f"/v1/keys/{made['prefix']}/rotate", json={"grace": "30min"}).json()
    keys = {key["prefix"]: key for key in site.client.get("/v1/keys").json()["keys"]}
    assert keys[made["prefix"]]["revoked_at"] - keys[rotated["prefix"]]["created_at"] == 1800


def test_archived_events_are_deleted_after_a_written_duration(serve: Serve, tmp_path: Any) -> None:
    site = serve(store=str(tmp_path / "store"))
    site.study()
    answer = site.client.post("/v1/studies/feed/events/archive", json={"delete_older": "30min"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["deleted_rounds"] == []


@pytest.mark.parametrize("wait", ["0s", "1ms", "0.01"])
def test_a_caller_waits_for_a_written_duration(site: Site, wait: str) -> None:
    first = site.client.get("/v1/studies/feed/policy")
    again = site.client.get(
        "/v1/studies/feed/policy", params={"wait": wait}, headers={"if-none-match": first.headers["etag"]}
    )
    assert again.status_code == 304


@pytest.mark.parametrize(
    ("method", "path", "sent", "field", "limits"),
    [
        ("GET", "/v1/studies/feed/policy?wait=30min", None, "wait", "from 0s to 1min"),
        ("POST", "/v1/keys", {"name": "x", "scopes": ["admin"], "expires_in": "9999w"}, "expires_in", "to 3650d"),
        ("POST", "/v1/studies/feed/events/archive", {"delete_older": "99999w"}, "delete_older", "to 36600d"),
    ],
)
def test_a_duration_out_of_range_names_its_limits(
    site: Site, method: str, path: str, sent: object, field: str, limits: str
) -> None:
    answer = site.client.request(method, path, json=sent)
    assert answer.status_code == 400
    assert answer.json()["error"]["field"] == field
    assert limits in answer.json()["error"]["message"]
