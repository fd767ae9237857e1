"""Enrolment in the service: who takes part, the exposures that count, and replays of both rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pasto.errors import StudyFileError
from pasto.service.ingest import BatchResult, DrawnUnit
from pasto.service.service import Service
from pasto.service.study_state import StudyState
from pasto.store import AuditRow

Document = dict[str, Any]
Traffic = Callable[[Service, int], list[dict[str, Any]]]


@pytest.fixture
def partial(service: Service, document: Document) -> Service:
    """Return a service with a study in which a quarter of all units take part."""
    service.create({**document, "traffic": {"control": "20%", "explore": "25%"}}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    return service


def ingest(service: Service, events: list[dict[str, Any]], *, hides_draw: bool = False) -> BatchResult:
    batch = service.decode(msgspec.json.encode(events))
    return service.ingest("feed", batch, hides_draw=hides_draw).result()


def enrolled_events(service: Service, traffic: Traffic, users: int = 800) -> list[dict[str, Any]]:
    policy = service.policy_cache.current("feed")
    return [event for event in traffic(service, users) if policy.draw(event["unit"]) is not policy.not_enrolled]


def test_exposures_of_units_outside_are_rejected_and_their_metric_events_left_out(
    partial: Service, traffic: Traffic
) -> None:
    events = traffic(partial, 400)
    policy = partial.policy_cache.current("feed")
    outside = {event["id"] for event in events if policy.draw(event["unit"]) is policy.not_enrolled}
    answer = ingest(partial, events)
    assert {rejection.id for rejection in answer.rejected} == {name for name in outside if name.startswith("e")}
    assert "unit is not enrolled in version 1" in answer.rejected[0].reason
    partial.close_round("feed", who="bob")
    exposures = sum(event["type"] == "exposure" and event["id"] not in outside for event in events)
    assert partial.rounds("feed")[-1].units == exposures
    accounting = partial.report("feed").accounting
    assert accounting is not None
    assert accounting.events.exposures == exposures
    assert accounting.events.excluded == sum(name.startswith("w") for name in outside)
    assert partial.replay("feed").identical


def test_answers_do_not_reveal_the_enrolment_to_senders_without_the_scope_evaluate(
    partial: Service, traffic: Traffic
) -> None:
    events = [event for event in traffic(partial, 100) if event["type"] == "exposure"]
    answer = ingest(partial, events, hides_draw=True)
    assert (answer.accepted, answer.rejected) == (100, ())
    partial.close_round("feed", who="bob")
    policy = partial.policy_cache.current("feed")
    assert partial.rounds("feed")[-1].units == sum(
        policy.draw(event["unit"]) is not policy.not_enrolled for event in events
    )
    assert partial.show("feed").rejected.events > 50


def test_the_service_logs_no_exposure_of_a_unit_outside(partial: Service) -> None:
    policy = partial.policy_cache.current("feed")
    units = [f"user {number}" for number in range(200)]
    partial.expose_all("feed", policy, [DrawnUnit(unit, policy.draw(unit)) for unit in units])
    ingest(partial, [{"type": "metric", "id": "later", "unit": "ann", "name": "like"}])  # written after the exposures
    partial.close_round("feed", who="bob")
    inside = sum(policy.draw(unit) is not policy.not_enrolled for unit in units)
    assert partial.rounds("feed")[-1].units == inside
    assert 20 < inside < 80


def test_phases_of_a_partial_study_replay_and_report_a_sound_sample_ratio(partial: Service, traffic: Traffic) -> None:
    for _ in range(3):
        assert ingest(partial, enrolled_events(partial, traffic)).rejected == ()
        partial.close_round("feed", who="bob")
    enrolled = partial.policy_cache.current("feed").enrolment
    report = partial.report("feed")
    assert report.quality is not None
    assert report.quality.sample_ratio is not None
    assert not report.quality.sample_ratio.alarm
    partial.change("feed", "confirm", who="ann")
    confirming = partial.policy_cache.current("feed")
    assert confirming.enrolment == enrolled
    ingest(partial, enrolled_events(partial, traffic))
    partial.close_round("feed", who="bob")
    partial.change("feed", "deploy", who="ann", without_confirmation=True, reason="a test")
    assert partial.policy_cache.current("feed").enrolment == ()
    partial.change("feed", "pause", who="ann", reason="lunch")
    assert partial.policy_cache.current("feed").enrolment == ()
    partial.change("feed", "archive", who="ann")
    assert partial.replay("feed").identical


def test_a_replay_fails_if_the_rule_of_enrolment_is_another_one(partial: Service, traffic: Traffic) -> None:
    ingest(partial, enrolled_events(partial, traffic))
    partial.close_round("feed", who="bob")
    row = partial.store.read_study("feed")
    assert row is not None
    assert StudyState.from_text(row.details).slices_since == 1
    details = StudyState.from_text(row.details).to_text().replace('"slices_since":1', '"slices_since":null')
    changed = replace(row, generation=row.generation + 1, details=details)
    assert partial.store.update_study(row, changed, audit=[AuditRow(0.0, "ann", "test", "", {})])
    assert not partial.replay("feed").identical


AUDIENCE = {"country": ["de", "at"], "tenure_days": ">= 7", "employee": False}
INSIDE = {"country": "at", "tenure_days": 30, "employee": False}


@pytest.fixture
def targeted(service: Service, document: Document) -> Service:
    """Return a service with a study of an audience."""
    service.create({**document, "audience": AUDIENCE}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    return service


def send_audience(service: Service, users: int = 300) -> None:
    """Send the events of users who meet the audience, and close the round."""
    policy = service.policy_cache.current("feed")
    events: list[dict[str, Any]] = []
    for number in range(users):
        unit, version = f"user {number}", policy.version
        drawn = {"unit": unit, "version": version, "candidate": policy.redraw(unit).name}
        fields = {"seconds": float(number % 7)}
        events.append({"type": "exposure", "id": f"e{version}/{number}", **drawn})
        events.append({"type": "metric", "id": f"w{version}/{number}", "name": "watch", "fields": fields, **drawn})
    assert not ingest(service, events).rejected
    service.close_round("feed", who="bob")


def test_the_policy_asks_for_the_audience_in_every_state(targeted: Service) -> None:
    for _ in range(2):
        send_audience(targeted)
    policies = [targeted.policy_cache.current("feed")]
    for action, options in (
        ("confirm", {}),
        ("pause", {"reason": "lunch"}),
        ("resume", {}),
        ("deploy", {"without_confirmation": True, "reason": "a test"}),
    ):
        targeted.change("feed", action, who="ann", **options)
        policies.append(targeted.policy_cache.current("feed"))
    for policy in policies:
        assert [condition.attribute for condition in policy.audience] == ["country", "tenure_days", "employee"]
        assert policy.draw("ann", INSIDE) is not policy.not_enrolled
        for outside in ({}, {**INSIDE, "country": "fr"}, {**INSIDE, "tenure_days": 6}, {**INSIDE, "employee": True}):
            assert policy.draw("ann", outside) is policy.not_enrolled
    assert targeted.replay("feed").identical


def test_exposures_count_without_attributes_which_events_do_not_have(targeted: Service) -> None:
    send_audience(targeted)
    assert targeted.rounds("feed")[-1].units == 300


def test_the_audience_of_a_running_study_changes_with_the_next_policy(targeted: Service) -> None:
    send_audience(targeted)
    edited = targeted.edit("feed", fields={"audience.country": ["de", "fr"], "audience.employee": None}, who="bob")
    assert [change.field for change in edited.changes or ()] == ["audience"]
    policy = targeted.policy_cache.current("feed")
    assert policy.draw("ann", {"country": "fr", "tenure_days": 8}) is not policy.not_enrolled
    send_audience(targeted)
    removed = targeted.edit("feed", fields={"audience": None}, who="bob")
    assert "audience" not in removed.document
    assert targeted.policy_cache.current("feed").audience == ()
    send_audience(targeted)
    targeted.change("feed", "confirm", who="ann")
    with pytest.raises(StudyFileError, match="units keep their arm"):
        targeted.edit("feed", fields={"audience": {"country": "de"}}, who="bob")
    assert targeted.replay("feed").identical


def test_without_a_control_the_audience_of_a_running_study_stays(service: Service, document: Document) -> None:
    service.create({**document, "traffic": {"control": 0}}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    with pytest.raises(StudyFileError, match="without a control the learner would take the means of other units"):
        service.edit("feed", fields={"audience": {"country": "de"}}, who="bob")
