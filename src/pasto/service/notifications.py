"""Notifications: facts about studies that webhooks report, as records, and as the messages that the outbox holds."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from pasto.report.lift_records import ConfirmationReport, ConfirmationVerdict, SampleRatioReport
from pasto.report.records import ArmVerdict, SourceProblem, write_record
from pasto.report.summary import describe_mismatch, describe_source_problem
from pasto.report.verdict_text import verdict_text
from pasto.service.rounds.close import StudyTransition
from pasto.service.rounds.data_quality_check import show_sender
from pasto.service.webhook import TEST_EVENT, WebhookSpec
from pasto.store import OutboxRow, StudyRow

SLACK_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@dataclass(frozen=True, slots=True)
class SenderName:
    """Sender of events: an API key or a source."""

    kind: str
    name: str | None


@dataclass(frozen=True, slots=True)
class Notification:
    """Fact about a study; parts that an event does not have are None, and left out of its message."""

    event: str
    at: float
    reason: str
    """One or more sentences for people."""
    study: str | None = None
    round: int | None = None
    version: int | None = None
    state: str | None = None
    rounds: tuple[int, ...] | None = None
    """The rounds that a close learned, or that are held."""
    verdicts: tuple[ArmVerdict, ...] | None = None
    confirmation: ConfirmationVerdict | None = None
    sample_ratio: SampleRatioReport | None = None
    source: SourceProblem | None = None
    sender: SenderName | None = None

    def to_json(self, message: str) -> str:
        """Return the body of a message.

        >>> Notification("test", 0.5, "This is a test.").to_json("msg_1")
        '{"id":"msg_1","event":"test","at":0.5,"reason":"This is a test."}'
        """
        document = write_record(self)
        present = {part.name: document[part.name] for part in fields(self) if document[part.name] is not None}
        return json.dumps({"id": message, **present}, separators=(",", ":"), ensure_ascii=False)

    def to_slack(self) -> str:
        """Return the body for a chat that takes messages as Slack does.

        >>> Notification("guardrail_stop", 0.5, "likes < -15%", "feed", 4, 4, "paused").to_slack()
        '{"text":"*feed*: guardrail stop (round 4, paused): likes &lt; -15%"}'
        """
        place = "" if self.study is None else f"*{self.study}*: "
        details = [f"round {self.round}"] if self.round is not None else []
        details += [self.state] if self.state is not None else []
        after = f" ({', '.join(details)})" if details else ""
        head = f"{place}{self.event.replace('_', ' ')}{after}"
        text = f"{head}: {self.reason}".translate(SLACK_ESCAPES)
        return json.dumps({"text": text}, separators=(",", ":"), ensure_ascii=False)


class Notifier:
    """Writer of messages: it addresses each notification to the webhooks that want it.

    >>> notifier = Notifier([WebhookSpec("ops", "https://hooks.example.com/", studies=("feed",))])
    >>> row = StudyRow("feed", 1, 1, "learning", "{}", 7, 3, 3, 0.0, 0.0)
    >>> [message.webhook for message in notifier.address(row, [Notification("round_held", 5.0, "", "feed")])]
    ['ops']
    >>> notifier.address(row, [Notification("round_closed", 5.0, "", "feed")])
    []
    """

    def __init__(self, webhooks: Sequence[WebhookSpec], wake: Callable[[], None] = lambda: None) -> None:
        self._webhooks = tuple(webhooks)
        self.wake = wake
        """Called after messages were committed."""

    def wants(self, event: str, study: str) -> bool:
        """Return whether some webhook reports an event of a study."""
        return any(webhook.wants(event, study) for webhook in self._webhooks)

    def address(self, row: StudyRow, notifications: Sequence[Notification]) -> list[OutboxRow]:
        """Return one message for each webhook that wants a notification; each has an id of its own."""
        return [
            build_message(webhook, notification, row.number)
            for notification in notifications
            for webhook in self._webhooks
            if webhook.wants(notification.event, row.name)
        ]


def build_message(webhook: WebhookSpec, notification: Notification, study: int) -> OutboxRow:
    """Return a message in the form of its webhook, due at once."""
    identity = f"msg_{secrets.token_hex(16)}"
    body = notification.to_slack() if webhook.format == "slack" else notification.to_json(identity)
    return OutboxRow(identity, study, webhook.name, notification.event, body, notification.at, notification.at)


def build_trial(now: float) -> Notification:
    """Return the notification that tries a webhook out."""
    return Notification(TEST_EVENT, now, "This is a test: messages of PASTO arrive here.")


def describe_close(before: StudyRow, transition: StudyTransition, now: float) -> Iterator[Notification]:
    """Yield the notifications of a close: the round itself, the guardrail monitor, senders and held rounds."""
    after = transition.after
    about = Notification("", now, "", before.name, before.round, before.version, after.state)
    if transition.close is not None:
        learned = ", ".join(map(str, transition.learned_from)) or "none"
        reason = f"Round {before.round} was closed; rounds learned: {learned}."
        yield replace(about, event="round_closed", reason=reason, rounds=transition.learned_from)
    verdicts = transition.guardrails.verdicts
    if transition.trip is not None:
        yield replace(about, event="guardrail_stop", reason=transition.trip, verdicts=verdicts)
    elif transition.warned:
        reason = f"guardrail monitor: {', '.join(transition.warned)} may soon reach its stop level"
        yield replace(about, event="guardrail_warning", reason=reason, verdicts=verdicts)
    if transition.ramp_change is not None:
        yield replace(about, event="ramp_changed", reason=transition.ramp_change, verdicts=verdicts)
    for kind, name in sorted(transition.newly_departed):
        sender = SenderName(kind.removesuffix("s"), show_sender(name))
        reason = f"units of {sender.kind} {sender.name or 'none'} depart from those of other senders"
        yield replace(about, event="sender_departure", reason=reason, sender=sender)
    if transition.newly_held:
        reason = f"held back for lack of events: round {', '.join(map(str, transition.newly_held))}"
        yield replace(about, event="round_held", reason=reason, rounds=transition.newly_held)


def describe_confirmation(
    row: StudyRow, before: ConfirmationReport | None, after: ConfirmationReport | None, now: float
) -> Iterator[Notification]:
    """Yield a notification if a look decides a confirmation, or changes the decision of an earlier look."""
    if after is None or not _is_decided(after):
        return
    was_decided = before is not None and before.version == after.version and _is_decided(before)
    if before is not None and was_decided and before.verdict.state == after.verdict.state:
        return
    reason = " ".join(verdict_text(after.verdict))
    yield Notification(
        "confirmation_decided",
        now,
        reason,
        row.name,
        row.round,
        row.version,
        row.state,
        confirmation=after.verdict,
        sample_ratio=after.sample_ratio,
    )


def describe_sample_ratio(row: StudyRow, sample_ratio: SampleRatioReport, now: float) -> Notification:
    """Return the notification about units that do not match their shares."""
    reason = f"Data broken. {describe_mismatch(sample_ratio)}"
    return Notification(
        "sample_ratio_mismatch", now, reason, row.name, row.round, row.version, row.state, sample_ratio=sample_ratio
    )


def describe_failing_source(row: StudyRow, problem: SourceProblem) -> Notification:
    """Return the notification about a study's own tables that cannot be read."""
    reason = f"Data broken. {describe_source_problem(problem)}"
    return Notification(
        "source_failing", problem.since, reason, row.name, row.round, row.version, row.state, source=problem
    )


def _is_decided(report: ConfirmationReport) -> bool:
    """Return whether a confirmation has its verdict: at its horizon, or as soon as an interval shows it."""
    return not report.sequential or report.verdict.state in ("confirmed", "failed")


def list_phases(text: str | None) -> list[str]:
    """Return the phases of a study whose sample ratio was reported, from their cached value."""
    phases: list[Any] = json.loads(text or "[]")
    return [str(phase) for phase in phases]
