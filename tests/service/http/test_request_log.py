"""Request log: a stranger cannot fill it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pasto.service.http.request_log import MAX_REJECTED_LINES, WINDOW_SECONDS, RequestLog

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_refused_requests_fill_the_log_up_to_a_limit_and_are_counted(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    site = serve()
    key = site.running.application.context.keys.create("boss", ["admin"]).key
    with caplog.at_level(logging.INFO, "pasto.http"):
        for _ in range(MAX_REJECTED_LINES + 50):
            assert site.client.get("/v1/studies", headers={"authorization": "Bearer wrong"}).status_code == 401
        site.client.headers["authorization"] = f"Bearer {key}"
        assert site.client.get("/v1/studies/none").status_code == 404
        metrics = site.client.get("/metrics").text
        site.running.application.context.request_log.summarize(now=True)
    lines = [vars(record) for record in caplog.records if record.name == "pasto.http"]
    refused = [line for line in lines if line.get("status") == 401]
    assert len(refused) == MAX_REJECTED_LINES + 1
    assert refused[-1]["suppressed"] == 50
    assert [line["status"] for line in lines if line.get("status") == 404] == [404]  # other statuses are logged still
    assert 'pasto_suppressed_log_lines_total{status="401"} 50.0' in metrics


def test_the_summary_comes_when_the_window_is_over(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    requests = RequestLog(clock, limit=2)
    with caplog.at_level(logging.INFO, "pasto.http"):
        for _ in range(5):
            requests.write("GET", "/v1/studies", 401)
            requests.write("GET", "/v1/studies", 200)
        requests.summarize()
        assert len(caplog.records) == 2 + 5
        clock.now += WINDOW_SECONDS
        requests.write("GET", "/v1/studies", 401)
        requests.summarize(now=True)
    summary, line = (vars(record) for record in caplog.records[-2:])
    assert (summary["levelname"], summary["status"], summary["suppressed"]) == ("WARNING", 401, 3)
    assert (line["levelname"], line["status"]) == ("INFO", 401)
    assert requests.suppressed == {401: 3}
