"""Poisoned sources: a sender that invents units, and one that uses the ids of others in advance."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from typing import Any

import httpx

from pasto_sdk.policy import PublishedPolicy
from tests.chaos.campaign import STORES, Scenario, Workshop
from tests.chaos.load import STUDY, Event, create_studies
from tests.chaos.report import Outcome
from tests.chaos.service_process import ServiceProcess
from tests.chaos.verification import verify_replay
from tests.system.killable_service import batch

HONEST_UNITS, INVENTED_UNITS = 600, 60
HONEST_MEANS = {"a=0": 30.0, "a=1": 33.0, "a=2": 36.0}
LARGEST_VALUE = 100.0
WORST = "a=0"
ROUNDS = 3
"""The alarm must be there after three poisoned rounds."""
LISTED_REASONS = 100
TAKEN_BATCHES = 25
DOCUMENT: dict[str, Any] = {
    "baseline": {"a": 1},
    "parameters": {"a": [0, 1, 2]},
    "metrics": {"watch": {"event": "watch", "value": "seconds", "aggregate": "sum", "cap": LARGEST_VALUE}},
    "goal": {"maximize": "watch"},
    "traffic": {"control": "10%"},
    "rounds": {"every": "1h"},
}


def invent_units(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Invent 10 % of the units with an ingest key: the report must name the sender, and no honest one."""
    _invent_units(workshop, outcome, repetitions, honest_rounds=0)


