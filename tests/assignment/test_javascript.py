"""JavaScript client: its own tests, run by Node, and its decisions on random policies."""

from __future__ import annotations

import inspect
import json
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pasto_sdk import Client
from pasto_sdk.enrolment import AudienceCondition, EnrolmentSlice
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import BUCKET_TOTAL
from tests.assignment.conftest import make_attributes, make_segmented

CLIENT = Path(__file__).parents[2] / "clients" / "javascript"

Make = Callable[..., PublishedPolicy]

DRAW_ALL = """
import { PublishedPolicy } from "./index.mjs";
let text = "";
for await (const chunk of process.stdin) text += chunk;
const answers = JSON.parse(text).map(({ policy, units }) => {
  const read = PublishedPolicy.fromText(policy);
  return units.map(([unit, attributes]) => {
    const bucket = read.draw(unit, attributes);
    return [bucket.arm, bucket.candidate, bucket.width, bucket.segment];
  });
});
process.stdout.write(JSON.stringify(answers));
"""


def run_node(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    executable = shutil.which("node")
    assert executable is not None, "the tests marked `services` need Node; .ci/run installs it"
    return subprocess.run([executable, *arguments], input=stdin, cwd=CLIENT, capture_output=True, encoding="utf-8")


@pytest.mark.services
def test_the_clients_own_tests_pass() -> None:
    run = run_node("--test", *sorted(str(file.relative_to(CLIENT)) for file in CLIENT.glob("test/*.test.mjs")))
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr
    counts = dict(re.findall(r"^(?:#|ℹ) (tests|pass|skipped) (\d+)$", run.stdout, re.MULTILINE))
    assert int(counts["pass"]) == int(counts["tests"]) > 150
    assert counts["skipped"] == "0"


@pytest.mark.services
def test_both_languages_make_the_same_decisions_on_random_policies(made: Make) -> None:
    rng = np.random.default_rng(26)
    requests: list[dict[str, Any]] = []
    expected = []
    for number in range(60):
        shares = rng.dirichlet(np.full(rng.integers(1, 40), 0.3))
        mode = "sticky" if number % 2 else "shuffled"
        cells = [("control", 0, 0.2), *(("blend", k, 0.8 * float(share)) for k, share in enumerate(shares))]
        ends = sorted(rng.integers(0, BUCKET_TOTAL, size=2, endpoint=True).tolist())
        slices = [EnrolmentSlice("layer", f"layer {number}", *ends), EnrolmentSlice("ramp", "ü", 0, ends[1])]
        audience = [AudienceCondition("age", ">=", (float(rng.integers(0, 50)),))] if number % 3 == 0 else []
        policy = made(cells, mode=mode, salt=f"study {number} ü", enrolment=slices[: number % 4], audience=audience)
        units = [
            ("".join(map(chr, rng.integers(0, 0xD7FF, size=rng.integers(1, 60)))), {"age": int(rng.integers(0, 100))})
            for _ in range(300)
        ]
        requests.append({"policy": policy.text, "units": units})
        drawn = [policy.draw(unit, attributes) for unit, attributes in units]
        expected.append([[cell.arm, cell.candidate, cell.width, cell.segment] for cell in drawn])
    enrolled = [cell[0] != "not_enrolled" for cells in expected for cell in cells]
    assert 0.3 < sum(enrolled) / len(enrolled) < 0.9
    run = run_node("--input-type=module", "--eval", DRAW_ALL, stdin=json.dumps(requests))
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == expected


@pytest.mark.services
def test_both_languages_make_the_same_decisions_on_random_segments() -> None:
    rng = random.Random(26)
    requests: list[dict[str, Any]] = []
    expected = []
    for number in range(40):
        policy = make_segmented(rng, mode="sticky" if number % 2 else "shuffled")
        units = [(f"unit {rng.random()}", make_attributes(rng)) for _ in range(200)]
        requests.append({"policy": policy.text, "units": units})
        drawn = [policy.draw(unit, attributes) for unit, attributes in units]
        assert len({cell.segment for cell in drawn}) > 1
        expected.append([[cell.arm, cell.candidate, cell.width, cell.segment] for cell in drawn])
    run = run_node("--input-type=module", "--eval", DRAW_ALL, stdin=json.dumps(requests))
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == expected


OPTIONS = {
    "max_buffered_events": "maxBufferedEvents",
    "decision_cache_size": "decisionCacheSize",
    "poll_interval": "pollInterval",
    "flush_interval": "flushInterval",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_both_languages_have_the_same_defaults(name: str) -> None:
    python = inspect.signature(Client).parameters[name].default
    option = OPTIONS[name]
    source = (CLIENT / "client.mjs").read_text(encoding="utf-8")
    default = re.search(rf"^    {option} = ([\d_]+),$", source, re.MULTILINE)
    assert default is not None
    assert int(default[1].replace("_", "")) == python
    declared = (CLIENT / "index.d.ts").read_text(encoding="utf-8")
    assert re.search(rf" {python:,g}\. \*/\n  {option}\?: number;", declared), "index.d.ts names another default"


def test_the_package_has_no_dependencies() -> None:
    package = json.loads((CLIENT / "package.json").read_text(encoding="utf-8"))
    assert package["dependencies"] == package["devDependencies"] == {}
    for file in CLIENT.glob("*.mjs"):
        imported = re.findall(r'from "([^"]+)"', file.read_text(encoding="utf-8"))
        assert all(name.startswith("./") for name in imported), file.name
