"""Demonstration inside one process: it wins for every seed, and a seed makes it reproducible."""

from __future__ import annotations

from typing import Any

import pytest

from pasto.demo.environment import wait_for_policy
from pasto.demo.scenario import PLANS, DemoPlan, DemoResult, DemoUpdate, run_demo, study_file
from pasto.demo.users import SimulatedUsers
from pasto.errors import StoreError
from pasto.report.records import write_record
from pasto.sim import Conditions, SimulatedApplication, ads, feed, shop
from tests.demo.in_process_environment import InProcessEnvironment

SMALL = DemoPlan(rounds=10, users=1_500, confirming=4_000, truth=20_000)
TINY = DemoPlan(rounds=3, users=300, confirming=600, truth=1_000)


def played(application: SimulatedApplication, plan: DemoPlan, seed: int, **options: Any) -> DemoResult:
    with InProcessEnvironment() as environment:
        return run_demo(application, environment, plan=plan, seed=seed, **options)


def assert_won(result: DemoResult) -> None:
    assert result.won, [check for check in result.checks if not check.held]
    goal = next(iter(result.standings[0].lifts))
    baseline, single, blend, possible = (snapshot.lifts[goal] for snapshot in result.standings)
    assert 0 == baseline < single < blend < possible
    assert result.certificate is not None
    assert result.certificate.certified


@pytest.mark.parametrize("seed", range(20))
def test_every_seed_wins(seed: int) -> None:
    assert_won(played(feed(), SMALL, seed))


@pytest.mark.parametrize("seed", range(3))
def test_every_seed_wins_with_ads(seed: int) -> None:
    assert_won(played(ads(), SMALL, seed))


@pytest.mark.services
@pytest.mark.parametrize("seed", range(2))
def test_every_seed_wins_with_the_shop(seed: int) -> None:
    """Run at full size, because revenue needs the users; `pasto bench demo` runs many seeds."""
    assert_won(played(shop(), PLANS["shop"], seed))


def test_the_shop_swings_and_is_played_like_the_others() -> None:
    updates: list[DemoUpdate] = []
    result = played(shop(), DemoPlan(rounds=3, users=1_000, confirming=2_000, truth=1_000), 1, report=updates.append)
    assert result.users == 5_000
    assert updates[-1].served.keys() == {"saves", "revenue", "hides"}
    assert result.certificate is not None
    assert result.certificate.confidence == 0.999
    assert result.certificate.holds.keys() == {"revenue", "hides"}
    assert [check.claim for check in result.checks][1:3] == [
        "the blend's true revenue stays above -2%",
        "the blend's true hides stays below +5%",
    ]


def test_night_and_lost_and_late_events_change_no_verdict() -> None:
    rough = Conditions(night=0.2, late=0.05, lost=0.02)
    result = played(feed(), SMALL, 1, conditions=rough)
    assert_won(result)
    smooth = SMALL.rounds * SMALL.users * 2.5
    assert write_record(result.report)["accounting"]["late"]["events"] == pytest.approx(0.05 * 0.6 * smooth, rel=0.1)


def test_a_seed_fixes_the_run() -> None:
    one, two, other = (played(feed(), TINY, seed) for seed in (4, 4, 5))
    assert (one.shares, one.lifts, one.checks) == (two.shares, two.lifts, two.checks)
    assert one.lifts != other.lifts


def test_each_round_gives_an_update() -> None:
    updates: list[DemoUpdate] = []
    result = played(ads(), TINY, 1, report=updates.append)
    assert [(update.phase, update.round) for update in updates] == [
        *(("learning", round) for round in (1, 2, 3)),
        ("confirming", 3),
    ]
    assert [update.users for update in updates] == [300, 600, 900, 1_500]
    assert updates[-1].events == result.events == 2 * 1_500
    assert all(sum(update.shares.values()) == pytest.approx(1) for update in updates)
    assert updates[0].served.keys() == {"revenue", "click_rate", "cold_start"}
    assert updates[-1].blend is not None
    assert updates[-1].ahead is not None


def test_users_without_a_policy_and_lost_events_raise_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    users = SimulatedUsers(feed(), seed=2)
    with InProcessEnvironment() as environment:
        environment.create(study_file(feed()), seed=2)
        with environment.client("feed") as client:
            with pytest.raises(StoreError, match="not drawn from the policy"):
                users.visit(client, 10, 1)
            wait_for_policy(client, 1)
            monkeypatch.setattr(client, "flush", lambda timeout: False)
            with pytest.raises(StoreError, match="did not take events"):
                users.visit(client, 10, 1)


def test_users_are_counted_by_arm() -> None:
    users = SimulatedUsers(feed(), seed=2)
    assert users.lifts("learner") == {}
    with InProcessEnvironment() as environment:
        environment.create(study_file(feed()), seed=2)
        with environment.client("feed") as client:
            wait_for_policy(client, 1)
            users.visit(client, 1_200, 1)
        accounts = write_record(environment.report("feed"))["accounting"]
    assert sum(users.units.values()) == users.user_count == 1_200
    assert users.units["control"] == pytest.approx(240, abs=60)
    assert accounts["events"]["exposures"] == 1_200
    assert accounts["events"]["exposures"] + accounts["events"]["metrics"] == users.event_count
    assert users.lifts("control") == {"watch_time": 0.0, "like_rate": 0.0, "share_rate": 0.0}
    assert users.lifts("learner")["watch_time"] > 0
