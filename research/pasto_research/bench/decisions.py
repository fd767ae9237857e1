"""Decision benchmark: cost of one decision in the caller's process, compared with a bare hash and another SDK."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from hashlib import sha256
from statistics import median
from time import perf_counter
from typing import Any, Literal

from pasto.errors import MissingExtraError
from pasto_sdk.policy import PublishedPolicy, publish_policy
from pasto_sdk.policy_document import BUCKET_TOTAL


def rows(quick: bool) -> list[dict[str, Any]]:
    """Return microseconds a decision: ours, the bare hash and the peer, taking turns in one run.

    >>> [row["case"] for row in rows(quick=True)][0]
    'decision, learning, 100 candidates'
    """
    count = 20_000 if quick else 200_000
    units = [f"user-{number}" for number in range(count)]
    learning, sticky = policy(100, "shuffled"), policy(3, "sticky")
    bare = _bare(learning)
    peer = _peer(100)
    few = units[: max(200, count // 100)]
    timed: dict[str, list[float]] = {"bare": [], "learning": [], "sticky": [], "peer": []}
    for _ in range(5):
        timed["bare"].append(_each(bare, units))
        timed["learning"].append(_each(learning.draw, units))
        timed["sticky"].append(_each(sticky.draw, units))
        timed["peer"].append(_each(peer, few))
    took = {name: 1e6 * median(each) for name, each in timed.items()}
    many = [f"user-{number}" for number in range(50_000 if quick else 1_000_000)]
    began = perf_counter()
    learning.draw_many(many)
    seconds = perf_counter() - began
    return [
        _row("decision, learning, 100 candidates", "us", took["learning"], "bare hash and bisect", took["bare"], 2.0),
        _row("decision, sticky, support of 3", "us", took["sticky"], "bare hash and bisect", took["bare"], 10.0),
        _row("decision, learning, 100 candidates", "us", took["learning"], "GrowthBook SDK", took["peer"], 2.0),
        _row("1,000,000 units in one call", "s", seconds * 1e6 / len(many), "bare hashes", took["bare"], 2.0),
    ]


def policy(candidates: int, mode: Literal["shuffled", "sticky"]) -> PublishedPolicy:
    """Return an even policy with a control of a tenth.

    >>> policy(3, "sticky").mode
    'sticky'
    """
    share = 0.9 / candidates
    return publish_policy(
        study="bench",
        version=1,
        round=1,
        state="learning",
        mode=mode,
        salt="bench/1",
        candidates={place: (f"candidate {place}", {"weight": place}) for place in range(candidates)},
        baseline=0,
        shares=[("control", 0, 0.1), *(("learner", place, share) for place in range(candidates))],
        valid_from=0.0,
        expires_after=86400.0,
    )


def _row(case: str, unit: str, ours: float, beside: str, other: float, limit: float) -> dict[str, Any]:
    return {
        "case": case,
        "ours": round(ours, 3),
        "unit": unit,
        "limit": limit,
        "beside": beside,
        "theirs": round(other, 3),
        "ratio": round(ours / other, 3),
    }


def _each(decide: Callable[[str], object], units: list[str]) -> float:
    """Return seconds a decision."""
    began = perf_counter()
    for unit in units:
        decide(unit)
    return (perf_counter() - began) / len(units)


def _bare(learning: PublishedPolicy) -> Callable[[str], object]:
    """Hash and bisect with nothing around them."""
    cuts = [round(BUCKET_TOTAL * (0.1 + 0.9 * place / 100)) for place in range(101)]
    start = learning.salt.encode() + b"\0"

    def decide(unit: str) -> int:
        return bisect_right(cuts, int.from_bytes(sha256(start + unit.encode()).digest()[:7], "big") >> 3)

    return decide


def _peer(variants: int) -> Callable[[str], object]:
    """Time the same split by the other SDK, as documented: one context per user."""
    try:
        from growthbook import Experiment, GrowthBook
    except ImportError as missing:
        raise MissingExtraError("the comparison needs growthbook", "dev") from missing
    client = GrowthBook()
    experiment = Experiment(key="bench", variations=list(range(variants)), weights=[1 / variants] * variants)

    def decide(unit: str) -> object:
        client.set_attributes({"id": unit})
        return client.run(experiment).value

    return decide
