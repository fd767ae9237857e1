"""Archiving of events and deletion of units on a running service."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pasto.errors import OptionError
from pasto.report.replay_report import ReplayException
from pasto.service.archive import ArchiveResult
from pasto.service.http.server import ServiceProcess
from pasto.service.http_client import HttpStudyApi
from pasto.service.settings import Settings

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve, Site


def learned(site: Site) -> None:
    """Return a study with one learned round of twenty users."""
    site.study(rounds={"every": "1h", "maturity": "0s"})
    policy = site.running.service.policy_cache.current("feed")
    events: list[dict[str, Any]] = [
        {"type": "exposure", "id": f"e{unit}", "unit": unit, "version": 1, "candidate": policy.draw(unit).name}
        for unit in (f"user/{number}" for number in range(20))
    ]
    site.client.post("/v1/studies/feed/events", json=events).raise_for_status()
    site.client.post("/v1/studies/feed/rounds/close", json={}).raise_for_status()


def test_a_unit_is_forgotten_and_the_audit_log_records_it(serve: Serve, tmp_path: Path) -> None:
    site = serve(store=str(tmp_path / "store"))
    learned(site)
    remote = HttpStudyApi(site.url)
    assert remote.archive_events("feed", who="ann") == ArchiveResult("feed", files=1, events=20)
    gone = site.client.post("/v1/studies/feed/units/erase", json={"unit": "user/7", "reason": "asked to"})
    assert (gone.status_code, gone.json()) == (200, {"study": "feed", "events": 1, "rounds": [1]})
    line = remote.audit("feed")[-1]
    assert (line.action, line.reason, "user/7" in str(line)) == ("forget", "asked to", False)
    assert remote.erase_unit("feed", "user/7", who="ann").events == 0
    assert remote.replay("feed").exceptions == {"deleted_units": ReplayException((1,), units=1)}
    assert remote.archive_events("feed", who="ann", delete_older=0.0).deleted_rounds == (1,)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("feed/units/erase", {}, 400),
        ("feed/units/erase", {"unit": ""}, 400),
        ("feed/units/erase", {"unit": "ann", "units": ["bob"]}, 400),
        ("nothing/units/erase", {"unit": "ann"}, 404),
        ("feed/events/archive", {"delete_older": -1}, 400),
        ("nothing/events/archive", {}, 404),
    ],
)
def test_a_refused_action_is_reported(serve_long: Serve, tmp_path: Path, path: str, body: Any, status: int) -> None:
    site = serve_long(store=str(tmp_path / "store"))
    site.study()
    refused = site.client.post(f"/v1/studies/{path}", json=body)
    assert (refused.status_code, list(refused.json())) == (status, ["error"])


def test_a_store_without_a_directory_needs_an_archive_address(serve: Serve, tmp_path: Path) -> None:
    site = serve()
    site.study()
    refused = site.client.post("/v1/studies/feed/units/erase", json={"unit": "ann"})
    assert (refused.status_code, "--archive" in refused.json()["error"]["message"]) == (400, True)
    with pytest.raises(OptionError, match="--archive"):
        ServiceProcess(Settings(store="memory:", port=0, archive_after=604800.0))
    site = serve(archive=str(tmp_path / "archive"))
    site.study()
    assert site.client.post("/v1/studies/feed/units/erase", json={"unit": "ann"}).json()["events"] == 0


def test_a_service_archives_by_itself(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pasto.service.retention_worker.POLLS_PER_RUN", 1)
    site = serve(store=str(tmp_path / "store"), archive_after=0.001)
    learned(site)
    site.until(lambda: "pasto_archived_events 20.0" in site.client.get("/metrics").text)
    assert site.running.service.replay("feed").identical


def test_waiting_requests_do_not_delay_others(serve: Serve, tmp_path: Path) -> None:
    site = serve(store=str(tmp_path / "store"), threads=2)
    learned(site)
    archive = site.running.service.retention._archive
    context = site.running.application.context
    with ThreadPoolExecutor() as others:
        with archive.alone():
            asked = [
                others.submit(HttpStudyApi(site.url).erase_unit, "feed", f"user/{number}", who="ann")
                for number in range(4)
            ]
            site.until(context.retention_lock.locked)
            assert site.client.get("/v1/studies/feed/report").status_code == 200
            assert not any(one.done() for one in asked)
        assert [one.result().events for one in asked] == [1, 1, 1, 1]
