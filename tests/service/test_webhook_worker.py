"""Messages to webhooks: written with their fact, signed, tried again across restarts, and sent by one node."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from pasto.errors import OptionError, SourceError
from pasto.report.lift_records import ConfirmationReport, ConfirmationVerdict, GoalVerdict
from pasto.report.records import SourceProblem
from pasto.service.notifications import Notification, Notifier, build_message, describe_confirmation
from pasto.service.service import Service
from pasto.service.settings import Settings
from pasto.service.team_sources import SourceHealth
from pasto.service.webhook import EVENTS, Webhook, WebhookSpec, make_secret, read_webhooks, sign
from pasto.service.webhook_worker import CLAIM_SECONDS, GIVE_UP_SECONDS, WebhookWorker
from pasto.store import AuditRow, Store, StudyRow, open_store

HOUR = 3600.0
NOW = 1_700_000_000.0


class Receiver(HTTPServer):
    """Server that records what it gets, and answers with the statuses that it was given."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.contents: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.statuses: list[int] = []
        self.came = threading.Semaphore(0)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.contents.append(content)
                receiver.bodies.append(json.loads(content))
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()
                receiver.came.release()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://hooks.test:{self.server_port}/pasto"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.services)])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    opened = open_store("memory:" if request.param == "memory" else request.getfixturevalue("postgres_url"))
    yield opened
    opened.close()


@pytest.fixture
def row(store: Store) -> StudyRow:
    study = StudyRow("feed", 0, 1, "draft", "{}", 7, 3, 3, NOW, NOW)
    return store.create_study(study, AuditRow(NOW, "ann", "create", ""))


def connect(spec: WebhookSpec) -> Webhook:
    return Webhook(spec, frozenset({"hooks.test"}), resolve=lambda *_: ["127.0.0.1"])


def write(store: Store, row: StudyRow, *specs: WebhookSpec, at: float = NOW) -> None:
    notification = Notification("guardrail_stop", at, "likes fell", "feed", 3, 3, "paused")
    store.write_cache("x", "", Notifier(specs).address(row, [notification]))


def test_a_message_is_signed_and_deleted_once_it_is_delivered(
    receiver: Receiver, store: Store, row: StudyRow, clock: Clock
) -> None:
    spec = WebhookSpec("ops", receiver.url, secret=make_secret())
    write(store, row, spec)
    assert WebhookWorker(store, [connect(spec)], clock=clock).send_due("ops") is None
    (body,), (headers,), (content,) = receiver.bodies, receiver.headers, receiver.contents
    assert body == {
        "id": headers["webhook-id"],
        "event": "guardrail_stop",
        "at": NOW,
        "reason": "likes fell",
        "study": "feed",
        "round": 3,
        "version": 3,
        "state": "paused",
    }
    assert spec.secret is not None
    assert headers["webhook-timestamp"] == str(int(NOW))
    assert headers["webhook-signature"] == sign(spec.secret, body["id"], int(NOW), content)
    assert store.measure_outbox() == []


def test_a_failed_message_is_sent_again_with_its_id_ever_more_rarely(
    receiver: Receiver, store: Store, row: StudyRow, clock: Clock
) -> None:
    receiver.statuses = [500, 302, 200]
    spec = WebhookSpec("ops", receiver.url)
    write(store, row, spec)
    sender = WebhookWorker(store, [connect(spec)], clock=clock)
    assert sender.send_due("ops") == 5.0
    clock.now += 4.9
    sender.send_due("ops")
    assert len(receiver.bodies) == 1
    assert sender.records()[0].last_error == "HTTPException: the receiver answered 500"
    clock.now += 0.2
    sender.send_due("ops")
    clock.now += 20.0
    again = WebhookWorker(store, [connect(spec)], clock=clock)  # as after a restart
    again.send_due("ops")
    assert len({body["id"] for body in receiver.bodies}) == 1
    assert len(receiver.bodies) == 3
    assert store.measure_outbox() == []


