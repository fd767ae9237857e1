"""Verification after a scenario: every acknowledged event is known, each counts once, and the replay is identical."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import httpx

from tests.chaos.load import ASSIGN_STUDY, STUDY, Event, Ledger
from tests.chaos.report import Outcome, is_server_error
from tests.chaos.service_process import ServiceProcess, run_pasto

RESEND_EVENTS = 5_000
PAGE_ROUNDS = 1_000


def verify_service(outcome: Outcome, node: ServiceProcess, ledger: Ledger, *, lossless_decisions: bool = False) -> None:
    """Compare the ledger with a running service, and count losses in the outcome.

    A kill may lose decisions of the last moments, as the reference of `assign` states; an orderly stop may not.
    """
    outcome.acknowledged += len(ledger.acknowledged)
    outcome.requests += sum(ledger.statuses.values())
    outcome.server_errors += sum(count for status, count in ledger.statuses.items() if is_server_error(status))
    outcome.require(not ledger.refusals, f"honest events were refused: {ledger.refusals[:1]}")
    with node.client(120) as client:
        counted = _counted_events(client, STUDY)
        outcome.counted_twice += max(0, counted - len(ledger.acknowledged))
        missing = max(0, len(ledger.acknowledged) - counted)
        outcome.lost += max(missing, count_unknown(client, list(ledger.acknowledged.values())))
        decided = _counted_events(client, ASSIGN_STUDY)
        outcome.counted_twice += max(0, decided - len(ledger.attempted_units))
        if lossless_decisions:
            outcome.lost += max(0, len(ledger.assigned_units) - decided)
        _verify_rounds(outcome, client, ledger)
    check = run_pasto("store", "check", "--store", node.store)
    outcome.require(check.returncode == 0, f"store check found damage: {check.stdout[:200]}{check.stderr[-200:]}")


def verify_replay(outcome: Outcome, client: httpx.Client, study: str = STUDY) -> None:
    """Compute every policy of a study again, and note whether all are identical."""
    replay = client.post(f"/v1/studies/{study}/replay", json={})
    outcome.count_status(replay.status_code)
    identical = replay.status_code == 200 and bool(replay.json()["identical"])
    outcome.replay_identical = identical and outcome.replay_identical is not False


def count_unknown(client: httpx.Client, events: Sequence[Event]) -> int:
    """Send acknowledged events again; return how many of them the service does not recognize as repeats."""
    unknown = 0
    for part in _parts(events, RESEND_EVENTS):
        answer = client.post(f"/v1/studies/{STUDY}/events", json=part)
        answer.raise_for_status()
        unknown += len(part) - int(answer.json()["duplicates"])
    return unknown


def _counted_events(client: httpx.Client, study: str) -> int:
    answer = client.get(f"/v1/studies/{study}/report")
    answer.raise_for_status()
    events: dict[str, int] = answer.json()["accounting"]["events"]
    return events["exposures"] + events["metrics"]


def _verify_rounds(outcome: Outcome, client: httpx.Client, ledger: Ledger) -> None:
    rounds: list[int] = []
    while page := _rounds_after(client, len(rounds)):
        rounds += [entry["round"] for entry in page]
    outcome.require(rounds == list(range(1, len(rounds) + 1)), "rounds are missing or closed twice")
    lost_closes = ledger.closed_rounds - set(rounds)
    outcome.require(not lost_closes, f"{len(lost_closes)} acknowledged closes are lost")
    verify_replay(outcome, client)


def _rounds_after(client: httpx.Client, after: int) -> list[dict[str, Any]]:
    answer = client.get(f"/v1/studies/{STUDY}/rounds", params={"after": after, "limit": PAGE_ROUNDS})
    answer.raise_for_status()
    page: list[dict[str, Any]] = answer.json()["rounds"]
    return page


def _parts(events: Sequence[Event], size: int) -> Iterator[list[Event]]:
    rest = iter(events)
    while part := list(islice(rest, size)):
        yield part
