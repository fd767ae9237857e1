"""What a running service counts, for Prometheus.

Counted in plain numbers by the one thread that serves, and put into Prometheus's form only when it asks: a request
pays a fraction of a microsecond for being counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from pasto.service.http.routes import Route

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BOUNDS = (*map(str, SECONDS), "+Inf")
Look = Callable[[], Iterable[tuple[str, str, float, str | Mapping[str, str] | None]]]
"""What is looked up when asked for: (name, what it is, value, and its study, its labels, or None) each."""


class PrometheusMetrics(Collector):
    """The counters of one service, in a registry of their own.

    >>> meters = PrometheusMetrics(lambda: [("pasto_policy_waiters", "Callers waiting.", 3, None)])
    >>> meters.events("feed", {"accepted": 2, "duplicates": 1, "rejected": []})
    >>> b'pasto_events_total{result="accepted",study="feed"} 2.0' in meters.text()
    True
    """

    def __init__(self, look: Look, suppressed_lines: Callable[[], Mapping[int, int]] = dict) -> None:
        self._look = look
        self._suppressed_lines = suppressed_lines
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[tuple[str, str], list[int]] = {}
        self._seconds: dict[tuple[str, str], float] = {}
        self._events: Counter[tuple[str, str]] = Counter()
        self._decisions: Counter[tuple[str, str]] = Counter()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def request(self, route: Route, status: int, seconds: float) -> None:
        """Count one request."""
        method, path = route.method, route.path
        self._requests[method, path, status] += 1
        buckets = self._buckets.get((method, path))
        if buckets is None:
            buckets = self._buckets[method, path] = [0] * len(BOUNDS)
            self._seconds[method, path] = 0.0
        buckets[bisect_left(SECONDS, seconds)] += 1
        self._seconds[method, path] += seconds

    def events(self, study: str, told: dict[str, Any]) -> None:
        """Count one batch by the answer it got; of known studies only, so that nobody can fill this with names."""
        self._events[study, "accepted"] += told["accepted"]
        self._events[study, "duplicate"] += told["duplicates"]
        self._events[study, "rejected"] += len(told["rejected"])

    def decisions(self, study: str, via: str, number: int = 1) -> None:
        """Count units assigned."""
        self._decisions[study, via] += number

    def duplicates(self, study: str) -> int:
        """Events that came again and were counted once, since this process began."""
        return self._events[study, "duplicate"]

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self._registry)

    def describe(self) -> Iterator[Metric]:
        """Nothing beforehand: registering would otherwise read the store."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Everything, now."""
        requests = CounterMetricFamily(
            "pasto_requests", "Requests by route and status.", labels=["method", "route", "status"]
        )
        for (method, path, status), number in list(self._requests.items()):
            requests.add_metric([method, path, str(status)], number)
        seconds = HistogramMetricFamily("pasto_request_seconds", "How long answers took.", labels=["method", "route"])
        for place, buckets in list(self._buckets.items()):
            counts = [*zip(BOUNDS, accumulate(buckets), strict=True)]
            seconds.add_metric([*place], counts, self._seconds[place])
        events = CounterMetricFamily("pasto_events", "Events by what became of them.", labels=["study", "result"])
        for place, number in list(self._events.items()):
            events.add_metric([*place], number)
        decisions = CounterMetricFamily("pasto_decisions", "Units assigned over HTTP.", labels=["study", "via"])
        for place, number in list(self._decisions.items()):
            decisions.add_metric([*place], number)
        suppressed = CounterMetricFamily(
            "pasto_suppressed_log_lines", "Refused requests that were not logged one by one.", labels=["status"]
        )
        for status, number in self._suppressed_lines().items():
            suppressed.add_metric([str(status)], number)
        yield from (requests, seconds, events, decisions, suppressed)
        gauges: dict[str, GaugeMetricFamily] = {}
        for name, meaning, value, study in self._look():
            gauge = gauges.get(name)
            labels = {} if study is None else {"study": study} if isinstance(study, str) else study
            if gauge is None:
                gauge = gauges[name] = GaugeMetricFamily(name, meaning, labels=list(labels))
            gauge.add_metric(list(labels.values()), value)
        yield from gauges.values()
