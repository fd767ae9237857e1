"""Data check: rounds without their events are held, not learned as zeros, until events arrive or a person decides."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any

import pytest

from pasto.errors import LifecycleError, OptionError
from pasto.report.records import write_record
from pasto.service.close_record import CloseSummary
from pasto.service.notifications import Notifier
from pasto.service.service import Service
from pasto.service.study_state import StudyState
from pasto.service.webhook import WebhookSpec
from pasto.store import open_store
from pasto_sdk.policy import PublishedPolicy

Document = dict[str, Any]
USERS = 300


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service(clock: Clock) -> Iterator[Service]:
    notifier = Notifier([WebhookSpec("ops", "https://hooks.example.com/")])
    service = Service(open_store("memory:"), clock=clock, monotonic=clock, notifier=notifier)
    yield service
    service.shutdown()


@pytest.fixture
def begin(service: Service, document: Document) -> Callable[..., Service]:
    """Start the study, with the given `rounds`, and close two healthy rounds."""

    def begun(healthy: int = 2, **rounds: str) -> Service:
        service.create({**document, "guardrails": [], "rounds": {"every": "1h", **rounds}}, who="ann", seed=7)
        service.change("feed", "start", who="ann")
        for _ in range(healthy):
            send(service, ("exposure", "watch", "like"))
            close(service)
        return service

    return begun


def send(
    service: Service,
    kinds: tuple[str, ...],
    version: int | None = None,
    users: int = USERS,
    only: Container[str] | None = None,
) -> None:
    """Send events of these kinds for one policy, the current one if none is named."""
    version = service.policy_cache.current("feed").version if version is None else version
    number = service.store.read_study("feed").number  # type: ignore[union-attr]
    policy = service.store.read_policy(number, version)
    assert policy is not None
    drawn = PublishedPolicy.from_text(policy.document, policy.checksum)
    found: list[dict[str, Any]] = []
    for user in range(users):
        if only is not None and f"user {user}" not in only:
            continue
        cell = drawn.draw(f"user {user}")
        rng = random.Random(1000 * version + user)
        about = {"unit": f"user {user}", "version": version, "candidate": cell.name}
        if "exposure" in kinds:
            found.append({"type": "exposure", "id": f"e{version}/{user}", **about})
        if "watch" in kinds:
            fields = {"seconds": 5.0 + rng.gauss(0, 1)}
            found.append({"type": "metric", "id": f"w{version}/{user}", "name": "watch", "fields": fields, **about})
        if "like" in kinds and rng.random() < 0.5:
            found.append({"type": "metric", "id": f"l{version}/{user}", "name": "like", **about})
    taken = service.ingest("feed", service.decode(json.dumps({"events": found}).encode())).result(60.0)
    assert taken.rejected == ()


def close(service: Service) -> CloseSummary:
    service._clock.now += 3600.0  # type: ignore[attr-defined]
    return service.close_round("feed", who="ann")


def replayed(service: Service) -> bool:
    return bool(service.replay("feed").identical)


@pytest.mark.parametrize("kinds", [("exposure",), ("exposure", "watch")])
def test_a_round_without_events_is_held_back(begin: Callable[..., Service], kinds: tuple[str, ...]) -> None:
    service = begin()
    before = write_record(service.report("feed"))["blend"]
    send(service, kinds)
    done = close(service)
    assert (done.learned_from, done.held) == ((), (3,))
    assert "round 3 is held back" in done.problems[0]
    assert write_record(service.report("feed"))["rounds_learned"] == 2
    assert write_record(service.report("feed"))["blend"]["metrics"] == before["metrics"]
    (held,) = service.show("feed").held
    likes = next(finding for finding in held.findings if finding.column == "likes")
    assert (likes.units, likes.seen) == (USERS, 0.0)
    assert likes.expected == pytest.approx(0.5 * USERS, rel=0.15)
    assert service.report("feed").held == service.show("feed").held
    with service.store.read_transaction() as connection:
        ((body,),) = connection.execute("SELECT body FROM outbox").fetchall()
    message = json.loads(body)
    assert (message["event"], message["rounds"]) == ("round_held", [3])
    assert service.audit("feed")[-1].detail["held"] == [3]
    assert replayed(service)


def test_the_study_continues_and_learns_the_round_once_its_events_are_there(begin: Callable[..., Service]) -> None:
    service = begin()
    send(service, ("exposure",))
    close(service)
    send(service, ("exposure", "watch", "like"))
    done = close(service)
    assert (done.learned_from, done.held) == ((4,), (3,))
    send(service, ("watch", "like"), version=3)
    send(service, ("exposure", "watch", "like"))
    done = close(service)
    assert (done.learned_from, done.held, done.problems) == ((3, 5), (), ())
    assert write_record(service.report("feed"))["rounds_learned"] == 5
    assert service.show("feed").held == ()
    assert replayed(service)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.services)])
def test_held_rounds_on_other_stores(
    request: pytest.FixtureRequest, document: Document, clock: Clock, tmp_path: Path, kind: str
) -> None:
    place = str(tmp_path / "store") if kind == "sqlite" else request.getfixturevalue("postgres_url")
    service = Service(open_store(place), clock=clock, monotonic=clock)
    service.create({**document, "guardrails": []}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    for kinds in (("exposure", "watch", "like"), ("exposure",), ("exposure",)):
        send(service, kinds)
        close(service)
    service.shutdown()
    service = Service(open_store(place), clock=clock, monotonic=clock)
    service.resolve_round("feed", 2, "discard", who="bob", reason="lost")
    send(service, ("watch", "like"), version=3)
    assert close(service).learned_from == (3, 4)
    assert replayed(service)
    service.shutdown()


def test_a_first_round_without_any_event_is_held_back(begin: Callable[..., Service]) -> None:
    service = begin(healthy=0)
    send(service, ("exposure",), users=1000)
    assert close(service).held == (1,)
    send(service, ("watch", "like"), version=1, users=1000)
    assert close(service).learned_from == (1, 2)
    assert replayed(service)


@pytest.mark.parametrize(("resolution", "rounds_learned"), [("learn", 4), ("discard", 3)])
def test_a_person_resolves_it(begin: Callable[..., Service], resolution: str, rounds_learned: int) -> None:
    service = begin()
    send(service, ("exposure",))
    close(service)
    overview = service.resolve_round("feed", 3, resolution, who="bob", reason="the job failed")
    assert overview.held[0].resolution == resolution
    line = service.audit("feed")[-1]
    assert (line.who, line.action, line.reason) == ("bob", "resolve", "the job failed")
    assert (line.detail["held_round"], line.detail["resolution"]) == (3, resolution)
    assert line.detail["findings"]
    send(service, ("exposure", "watch", "like"))
    done = close(service)
    assert done.learned_from == ((3, 4) if resolution == "learn" else (4,))
    assert write_record(service.report("feed"))["rounds_learned"] == rounds_learned
    assert service.show("feed").held == ()
    send(service, ("watch", "like"), version=3)  # too late: this round learns nothing more
    send(service, ("exposure", "watch", "like"))
    assert close(service).learned_from == (5,)
    assert replayed(service)


def test_a_level_that_a_person_took_as_it_is_is_not_asked_about_again(begin: Callable[..., Service]) -> None:
    service = begin()
    for _ in range(2):
        send(service, ("exposure", "watch"))
        close(service)
    assert [one.round for one in service.show("feed").held] == [3, 4]
    service.resolve_round("feed", 3, "learn", who="bob", reason="likes were removed")
    send(service, ("exposure", "watch"))
    done = close(service)
    assert (done.learned_from, done.held) == ((3, 4, 5), ())
    assert replayed(service)


def test_late_corrections_continue_next_to_a_held_round(begin: Callable[..., Service]) -> None:
    service = begin(accept_late="5h")
    send(service, ("exposure",))
    close(service)
    send(service, ("exposure", "watch", "like"), users=USERS - 10)
    assert close(service).learned_from == (4,)
    send(service, ("watch", "like"), version=3)
    send(service, ("exposure", "watch", "like"), version=4)
    send(service, ("exposure", "watch", "like"))
    done = close(service)
    assert (done.learned_from, done.corrected) == ((3, 5), (4,))
    row = service.store.read_study("feed")
    assert row is not None
    assert [one.waiting.round for one in StudyState.from_text(row.details).correctable] == [1, 2, 4, 3, 5]
    for _ in range(7):
        send(service, ("exposure", "watch", "like"))
        assert close(service).problems == ()
    assert write_record(service.report("feed"))["rounds_learned"] == 12
    assert replayed(service)


def test_a_round_that_matures_is_checked_when_it_is_learned(begin: Callable[..., Service]) -> None:
    service = begin(healthy=4, maturity="2h")
    send(service, ("exposure",))
    assert close(service).learned_from == (3,)
    for _ in range(2):
        send(service, ("exposure", "watch", "like"))
        done = close(service)
    assert (done.learned_from, done.held) == ((), (5,))
    send(service, ("watch", "like"), version=5)
    send(service, ("exposure", "watch", "like"))
    assert close(service).learned_from == (5, 6)
    assert replayed(service)


def test_a_study_stands_still_before_a_held_round_is_forgotten(
    begin: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = begin()
    monkeypatch.setattr("pasto.service.study_file.StudySpec.max_maturing_rounds", 2)
    for _ in range(2):
        send(service, ("exposure",))
        close(service)
    with pytest.raises(LifecycleError, match="pasto round resolve"):
        close(service)
    assert service.close_if_due("feed") == 0
    service.resolve_round("feed", 3, "discard", who="bob", reason="lost")
    send(service, ("exposure", "watch", "like"))
    assert close(service).learned_from == (5,)


def test_a_pause_leaves_a_held_round_as_it_is(begin: Callable[..., Service]) -> None:
    service = begin()
    send(service, ("exposure",))
    close(service)
    service.change("feed", "pause", who="ann", reason="lunch")
    assert [one.round for one in service.show("feed").held] == [3]
    service.resolve_round("feed", 3, "discard", who="bob", reason="lost")
    service.change("feed", "resume", who="ann")
    assert service.show("feed").held == ()
    assert replayed(service)


def test_what_cannot_be_resolved(begin: Callable[..., Service]) -> None:
    service = begin()
    with pytest.raises(OptionError, match="round 2 of study 'feed' is not held back; held rounds: none"):
        service.resolve_round("feed", 2, "learn", who="bob", reason="because")
    send(service, ("exposure",))
    close(service)
    with pytest.raises(OptionError, match="needs a reason"):
        service.resolve_round("feed", 3, "learn", who="bob", reason=" ")
    with pytest.raises(OptionError, match="learn or discard"):
        service.resolve_round("feed", 3, "forget", who="bob", reason="because")
    service.change("feed", "archive", who="ann", reason="over")
    with pytest.raises(LifecycleError, match="archived"):
        service.resolve_round("feed", 3, "learn", who="bob", reason="because")


def test_the_report_shows_what_was_expected_and_what_came(begin: Callable[..., Service]) -> None:
    from pasto.report.text import render_text

    service = begin()
    send(service, ("exposure", "watch"))
    close(service)
    report = service.report("feed")
    assert "Rounds held back" in render_text(report)
    line = next(line for line in render_text(report).splitlines() if line.strip().startswith("3") and "likes" in line)
    assert "to be decided" in line


def test_an_effect_that_the_control_does_not_share_is_learned(begin: Callable[..., Service]) -> None:
    service = begin(healthy=4)
    policy = service.policy_cache.current("feed")
    control = {f"user {user}" for user in range(USERS) if policy.draw(f"user {user}").arm == "control"}
    assert len(control) > 10
    send(service, ("exposure", "watch"))
    send(service, ("like",), only=control)
    done = close(service)
    assert (done.learned_from, done.held) == ((5,), ())
