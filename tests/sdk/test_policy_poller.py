"""Policy poller: the policy stays up to date, and the last good one remains through failures of the service."""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
from collections.abc import Callable
from typing import Protocol

import pytest

from pasto_sdk import Client, FakeService, Request, Response
from pasto_sdk.diagnostics import ErrorLog
from pasto_sdk.event_sender import MAX_WAIT_SECONDS
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_holder import PolicyHolder
from pasto_sdk.policy_poller import PolicyPoller

Make = Callable[..., PublishedPolicy]
Connect = Callable[..., Client]


class Clock(Protocol):
    now: float

    def __call__(self) -> float: ...

    def advance(self, seconds: float) -> None: ...


def raises(error: Exception) -> Callable[[Request], Response]:
    def fault(request: Request) -> Response:
        raise error

    return fault


def answers(status: int, body: bytes = b"", **headers: str) -> Callable[[Request], Response]:
    return lambda request: Response(status, {key.replace("_", "-"): value for key, value in headers.items()}, body)


def tagged(body: bytes) -> Callable[[Request], Response]:
    return answers(200, body, ETag=f'"{hashlib.sha256(body).hexdigest()}"')


FAULTS = {
    "401": answers(401),
    "403": answers(403),
    "404": answers(404),
    "409 of something on the way": answers(409, b"<html>conflict</html>"),
    "410": answers(410),
    "429": answers(429, Retry_After="7"),
    "429 for long": answers(429, Retry_After="86400"),
    "500": answers(500),
    "503": answers(503, Retry_After="Fri, 31 Dec 1999 23:59:59 GMT"),
    "TLS": raises(ssl.SSLCertVerificationError("certificate has expired")),
    "garbage": answers(200, b"<html>please log in</html>", ETag='"abc"'),
    "garbage with its checksum": tagged(b"\x80garbage"),
    "empty": tagged(b""),
    "empty object": tagged(b"{}"),
    "null": tagged(b"null"),
    "nested": tagged(b"[" * 100_000),
    "slow drip": raises(TimeoutError("the service did not answer in time")),
    "half-open": raises(ConnectionResetError()),
    "cut short": raises(http.client.IncompleteRead(b"{", 100)),
    "redirect": answers(302, Location="http://elsewhere/policy"),
    "204": answers(204),
    "a bug": raises(ZeroDivisionError()),
}


class Drive:
    """Poller on the test's clock, with the times of its requests."""

    def __init__(self, service: FakeService, clock: Clock, poll_interval: float = 20.0) -> None:
        self.service, self.clock = service, clock
        self.moments: list[float] = []
        self.took: Callable[[Request], float] = lambda request: 0.0
        self.holder = PolicyHolder("feed", clock, 10)
        self.error_log = ErrorLog()
        self.poller = PolicyPoller(
            self.holder, self._send, "http://x/policy", {}, self.error_log, poll_interval=poll_interval, clock=clock
        )

    def _send(self, request: Request) -> Response:
        self.moments.append(self.clock())
        self.clock.advance(self.took(request))
        return self.service(request)

    def step(self) -> float:
        delay = self.poller.step()
        self.clock.advance(delay)
        return delay

    def run(self, seconds: float) -> None:
        end = self.clock() + seconds
        while self.clock() < end:
            self.step()

    @property
    def version(self) -> int:
        return self.holder.live.policy.version if self.holder.live.policy else 0


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_ten_minutes_of_a_fault_change_nothing_and_end_with_it(
    fault: Callable[[Request], Response], service: FakeService, clock: Clock, policy: Make
) -> None:
    drive = Drive(service, clock)
    drive.run(30)
    service.fault = fault
    drive.moments.clear()
    drive.run(600)
    assert drive.version == 1
    assert drive.holder.is_fresh()
    assert 20 <= len(drive.moments) <= 100
    for first, tenth in zip(drive.moments, drive.moments[10:], strict=False):
        assert tenth - first >= 10
    assert all(later - earlier >= 1 for earlier, later in zip(drive.moments, drive.moments[1:], strict=False))
    assert drive.error_log.errors == len(drive.moments)
    service.fault = None
    service.publish(policy(2))
    end, back = clock() + MAX_WAIT_SECONDS, clock()
    while drive.version == 1:
        drive.step()
    assert max(drive.moments) <= max(end, back)


