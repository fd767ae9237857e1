"""What a running service counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from pasto.service.http.table import Route

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Meters:
    """The counters of one service, in a registry of their own.

    >>> meters = Meters()
    >>> meters.events("feed", {"accepted": 2, "duplicates": 1, "refused": []})
    >>> b'pasto_events_total{result="accepted",study="feed"} 2.0' in meters.text()
    True
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "pasto_requests_total",
            "Requests by route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "pasto_request_seconds",
            "How long answers took.",
            ["method", "route"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._events = Counter(
            "pasto_events_total", "Events by what became of them.", ["study", "result"], registry=self.registry
        )
        self._decisions = Counter(
            "pasto_decisions_total", "Units assigned over HTTP.", ["study", "via"], registry=self.registry
        )
        self._bound: dict[tuple[str, str, int], tuple[Callable[[], None], Callable[[float], None]]] = {}
        self._decided: dict[tuple[str, str], Callable[[float], None]] = {}

    def request(self, route: Route, status: int, seconds: float) -> None:
        """Count one request."""
        place = (route.method, route.path, status)
        found = self._bound.get(place)
        if found is None:
            found = self._bound[place] = (
                self._requests.labels(route.method, route.path, str(status)).inc,
                self._seconds.labels(route.method, route.path).observe,
            )
        found[0]()
        found[1](seconds)

    def events(self, study: str, told: dict[str, Any]) -> None:
        """Count one batch by the answer it got."""
        for result, number in (
            ("accepted", told["accepted"]),
            ("duplicate", told["duplicates"]),
            ("refused", len(told["refused"])),
        ):
            if number:
                self._events.labels(study, result).inc(number)

    def decisions(self, study: str, via: str, number: int = 1) -> None:
        """Count units assigned; of known studies only, so that nobody can fill the registry with names."""
        found = self._decided.get((study, via))
        if found is None:
            found = self._decided[study, via] = self._decisions.labels(study, via).inc
        found(number)

    def watch(self, look: Callable[[], Iterable[tuple[str, str, float, str | None]]]) -> None:
        """Read these at every scrape: (name, what it is, value, study or None) each."""
        self.registry.register(_Looking(look))

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self.registry)


class _Looking(Collector):
    """Values that are looked up when asked for."""

    def __init__(self, look: Callable[[], Iterable[tuple[str, str, float, str | None]]]) -> None:
        self._look = look

    def describe(self) -> Iterator[Metric]:
        """Nothing beforehand: registering would otherwise read the store."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """One gauge a name."""
        gauges: dict[str, GaugeMetricFamily] = {}
        for name, meaning, value, study in self._look():
            gauge = gauges.get(name)
            if gauge is None:
                gauge = gauges[name] = GaugeMetricFamily(name, meaning, labels=[] if study is None else ["study"])
            gauge.add_metric([] if study is None else [study], value)
        return iter(gauges.values())
