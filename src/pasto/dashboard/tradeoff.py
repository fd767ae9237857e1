"""Trade-off question of the dashboard, computed in the service or in its question process."""

from __future__ import annotations

from collections.abc import Mapping

from pasto.service.http.responses import HttpResponse, json_response
from pasto.service.reports.tradeoff import chart_tradeoff, read_posterior_means
from pasto.service.service import Service

NO_STORE = ((b"cache-control", b"no-store"),)


def answer_tradeoff(service: Service, name: str, limits: Mapping[int, float], across: int) -> HttpResponse:
    """Compute the trade-off of a study; a browser must not cache the response."""
    posterior = read_posterior_means(service.policy_cache.reload(name))
    chart = None if posterior is None else chart_tradeoff(posterior, limits, across)
    return json_response({"tradeoff": chart}, headers=NO_STORE)
