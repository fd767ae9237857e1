"""A study whose units another platform assigns: its candidates count, and the sample ratio guards its shares."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pasto.errors import LifecycleError, StudyFileError
from pasto.report.records import read_record, write_record
from pasto.report.text import render_text
from pasto.service.ingest import BatchResult
from pasto.service.service import Service
from pasto.service.study_file import parse_spec
from pasto.service.study_records import StudyOverview

Document = dict[str, Any]
Weights = Callable[[dict[str, float]], dict[str, float]]
EFFECTS = {0: 2.0, 1: 0.0, 2: 0.1, 3: -1.0}


@pytest.fixture
def external(document: Document) -> Document:
    return {**document, "exposures": {"assigned_by": "external"}, "traffic": {"control": "30%"}}


@pytest.fixture
def running(service: Service, external: Document) -> Service:
    service.create(external, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    return service


def send(service: Service, *events: dict[str, Any]) -> BatchResult:
    return service.ingest("feed", service.decode(json.dumps(events).encode())).result()


def platform_events(service: Service, users: int, followed: Weights = dict) -> list[dict[str, Any]]:
    """Return events of users that a platform with its own generator divides, by the exported shares or by others."""
    exported = service.export("feed", "json")
    version = exported["metadata"]["policy_version"]
    values = {candidate["name"]: candidate["values"] for candidate in exported["candidates"]}
    shares = followed({candidate["name"]: candidate["share"] for candidate in exported["candidates"]})
    rng = random.Random(version)
    events: list[dict[str, Any]] = []
    for number in range(users):
        unit = f"visitor {number}"
        (name,) = rng.choices([*shares], [*shares.values()])
        weight = int(values[name]["w"])
        given = {"unit": unit, "version": version, "candidate": name}
        events.append({"type": "exposure", "id": f"e{version}/{number}", **given})
        fields = {"seconds": EFFECTS[weight] + rng.gauss(0, 1)}
        events.append({"type": "metric", "id": f"w{version}/{number}", "name": "watch", "fields": fields, **given})
        events += [
            {"type": "metric", "id": f"l{version}/{number}/{like}", "unit": unit, "name": "like"}
            for like in range({0: 1, 1: 1, 2: 2, 3: 1}[weight])
        ]
    return events


def run_rounds(service: Service, rounds: int, users: int, followed: Weights = dict) -> None:
    for _ in range(rounds):
        answer = send(service, *platform_events(service, users, followed))
        assert answer.rejected == ()
        service.close_round("feed", who="ann")


def test_the_candidate_that_is_sent_counts(running: Service) -> None:
    policy = running.policy_cache.current("feed")
    other = next(name for name in policy.named if name != policy.draw("ann").name)
    exposure = {"type": "exposure", "id": "1", "unit": "ann", "version": 1, "candidate": other}
    metric = {"type": "metric", "id": "2", "unit": "ann", "name": "like", "version": 1, "candidate": other}
    unnamed = {"type": "metric", "id": "3", "unit": "ann", "name": "like", "version": 1}
    assert send(running, exposure, metric, unnamed) == BatchResult(3, 0, ())
    with running.store.read_transaction() as connection:
        rows = list(connection.execute("SELECT arm, candidate, excluded FROM events ORDER BY sequence"))
    index = policy.named[other].candidate
    assert rows[0] == rows[1]
    assert rows[0][1:] == (index, 0)
    assert rows[0][0] in {cell.arm for cell in policy.cells if cell.candidate == index}
    assert rows[2] == (None, None, 0)


def test_a_candidate_that_is_not_served_is_rejected(running: Service) -> None:
    exposure = {"type": "exposure", "id": "1", "unit": "ann", "version": 1, "candidate": "w=9"}
    metric = {"type": "metric", "id": "2", "unit": "ann", "name": "like", "version": 1, "candidate": "w=9"}
    answer = send(running, exposure, metric)
    assert [rejection.reason for rejection in answer.rejected] == [
        "candidate is 'w=9', which version 1 does not serve"
    ] * 2


def test_a_platform_that_follows_the_shares_learns_as_pasto_does(running: Service) -> None:
    run_rounds(running, 5, 1500)
    report = running.report("feed")
    assert report.quality is not None
    assert report.quality.sample_ratio is not None
    assert not report.quality.sample_ratio.alarm
    assert report.learning is not None
    lift = next(lift for lift in report.learning.lifts if lift.metric == "watch")
    assert lift.best.direction == "up"
    assert report.answer is not None
    assert max(report.answer.probabilities, key=report.answer.probabilities.__getitem__) == "w=0"
    replayed = running.replay("feed")
    assert (replayed.identical, replayed.rounds) == (True, 5)


def test_a_platform_with_shares_of_its_own_raises_the_alarm(running: Service) -> None:
    run_rounds(running, 2, 1500, lambda shares: dict.fromkeys(shares, 1 / len(shares)))
    report = running.report("feed")
    assert report.quality is not None
    assert report.quality.sample_ratio is not None
    assert report.quality.sample_ratio.alarm
    assert report.verdict is not None
    assert report.verdict.headline == "Data broken"


def test_the_confirmation_and_the_deployment_take_its_candidates(running: Service) -> None:
    run_rounds(running, 3, 1500)
    running.change("feed", "confirm", who="ann")
    send(running, *platform_events(running, 3000))
    running.close_round("feed", who="ann")
    confirmation = running.report("feed").confirmation
    assert confirmation is not None
    assert confirmation.sample_ratio is not None
    assert not confirmation.sample_ratio.alarm
    assert confirmation.units["control"] == pytest.approx(1000, rel=0.2)
    assert running.replay("feed").identical


def test_status_report_and_certificate_name_the_platform(running: Service) -> None:
    overview = running.show("feed")
    assert overview.assigned_by == "external"
    assert write_record(overview)["assigned_by"] == "external"
    assert read_record(write_record(overview), StudyOverview) == overview
    run_rounds(running, 2, 1500)
    report = running.report("feed")
    assert report.assigned_by == "external"
    text = " ".join(render_text(report).split())
    assert "Another platform assigns the units, and the candidate that an exposure names counts." in text
    assert "It relies on the candidates that exposures name: PASTO did not draw them." in text


def test_other_studies_name_no_platform(learning: Service) -> None:
    assert learning.show("feed").assigned_by == "pasto"
    assert "Another platform" not in render_text(learning.report("feed"))
    assert "exposures" not in learning.show("feed").document


def test_pasto_draws_no_unit_of_it(running: Service) -> None:
    with pytest.raises(LifecycleError, match=r"assigned by another platform \(exposures.assigned_by: external\)"):
        running.policy_cache.drawn("feed")
    assert running.policy_cache.current("feed").version == 1


def test_a_signature_cannot_be_asked_of_it(external: Document) -> None:
    with pytest.raises(StudyFileError) as raised:
        parse_spec({**external, "exposures": {"assigned_by": "external", "signed": True}})
    assert raised.value.problems.keys() == {"exposures.signed"}
    with pytest.raises(StudyFileError) as raised:
        parse_spec({**external, "exposures": {"assigned_by": "growthbook"}})
    assert raised.value.problems.keys() == {"exposures.assigned_by"}


def test_a_table_of_exposures_must_name_the_candidate(external: Document) -> None:
    source: Document = {
        "from": "lake",
        "exposures": {"table": "seen"},
        "events": [{"table": "plays", "event": "watch", "version": "policy"}],
    }
    with pytest.raises(StudyFileError) as raised:
        parse_spec({**external, "source": source})
    assert raised.value.problems.keys() == {"source.exposures.candidate"}
    source["exposures"]["candidate"] = "given"
    spec = parse_spec({**external, "source": source})
    assert spec.is_external
    assert parse_spec(spec.document).is_external


def test_tables_of_a_team_take_the_candidates_that_they_name(
    service: Service, external: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASTO_SOURCE_LAKE", str(tmp_path))
    source = {
        "from": "lake",
        "exposures": {"table": "seen", "version": "policy", "candidate": "given"},
        "events": [
            {"table": "plays", "event": "watch", "version": "policy"},
            {"table": "likes", "event": "like", "version": "policy"},
        ],
    }
    for table in ("seen", "plays", "likes"):
        (tmp_path / table).mkdir()
    service.create({**external, "source": source}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    for version in (1, 2):
        events = platform_events(service, 1500)
        exposures = [(event["unit"], event["candidate"]) for event in events if event["type"] == "exposure"]
        plays = [(event["unit"], event["fields"]["seconds"]) for event in events if event.get("name") == "watch"]
        likes = [(event["unit"], 1.0) for event in events if event.get("name") == "like"]
        kinds = {"seen": ("given", exposures), "plays": ("seconds", plays), "likes": ("one", likes)}
        with duckdb.connect() as connection:
            for table, (column, rows) in kinds.items():
                columns = [list(values) for values in zip(*rows, strict=True)]
                query = f"SELECT unnest($1) AS unit, unnest($2) AS {column}, {version} AS policy"
                connection.execute(f"CREATE TABLE {table} AS {query}", columns)
                connection.execute(f"COPY {table} TO '{tmp_path}/{table}/{version}.parquet'")
        assert service.close_round("feed", who="ann").learned_from == (version,)
    report = service.report("feed")
    assert report.quality is not None
    assert report.quality.units == 3000
    assert report.quality.sample_ratio is not None
    assert not report.quality.sample_ratio.alarm
