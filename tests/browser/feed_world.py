"""Simulated users of a small feed, as content for the pages: watch time and likes compete."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import httpx

from pasto_sdk.policy import PublishedPolicy

STUDY: dict[str, Any] = {
    "name": "feed",
    "description": "Weights of the home feed",
    "baseline": {"like_weight": 1, "share_weight": 1},
    "parameters": {"like_weight": [0, 1, 2, 3], "share_weight": [0, 1, 2]},
    "metrics": {
        "watch_time": {"event": "watch", "value": "seconds", "aggregate": "sum", "cap": 200},
        "like_rate": {
            "ratio": [
                {"event": "like", "aggregate": "count", "cap": 50},
                {"event": "view", "aggregate": "count", "cap": 50},
            ]
        },
    },
    "goal": {"maximize": "watch_time"},
    "guardrails": [{"metric": "like_rate", "at_least": "-2%", "stop_at": "-20%"}],
    "traffic": {"control": "20%"},
    "rounds": {"every": "1h"},
}


def noise(*parts: object) -> float:
    """Return a number from −1 to 1, the same for the same words."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**47 - 1


def users(policy: PublishedPolicy, count: int, *, harm: float = 0.0) -> list[dict[str, Any]]:
    """Return the events of one round; `harm` removes likes from every unit outside the control."""
    found: list[dict[str, Any]] = []
    for number in range(count):
        unit = f"user {number}"
        cell = policy.draw(unit)
        like, share = float(cell.values.get("like_weight", 1)), float(cell.values.get("share_weight", 1))
        drawn = {"unit": unit, "version": policy.version, "candidate": cell.name}
        at = f"{policy.version}/{number}"
        found.append({"type": "exposure", "id": f"e{at}", **drawn})
        seconds = 60 + 6 * (1 - like) + 3 * share + 12 * noise(at, "watch")
        found.append({"type": "metric", "id": f"w{at}", "name": "watch", "fields": {"seconds": seconds}, **drawn})
        chance = 0.5 + 0.06 * (like - 1) - 0.03 * (share - 1) - (harm if cell.arm != "control" else 0.0)
        for view in range(4):
            found.append({"type": "metric", "id": f"v{at}/{view}", "name": "view", **drawn})
            if (noise(at, view) + 1) / 2 < chance:
                found.append({"type": "metric", "id": f"l{at}/{view}", "name": "like", **drawn})
    return found


def play(client: httpx.Client, rounds: int, count: int = 400, *, name: str = "feed", harm: float = 0.0) -> None:
    """Serve some rounds of traffic and close each."""
    for _ in range(rounds):
        send(client, count, name=name, harm=harm)
        client.post(f"/v1/studies/{name}/rounds/close", json={}).raise_for_status()


def send(client: httpx.Client, count: int, *, name: str = "feed", harm: float = 0.0) -> None:
    """Send one round's traffic without closing the round."""
    policy = PublishedPolicy.from_text(client.get(f"/v1/studies/{name}/policy").text)
    events = users(policy, count, harm=harm)
    for start in range(0, len(events), 5000):
        body = json.dumps(events[start : start + 5000])
        headers = {"content-type": "application/json"}
        client.post(f"/v1/studies/{name}/events", content=body, headers=headers).raise_for_status()
