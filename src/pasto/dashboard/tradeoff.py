"""Trade-off question of the dashboard, computed in the service or in its question process."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from pasto.service.http.responses import HttpResponse, json_response
from pasto.service.reports.tradeoff import TradeoffCache, compute_tradeoff
from pasto.service.service import Service

NO_STORE = ((b"cache-control", b"no-store"),)
_CACHES: WeakKeyDictionary[Service, TradeoffCache] = WeakKeyDictionary()
"""Posterior samples of each service's studies, in the process that computes trade-offs."""


def answer_tradeoff(service: Service, name: str, limits: Mapping[int, float], across: int) -> HttpResponse:
    """Compute the trade-off of a study; a browser must not cache the response."""
    cache = _CACHES.setdefault(service, TradeoffCache(service.store))
    belief = cache.belief(service.board.reread(name))
    tradeoff = None if belief is None else compute_tradeoff(belief, limits, across)
    return json_response({"tradeoff": tradeoff}, headers=NO_STORE)
