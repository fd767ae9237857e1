"""Process with the kernels that its environment chooses: `other_processor.py learn|replay STORE` prints JSON.

`learn` runs each study of `study_documents` for some rounds, confirms it and prints the kind of arithmetic. `replay`
prints that and the result of each replay.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import numpy as np

from pasto.report.records import write_record
from pasto.service.rounds.learner_step import identify_arithmetic
from pasto.service.service import Service
from pasto.store import open_store

ROUNDS = 4
UNITS = 400


def study_documents() -> list[dict[str, Any]]:
    """Return study files whose learners depend on the last digits in different ways."""
    events = {"event": "seen", "aggregate": "sum", "range": [-9, 9]}
    levels = [0, 0.2, 0.4, 0.6, 0.8, 1]
    common = {
        "baseline": {"a": 0.4, "b": 0.4},
        "metrics": {"x": {**events, "value": "x"}, "y": {**events, "value": "y"}},
        "goal": {"maximize": "x"},
        "guardrails": [{"metric": "y", "at_least": "-2%", "loss_budget": "2%"}],
        "traffic": {"control": "10%"},
        "rounds": {"every": "1h"},
    }
    grid = {"parameters": {"a": levels, "b": levels}}
    process = {"name": "thompson", "structure": "process"}
    ranges = {"ranges": {"a": {"low": 0, "high": 1}, "b": {"low": 0, "high": 1}}}
    return [
        {**common, **grid, "name": "contrasts"},
        {**common, **grid, "name": "kernels", "learner": {**process, "contrast": None}},
        {**common, **ranges, "name": "continuous"},
    ]


def learn(service: Service) -> None:
    """Run each study for some rounds and confirm it."""
    for document in study_documents():
        name = document["name"]
        service.create(document, who="ann", seed=7)
        service.change(name, "start", who="ann")
        for _ in range(ROUNDS):
            send_events(service, name)
            close = service.close_round(name, who="ann")
            assert close.problems == (), close.problems
        service.change(name, "confirm", who="ann")


def send_events(service: Service, name: str) -> None:
    """Send the events of one round; their numbers have four digits, so they are the same on every processor."""
    policy = service.policy_cache.current(name)
    noise = np.random.default_rng(policy.version).normal(size=(UNITS, 2))
    events: list[dict[str, Any]] = []
    for number in range(UNITS):
        unit = f"user {number}"
        cell = policy.draw(unit)
        a, b = float(cell.values["a"]), float(cell.values["b"])
        x = 2.0 + math.sin(3.0 * a) + 0.5 * b + noise[number, 0]
        y = 3.0 - a * b + 0.3 * math.cos(4.0 * b) + noise[number, 1]
        drawn = {"unit": unit, "version": policy.version, "candidate": cell.name}
        key = f"{name}/{policy.version}/{number}"
        events.append({"type": "exposure", "id": f"e/{key}", **drawn})
        fields = {"x": round(x, 4), "y": round(y, 4)}
        events.append({"type": "metric", "id": f"m/{key}", "name": "seen", "fields": fields, **drawn})
    result = service.ingest(name, service.decode(json.dumps(events).encode())).result(timeout=60)
    assert result.rejected == (), result.rejected[:3]


def main(task: str, place: str) -> dict[str, Any]:
    """Run a task, and return what it prints."""
    service = Service(open_store(place))
    try:
        if task == "learn":
            learn(service)
            return {"arithmetic": identify_arithmetic()}
        names = [document["name"] for document in study_documents()]
        replays = {name: write_record(service.replay(name)) for name in names}
        return {"arithmetic": identify_arithmetic(), "replays": replays}
    finally:
        service.shutdown()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])) + "\n")
