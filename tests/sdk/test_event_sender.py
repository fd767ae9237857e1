"""Event sender: every event arrives once or is counted as lost, under every failure."""

from __future__ import annotations

import gzip
import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pasto_sdk import Client, FakeService, Request, Response
from pasto_sdk.event_sender import MAX_BATCH_EVENTS
from pasto_sdk.policy import PublishedPolicy, publish_policy

Make = Callable[..., PublishedPolicy]
Connect = Callable[..., Client]


class Clock(Protocol):
    def advance(self, seconds: float) -> None: ...


def posts(service: FakeService) -> list[list[dict[str, Any]]]:
    bodies = []
    for request in service.requests:
        if request.method == "POST":
            packed = request.headers.get("Content-Encoding") == "gzip"
            bodies.append(json.loads(gzip.decompress(request.body) if packed else request.body))
    return bodies


def balanced(client: Client) -> bool:
    """Check assigned == logged + dropped + pending, on every line."""
    lines = [line for lines in client.status()["accounts"].values() for line in lines.values()]
    return all(line["assigned"] == line["logged"] + line["dropped"] + line["pending"] for line in lines)


def logged(service: FakeService) -> Counter[tuple[int, str]]:
    return Counter((event["version"], event["candidate"]) for event in service.exposures)


def line(client: Client, kind: str) -> Counter[tuple[int, str]]:
    return Counter(
        {
            (version, name): found[kind]
            for version, lines in client.status()["accounts"].items()
            for name, found in lines.items()
            if found[kind]
        }
    )


def test_events_go_in_batches_in_their_order(connect: Connect, service: FakeService) -> None:
    client = connect()
    for place in range(2 * MAX_BATCH_EVENTS + 50):
        client.assign(f"unit {place}").track("like")
    assert client.flush()
    sizes = [len([event for event in post if event["type"] != "exposure_counts"]) for post in posts(service)]
    assert sizes == [MAX_BATCH_EVENTS] * 4 + [100]
    events = [event for event in service.events.values() if event["type"] != "exposure_counts"]
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert {event["source"] for event in service.events.values()} == {client.status()["source"]}
    assert client.status()["buffered"] == 0


def test_large_batches_are_compressed_and_small_ones_are_not(connect: Connect, service: FakeService) -> None:
    client = connect()
    client.assign("ann")
    assert client.flush()
    for place in range(500):
        client.assign(f"unit {place}")
    assert client.flush()
    small, large = (request for request in service.requests if request.method == "POST")
    assert "Content-Encoding" not in small.headers
    assert large.headers["Content-Encoding"] == "gzip"
    assert len(large.body) < 20_000


def test_a_batch_is_bounded_in_bytes_too(connect: Connect, service: FakeService) -> None:
    client = connect()
    for _ in range(900):
        client.track("ann", "note", text="x" * 10_000)
    assert client.flush()
    assert len(service.metrics) == 900
    assert all(len(json.dumps(post)) < 600_000 for post in posts(service))


def test_what_was_not_answered_for_is_sent_again_with_the_same_ids(
    connect: Connect, service: FakeService, clock: Clock
) -> None:
    client = connect()

    def taken_but_not_answered(request: Request) -> Response:
        service.fault = None
        service(request)
        raise TimeoutError

    for place in range(30):
        client.assign(f"unit {place}")
    service.fault = taken_but_not_answered
    assert not client.flush()
    assert line(client, "pending").total() == 30
    clock.advance(60)
    assert client.flush()
    assert service.duplicates == 31
    assert len(service.exposures) == 30
    assert line(client, "logged") == logged(service)


