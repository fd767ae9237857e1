from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pasto.assign import Published, publish
from pasto.sdk import Client, Rehearsal


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def no_files_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own cache folder is a new one in every test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))


@pytest.fixture
def policy() -> Callable[..., Published]:
    """A policy of four candidates with a control; `shares` by candidate, and anything else that publish takes."""

    def make(version: int = 1, shares: tuple[float, ...] = (0.1, 0.2, 0.3, 0.3), **changes: Any) -> Published:
        arms = [("control", 0, 1 - sum(shares)), *(("learner", place, share) for place, share in enumerate(shares))]
        settings: dict[str, Any] = {
            "study": "feed",
            "version": version,
            "round": version,
            "state": "learning",
            "mode": "shuffled",
            "salt": f"feed/{version}",
            "candidates": {place: (f"c{place}", {"weight": place}) for place in range(len(shares))},
            "baseline": 0,
            "shares": [arm for arm in arms if arm[2] > 1e-12],
            "valid_from": 1e9 + version,
            "expires_after": 86400,
        }
        return publish(**(settings | changes))

    return make


@pytest.fixture
def service(policy: Callable[..., Published]) -> Rehearsal:
    return Rehearsal(policy())


@pytest.fixture
def connect(service: Rehearsal, clock: Clock) -> Iterator[Callable[..., Client]]:
    """Make clients of the service that do their work when they are told to, on the clock of the test."""
    with ExitStack() as stack:

        def make(ready: bool = True, **options: Any) -> Client:
            settings: dict[str, Any] = {
                "study": "feed",
                "cache": None,
                "transport": service,
                "clock": clock,
                "background": False,
            }
            client = stack.enter_context(Client("http://rehearsal", **(settings | options)))
            if ready:
                client.ready()
            return client

        yield make
