"""Study's own tables over HTTP: checked without creation, with a clear error on failure, and visible in /readyz."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pasto.errors import SourceError
from pasto.report.records import write_record
from pasto.service.http_client import HttpStudyApi
from pasto.service.study_file import EXAMPLE, read_document

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve

SOURCE = {
    "from": "lake",
    "exposures": {"table": "seen", "unit": "person", "version": "policy"},
    "events": [
        {"table": "deeds", "unit": "person", "name": "kind", "version": "policy", "fields": {"seconds": "secs"}},
    ],
}
DEEDS = "person,policy,kind,secs\nann,1,watch,3.5\n"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "seen.csv").write_text("person,policy\nann,1\n")
    (tmp_path / "deeds.csv").write_text(DEEDS)
    monkeypatch.setenv("PASTO_SOURCE_LAKE", str(tmp_path))
    return tmp_path


def test_a_file_is_checked_and_nothing_created(serve: Serve, lake: Path) -> None:
    site = serve()
    document = {**read_document(EXAMPLE, "yaml"), "source": SOURCE}
    checked = site.client.post("/v1/check", json=document)
    assert checked.status_code == 200
    assert checked.json()["source"]["tables"]["seen"] == {"person": "VARCHAR", "policy": "BIGINT"}
    assert write_record(HttpStudyApi(site.url).check(document)) == checked.json()
    (lake / "deeds.csv").write_text(DEEDS.replace("secs", "seks"))
    refused = site.client.post("/v1/check", json=document)
    assert refused.status_code == 422
    assert "it has person, policy, kind, seks" in refused.json()["error"]["problems"]["source.events[0].fields"]
    assert site.client.get("/v1/studies").json() == {"studies": []}


def test_a_failing_source_is_an_error_with_its_reason_and_a_warning_of_readyz(serve: Serve, lake: Path) -> None:
    site = serve()
    site.study(source=SOURCE, rounds={"every": "1h"})
    (lake / "deeds.csv").write_text(DEEDS.replace("policy", "polcy"))
    failed = site.client.post("/v1/studies/feed/rounds/close", json={})
    assert failed.status_code == 502
    error = failed.json()["error"]
    assert error["code"] == "source_failed"
    assert "'policy', which the table 'deeds' does not have; it has person, polcy, kind, secs" in error["message"]
    with pytest.raises(SourceError, match="did you mean 'polcy'"):
        HttpStudyApi(site.url).close_round("feed", who="ann")
    ready = site.client.get("/readyz")
    assert ready.status_code == 200, "decisions are still served"
    assert ready.json() == {"status": "ok", "warnings": [f"study 'feed' since round 1: {error['message']}"]}
    # A remote caller without a key sees that something fails, but not the reason.
    site.client.post("/v1/keys", json={"name": "ops", "scopes": ["admin"]}).raise_for_status()
    stranger = site.client.get("/readyz", headers={"x-forwarded-for": "203.0.113.9"}).json()
    assert "the sources of 1 studies cannot be read" in stranger["warnings"][0]
    assert "feed" not in str(stranger)
    assert "deeds" not in str(stranger)
