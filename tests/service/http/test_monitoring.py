"""Logs and counters: their contents, and secrets that they must never contain."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pasto.service.http.prometheus import BOUNDS, PrometheusMetrics
from pasto.service.http.routes import ROUTES
from pasto.service.http.server import JsonFormatter, TextFormatter, start_logging
from pasto.store.write_queue import MAX_QUEUED_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.service.http.conftest import Serve


@pytest.fixture(params=["json", "text"])
def lines(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """Return every line that the process logs, in one of the forms."""
    root = logging.getLogger()
    level = root.level
    stream = io.StringIO()
    handler = start_logging("debug", request.param, stream)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def test_logs_hold_neither_keys_nor_units(serve: Serve, lines: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    site = serve()
    site.study()
    key = site.client.post("/v1/keys", json={"name": "boss", "scopes": ["admin"]}).json()["key"]
    site.client.headers["authorization"] = f"Bearer {key}"
    unit = "secret-unit-7"
    site.client.post("/v1/studies/feed/assign", json={"unit": unit})
    site.client.post("/v1/studies/feed/assign", json={"unit": unit * 50})
    site.client.post("/ofrep/v1/evaluate/flags/feed", json={"context": {"targetingKey": unit}})
    site.client.post("/ofrep/v1/evaluate/flags", json={"context": {"targetingKey": unit}})
    site.client.post("/v1/studies/feed/events", json=[{"type": "metric", "id": unit, "unit": unit, "name": "like"}])
    site.client.post("/v1/studies/feed/events", json=[{"type": unit, "id": unit, "unit": unit}])
    site.client.get(f"/v1/studies/feed/report?{key}")

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"refused {key}")

    monkeypatch.setattr(site.running.service, "report", fail)
    assert site.client.get("/v1/studies/feed/report").status_code == 500
    logged = lines.getvalue()
    assert "/v1/studies/{name}/report" in logged
    assert key.split("_")[2] not in logged
    assert unit not in logged
    assert "key created" in logged
    assert "RuntimeError" in logged


def record(message: str, **added: Any) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "pasto", "levelname": "INFO", "msg": message, **added})


def test_every_record_is_one_line() -> None:
    forged = record('end\n{"level": "error"}\r\x1b[31m', study="a\nb", nothing=None)
    line = JsonFormatter().format(forged)
    assert "\n" not in line
    logged = json.loads(line)
    assert (logged["message"], logged["study"]) == ('end\n{"level": "error"}\r\x1b[31m', "a\nb")
    assert "nothing" not in logged
    text = TextFormatter().format(forged)
    assert not re.search(r"[\n\r\x1b]", text)
    assert r"end\n" in text


def test_requests_are_counted_by_route_and_never_by_what_callers_make_up(serve: Serve) -> None:
    site = serve()
    site.study()
    for name in ("nowhere", "nobody", "x" * 100):
        site.client.get(f"/v1/studies/{name}")
        site.client.post(f"/v1/studies/{name}/events", json=[])
        site.client.post(f"/ofrep/v1/evaluate/flags/{name}", json={"context": {"targetingKey": "ann"}})
        site.client.get(f"/{name}")
    site.client.post("/v1/studies/feed/assign", json={"units": ["ann", "bob"]})
    site.client.post("/ofrep/v1/evaluate/flags/feed", json={"context": {"targetingKey": "ann"}})
    event = {"type": "metric", "id": "1", "unit": "ann", "name": "like"}
    site.client.post("/v1/studies/feed/events", json=[event, event, {}])
    site.client.post("/v1/studies/feed/rounds/close").raise_for_status()
    text = site.client.get("/metrics").text
    assert "nowhere" not in text
    for line in (
        'pasto_requests_total{method="GET",route="/v1/studies/{name}",status="404"} 3.0',
        'pasto_decisions_total{study="feed",via="assign"} 2.0',
        'pasto_decisions_total{study="feed",via="ofrep"} 1.0',
        'pasto_events_total{result="accepted",study="feed"} 1.0',
        'pasto_events_total{result="duplicate",study="feed"} 1.0',
        'pasto_events_total{result="rejected",study="feed"} 1.0',
        'pasto_rounds_closed{study="feed"} 1.0',
        'pasto_policy_version{study="feed"} 2.0',
        'pasto_unlogged_exposures{study="feed"} 0.0',
        "pasto_scheduler_up 1.0",
        "pasto_policy_waiters 0.0",
    ):
        assert line in text, line
    age = re.search(r'pasto_round_age_seconds\{study="feed"\} (\S+)', text)
    assert age is not None
    assert float(age[1]) >= 0
    site.client.patch("/v1/studies/feed", json={"action": "pause", "reason": "lunch"}).raise_for_status()
    assert "pasto_round_age_seconds{" not in site.client.get("/metrics").text  # a pause must not page anyone


def test_alerts_name_what_is_counted_and_can_fire() -> None:
    page = (Path(__file__).parents[3] / "docs" / "guides" / "operations.md").read_text(encoding="utf-8")
    (written,) = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "\ngroups:" in block]
    rules = yaml.safe_load(written)["groups"][0]["rules"]
    reference = (Path(__file__).parents[3] / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    expressions = {rule["alert"]: rule["expr"] for rule in rules}
    for name in re.findall(r"pasto_\w+", " ".join(expressions.values())):
        assert f"`{name}`" in reference
    assert float(expressions["PastoStoreBehind"].rpartition(">")[2]) < MAX_QUEUED_EVENTS
    # Two rates of one counter meet label by label, so one kind over all kinds needs its labels summed away.
    refused = expressions["PastoEventsRejected"]
    assert refused.count("sum by (study) (rate(") == refused.count("rate(") == 4


def test_the_histogram_adds_up() -> None:
    meters = PrometheusMetrics(lambda: ())
    for seconds in (0.0001, 0.0005, 0.02, 0.3, 100.0):
        meters.count_request(ROUTES[0].method, ROUTES[0].path, 200, seconds)
    text = meters.text().decode()
    buckets = [float(each) for each in re.findall(r"pasto_request_seconds_bucket\{.*\} (\S+)", text)]
    assert buckets == sorted(buckets)
    assert len(buckets) == len(BOUNDS)
    assert (buckets[0], buckets[-1]) == (2.0, 5.0)
    assert re.search(r"pasto_request_seconds_sum\{.*\} 100\.32", text)
