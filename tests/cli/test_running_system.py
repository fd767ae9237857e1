"""The commands of the running system, on a store of their own and against a service that runs on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to work in, with no settings from outside."""
    for name in ("PASTO_STORE", "PASTO_URL", "PASTO_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def feed(run: Any, place: Path) -> Path:
    """A study called feed that learns."""
    assert run("study", "init").exit_code == 0
    made = run("study", "create", "study.yaml", "--start")
    assert made.exit_code == 0, made.stderr
    assert "feed: learning" in made.stdout
    return place


@pytest.fixture
def service(feed: Path) -> Iterator[str]:
    """A service on the store of `feed`, in a process of its own."""
    words = [sys.executable, "-m", "pasto", "serve", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PASTO_")}
    with subprocess.Popen(
        words, cwd=feed, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = process.stdout.readline()
        assert "http://127.0.0.1:" in said, process.stderr.read()
        yield said.split()[-1]
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        process.stderr.read()
        assert process.wait(30) == 0


def test_the_example_is_not_written_over(run: Any, place: Path) -> None:
    assert run("study", "init").exit_code == 0
    (place / "study.yaml").write_text("mine")
    again = run("study", "init")
    assert again.exit_code == 2
    assert "--force" in again.stderr
    assert (place / "study.yaml").read_text() == "mine"
    assert run("study", "init", "--force").exit_code == 0
    assert run("study", "init", "nowhere/study.yaml").exit_code == 2


def test_a_life_from_draft_to_archive(run: Any, feed: Path) -> None:
    assert [study["state"] for study in json.loads(run("study", "list", "--json").stdout)] == ["learning"]
    closed = run("round", "close", "feed", "--reason", "to see it")
    assert closed.stdout == "feed: round 1 closed, policy 2 is served\n"
    assert json.loads(run("round", "list", "feed", "--json").stdout)[0]["next_version"] == 2
    assert run("study", "pause", "feed", "--reason", "lunch", "--hold", "baseline").exit_code == 0
    assert json.loads(run("study", "show", "feed", "--json").stdout)["state"] == "paused"
    assert run("study", "resume", "feed").exit_code == 0
    refused = run("study", "deploy", "feed")
    assert refused.exit_code == 2
    assert "confirm" in refused.stderr
    assert "every policy identical" in run("study", "replay", "feed").stdout
    assert run("study", "archive", "feed", "--reason", "done").exit_code == 0
    log = json.loads(run("study", "audit", "feed", "--json").stdout)
    assert [line["action"] for line in log] == ["create", "start", "close", "pause", "resume", "archive"]
    assert [line["reason"] for line in log][2:] == ["to see it", "lunch", "", "done"]


@pytest.mark.parametrize("action", ["pause", "archive"])
def test_what_stops_traffic_needs_a_reason(run: Any, feed: Path, action: str) -> None:
    refused = run("study", action, "feed")
    assert refused.exit_code == 2
    assert "--reason" in refused.stderr


def test_wrong_names_and_files_are_refused_in_a_line(run: Any, feed: Path) -> None:
    for words in (
        ("study", "show", "fed"),
        ("study", "create", "study.yaml"),
        ("study", "create", "nothing.yaml"),
        ("study", "confirm", "feed", "--shares", "blend"),
        ("round", "close", "fed"),
        ("key", "revoke", "nothing"),
        ("store", "check", "--store", "postgresql://"),
        ("store", "check", "--store", "nowhere"),
        ("store", "backup", "x.db", "--store", "nowhere"),
        ("study", "list", "--url", "nowhere"),
        ("study", "list", "--url", "http://127.0.0.1:9"),
    ):
        refused = run(*words)
        assert refused.exit_code in (1, 2), words
        assert refused.stderr.startswith("error: "), (words, refused.stderr)
        assert refused.stderr.count("\n") == 1, words


def test_keys_are_shown_once(run: Any, place: Path) -> None:
    made = run("key", "create", "--name", "ranker", "--scope", "evaluate", "--scope", "ingest", "--days", "30")
    key = made.stdout.strip()
    listed = json.loads(run("key", "list", "--json").stdout)
    assert key.split("_")[1] == listed[0]["prefix"]
    assert key.split("_")[2] not in json.dumps(listed)
    successor = run("key", "rotate", listed[0]["prefix"], "--hours", "2").stdout.strip()
    assert successor != key
    after = {each["prefix"]: each for each in json.loads(run("key", "list", "--json").stdout)}
    assert after[listed[0]["prefix"]]["revoked_at"] is not None
    assert after[successor.split("_")[1]]["scopes"] == ["evaluate", "ingest"]
    assert run("key", "revoke", successor.split("_")[1]).exit_code == 0
    assert run("key", "rotate", successor.split("_")[1]).exit_code == 2
    assert run("key", "create", "--name", "x", "--scope", "read", "--days", "0").exit_code == 2


def test_a_backup_moves_to_another_store(run: Any, feed: Path) -> None:
    run("round", "close", "feed")
    assert run("store", "backup", "monday.db").exit_code == 0
    assert run("store", "backup", "monday.db").exit_code == 2
    assert run("store", "restore", "monday.db", "--store", "elsewhere").exit_code == 0
    assert run("store", "check", "--store", "elsewhere").exit_code == 0
    shown = [
        json.loads(run("study", "show", "feed", "--store", where, "--json").stdout)
        for where in ("pasto-data", "elsewhere")
    ]
    assert shown[0]["policy"] == shown[1]["policy"]
    assert run("store", "restore", "monday.db", "--store", "elsewhere").exit_code == 2


def test_commands_find_the_service_that_runs_on_the_store(run: Any, service: str) -> None:
    by_store = json.loads(run("study", "show", "feed", "--json").stdout)
    by_address = json.loads(run("study", "show", "feed", "--url", service, "--json").stdout)
    by_store.pop("age")
    by_address.pop("age")
    assert by_store == by_address
    assert run("round", "close", "feed").stdout == "feed: round 1 closed, policy 2 is served\n"
    assert json.loads(run("study", "list", "--url", service, "--json").stdout)[0]["round"] == 2
    assert "every policy identical" in run("study", "replay", "feed").stdout
    unknown = run("study", "show", "fed")
    assert unknown.exit_code == 2
    assert "fed" in unknown.stderr
    assert run("key", "revoke", "0123456789ab").exit_code == 2
    bad = run("study", "create", "study.yaml", "--url", service)
    assert bad.exit_code == 2
    assert "feed" in bad.stderr


def test_a_running_store_is_backed_up_and_checked(run: Any, service: str) -> None:
    assert run("store", "backup", "monday.db").exit_code == 0
    assert run("store", "check").exit_code == 0
    refused = run("store", "restore", "monday.db")
    assert refused.exit_code == 2
