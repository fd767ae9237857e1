"""Reports, other questions and the counter of guardrail pauses, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pasto.service.http_client import HttpStudyApi

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve, Site


def test_a_report_comes_as_json_as_text_and_as_a_page(site: Site) -> None:
    report = site.client.get("/v1/studies/feed/report").json()
    assert {"name", "state", "blend", "accounting", "verdict", "learning", "guardrails", "quality"} <= set(report)
    assert report["quality"]["duplicates"] == 0
    text = site.client.get("/v1/studies/feed/report?format=text")
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.text.startswith("feed: learning, round 1 under policy 1\n=")
    page = site.client.get("/v1/studies/feed/report?format=html")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.text.startswith("<!doctype html>")
    refused = site.client.get("/v1/studies/feed/report?format=pdf")
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, "format")


def test_nothing_can_be_asked_of_a_study_that_learned_nothing(site: Site) -> None:
    refused = site.client.post("/v1/studies/feed/what-if", json={"keep": ["like_rate >= -1%"]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "nothing_learned")
    assert site.client.post("/v1/studies/feed/what-if", json={"wish": []}).status_code == 400


def test_another_question_is_answered(serve: Serve) -> None:
    site = serve()
    column = {"event": "seen", "aggregate": "sum"}
    metrics = {"x": {**column, "value": "x", "range": [0, 9]}, "y": {**column, "value": "y", "range": [0, 9]}}
    site.study(
        metrics=metrics, goal={"maximize": "x"}, guardrails=[{"metric": "y", "at_least": 1}], rounds={"every": "1h"}
    )
    names = [f"user {number}" for number in range(400)]
    drawn = site.client.post("/v1/studies/feed/assign", json={"units": names}).json()
    events = [
        {
            "type": "metric",
            "id": f"m/{one['unit']}",
            "unit": one["unit"],
            "name": "seen",
            "version": drawn["version"],
            "candidate": one["candidate"],
            "fields": {"x": one["values"]["like_weight"] + number % 3, "y": 3 - one["values"]["like_weight"]},
        }
        for number, one in enumerate(drawn["assignments"])
    ]
    site.client.post("/v1/studies/feed/events", json=events).raise_for_status()
    site.client.post("/v1/studies/feed/rounds/close").raise_for_status()
    candidates = {one["candidate"] for one in drawn["assignments"]}
    found = HttpStudyApi(site.url).what_if("feed", keep=["y >= 2.5"], only=sorted(candidates))
    assert found.objective == "maximize x, keep y >= 2.5"
    assert found.metrics["y"].value == pytest.approx(2.5, abs=0.2)
    refused = site.client.post("/v1/studies/feed/what-if", json={"maximize": ["clicks"]})
    assert refused.status_code == 400
    assert "measures no 'clicks'" in refused.json()["error"]["message"]
    refused = site.client.post("/v1/studies/feed/what-if", json={"keep": ["y >= -0.02"]})
    assert refused.status_code == 400
    assert "'y' is -0.02, and y is never below 0, so the guardrail cannot fail" in refused.json()["error"]["message"]
    assert "write '-2%'" in refused.json()["error"]["message"]


def test_prometheus_has_a_metric_for_every_guardrail(site: Site) -> None:
    assert 'pasto_guardrail_state{guardrail="like_rate",study="feed"} 0.0' in site.client.get("/metrics").text
