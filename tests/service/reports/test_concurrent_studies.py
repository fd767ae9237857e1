"""Concurrent studies: a report names the other studies that ran on the same units at the same time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from pasto.report.html import render_html
from pasto.report.records import Report, read_record, write_record
from pasto.report.text import render_text
from pasto.service.reports.builder import common_share
from pasto.service.service import Service
from pasto.store import open_store
from pasto_sdk.enrolment import EnrolmentSlice
from pasto_sdk.policy_document import BUCKET_TOTAL

DOCUMENT: dict[str, Any] = {
    "baseline": {"w": 1},
    "candidates": [{"w": 0}, {"w": 1}],
    "metrics": {"watch": {"event": "watch", "aggregate": "count", "cap": 9}},
    "goal": {"maximize": "watch"},
}


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service(open_store("memory:"), clock=Clock())
    yield service
    service.shutdown()


def start(service: Service, name: str, **fields: Any) -> None:
    service.create({**DOCUMENT, "name": name, **fields}, who="ann", seed=7)
    service.change(name, "start", who="ann")


def concurrent(service: Service, name: str) -> dict[str, float | None]:
    return {study.name: study.share for study in service.report(name).concurrent}


def test_shares_of_independent_hashes_are_multiplied(service: Service) -> None:
    start(service, "feed", layer={"name": "home", "share": "40%"})
    start(service, "search", layer={"name": "home", "share": "60%"})
    start(service, "mail", traffic={"explore": "25%"})
    start(service, "ads", layer={"name": "other", "share": "50%"}, traffic={"explore": "20%"})
    service.create({**DOCUMENT, "name": "draft"}, who="ann")
    assert concurrent(service, "feed") == {"mail": pytest.approx(0.25), "ads": pytest.approx(0.1)}
    assert list(concurrent(service, "mail").values()) == pytest.approx([0.6, 0.4, 0.1])
    assert concurrent(service, "draft") == {}
    service.set_holdout("20%", who="ann")
    service.close_round("feed", who="ann")
    service.close_round("mail", who="ann")
    # All units of mail are outside the holdout, and so is the part of feed that it meets.
    assert concurrent(service, "mail")["feed"] == pytest.approx(0.4)
    assert concurrent(service, "feed")["ads"] == pytest.approx(0.1)
    assert concurrent(service, "ads")["feed"] == pytest.approx(0.32)


def test_only_studies_of_the_same_time_count(service: Service) -> None:
    start(service, "first")
    start(service, "second")
    service.change("first", "archive", who="ann")
    start(service, "third")
    (second,) = service.report("first").concurrent
    assert (second.name, second.share, second.until) == ("second", 1.0, None)
    assert concurrent(service, "third") == {"second": 1.0}
    first, third = sorted(service.report("second").concurrent, key=lambda study: study.name)
    assert (first.name, first.state, third.name) == ("first", "archived", "third")
    assert first.until is not None
    assert first.since < second.since < first.until < third.since


def test_studies_of_other_units_are_named_without_a_share(service: Service) -> None:
    start(service, "feed")
    start(service, "visits", unit="session")
    start(service, "flags", exposures={"assigned_by": "external"})
    assert concurrent(service, "feed") == {"flags": None, "visits": None}


def test_every_form_of_the_report_names_them(service: Service) -> None:
    start(service, "feed")
    start(service, "mail", traffic={"explore": "25%"})
    start(service, "visits", unit="session")
    report = service.report("feed")
    assert read_record(write_record(report), Report).concurrent == report.concurrent
    text = render_text(report)
    assert "Other studies on the same units" in text
    assert "so their effects are in all arms alike" in " ".join(text.split())
    assert re.search(r"^mail +learning +25.0% ", text, re.MULTILINE)
    assert "The share is unknown for a study of another unit" in " ".join(text.split())
    page = render_html(report)
    assert "Other studies on the same units" in page
    assert "25.0%" in page


def test_slices_of_one_salt_are_intersected() -> None:
    half, end = BUCKET_TOTAL // 2, BUCKET_TOTAL
    ramp = [EnrolmentSlice("ramp", "ramp:feed", 0, half)]
    layer = [EnrolmentSlice("layer", "layer:home", 0, half), EnrolmentSlice("holdout", "holdout:global", half, end)]
    assert common_share([], []) == common_share(ramp, []) == common_share(layer, layer) == 1.0
    assert common_share([], [*ramp, *layer]) == 0.125
    assert common_share(layer[1:], layer) == 0.5
    assert common_share([*ramp, *layer], [EnrolmentSlice("layer", "layer:home", half // 2, end)]) == 0.5
