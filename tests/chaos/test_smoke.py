"""Smoke test of `make chaos`: a small campaign runs and prints its table."""

from __future__ import annotations

import json
import subprocess
import sys

import httpx
import pytest

from tests.chaos.__main__ import SCENARIOS, select_scenarios
from tests.chaos.load import Event
from tests.chaos.service_process import ROOT, environment
from tests.chaos.verification import count_unknown

SMOKE = ("kill -9 under load", "endless header lines", "keys and routes")


def test_an_acknowledged_event_that_is_not_known_any_more_is_a_loss() -> None:
    events: list[Event] = [{"id": str(number)} for number in range(12_000)]
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        batch = json.loads(request.content)
        sent.extend(event["id"] for event in batch)
        unknown = sum(event["id"] in ("7", "11999") for event in batch)
        return httpx.Response(200, json={"accepted": unknown, "duplicates": len(batch) - unknown, "rejected": []})

    with httpx.Client(transport=httpx.MockTransport(answer), base_url="http://localhost") as client:
        assert count_unknown(client, events) == 2
    assert sent == [event["id"] for event in events]


def test_scenarios_are_selected_by_group_and_by_name() -> None:
    assert {scenario.group for scenario in select_scenarios(["kills"])} == {"kills"}
    assert [scenario.name for scenario in select_scenarios(["gzip", "full disk"])] == ["full disk", "gzip bombs"]
    assert len(select_scenarios(None)) == len({scenario.name for scenario in SCENARIOS})


@pytest.mark.services
def test_a_kill_a_flood_and_the_key_matrix_hold() -> None:
    words = [word for name in SMOKE for word in ("--only", name)]
    command = [sys.executable, "-m", "tests.chaos", "--quick", "--no-latency", "--json", "--store", "sqlite", *words]
    ended = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=600)
    outcomes = json.loads(ended.stdout)["outcomes"]
    assert [outcome["scenario"] for outcome in outcomes] == list(SMOKE)
    assert [outcome["broken"] for outcome in outcomes] == [[], [], []], ended.stderr
    assert ended.returncode == 0
    assert outcomes[0]["acknowledged"] > 0
    assert outcomes[2]["requests"] > 300