def test_a_failing_message_does_not_hold_up_a_later_one(
    receiver: Receiver, store: Store, row: StudyRow, clock: Clock
) -> None:
    receiver.statuses = [500]
    spec = WebhookSpec("ops", receiver.url)
    write(store, row, spec)
    write(store, row, spec, at=NOW + 1.0)
    clock.now += 1.0
    WebhookWorker(store, [connect(spec)], clock=clock).send_due("ops")
    assert [body["at"] for body in receiver.bodies] == [NOW, NOW + 1.0]
    assert [size.messages for size in store.measure_outbox()] == [1]


def test_a_message_is_given_up_after_days_with_a_line_in_the_audit_log(
    receiver: Receiver, store: Store, row: StudyRow, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    spec, removed = WebhookSpec("ops", receiver.url), WebhookSpec("removed", receiver.url)
    write(store, row, spec, removed)
    receiver.statuses = [500]
    sender = WebhookWorker(store, [connect(spec)], clock=clock)
    sender.send_due("ops")
    clock.now += GIVE_UP_SECONDS + 1.0
    sender.send_due("ops")
    assert len(receiver.bodies) == 1
    assert store.measure_outbox() == []
    lines = [line for line in store.read_audit_log(row.number) if line.who == "webhooks"]
    assert {(line.action, line.detail["webhook"], line.detail["attempts"]) for line in lines} == {
        ("give up", "ops", 1),
        ("give up", "removed", 0),
    }
    assert "was given up after 1 attempts" in caplog.text
    samples = {
        (name, labels["webhook"], labels.get("result")): value
        for name, _, value, labels in sender.read_metrics()
        if labels is not None
    }
    assert samples["pasto_webhook_attempts", "ops", "failed"] == 1
    assert samples["pasto_webhook_attempts", "ops", "given_up"] == 1
    assert samples["pasto_webhook_waiting", "ops", None] == 0


def test_two_nodes_do_not_both_send_a_message(receiver: Receiver, store: Store, row: StudyRow, clock: Clock) -> None:
    spec = WebhookSpec("ops", receiver.url)
    write(store, row, spec)
    claimed = store.claim_message("ops", clock.now, clock.now + CLAIM_SECONDS)
    assert claimed is not None
    other = WebhookWorker(store, [connect(spec)], clock=clock)
    other.send_due("ops")
    assert receiver.bodies == []
    clock.now += CLAIM_SECONDS  # the node that claimed it died
    other.send_due("ops")
    assert [body["id"] for body in receiver.bodies] == [claimed.id]


def test_a_slow_receiver_delays_no_other(receiver: Receiver, store: Store, row: StudyRow) -> None:
    slow, fast = WebhookSpec("slow", receiver.url), WebhookSpec("fast", receiver.url)
    waits, ends = threading.Event(), threading.Event()

    class SlowWebhook(Webhook):
        def post(self, message: str, body: str, timestamp: int) -> None:
            waits.set()
            ends.wait(60)

    stuck = SlowWebhook(slow, frozenset({"hooks.test"}), resolve=lambda *_: ["127.0.0.1"])
    sender = WebhookWorker(store, [stuck, connect(fast)], clock=lambda: NOW)
    write(store, row, slow)
    sender.start()
    assert waits.wait(60)
    write(store, row, fast)
    sender.wake()
    assert receiver.came.acquire(timeout=60)
    ends.set()
    sender.stop(60)
    assert store.measure_outbox() == []


def test_each_webhook_gets_its_events_and_studies_in_its_form() -> None:
    specs = [
        WebhookSpec("chat", "https://hooks.example.com/1", events=("guardrail_stop",), format="slack"),
        WebhookSpec("ops", "https://hooks.example.com/2", studies=("shop-*",)),
    ]
    feed = StudyRow("feed", 1, 1, "learning", "{}", 7, 3, 3, NOW, NOW)
    stop = Notification("guardrail_stop", NOW, "<!channel> & co", "feed")
    closed = Notification("round_closed", NOW, "", "feed")
    (message,) = Notifier(specs).address(feed, [stop, closed])
    assert message.webhook == "chat"
    assert json.loads(message.body) == {"text": "*feed*: guardrail stop: &lt;!channel&gt; &amp; co"}
    shop = replace(feed, name="shop-eu")
    assert [message.webhook for message in Notifier(specs).address(shop, [stop, closed])] == ["chat", "ops"]


# Facts of a study


@pytest.fixture
def noticed(document: dict[str, Any], clock: Clock) -> Iterator[Service]:
    """Yield a service with a webhook for all events, whose messages stay in the outbox."""
    spec = WebhookSpec("ops", "https://hooks.example.com/", events=tuple(EVENTS))
    service = Service(open_store("memory:"), clock=clock, monotonic=clock, notifier=Notifier([spec]))
    service.create({**document, "learner": "algorithm1", "guardrails": []}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    yield service
    service.shutdown()


def read_messages(service: Service) -> list[dict[str, Any]]:
    with service.store.read_transaction() as connection:
        rows = connection.execute("SELECT body FROM outbox ORDER BY created_at").fetchall()
    return [json.loads(body) for (body,) in rows]


def test_a_closed_round_is_reported_by_the_node_that_closed_it(noticed: Service, clock: Clock) -> None:
    assert read_messages(noticed) == []
    clock.now += HOUR
    assert noticed.close_if_due("feed") == 1
    (message,) = read_messages(noticed)
    assert (message["event"], message["round"], message["rounds"]) == ("round_closed", 1, [1])
    assert message["reason"] == "Round 1 was closed; rounds learned: 1."


def test_a_step_of_a_ramp_is_reported(noticed: Service) -> None:
    noticed.edit("feed", fields={"traffic.ramp": ["50%", "100%"], "traffic.advance_after": 1}, who="ann")
    noticed.move_ramp("feed", "50%", who="ann")
    policy = noticed.policy_cache.current("feed")
    drawn = {unit: policy.draw(unit) for unit in map(str, range(40))}
    exposures = [
        {"type": "exposure", "id": unit, "unit": unit, "version": policy.version, "candidate": bucket.name}
        for unit, bucket in drawn.items()
        if bucket is not policy.not_enrolled
    ]
    noticed.ingest("feed", noticed.decode(json.dumps(exposures).encode())).result()
    assert "ramp_changed" not in [message["event"] for message in read_messages(noticed)], "a person knows it already"
    noticed.close_round("feed", who="scheduler")
    changed = [message for message in read_messages(noticed) if message["event"] == "ramp_changed"]
    assert [message["reason"] for message in changed] == [
        "The ramp goes from 50% to 100% of the units, step 2: every guardrail held in a round."
    ]


def test_a_source_that_begins_to_fail_is_reported_once() -> None:
    store = open_store("memory:")
    spec = WebhookSpec("ops", "https://hooks.example.com/")
    reported: list[SourceProblem] = []

    def describe(row: StudyRow, problem: SourceProblem) -> list[Any]:
        reported.append(problem)
        notification = Notification("source_failing", 5.0, problem.message, row.name, source=problem)
        return [build_message(spec, notification, row.number)]

    health = SourceHealth(store, lambda: 5.0, describe)
    row = StudyRow("feed", 1, 1, "learning", "{}", 7, 3, 3, 0.0, 0.0)
    for error in ("no such table", "no such table", "no such column"):
        health.record_failure(row, SourceError(error))
    assert [problem.message for problem in reported] == ["no such table"]
    assert [size.messages for size in store.measure_outbox()] == [1]
    health.record_success(row)
    health.record_failure(row, SourceError("no such table"))
    assert [size.messages for size in store.measure_outbox()] == [2]
    store.close()


def test_units_that_do_not_match_their_shares_are_reported_once(noticed: Service, clock: Clock) -> None:
    for _ in range(2):
        policy = noticed.policy_cache.current("feed")
        drawn = {f"u{number}": policy.draw(f"u{number}") for number in range(4000)}
        exposures = [
            {
                "type": "exposure",
                "id": f"{policy.version}/{unit}",
                "unit": unit,
                "version": policy.version,
                "candidate": cell.name,
            }
            for unit, cell in drawn.items()
            if cell.arm != "control"  # the exposures of the control are lost
        ]
        exposures += [{"type": "metric", "id": f"l{e['id']}", "unit": e["unit"], "name": "like"} for e in exposures]
        assert not noticed.ingest("feed", noticed.decode(json.dumps(exposures).encode())).result().rejected
        clock.now += HOUR
        assert noticed.close_if_due("feed") == 1
    (message,) = [message for message in read_messages(noticed) if message["event"] == "sample_ratio_mismatch"]
    assert message["sample_ratio"]["alarm"] is True
    assert message["reason"].startswith("Data broken. Of the units of the arm control ")
    assert message["round"] == 1


def test_a_confirmation_is_reported_when_its_decision_changes() -> None:
    goal = GoalVerdict("watch", True, None, "unclear")
    row = StudyRow("feed", 1, 1, "confirming", "{}", 7, 3, 3, 0.0, 0.0)

    def report(state: Any, *, sequential: bool) -> Any:
        verdict = ConfirmationVerdict(state, True, goal, ())
        return ConfirmationReport("confirming", 3, 1, 0.0, {}, None, sequential, 0.95, "", (), (), None, verdict)

    open_, confirmed = report("inconclusive", sequential=True), report("confirmed", sequential=True)
    ended = report("inconclusive", sequential=False)
    for before, after, expected in (
        (None, open_, []),
        (open_, open_, []),
        (open_, confirmed, ["confirmed"]),
        (confirmed, confirmed, []),
        (None, ended, ["inconclusive"]),
        (open_, ended, ["inconclusive"]),
        (ended, ended, []),
        (None, None, []),
    ):
        found = [*describe_confirmation(row, before, after, 9.0)]
        states = [each.confirmation.state for each in found if each.confirmation is not None]
        assert states == expected


# The file


def test_a_file_names_webhooks_whose_secrets_are_in_the_environment(tmp_path: Any) -> None:
    file = tmp_path / "webhooks.yaml"
    file.write_text(
        "webhooks:\n"
        "  - {name: chat, format: slack, events: [guardrail_stop]}\n"
        "  - {name: ops, url: 'https://ops.example.com/hook', studies: [feed]}\n"
    )
    secret = make_secret()
    environment = {"PASTO_WEBHOOK_CHAT_URL": "https://chat.example.com/T0/B0", "PASTO_WEBHOOK_OPS_SECRET": secret}
    settings = Settings(webhook="https://all.example.com/", webhook_file=str(file))
    webhooks = read_webhooks(settings, environment)
    assert [(webhook.spec.name, webhook.host, webhook.spec.secret) for webhook in webhooks] == [
        ("default", "all.example.com", None),
        ("chat", "chat.example.com", None),
        ("ops", "ops.example.com", secret),
    ]
    assert secret not in repr(webhooks[2].spec)
    assert "T0" not in repr(webhooks[1].spec)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("webhooks: [{name: ops, url: 'https://a.example.com/'}]", "needs a secret in PASTO_WEBHOOK_OPS_SECRET"),
        ("webhooks: [{name: ops, signed: false}]", "write url, or set PASTO_WEBHOOK_OPS_URL"),
        ("webhooks: [{name: ops, events: [stop], signed: false}]", "Invalid enum value 'stop'"),
        ("webhooks: [{name: Ops}]", "name"),
        ("webhooks: [{nam: ops}]", "unknown field `nam`"),
        ("webhooks: [{name: a, url: 'ftp://a.example.com', signed: false}]", "must be a URL"),
        ("webhooks: [", "cannot be read"),
        (
            "webhooks: [{name: a, url: 'https://a.example.com', signed: false},"
            " {name: a, url: 'https://b.example.com', signed: false}]",
            "two webhooks have the name 'a'",
        ),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_reason(text: str, problem: str, tmp_path: Any) -> None:
    file = tmp_path / "webhooks.yaml"
    file.write_text(text)
    with pytest.raises(OptionError, match=problem):
        read_webhooks(Settings(webhook_file=str(file)), {})


def test_a_secret_that_is_too_short_is_refused() -> None:
    settings = Settings(webhook="https://all.example.com/")
    with pytest.raises(OptionError, match="pasto webhook secret"):
        read_webhooks(settings, {"PASTO_WEBHOOK_DEFAULT_SECRET": "whsec_c2hvcnQ="})