def test_a_study_that_is_over_is_served_the_baseline_until_it_is_back(
    service: FakeService, clock: Clock, policy: Make
) -> None:
    drive = Drive(service, clock)
    drive.run(30)
    service.fault = answers(409, b'{"error": {"code": "conflict", "message": ""}}')
    drive.run(60)
    assert drive.holder.is_fresh()  # another conflict does not mean that the study is over
    service.fault = answers(409, b'{"error": {"code": "wrong_state", "message": "it is archived"}}')
    drive.run(MAX_WAIT_SECONDS)
    assert not drive.holder.is_fresh()
    assert drive.version == 1  # its baseline is served
    service.fault = None
    drive.run(MAX_WAIT_SECONDS)
    assert drive.holder.is_fresh()


def test_no_two_clients_wait_alike(service: FakeService, clock: Clock) -> None:
    service.fault = answers(503)
    delays = {Drive(service, clock).poller.step() for _ in range(20)}
    assert len(delays) == 20
    assert all(1 <= delay <= 2 for delay in delays)


def test_a_service_that_keeps_questions_open_is_asked_again_at_once(
    service: FakeService, clock: Clock, policy: Make
) -> None:
    drive = Drive(service, clock)
    drive.took = lambda request: 20.0 if "wait=20" in request.url else 0.01
    assert drive.poller.step() <= 1
    clock.advance(1)
    for _ in range(3):
        assert drive.poller.step() == 0
    assert all("wait=20" in request.url for request in service.requests[1:])
    assert all(request.timeout == 30 for request in service.requests[1:])
    service.publish(policy(2))
    drive.took = lambda request: 0.3
    assert drive.poller.step() == pytest.approx(0.7)
    assert drive.version == 2


def test_a_service_that_answers_at_once_is_polled(service: FakeService, clock: Clock) -> None:
    drive = Drive(service, clock)
    drive.step()
    delays = [drive.step() for _ in range(20)]
    assert all(16 <= delay <= 20 for delay in delays)
    assert len(set(delays)) > 1


def test_a_way_that_cuts_open_questions_off_is_polled(service: FakeService, clock: Clock) -> None:
    drive = Drive(service, clock)

    def gateway(request: Request) -> Response:
        if "wait" in request.url:
            return Response(504)
        service.fault = None
        response = service(request)
        service.fault = gateway
        return response

    service.fault = gateway
    drive.run(600)
    waited = [place for place, request in enumerate(service.requests) if "wait" in request.url]
    assert len(waited) == 3
    assert drive.holder.live.contact > clock() - 41
    drive.run(900)
    assert any("wait" in request.url for request in service.requests[waited[-1] + 1 :])


def test_confirmations_keep_it_alive_and_only_they_do(service: FakeService, clock: Clock, policy: Make) -> None:
    service.publish(policy(2, expires_after=100))
    drive = Drive(service, clock)
    drive.run(1000)
    assert drive.holder.is_fresh()
    service.fault = answers(500)
    contact = drive.holder.live.contact
    drive.run(90)
    clock.now = contact + 99.9
    assert drive.holder.is_fresh()
    clock.now = contact + 100
    assert not drive.holder.is_fresh()
    service.fault = None
    drive.run(MAX_WAIT_SECONDS)
    assert drive.holder.is_fresh()


def test_a_late_copy_does_not_turn_the_policy_back(service: FakeService, clock: Clock, policy: Make) -> None:
    drive = Drive(service, clock)
    service.publish(policy(5))
    drive.run(30)
    service.publish(policy(4))
    contact = drive.holder.live.contact
    requests = len(drive.moments)
    drive.run(600)
    assert drive.version == 5
    assert drive.holder.live.contact == contact
    assert len(drive.moments) - requests <= 60
    assert "version 4 is older than version 5" in (drive.error_log.last or "")


def test_a_recreated_study_is_recognized_by_its_age(service: FakeService, clock: Clock, policy: Make) -> None:
    drive = Drive(service, clock)
    service.publish(policy(5))
    drive.run(30)
    service.publish(policy(1, valid_from=1e9 + 5 + 61, salt="anew"))
    drive.run(30)
    assert drive.version == 1


