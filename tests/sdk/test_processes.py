"""Processes of the client: its imports, forks, and the end of a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import pytest

from pasto_sdk import Client, FakeService
from pasto_sdk.policy import PublishedPolicy

Make = Callable[..., PublishedPolicy]


class Server(Protocol):
    service: FakeService
    url: str


def run(script: str, *words: str, code: int = 0) -> str:
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    return done.stdout


@pytest.mark.parametrize("start", ["import pasto.sdk", "import pasto; pasto.sdk.Client"])
def test_it_loads_nothing_but_the_standard_library(start: str) -> None:
    script = f"""
import json, sys
before = set(sys.modules)
{start}
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(json.dumps(sorted(loaded - set(sys.stdlib_module_names))))
"""
    assert json.loads(run(script)) == ["pasto", "pasto_sdk"]


PREFORK = """
import os, sys
import pasto_sdk.client
from pasto.sdk import Client

pasto_sdk.client.EXIT_TIMEOUT_SECONDS = 60.0
url, workers = sys.argv[1], int(sys.argv[2])
client = Client(url, study="feed", cache=None, flush_interval=0.05)
assert client.wait_until_ready(60)
for place in range(100):
    client.assign(f"parent {place}")
children = []
for worker in range(workers):
    child = os.fork()
    if child == 0:
        for place in range(500):
            decision = client.assign(f"unit {worker} {place}")
            assert decision.reason == "SPLIT", decision
            decision.track("like")
            client.assign(f"parent {place % 100}")
        sys.exit(0)  # The last events go at exit.
    children.append(child)
for child in children:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert client.close(60)
"""


def test_eight_workers_forked_from_one_client_share_no_event(server: Server) -> None:
    run(PREFORK, server.url, "8")
    service = server.service
    assert service.duplicates == 0
    units = Counter(event["unit"] for event in service.exposures)
    assert {unit for unit in units if unit.startswith("unit")} == {
        f"unit {w} {p}" for w in range(8) for p in range(500)
    }
    assert all(count == 1 for unit, count in units.items() if unit.startswith("unit"))
    # Each worker decided for the parent's units by itself; the parent sent its own pending events.
    assert {count for unit, count in units.items() if unit.startswith("parent")} == {9}
    assert len(service.metrics) == 4000
    sources = Counter(event["source"] for event in service.exposures)
    assert sorted(sources.values()) == [100] + [600] * 8
    for source in sources:
        sequences = [event["sequence"] for event in service.exposures + service.metrics if event["source"] == source]
        assert sorted(sequences) == list(range(1, len(sequences) + 1))
    assert {source: sum(t["assigned"].values()) for (source, _), t in service.tallies.items()} == sources


FORK_IN_THE_MIDDLE = """
import os, sys, threading, time
from pasto.sdk import Client

url = sys.argv[1]
client = Client(url, study="feed", cache=None, flush_interval=0.01)
assert client.wait_until_ready(60)
stop = threading.Event()

def busy(worker):
    place = 0
    while not stop.is_set():
        client.assign(f"{worker} {place % 1000}").track("like")
        place += 1
        time.sleep(0.0002)

threads = [threading.Thread(target=busy, args=(worker,), daemon=True) for worker in range(4)]
for thread in threads:
    thread.start()
for attempt in range(20):
    child = os.fork()
    if child == 0:
        for place in range(20):
            assert client.assign(f"child {attempt} {place}").reason == "SPLIT"
        os._exit(0 if client.flush(60) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
stop.set()
for thread in threads:
    thread.join()
assert client.close(60)
"""


def test_a_fork_amid_threads_finds_no_lock_held(server: Server) -> None:
    run(FORK_IN_THE_MIDDLE, server.url)
    assert server.service.duplicates == 0
    assert len([event for event in server.service.exposures if event["unit"].startswith("child")]) == 400


AT_EXIT = """
import signal, sys, time
import pasto_sdk.client
from pasto.sdk import Client

pasto_sdk.client.EXIT_TIMEOUT_SECONDS = 60.0
client = Client(sys.argv[1], study="feed", cache=None, flush_interval=3600)
assert client.wait_until_ready(60)
client.assign("ann").track("like")
if sys.argv[2] == "SIGTERM":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    print("ready", flush=True)
    time.sleep(600)
if sys.argv[2] == "error":
    raise ValueError("the caller's own")
"""


@pytest.mark.parametrize(("end", "code"), [("return", 0), ("error", 1)])
def test_the_end_of_the_process_sends_what_is_left(server: Server, end: str, code: int) -> None:
    run(AT_EXIT, server.url, end, code=code)
    assert (len(server.service.exposures), len(server.service.metrics)) == (1, 1)


def test_a_term_signal_that_ends_the_process_sends_what_is_left(server: Server) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", AT_EXIT, server.url, "SIGTERM"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(120) == 0
    assert (len(server.service.exposures), len(server.service.metrics)) == (1, 1)


def test_a_signal_handler_may_use_the_client_in_the_middle_of_it(service: FakeService) -> None:
    script = """
import signal
from pasto.sdk import Client, FakeService

service = FakeService()
client = Client("http://x", study="feed", cache=None, background=False, transport=service, max_buffered_events=10**6)
count = 0

def handle(number, frame):
    global count
    count += 1
    client.assign(f"signal {count}").track("like")

signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
place = 0
while count < 300:
    place += 1
    client.assign(f"unit {place}").track("like")
signal.setitimer(signal.ITIMER_REAL, 0)
assert client.status()["buffered"] == 2 * (place + count)
print("done")
import os
os._exit(0)
"""
    assert run(script) == "done\n"


def test_no_thread_to_be_had_is_no_reason_to_stop(policy: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        client = Client("http://x", study="feed", cache=None, transport=FakeService(policy()), baseline={"weight": 1})
        for place in range(100):
            assert client.assign(f"unit {place}").reason == "DEFAULT"
        assert client.status()["errors"] == 1
    client._background._start_again = 0.0
    client.assign("ann")
    assert client.wait_until_ready()
    assert client.flush()
    assert client.close()
