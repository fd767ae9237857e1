"""Alerts: each fault raises its own alert and no other, by the shipped rules and the served counters."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from pasto.service.http import monitoring
from pasto.service.http.app import Application
from pasto.service.ingest import BatchResult
from pasto.service.notifications import Notification, Notifier
from pasto.service.policy_cache import PolicyCache
from pasto.service.scheduler import Scheduler
from pasto.service.service import Service
from pasto.service.settings import Settings
from pasto.service.study_file import EXAMPLE, read_document
from pasto.service.webhook import Webhook, WebhookSpec
from pasto.service.webhook_worker import WebhookWorker
from pasto.store import open_store

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (Path(__file__).parents[3] / "deploy" / "prometheus" / "alerts.yaml").read_text(encoding="utf-8")
RULES = {rule["alert"]: " ".join(rule["expr"].split()) for rule in yaml.safe_load(TEXT)["groups"][0]["rules"]}
GOOD = BatchResult(accepted=100, duplicates=0, rejected=())
Labels = tuple[tuple[str, str], ...]


class Scrape(NamedTuple):
    """Metrics that Prometheus reads, with the time of its own clock."""

    at: float
    samples: dict[tuple[str, Labels], float]

    def named(self, name: str, **labels: str) -> dict[Labels, float]:
        wanted = set(labels.items())
        return {have: value for (one, have), value in self.samples.items() if one == name and wanted <= set(have)}


class Site:
    """Service with its counters, scraped twice with traffic in between."""

    def __init__(self, folder: Path) -> None:
        self.service = Service(open_store(str(folder)))
        self.scheduler = Scheduler(self.service)
        self.scheduler.start()
        self.application = Application(self.service, Settings(), scheduler=self.scheduler)
        document = {**read_document(EXAMPLE, "yaml"), "rounds": {"every": "1h"}}  # learned at once when it is closed
        self.service.create(document, who="ann", seed=1)
        self.service.change("feed", "start", who="ann", reason="go")

    def scrape(self) -> Scrape:
        text = self.application.context.metrics.text().decode()
        found = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        return Scrape(time.time(), found)

    def traffic(self) -> None:
        self.application.context.metrics.count_events("feed", GOOD)

    def close(self) -> None:
        self.scheduler.stop()
        self.service.shutdown()
        self.application.context.pools.shutdown()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "data")
    yield site
    site.close()


def firing(before: Scrape, now: Scrape) -> set[str]:
    """Return the alerts whose expressions hold; this implements the part of PromQL that the rules use."""
    return {alert for alert, expression in RULES.items() if _holds(expression, before, now)}


def _holds(expression: str, before: Scrape, now: Scrape) -> bool:
    def grown(name: str, **labels: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for have, value in now.named(name, **labels).items():
            study = dict(have).get("study", "")
            found[study] = found.get(study, 0.0) + value - before.samples.get((name, have), 0.0)
        return found

    if match := re.fullmatch(r"(pasto_\w+) (==|>|<) (\S+)", expression):
        name, sign, number = match[1], match[2], float(match[3])
        tests: dict[str, Callable[[float], bool]] = {
            "==": lambda value: value == number,
            ">": lambda value: value > number,
            "<": lambda value: value < number,
        }
        return any(map(tests[sign], now.named(name).values()))
    if match := re.fullmatch(r"abs\((\w+) - timestamp\(\1\)\) > (\d+)", expression):
        return any(abs(value - now.at) > float(match[2]) for value in now.named(match[1]).values())
    if match := re.fullmatch(r"increase\((\w+)\[10m\]\) > 0", expression):
        return any(value > 0 for value in grown(match[1]).values())
    if expression.startswith("max by (study) (pasto_study_served) == 1 unless on (study)"):
        served = {dict(have)["study"] for have in now.named("pasto_study_served")}
        ways = re.findall(r"increase\((\w+)", expression)
        return bool(served - {study for way in ways for study, more in grown(way, result="accepted").items() if more})
    if 'result="rejected"' in expression:
        ways = [(grown(way, result="rejected"), grown(way)) for way in re.findall(r"rate\((\w+)\[", expression)]
        return any(more > 0.01 * every[study] for refused, every in ways for study, more in refused.items())
    if expression.startswith("rate(pasto_requests_total"):
        return any(dict(have)["status"].startswith("5") for have in now.named("pasto_requests_total"))
    assert expression == 'up{job="pasto"} == 0', expression
    return False


def firing_after_scrapes(site: Site, *, traffic: bool = True) -> set[str]:
    before = site.scrape()
    if traffic:
        site.traffic()
    return firing(before, site.scrape())


def test_a_healthy_service_raises_no_alert(site: Site) -> None:
    assert firing_after_scrapes(site) == set()


def test_a_disk_that_fills(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10**10, 10**10 - 10**9, 10**9))
    assert firing_after_scrapes(site) == {"PastoDiskFull"}


def test_a_store_that_falls_behind(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(site.service.store), "queued_events", property(lambda store: 30_000))
    assert firing_after_scrapes(site) == {"PastoStoreBehind"}


@pytest.mark.parametrize("off", [-3600.0, -60.0, 60.0])
def test_a_clock_that_is_wrong(site: Site, monkeypatch: pytest.MonkeyPatch, off: float) -> None:
    true = time.time

    class Clock:
        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def time() -> float:
            return true() + off

    monkeypatch.setattr(monitoring, "time", Clock)
    assert firing_after_scrapes(site) == {"PastoClockWrong"}


def test_senders_that_fall_silent(site: Site) -> None:
    assert firing_after_scrapes(site, traffic=False) == {"PastoEventsSilent"}
    site.service.change("feed", "pause", who="ann", reason="lunch")
    assert firing_after_scrapes(site, traffic=False) == set()  # a pause must not page anyone


@pytest.fixture
def topic(site: Site) -> dict[str, float]:
    """Return the counts of a Kafka topic, without HTTP traffic."""
    counts = {"accepted": 0.0, "rejected": 0.0, "lost": 0.0, "up": 1.0}

    def read_metrics() -> Iterator[tuple[str, str, float, Mapping[str, str] | None]]:
        for name in ("lost", "up"):
            yield f"pasto_kafka_{name}", "", counts[name], None
        for result in ("accepted", "rejected"):
            yield "pasto_kafka_events", "", counts[result], {"study": "feed", "result": result}

    site.application.context.gauge_sources.append(read_metrics)
    return counts


@pytest.mark.parametrize(
    ("after", "alerts"),
    [
        ({"accepted": 100.0}, set()),
        ({"accepted": 100.0, "rejected": 50.0}, {"PastoEventsRejected"}),
        ({"accepted": 100.0, "lost": 1.0}, {"PastoKafkaLost"}),
        ({"up": 0.0}, {"PastoKafkaDown", "PastoEventsSilent"}),
    ],
)
def test_events_that_come_by_kafka(
    site: Site, topic: dict[str, float], after: dict[str, float], alerts: set[str]
) -> None:
    before = site.scrape()
    topic.update(after)
    assert firing(before, site.scrape()) == alerts


def test_a_study_that_cannot_be_read_hides_no_other(site: Site) -> None:
    document = {**read_document(EXAMPLE, "yaml"), "name": "other"}
    site.service.create(document, who="ann", seed=1)
    site.service.change("other", "start", who="ann")
    store: Any = site.service.store
    store._write(lambda connection: connection.execute("UPDATE studies SET study_file = '{}' WHERE name = 'other'"))
    unreadable = site.scrape().named("pasto_study_unreadable")
    assert unreadable == {(("study", "feed"),): 0.0, (("study", "other"),): 1.0}
    assert firing_after_scrapes(site) == {"PastoStudyUnreadable"}


def test_an_unreadable_disk_hides_no_metric(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(folder: Path) -> None:
        raise OSError("input/output error")

    monkeypatch.setattr(shutil, "disk_usage", broken)
    assert site.scrape().named("pasto_study_served") == {(("study", "feed"),): 1.0}


def test_a_candidate_whose_exposures_are_lost(site: Site) -> None:
    policy = site.service.policy_cache.current("feed")
    lost = policy.cells[-1].name
    events = []
    for number in range(4000):
        cell = policy.draw(f"user {number}")
        if cell.name != lost:
            drawn = {"unit": f"user {number}", "version": policy.version, "candidate": cell.name}
            events.append({"type": "exposure", "id": str(number), **drawn})
            events.append({"type": "metric", "id": f"v{number}", "name": "view", **drawn})
    result = site.service.ingest("feed", site.service.decode(json.dumps(events).encode())).result()
    assert result.rejected == ()
    site.service.close_round("feed", who="ann")
    assert firing_after_scrapes(site) == {"PastoSampleUnbalanced"}


def test_a_node_that_has_lost_its_store(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PolicyCache, "silence", property(lambda policy_cache: 90.0))
    assert firing_after_scrapes(site) == {"PastoPolicyStale"}


def test_a_guardrail_pause_raises_an_alert(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.service, "guardrail_severities", lambda row: {"like_rate": 1})
    assert firing_after_scrapes(site) == set()
    monkeypatch.setattr(site.service, "guardrail_severities", lambda row: {"like_rate": 2})
    assert firing_after_scrapes(site) == {"PastoGuardrailStopped"}


def test_a_closer_that_is_dead(site: Site) -> None:
    site.scheduler.stop()
    assert firing_after_scrapes(site) == {"PastoRoundsStopped"}


def test_a_round_that_no_scheduler_closes_raises_an_alert(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check a round that no thread closes, although the threads live."""
    every = site.service.policy_cache.snapshot("feed").spec.rounds.every
    assert every is not None
    site.scheduler.stop()
    monkeypatch.setattr(Scheduler, "alive", property(lambda scheduler: True))
    now = site.scrape()
    (labels,) = now.named("pasto_round_overdue_seconds")
    assert now.samples["pasto_round_overdue_seconds", labels] == 0
    later = Scrape(now.at, {**now.samples, ("pasto_round_overdue_seconds", labels): every})
    site.traffic()
    assert "PastoRoundOverdue" in firing(now, later)


