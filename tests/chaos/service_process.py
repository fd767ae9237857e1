"""Process of `pasto serve` on loopback: started, killed, stopped and measured from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 60.0
SOFT_DESCRIPTORS = 1024
"""The soft limit that most systems start a service with."""


class ChaosError(Exception):
    """Failure of the campaign itself: the service under test does not start, or a command fails."""


def environment() -> dict[str, str]:
    """Return the environment of every process of the campaign: no settings from outside, one thread for arrays."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PASTO_")}
    return {**own, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def pasto_command(*words: str) -> list[str]:
    """Return the command line of a `pasto` command."""
    return [sys.executable, "-m", "pasto", *words]


def run_pasto(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a `pasto` command to its end."""
    return subprocess.run(pasto_command(*words), env=environment(), capture_output=True, text=True, timeout=300)


class ServiceProcess:
    """One node: its address changes at each start, its store stays the same."""

    def __init__(self, store: str, log: Path, *options: str) -> None:
        self.store = store
        self.url = ""
        self.key = ""
        """The key that callers of the campaign send; none until one is made."""
        self._options = options
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running service."""
        return self._running().pid

    @property
    def is_up(self) -> bool:
        """True if the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the campaign's callers."""
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    def client(self, seconds: float = 60.0) -> httpx.Client:
        """Return a client of the running process."""
        return httpx.Client(base_url=self.url, headers=self.headers, timeout=seconds)

    def make_key(self, name: str, *scopes: str, expires_in: float | None = None) -> tuple[str, str]:
        """Make a key over HTTP; return its prefix and the key. The first one, an admin key, is the campaign's."""
        wanted = {"name": name, "scopes": list(scopes), "expires_in": expires_in}
        with self.client() as client:
            made = client.post("/v1/keys", json=wanted).raise_for_status().json()
        if not self.key:
            self.key = made["key"]
        return made["prefix"], made["key"]

    def start(self) -> ServiceProcess:
        """Start the process, and wait until it answers."""
        serve = pasto_command("serve", "--port", "0", "--store", self.store, *self._options)
        limited = ["sh", "-c", f'ulimit -S -n {SOFT_DESCRIPTORS}; exec "$@"', "sh", *serve]
        with self._log.open("a") as log:
            process = subprocess.Popen(
                limited, env=environment(), cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._process = process
        if process.stdout is None:
            raise ChaosError("the service has no output")
        line = process.stdout.readline()
        found = re.fullmatch(r"pasto is serving (.+) on (http://\S+)\n", line)
        if found is None:
            raise ChaosError(f"pasto serve did not start on {self.store}: {line}{self.log_tail()}")
        self.url = found[2]
        self.wait_for(lambda: self._answers("/healthz"), "the service did not answer /healthz")
        return self

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        process = self._running()
        process.kill()
        self._finish(process)

    def stop(self) -> tuple[int, float]:
        """Stop the process by SIGTERM; return its exit code and the seconds it took."""
        process, began = self._running(), time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        self._finish(process)
        return process.returncode, time.monotonic() - began

    def close(self) -> None:
        """Kill the process if it still runs."""
        if self.is_up:
            self.kill()

    def wait_for(self, met: Callable[[], bool], problem: str, seconds: float = START_SECONDS) -> None:
        """Wait for a condition; fail if it does not become true or the process ends."""
        until = time.monotonic() + seconds
        while not met():
            if not self.is_up:
                raise ChaosError(f"the service ended by itself: {self.log_tail()}")
            if time.monotonic() > until:
                raise ChaosError(f"{problem} within {seconds:g} s")
            time.sleep(0.02)

    def is_ready(self) -> bool:
        """Return true if /readyz answers 200."""
        return self._answers("/readyz")

    def memory_mb(self) -> float:
        """Return the resident memory."""
        return self._status_mb("VmRSS")

    def peak_memory_mb(self) -> float:
        """Return the largest resident memory since the last reset."""
        return self._status_mb("VmHWM")

    def reset_peak_memory(self) -> None:
        """Measure the peak from here on."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def log_tail(self, lines: int = 5) -> str:
        """Return the last lines of the process's log."""
        return "\n".join(self._log.read_text().splitlines()[-lines:])

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise ChaosError("the service was not started")
        return self._process

    def _finish(self, process: subprocess.Popen[str]) -> None:
        process.wait(timeout=STOP_SECONDS)
        if process.stdout is not None:
            process.stdout.close()

    def _answers(self, path: str) -> bool:
        try:
            return httpx.get(f"{self.url}{path}", timeout=20).status_code == 200
        except httpx.TransportError:
            return False

    def _status_mb(self, name: str) -> float:
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", text)
        return 0.0 if found is None else int(found[1]) / 1024


def first_up(nodes: Sequence[ServiceProcess]) -> ServiceProcess:
    """Return a node that runs, as a load balancer would."""
    return next((node for node in nodes if node.is_up), nodes[0])
