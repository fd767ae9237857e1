"""Studies that assign clusters: units keep sending their own events, and intervals count clusters."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psycopg
import pytest

from pasto.errors import OptionError, StudyFileError
from pasto.metrics import MEMBERS, Column
from pasto.metrics.measurement import measure_tables
from pasto.metrics.sources.team_tables import EventTable, ExposureTable, TeamTables
from pasto.planning import MetricFacts
from pasto.report.records import ClusterReport
from pasto.report.text import render_text
from pasto.service.archive import Archive
from pasto.service.ingest import BatchResult
from pasto.service.reports.lift_report import LEARNER_TARGET
from pasto.service.retention import Retention
from pasto.service.service import Service
from pasto.service.study_file import parse_spec
from pasto.service.study_file.outline import outline_study
from pasto.service.study_file.spec import build_stop_levels
from pasto.store import open_store
from pasto_sdk.policy import PublishedPolicy, publish_policy

Document = dict[str, Any]
SCHOOLS = 200


@pytest.fixture
def schools(document: Document) -> Document:
    metrics = {
        "points": {"event": "answer", "value": "points", "range": [-50, 50]},
        "answers": {"event": "answer"},
        "solved": {"ratio": [{"event": "answer", "where": {"solved": True}}, {"event": "answer"}]},
    }
    changes = {
        "unit": {"name": "pupil", "cluster": "school"},
        "metrics": metrics,
        "goal": {"maximize": "points"},
        "guardrails": [{"metric": "solved", "at_least": "-50%"}],
    }
    return {**document, **changes, "traffic": {"control": "40%"}}


def start(service: Service, document: Document) -> None:
    service.create(document, who="ann", seed=7)
    service.change(document["name"], "start", who="ann")


def send(service: Service, *events: Document) -> BatchResult:
    return service.ingest("feed", service.decode(json.dumps(events).encode())).result()


def play(service: Service, seed: int = 3) -> dict[str, list[list[float]]]:
    """Send one round of all schools, and close it; return the points of each pupil by arm and school."""
    policy, rng = service.policy_cache.current("feed"), random.Random(seed)
    events: list[Document] = []
    points: dict[str, list[list[float]]] = {}
    for number in range(SCHOOLS):
        school, level = f"school {number}", rng.gauss(5, 2)
        cell = policy.draw("anybody", {"school": school})
        if cell is policy.not_enrolled:
            continue
        points.setdefault(cell.arm, []).append([])
        for pupil in range(rng.randint(1, 20)):
            unit = f"{school}/pupil {pupil}"
            drawn = {"unit": unit, "version": policy.version, "candidate": cell.name}
            events.append({"type": "exposure", "id": f"e{policy.version}/{unit}", "cluster": school, **drawn})
            score = round(level + rng.gauss(0, 1), 3)
            fields = {"points": score, "solved": rng.random() < 0.3}
            given = drawn if number % 2 else {"unit": unit}  # the service finds the latest exposure by itself
            events.append(
                {"type": "metric", "id": f"a{policy.version}/{unit}", "name": "answer", "fields": fields, **given}
            )
            points[cell.arm][-1].append(score)
    assert send(service, *events).rejected == ()
    service.close_round("feed", who="ann")
    return points


def design_effect(arms: dict[str, list[list[float]]]) -> float:
    """Return the variance of means by cluster over that of independent members, by plain arithmetic."""
    by_cluster = by_member = 0.0
    for schools in arms.values():
        mean = np.mean(np.concatenate([np.array(school) for school in schools]))
        residuals = [np.array(school) - mean for school in schools]
        n, m = len(schools), sum(map(len, schools))
        by_cluster += sum(float(r.sum()) ** 2 for r in residuals) * n / (n - 1)
        by_member += sum(float((r**2).sum()) for r in residuals) * m / (m - 1)
    return by_cluster / by_member


def test_means_are_over_pupils_and_intervals_count_schools(service: Service, schools: Document) -> None:
    schools = {**schools, "parameters": {"w": [0, 1]}}
    start(service, schools)
    points = play(service)
    report = service.report("feed")
    assert report.learning is not None
    lift = next(lift for lift in report.learning.lifts if (lift.metric, lift.target) == ("points", LEARNER_TARGET))
    for level, arm in ((lift.level, "learner"), (lift.control, "control")):
        assert level == pytest.approx(np.mean([score for school in points[arm] for score in school]))
    (closed,) = service.rounds("feed")
    assert closed.units == SCHOOLS
    pupils = sum(len(school) for arm in points.values() for school in arm)
    clusters = report.clusters
    assert clusters is not None
    assert (clusters.cluster, clusters.unit, clusters.clusters, clusters.members) == (
        "school",
        "pupil",
        SCHOOLS,
        pupils,
    )
    assert clusters.design_effects["points"] == pytest.approx(design_effect(points), rel=0.02)  # cells, not arms
    assert clusters.design_effects["points"] > 8
    assert "answers" not in clusters.design_effects, "each pupil has one"
    assert 0.5 < clusters.design_effects["solved"] < 2.0
    text = " ".join(render_text(report).split())
    assert f"The latest measurement has 200 clusters (school) with {pupils:,} units (pupil)." in text
    assert "too narrow by its square root" in text
    assert service.replay("feed").identical


def test_rounds_replay_from_the_archive_and_after_a_pupil_is_erased(tmp_path: Path, schools: Document) -> None:
    service = Service(open_store(str(tmp_path / "store")))
    start(service, schools)
    for seed in range(3):
        play(service, seed)
    assert service.replay("feed").identical
    retention = Retention(service.store, Archive(tmp_path / "archive"), clock=lambda: 1e12)
    retention.archive("feed")
    replayed = retention.replay("feed")
    assert (replayed.identical, replayed.rounds, replayed.exceptions) == (True, 3, {})
    retention.forget("feed", "school 7/pupil 0", who="ann")
    again = retention.replay("feed")
    assert again.identical
    assert list(again.exceptions) == ["deleted_units"]
    service.shutdown()


def test_a_confirmation_keeps_schools_together(service: Service, schools: Document) -> None:
    start(service, schools)
    play(service)
    service.change("feed", "confirm", who="ann")
    policy = service.policy_cache.current("feed")
    assert (policy.mode, policy.cluster) == ("sticky", "school")
    assert len({policy.draw(f"pupil {number}", {"school": "east"}).name for number in range(50)}) == 1
    play(service, 4)
    report = service.report("feed")
    assert report.confirmation is not None
    assert report.clusters is not None
    assert report.clusters.clusters == SCHOOLS
    assert service.replay("feed").identical


def test_exposures_name_the_cluster_that_was_drawn(service: Service, schools: Document) -> None:
    start(service, schools)
    policy = service.policy_cache.current("feed")
    names = {school: policy.draw("ann", {"school": school}).name for school in map(str, range(40))}
    school, other = "0", next(school for school, name in names.items() if name != names["0"])
    exposure = {"type": "exposure", "unit": "ann", "version": 1, "candidate": names[school]}
    received = send(
        service,
        {**exposure, "id": "missing"},
        {**exposure, "id": "of another", "cluster": other},
        {**exposure, "id": "empty", "cluster": ""},
        {**exposure, "id": "good", "cluster": school},
    )
    assert received.accepted == 1
    missing, of_another, empty = (rejection.reason for rejection in received.rejected)
    assert missing.startswith(
        "cluster is missing, and this version assigns clusters; send the unit's value of 'school'"
    )
    assert names[school] in of_another
    assert empty.startswith("cluster: expected `str` of length >= 1; a cluster has 1 to 256 characters")
    start(service, {**schools, "name": "other", "unit": "pupil"})
    events = [{**exposure, "id": "x", "cluster": school, "candidate": "w=0"}]
    (refused,) = service.ingest("other", service.decode(json.dumps(events).encode())).result().rejected
    assert refused.reason == "cluster is given, and this version assigns units and not clusters; leave it out"


def test_layers_and_holdouts_are_of_what_is_assigned(service: Service, schools: Document) -> None:
    start(service, {**schools, "layer": {"name": "home", "share": "40%"}})
    with pytest.raises(StudyFileError, match="the studies of layer home assign by school"):
        service.create({**schools, "name": "b", "unit": "pupil", "layer": {"name": "home", "share": "40%"}}, who="ann")
    service.set_holdout("20%", who="ann")
    assert [study.use for study in service.holdout().studies] == ["other unit"]
    service.set_holdout("20%", unit="school", who="ann")
    play(service)
    assert [study.use for study in service.holdout().studies] == ["left out"]


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        ({"unit": {"cluster": "school", "name": "school"}}, "unit.cluster", "is the unit itself"),
        ({"unit": {"name": "pupil"}}, "unit.cluster", "is missing"),
        ({"unit": {"cluster": "a b"}}, "unit.cluster", "must be one word"),
        ({"unit": {"cluster": "school", "of": 1}}, "unit.of", "is not a field here"),
        ({"unit": 7}, "unit", "must be one word"),
        ({"exposures": {"signed": True}}, "unit.cluster", "not part of a signature"),
        ({"exposures": {"assigned_by": "external"}}, "unit.cluster", "assigned_by: external"),
        ({"goal": {"maximize": {"points": 1, "answers": 2}}}, "goal.maximize.points", "members of clusters"),
        (
            {"guardrails": [{"metric": "solved", "at_least": "-2%", "penalty": 1}]},
            "guardrails[0].penalty",
            "averaged over the members of clusters; leave it out",
        ),
        ({"metrics": {"points": {"event": "x", "aggregate": "members"}}}, "metrics.points.aggregate", "must be one of"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_refused(
    schools: Document, change: Document, field: str, problem: str
) -> None:
    with pytest.raises(StudyFileError) as refused:
        parse_spec({**schools, **change})
    assert problem in refused.value.problems[field]


def test_a_file_with_clusters_is_written_as_it_was_read(schools: Document) -> None:
    spec = parse_spec(schools)
    assert spec.document["unit"] == {"name": "pupil", "cluster": "school"}
    assert (spec.unit, spec.cluster, spec.assigned_unit) == ("pupil", "school", "school")
    assert spec.document["metrics"]["points"]["range"] == [-50.0, 50.0]
    again = parse_spec(spec.document)
    assert (again.columns, again.document, again.metrics) == (spec.columns, spec.document, spec.metrics)
    assert MEMBERS in spec.columns
    assert parse_spec({**schools, "unit": {"cluster": "school"}}).unit == "user"
    levels = build_stop_levels(parse_spec({**schools, "guardrails": [{"metric": "points", "at_least": 1}]}))
    assert (levels[0].within, levels[0].denominator_within) == (None, None), "a sum over a cluster has no range"


def test_the_cluster_of_a_running_study_cannot_change(service: Service, schools: Document) -> None:
    start(service, schools)
    for fields in ({"unit.cluster": "class"}, {"unit": "pupil"}, {"unit": {"name": "user", "cluster": "school"}}):
        with pytest.raises(StudyFileError, match="what every round so far was assigned by"):
            service.edit("feed", fields=fields, who="ann")


def test_exports_assign_by_the_cluster(service: Service, schools: Document) -> None:
    start(service, schools)
    assert '{"var": "school"}' in json.dumps(service.export("feed", "flagd"))
    rule = service.export("feed", "growthbook")["features"]["feed"]["rules"][0]
    assert rule["hashAttribute"] == "school"
    assert service.export("feed", "json")["attribute"] == "school"
    assert service.export("feed", "json", attribute="place")["attribute"] == "place"


POLICY = publish_policy(
    study="feed",
    version=7,
    round=7,
    state="learning",
    mode="shuffled",
    salt="feed/7",
    candidates={0: ("a", {}), 1: ("b", {})},
    baseline=0,
    shares=[("control", 0, 0.5), ("learner", 1, 0.5)],
    valid_from=0,
    expires_after=60,
    cluster="school",
)
TABLES = TeamTables(
    ExposureTable("seen", attributes={"school": "place"}), (EventTable("answers", event="answer", version="version"),)
)
COLUMNS = (Column("points", "answer", "points", "sum"), MEMBERS)


def measured_tables(connection: Any, dialect: str) -> dict[str, tuple[int, tuple[float, ...]]]:
    """Return units and means by arm of tables of a team."""
    connection.execute("CREATE TABLE seen (unit text, version bigint, place int)")
    connection.execute("CREATE TABLE answers (unit text, version bigint, points double precision)")
    rows: list[tuple[Any, ...]] = [(f"p{number}", 7, number % 40) for number in range(200)]
    rows += [("p0", 7, 39), ("p1", 7, None), ("p2", 6, 39)]  # p0 is in two places, so it counts for none
    answers = [(f"p{number}", 7, float(number)) for number in range(200)]
    marks = "?, ?, ?" if dialect == "duckdb" else "%s, %s, %s"
    cursor = connection.cursor()
    cursor.executemany(f"INSERT INTO seen VALUES ({marks})", rows)  # noqa: S608 -- of the test
    cursor.executemany(f"INSERT INTO answers VALUES ({marks})", answers)  # noqa: S608 -- of the test
    cells = measure_tables(connection, dialect, TABLES, POLICY, COLUMNS)
    assert all(cell.member_cross is not None for cell in cells)
    return {cell.arm: (cell.units, cell.mean) for cell in cells}


def expected_tables(policy: PublishedPolicy) -> dict[str, tuple[int, tuple[float, ...]]]:
    sums: dict[str, dict[int, list[float]]] = {}
    for number in range(200):
        cell = policy.draw(f"p{number}", {"school": number % 40})
        if number:
            sums.setdefault(cell.arm, {}).setdefault(number % 40, []).append(float(number))
    return {
        arm: (
            len(places),
            (float(np.mean([sum(p) for p in places.values()])), float(np.mean([*map(len, places.values())]))),
        )
        for arm, places in sums.items()
    }


def check_tables(found: dict[str, tuple[int, tuple[float, ...]]]) -> None:
    expected = expected_tables(POLICY)
    assert found.keys() == expected.keys() == {"control", "learner"}
    for arm, (units, mean) in expected.items():
        assert found[arm][0] == units
        assert found[arm][1] == pytest.approx(mean)


def test_clusters_are_read_from_a_column_of_a_team() -> None:
    with duckdb.connect() as connection:
        check_tables(measured_tables(connection, "duckdb"))
        without = TeamTables(ExposureTable("seen"), TABLES.events)
        with pytest.raises(OptionError, match="needs the column of 'school', by which units are assigned"):
            measure_tables(connection, "duckdb", without, POLICY, COLUMNS)


@pytest.mark.services
def test_clusters_are_read_from_a_column_of_a_team_in_postgres(postgres_server: Any) -> None:
    url = postgres_server.fresh()
    with psycopg.connect(url) as connection:
        check_tables(measured_tables(connection, "postgres"))
    postgres_server.drop(url)


def test_tables_of_a_team_name_the_column_of_the_cluster(schools: Document) -> None:
    source: Document = {
        "from": "lake",
        "exposures": {"table": "seen"},
        "events": [{"table": "answers", "event": "answer", "version": "version"}],
    }
    with pytest.raises(
        StudyFileError, match=r"attributes must name the column of 'school'.*attributes: \{school: COLU"
    ):
        parse_spec({**schools, "source": source})
    source["exposures"]["attributes"] = {"school": "place"}
    spec = parse_spec({**schools, "source": source})
    assert parse_spec(spec.document).source == spec.source


def test_a_plan_counts_clusters_and_derives_no_deviation_between_them(schools: Document) -> None:
    schools = {**schools, "metrics": {**schools["metrics"], "points": {"event": "answer", "aggregate": "any"}}}
    for unit, word, source in (("pupil", "pupil", "zero or one"), (schools["unit"], "school", "default")):
        spec = parse_spec({**schools, "unit": unit})
        outline = outline_study(spec, 300.0, {"points": MetricFacts(mean=0.2), "solved": MetricFacts(mean=0.3)})
        assert outline.unit == word
        assert outline.facts["points"].sources["deviation"] == source


def test_the_report_of_units_has_no_clusters(learning: Service) -> None:
    assert learning.report("feed").clusters is None
    assert ClusterReport("school", "pupil", 1, 2, {}).design_effects == {}