def test_rounds_that_are_closed_late(site: Site) -> None:
    now = site.scrape()
    labels = (("study", "feed"),)
    later = Scrape(now.at, {**now.samples, ("pasto_round_close_lag_seconds", labels): 61.0})
    site.traffic()
    assert "PastoRoundsLate" in firing(now, later)
    ontime = Scrape(now.at, {**now.samples, ("pasto_round_close_lag_seconds", labels): 59.0})
    assert "PastoRoundsLate" not in firing(now, ontime)


def test_every_name_in_a_rule_is_counted_and_described(site: Site) -> None:
    site.traffic()
    asked = {name for expression in RULES.values() for name in re.findall(r"pasto_\w+", expression)}
    served = {name for name, _ in site.scrape().samples} | {"pasto_requests_total"}
    assert {name for name in asked if not name.startswith(("pasto_kafka_", "pasto_webhook_"))} <= served
    reference = (DOCS / "reference" / "http.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(pasto_\w+)`", reference))
    assert ({name.removesuffix("_created") for name in served} | asked) - documented == set()


def test_the_guide_shows_the_rules_that_are_shipped() -> None:
    page = (DOCS / "guides" / "operations.md").read_text(encoding="utf-8")
    assert f"```yaml\n{TEXT}```" in page


def test_a_webhook_that_accepts_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path)
    spec = WebhookSpec("ops", "https://hooks.example.com/")
    sender = WebhookWorker(site.service.store, [Webhook(spec)])
    site.application.context.gauge_sources.append(sender.read_metrics)
    notification = Notification("guardrail_stop", time.time() - 700, "likes fell", "feed")
    row = site.service.policy_cache.snapshot("feed").row
    site.service.store.write_cache("x", "", Notifier([spec]).address(row, [notification]))
    try:
        assert firing_after_scrapes(site) == {"PastoWebhookFailing"}
    finally:
        site.scheduler.stop()
        site.service.shutdown()
