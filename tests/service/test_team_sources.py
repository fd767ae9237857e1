"""Team sources: rounds are measured in a team's own files or tables, without events in PASTO."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from pasto.errors import SourceError, StudyFileError
from pasto.report.records import write_record
from pasto.report.replay_report import ReplayException
from pasto.report.text import render_text
from pasto.service.close_record import CloseRecord
from pasto.service.service import Service
from pasto.service.study_file import parse_spec

Document = dict[str, Any]
EXPOSURES = {"table": "seen", "unit": "person", "version": "policy", "candidate": "shown"}
SOURCE = {
    "from": "lake",
    "exposures": EXPOSURES,
    "events": [
        {"table": "logs.plays", "unit": "person", "event": "watch", "version": "policy", "fields": {"seconds": "secs"}},
        {"table": "clicks", "unit": "person", "name": "kind", "version": "policy"},
    ],
}


@pytest.fixture
def sourced(document: Document, tmp_path: Path) -> Document:
    """Return a study on a lake with empty folders."""
    for table in ("seen", "logs/plays", "clicks"):
        (tmp_path / table).mkdir(parents=True)
    return {**document, "source": SOURCE}


def tables(service: Service, users: int = 400) -> dict[str, tuple[str, list[tuple[Any, ...]]]]:
    """Return the actions of the current policy's users: columns and rows by table."""
    policy = service.policy_cache.current("feed")
    rng = random.Random(policy.version)
    exposures, plays, clicks = [], [], []
    for unit in (f"user {number}" for number in range(users)):
        cell = policy.draw(unit)
        weight = int(cell.values["w"])
        exposures.append((unit, policy.version, cell.name))
        plays += [(unit, policy.version, {0: 2.0, 1: 0.0, 2: 0.1, 3: -1.0}[weight] + rng.gauss(0, 1))]
        clicks += [(unit, policy.version, rng.choice(("like", "share")))] * weight
    return {
        "seen": ("person TEXT, policy BIGINT, shown TEXT", exposures),
        "plays": ("person TEXT, policy BIGINT, secs DOUBLE PRECISION", plays),
        "clicks": ("person TEXT, policy BIGINT, kind TEXT", clicks),
    }


def fill_lake(service: Service, folder: Path) -> None:
    version = service.policy_cache.current("feed").version
    with duckdb.connect() as connection:
        for name, (columns, rows) in tables(service).items():
            place = folder / ("logs/plays" if name == "plays" else name)
            place.mkdir(parents=True, exist_ok=True)
            connection.execute(f"CREATE TABLE {name} ({columns})")
            columnwise = [list(column) for column in zip(*rows, strict=True)]
            connection.execute(f"INSERT INTO {name} SELECT unnest(?), unnest(?), unnest(?)", columnwise)
            connection.execute(f"COPY {name} TO '{place}/{version}.parquet'")


