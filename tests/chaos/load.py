"""Load on a running service: senders that repeat until they are acknowledged, a closer, and assigners."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from pasto_sdk.policy import PublishedPolicy
from tests.chaos.service_process import ChaosError, ServiceProcess, first_up
from tests.system.conftest import quick_document
from tests.system.killable_service import batch

STUDY = "feed"
"""The study that senders and the closer work on."""
ASSIGN_STUDY = "shelf"
"""The study that assigners work on, so that the exposures of the first are the senders' own."""
RETRY_SECONDS = 0.05
REQUEST_SECONDS = 30.0
DRAIN_SECONDS = 90.0
IDS_PER_SENDER = 1_000_000

Event = dict[str, Any]


class Ledger:
    """Record of everything that callers sent and received, to compare with the service's state afterwards."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acknowledged: dict[str, Event] = {}
        self.statuses: Counter[int] = Counter()
        self.refusals: list[str] = []
        self.closed_rounds: set[int] = set()
        self.attempted_units: set[str] = set()
        self.assigned_units: set[str] = set()

    def note_status(self, status: int) -> None:
        """Count an answer."""
        with self._lock:
            self.statuses[status] += 1

    def note_batch(self, events: Sequence[Event], answer: dict[str, Any]) -> None:
        """Record the acknowledged events of a batch, and the reasons of the refused ones."""
        refused = {refusal["index"]: refusal["reason"] for refusal in answer["rejected"]}
        with self._lock:
            self.refusals += refused.values()
            self.acknowledged |= {event["id"]: event for place, event in enumerate(events) if place not in refused}

    def note_close(self, answer: dict[str, Any]) -> None:
        """Record an acknowledged close."""
        with self._lock:
            self.closed_rounds.add(answer["round"])

    def note_attempt(self, unit: str) -> None:
        """Record a unit before its decision is requested."""
        with self._lock:
            self.attempted_units.add(unit)

    def note_decision(self, unit: str) -> None:
        """Record a unit that has a decision."""
        with self._lock:
            self.assigned_units.add(unit)


def create_studies(node: ServiceProcess) -> None:
    """Create and start both studies."""
    document = {**quick_document(), "guardrails": [], "rounds": {"every": "1h", "accept_late": "500ms"}}
    with node.client() as client:
        for name in (STUDY, ASSIGN_STUDY):
            client.post("/v1/studies?seed=7", json={**document, "name": name}).raise_for_status()
            client.patch(f"/v1/studies/{name}", json={"action": "start"}).raise_for_status()


class Load:
    """Threads that use the service until they are stopped; pending batches are then delivered."""

    def __init__(
        self,
        nodes: Sequence[ServiceProcess],
        ledger: Ledger,
        *,
        seed: int,
        senders: int = 3,
        closers: int = 1,
        assigners: int = 2,
    ) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._ending = threading.Event()
        self._abandoned = threading.Event()
        work: list[tuple[Callable[[int], None], int]] = [(self._send, number) for number in range(1, senders + 1)]
        work += [(self._close, seed + number) for number in range(closers)]
        work += [(self._assign, number) for number in range(assigners)]
        self._threads = [threading.Thread(target=step, args=(number,), daemon=True) for step, number in work]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(timeout=DRAIN_SECONDS)
        stuck = [thread for thread in self._threads if thread.is_alive()]
        self._abandoned.set()
        for thread in stuck:
            thread.join(timeout=2 * REQUEST_SECONDS)
        if stuck and error[0] is None:
            raise ChaosError(f"{len(stuck)} callers got no answer within {DRAIN_SECONDS:g} s")

    def wait_until_acknowledged(self, events: int, seconds: float = 60.0) -> None:
        """Wait until the service has acknowledged this many more events."""
        wanted = len(self._ledger.acknowledged) + events
        node = first_up(self._nodes)
        node.wait_for(lambda: len(self._ledger.acknowledged) >= wanted, "the senders were not acknowledged", seconds)

    def _send(self, sender: int) -> None:
        with httpx.Client(timeout=REQUEST_SECONDS) as client:
            before: PublishedPolicy | None = None
            policy: PublishedPolicy | None = None
            number = 0
            while not self._ending.is_set():
                if number % 4 == 0 or policy is None:
                    current = self._read_policy(client)
                    if current is None:
                        continue
                    if policy is not None and current.version > policy.version:
                        before = policy
                    policy = current
                self._deliver(client, batch(policy, before, sender * IDS_PER_SENDER + number))
                number += 1

    def _read_policy(self, client: httpx.Client) -> PublishedPolicy | None:
        answer = self._ask(client, "GET", f"/v1/studies/{STUDY}/policy")
        return PublishedPolicy.from_text(answer.text) if answer is not None and answer.status_code == 200 else None

    def _deliver(self, client: httpx.Client, events: list[Event]) -> None:
        """Send a batch until it is acknowledged."""
        while not self._abandoned.is_set():
            answer = self._ask(client, "POST", f"/v1/studies/{STUDY}/events", events)
            if answer is not None and answer.status_code in (200, 422):
                self._ledger.note_batch(events, answer.json())
                return

    def _close(self, seed: int) -> None:
        rng = random.Random(seed)
        with httpx.Client(timeout=REQUEST_SECONDS) as client:
            while not self._ending.wait(rng.uniform(0.05, 0.4)):
                answer = self._ask(client, "POST", f"/v1/studies/{STUDY}/rounds/close", {})
                if answer is not None and answer.status_code == 200:
                    self._ledger.note_close(answer.json())

    def _assign(self, assigner: int) -> None:
        with httpx.Client(timeout=REQUEST_SECONDS) as client:
            number = 0
            while not self._ending.wait(0.005):
                unit = f"{assigner}/{number}"
                self._ledger.note_attempt(unit)
                answer = self._ask(client, "POST", f"/v1/studies/{ASSIGN_STUDY}/assign", {"unit": unit})
                if answer is not None and answer.status_code == 200:
                    self._ledger.note_decision(unit)
                number += 1

    def _ask(self, client: httpx.Client, method: str, path: str, body: Any = None) -> httpx.Response | None:
        """Call a running node; return None if it gave no answer, after a short wait."""
        node = first_up(self._nodes)
        try:
            answer = client.request(method, node.url + path, json=body, headers=node.headers)
        except (httpx.TransportError, httpx.UnsupportedProtocol):
            self._abandoned.wait(RETRY_SECONDS)
            return None
        self._ledger.note_status(answer.status_code)
        if answer.status_code >= 500:
            self._abandoned.wait(RETRY_SECONDS)
        return answer


def fill_study(node: ServiceProcess, ledger: Ledger, *, events: int, rounds: int, first: int = 0) -> None:
    """Send this many events in a few rounds, each closed by hand; `first` separates their ids from earlier ones."""
    batches_per_request, events_per_batch = 50, 40
    with node.client() as client:
        number = first
        for _ in range(rounds):
            policy = PublishedPolicy.from_text(client.get(f"/v1/studies/{STUDY}/policy").raise_for_status().text)
            for _ in range(events // rounds // (batches_per_request * events_per_batch)):
                numbers = range(number, number + batches_per_request)
                sent = [event for place in numbers for event in batch(policy, None, place)]
                answer = client.post(f"/v1/studies/{STUDY}/events", json=sent)
                ledger.note_batch(sent, answer.raise_for_status().json())
                number += batches_per_request
            answer = client.post(f"/v1/studies/{STUDY}/rounds/close", json={})
            ledger.note_close(answer.raise_for_status().json())
