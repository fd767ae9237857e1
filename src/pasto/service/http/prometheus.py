"""Metrics of a running service in the text format of Prometheus.

The event loop counts in plain dictionaries, which costs a fraction of a microsecond per request. They are converted
when Prometheus scrapes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from pasto.service.ingest import BatchResult

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BOUNDS = (*map(str, SECONDS), "+Inf")
Gauge = tuple[str, str, float, str | Mapping[str, str] | None]
"""Name, help text and value of a gauge, with its study, its labels or None."""
GaugeSource = Callable[[], Iterable[Gauge]]


class PrometheusMetrics(Collector):
    """Counters of one service, in a registry of their own.

    >>> metrics = PrometheusMetrics(lambda: [("pasto_policy_waiters", "Callers waiting.", 3, None)])
    >>> metrics.count_events("feed", BatchResult(accepted=2, duplicates=1, rejected=()))
    >>> b'pasto_events_total{result="accepted",study="feed"} 2.0' in metrics.text()
    True
    """

    def __init__(self, collect_gauges: GaugeSource, suppressed_lines: Callable[[], Mapping[int, int]] = dict) -> None:
        self._collect_gauges = collect_gauges
        self._suppressed_lines = suppressed_lines
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[tuple[str, str], list[int]] = {}
        self._seconds: dict[tuple[str, str], float] = {}
        self._events: Counter[tuple[str, str]] = Counter()
        self._decisions: Counter[tuple[str, str]] = Counter()
        self._not_enrolled: Counter[tuple[str, str]] = Counter()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def count_request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request by its route's method and path."""
        self._requests[method, path, status] += 1
        buckets = self._buckets.get((method, path))
        if buckets is None:
            buckets = self._buckets[method, path] = [0] * len(BOUNDS)
            self._seconds[method, path] = 0.0
        buckets[bisect_left(SECONDS, seconds)] += 1
        self._seconds[method, path] += seconds

    def count_events(self, study: str, result: BatchResult) -> None:
        """Count a batch by its result. Call it for existing studies only, so that callers cannot add labels."""
        self._events[study, "accepted"] += result.accepted
        self._events[study, "duplicate"] += result.duplicates
        self._events[study, "rejected"] += len(result.rejected)

    def count_decisions(self, study: str, via: str, number: int = 1) -> None:
        """Count assigned units."""
        self._decisions[study, via] += number

    def count_not_enrolled(self, study: str, via: str, number: int = 1) -> None:
        """Count assigned units that got the baseline because they do not take part in the study."""
        self._not_enrolled[study, via] += number

    def duplicates(self, study: str) -> int:
        """Return the number of duplicate events since the process started."""
        return self._events[study, "duplicate"]

    def text(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self._registry)

    def describe(self) -> Iterator[Metric]:
        """Yield nothing, because registering the collector would otherwise read the store."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        requests = CounterMetricFamily(
            "pasto_requests", "Requests by route and status.", labels=["method", "route", "status"]
        )
        for (method, path, status), number in list(self._requests.items()):
            requests.add_metric([method, path, str(status)], number)
        seconds = HistogramMetricFamily(
            "pasto_request_seconds", "Seconds until the response.", labels=["method", "route"]
        )
        for place, buckets in list(self._buckets.items()):
            counts = [*zip(BOUNDS, accumulate(buckets), strict=True)]
            seconds.add_metric([*place], counts, self._seconds[place])
        events = CounterMetricFamily("pasto_events", "Events by result.", labels=["study", "result"])
        for place, number in list(self._events.items()):
            events.add_metric([*place], number)
        decisions = CounterMetricFamily("pasto_decisions", "Units assigned over HTTP.", labels=["study", "via"])
        for place, number in list(self._decisions.items()):
            decisions.add_metric([*place], number)
        not_enrolled = CounterMetricFamily(
            "pasto_not_enrolled", "Units among them that do not take part in the study.", labels=["study", "via"]
        )
        for place, number in list(self._not_enrolled.items()):
            not_enrolled.add_metric([*place], number)
        suppressed = CounterMetricFamily(
            "pasto_suppressed_log_lines", "Rejected requests that were not logged one by one.", labels=["status"]
        )
        for status, number in self._suppressed_lines().items():
            suppressed.add_metric([str(status)], number)
        yield from (requests, seconds, events, decisions, not_enrolled, suppressed)
        gauges: dict[str, GaugeMetricFamily] = {}
        for name, meaning, value, study in self._collect_gauges():
            gauge = gauges.get(name)
            labels = {} if study is None else {"study": study} if isinstance(study, str) else study
            if gauge is None:
                gauge = gauges[name] = GaugeMetricFamily(name, meaning, labels=list(labels))
            gauge.add_metric(list(labels.values()), value)
        yield from gauges.values()
