"""Demonstration on the real service in a process of its own."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from pasto.demo.environment import run_service, wait_for_policy
from pasto.demo.scenario import DemoPlan, run_demo, study_file
from pasto.errors import StoreError
from pasto.sim import feed
from tests.demo.in_process_environment import InProcessEnvironment

TINY = DemoPlan(rounds=3, users=400, confirming=600, truth=1_000)


def test_a_seed_fixes_the_run_in_every_environment(tmp_path: Path) -> None:
    with InProcessEnvironment() as inside:
        here = run_demo(feed(), inside, plan=TINY, seed=6)
    with run_service(tmp_path) as outside:
        there = run_demo(feed(), outside, plan=TINY, seed=6)
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(f"{outside.address}/healthz", timeout=5)  # noqa: S310 -- it was stopped
        outside.start()
        assert outside.show("feed").state == "confirming"
    assert (here.shares, here.lifts, here.checks) == (there.shares, there.lifts, there.checks)
    assert here.users == there.users == 1_800


def test_a_service_that_cannot_start_reports_its_log(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("not a directory")
    with pytest.raises(StoreError, match="ended with code 2"), run_service(tmp_path):
        pass


def test_a_missing_policy_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pasto.demo.environment.TIMEOUT_SECONDS", 0.05)
    with InProcessEnvironment() as stage:
        stage.create(study_file(feed()), seed=1)
        with stage.client("feed") as client, pytest.raises(StoreError, match="did not receive policy 2"):
            wait_for_policy(client, 2)
