"""Command `pasto study check`: a study file and its tables are checked before the study is created."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]
FILE = """
name: feed
baseline: {w: 1}
parameters: {w: [0, 1, 2]}
metrics:
  watch: {event: watch, value: seconds, range: [0, 100]}
goal: {maximize: watch}
source:
  from: lake
  exposures: {table: seen, unit: person, version: policy}
  events:
    - {table: plays, unit: person, event: watch, version: policy, fields: {seconds: secs}}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / "seen.csv").write_text("person,policy\nann,1\n")
    (lake / "plays.csv").write_text("person,policy,secs\nann,1,3.5\n")
    monkeypatch.setenv("PASTO_SOURCE_LAKE", str(lake))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "feed.yaml"
    path.write_text(FILE)
    return path


def test_what_fits_is_listed_and_nothing_is_created(run: Run, file: Path) -> None:
    result = run("study", "check", file)
    assert result.exit_code == 0, result.output
    assert "the file is valid, and the study 'feed' can be created. Nothing was created." in result.stdout
    assert "person VARCHAR, policy BIGINT, secs DOUBLE" in result.stdout
    assert not Path("pasto-data").exists()
    document = json.loads(run("study", "check", file, "--json").stdout)
    assert document["source"]["tables"]["seen"] == {"person": "VARCHAR", "policy": "BIGINT"}


def test_what_does_not_fit_is_named_with_the_columns_there_are(run: Run, file: Path) -> None:
    file.write_text(FILE.replace("policy, fields", "polcy, fields"))
    for command in ("check", "create"):
        result = run("study", command, file)
        assert result.exit_code == 2
        assert "source.events[0].version names the column 'polcy', which the table 'plays' does not have; it has " in (
            result.stderr
        )
        assert "did you mean 'policy'?" in result.stderr


def test_a_store_with_a_study_is_left_as_it_is_and_shows_a_failing_source(run: Run, file: Path) -> None:
    assert run("study", "create", file, "--start").exit_code == 0
    result = run("study", "check", file)
    assert result.exit_code == 0
    assert "the file is valid, and a study 'feed' exists (learning). Nothing was created." in result.stdout
    assert len(json.loads(run("study", "list", "--json").stdout)) == 1
    Path("lake/plays.csv").write_text("person,policy,seks\nann,1,3.5\n")
    assert run("round", "close", "feed").exit_code == 2
    printed = " ".join(run("study", "show", "feed").stdout.split())
    assert "in round 1: the source 'lake' could not be read: source.events[0].fields must give" in printed
