"""Reports of studies whose closed rounds could not be learned."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pasto.report.text import render_text
from pasto.service.service import Service


def test_a_report_without_an_answer_gives_the_reason(
    service: Service, document: dict[str, Any], traffic: Callable[[Service, int], list[dict[str, Any]]]
) -> None:
    service.create({**document, "guardrails": [{"metric": "likes", "at_least": "-20%"}]}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    assert service.report("feed").problem == "no round has been learned yet"
    events = [event for event in traffic(service, 100) if event.get("name") != "like"]
    service.ingest("feed", service.decode(json.dumps(events).encode())).result()
    service.close_round("feed", who="ann")
    report = service.report("feed")
    assert report.problem is not None
    assert "round 1 could not be learned: the baseline's 'likes' is 0" in report.problem
    assert "round 1 could not be learned" in " ".join(render_text(report).split())
