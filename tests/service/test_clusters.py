"""A study whose units are clusters: means per member, with the classes of a school as an example."""

from __future__ import annotations

import json
import random
from typing import Any

import duckdb
import pytest

from pasto.errors import StudyFileError
from pasto.metrics import Column
from pasto.metrics.measurement import measure_tables
from pasto.metrics.sources.table_check import find_problems
from pasto.metrics.sources.team_tables import EventTable, ExposureTable, TeamTables
from pasto.service.ingest import BatchResult
from pasto.service.reports.lift_report import LEARNER_TARGET
from pasto.service.service import Service
from pasto.service.study_file import parse_spec
from pasto_sdk.policy import publish_policy

Document = dict[str, Any]
PUPILS = {"event": "answer", "value": "pupil", "aggregate": "distinct"}


@pytest.fixture
def classes(document: Document) -> Document:
    metrics = {
        "points": {"ratio": [{"event": "answer", "value": "points"}, PUPILS]},
        "solved": {"ratio": [{**PUPILS, "where": {"solved": True}}, PUPILS]},
    }
    changes = {"unit": "class", "metrics": metrics, "goal": {"maximize": "points"}, "guardrails": []}
    return {**document, **changes, "traffic": {"control": "40%"}}


def send(service: Service, *events: dict[str, Any]) -> BatchResult:
    return service.ingest("feed", service.decode(json.dumps(events).encode())).result()


def answer(number: int, unit: str, **fields: Any) -> dict[str, Any]:
    return {"type": "metric", "id": f"a{number}", "unit": unit, "name": "answer", "fields": fields}


def test_means_are_per_member_and_a_class_stays_together(service: Service, classes: Document) -> None:
    service.create(classes, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    policy = service.policy_cache.current("feed")
    rng = random.Random(3)
    points: dict[str, float] = {}
    pupils: dict[str, int] = {}
    solved: dict[str, int] = {}
    events: list[dict[str, Any]] = []
    for unit in (f"class {number}" for number in range(400)):
        cell = policy.draw(unit)
        given = {"unit": unit, "version": policy.version, "candidate": cell.name}
        events.append({"type": "exposure", "id": unit, **given})
        effect = rng.gauss(5, 2)
        for pupil in range(rng.randint(1, 30)):
            is_solved = rng.random() < 0.3
            pupils[cell.arm] = pupils.get(cell.arm, 0) + 1
            solved[cell.arm] = solved.get(cell.arm, 0) + is_solved
            for _ in range(rng.randint(1, 3)):
                score = round(effect + rng.gauss(0, 1), 3)
                points[cell.arm] = points.get(cell.arm, 0.0) + score
                fields = {"points": score, "pupil": f"pupil {pupil}", "solved": is_solved}
                events.append(answer(len(events), unit, **fields))
    assert send(service, *events).rejected == ()
    service.close_round("feed", who="ann")
    learning = service.report("feed").learning
    assert learning is not None
    lifts = {lift.metric: lift for lift in learning.lifts if lift.target == LEARNER_TARGET}
    assert lifts["points"].level == pytest.approx(points["learner"] / pupils["learner"])
    assert lifts["points"].control == pytest.approx(points["control"] / pupils["control"])
    assert lifts["solved"].control == pytest.approx(solved["control"] / pupils["control"])
    assert service.replay("feed").identical


def test_an_event_without_its_member_is_rejected(service: Service, classes: Document) -> None:
    service.create(classes, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    missing, wrong, text, number = (
        answer(1, "class 1", points=1),
        answer(2, "class 1", points=1, pupil=True),
        answer(3, "class 1", points=1, pupil="ann"),
        answer(4, "class 1", points=1, pupil=7),
    )
    received = send(service, missing, wrong, text, number)
    assert received.accepted == 2
    assert [rejection.reason for rejection in received.rejected] == [
        "fields.pupil is missing; a metric counts its different values in 'answer', so send a text or a number",
        "fields.pupil is True; a metric counts its different values in 'answer', so send a text or a number",
    ]


def test_distinct_needs_the_field_that_it_counts(classes: Document) -> None:
    metrics = {"pupils": {"event": "answer", "aggregate": "distinct"}}
    with pytest.raises(StudyFileError) as raised:
        parse_spec({**classes, "metrics": metrics, "goal": {"maximize": "pupils"}})
    assert "needs the event's field whose different values it counts" in raised.value.problems["metrics.pupils.value"]
    spec = parse_spec(classes)
    assert parse_spec(spec.document).columns == spec.columns


def test_a_column_of_texts_can_be_counted_in_tables() -> None:
    tables = TeamTables(ExposureTable("seen"), (EventTable("answers", event="answer", version="version"),))
    types: dict[str, dict[str, str]] = {"seen": {"unit": "TEXT", "version": "BIGINT"}}
    pupils = Column("pupils", "answer", "pupil", "distinct")
    for kind, is_good in (("VARCHAR", True), ("BIGINT", True), ("BOOLEAN", False)):
        types["answers"] = {"unit": "TEXT", "version": "BIGINT", "pupil": kind}
        assert (find_problems(tables, [pupils], types) == {}) is is_good


def test_members_are_counted_in_tables() -> None:
    policy = publish_policy(
        study="feed",
        version=7,
        round=7,
        state="learning",
        mode="shuffled",
        salt="feed/7",
        candidates={0: ("a", {})},
        baseline=0,
        shares=[("control", 0, 1.0)],
        valid_from=0,
        expires_after=60,
    )
    tables = TeamTables(ExposureTable("seen"), (EventTable("answers", event="answer", version="version"),))
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE seen AS SELECT * FROM (VALUES ('c1', 7), ('c2', 7)) AS t(unit, version)")
        connection.execute(
            "CREATE TABLE answers AS SELECT * FROM (VALUES ('c1', 7, 'ann'), ('c1', 7, 'ann'), ('c1', 7, 'bob'), "
            "('c2', 7, 'ann'), ('c2', 6, 'eve'), ('c2', 7, NULL)) AS t(unit, version, pupil)"
        )
        (cell,) = measure_tables(
            connection, "duckdb", tables, policy, (Column("pupils", "answer", "pupil", "distinct"),)
        )
    assert (cell.units, cell.mean) == (2, (1.5,))