def invent_units_later(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Do the same after honest rounds: the report must still name the sender."""
    _invent_units(workshop, outcome, repetitions, honest_rounds=2)


def _invent_units(workshop: Workshop, outcome: Outcome, repetitions: int, *, honest_rounds: int) -> None:
    rng = workshop.random("poison")
    with workshop.serving(workshop.store(outcome.store)) as node:
        node.make_key("campaign", "admin")
        main_key = node.make_key("main", "ingest")
        other_key = node.make_key("partner", "ingest")
        names = {"partner", "partner-1", other_key[0]}
        for turn in workshop.turns(repetitions):
            for is_poisoned in (False, True):
                study = f"{'poisoned' if is_poisoned else 'healthy'}-{turn}"
                _create(node, study, turn)
                for number in range(honest_rounds + ROUNDS):
                    _play_round(node, outcome, study, main_key[1], _honest(rng, "main", HONEST_UNITS))
                    is_attack = is_poisoned and number >= honest_rounds
                    events = _invented if is_attack else _honest(rng, "partner", INVENTED_UNITS)
                    _play_round(node, outcome, study, other_key[1], events)
                    _close(node, study)
                _judge(node, outcome, study, names, is_poisoned=is_poisoned)
            outcome.repetitions += 1


def take_ids(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Send other content under the ids that an honest sender will use: its events must come back as conflicts.

    An event that is answered as a repeat, although its content is not in the store, is lost without notice.
    """
    with workshop.serving(workshop.store(outcome.store)) as node, node.client() as client:
        create_studies(node)
        policy = PublishedPolicy.from_text(client.get(f"/v1/studies/{STUDY}/policy").raise_for_status().text)
        for turn in workshop.turns(repetitions):
            numbers = range(turn * TAKEN_BATCHES, (turn + 1) * TAKEN_BATCHES)
            events = [event for number in numbers for event in batch(policy, None, number)]
            taken = [
                {"type": "metric", "id": event["id"], "unit": "thief", "name": "seen", "fields": {"x": 9.0, "y": 9.0}}
                for event in events[::2]
            ]
            client.post(f"/v1/studies/{STUDY}/events", json=taken).raise_for_status()
            conflicts: set[str] = set()
            for first in range(0, len(events), LISTED_REASONS):  # the response lists the reasons of this many events
                answer = client.post(f"/v1/studies/{STUDY}/events", json=events[first : first + LISTED_REASONS])
                outcome.count_status(answer.status_code)
                response = answer.json()
                outcome.acknowledged += int(response["accepted"])
                outcome.lost += int(response["duplicates"])
                conflicts |= {item["id"] for item in response["rejected"] if "conflict" in item["reason"].lower()}
            missing = {event["id"] for event in taken} - conflicts
            outcome.require(not missing, f"{len(missing)} events with a taken id came back without a conflict")
            again = client.post(f"/v1/studies/{STUDY}/events", json=events[1::2]).json()
            outcome.require(again["duplicates"] == len(events[1::2]), "a repeat with the same content is not a repeat")
            outcome.repetitions += 1
        client.post(f"/v1/studies/{STUDY}/rounds/close", json={}).raise_for_status()
        verify_replay(outcome, client)


def find_warnings(report: Any, names: Collection[str], path: str = "") -> Iterator[str]:
    """Yield the texts of a report that name one of the senders, except in its plain counts of all senders.

    A record with an alarm that is off is not a warning.

    >>> list(find_warnings({"quality": {"warnings": ["key partner sends other values"]}}, {"partner"}))
    ['key partner sends other values']
    >>> list(find_warnings({"quality": {"senders": [{"key": "partner", "alarm": False}]}}, {"partner"}))
    []
    """
    if path.startswith("/accounting"):
        return
    if isinstance(report, str):
        if any(name in report for name in names):
            yield report
    elif isinstance(report, list):
        for entry in report:
            yield from find_warnings(entry, names, path)
    elif isinstance(report, dict):
        if any(("alarm" in key or "suspect" in key) and not value for key, value in report.items()):
            return
        for key, value in report.items():
            yield from find_warnings(value, names, f"{path}/{key}")
            if key in names:
                yield f"{path}/{key}"


def _create(node: ServiceProcess, study: str, seed: int) -> None:
    with node.client() as client:
        client.post(f"/v1/studies?seed={seed}", json={**DOCUMENT, "name": study}).raise_for_status()
        client.patch(f"/v1/studies/{study}", json={"action": "start"}).raise_for_status()


def _close(node: ServiceProcess, study: str) -> None:
    with node.client() as client:
        client.post(f"/v1/studies/{study}/rounds/close", json={}).raise_for_status()


def _play_round(node: ServiceProcess, outcome: Outcome, study: str, key: str, make: Any) -> None:
    """Send a round's events with a key of its own."""
    with node.client() as client:
        policy = PublishedPolicy.from_text(client.get(f"/v1/studies/{study}/policy").raise_for_status().text)
        events: list[Event] = make(policy)
        answer = client.post(f"/v1/studies/{study}/events", json=events, headers={"authorization": f"Bearer {key}"})
        outcome.count_status(answer.status_code)
        outcome.acknowledged += int(answer.json()["accepted"])


def _honest(rng: random.Random, sender: str, units: int) -> Any:
    """Return the events of units that were exposed to their drawn candidates."""

    def make(policy: PublishedPolicy) -> list[Event]:
        events: list[Event] = []
        for number in range(units):
            unit = f"{sender} {policy.version}/{number}"
            name = policy.draw(unit).name
            value = min(LARGEST_VALUE, max(0.0, rng.gauss(HONEST_MEANS[name], 12.0)))
            events += _unit_events(f"{sender}-1", policy.version, unit, name, value, 4 * number)
        return events

    return make


def _invented(policy: PublishedPolicy) -> list[Event]:
    """Return the events of units that do not exist: an exposure of every candidate, the largest value for the worst."""
    events: list[Event] = []
    for number in range(INVENTED_UNITS):
        unit = f"invented {policy.version}/{number}"
        for place, name in enumerate(HONEST_MEANS):
            made = _unit_events("partner-1", policy.version, unit, name, LARGEST_VALUE, 8 * number + 2 * place)
            events += made if name == WORST else made[:1]
    return events


def _unit_events(source: str, version: int, unit: str, candidate: str, value: float, sequence: int) -> list[Event]:
    drawn = {"unit": unit, "version": version, "candidate": candidate, "source": source}
    first = version * 1_000_000 + sequence
    return [
        {"type": "exposure", "id": f"e/{unit}/{candidate}", "sequence": first, **drawn},
        {
            "type": "metric",
            "id": f"m/{unit}/{candidate}",
            "name": "watch",
            "fields": {"seconds": value},
            "sequence": first + 1,
            **drawn,
        },
    ]


def _judge(node: ServiceProcess, outcome: Outcome, study: str, names: set[str], *, is_poisoned: bool) -> None:
    """Check the report for warnings that name the sender, and replay the study."""
    with node.client() as client:
        report = client.get(f"/v1/studies/{study}/report").raise_for_status().json()
        warnings = list(find_warnings(report, names))
        if is_poisoned:
            promise = f"no warning names the sender that invents units after {ROUNDS} rounds"
            outcome.require(bool(warnings), promise)
            _require_shown(outcome, client, study, names)
        else:
            outcome.require(not warnings, f"a warning names an honest sender: {warnings[:1]}")
        verify_replay(outcome, client, study)


def _require_shown(outcome: Outcome, client: httpx.Client, study: str, names: set[str]) -> None:
    text = client.get(f"/v1/studies/{study}/report?format=text").raise_for_status().text
    is_shown = any(name in text for name in names)
    outcome.require(is_shown, "the report for people does not name the sender that invents units")


SCENARIOS = (
    Scenario("poison", "invented units", invent_units, 3, 1, STORES),
    Scenario("poison", "invented units, later", invent_units_later, 3),
    Scenario("poison", "ids taken in advance", take_ids, 3, 1, STORES),
)