def test_a_study_learns_from_a_lake(
    service: Service, sourced: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASTO_SOURCE_LAKE", str(tmp_path))
    service.create(sourced, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    for _ in range(4):
        fill_lake(service, tmp_path)
        done = service.close_round("feed", who="ann")
        assert done.learned_from, done
    shares = {share["name"]: share["probability"] for share in write_record(service.report("feed"))["policy"]}
    assert len(shares) == 4
    assert write_record(service.report("feed"))["rounds_learned"] == 4
    again = service.replay("feed")
    assert (again.identical, again.exceptions) == (True, {"own_tables": ReplayException((1, 2, 3, 4))})


def test_columns_of_attributes_leave_out_exposures_outside_the_audience(
    service: Service, sourced: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASTO_SOURCE_LAKE", str(tmp_path))
    exposures = {**EXPOSURES, "attributes": {"country": "land", "tenure": "days"}}
    audience = {"country": ["de", "at"], "tenure": ">= 7, < 30", "employee": False}
    document = {**sourced, "audience": audience, "source": {**SOURCE, "exposures": exposures}}
    wrong = {**document, "audience": {"country": "de"}}
    with pytest.raises(StudyFileError, match="names 'tenure', which neither audience, segments nor the unit"):
        service.create(wrong, who="ann")
    service.create(document, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    policy = service.policy_cache.current("feed")
    rows: list[tuple[Any, ...]] = []
    met = 0
    for number in range(300):
        unit = f"user {number}"
        land, days = ("de", "at", "fr", None)[number % 4], (3, 7, 29.5, 30)[number % 5 % 4]
        met += land in ("de", "at") and 7 <= days < 30
        rows.append((unit, policy.version, policy.redraw(unit).name, land, days))
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE seen (person TEXT, policy BIGINT, shown TEXT, land TEXT, days DOUBLE PRECISION)"
        )
        connection.executemany("INSERT INTO seen VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute(f"COPY seen TO '{tmp_path / 'seen'}/1.parquet'")
        for name, columns in (("logs/plays", "secs DOUBLE PRECISION"), ("clicks", "kind TEXT")):
            connection.execute(f"CREATE OR REPLACE TABLE empty (person TEXT, policy BIGINT, {columns})")
            connection.execute(f"COPY empty TO '{tmp_path / name}/1.parquet'")
    service.close_round("feed", who="ann")
    assert service.rounds("feed")[-1].units == met
    assert 30 < met < 120


def test_a_column_of_an_attribute_that_is_missing_is_refused(
    service: Service, sourced: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASTO_SOURCE_LAKE", str(tmp_path))
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT 'ann' AS person, 1 AS policy, 'w=1' AS shown) TO '{tmp_path / 'seen'}/1.parquet'"
        )
    exposures = {**EXPOSURES, "attributes": {"country": "land"}}
    document = {**sourced, "audience": {"country": "de"}, "source": {**SOURCE, "exposures": exposures}}
    with pytest.raises(StudyFileError, match="the column 'land', which the table 'seen' does not have"):
        service.create(document, who="ann")


def test_what_tables_say_later_corrects_a_round(
    service: Service, sourced: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASTO_SOURCE_LAKE", str(tmp_path))
    service.create({**sourced, "rounds": {"every": "1h", "accept_late": "1d"}}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    for _ in range(2):
        fill_lake(service, tmp_path)
        assert service.close_round("feed", who="ann").corrected == ()
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT 'user 7' AS person, 1 AS policy, 5.0 AS secs) TO '{tmp_path}/logs/plays/late.parquet'"
        )
    fill_lake(service, tmp_path)
    assert service.close_round("feed", who="ann").corrected == (1,)
    assert write_record(service.report("feed"))["rounds_learned"] == 3
    again = service.replay("feed")
    assert (again.identical, again.exceptions) == (True, {"own_tables": ReplayException((1, 2, 3))})


def test_a_table_of_several_kinds_is_refused(
    service: Service, sourced: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASTO_SOURCE_LAKE", str(tmp_path))
    service.create(sourced, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    fill_lake(service, tmp_path)
    more = tmp_path / "logs" / "plays" / "late.csv"
    more.write_text("person,policy,secs\nuser 7,1,5.0\n")
    with pytest.raises(SourceError, match="both Parquet files"):
        service.close_round("feed", who="ann")
    more.rename(tmp_path / "logs" / "plays.csv")
    with pytest.raises(SourceError, match=r"the table 'logs\.plays' is in several places"):
        service.close_round("feed", who="ann")
    (tmp_path / "logs" / "plays.csv").unlink()
    assert service.close_round("feed", who="ann").learned_from == (1,)


def test_events_that_are_loaded_late_are_waited_for(
    service: Service, sourced: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASTO_SOURCE_LAKE", str(tmp_path))
    service.create(sourced, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    for _ in range(3):
        fill_lake(service, tmp_path)
        service.close_round("feed", who="ann")
    late = tmp_path / "late.parquet"
    fill_lake(service, tmp_path)
    (tmp_path / "clicks" / "4.parquet").rename(late)
    done = service.close_round("feed", who="ann")
    assert (done.learned_from, done.held) == ((), (4,))
    assert "likes had no event from 400 units" in done.problems[0]
    late.rename(tmp_path / "clicks" / "4.parquet")
    fill_lake(service, tmp_path)
    assert service.close_round("feed", who="ann").learned_from == (4, 5)
    assert service.replay("feed").identical


def test_a_source_that_is_read_again_is_not_called_failing_though_its_round_is_held_back(
    service: Service, sourced: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASTO_SOURCE_LAKE", str(tmp_path))
    service.create(sourced, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    for _ in range(3):
        fill_lake(service, tmp_path)
        service.close_round("feed", who="ann")
    fill_lake(service, tmp_path)
    clicks = tmp_path / "clicks" / "4.parquet"
    clicks.rename(clicks.with_suffix(".csv"))
    with pytest.raises(SourceError, match="both Parquet files"):
        service.close_round("feed", who="ann")
    problem = service.show("feed").source_problem
    assert problem is not None
    assert problem.round == 4
    assert ".." not in render_text(replace(service.report("feed"), source_problem=problem)), "one full stop"
    clicks.with_suffix(".csv").unlink()
    assert service.close_round("feed", who="ann").held == (4,)
    assert service.show("feed").source_problem is None


def test_tables_that_lose_events_do_not_correct_a_round_to_zeros(
    service: Service, sourced: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASTO_SOURCE_LAKE", str(tmp_path))
    service.create({**sourced, "rounds": {"every": "1h", "accept_late": "1d"}}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    for _ in range(3):
        fill_lake(service, tmp_path)
        service.close_round("feed", who="ann")
    (tmp_path / "clicks" / "2.parquet").unlink()
    fill_lake(service, tmp_path)
    done = service.close_round("feed", who="ann")
    assert (done.learned_from, done.corrected) == ((4,), ())
    assert "round 2 is not corrected, because its tables lack events now: likes had no event" in done.problems[0]
    assert service.replay("feed").identical


def test_invalid_exposures_are_excluded(
    service: Service, sourced: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASTO_SOURCE_LAKE", str(tmp_path))
    service.create(sourced, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    fill_lake(service, tmp_path)
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT 'liar' AS person, 1 AS policy, 'w=9' AS shown) TO '{tmp_path}/seen/lie.parquet'"
        )
    service.close_round("feed", who="ann")
    close = service.store.list_closes(1)[0]
    (measured,) = CloseRecord.from_text(close.record).rounds
    assert measured.cells.count_units() == 400


def test_windows_and_covariates_in_a_lake(
    service: Service, document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASTO_SOURCE_LAKE", str(tmp_path))
    watch = {"event": "watch", "value": "seconds", "aggregate": "sum", "range": [-20, 20]}
    timed = {
        **document,
        "metrics": {"watch": {**watch, "covariate": "2h"}, "soon": {**watch, "window": "10m"}},
        "guardrails": [],
        "rounds": {"every": "1h", "maturity": "10m"},
        "source": {
            "from": "lake",
            "exposures": {"table": "seen", "time": "moment"},
            "events": [{"table": "plays", "event": "watch", "time": "moment"}],
        },
    }
    for name in ("seen", "plays"):
        (tmp_path / name).mkdir()
    now = 1_700_000_000.0
    service = Service(service.store, clock=lambda: now, monotonic=lambda: now)
    service.create(timed, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    plays: list[tuple[str, float, float]] = []
    rng = random.Random(3)
    for hour in range(4):
        version = service.policy_cache.current("feed").version
        began = hour * 3600.0
        exposures = [(f"user {number}", version, began + number) for number in range(100)]
        new = [(unit, at + delay, rng.gauss(0, 1)) for unit, _, at in exposures for delay in (60.0, 1800.0)]
        plays += new
        with duckdb.connect() as connection:
            connection.execute("CREATE TABLE seen (unit TEXT, version BIGINT, moment DOUBLE)")
            connection.execute("CREATE TABLE plays (unit TEXT, moment DOUBLE, seconds DOUBLE)")
            connection.executemany("INSERT INTO seen VALUES (?, ?, ?)", exposures)
            connection.executemany("INSERT INTO plays VALUES (?, ?, ?)", new)
            for name in ("seen", "plays"):
                columns = "* REPLACE (TIMESTAMP '2026-11-01' + to_milliseconds((moment * 1000)::BIGINT) AS moment)"
                stamped = f"SELECT {columns} FROM {name}"  # noqa: S608
                connection.execute(f"COPY ({stamped}) TO '{tmp_path}/{name}/{version}.parquet'")
        now += 3600.0
        service.close_round("feed", who="ann")
    rounds = [entry for close in service.store.list_closes(1) for entry in CloseRecord.from_text(close.record).rounds]
    assert [entry.round for entry in rounds] == [1, 2, 3]
    for hour, entry in enumerate(rounds):
        totals = [sum(cell.units * cell.mean[place] for cell in entry.cells.moments()) for place in range(3)]
        exposed = {f"user {number}": hour * 3600.0 + number for number in range(100)}
        soon = sum(x for unit, at, x in plays if exposed[unit] <= at <= exposed[unit] + 600.0)
        past = sum(x for unit, at, x in plays if exposed[unit] - 7200.0 <= at < exposed[unit])
        during = sum(x for unit, at, x in plays if exposed[unit] <= at < exposed[unit] + 3600.0)
        assert totals == pytest.approx([during, soon, past])


@pytest.mark.services
def test_a_study_learns_from_postgres(
    service: Service, sourced: Document, postgres_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.fresh()
    monkeypatch.setenv("PASTO_SOURCE_LAKE", url)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA logs")
        connection.execute("CREATE TABLE seen (person TEXT, policy BIGINT, shown TEXT)")
        connection.execute("CREATE TABLE logs.plays (person TEXT, policy BIGINT, secs DOUBLE PRECISION)")
        connection.execute("CREATE TABLE clicks (person TEXT, policy BIGINT, kind TEXT)")
    service.create(sourced, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    with psycopg.connect(url) as connection:
        for name, (_, rows) in tables(service).items():
            table: Any = "logs.plays" if name == "plays" else name
            connection.cursor().executemany(f"INSERT INTO {table} VALUES (%s, %s, %s)", rows)  # noqa: S608
    assert service.close_round("feed", who="ann").learned_from == (1,)
    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE seen")
    with pytest.raises(SourceError, match=r"the source 'lake' could not be read.*there is no such table"):
        service.close_round("feed", who="ann")
    postgres_server.drop(url)


Change = Callable[[Document], object]
WRONG: list[tuple[Change, str]] = [
    (lambda source: source.update({"from": "../etc"}), "source.from"),
    (lambda source: source.pop("from"), "source.from"),
    (lambda source: source.update(exposures={"table": "../../etc/passwd"}), "source.exposures.table"),
    (lambda source: source.update(exposures={"unit": "u"}), "source.exposures.table"),
    (lambda source: source.update(exposures={"table": "seen", "url": "x"}), "source.exposures.url"),
    (lambda source: source.update(events=[]), "source.events"),
    (lambda source: source.update(events=[{"table": "x"}]), "source.events[0].version"),
    (lambda source: source.update(events=[{"table": "x", "time": "at"}]), "source.events[0].version"),
    (
        lambda source: source.update(events=[{"table": "x", "version": "v", "name": "n", "event": "e"}]),
        "events[0].event",
    ),
    (lambda source: source.update(events=[{"table": "x", "version": "v", "fields": {"a": 1}}]), "events[0].fields"),
    (lambda source: source.update(events=[{"table": "x; DROP", "version": "v"}]), "source.events[0].table"),
    (lambda source: source.update(sql="SELECT 1"), "source.sql"),
]


@pytest.mark.parametrize(("change", "field"), WRONG, ids=[str(place) for place in range(len(WRONG))])
def test_errors_are_reported_by_field(sourced: Document, change: Change, field: str) -> None:
    source = {**SOURCE}
    change(source)
    with pytest.raises(StudyFileError) as refused:
        parse_spec({**sourced, "source": source})
    assert any(field in path for path in refused.value.problems), refused.value.problems


def test_rounds_by_exposures_need_events_here(sourced: Document) -> None:
    with pytest.raises(StudyFileError, match=r"rounds\.exposures cannot be counted"):
        parse_spec({**sourced, "rounds": {"exposures": 100}})


def test_what_was_read_writes_itself_down_again(sourced: Document) -> None:
    spec = parse_spec(sourced)
    assert spec.source is not None
    assert parse_spec(spec.document).source == spec.source
    assert parse_spec(spec.document).document == spec.document
