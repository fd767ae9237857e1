"""Process of `pasto serve`: its start, its errors and its shutdown."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from pasto.cli import main
from pasto.errors import OptionError
from pasto.service.api_keys import ApiKeys
from pasto.service.http.auth import check_safe
from pasto.service.http.server import ServiceProcess
from pasto.service.settings import Settings
from pasto.service.study_file import EXAMPLE
from pasto.store import open_store

Start = Callable[..., tuple["subprocess.Popen[str]", str]]


ENDLESS = """
import sys
from functools import partial
from pathlib import Path
from pasto.cli import main
from pasto.service.http import studies
from tests.service.http.question_stubs import compute_without_end

store = Path(sys.argv[sys.argv.index("--store") + 1])
studies.answer_what_if = partial(compute_without_end, file=str(store.parent / "computing"))
main()
"""
"""The command line of a service whose what-if questions are never answered."""


def command(*words: str, script: str = "") -> list[str]:
    return [sys.executable, *(("-c", script) if script else ("-m", "pasto")), "serve", *words]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a service in a process of its own, and stop it with the test."""
    processes: list[subprocess.Popen[str]] = []

    def run(*words: str, script: str = "") -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            command("--port", "0", *words, script=script), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        processes.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"pasto is serving (.+) on (http://\S+)\n", line)
        assert found is not None, line + process.communicate()[1]
        return process, found[2]

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def wait_for_pid(file: Path) -> int:
    """Return the id of the process that computes, once it has written it."""
    ends = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < ends, "nothing was computed"
        time.sleep(0.01)
    return int(file.read_text())


def refused(*words: str) -> str:
    """Return the error output of a service that does not start."""
    outcome = CliRunner().invoke(main, ["serve", "--port", "0", *words])
    assert outcome.exit_code == 2
    assert outcome.stdout == ""
    return outcome.stderr


def client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=60)


def batch(start: int) -> list[dict[str, str]]:
    return [{"type": "metric", "id": str(k), "unit": "ann", "name": "like"} for k in range(start, start + 20)]


@pytest.mark.parametrize(
    "how", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.services)], ids=["SIGTERM", "SIGINT"]
)
def test_a_signal_ends_it_cleanly_and_loses_nothing(start: Start, tmp_path: Path, how: signal.Signals) -> None:
    store = tmp_path / "store"
    process, url = start("--store", str(store))
    accepted: list[str] = []
    with client(url) as site:
        site.post("/v1/studies", content=EXAMPLE, headers={"content-type": "application/yaml"}).raise_for_status()
        site.patch("/v1/studies/feed", json={"action": "start"}).raise_for_status()
        site.post("/v1/studies/feed/assign", json={"unit": "last"}).raise_for_status()
        assert json.loads((store / "service.json").read_text())["url"] == url

        def send() -> None:
            with httpx.Client(base_url=url, timeout=60) as sender:
                for number in range(0, 1_000_000, 20):
                    try:
                        answer = sender.post("/v1/studies/feed/events", json=batch(number))
                    except httpx.TransportError:
                        return
                    if answer.status_code == 200:
                        accepted.extend(event["id"] for event in batch(number))

        def wait() -> None:
            response = httpx.get(f"{url}/v1/studies/feed/policy?wait=60", headers={"if-none-match": tag}, timeout=70)
            heard.append(response.status_code)

        tag = site.get("/v1/studies/feed/policy").headers["etag"]
        heard: list[int] = []
        callers = [threading.Thread(target=send), threading.Thread(target=wait)]
        for caller in callers:
            caller.start()
        while len(accepted) < 200 or "pasto_policy_waiters 1.0" not in site.get("/metrics").text:
            time.sleep(0.005)
        process.send_signal(how)
        _, logged = process.communicate(timeout=120)
        for caller in callers:
            caller.join()
    assert process.returncode == 0, logged
    assert heard == [304]  # waiting callers get an answer
    assert not (store / "service.json").exists()
    assert [json.loads(line)["level"] for line in logged.splitlines() if '"error"' in line] == []
    reopened = open_store(str(store))
    try:
        with reopened.read_transaction() as connection:
            found = {identity for (identity,) in connection.execute("SELECT id FROM events WHERE kind = 1")}
            exposed = connection.execute("SELECT count(*) FROM events WHERE kind = 0").fetchone()[0]
        assert set(accepted) <= found
        assert exposed == 1
        assert list(reopened.check_integrity()) == []
    finally:
        reopened.close()


