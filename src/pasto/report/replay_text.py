"""Sentences about a replay: rounds that were taken as recorded, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_SENTENCES = {
    "deleted_units": "except deleted units: {units}, in rounds {rounds}, taken as recorded",
    "deleted_events": "except rounds {rounds}, whose events are deleted, taken as recorded",
    "own_tables": "except rounds {rounds}, which were measured in other tables, taken as recorded",
    "covariates": "except covariates in rounds {rounds}, whose past is deleted, taken as recorded",
    "breaker": (
        "except the guardrail monitor's verdicts after rounds {rounds}, judged in an earlier way, taken as recorded"
    ),
}


def describe_exceptions(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each kind of exception in the answer of a replay.

    >>> list(describe_exceptions({"identical": True, "except": {"deleted_events": {"rounds": [4, 3]}}}))
    ['except rounds 3, 4, whose events are deleted, taken as recorded']
    """
    for kind, about in answer.get("except", {}).items():
        yield _SENTENCES[kind].format(**{**about, "rounds": ", ".join(map(str, sorted(about["rounds"])))})
