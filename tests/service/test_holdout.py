"""Holdout: units that no study uses, from the next policy of each study on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import duckdb
import msgspec
import pytest

from pasto.errors import OptionError
from pasto.metrics.sql.assignment import HoldoutColumns, holdout_query
from pasto.service.policy_builder import HOLDOUT_SALT, cut_at
from pasto.service.service import Service
from pasto.service.study_state import StudyState
from pasto.store import INSTALLATION

Document = dict[str, Any]
Traffic = Callable[[Service, int], list[dict[str, Any]]]
UNITS = [f"user {number}" for number in range(2_000)]


def left_out(service: Service, name: str = "feed") -> set[str]:
    """Return the units that do not take part in a study under its served policy."""
    policy = service.policy_cache.current(name)
    return {unit for unit in UNITS if policy.draw(unit) is policy.not_enrolled}


def play(service: Service, traffic: Traffic, rounds: int = 1) -> None:
    for _ in range(rounds):
        policy = service.policy_cache.current("feed")
        events = [event for event in traffic(service, 300) if policy.draw(event["unit"]) is not policy.not_enrolled]
        service.ingest("feed", service.decode(msgspec.json.encode(events))).result()
        service.close_round("feed", who="bob")


def test_every_study_leaves_the_holdout_out_from_its_next_policy_on(
    learning: Service, document: Document, traffic: Traffic
) -> None:
    play(learning, traffic)
    before = learning.policy_cache.current("feed").text
    record = learning.set_holdout("5%", who="ann", reason="sum of launches")
    assert [(study.study, study.use) for study in record.studies] == [("feed", "from the next policy on")]
    assert learning.policy_cache.current("feed").text == before
    assert left_out(learning) == set()
    play(learning, traffic)
    held = left_out(learning)
    assert len(held) == pytest.approx(100, abs=35)
    learning.create({**document, "name": "search", "traffic": {"control": "10%", "explore": "50%"}}, who="ann")
    learning.change("search", "start", who="ann")
    assert held < left_out(learning, "search"), "the same units, next to those outside its own ramp"
    record = learning.holdout()
    assert (record.share, record.unit, {study.use for study in record.studies}) == (0.05, "user", {"left out"})
    assert all(study.share == 0.05 and study.since is not None for study in record.studies)
    line = learning.store.read_audit_log(INSTALLATION)[-1]
    assert (line.who, line.action, line.reason) == ("ann", "holdout", "sum of launches")
    assert line.detail == {"from": 0.0, "to": 0.05, "unit": "user"}
    assert learning.replay("feed").identical
    assert learning.replay("search").identical


def test_a_larger_holdout_keeps_its_units_and_a_deleted_one_ends(learning: Service, traffic: Traffic) -> None:
    held: list[set[str]] = []
    for share in (0.05, "12.5%", 0.5):
        learning.set_holdout(share, who="ann")
        play(learning, traffic)
        held.append(left_out(learning))
    assert held[0] < held[1] < held[2]
    since = learning.holdout().studies[0].since
    play(learning, traffic)
    assert learning.holdout().studies[0].since == since, "an unchanged holdout keeps its time"
    assert learning.delete_holdout(who="ann").share == 0.0
    play(learning, traffic)
    assert left_out(learning) == set()
    assert learning.replay("feed").identical


def test_a_deployed_blend_leaves_it_out_from_the_next_look_on(learning: Service, traffic: Traffic) -> None:
    play(learning, traffic, 2)
    learning.change("feed", "deploy", who="bob", without_confirmation=True, reason="a test")
    play(learning, traffic)
    version = learning.show("feed").version
    names = {unit: learning.policy_cache.current("feed").draw(unit).name for unit in UNITS}
    learning.set_holdout("10%", who="ann")
    play(learning, traffic)
    study = learning.show("feed")
    assert (study.state, study.version) == ("deployed", version + 1)
    held = left_out(learning)
    assert len(held) == pytest.approx(200, abs=45)
    policy = learning.policy_cache.current("feed")
    assert all(policy.draw(unit).name == names[unit] for unit in UNITS if unit not in held), "the others keep their arm"
    play(learning, traffic)
    assert learning.show("feed").version == version + 1, "further looks publish no policy"
    assert learning.replay("feed").identical
    assert learning.report("feed").state == "deployed"


def test_a_confirmation_keeps_its_units_until_it_ends(learning: Service, traffic: Traffic) -> None:
    play(learning, traffic, 2)
    learning.change("feed", "confirm", who="bob")
    version = learning.show("feed").version
    learning.set_holdout("10%", who="ann")
    play(learning, traffic, 2)
    assert learning.show("feed").version == version
    assert left_out(learning) == set()
    assert learning.holdout().studies[0].use == "from the next policy on"
    learning.change("feed", "deploy", who="bob", without_confirmation=True, reason="a test")
    assert left_out(learning)
    learning.change("feed", "pause", who="bob", reason="a test")
    assert left_out(learning), "also while the study is paused"
    assert learning.replay("feed").identical


def test_a_study_of_an_earlier_release_gets_slices_with_the_holdout(
    service: Service, document: Document, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {**document, "traffic": {"control": "10%", "explore": "40%"}}
    from pasto.service.rounds import close

    opened = close.open_first_round
    with monkeypatch.context() as patch:

        def open_as_before(spec: Any, row: Any, state: StudyState, *rest: Any, **options: Any) -> Any:
            return opened(spec, row, StudyState(identity=state.identity), *rest, **options)

        patch.setattr(close, "open_first_round", open_as_before)
        service.create(document, who="ann", seed=7)
        service.change("feed", "start", who="ann")
    play(service, traffic)
    assert {cell.arm for cell in service.policy_cache.current("feed").cells} == {"control", "learner", "not_enrolled"}
    service.set_holdout("5%", who="ann")
    play(service, traffic)
    policy = service.policy_cache.current("feed")
    assert {cell.arm for cell in policy.cells} == {"control", "learner"}
    assert [part.kind for part in policy.enrolment] == ["holdout", "ramp"]
    play(service, traffic)
    assert service.replay("feed").identical


def test_it_applies_to_one_unit_and_not_to_what_others_assign(service: Service, document: Document) -> None:
    service.set_holdout("5%", who="ann")
    variants: dict[str, Document] = {
        "feed": {},
        "visits": {"unit": "session"},
        "flags": {"exposures": {"assigned_by": "external"}},
    }
    for name, change in variants.items():
        service.create({**document, **change, "name": name}, who="ann")
    assert {study.study: study.use for study in service.holdout().studies} == {
        "feed": "no policy",
        "visits": "other unit",
        "flags": "assigned elsewhere",
    }
    for name in variants:
        service.change(name, "start", who="ann")
    assert left_out(service)
    assert not left_out(service, "visits")
    assert not left_out(service, "flags")
    assert {study.study: study.use for study in service.holdout().studies}["feed"] == "left out"


@pytest.mark.parametrize("share", ["0%", "60%", "some", None, True, "0.00001%", float("nan")])
def test_a_share_that_cannot_be_held_out_is_refused(service: Service, share: Any) -> None:
    with pytest.raises(OptionError, match="share must be"):
        service.set_holdout(share, who="ann")
    assert service.holdout().share == 0.0


def test_the_query_compares_the_units_that_policies_leave_out(learning: Service, traffic: Traffic) -> None:
    """Executed on DuckDB over the team's own table: the lift of everything that was launched."""
    learning.set_holdout("20%", who="ann")
    play(learning, traffic)
    held = left_out(learning)
    rng = random.Random(5)
    rows = [
        (unit, 10.0 + rng.gauss(0, 1) + (unit not in held) * 0.5, None if place % 10 == 0 else 1.0)
        for place, unit in enumerate(UNITS)
    ]
    columns = HoldoutColumns("lake.users", "user id", ["watch", 'o"dd'])
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA lake")
        connection.execute('CREATE TABLE lake.users ("user id" VARCHAR, watch DOUBLE, "o""dd" DOUBLE)')
        connection.executemany("INSERT INTO lake.users VALUES (?, ?, ?)", rows)
        connection.execute("INSERT INTO lake.users VALUES (NULL, 99, 99)")
        answer = connection.execute(holdout_query(columns, HOLDOUT_SALT, cut_at(200_000), "duckdb")).fetchall()
    (name, holdout_units, others, holdout_mean, mean, difference, change, low, high), odd = answer
    values = {side: [value for unit, value, _ in rows if (unit in held) == side] for side in (True, False)}
    assert (name, holdout_units, others) == ("watch", len(held), len(UNITS) - len(held))
    assert holdout_mean == pytest.approx(sum(values[True]) / len(values[True]))
    assert mean - holdout_mean == pytest.approx(difference)
    assert change == pytest.approx(100 * difference / holdout_mean)
    assert low < 0.5 < high
    assert high - low == pytest.approx(2 * 1.96 * (1 / len(values[True]) + 1 / len(values[False])) ** 0.5, rel=0.1)
    assert odd[0] == 'o"dd'
    assert odd[1] + odd[2] == 1_800


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (HoldoutColumns("users; DROP TABLE x", "unit", ["watch"]), "table must be a name"),
        (HoldoutColumns("users", "unit", []), "at least one metric"),
    ],
)
def test_a_query_needs_a_table_and_metrics(columns: HoldoutColumns, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        holdout_query(columns, HOLDOUT_SALT, 1, "duckdb")
    with pytest.raises(OptionError, match="no SQL of"):
        holdout_query(HoldoutColumns("users", "unit", ["watch"]), HOLDOUT_SALT, 1, "oracle")
