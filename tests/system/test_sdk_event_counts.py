"""Event counts of SDK and service agree, even if the network fails between them."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from pasto.report.records import write_record
from pasto.service.service import Service
from pasto_sdk import Client, Request, Response


class Network:
    """Network that loses some answers, and some events of one arm after it acknowledged them."""

    def __init__(self, service: Service, steals: Callable[[dict[str, Any]], bool] = lambda event: False) -> None:
        self._service = service
        self._steals = steals
        self._rng = random.Random(7)
        self.stolen: Counter[tuple[int, str]] = Counter()
        self.forgets = 0.0

    def __call__(self, request: Request) -> Response:
        if request.method == "GET":
            policy = self._service.policy_cache.current("feed")
            return Response(200, {"ETag": f'"{policy.checksum}"'}, policy.text.encode())
        packed = {name.lower(): value for name, value in request.headers.items()}.get("content-encoding") == "gzip"
        body = gzip.decompress(request.body) if packed else request.body
        events = json.loads(body)
        events = events["events"] if isinstance(events, dict) else events
        passed = []
        for event in events:
            if self._steals(event):
                self.stolen[event["version"], event["candidate"]] += 1
            else:
                passed.append(event)
        answer = self._service.ingest("feed", self._service.decode(json.dumps(passed).encode())).result(timeout=60)
        # Otherwise the client would send the stolen ones again.
        answer = msgspec.structs.replace(answer, accepted=answer.accepted + len(events) - len(passed))
        if self._rng.random() < self.forgets:
            raise ConnectionResetError("the answer was lost")
        return Response(200, {}, msgspec.json.encode(answer))


def _decide(client: Client, users: range) -> None:
    for number in users:
        chosen = client.assign(f"user {number}")
        chosen.track("seen", x=number % 7 - 3.0, y=0.5)


def _versions(service: Service) -> dict[int, dict[str, Any]]:
    event_counts = write_record(service.report("feed"))["accounting"]["versions"]
    return {one["version"]: one for one in event_counts}


def _start(service: Service, document: dict[str, Any]) -> None:
    service.create(document, who="ann", seed=7)
    service.change("feed", "start", who="ann")


def test_every_decision_is_accounted_for_though_answers_get_lost(service: Service, quick: dict[str, Any]) -> None:
    _start(service, quick)
    network = Network(service)
    network.forgets = 0.5
    now = [0.0]
    with Client(
        "http://network", study="feed", transport=network, cache=None, background=False, clock=lambda: now[0]
    ) as client:
        assert client.wait_until_ready()
        flushed = []
        for first in range(0, 3000, 300):
            _decide(client, range(first, first + 300))
            now[0] += 100.0  # longer than the client's pause after a failure
            flushed.append(client.flush())
        network.forgets = 0.0
        now[0] += 100.0
        assert client.flush()
    assert False in flushed
    (event_counts,) = _versions(service).values()
    assert (event_counts["assigned"], event_counts["logged"], event_counts["dropped"], event_counts["gap"]) == (
        3000,
        3000,
        0,
        0,
    )
    events = write_record(service.report("feed"))["accounting"]
    assert (events["events"]["metrics"], events["senders"]["missing"]) == (3000, 0)
    close = service.close_round("feed", who="ann")
    assert (close.units, close.problems) == (3000, ())


def test_a_loss_of_a_thousandth_of_one_arm_is_counted_exactly(service: Service, quick: dict[str, Any]) -> None:
    _start(service, quick)
    lost = random.Random(3)
    network = Network(
        service,
        lambda event: event["type"] == "exposure" and event["candidate"] == "w=2" and lost.random() < 0.01,
    )
    with Client("http://network", study="feed", transport=network, cache=None, background=False) as client:
        assert client.wait_until_ready()
        _decide(client, range(4000))
        assert client.flush()
    assert network.stolen.total() > 0
    (event_counts,) = _versions(service).values()
    gaps = {(event_counts["version"], line["name"]): line["gap"] for line in event_counts["candidates"] if line["gap"]}
    assert gaps == dict(network.stolen)
    assert (
        event_counts["gap"]
        == write_record(service.report("feed"))["accounting"]["senders"]["missing"]
        == network.stolen.total()
    )
