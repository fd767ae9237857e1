"""Fixtures: a small study, and a service with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pasto.service.service import Service
from pasto.store import open_store

Document = dict[str, Any]


@pytest.fixture
def document() -> Document:
    return {
        "name": "feed",
        "baseline": {"w": 1},
        "parameters": {"w": [0, 1, 2, 3]},
        "metrics": {
            "watch": {"event": "watch", "value": "seconds", "aggregate": "sum", "range": [-20, 20]},
            "likes": {"event": "like", "aggregate": "count", "cap": 20},
        },
        "goal": {"maximize": "watch"},
        "guardrails": [{"metric": "likes", "at_least": 0.5}],
        "traffic": {"control": "10%"},
        "rounds": {"every": "1h"},
    }


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service(open_store("memory:"))
    yield service
    service.shutdown()


@pytest.fixture
def learning(service: Service, document: Document) -> Service:
    service.create(document, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    return service


@pytest.fixture
def traffic() -> Callable[[Service, int], list[dict[str, Any]]]:
    """Return one round's events of some users under the current policy: w=0 is watched more and w=2 liked more."""

    def events(service: Service, users: int) -> list[dict[str, Any]]:
        policy = service.policy_cache.current("feed")
        found: list[dict[str, Any]] = []
        for number in range(users):
            unit, version = f"user {number}", policy.version
            cell = policy.draw(unit)
            weight = int(cell.values["w"])
            drawn = {"unit": unit, "version": version, "candidate": cell.name}
            noise = (hash((number, version)) % 1000) / 500 - 1
            found.append({"type": "exposure", "id": f"e{version}/{number}", **drawn})
            seconds = {0: 2.0, 1: 0.0, 2: 0.1, 3: -1.0}.get(weight, 1.0) + noise
            fields = {"seconds": seconds}
            found.append({"type": "metric", "id": f"w{version}/{number}", "name": "watch", "fields": fields, **drawn})
            for like in range({0: 0, 1: 1, 2: 2, 3: 1}.get(weight, 1) if number % 4 else 0):
                found.append({"type": "metric", "id": f"l{version}/{number}/{like}", "unit": unit, "name": "like"})
        return found

    return events
