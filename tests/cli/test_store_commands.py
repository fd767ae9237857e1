"""Commands `pasto store archive` and `pasto store erase-unit` on a store."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pasto.service.http.server import ServiceProcess
from pasto.service.service import Service
from pasto.service.settings import Settings
from pasto.store import open_store


@pytest.fixture
def feed(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a study with the name feed that learned from one round of twenty users."""
    for name in ("PASTO_STORE", "PASTO_URL", "PASTO_KEY", "PASTO_ARCHIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert run("study", "init").exit_code == 0
    text = (tmp_path / "study.yaml").read_text()
    (tmp_path / "study.yaml").write_text(re.sub(r"maturity: \w+", "maturity: 0s", text))
    assert run("study", "create", "study.yaml", "--start").exit_code == 0
    service = Service(open_store("pasto-data"))
    policy = service.policy_cache.current("feed")
    events = [
        {"type": "exposure", "id": f"e{unit}", "unit": unit, "version": 1, "candidate": policy.draw(unit).name}
        for unit in (f"user-{number}" for number in range(20))
    ]
    service.ingest("feed", service.decode(json.dumps(events).encode())).result()
    service.close_round("feed", who="ann")
    service.shutdown()
    return tmp_path


def test_archiving_erasing_and_replaying(run: Any, feed: Path) -> None:
    assert "archived 20 events in 1 new files" in run("store", "archive", "feed").stderr
    assert len(list((feed / "pasto-data/archive/feed/round-000001").glob("*.parquet"))) == 1
    assert "every policy identical\n" in run("study", "replay", "feed").stdout
    gone = run("store", "erase-unit", "feed", "user-7", "--reason", "asked to")
    assert "deleted 1 events in 1 rounds" in gone.stderr
    assert "except deleted units: 1, in rounds 1" in run("study", "replay", "feed").stdout
    assert run("store", "archive", "feed", "--delete-older-than", "400d").exit_code == 0
    dropped = run("store", "archive", "feed", "--delete-older-than", "0s")
    assert "deleted the events of 1 rounds, up to round 1" in dropped.stderr
    assert "except rounds 1, whose events are deleted" in run("study", "replay", "feed").stdout


def test_a_store_shows_its_size_and_is_compacted(run: Any, feed: Path) -> None:
    assert run("store", "archive", "feed").exit_code == 0
    output = run("store", "show").stdout
    assert re.search(r"^events in the store +0$", output, re.MULTILINE)
    assert re.search(r"^archived events +20$", output, re.MULTILINE)
    assert re.search(r"^remembered ids +20$", output, re.MULTILINE)
    assert re.search(r"^free +\d+\.\d MB$", output, re.MULTILINE)
    completed = run("store", "compact")
    assert (completed.exit_code, "MB now" in completed.stderr) == (0, True)
    assert re.search(r"^free +0\.0 MB$", run("store", "show").stdout, re.MULTILINE)
    assert "every policy identical\n" in run("study", "replay", "feed").stdout
    nowhere = run("store", "show", "--store", "nowhere")
    assert (nowhere.exit_code, "there is no store in 'nowhere'" in nowhere.stderr) == (2, True)
    assert run("store", "compact", "--store", "nowhere").exit_code == 2
    assert not (feed / "nowhere").exists()


def test_errors_name_the_study_and_the_option(run: Any, feed: Path) -> None:
    for words in (("store", "archive", "fed"), ("store", "erase-unit", "fed", "user-7")):
        rejected = run(*words)
        assert rejected.exit_code == 2
        assert "'fed'" in rejected.stderr
    bad = run("store", "archive", "feed", "--delete-older-than", "soon")
    assert bad.exit_code == 2
    assert "--delete-older-than" in bad.stderr


def test_a_running_service_does_the_work(run: Any, feed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = ServiceProcess(Settings(store="pasto-data", port=0))
    thread = threading.Thread(target=running.serve)
    thread.start()
    try:
        while not running.started and thread.is_alive():
            time.sleep(0.005)
        assert "archived 20 events in 1 new files" in run("store", "archive", "feed").stderr
        assert "archived events" in run("store", "show").stdout
        assert run("store", "compact").exit_code == 2
        assert (
            "deleted 1 events in 1 rounds" in run("store", "erase-unit", "feed", "user-7", "--url", running.url).stderr
        )
        rejected = run("store", "archive", "feed", "--archive", "elsewhere")
        assert (rejected.exit_code, "its own --archive" in rejected.stderr) == (2, True)
        monkeypatch.setenv("PASTO_ARCHIVE", "elsewhere")
        assert "archived 0 events" in run("store", "archive", "feed").stderr
    finally:
        running.stop()
        thread.join()