def test_another_policy_of_the_same_version_is_a_recreated_study(
    service: FakeService, clock: Clock, policy: Make
) -> None:
    drive = Drive(service, clock)
    drive.run(30)
    service.publish(policy(1, salt="other"))
    drive.run(60)
    assert drive.holder.live.policy is not None
    assert drive.holder.live.policy.salt == "feed/1"
    service.publish(policy(1, salt="other", valid_from=2e9))
    drive.run(60)
    assert drive.holder.live.policy.salt == "other"


def test_when_the_held_one_has_expired_an_older_one_is_taken(service: FakeService, clock: Clock, policy: Make) -> None:
    drive = Drive(service, clock)
    service.publish(policy(5, expires_after=300))
    drive.run(30)
    service.publish(policy(4))
    drive.run(400)
    assert drive.version == 4
    assert drive.holder.is_fresh()


@pytest.mark.parametrize("change", ["text", "tag", "study"])
def test_what_is_not_the_policy_asked_for_is_not_taken(
    change: str, service: FakeService, clock: Clock, policy: Make
) -> None:
    drive = Drive(service, clock)
    drive.run(30)
    better = policy(2, study="other" if change == "study" else "feed")
    text, tag = better.text, better.checksum
    if change == "text":
        text = json.dumps(json.loads(text) | {"version": 3})
    if change == "tag":
        tag = "0" * 64
    service.fault = answers(200, text.encode(), ETag=f'"{tag}"')
    drive.run(60)
    assert drive.version == 1


@pytest.mark.parametrize("tag", [None, "", '"other"'])
@pytest.mark.parametrize("change", ["version", "no checksum"])
def test_a_policy_that_cannot_be_checked_is_not_taken(
    change: str, tag: str | None, service: FakeService, clock: Clock, policy: Make
) -> None:
    drive = Drive(service, clock)
    drive.run(30)
    text = policy(2).text
    if change == "version":
        text = text.replace('"version":2', '"version":999')
    else:
        text = json.dumps({name: value for name, value in json.loads(text).items() if name != "sha256"})
    service.fault = answers(200, text.encode(), **({} if tag is None else {"ETag": tag}))
    drive.run(60)
    assert drive.version == 1
    reason = "it was changed on its way" if change == "version" else "the answer cannot be checked"
    assert reason in (drive.error_log.last or "")


def test_a_policy_of_an_older_service_is_checked_by_its_tag(service: FakeService, clock: Clock, policy: Make) -> None:
    fields = json.loads(policy(2).text)
    del fields["sha256"]
    drive = Drive(service, clock)
    service.fault = tagged(json.dumps(fields).encode())
    drive.run(3)
    assert drive.version == 2


@pytest.mark.parametrize("tag", ['W/"{}"', '"{}-gzip"', "", "{}", '"other"'])
def test_a_tag_that_was_changed_on_the_way_is_no_reason_to_refuse(
    tag: str, service: FakeService, clock: Clock, policy: Make
) -> None:
    better = policy(2)
    drive = Drive(service, clock)
    service.fault = answers(200, better.text.encode(), ETag=tag.format(better.checksum))
    drive.run(3)
    assert drive.version == 2


def test_nothing_changed_is_no_answer_where_nothing_is_known(service: FakeService, clock: Clock) -> None:
    drive = Drive(service, clock)
    service.fault = answers(304)
    drive.run(60)
    assert drive.version == 0
    assert "no policy is held" in (drive.error_log.last or "")


def test_a_fault_is_logged_once(
    service: FakeService, clock: Clock, caplog: pytest.LogCaptureFixture, connect: Connect
) -> None:
    service.fault = answers(503)
    client = connect(ready=False)
    for _ in range(10):
        assert not client.wait_until_ready()
    assert [record.name for record in caplog.records] == ["pasto.sdk"]
    assert client.status()["errors"] == 10


def test_without_threads_no_question_is_left_open(connect: Connect, service: FakeService) -> None:
    client = connect()
    for _ in range(5):
        assert client.wait_until_ready()
    assert not any("wait" in request.url for request in service.requests)
