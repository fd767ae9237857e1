"""Simulated world with known means, whose users send events to the service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pasto.service.ingest import BatchResult
from pasto.service.service import Service
from pasto.store import Store, open_store
from pasto_sdk.policy import PublishedPolicy

TRUTH = {"w=0": (2.0, -2.0), "w=1": (-0.2, 0.2), "w=2": (0.0, 2.0), "w=3": (-1.0, 0.5)}
"""Mean of x and y: half w=0 and half w=2 has x = 1 at y = 0, and no single candidate that keeps y has more than 0."""

Events = list[dict[str, Any]]
World = Callable[[PublishedPolicy, int], Events]


def feed_document() -> dict[str, Any]:
    """Return the study file of the world below."""
    return {
        "name": "feed",
        "baseline": {"w": 1},
        "parameters": {"w": [0, 1, 2, 3]},
        "metrics": {
            "x": {"event": "seen", "value": "x", "aggregate": "sum", "range": [-9, 9]},
            "y": {"event": "seen", "value": "y", "aggregate": "sum", "range": [-9, 9]},
        },
        "goal": {"maximize": "x"},
        "guardrails": [{"metric": "y", "at_least": 0}],
        "traffic": {"control": "10%"},
        "rounds": {"every": "1h"},
    }


def quick_document() -> dict[str, Any]:
    """Return the same with Algorithm 1, whose rounds cost a millisecond."""
    return {**feed_document(), "guardrails": [{"metric": "y", "at_least": 0, "penalty": 1}], "learner": "algorithm1"}


@pytest.fixture
def document() -> dict[str, Any]:
    return feed_document()


@pytest.fixture
def quick() -> dict[str, Any]:
    return quick_document()


@pytest.fixture
def truth() -> dict[str, tuple[float, float]]:
    return TRUTH


@pytest.fixture
def world() -> World:
    """Return one round's events: each user gets the drawn candidate and has one event, reproducible for a policy."""

    def events(policy: PublishedPolicy, users: int) -> Events:
        rng = np.random.default_rng(policy.version)
        found: Events = []
        for number in range(users):
            unit, version = f"user {number}", policy.version
            cell = policy.draw(unit)
            x, y = rng.normal(TRUTH[cell.name], 1.0).tolist()
            drawn = {"unit": unit, "version": version, "candidate": cell.name}
            found.append({"type": "exposure", "id": f"{policy.study}/e/{version}/{number}", **drawn})
            fields = {"x": x, "y": y}
            event = {"type": "metric", "id": f"{policy.study}/m/{version}/{number}", "name": "seen", "fields": fields}
            found.append({**event, **drawn})
        return found

    return events


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.services)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of each kind of store."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return "memory:" if request.param == "memory" else str(tmp_path / "store")


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    store = open_store(place)
    yield store
    store.close()


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service(open_store("memory:"))
    yield service
    service.shutdown()


@pytest.fixture
def send() -> Callable[[Service, str, Events], BatchResult]:
    """Send events, and return the result."""

    def sent(service: Service, name: str, events: Events) -> BatchResult:
        return service.ingest(name, service.decode(json.dumps(events).encode())).result(timeout=60)

    return sent
