"""Commands of a running system, on a store and against a service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas
import pytest

from pasto.service.ingest import DrawnUnit
from pasto.service.study_file import EXAMPLE


@pytest.fixture
def work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory to work in, without settings from the environment."""
    for name in ("PASTO_STORE", "PASTO_URL", "PASTO_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def feed(run: Any, work_folder: Path) -> Path:
    """Create a learning study with the name feed."""
    assert run("study", "init").exit_code == 0
    made = run("study", "create", "study.yaml", "--start")
    assert made.exit_code == 0, made.stderr
    assert "feed: learning" in made.stdout
    return work_folder


@pytest.fixture
def service(feed: Path) -> Iterator[str]:
    """Run a service on the store of `feed`, in a process of its own."""
    words = [sys.executable, "-m", "pasto", "serve", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PASTO_")}
    with subprocess.Popen(
        words, cwd=feed, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first_line = process.stdout.readline()
        assert "http://127.0.0.1:" in first_line, process.stderr.read()
        yield first_line.split()[-1]
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        process.stderr.read()
        assert process.wait(60) == 0


def test_an_export_names_the_attribute_and_the_new_hash(run: Any, feed: Path) -> None:
    exported = run("study", "export", "feed", "--format", "flagd", "--attribute", "user_id")
    assert exported.exit_code == 0, exported.stderr
    assert "note: flagd assigns units with its own hash" in exported.stderr
    assert json.loads(exported.stdout)["flags"]["feed"]["targeting"] == {"$ref": "feed"}
    assert '"var": "user_id"' in exported.stdout


def test_a_service_exports_what_the_command_asks_for(run: Any, service: str, feed: Path) -> None:
    for form in ("flagd", "growthbook", "json"):
        exported = run("study", "export", "feed", "--format", form, "--url", service)
        assert exported.exit_code == 0, exported.stderr
        assert json.loads(exported.stdout)["metadata"]["policy_version"] == 1
    refused = run("study", "export", "feed", "--part", "blend", "--url", service)
    assert refused.exit_code != 0
    assert "has learned no round yet" in refused.stderr


def test_the_example_is_not_written_over(run: Any, work_folder: Path) -> None:
    assert run("study", "init").exit_code == 0
    (work_folder / "study.yaml").write_text("mine")
    again = run("study", "init")
    assert again.exit_code == 2
    assert "--force" in again.stderr
    assert (work_folder / "study.yaml").read_text() == "mine"
    assert run("study", "init", "--force").exit_code == 0
    assert run("study", "init", "nowhere/study.yaml").exit_code == 2


def test_the_example_goes_where_the_shell_sends_it(run: Any, work_folder: Path) -> None:
    with (work_folder / "feed.yaml").open("w") as sent:
        subprocess.run([sys.executable, "-m", "pasto", "study", "init"], cwd=work_folder, stdout=sent, check=True)
    assert (work_folder / "feed.yaml").read_text().startswith("# ")
    assert not (work_folder / "study.yaml").exists()
    assert run("study", "init", "-").stdout == (work_folder / "feed.yaml").read_text()
    assert run("study", "create", "feed.yaml").exit_code == 0


def test_times_carry_their_zone(run: Any, feed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        moments = [
            line.split(maxsplit=1)[1] for line in run("study", "show", "feed").stdout.splitlines() if "created" in line
        ]
        moments += [line[:25] for line in run("study", "audit", "feed").stdout.splitlines()[1:]]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert len(moments) == 3
    for moment in moments:
        assert datetime.fromisoformat(moment).utcoffset() in (timedelta(hours=-5), timedelta(hours=-4)), moment


def test_a_held_round_is_reported_and_resolved(run: Any, work_folder: Path) -> None:
    from pasto.service.service import Service
    from pasto.store import open_store

    run("study", "init")
    study_file = work_folder / "study.yaml"
    study_file.write_text(study_file.read_text().replace("maturity: 2h", "maturity: 0s"))
    assert run("study", "create", "study.yaml", "--start").exit_code == 0
    service = Service(open_store("pasto-data"))
    policy = service.policy_cache.current("feed")
    service.expose_all(
        "feed", policy, [DrawnUnit(f"user {number}", policy.draw(f"user {number}")) for number in range(1000)]
    )
    service.shutdown()
    closed = run("round", "close", "feed")
    assert "Round 1 is held back and not learned: no event of any metric has come from 1,000 units" in closed.stderr
    assert "held back    round 1 is held back" in run("study", "show", "feed").stdout
    assert run("round", "resolve", "feed", 1, "learn").exit_code == 2
    result = run("round", "resolve", "feed", 1, "discard", "--reason", "nothing was sent")
    assert result.stdout == "feed: round 1 will be left out when the next round is closed\n"
    run("round", "close", "feed")
    assert json.loads(run("study", "show", "feed", "--json").stdout)["held"] == []
    assert "resolve 1 discard  nothing was sent" in run("study", "audit", "feed").stdout
    assert "held back" in run("round", "list", "feed").stdout.splitlines()[1]
    assert "every policy identical" in run("study", "replay", "feed").stdout


def test_a_study_goes_from_draft_to_archive(run: Any, feed: Path) -> None:
    assert [study["state"] for study in json.loads(run("study", "list", "--json").stdout)] == ["learning"]
    closed = run("round", "close", "feed", "--reason", "to see it")
    assert closed.stdout == "feed: round 1 closed, policy 2 is served\n"
    assert json.loads(run("round", "list", "feed", "--json").stdout)[0]["next_version"] == 2
    assert run("study", "pause", "feed", "--reason", "lunch", "--hold", "baseline").exit_code == 0
    assert json.loads(run("study", "show", "feed", "--json").stdout)["state"] == "paused"
    assert run("study", "resume", "feed").exit_code == 0
    rejected = run("study", "deploy", "feed")
    assert rejected.exit_code == 2
    assert "confirm" in rejected.stderr
    assert "every policy identical" in run("study", "replay", "feed").stdout
    assert run("study", "archive", "feed", "--reason", "done").exit_code == 0
    log = json.loads(run("study", "audit", "feed", "--json").stdout)
    assert [line["action"] for line in log] == ["create", "start", "close", "pause", "resume", "archive"]
    assert [line["reason"] for line in log][2:] == ["to see it", "lunch", "", "done"]


def test_a_draft_is_edited_and_deleted_and_an_archived_name_comes_again(run: Any, work_folder: Path) -> None:
    assert run("study", "init").exit_code == 0
    file = work_folder / "study.yaml"
    assert run("study", "create", file).exit_code == 0
    file.write_text(file.read_text().replace("maximize: watch_time", "minimize: watch_time"))
    edited = run("study", "edit", file, "--reason", "the wrong way round")
    assert edited.exit_code == 0, edited.stderr
    assert 'goal: {"maximize": "watch_time"} → {"minimize": "watch_time"}' in edited.stdout
    assert run("study", "delete", "feed").stdout == "feed: deleted; its audit log stays under feed@1\n"
    assert json.loads(run("study", "list", "--json").stdout) == []
    assert run("study", "create", file, "--start").exit_code == 0
    rejected = run("study", "delete", "feed")
    assert rejected.exit_code == 2
    assert "needs it to be draft" in rejected.stderr
    assert run("study", "archive", "feed", "--reason", "done").exit_code == 0
    again = run("study", "create", file, "--start")
    assert "the archived study feed is now feed@2" in again.stderr
    log = json.loads(run("study", "audit", "feed@2", "--json").stdout)
    assert [line["action"] for line in log] == ["create", "start", "archive", "rename"]


AUDIENCE = 'audience: {country: [de, at], tenure_days: ">= 7"}\n'


def test_the_enrolment_and_the_audience_are_printed(run: Any, work_folder: Path) -> None:
    text = EXAMPLE.replace("explore: 100%", "explore: 25%") + AUDIENCE
    (work_folder / "feed.yaml").write_text(text)
    assert run("study", "create", "feed.yaml", "--start").exit_code == 0
    printed = " ".join(run("study", "show", "feed").stdout.split())
    assert "take part 25% of all units" in printed
    assert 'audience country: ["de", "at"]; tenure_days: ">= 7"' in printed
    assert run("study", "ramp", "feed").stdout == "feed: its file has no ramp\n"


def test_the_layer_the_ramp_and_the_holdout_of_a_study_are_printed(run: Any, work_folder: Path) -> None:
    text = EXAMPLE.replace("explore: 100%", "ramp: [5%, 100%]") + "layer: {name: home, share: 40%}\n" + AUDIENCE
    for name in ("feed", "search"):
        (work_folder / "feed.yaml").write_text(text.replace("name: feed", f"name: {name}"))
        assert run("study", "create", "feed.yaml").exit_code == 0
    assert run("holdout", "set", "5%").exit_code == 0
    assert "take part" not in run("study", "show", "search").stdout, "a draft serves no policy"
    run("study", "start", "search")
    printed = " ".join(run("study", "show", "search").stdout.split())
    assert "layer home, 40%: from 40% to 80%" in printed
    assert "ramp step 1 of 2, 5%, 3 more rounds until 100%" in printed
    assert (
        "take part 1.9% of all units: 95% outside the holdout × 40% of the layer × 5% of the traffic audience"
        in printed
    )
    overview = json.loads(run("study", "show", "search", "--json").stdout)
    assert overview["ramp"] == {
        "step": 1,
        "shares": [0.05, 1.0],
        "rounds_left": 3,
        "is_held": False,
        "is_unjudged": False,
    }
    assert overview["document"]["layer"] == {"name": "home", "share": 0.4, "start": 0.4}
    assert overview["document"]["audience"] == {"country": ["de", "at"], "tenure_days": ">= 7"}
    assert overview["policy"]["enrolled"] == pytest.approx(0.019)
    assert [part["kind"] for part in overview["policy"]["enrolment"]] == ["holdout", "layer", "ramp"]
    assert [part["share"] for part in overview["policy"]["enrolment"]] == pytest.approx([0.95, 0.4, 0.05])


def test_a_ramp_is_moved(run: Any, work_folder: Path) -> None:
    ramp = "ramp: [5%, 25%, 100%]\n  advance_after: 2 rounds"
    (work_folder / "feed.yaml").write_text(EXAMPLE.replace("explore: 100%", ramp))
    assert run("study", "create", "feed.yaml").exit_code == 0
    assert run("study", "ramp", "feed").stdout == "feed: the ramp does not move while the study is draft\n"
    run("study", "start", "feed")
    assert run("study", "ramp", "feed").stdout == "feed: step 1 of 3, 5%, 2 more rounds until 25%\n"
    assert "step 2 of 3, 25%, 2 more rounds until 100%" in run("study", "ramp", "feed", "--to", "next").stdout
    assert "step 2 of 3, 25%, held" in run("study", "ramp", "feed", "--to", "hold", "--reason", "a holiday").stdout
    assert json.loads(run("study", "ramp", "feed", "--to", "5%", "--json").stdout)["step"] == 1
    assert "step 1 of 3, 5%, held" in run("study", "show", "feed").stdout
    refused = run("study", "ramp", "feed", "--to", "7%")
    assert refused.exit_code != 0
    assert "the steps are 5%, 25%, 100%" in refused.stderr


def test_a_running_study_is_edited(run: Any, work_folder: Path) -> None:
    assert run("study", "init").exit_code == 0
    file = work_folder / "study.yaml"
    assert run("study", "create", file, "--start").exit_code == 0
    edited = run("study", "edit", "feed", "--set", "traffic.explore=25%", "--set", "guardrails.like_rate.at_least=-1%")
    assert edited.exit_code == 0, edited.stderr
    assert "traffic.explore: 100% → 25%" in edited.stdout
    assert "guardrails.like_rate.at_least: -2% → -1%" in edited.stdout
    assert "in effect since round 2, policy 2" in edited.stdout
    added = run("study", "candidate", "add", "feed", "like_weight=3", "share_weight=1", "--name", "bold")
    assert "candidates.bold: added, like_weight=3,share_weight=1" in added.stdout
    name = "like_weight=2,share_weight=0"
    assert f"candidates.{name}: retired" in run("study", "candidate", "retire", "feed", name).stdout
    assert f"candidates.{name}: served again" in run("study", "candidate", "restore", "feed", name).stdout
    printed = run("study", "show", "feed").stdout
    assert "after round 1: traffic.explore: 100% → 25%; guardrails.like_rate.at_least: -2% → -1%" in printed
    audited = run("study", "audit", "feed").stdout
    assert "edit: traffic.explore: 100% → 25%; guardrails.like_rate.at_least: -2% → -1%" in audited
    assert f"edit: candidates.{name}: served again" in audited
    present = json.loads(run("study", "show", "feed", "--json").stdout)["document"]
    (work_folder / "feed.json").write_text(json.dumps({**present, "owner": "feed team"}))
    planned = run("study", "edit", "feed", "-f", work_folder / "feed.json", "--dry-run")
    assert planned.stdout == "  owner: none → feed team\nnothing was written\n"
    asked = run("study", "edit", "feed", "-f", work_folder / "feed.json", input="n\n")
    assert asked.exit_code == 1
    assert "owner: none → feed team" in asked.stderr
    assert run("study", "edit", "feed", "-f", work_folder / "feed.json", input="y\n").exit_code == 0
    same = run("study", "edit", "feed", "-f", work_folder / "feed.json", "--yes")
    assert same.stdout == "feed: the study file is as it should be; nothing to change\n"
    assert "feed team" in run("study", "show", "feed").stdout
    assert run("study", "replay", "feed").exit_code == 0


WRONG_EDITS = {
    "a field that is fixed": ("unit=session", "assigned by and averaged over"),
    "no value": ("traffic.explore", "FIELD=VALUE"),
    "an unknown field": ("traffic.explor=25%", "traffic.explor is not a field here; did you mean 'explore'?"),
    "an unknown section": ("trafic.explore=25%", "did you mean 'traffic'?"),
    "a share above 1": ("traffic.explore=125%", "must be a share above 0 to 1, such as '10%' or 0.1, got '125%'"),
    "a percentage as a number": ("traffic.explore=25", "got 25; for 25 percent write '25%'"),
    "a text for a share": ("traffic.control=some", "must be a share from 0 to below 1, such as '10%'"),
    "a number for a text": ("owner=7", "owner must be text, got 7; put it in quotes"),
    "a ramp that falls": (
        "traffic.ramp=[50%, 5%]",
        "must increase from step to step, got ['50%', '5%']; put",
    ),
    "a ramp that stays": ("traffic.ramp=[5%, 5%]", "must increase from step to step"),
    "a ramp of one step": ("traffic.ramp=[5%]", "must be a list of 2 to 20 shares, such as [1%, 5%, 25%, 100%]"),
    "a ramp above 1": ("traffic.ramp=[5%, 500%]", "traffic.ramp[1] must be a share above 0 to 1"),
    "a list without an end": ("traffic.ramp=[5%, 50%", "traffic.ramp begins like a list or a mapping, and is neither"),
    "no guardrail": ("guardrails.like.at_least=-1%", "names no guardrail: 'like'; did you mean 'like_rate'?"),
    "no field of a guardrail": ("guardrails.like_rate.at_leas=-1%", "guardrails.like_rate.at_leas is not a field here"),
    "a whole guardrail": ("guardrails.like_rate=-1%", "set one field of it, such as guardrails.like_rate.stop_at"),
    "an audience of several types": ("audience.country=[de, 1]", "must have values of one type"),
    "a duration without a unit": ("rounds.every=soon", "must be a duration from 1s to 366d, such as '90s'"),
}


def test_a_wrong_edit_is_refused_with_the_fix_and_changes_nothing(run: Any, feed: Path) -> None:
    def read() -> Any:
        overview = json.loads(run("study", "show", "feed", "--json").stdout)
        return {**overview, "round_age_seconds": 0}, run("study", "audit", "feed").stdout

    before = read()
    for about, (field, message) in WRONG_EDITS.items():
        refused = run("study", "edit", "feed", "--set", field)
        assert refused.exit_code == 2, about
        assert message in refused.stderr, about
    for words, message in (
        (("edit", "feed"), "give either a study file with -f or fields with --set"),
        (
            ("candidate", "add", "feed", "like_weight=3"),
            "for each parameter (like_weight, share_weight), got like_weight",
        ),
        (("candidate", "add", "feed", "like_weight=1", "share_weight=1"), "has the values of the candidate"),
        (
            ("candidate", "retire", "feed", "like_weight=7"),
            "has 'like_weight=7', which is not a candidate; there are",
        ),
        (("candidate", "retire", "feed", "like_weight=1,share_weight=1"), "which is the baseline"),
    ):
        refused = run("study", *words)
        assert refused.exit_code == 2, words
        assert message in refused.stderr, words
    assert read() == before


HISTORY = {
    "like_weight": [0, 1, 2],
    "share_weight": [0, 1, 2],
    "units": [900, 1000, 800],
    "watch_time": [300.5, 310.0, 320.0],
    "watch_time_se": [5.0, 5.0, 5.0],
}


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_a_study_starts_from_a_table_of_earlier_results(run: Any, work_folder: Path, form: str) -> None:
    table = pandas.DataFrame(HISTORY)
    if form == "csv":
        table.to_csv("past.csv")  # with the row numbers that pandas writes
    elif form == "json":
        table.to_json("past.json", orient="records")
    else:
        duckdb.from_df(table).write_parquet("past.parquet")
    assert run("study", "init").exit_code == 0
    checked = run("study", "check", "study.yaml", "--history", f"past.{form}")
    assert checked.exit_code == 0, checked.stderr
    made = run("study", "create", "study.yaml", "--history", f"past.{form}", "--json")
    assert made.exit_code == 0, made.stderr
    created = json.loads(made.stdout)
    assert created["history"] == {"listed": 3, "candidates": 9, "explained": {}}
    assert [row["watch_time"] for row in created["document"]["history"]] == HISTORY["watch_time"]
    assert "3 of 9 candidates" in run("study", "show", "feed").stdout


def test_a_history_that_does_not_fit_is_refused_with_the_fix(run: Any, work_folder: Path) -> None:
    Path("past.csv").write_text("like_weight,share_weight,watch_time\n0,0,many\n", encoding="utf-8")
    assert run("study", "init").exit_code == 0
    refused = run("study", "create", "study.yaml", "--history", "past.csv")
    assert refused.exit_code == 2
    assert "column 'watch_time' of the history must be a number, got 'many' in row 1" in refused.stderr
    missing = run("study", "create", "study.yaml", "--history", "nowhere.csv")
    assert "there is no file 'nowhere.csv'" in missing.stderr


@pytest.mark.parametrize("action", ["pause", "archive"])
def test_what_stops_traffic_needs_a_reason(run: Any, feed: Path, action: str) -> None:
    rejected = run("study", action, "feed")
    assert rejected.exit_code == 2
    assert "--reason" in rejected.stderr


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
        rejected = run(*words)
        assert rejected.exit_code in (1, 2), words
        lines = rejected.stderr.splitlines()
        assert lines[-1].startswith("error: "), (words, rejected.stderr)
        assert all(line.startswith("using the ") for line in lines[:-1]), (words, rejected.stderr)


def test_keys_are_printed_once(run: Any, work_folder: Path) -> None:
    made = run("key", "create", "--name", "ranker", "--scope", "evaluate", "--scope", "ingest", "--expires-in", "30d")
    key = made.stdout.strip()
    listed = json.loads(run("key", "list", "--json").stdout)
    assert key.split("_")[1] == listed[0]["prefix"]
    assert key.split("_")[2] not in json.dumps(listed)
    successor = run("key", "rotate", listed[0]["prefix"], "--grace", "2h").stdout.strip()
    assert successor != key
    after = {each["prefix"]: each for each in json.loads(run("key", "list", "--json").stdout)}
    assert after[listed[0]["prefix"]]["revoked_at"] is not None
    assert after[successor.split("_")[1]]["scopes"] == ["evaluate", "ingest"]
    assert run("key", "revoke", successor.split("_")[1]).exit_code == 0
    assert run("key", "rotate", successor.split("_")[1]).exit_code == 2
    assert run("key", "create", "--name", "x", "--scope", "read", "--expires-in", "0").exit_code == 2
    lines = json.loads(run("key", "audit", "--json").stdout)
    assert [line["action"] for line in lines] == ["key created", "key rotated", "key revoked"]
    assert lines[1]["detail"]["successor"] == successor.split("_")[1]
    printed = run("key", "audit").stdout
    assert "key rotated" in printed
    assert key.split("_")[2] not in printed


def test_a_backup_moves_to_another_store(run: Any, feed: Path) -> None:
    run("round", "close", "feed")
    assert run("store", "backup", "monday.db").exit_code == 0
    assert run("store", "backup", "monday.db").exit_code == 2
    assert run("store", "restore", "monday.db", "--store", "elsewhere").exit_code == 0
    assert run("store", "check", "--store", "elsewhere").exit_code == 0
    output = [
        json.loads(run("study", "show", "feed", "--store", where, "--json").stdout)
        for where in ("pasto-data", "elsewhere")
    ]
    assert output[0]["policy"] == output[1]["policy"]
    assert run("store", "restore", "monday.db", "--store", "elsewhere").exit_code == 2


def test_commands_find_the_service_that_runs_on_the_store(run: Any, service: str) -> None:
    by_store = json.loads(run("study", "show", "feed", "--json").stdout)
    by_address = json.loads(run("study", "show", "feed", "--url", service, "--json").stdout)
    by_store.pop("round_age_seconds")
    by_address.pop("round_age_seconds")
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


def test_commands_say_which_store_or_service_they_used(run: Any, work_folder: Path) -> None:
    run("study", "init")
    there = work_folder / "elsewhere" / "pasto-data"
    made = run("study", "create", "study.yaml", "--store", there)
    assert made.stderr.splitlines()[-1] == f"using the store {there}"
    assert "no service" not in made.stderr
    for words in (("study", "show", "feed"), ("study", "list", "--json"), ("round", "list", "feed")):
        assert f"using the store {there}\n" in run(*words, "--store", there).stderr, words
    lost = run("study", "list", "--url", "http://ann:secret@127.0.0.1:9")
    assert "using the service at http://ann:…@127.0.0.1:9\n" in lost.stderr
    assert f"using the store {there}\n" in run("store", "check", "--store", there).stderr


def test_a_study_started_without_a_service_prints_a_note(run: Any, work_folder: Path) -> None:
    run("study", "init")
    made = run("study", "create", "study.yaml", "--start")
    assert f"using the store {work_folder / 'pasto-data'}\n" in made.stderr
    assert (
        "note: no service runs on this store, so the study has no traffic yet; run `pasto serve --store pasto-data`"
        in (made.stderr)
    )
    assert "--url or PASTO_URL" in made.stderr
    run("study", "archive", "feed", "--reason", "again")
    run("study", "create", "study.yaml")
    assert "no service runs on this store" in run("study", "start", "feed").stderr


def test_a_study_started_on_a_running_service_is_served(run: Any, service: str, feed: Path) -> None:
    run("study", "archive", "feed", "--reason", "again")
    by_store = run("study", "create", "study.yaml", "--start")
    assert f"using the service at {service}, which runs on the store {feed / 'pasto-data'}\n" in by_store.stderr
    assert "has no traffic yet" not in by_store.stderr
    by_address = run("study", "show", "feed", env={"PASTO_URL": service})
    assert f"using the service at {service}\n" in by_address.stderr


def test_layers_and_the_holdout_are_printed(run: Any, work_folder: Path) -> None:
    assert run("study", "init").exit_code == 0
    text = (work_folder / "study.yaml").read_text(encoding="utf-8")
    for name, share in (("feed", "40%"), ("search", "30%")):
        (work_folder / f"{name}.yaml").write_text(
            text.replace("name: feed", f"name: {name}") + f"layer: {{name: home, share: {share}}}\n", encoding="utf-8"
        )
        assert run("study", "create", f"{name}.yaml", "--start").exit_code == 0
    listed = [line.split() for line in run("layer", "list").stdout.splitlines()]
    assert listed == [
        ["layer", "unit", "study", "state", "share", "from", "to"],
        ["home", "user", "feed", "learning", "40.00%", "0.00%", "40.00%"],
        ["home", "user", "search", "learning", "30.00%", "40.00%", "70.00%"],
        ["home", "user", "free", "30.00%", "70.00%", "100.00%"],
    ]
    assert json.loads(run("layer", "list", "--json").stdout)[0]["free"] == pytest.approx(0.3)
    assert run("holdout", "show").stdout == "there is no holdout\n"
    missing = run("holdout", "sql", "--table", "users", "--metric", "watch")
    assert missing.exit_code == 2
    assert "pasto holdout set 5%" in missing.stderr
    made = run("holdout", "set", "5%", "--reason", "launches")
    assert made.exit_code == 0
    assert "5.00% of all units (user) are held out of every study, set" in made.stdout
    assert made.stdout.count("from the next policy on") == 2
    query = run("holdout", "sql", "--table", "users", "--metric", "watch")
    assert "note: feed does not leave the holdout out: from the next policy on" in query.stderr
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE users AS SELECT 'user ' || range AS unit, 1.0 AS watch FROM range(1000)")
        ((metric, units, others, *_),) = connection.execute(query.stdout).fetchall()
    assert metric == "watch"
    assert 25 < units < 80
    assert units + others == 1000
    assert "there is no holdout" in run("holdout", "delete").stdout
    assert run("holdout", "set", "70%").exit_code == 2


def test_a_running_store_is_backed_up_and_checked(run: Any, service: str) -> None:
    assert run("store", "backup", "monday.db").exit_code == 0
    assert run("store", "check").exit_code == 0
    rejected = run("store", "restore", "monday.db")
    assert rejected.exit_code == 2