@pytest.mark.parametrize(
    "answer",
    [
        Response(200, {}, b"welcome to the hotel's network"),
        Response(200, {}, b"{}"),
        Response(200, {}, b'{"accepted": "all", "duplicates": 0, "rejected": []}'),
        Response(200, {}, b'{"accepted": 0, "duplicates": 0, "rejected": []}'),
        Response(200, {}, b'{"accepted": 1000000, "duplicates": 0, "rejected": []}'),
        Response(200, {}, b'{"accepted": -5, "duplicates": 5, "rejected": []}'),
        Response(200, {}, b'{"accepted": true, "duplicates": 0, "rejected": []}'),
        Response(200, {}, b'{"accepted": 0, "duplicates": 0, "rejected": [{"index": 0, "reason": "no"}]}'),
        Response(422, {}, b'{"accepted": 0, "duplicates": 0, "rejected": [{"index": 9, "reason": "no"}]}'),
        Response(200, {}, b""),
        Response(204),
        Response(302, {"Location": "http://elsewhere"}),
        Response(400, {}, b"<html>bad request</html>"),
        Response(401, {}, b'{"error": {"code": "unauthorized", "message": ""}}'),
        Response(403),
        Response(404, {}, b'{"error": {"code": "unknown_study", "message": ""}}'),
        Response(409, {}, b'{"error": {"code": "wrong_state", "message": ""}}'),
        Response(410),
        Response(422, {}, b"no"),
        Response(429, {"Retry-After": "3"}),
        Response(500),
        Response(503, {"Retry-After": "1"}),
        Response(507),
    ],
    ids=lambda response: f"{response.status} {response.body[:80].decode()}",
)
def test_only_an_account_of_the_batch_settles_it(
    answer: Response, connect: Connect, service: FakeService, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect()
    for place in range(20):
        client.assign(f"unit {place}").track("like")
    service.fault = lambda request: answer
    before = len(service.requests)
    for _ in range(300):
        client.flush()
        clock.advance(0.1)
    assert len(service.requests) - before <= 31
    assert client.status()["buffered"] == 40
    assert client.status()["rejected"] == {}
    assert len([record for record in caplog.records if record.name == "pasto.sdk"]) == 1
    service.fault = None
    clock.advance(31)
    assert client.flush()
    assert (len(service.exposures), len(service.metrics)) == (20, 20)
    assert client.status()["dropped"] == 0


def test_what_the_service_refuses_is_counted_with_its_reason(
    connect: Connect, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect()
    service.policies.clear()
    client.assign("ann")
    client.assign("bob")
    client.track("stranger", "like")
    assert client.flush()
    status = client.status()
    assert status["rejected"] == {"version is 1, which was never published": 4}  # Two exposures, and the counts twice.
    assert status["dropped"] == 2
    assert status["buffered"] == 0
    assert len(service.metrics) == 1
    assert balanced(client)
    assert len(caplog.records) == 1
    assert client.assign("ann").reason == "SPLIT"
    assert client.status()["repeated"] == 1


def test_an_event_that_is_refused_without_a_reason_is_counted_too(connect: Connect, service: FakeService) -> None:
    def transport(request: Request) -> Response:
        answer = service(request)
        if request.method != "POST":
            return answer
        body = json.loads(answer.body)
        body["rejected"] = [{"index": one["index"], "reason": ""} for one in body["rejected"]]
        return Response(answer.status, {}, json.dumps(body).encode())

    client = connect(transport=transport)
    service.policies.clear()
    client.assign("ann")
    assert client.flush()
    status = client.status()
    assert status["rejected"] == {"reason not listed by the service": 3}  # The exposure, and the counts twice.
    assert (status["dropped"], status["buffered"]) == (1, 0)


def test_a_batch_that_is_too_large_is_cut_until_it_fits(connect: Connect, service: FakeService, clock: Clock) -> None:
    client = connect()

    def narrow(request: Request) -> Response:
        packed = request.headers.get("Content-Encoding") == "gzip"
        if len(gzip.decompress(request.body) if packed else request.body) > 3000:
            return Response(413)
        service.fault = None
        response = service(request)
        service.fault = narrow
        return response

    service.fault = narrow
    for place in range(300):
        client.assign(f"unit {place}")
    client.track("ann", "note", text="x" * 5000)
    client.track("ann", "like")
    assert client.flush(60)
    assert len(service.exposures) == 300
    assert [event["name"] for event in service.metrics] == ["like"]
    assert client.status()["rejected"] == {"it is too large for the service": 1}
    assert client.status()["dropped_metrics"] == 1
    assert next(iter(service.tallies.values()))["assigned"] == {name: n for (_, name), n in logged(service).items()}
    assert balanced(client)


def test_one_event_that_the_service_cannot_read_does_not_hold_up_the_others(
    connect: Connect, service: FakeService, clock: Clock
) -> None:
    client = connect()

    def strict(request: Request) -> Response:
        packed = request.headers.get("Content-Encoding") == "gzip"
        if b"poison" in (gzip.decompress(request.body) if packed else request.body):
            return Response(400, {}, b'{"error": {"code": "bad_request", "message": "no"}}')
        service.fault = None
        response = service(request)
        service.fault = strict
        return response

    service.fault = strict
    for place in range(200):
        client.assign(f"unit {place}")
        if place == 77:
            client.track("ann", "poison")
    for _ in range(60):
        client.flush()
        clock.advance(30)
    assert len(service.exposures) == 200
    assert sum(client.status()["rejected"].values()) == 1
    assert client.status()["buffered"] == 0


def test_when_the_buffer_is_full_the_oldest_goes_and_is_counted(connect: Connect, service: FakeService) -> None:
    client = connect(max_buffered_events=100)
    service.fault = lambda request: Response(503)
    for place in range(250):
        client.assign(f"unit {place}")
    status = client.status()
    assert (status["buffered"], status["dropped"]) == (100, 150)
    assert balanced(client)
    service.fault = None
    assert client.flush()
    assert [event["unit"] for event in service.exposures] == [f"unit {place}" for place in range(150, 250)]
    (tally,) = service.tallies.values()
    assert sum(tally["assigned"].values()) == 250
    assert Counter(tally["dropped"]) + Counter(event["candidate"] for event in service.exposures) == Counter(
        tally["assigned"]
    )
    # A unit whose exposure was lost is exposed again when it comes again; one whose exposure arrived is not.
    client.assign("unit 0")
    client.assign("unit 249")
    assert client.flush()
    assert [event["unit"] for event in service.exposures[100:]] == ["unit 0"]


def test_the_counts_reveal_lost_events(connect: Connect, service: FakeService) -> None:
    client = connect()
    for place in range(1000):
        client.assign(f"unit {place}")
    # Silent loss on the way: a response that acknowledges more than the service stored.
    client.flush()
    (tally,) = service.tallies.values()
    victims = [event["id"] for event in service.exposures if event["candidate"] == "c3"][:3]
    for victim in victims:
        del service.events[victim]
    gap = Counter(tally["assigned"])
    gap.subtract(tally["dropped"])
    gap.subtract(Counter(event["candidate"] for event in service.exposures))
    assert {name: lost for name, lost in gap.items() if lost} == {"c3": 3}


def test_counts_are_sent_while_events_never_stop(connect: Connect, service: FakeService, clock: Clock) -> None:
    client = connect()
    for minute in range(3):
        for place in range(3 * MAX_BATCH_EVENTS):
            client.assign(f"unit {minute} {place}")
        client._background._sender.step()
        clock.advance(31)
    assert len([post for post in posts(service) if post[-1]["type"] == "exposure_counts"]) >= 2
    assert client.status()["buffered"] > 0


def test_each_version_has_its_own_counts_and_old_ones_are_removed(
    connect: Connect, service: FakeService, policy: Make
) -> None:
    client = connect()
    for version in range(2, 102):
        service.publish(policy(version))
        assert client.wait_until_ready()
        client.assign("ann")
        client.assign(f"unit {version}")
        assert client.flush()
    assert {version for _, version in service.tallies} == set(range(2, 102))
    assert all(sum(tally["assigned"].values()) == 2 for tally in service.tallies.values())
    assert len(client.status()["accounts"]) == 64


STEPS = st.lists(
    st.sampled_from(
        ["assign", "assign", "assign", "again", "track", "flush", "outage", "refuse", "lose", "back", "time"]
    ),
    max_size=60,
)


def small_policy() -> PublishedPolicy:
    return publish_policy(
        study="feed",
        version=1,
        round=1,
        state="learning",
        mode="shuffled",
        salt="s",
        candidates={0: ("a", {}), 1: ("b", {})},
        baseline=0,
        shares=[("learner", 0, 0.5), ("learner", 1, 0.5)],
        valid_from=0,
        expires_after=86400,
    )


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(1, 12))
def test_the_counts_balance_after_every_failure(steps: list[str], buffer: int) -> None:
    service = FakeService(small_policy())
    now = [0.0]

    def lose(request: Request) -> Response:
        service.fault = None
        service(request)
        service.fault = lose
        return Response(502)

    def refuse(request: Request) -> Response:
        packed = json.loads(request.body)
        refused = [{"index": place, "id": None, "reason": "no"} for place in range(0, len(packed), 2)]
        return Response(200, {}, json.dumps({"accepted": 0, "duplicates": 0, "rejected": refused}).encode())

    client = Client(
        "http://x",
        study="feed",
        cache=None,
        background=False,
        transport=service,
        clock=lambda: now[0],
        max_buffered_events=buffer,
        decision_cache_size=5,
    )
    with client:
        assert client.wait_until_ready()
        for place, step in enumerate(steps):
            if step == "assign":
                client.assign(f"unit {place}")
            elif step == "again":
                client.assign("again")
            elif step == "track":
                client.track("again", "like")
            elif step == "flush":
                client.flush()
            elif step == "time":
                now[0] += 31
            else:
                service.fault = {"outage": lambda request: Response(503), "lose": lose, "refuse": refuse}.get(step)
            assert balanced(client)
        refused = sum(client.status()["rejected"].values())
        service.fault = None
        now[0] += 31
        assert client.flush()
        assert balanced(client)
        assert line(client, "pending").total() == 0
        if not refused:
            assert line(client, "logged") == logged(service)
            for tally in service.tallies.values():
                assert Counter(tally["assigned"]) == Counter(tally["dropped"]) + Counter(
                    event["candidate"] for event in service.exposures
                )


@pytest.mark.usefixtures("frequent_thread_switches")
def test_thirty_two_threads_lose_and_double_nothing(connect: Connect, service: FakeService) -> None:
    client = connect(max_buffered_events=3000, decision_cache_size=100)
    stop = threading.Event()
    decided: list[Counter[str]] = []

    def decide(worker: int) -> None:
        own: Counter[str] = Counter()
        for place in range(400):
            own[client.assign(f"unit {worker} {place}").name] += 1
            client.track(f"unit {worker} {place}", "like")
        decided.append(own)

    def send() -> None:
        while not stop.is_set():
            client.flush()

    threads = [threading.Thread(target=decide, args=(worker,)) for worker in range(32)]
    sender = threading.Thread(target=send)
    for thread in [*threads, sender]:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    sender.join()
    assert balanced(client)
    assert client.flush()
    assert line(client, "assigned") == Counter({(1, name): n for name, n in sum(decided, Counter()).items()})
    assert line(client, "logged") == logged(service)
    assert line(client, "logged") + line(client, "dropped") == line(client, "assigned")
    assert service.duplicates == 0
    status = client.status()
    assert len(service.metrics) + status["dropped_metrics"] == 32 * 400
    sequences = [event["sequence"] for event in service.exposures + service.metrics]
    assert len(set(sequences)) == len(sequences)
    assert max(sequences) <= 2 * 32 * 400


def test_an_outage_of_ten_minutes_is_invisible(
    connect: Connect, service: FakeService, clock: Clock, policy: Make
) -> None:
    client = connect(max_buffered_events=20_000)
    before = {f"unit {place}": client.assign(f"unit {place}").name for place in range(1000)}
    assert client.flush()
    service.fault = lambda request: Response(503)
    requests = len(service.requests)
    reasons: Counter[str] = Counter()
    for second in range(600):
        for place in range(100):
            decision = client.assign(f"unit {second} {place}")
            reasons[decision.reason] += 1
        client._background._sender.step()
        client._background._poller.step() if second % 30 == 0 else None
        clock.advance(1)
    assert reasons == {"SPLIT": 60_000}
    assert len(service.requests) - requests <= 20 + 60
    assert {unit: client.assign(unit).name for unit in before} == before
    assert balanced(client)
    service.fault = None
    service.publish(policy(2))
    clock.advance(30)
    assert client.flush(1000)
    assert client.wait_until_ready()
    assert client.status()["version"] == 2
    arrived = len(service.exposures)
    assert 1000 + 20_000 <= arrived <= 1000 + 20_000 + MAX_BATCH_EVENTS
    (tally,) = service.tallies.values()
    assert sum(tally["dropped"].values()) == 61_000 - arrived
    assert Counter(tally["assigned"]) == Counter(tally["dropped"]) + Counter(e["candidate"] for e in service.exposures)


def test_why_events_do_not_arrive_is_passed_on(connect: Connect, service: FakeService) -> None:
    client = connect()
    client.assign("ann")
    body = b'{"error": {"code": "wrong_state", "message": "study \'feed\' is draft and takes no events"}}'
    service.fault = lambda request: Response(409, {}, body)
    assert not client.flush(timeout=0.1)
    assert client.status()["last_error"].endswith(
        "the service answered 409 and does not account for the batch: study 'feed' is draft and takes no events"
    )
