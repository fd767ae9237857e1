"""Fixtures: a study on a simulated world with adjustable level and harm, run round by round."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from pasto.service.close_record import CloseSummary
from pasto.service.notifications import Notifier
from pasto.service.service import Service
from pasto.service.webhook import WebhookSpec
from pasto.store import StudyRow, open_store

TRUTH = {"w=0": (12.0, 8.0), "w=1": (9.8, 10.2), "w=2": (10.0, 12.0), "w=3": (9.0, 10.5)}
"""Mean of x and y by candidate; w=1 is the baseline."""


class Playground:
    """Service with one study, a clock that is set by hand, and simulated users."""

    def __init__(self, document: dict[str, Any], where: str = "memory:") -> None:
        self.now = 1_700_000_000.0
        self.store = open_store(where)
        self.service = self.node()
        self.service.create(document, who="ann", seed=7)
        self.service.change("feed", "start", who="ann")
        self._sent = 0

    @property
    def row(self) -> StudyRow:
        row = self.store.read_study("feed")
        assert row is not None
        return row

    def node(self) -> Service:
        return Service(
            self.store,
            clock=lambda: self.now,
            monotonic=lambda: self.now,
            notifier=Notifier([WebhookSpec("ops", "https://hooks.example.com/")]),
        )

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Messages to the webhook."""
        with self.store.read_transaction() as connection:
            rows = connection.execute("SELECT body FROM outbox ORDER BY created_at").fetchall()
        return [json.loads(body) for (body,) in rows]

    def crowd(
        self,
        users: int = 300,
        *,
        harm: float = 0.0,
        level: float = 1.0,
        lost: Callable[[str, int], bool] | None = None,
    ) -> None:
        """Draw, expose and measure new users; `harm` is taken from y of every user outside the control."""
        policy = self.service.policy_cache.current("feed")
        self._sent += 1
        rng = np.random.default_rng([policy.version, self._sent])
        events = []
        for number in range(users):
            unit = f"user {self._sent}/{number}"
            cell = policy.draw(unit)
            x, y = rng.normal(TRUTH[cell.name], 1.0).tolist()
            if lost is not None and lost(cell.name, number):
                continue
            if cell.arm not in ("control", "paused"):
                y -= harm
            y *= level
            drawn = {"unit": unit, "version": policy.version, "candidate": cell.name}
            views = 4.0 + number % 3
            fields = {"x": x, "y": y, "likes": y / 4.0 * views / 5.0, "views": views}
            events.append({"type": "exposure", "id": f"e/{unit}", **drawn})
            events.append({"type": "metric", "id": f"m/{unit}", "name": "seen", "fields": fields, **drawn})
        answer = self.service.ingest("feed", self.service.decode(json.dumps(events).encode())).result(timeout=60)
        assert answer.rejected == ()

    def round(self, users: int = 300, *, harm: float = 0.0, hours: float = 1.0, level: float = 1.0) -> CloseSummary:
        """Run one round of users and close it; `level` multiplies y of every user."""
        self.crowd(users, harm=harm, level=level)
        self.now += 3600.0 * hours
        return self.service.close_round("feed", who="ann")


def stated(**changes: Any) -> dict[str, Any]:
    """Return a study file with a relative threshold well below the real level."""
    column = {"event": "seen", "aggregate": "sum"}
    return {
        "name": "feed",
        "baseline": {"w": 1},
        "parameters": {"w": [0, 1, 2, 3]},
        "metrics": {
            "x": {**column, "value": "x", "range": [0, 30]},
            "y": {**column, "value": "y", "range": [0, 30]},
            "rate": {"ratio": [{**column, "value": "likes", "cap": 40}, {**column, "value": "views", "cap": 40}]},
        },
        "goal": {"maximize": "x"},
        "guardrails": [{"metric": "y", "at_least": "-2%", "stop_at": "-12%"}],
        "traffic": {"control": "20%"},
        "rounds": {"every": "1h"},
        **changes,
    }


@pytest.fixture
def document() -> dict[str, Any]:
    return stated()


@pytest.fixture
def playground() -> Iterator[Callable[..., Playground]]:
    made: list[Playground] = []

    def make(where: str = "memory:", **changes: Any) -> Playground:
        made.append(Playground(stated(**changes), where))
        return made[-1]

    yield make
    for each in made:
        each.service.shutdown()


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.services)])
def playground_on_every_store(
    request: pytest.FixtureRequest, playground: Callable[..., Playground]
) -> Callable[..., Playground]:
    """Return a playground on every kind of store, one per test."""
    if request.param == "memory":
        where = "memory:"
    elif request.param == "sqlite":
        where = str(request.getfixturevalue("tmp_path") / "store")
    else:
        where = request.getfixturevalue("postgres_url")
    return lambda **changes: playground(where, **changes)
