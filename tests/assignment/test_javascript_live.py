"""JavaScript client on the real service: same candidates and same counts on both sides."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CLIENT = Path(__file__).parents[2] / "clients" / "javascript"

STUDY = {
    "name": "feed",
    "unit": "user",
    "baseline": {"weight": 1},
    "parameters": {"weight": [0, 1, 2]},
    "metrics": {"watch_time": {"event": "watch", "value": "seconds", "aggregate": "sum", "cap": 7200}},
    "goal": {"maximize": "watch_time"},
    "traffic": {"control": "10%"},
    "rounds": {"every": "1h"},
}

VISIT = """
import { Client } from "./index.mjs";
const client = new Client({ url: process.argv[1], study: "feed" });
await client.start();
for (let number = 0; number < 1500; number += 1) {
  client.assign(`user-${number} é👍`).track("watch", { seconds: number % 50 });
}
client.assign("another unit", { override: "weight=2" }).track("watch", { seconds: 1 });
await client.flush();
await fetch(`${process.argv[1]}/v1/studies/feed/rounds/close`, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: "{}",
});
while (client.status().version === 1) await new Promise((resolve) => setTimeout(resolve, 10));
for (let number = 0; number < 100; number += 1) client.assign(`user-${number} é👍`);
const arrived = await client.close();
process.stdout.write(JSON.stringify({ arrived, ...client.status() }));
"""


@pytest.fixture
def address() -> Iterator[str]:
    command = [sys.executable, "-m", "pasto", "serve", "--store", "memory:", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8") as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().split()[-1]
        finally:
            server.terminate()


def ask(address: str, method: str, body: object = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, data, headers, method=method)  # noqa: S310 -- our own server
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        content: dict[str, Any] = json.loads(answer.read())
    return content


@pytest.mark.services
@pytest.mark.parametrize("signed", [False, True], ids=["unsigned", "signed"])
def test_the_service_accepts_every_event_and_misses_none(address: str, signed: bool) -> None:
    ask(f"{address}/v1/studies", "POST", {**STUDY, "exposures": {"signed": signed}})
    ask(f"{address}/v1/studies/feed", "PATCH", {"action": "start"})
    node = shutil.which("node")
    assert node is not None, "the tests marked `services` need Node; .ci/run installs it"
    run = subprocess.run(
        [node, "--input-type=module", "--eval", VISIT, address],
        cwd=CLIENT,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    status = json.loads(run.stdout)
    assert status["arrived"] is True
    assert (status["errors"], status["rejected"], status["version"]) == (0, {}, 2)
    accounting = ask(f"{address}/v1/studies/feed/report", "GET")["accounting"]
    first, second = accounting["versions"]
    assert (first["logged"], first["assigned"], first["gap"]) == (1501, 1501, 0)
    assert (second["logged"], second["assigned"], second["gap"]) == (100, 100, 0)
    assert accounting["events"]["metrics"] == 1501
    assert accounting["events"]["excluded"] == 2
    assert accounting["senders"]["missing"] == 0
