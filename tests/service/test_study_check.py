"""Source check: a study's own tables are checked before their first use, and failed sources are reported."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from pasto.dashboard.audit_log import AuditLogReader, find_alarms
from pasto.errors import SourceError, StudyFileError
from pasto.report.records import write_record
from pasto.report.text import render_text
from pasto.service.service import Service

Document = dict[str, Any]
SOURCE: Document = {
    "from": "lake",
    "exposures": {"table": "seen", "unit": "person", "version": "policy"},
    "events": [
        {"table": "plays", "unit": "person", "event": "watch", "version": "policy", "fields": {"seconds": "secs"}},
        {"table": "clicks", "unit": "person", "name": "kind", "version": "policy"},
    ],
}
COLUMNS = {
    "seen": "'user 7' AS person, 1::BIGINT AS policy, TIMESTAMP '2026-01-01' AS at",
    "plays": "'user 7' AS person, 1::BIGINT AS policy, 2.5::DOUBLE AS secs, 1.0::DOUBLE AS at, 'x' AS note",
    "clicks": "'user 7' AS person, 1::BIGINT AS policy, 'like' AS kind",
}


def write(folder: Path, table: str, columns: str) -> None:
    (folder / table).mkdir(exist_ok=True)
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT {columns}) TO '{folder / table}/1.parquet'")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for table, columns in COLUMNS.items():
        write(tmp_path, table, columns)
    monkeypatch.setenv("PASTO_SOURCE_LAKE", str(tmp_path))
    return tmp_path


@pytest.fixture
def sourced(document: Document) -> Document:
    return {**document, "source": SOURCE}


def changed(sourced: Document, **fields: Any) -> Document:
    """Return the study with other names in its first table of events, or under `exposures`."""
    exposures = {**SOURCE["exposures"], **fields.pop("exposures", {})}
    first, *rest = SOURCE["events"]
    return {**sourced, "source": {**SOURCE, "exposures": exposures, "events": [{**first, **fields}, *rest]}}


WRONG: list[tuple[dict[str, Any], str, str]] = [
    (
        {"version": "polcy"},
        "source.events[0].version",
        "names the column 'polcy', which the table 'plays' does not have; it has person, policy, secs, at, note; "
        "did you mean 'policy'?",
    ),
    (
        {"exposures": {"unit": "who"}},
        "source.exposures.unit",
        "'who', which the table 'seen' does not have; it has per",
    ),
    ({"exposures": {"version": "at"}}, "source.exposures.version", "holds TIMESTAMP; it must hold whole numbers"),
    ({"version": "note"}, "source.events[0].version", "'note' of 'plays', which holds VARCHAR"),
    ({"fields": {"seconds": "note"}}, "source.events[0].fields", "which holds VARCHAR; the metric 'watch' reads it as"),
    ({"fields": {}}, "source.events[0].fields", "the table 'plays' has no 'seconds'; it has person, policy, secs"),
    ({"event": "wacth"}, "source.events[1].fields", "the table 'clicks' has no 'seconds'"),
    ({"time": "at", "exposures": {"time": "at"}}, "source.events[0].time", "holds TIMESTAMP; name columns of one kind"),
    ({"table": "play"}, "source.events[0].table", "names 'play', and"),
]


@pytest.mark.parametrize(("fields", "path", "words"), WRONG, ids=[str(place) for place in range(len(WRONG))])
def test_a_wrong_table_column_or_type_is_refused_by_field(
    service: Service, sourced: Document, lake: Path, fields: dict[str, Any], path: str, words: str
) -> None:
    with pytest.raises(StudyFileError) as refused:
        service.create(changed(sourced, **fields), who="ann")
    assert words in refused.value.problems[path], refused.value.problems
    assert service.studies() == []


def test_an_event_that_no_table_holds_is_refused(service: Service, sourced: Document, lake: Path) -> None:
    only = {**sourced, "source": {**SOURCE, "events": SOURCE["events"][:1]}}
    with pytest.raises(StudyFileError, match="has no table of the event 'like', which the metric 'likes' reads"):
        service.create(only, who="ann")


def test_a_place_that_is_not_set_or_not_there_is_refused(
    service: Service, sourced: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PASTO_SOURCE_LAKE", raising=False)
    with pytest.raises(StudyFileError, match=r"source\.from cannot be used: .*PASTO_SOURCE_LAKE is not set"):
        service.create(sourced, who="ann")
    monkeypatch.setenv("PASTO_SOURCE_LAKE", "/nowhere/at/all")
    with pytest.raises(StudyFileError, match="/nowhere/at/all, does not exist"):
        service.create(sourced, who="ann")


def test_files_that_may_not_be_read_are_refused(
    service: Service, sourced: Document, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pasto.service.study_check.os.access", lambda path, mode: Path(path).name != "plays")
    with pytest.raises(StudyFileError, match=r"source\.events\[0\]\.table .* this process may not read"):
        service.create(sourced, who="ann")
    monkeypatch.undo()


def test_files_that_are_not_what_they_say_are_refused(service: Service, sourced: Document, lake: Path) -> None:
    (lake / "plays" / "1.parquet").write_text("nonsense")
    with pytest.raises(
        StudyFileError, match=r"source\.events\[0\]\.table names 'plays', which cannot be read: .*Parquet"
    ):
        service.create(sourced, who="ann")


def test_a_folder_without_files_is_a_warning(service: Service, sourced: Document, lake: Path) -> None:
    (lake / "seen" / "1.parquet").unlink()
    made = service.create(sourced, who="ann")
    assert [warning for warning in made.warnings if "'seen' of the source 'lake' has no files yet" in warning]
    assert service.change("feed", "start", who="ann").round == 1


def test_a_start_checks_again(service: Service, sourced: Document, lake: Path) -> None:
    service.create(sourced, who="ann")
    write(lake, "plays", "'user 7' AS person, 1::BIGINT AS version")
    with pytest.raises(StudyFileError, match="which the table 'plays' does not have; it has person, version"):
        service.change("feed", "start", who="ann")
    assert service.show("feed").state == "draft"


def test_a_check_creates_nothing(service: Service, sourced: Document, lake: Path) -> None:
    checked = service.check(sourced)
    assert write_record(checked.source) == {
        "from": "lake",
        "engine": "duckdb",
        "tables": {
            "seen": {"person": "VARCHAR", "policy": "BIGINT", "at": "TIMESTAMP"},
            "plays": {"person": "VARCHAR", "policy": "BIGINT", "secs": "DOUBLE", "at": "DOUBLE", "note": "VARCHAR"},
            "clicks": {"person": "VARCHAR", "policy": "BIGINT", "kind": "VARCHAR"},
        },
    }
    assert service.studies() == []


def test_a_failing_source_is_reported_until_it_works(service: Service, sourced: Document, lake: Path) -> None:
    service.create(sourced, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    assert service.show("feed").source_problem is None
    write(lake, "plays", "'user 7' AS person, 1::BIGINT AS policy, 2.5::DOUBLE AS seks")
    with pytest.raises(SourceError, match="the table 'plays' has no 'secs'; it has person, policy, seks"):
        service.close_round("feed", who="ann")
    problem = service.show("feed").source_problem
    assert problem is not None
    assert problem.round == 1
    assert "the table 'plays' has no 'secs'" in problem.message
    other = Service(service.store)  # a node, or a command, that did not try
    assert other.failing_sources() == {"feed": problem}
    report = " ".join(render_text(other.report("feed")).split())
    assert f"Round 1 cannot be measured: {problem.message}" in report
    snapshot = service.policy_cache.snapshot("feed")
    (alarm,) = find_alarms(snapshot, other.show("feed"), AuditLogReader(service.store), snapshot.row.opened_at)
    assert alarm.text.startswith("Round 1 cannot be measured: the source 'lake'")

    write(lake, "plays", COLUMNS["plays"])
    assert service.close_round("feed", who="ann").learned_from == (1,)
    assert service.show("feed").source_problem is None
    assert write_record(other.report("feed"))["source_problem"] is None
    assert service.failing_sources() == {}


def test_a_source_that_vanished_is_no_unforeseen_error(service: Service, sourced: Document, lake: Path) -> None:
    service.create(sourced, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    shutil.rmtree(lake / "seen")
    with pytest.raises(SourceError, match="the table 'seen' is not a folder"):
        service.close_round("feed", who="ann")
    assert service.show("feed").round == 1, "the round stays open until it can be measured"


@pytest.mark.services
def test_postgres_tables_and_permissions_are_checked(
    service: Service, sourced: Document, postgres_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.fresh()
    monkeypatch.setenv("PASTO_SOURCE_LAKE", url)

    def refusal() -> str:
        with pytest.raises(StudyFileError) as refused:
            service.check(sourced)
        return str(refused.value)

    def run(statement: str) -> None:
        with psycopg.connect(url) as connection:
            connection.execute(statement.encode())

    run("CREATE TABLE seen (person TEXT, policy BIGINT)")
    run("CREATE TABLE clicks (person TEXT, policy BIGINT, kind TEXT)")
    assert "source.events[0].table names 'plays', and there is no such table" in refusal()
    run("CREATE TABLE plays (person TEXT, policy TEXT, secs TEXT)")
    message = refusal()
    assert "source.events[0].version names the column 'policy' of 'plays', which holds text" in message
    assert "source.events[0].fields gives 'seconds' the column 'secs' of 'plays', which holds text" in message
    run("ALTER TABLE plays ALTER policy TYPE BIGINT USING 1, ALTER secs TYPE DOUBLE PRECISION USING 1")
    source = service.check(sourced).source
    assert source is not None
    assert source.engine == "postgres"
    run("CREATE ROLE reader LOGIN")
    run("GRANT SELECT ON seen, clicks TO reader")
    join = "&" if "?" in url else "?"
    monkeypatch.setenv("PASTO_SOURCE_LAKE", f"{url}{join}options=-crole%3Dreader")
    assert "permission denied for table plays" in refusal()
    run("DROP OWNED BY reader")
    run("DROP ROLE reader")
    monkeypatch.setenv("PASTO_SOURCE_LAKE", "postgresql://127.0.0.1:1/none")
    assert "source.from cannot be used: the source 'lake' could not be read" in refusal()
    postgres_server.drop(url)
