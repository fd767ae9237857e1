"""Event validator: accepted and refused events; every claim that can be verified is verified."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pasto.errors import LifecycleError, UnknownStudyError
from pasto.report.records import write_record
from pasto.service.ingest import BatchResult
from pasto.service.service import Service
from pasto.store import open_store
from pasto_sdk.policy_document import Bucket

Traffic = Callable[[Service, int], list[dict[str, Any]]]


def _send(service: Service, *events: dict[str, Any], name: str = "feed") -> BatchResult:
    return service.ingest(name, service.decode(json.dumps(events).encode())).result()


def _drawn(service: Service, unit: str = "ann") -> tuple[dict[str, Any], Bucket]:
    policy = service.policy_cache.current("feed")
    cell = policy.draw(unit)
    event = {"type": "exposure", "id": f"e/{unit}", "unit": unit, "version": policy.version, "candidate": cell.name}
    return event, cell


def _rows(service: Service) -> list[tuple[Any, ...]]:
    with service.store.read_transaction() as connection:
        cursor = connection.execute(
            "SELECT id, version, arm, candidate, fields, excluded FROM events ORDER BY sequence"
        )
        return list(cursor.fetchall())


def test_an_exposure_is_stored_with_the_recomputed_arm(learning: Service) -> None:
    event, cell = _drawn(learning)
    assert _send(learning, event) == BatchResult(1, 0, ())
    assert _send(learning, event) == BatchResult(0, 1, ())
    assert _rows(learning) == [("e/ann", 1, cell.arm, cell.candidate, None, 0)]


def test_another_event_under_a_used_id_is_refused_as_a_conflict(learning: Service) -> None:
    squatted = {"type": "metric", "id": "order-1", "unit": "mallory", "name": "like", "source": "shop"}
    honest = {**squatted, "unit": "ann"}
    event, _ = _drawn(learning)
    assert _send(learning, squatted).accepted == 1
    batch = [{"type": "click"}, event, honest, squatted, {**honest, "source": "web"}]
    answer = _send(learning, *batch)
    assert (answer.accepted, answer.duplicates) == (2, 1)
    assert [(one.index, one.id) for one in answer.rejected] == [(0, None), (2, "order-1")]
    assert answer.rejected[1].reason.startswith("conflict: ")
    assert answer.accepted + answer.duplicates + len(answer.rejected) == len(batch)
    rejected = write_record(learning.report("feed"))["accounting"]["rejected"]
    assert rejected["events"] == 2
    assert sorted(one["reason"][:9] for one in rejected["reasons"]) == ["conflict:", "type is '"]


def test_a_retry_may_list_its_fields_in_another_order(learning: Service) -> None:
    event = {"type": "metric", "id": "w", "unit": "ann", "name": "watch", "fields": {"seconds": 3, "page": "a"}}
    assert _send(learning, event).accepted == 1
    again = {**event, "fields": {"page": "a", "seconds": 3}}
    assert _send(learning, again) == BatchResult(0, 1, ())


def test_ids_of_the_services_own_exposures_cannot_be_taken(learning: Service) -> None:
    policy = learning.policy_cache.current("feed")
    taken = {"type": "metric", "id": f"served/{policy.version}/ann", "unit": "ann", "name": "like"}
    (refused,) = _send(learning, taken).rejected
    assert "id begins with 'served/'" in refused.reason
    learning.expose("feed", policy, "ann", policy.draw("ann"))
    learning.store.append_events(0, ()).result()
    assert [row[0] for row in _rows(learning)] == [f"served/{policy.version}/ann"]


def test_forged_exposures_are_refused(learning: Service) -> None:
    event, cell = _drawn(learning)
    other = next(name for name in ("w=0", "w=1", "w=2", "w=3") if name != cell.name)
    answer = _send(
        learning,
        {**event, "candidate": other},
        {**event, "candidate": "w=9"},
        {**event, "version": 2},
        {**event, "version": 0},
        {**event, "propensity": 1e-6},
    )
    assert answer.accepted == 0
    reasons = [refusal.reason for refusal in answer.rejected]
    assert "is not what version 1 draws for this unit" in reasons[0]
    assert "which version 1 does not serve" in reasons[1]
    assert "version is 2, which study 'feed' never published" in reasons[2]
    assert "version is 0" in reasons[3]
    assert "propensity is not a field" in reasons[4]
    assert [refusal.index for refusal in answer.rejected] == [0, 1, 2, 3, 4]
    assert {refusal.id for refusal in answer.rejected} == {"e/ann"}
    assert _rows(learning) == []


def test_a_caller_without_evaluate_gets_the_same_answer_for_any_draw(learning: Service) -> None:
    event, cell = _drawn(learning)
    metric = {"type": "metric", "unit": "ann", "name": "like", "version": 1}

    def send(event: dict[str, Any]) -> BatchResult:
        batch = learning.decode(json.dumps([event]).encode())
        return learning.ingest("feed", batch, key="ab12", hides_draw=True).result(timeout=60)

    for kind in (event, metric):
        answers = [
            [send({**kind, "id": f"{kind['type']}/{name}", "candidate": name}) for _ in range(2)]
            for name in ("w=0", "w=1", "w=2", "w=3", "w=9")
        ]
        assert all(answer == answers[0] for answer in answers), answers
        assert [one.accepted for one in answers[0]] == [1, 0]
    excluded = {row[0]: row[5] for row in _rows(learning)}
    assert [name for name, is_excluded in excluded.items() if not is_excluded] == [
        f"exposure/{cell.name}",
        f"metric/{cell.name}",
    ]
    assert learning.store.count_rejections_by_key(1) == {"ab12": 8}, "a resend is not counted again"
    rejected = write_record(learning.report("feed"))["accounting"]["rejected"]
    assert any("is not what version" in one["reason"] for one in rejected["reasons"])


def test_a_caller_that_may_not_know_the_draw_does_not_learn_it_by_tallies_ids_or_conflicts(learning: Service) -> None:
    event, _ = _drawn(learning)
    names = ("w=0", "w=1", "w=2", "w=3", "w=9")

    def send(*events: dict[str, Any]) -> BatchResult:
        batch = learning.decode(json.dumps(events).encode())
        return learning.ingest("feed", batch, key="ab12", hides_draw=True).result(timeout=60)

    tally = {"type": "exposure_counts", "source": "web-1", "version": 1}
    for place, name in enumerate(("w=0", "w=9")):
        counted = {**tally, "id": f"served/{place}", "sequence": place + 1, "assigned": {name: 3}}
        assert send(counted) == BatchResult(1, 0, ())
    assert [row.assigned for row in learning.store.list_sender_counts(1, 1)] == ['{"w=0":3}']
    reasons = write_record(learning.report("feed"))["accounting"]["rejected"]["reasons"]
    assert any("does not serve" in one["reason"] for one in reasons)
    reserved = [send({**event, "id": "served/1", "candidate": name}).rejected for name in names]
    assert all(refused and refused == reserved[0] for refused in reserved), reserved
    for name in names:
        first = {**event, "id": f"x/{name}", "candidate": name}
        again = send(first, {**first, "unit": "bob"})
        assert (again.accepted, [one.index for one in again.rejected]) == (1, [1]), again


def test_fallbacks_and_overrides_are_stored_and_excluded(learning: Service) -> None:
    event, cell = _drawn(learning)
    other = next(name for name in ("w=0", "w=1", "w=2", "w=3") if name != cell.name)
    answer = _send(
        learning,
        {**event, "id": "1", "fallback": True, "version": 0, "candidate": "an unknown candidate"},
        {**event, "id": "2", "fallback": True, "candidate": "w=1"},
        {**event, "id": "3", "override": True, "candidate": other},
        {**event, "id": "4", "override": True, "candidate": "w=9"},
        {**event, "id": "5", "override": True, "version": 7, "candidate": other},
        {**event, "id": "6", "fallback": True, "version": 7},
    )
    assert [refusal.index for refusal in answer.rejected] == [3, 4, 5]
    assert [(row[0], row[1], row[2], row[5]) for row in _rows(learning)] == [
        ("1", 0, None, 1),
        ("2", 1, None, 1),
        ("3", 1, None, 1),
    ]


def test_metric_events_are_credited_by_version_or_by_the_latest_exposure(learning: Service) -> None:
    event, cell = _drawn(learning)
    liked = {"type": "metric", "unit": "ann", "name": "like"}
    answer = _send(
        learning,
        {**liked, "id": "before any exposure"},
        event,
        {**liked, "id": "by unit"},
        {**liked, "id": "by version", "version": 1},
        {**liked, "id": "by both", "version": 1, "candidate": cell.name},
        {**liked, "id": "nobody's", "version": 0},
        {**liked, "id": "half", "candidate": cell.name},
        {**liked, "id": "forged", "version": 1, "candidate": "w=9"},
        {**liked, "id": "unknown", "version": 8},
    )
    assert [refusal.id for refusal in answer.rejected] == ["half", "forged", "unknown"]
    credit = (1, cell.arm, cell.candidate)
    assert {row[0]: row[1:4] for row in _rows(learning)} == {
        "before any exposure": (None, None, None),
        "e/ann": credit,
        "by unit": credit,
        "by version": credit,
        "by both": credit,
        "nobody's": (0, None, None),
    }


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("wtach", {}, "name is 'wtach', which no metric of this study reads; its metrics read 'like', 'watch'"),
        ("watch", {}, "fields.seconds is missing, which a metric reads from every 'watch'"),
        ("watch", {"seconds": "31"}, "fields.seconds is '31'; a metric reads it as a number"),
        ("watch", {"seconds": True}, "fields.seconds is True; a metric reads it as a number"),
        ("watch", {"seconds": 1e16}, "fields.seconds is 1e+16; a number must be finite and at most 1e+15"),
        ("watch", {"seconds": 10**30}, "must be finite and at most"),
        ("watch", {"seconds": float("nan")}, "fields.seconds is nan"),
        ("like", {"other": float("-inf")}, "fields.other is -inf"),
    ],
)
def test_values_that_cannot_be_measured_are_refused(
    learning: Service, name: str, fields: dict[str, Any], reason: str
) -> None:
    event, _ = _drawn(learning)
    answer = _send(learning, event, {"type": "metric", "id": "m", "unit": "ann", "name": name, "fields": fields})
    assert answer.accepted == 1
    assert reason in answer.rejected[0].reason


def test_a_field_read_under_a_condition_may_be_missing(service: Service, document: dict[str, Any]) -> None:
    bought = {"event": "click", "value": "price", "aggregate": "sum", "cap": 9, "where": {"kind": "buy"}}
    service.create({**document, "metrics": {**document["metrics"], "bought": bought}}, who="ann")
    service.change("feed", "start", who="ann")
    click = {"type": "metric", "unit": "ann", "name": "click"}
    answer = _send(
        service,
        {**click, "id": "1", "fields": {"kind": "look"}},
        {**click, "id": "2", "fields": {"kind": "buy", "price": 3}},
        {**click, "id": "3", "fields": {"kind": "buy", "price": "3"}},
    )
    assert (answer.accepted, len(answer.rejected)) == (2, 1)


def test_drafts_archived_and_unknown_studies_take_no_events(service: Service, document: dict[str, Any]) -> None:
    with pytest.raises(UnknownStudyError):
        _send(service)
    service.create(document, who="ann")
    with pytest.raises(LifecycleError, match="is draft and takes no events; start it first"):
        _send(service)
    service.change("feed", "start", who="ann")
    assert _send(service) == BatchResult(0, 0, ())
    service.change("feed", "archive", who="ann")
    with pytest.raises(LifecycleError, match="is archived and takes no events"):
        _send(service)


def test_a_version_and_a_start_of_another_node_are_known_at_once(document: dict[str, Any]) -> None:
    store = open_store("memory:")
    ours, theirs = Service(store), Service(store)
    try:
        ours.create(document, who="ann")
        assert theirs.policy_cache.snapshot("feed").row.state == "draft"
        ours.change("feed", "start", who="ann")
        ours.close_round("feed", who="ann")
        event, _ = _drawn(ours)
        assert event["version"] == 2
        assert _send(theirs, event).accepted == 1
        ours.close_round("feed", who="ann")
        later, _ = _drawn(ours, "bob")
        assert theirs.policy_cache.current("feed").version == 2
        assert _send(theirs, later).accepted == 1
    finally:
        store.close()


def test_exposure_counts_must_be_of_candidates_that_the_policy_serves(learning: Service) -> None:
    tally = {"type": "exposure_counts", "id": "t", "source": "web-1", "sequence": 1, "version": 1}
    answer = _send(
        learning,
        {**tally, "assigned": {"w=0": 3}, "dropped": {"w=1": 1}},
        {**tally, "assigned": {"w=9": 3}},
        {**tally, "dropped": {"<script>": 3}},
        {**tally, "version": 4, "assigned": {"w=0": 3}},
        {**tally, "version": 0, "assigned": {"an unknown candidate": 3}},
    )
    assert (answer.accepted, answer.duplicates) == (2, 0)
    assert [refusal.index for refusal in answer.rejected] == [1, 2, 3]
    assert "exposure_counts has candidate 'w=9', which version 1 does not serve" in answer.rejected[0].reason


def test_old_versions_are_checked_by_their_own_policy(learning: Service, traffic: Traffic) -> None:
    events = traffic(learning, 20)
    for _ in range(3):
        learning.close_round("feed", who="ann")
    answer = _send(learning, *events)
    assert (answer.accepted, answer.rejected) == (len(events), ())


def test_exposures_of_the_services_own_are_logged_once(learning: Service) -> None:
    policy = learning.policy_cache.current("feed")
    units = ["ann", "bob", "x" * 256, "ann"]
    for unit in units:
        learning.expose("feed", policy, unit, policy.draw(unit))
    learning.expose("feed", policy, "nul\0", policy.draw("nul\0"))
    assert learning.show("feed").state == "learning"  # all events that were queued before are written now
    event, _ = _drawn(learning, "zoe")
    _send(learning, event)
    assert len(_rows(learning)) == 4
    assert all(len(row[0]) <= 128 for row in _rows(learning))
    assert learning.unlogged == {"feed": 1}


def test_an_exposure_that_cannot_be_stored_is_counted_without_an_error(learning: Service) -> None:
    policy = learning.policy_cache.current("feed")
    learning.store.close()
    learning.expose("feed", policy, "ann", policy.draw("ann"))
    assert learning.unlogged == {"feed": 1}
