"""What several benchmarks are tried on: one study, and policies of any size."""

from __future__ import annotations

from typing import Any

from pasto.assign import Published, publish

CANDIDATES = 100

DOCUMENT: dict[str, Any] = {
    "name": "bench",
    "unit": "user",
    "baseline": {"weight": 0},
    "parameters": {"weight": list(range(CANDIDATES))},
    "metrics": {
        "watch_time": {"event": "watch", "value": "seconds", "per_unit": "sum", "cap": 7200},
        "like_rate": {"ratio": [{"event": "like", "per_unit": "count"}, {"event": "watch", "per_unit": "count"}]},
    },
    "goal": {"maximize": "watch_time"},
    "guardrails": [{"keep": "like_rate", "at_least": 0.01}],
    "traffic": {"control": 0.1},
    "rounds": {"every": "1h"},
}


def served(candidates: int, *, control: float = 0.0) -> Published:
    """A policy that serves so many candidates alike, beside a control.

    >>> len(served(3, control=0.1).cells)
    4
    """
    shares = [("learner", k, (1.0 - control) / candidates) for k in range(candidates)]
    return publish(
        study="bench",
        version=7,
        round=7,
        state="learning",
        mode="shuffled",
        salt="bench/7",
        candidates={k: (f"candidate {k}", {}) for k in range(candidates)},
        baseline=0,
        shares=[("control", 0, control), *shares] if control else shares,
        valid_from=0,
        expires_after=60,
    )
