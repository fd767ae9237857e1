"""Commands `pasto report` and `pasto plan` on a store."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pasto.service.service import Service
from pasto.store import open_store

SEEN = {"event": "seen", "aggregate": "sum"}
DOCUMENT: dict[str, Any] = {
    "name": "feed",
    "baseline": {"w": 1},
    "parameters": {"w": [0, 1, 2]},
    "metrics": {
        "x": {**SEEN, "value": "x", "range": [0, 30]},
        "y": {**SEEN, "value": "y", "range": [0, 30]},
    },
    "goal": {"maximize": "x"},
    "guardrails": [{"metric": "y", "at_least": "-2%", "stop_at": "-9%"}],
    "traffic": {"control": "20%"},
    "rounds": {"every": "1h"},
}
TRUTH = {"w=0": (12.0, 8.0), "w=1": (9.8, 10.2), "w=2": (10.0, 12.0)}


@pytest.fixture(scope="module")
def store_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with a study that has learned for four rounds."""
    place = tmp_path_factory.mktemp("reported") / "store"
    service = Service(open_store(str(place)))
    service.create(DOCUMENT, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    for _ in range(4):
        policy = service.policy_cache.current("feed")
        rng = np.random.default_rng(policy.version)
        events = []
        for number in range(300):
            cell = policy.draw(f"user {number}")
            x, y = rng.normal(TRUTH[cell.name], 1.0).tolist()
            drawn = {"unit": f"user {number}", "version": policy.version, "candidate": cell.name}
            identity = f"{policy.version}/{number}"
            events.append({"type": "exposure", "id": f"e{identity}", **drawn})
            events.append({"type": "metric", "id": f"m{identity}", "name": "seen", "fields": {"x": x, "y": y}, **drawn})
        service.ingest("feed", service.decode(json.dumps(events).encode())).result()
        service.close_round("feed", who="ann")
    service.shutdown()
    return place


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PASTO_STORE", "PASTO_URL", "PASTO_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_a_report_begins_with_its_verdict(run: Any, store_folder: Path) -> None:
    outcome = run("report", "feed", "--store", store_folder)
    assert outcome.exit_code == 0
    lines = outcome.stdout.splitlines()
    assert lines[0] == "feed: learning, round 5 under policy 5"
    assert lines[3].startswith("Keep collecting")
    assert set(lines[4]) == {"-"}
    table = lines[lines.index(next(line for line in lines if line.startswith("metric"))) :]
    assert max(len(line) for line in table[: table.index("")]) <= 80
    assert "y at least -2% (hard) -9%" in " ".join(outcome.stdout.split())
    document = json.loads(run("report", "feed", "--store", store_folder, "--json").stdout)
    assert document["learning"]["rounds"] == [1, 2, 3, 4]


def test_a_report_is_written_as_one_page(run: Any, store_folder: Path, tmp_path: Path) -> None:
    outcome = run("report", "feed", "--store", store_folder, "--html", tmp_path / "feed.html")
    assert (outcome.exit_code, outcome.stdout) == (0, "")
    assert (tmp_path / "feed.html").read_text(encoding="utf-8").count('<svg role="img"') == 2
    rejected = run("report", "feed", "--store", store_folder, "--html", tmp_path / "no" / "feed.html")
    assert rejected.exit_code == 2


def test_missing_figures_are_reported_on_the_terminal_only(
    run: Any, store_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    made = run("report", "feed", "--store", store_folder, "--html", tmp_path / "feed.html")
    assert made.exit_code == 0
    assert "note: the page has no figures: figures need matplotlib; install it in a clone" in made.stderr
    assert "matplotlib" not in (tmp_path / "feed.html").read_text(encoding="utf-8")


def test_another_question_is_answered_from_the_store(run: Any, store_folder: Path, tmp_path: Path) -> None:
    outcome = run("report", "feed", "--store", store_folder, "--keep", "y >= -1%")
    assert outcome.stdout.startswith("maximize x, keep y >= -1%\n")
    assert "Confirm before you rely on" in outcome.stdout
    document = json.loads(run("report", "feed", "--store", store_folder, "--drop", "y", "--json").stdout)
    assert document["answer"]["probabilities"] == {"w=0": 1.0}
    assert run("report", "feed", "--store", store_folder, "--drop", "y", "--html", tmp_path / "a.html").exit_code == 2
    assert "measures no 'z'" in run("report", "feed", "--store", store_folder, "--maximize", "z").stderr


def test_a_plan_prints_the_number_of_rounds(run: Any, tmp_path: Path) -> None:
    words = ("plan", "--units", 20000, "--std", 3, "--effect", 0.1, "--max-rounds", 40)
    outcome = run(*words)
    assert outcome.exit_code == 0
    assert "one look, at a time set beforehand" in outcome.stdout
    document = json.loads(run(*words, "--json", "--figure", tmp_path / "plan").stdout)
    assert 1 < document["rounds_at_horizon"] < document["rounds_at_any_look"] < 40
    assert len(document["at_horizon"]) == 40
    assert {path.name for path in tmp_path.iterdir()} == {"plan.png", "plan.svg"}
    percent = json.loads(run("plan", "--units", 20000, "--std", 3, "--mean", 10, "--effect", "1%", "--json").stdout)
    assert percent["effect"] == pytest.approx(0.1)


def test_a_plan_starts_from_a_study(run: Any, store_folder: Path) -> None:
    document = json.loads(run("plan", "--study", "feed", "--store", store_folder, "--effect", "2%", "--json").stdout)
    assert document["units"] == 300
    assert document["std"] == pytest.approx(1.0, abs=0.15)
    assert document["effect"] == pytest.approx(0.196, abs=0.01)
    rejected = run("plan", "--study", "feed", "--store", store_folder, "--metric", "z", "--effect", "2%")
    assert "it measures x, y" in rejected.stderr


def test_a_study_is_planned_from_an_earlier_one(run: Any, store_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "feed.json"
    file.write_text(json.dumps({**DOCUMENT, "name": "next"}))
    words = ("plan", file, "--units-per-day", 20_000, "--days", 3, "--from", "feed", "--store", store_folder)
    facts = json.loads(run(*words, "--json").stdout)["facts"]
    found = {(fact["metric"], fact["quantity"]): (fact["value"], fact["source"]) for fact in facts}
    assert found["x", "mean"] == (pytest.approx(9.8, abs=0.2), "study")
    assert found["y", "deviation"] == (pytest.approx(1.0, abs=0.15), "study")
    assert found["x", "spread"] == (0.02, "default")  # three candidates do not show how much they differ


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("--effect", "1%", "--units", 9, "--std", 1), "--mean"),
        (("--effect", "much", "--units", 9, "--std", 1), "--effect must be a number"),
        (("--effect", "1"), "--units and --std"),
        (("--effect", "1", "--units", 9, "--std", 1, "--control-share", "2"), "--control-share must be a share"),
    ],
)
def test_an_incomplete_plan_names_the_missing_option(run: Any, words: tuple[Any, ...], printed: str) -> None:
    rejected = run("plan", *words)
    assert rejected.exit_code == 2
    assert printed in rejected.stderr
