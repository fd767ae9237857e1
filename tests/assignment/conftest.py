"""Fixtures: policies to draw from."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import pytest

from pasto_sdk.enrolment import SegmentAttribute, SegmentRule
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


VALUES: dict[str, list[Any]] = {
    "country": ["de", "at", "ü", "", "other"],
    "level": [0, 1, 2.5, -3, 1e15],
    "employee": [True, False],
    "tenure_days": [-1.5, 0, 6.999999999999999, 7, 29.9, 30, 1e14],
}
"""Values of attributes, those of one all of one type."""


def make_segmented(rng: random.Random, mode: str = "shuffled") -> PublishedPolicy:
    """Return a policy whose segments, and the shares of each, are random."""
    parts = []
    for name in rng.sample(sorted(VALUES), rng.randint(1, 3)):
        some = rng.sample(VALUES[name], rng.randint(1, len(VALUES[name])))
        plain = [float(value) if type(value) is int else value for value in some]
        if name in ("level", "tenure_days") and rng.random() < 0.6:
            parts.append(SegmentAttribute(name, cuts=tuple(sorted(plain))))
        else:
            parts.append(SegmentAttribute(name, tuple(plain)))
    names = tuple(f"segment {place}" for place in range(prod(part.part_count for part in parts)))
    shares = []
    for _ in range(len(names) + 1):
        weights = [rng.random() ** 3 for _ in range(rng.randint(1, 6))]
        shares.append([("control", 0, 0.1), *(("blend", k, 0.9 * w / sum(weights)) for k, w in enumerate(weights))])
    candidates = {k: (f"c{k}", {"weight": k}) for k in range(6)}
    by_name = dict(zip(names, shares[1:], strict=True))
    return make(
        shares[0], mode=mode, candidates=candidates, segments=SegmentRule(tuple(parts), names), segment_shares=by_name
    )


def make_attributes(rng: random.Random) -> dict[str, Any]:
    """Return attributes of a unit: each one is missing, in a part, or in none."""
    return {
        name: rng.choice([*values, *values, None, 7.5, "7", [name]])
        for name, values in VALUES.items()
        if rng.random() < 0.9
    }


@pytest.fixture(scope="session")
def made() -> Make:
    return make
