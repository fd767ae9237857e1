"""Senders: the key of a request identifies its sender, and an ingest key cannot read the draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pasto.service.http.server import ServiceProcess

if TYPE_CHECKING:
    from tests.service.http.conftest import Site


def _names(running: ServiceProcess) -> set[str]:
    policy = running.service.policy_cache.current("feed")
    return {cell.name for cell in policy.cells}


def test_events_and_decisions_are_counted_by_key(serve: Callable[..., Any]) -> None:
    site = serve()
    site.study()
    made: dict[str, dict[str, Any]] = {}
    scopes = {"ops": ["admin"], "ranker": ["evaluate", "ingest"], "logger": ["ingest"]}
    for name, allowed in scopes.items():
        answer = site.client.post("/v1/keys", json={"name": name, "scopes": allowed})
        answer.raise_for_status()
        made[name] = answer.json()
        site.client.headers["authorization"] = f"Bearer {made['ops']['key']}"

    def post(key: str, path: str, body: Any) -> Any:
        headers = {"authorization": f"Bearer {made[key]['key']}"}
        return site.client.post(f"/v1/studies/feed/{path}", json=body, headers=headers)

    drawn = post("ranker", "assign", {"unit": "ann"}).json()
    several = post("ranker", "assign", {"units": ["bob", "cid"]})
    assert several.status_code == 200
    metric = {"type": "metric", "id": "m1", "unit": "ann", "name": "like"}
    assert post("logger", "events", [metric]).json()["accepted"] == 1

    wrong = next(iter(sorted(_names(site.running) - {drawn["candidate"]})))
    exposure = {"type": "exposure", "unit": "ann", "version": drawn["version"]}
    tries = [
        post("logger", "events", [{**exposure, "id": f"probe {name}", "candidate": name}])
        for name in (wrong, drawn["candidate"])
    ]
    assert [(one.status_code, one.json()) for one in tries] == [
        (200, {"accepted": 1, "duplicates": 0, "rejected": []})
    ] * 2
    response = post("ranker", "events", [{**exposure, "id": "told", "candidate": wrong}])
    assert response.status_code == 422
    assert "is not what version 1 draws" in response.json()["rejected"][0]["reason"]

    site.until(lambda: _line(site, "ranker")["exposures"] == 3)
    assert _line(site, "ranker")["rejected"] == 1
    line = _line(site, "logger")
    assert (line["exposures"], line["metrics"], line["rejected"]) == (2, 1, 1)
    assert line["sender"] == made["logger"]["prefix"]


def _line(site: Site, name: str) -> dict[str, Any]:
    lines = site.client.get("/v1/studies/feed/report").json()["accounting"]["keys"]
    found = [line for line in lines if line["name"] == name]
    return dict(found[0]) if found else {"exposures": 0}
