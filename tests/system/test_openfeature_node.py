"""OpenFeature clients for Node and the web, against a live service."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pasto.service.http.server import ServiceProcess
from pasto.service.settings import Settings
from pasto.service.study_file import EXAMPLE, read_document

HERE = Path(__file__).parents[2] / "clients" / "openfeature-test"
PARAMETERS = {"weight": [0, 1.5, 2], "ranker": ["fast", "deep"], "boost": [True, False]}
BASELINE = {"weight": 2, "ranker": "fast", "boost": False}
UNITS = ["ann", "用户", "user 7", "😀"]


def test_the_lock_names_exact_versions_and_no_host() -> None:
    package = json.loads((HERE / "package.json").read_text())
    lock = (HERE / "package-lock.json").read_text()
    assert "://" not in lock
    assert '"resolved"' not in lock
    packages = json.loads(lock)["packages"]
    for name, version in package["dependencies"].items():
        assert packages[f"node_modules/{name}"]["version"] == version
    assert all("integrity" in found for place, found in packages.items() if place)


@pytest.fixture
def running() -> Iterator[ServiceProcess]:
    running = ServiceProcess(Settings(store="memory:", port=0))
    thread = threading.Thread(target=running.serve)
    thread.start()
    try:
        while not running.started and thread.is_alive():
            time.sleep(0.005)
        document = {**read_document(EXAMPLE, "yaml"), "name": "ranking", "parameters": PARAMETERS, "baseline": BASELINE}
        running.service.create(document, who="test")
        running.service.change("ranking", "start", who="test")
        yield running
    finally:
        running.stop()
        thread.join()


def program(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"this needs {name}"
    return found


def evaluated(url: str, key: str = "") -> Any:
    ended = subprocess.run(
        [program("node"), "evaluate.mjs", url, key, *UNITS], cwd=HERE, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.services
def test_the_real_clients_get_what_the_policy_draws(running: ServiceProcess) -> None:
    subprocess.run([program("npm"), "ci", "--ignore-scripts"], cwd=HERE, check=True, timeout=600)
    policy = running.service.policy_cache.current("ranking")
    key = running.application.context.keys.create("boss", ["evaluate"]).key
    found = evaluated(running.url, key)
    for unit in UNITS:
        cell = policy.draw(unit)
        metadata = {
            "study": "ranking",
            "candidate": cell.name,
            "propensity": cell.propensity,
            "round": policy.round,
            "version": policy.version,
            "arm": cell.arm,
        }
        node, web = found["node"][unit], found["web"][unit]
        for answer in (node["object"], web["object"]):
            assert answer == {
                "value": dict(cell.values),
                "variant": cell.name,
                "reason": "SPLIT",
                "flagMetadata": metadata,
            }
        assert node["number"]["value"] == web["number"]["value"] == cell.values["weight"]
        assert node["string"]["value"] == cell.values["ranker"]
        assert node["boolean"]["value"] is cell.values["boost"]
        for missing in (node["missing"], web["missing"]):
            assert (missing["value"], missing["errorCode"]) == ("default", "FLAG_NOT_FOUND")
        assert (node["mistyped"]["value"], node["mistyped"]["errorCode"]) == (7, "TYPE_MISMATCH")
    assert found["nobody"]["value"] == {"default": True}
    assert found["nobody"]["errorCode"] == "TARGETING_KEY_MISSING"
    assert found["refused"] is None
    strange = evaluated(running.url, "wrong")
    assert strange["node"]["ann"]["object"]["value"] == {}
    assert strange["node"]["ann"]["object"]["errorCode"] == "GENERAL"
    assert strange["refused"] == "PROVIDER_FATAL"
