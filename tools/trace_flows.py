"""Trace of the main flows: count the files, functions and package switches that each of them runs through.

`python tools/trace_flows.py` runs a small study in memory and prints one line per flow; `--list` adds the files.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import pasto
from pasto.service.service import Service
from pasto.store import open_store

ROOTS = ("pasto.", "pasto_sdk.")
ANONYMOUS = ("<module>", "<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""Names of code that is not counted as a function of its own."""
STUDY_FILE = """
name: feed
baseline: {w: 1}
parameters: {w: [0, 1, 2, 3]}
metrics:
  watch: {event: watch, value: seconds, aggregate: sum, range: [-20, 20]}
  likes: {event: like, aggregate: count, cap: 20}
goal: {maximize: watch}
guardrails: [{metric: likes, at_least: 0.2}]
traffic: {control: 10%}
rounds: {every: 1h}
"""
ROUNDS = 3
USERS = 200


@dataclass
class FlowTrace:
    """Functions of the platform that one flow calls in its own thread."""

    name: str
    functions: dict[CodeType, str] = field(default_factory=dict)
    """Module by code of each function."""
    switches: set[tuple[str, str]] = field(default_factory=set)
    """Pairs of packages of which the first calls the second."""

    @property
    def files(self) -> list[str]:
        """Modules in alphabetic order."""
        return sorted(set(self.functions.values()))

    def run(self, flow: Callable[[], object]) -> None:
        """Run a flow and record its calls."""
        sys.setprofile(self._record)
        try:
            flow()
        finally:
            sys.setprofile(None)

    def _record(self, frame: FrameType, event: str, argument: Any) -> None:
        module = _module(frame)
        if event != "call" or module is None or frame.f_code.co_name in ANONYMOUS:
            return
        self.functions[frame.f_code] = module
        caller = frame.f_back
        while caller is not None and _module(caller) is None:
            caller = caller.f_back
        source = None if caller is None else _module(caller)
        if source is not None and _package(source) != _package(module):
            self.switches.add((_package(source), _package(module)))


def trace_flows() -> list[FlowTrace]:
    """Trace closing a round, building a report, a replay, and ask and tell."""
    service = Service(open_store("memory:"))
    try:
        service.create(read_study_file(), who="ann", seed=7)
        service.change("feed", "start", who="ann")
        for _ in range(ROUNDS - 1):
            send_events(service)
            service.close_round("feed", who="ann")
        send_events(service)
        close, report, replay, ask_tell = map(FlowTrace, ("close a round", "build a report", "replay", "ask/tell"))
        close.run(lambda: service.close_round("feed", who="ann"))
        report.run(lambda: service.report("feed"))
        replay.run(lambda: service.replay("feed"))
        study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=7)
        ask_tell.run(lambda: ask_and_tell(study))
    finally:
        service.shutdown()
    return [close, report, replay, ask_tell]


def read_study_file() -> dict[str, Any]:
    """Return the study file as a document."""
    from pasto.service.study_file import read_spec

    return dict(read_spec(STUDY_FILE, "yaml").document)


def send_events(service: Service) -> None:
    """Send the events of one round: every user watches, and some like."""
    policy = service.policy_cache.current("feed")
    source = random.Random(policy.version)  # noqa: S311 -- simulated users
    events: list[dict[str, Any]] = []
    for number in range(USERS):
        unit = f"user {number}"
        cell = policy.draw(unit)
        drawn = {"unit": unit, "version": policy.version, "candidate": cell.name}
        seconds = source.gauss(2.0 - int(cell.values["w"]), 1.0)
        key = f"{policy.version}/{number}"
        events.append({"type": "exposure", "id": f"e/{key}", **drawn})
        events.append({"type": "metric", "id": f"w/{key}", "name": "watch", "fields": {"seconds": seconds}, **drawn})
        if number % 2:
            events.append({"type": "metric", "id": f"l/{key}", "name": "like", **drawn})
    service.ingest("feed", service.decode(json.dumps(events).encode())).result()


def ask_and_tell(study: pasto.Study) -> None:
    """Let a study learn one round."""
    assignments = study.ask(parallel=20)
    study.tell(assignments, [[float(assignment.candidate)] for assignment in assignments])


def _module(frame: FrameType) -> str | None:
    name = frame.f_globals.get("__name__", "")
    is_generated = frame.f_code.co_filename.startswith("<")
    return name if name.startswith(ROOTS) and not is_generated else None


def _package(module: str) -> str:
    return module.rpartition(".")[0]


def write(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")


def main() -> None:
    """Print the counts, and with --list the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the files of each flow")
    show_files = parser.parse_args().list
    write(f"{'flow':<16} {'files':>6} {'functions':>10} {'package switches':>17}")
    for trace in trace_flows():
        write(f"{trace.name:<16} {len(trace.files):>6} {len(trace.functions):>10} {len(trace.switches):>17}")
        if show_files:
            for module in trace.files:
                count = sum(place == module for place in trace.functions.values())
                write(f"  {module} ({count})")


if __name__ == "__main__":
    main()