@pytest.mark.parametrize("how", [(), ("--question-process", "no")], ids=["process", "thread"])
def test_a_computation_without_end_does_not_hold_up_the_end(start: Start, tmp_path: Path, how: tuple[str, ...]) -> None:
    store = tmp_path / "store"
    process, url = start("--store", str(store), "--shutdown-timeout", "2", *how, script=ENDLESS)
    with client(url) as site:
        site.post("/v1/studies", content=EXAMPLE, headers={"content-type": "application/yaml"}).raise_for_status()
        site.patch("/v1/studies/feed", json={"action": "start"}).raise_for_status()
        heard: list[int] = []

        def ask() -> None:
            heard.append(httpx.post(f"{url}/v1/studies/feed/what-if", json={}, timeout=60).status_code)

        caller = threading.Thread(target=ask)
        caller.start()
        computing = wait_for_pid(tmp_path / "computing")
        assert (computing == process.pid) is bool(how)
        process.send_signal(signal.SIGTERM)
        _, logged = process.communicate(timeout=60)
        caller.join()
    assert process.returncode == 0, logged
    assert heard == [503]  # and not a cut connection
    with pytest.raises(ProcessLookupError):
        os.kill(computing, 0)
    assert not (store / "service.json").exists()


def test_it_does_not_listen_beyond_this_machine_without_a_key(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    everywhere = "0.0.0.0"  # noqa: S104 -- that is what is refused
    message = refused("--store", store, "--host", everywhere, "--port", "0")
    assert "the store holds no valid key" in message
    assert "pasto key create" in message
    assert "the store holds no valid key" in refused("--store", store, "--keys-required", "yes", "--port", "0")
    opened = open_store(store)
    keys = ApiKeys(opened)
    gone = keys.create("gone", ["admin"])
    keys.revoke(gone.prefix)
    with pytest.raises(OptionError, match="the store holds no valid key"):
        check_safe(ApiKeys(opened), Settings(store=store, host="::"))
    keys.create("boss", ["admin"])
    opened.close()
    running = ServiceProcess(Settings(store=store, host=everywhere, port=0))
    assert not running.application.context.authenticator.open
    running.close()


def test_two_services_cannot_share_a_directory_or_a_port(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    running = ServiceProcess(Settings(store=store, port=0))
    try:
        assert refused("--store", store, "--port", "0").startswith("error: ")
        port = running.url.rsplit(":", 1)[1]
        assert "cannot listen on 127.0.0.1 port" in refused("--store", "memory:", "--port", port)
        assert "cannot listen on 127.0.0.1 port" in refused("--store", str(tmp_path / "new"), "--port", port)
        assert not (tmp_path / "new").exists()
    finally:
        running.close()


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "169.254.169.254", "[::ffff:127.0.0.1]", "[::1]", "0", "2130706433", "10.0.0.7"]
)
def test_a_webhook_that_can_never_be_reached_is_refused(host: str) -> None:
    with pytest.raises(
        OptionError, match=r"is at .*, which is not public; if it is meant, allow the host with webhook_hosts"
    ):
        ServiceProcess(Settings(store="memory:", port=0, webhook=f"http://{host}/hook")).close()


def test_a_webhook_in_a_private_network_that_is_allowed_is_not_refused() -> None:
    running = ServiceProcess(
        Settings(store="memory:", port=0, webhook="http://localhost/hook", webhook_hosts="localhost")
    )
    running.close()


def test_settings_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASTO_BODY_LIMIT", "much")
    message = refused()
    assert message == "error: PASTO_BODY_LIMIT needs a whole number from 1,000 to 1,000,000,000, got 'much'\n"


@pytest.mark.services
def test_stored_events_survive_kill_9(start: Start, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    process, url = start("--store", store)
    with client(url) as site:
        site.post("/v1/studies", content=EXAMPLE, headers={"content-type": "application/yaml"}).raise_for_status()
        site.patch("/v1/studies/feed", json={"action": "start"}).raise_for_status()
        assert site.post("/v1/studies/feed/events", json=batch(0)).json()["accepted"] == 20
        policy = site.get("/v1/studies/feed/policy").text
    process.kill()
    process.communicate()
    _, url = start("--store", store)
    with client(url) as site:
        assert site.get("/v1/studies/feed/policy").text == policy
        assert site.post("/v1/studies/feed/events", json=batch(0)).json()["duplicates"] == 20
        assert site.get("/readyz").status_code == 200
