"""Fixtures: policies to draw from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pasto_sdk.policy import PublishedPolicy, publish_policy

Make = Callable[..., PublishedPolicy]


def make(shares: Sequence[tuple[str, int, float]], **changes: Any) -> PublishedPolicy:
    """Return a policy of candidates "c0", "c1", ... with these shares."""
    most = max([0, *(candidate for _, candidate, _ in shares)])
    settings: dict[str, Any] = {
        "study": "feed",
        "version": 1,
        "round": 1,
        "state": "learning",
        "mode": "shuffled",
        "salt": "feed/1",
        "candidates": {k: (f"c{k}", {"weight": k}) for k in range(most + 1)},
        "baseline": 0,
        "valid_from": 0.0,
        "expires_after": 86_400.0,
    }
    return publish_policy(shares=shares, **{**settings, **changes})


@pytest.fixture(scope="session")
def made() -> Make:
    return make
