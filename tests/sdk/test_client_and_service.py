"""Client and real service together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pasto.report.records import write_record
from pasto.service.http.server import ServiceProcess
from pasto.service.settings import Settings
from pasto.service.study_file import EXAMPLE, read_document
from pasto_sdk import Client


@pytest.fixture
def running() -> Iterator[ServiceProcess]:
    """Return a live service with the example study, learning."""
    live = ServiceProcess(Settings(store="memory:", port=0, poll=0.05, shutdown_timeout=2))
    live.service.create(read_document(EXAMPLE, "yaml"), who="test")
    live.service.change("feed", "start", who="test")
    thread = threading.Thread(target=live.serve)
    thread.start()
    try:
        assert until(lambda: live.started)
        yield live
    finally:
        live.stop()
        thread.join()


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    ends = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends:
        time.sleep(0.005)
    return condition()


def test_the_service_accepts_everything_the_client_sends(running: ServiceProcess, tmp_path: Path) -> None:
    service = running.service
    with Client(running.url, study="feed", cache=tmp_path, baseline={"like_weight": 1, "share_weight": 1}) as client:
        client.assign("early")  # Most likely before the first policy.
        assert client.wait_until_ready(60)
        policy = service.policy_cache.current("feed")
        units = [f"unit {place}" for place in range(1500)] + ["zoë", "\N{SNOWMAN}"]
        for unit in units:
            decision, cell = client.assign(unit), policy.draw(unit)
            assert (decision.name, decision.values, decision.propensity) == (cell.name, cell.values, cell.propensity)
            decision.track("watch", seconds=31.2)
            client.track(unit, "view")
        client.assign("looking", override=policy.baseline.name).track("like")
        assert client.flush(60)
        status = client.status()
        assert (status["rejected"], status["dropped"], status["errors"]) == ({}, 0, 0)
        service.close_round("feed", who="test")
        assert until(lambda: client.assign("later").version == policy.version + 1)
        client.track("unit 1", "like")
        assert client.flush(60)
        assert client.status()["rejected"] == {}
        service.change("feed", "pause", who="test", reason="to see")
        assert until(lambda: client.assign("last").arm == "paused")
        assert client.assign("last").name == policy.baseline.name
        assert client.flush(60)
        decided = client.status()["accounts"]
    event_counts = write_record(service.report("feed"))["accounting"]
    assert event_counts["senders"] == {"numbered": 1, "missing": 0, "gaps": []}
    assert event_counts["events"]["metrics"] == 2 * len(units) + 2
    assert {counts["version"]: counts["gap"] for counts in event_counts["versions"]} == dict.fromkeys(decided, 0)
    for counts in event_counts["versions"]:
        lines = decided[counts["version"]].values()
        assert counts["assigned"] == counts["logged"] == sum(line["assigned"] for line in lines)
    with Client(running.url, study="feed", cache=tmp_path, background=False) as restarted:
        assert restarted.assign("last").arm == "paused"


def test_client_and_service_agree_on_who_takes_part_along_a_ramp(running: ServiceProcess) -> None:
    service = running.service
    traffic = {"control": 0.2, "ramp": [0.1, 0.4, 1.0]}
    changes = {"name": "ramped", "traffic": traffic, "audience": {"country": "de"}, "rounds": {"every": "1h"}}
    document = {**read_document(EXAMPLE, "yaml"), **changes}
    service.create(document, who="test")
    service.change("ramped", "start", who="test")
    inside: list[set[str]] = []
    with Client(running.url, study="ramped", cache=None) as client:
        assert client.wait_until_ready(60)
        for step in (1, 2, 3):
            if step > 1:
                service.move_ramp("ramped", "next", who="test")
                assert until(lambda: client.assign("any", country="de").version == service.show("ramped").version)
            units = [f"unit {number}" for number in range(300)]
            decisions = [client.assign(unit, country="de") for unit in units]
            inside.append({decision.unit for decision in decisions if not decision.is_not_enrolled})
            for decision in decisions:
                decision.track("watch", seconds=31.2)
                decision.track("view")
                decision.track("like")
            assert client.assign("unit 1", country="fr").is_not_enrolled
            assert client.flush(60)
        assert inside[0] < inside[1] < inside[2] == set(units)
        assert client.status()["rejected"] == {}
        service.change("ramped", "confirm", who="test")
    report = service.report("ramped")
    assert report.history[0].units == len(inside[0])
    assert report.quality is not None
    assert report.accounting is not None
    assert {counts.version: counts.gap for counts in report.accounting.versions} == {1: 0, 2: 0, 3: 0}
    assert service.replay("ramped").identical


def test_a_study_that_is_not_there_yet_is_found_when_it_is(running: ServiceProcess) -> None:
    document = {**read_document(EXAMPLE, "yaml"), "name": "later"}
    with Client(running.url, study="later", cache=None, baseline={"like_weight": 9}) as client:
        assert not client.wait_until_ready(0.2)
        assert client.assign("ann").reason == "DEFAULT"
        assert until(lambda: "answered 404: there is no study 'later'" in str(client.status()["last_error"]))
        running.service.create(document, who="test")
        assert until(lambda: "'later' is a draft, so it serves no policy yet" in str(client.status()["last_error"]))
        assert "any more" not in client.status()["last_error"]
        running.service.change("later", "start", who="test")
        assert client.wait_until_ready(60)
        assert client.assign("ann").reason == "SPLIT"
        assert client.flush(60)
        assert client.status()["rejected"] == {}
