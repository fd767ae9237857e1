"""Rejected events are counted and reported with their reasons, and are not counted as lost."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pasto.cli import main
from pasto.dashboard.pages import BlendPart
from pasto.dashboard.renderer import render_page
from pasto.errors import StoreBusyError, StoreError
from pasto.report.records import write_record
from pasto.report.text import render_text
from pasto.service import rejections
from pasto.service.ingest import BatchResult
from pasto.service.service import Service
from pasto.store import open_store

Document = dict[str, Any]


def send(service: Service, events: list[dict[str, Any]]) -> BatchResult:
    return service.ingest("feed", service.decode(json.dumps(events).encode())).result()


def numbered(first: int, last: int, source: str = "web-1", **fields: Any) -> list[dict[str, Any]]:
    return [
        {
            "type": "metric",
            "id": f"{source}/{number}",
            "unit": f"user {number}",
            "name": "like",
            "source": source,
            "sequence": number,
            **fields,
        }
        for number in range(first, last + 1)
    ]


def test_rejected_events_are_not_missing(learning: Service) -> None:
    assert len(send(learning, numbered(1, 998, name="lke")).rejected) == 998
    send(learning, numbered(999, 1000))
    event_counts = write_record(learning.report("feed"))["accounting"]
    assert event_counts["senders"] == {"numbered": 1, "missing": 0, "gaps": []}
    assert event_counts["rejected"]["events"] == 998
    ((reason, events),) = [(one["reason"], one["events"]) for one in event_counts["rejected"]["reasons"]]
    assert (reason, events) == (
        "name is 'lke', which no metric of this study reads; its metrics read 'like', 'watch'",
        998,
    )
    assert write_record(learning.show("feed").rejected) == event_counts["rejected"]
    assert write_record(learning.report("feed"))["quality"]["rejected"] == event_counts["rejected"]
    # Missing sequence numbers still count as missing, also next to rejected ones at the stream's end.
    send(learning, numbered(1011, 1020, name="lke"))
    event_counts = write_record(learning.report("feed"))["accounting"]
    assert (event_counts["senders"]["missing"], event_counts["rejected"]["events"]) == (10, 1008)


def test_events_that_cannot_be_read_are_rejected_with_their_number(learning: Service) -> None:
    send(learning, [*numbered(1, 3, fields={"deep": {"er": 1}}), *numbered(4, 4)])
    send(learning, [{"type": "click"}])  # without a sender and a number
    event_counts = write_record(learning.report("feed"))["accounting"]
    assert event_counts["senders"]["missing"] == 0
    assert event_counts["rejected"]["events"] == 4


def test_every_node_and_the_next_start_know_them(document: Document, tmp_path: Path) -> None:
    service = Service(open_store(str(tmp_path)))
    service.create(document, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    send(service, [*numbered(1, 5, name="lke"), *numbered(6, 6)])
    service.shutdown()
    service = Service(open_store(str(tmp_path)))
    send(service, numbered(7, 9, fields={"seconds": "many"}, name="watch"))
    report = service.report("feed")
    document = write_record(report)
    service.shutdown()
    assert document["accounting"]["senders"]["missing"] == 0
    assert [one["events"] for one in document["quality"]["rejected"]["reasons"]] == [5, 3]
    text = render_text(report)
    assert "events rejected by the service" in text
    assert "5: name is 'lke', which no metric of this study reads" in text
    output = (
        CliRunner().invoke(main, ["study", "show", "feed", "--store", str(tmp_path)], env={"COLUMNS": "200"}).output
    )
    assert "rejected     8 events" in output
    assert "5: name is 'lke'" in output


def test_the_dashboard_lists_the_reasons(learning: Service) -> None:
    send(learning, numbered(1, 2, name="<b>lke</b>"))
    report = learning.report("feed")
    part = BlendPart(learning.show("feed"), report, blend=None, parts=set(), lines=[], left_out=0)
    page = render_page("parts/answer.html", part).body.decode()
    assert "2 events were rejected and count nowhere:" in page
    assert "<li>2: name is &#39;&lt;b&gt;lke&lt;/b&gt;&#39;, which no metric" in page
    assert "did not arrive" not in page


def test_reasons_that_differ_in_numbers_are_one_and_many_are_bounded(
    learning: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(learning, [event for version in range(2, 9) for event in numbered(version, version, version=version)])
    (only,) = learning.show("feed").rejected.reasons
    assert (only.reason[:12], only.events) == ("version is 2", 7)
    monkeypatch.setattr(rejections, "MAX_REASONS", 3)
    names = ("aa", "bb", "cc", "dd", "ee")
    send(learning, [event for name in names for event in numbered(1, 2, source=name, name=name)])
    stored = learning.store.list_rejections_by_reason(learning.policy_cache.snapshot("feed").row.number)
    assert len(stored) == 4
    assert {row.kind: row.events for row in stored}[rejections.OTHER_REASONS] == 6


def test_what_cannot_be_stored_in_a_reason_is_replaced(learning: Service) -> None:
    assert send(learning, [{"type": "metric", "a\0b\ud800": 1}]).rejected
    (reason,) = learning.show("feed").rejected.reasons
    assert reason.reason.isprintable()


def test_a_batch_that_is_not_taken_counts_no_rejection(learning: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    append = learning.store.append_events
    batch = [*numbered(1, 3, name="lke"), *numbered(4, 4)]

    def busy(*_: Any) -> Future[Any]:
        raise StoreBusyError("full")

    def failed(*_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(StoreError("gone"))
        return future

    for broken in (busy, failed):
        monkeypatch.setattr(learning.store, "append_events", broken)
        with pytest.raises(StoreError):
            send(learning, batch)
        assert len(send(learning, batch[:3]).rejected) == 3, "a rejection needs no store"
    monkeypatch.setattr(learning.store, "append_events", append)
    assert send(learning, batch).accepted == 1
    assert learning.show("feed").rejected.events == 3


def test_a_batch_that_is_sent_again_counts_its_rejections_once(
    learning: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = [*numbered(1, 3, name="lke"), *numbered(4, 4)]
    assert len(send(learning, batch).rejected) == 3
    again = send(learning, batch)
    assert (again.duplicates, len(again.rejected)) == (1, 3), "its answer was lost, so it is answered again"
    event_counts = write_record(learning.report("feed"))["accounting"]
    assert (event_counts["rejected"]["events"], event_counts["senders"]["missing"]) == (3, 0)
    send(learning, numbered(1, 3, source="web-2", name="lke"))
    assert learning.show("feed").rejected.events == 6, "another sender's"
    monkeypatch.setattr(rejections, "MAX_CACHED_REJECTIONS", 2)
    send(learning, numbered(11, 15, name="lke"))
    send(learning, numbered(14, 15, name="lke"))
    assert learning.show("feed").rejected.events == 11, "the latest are remembered"
