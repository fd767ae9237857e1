"""The guardrails and the quality of the data, as a report shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pasto.report.measured import MeasuredRound
from pasto.service.spec import Spec
from pasto.service.trust.quantities import floor_basis


def guardrails(
    spec: Spec, answer: Mapping[str, Any] | None, verdicts: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Every guardrail with its three numbers, what the answer makes of it, and what the breaker last said.

    >>> from pasto.service.spec import EXAMPLE, read_spec
    >>> rail = guardrails(read_spec(EXAMPLE, "yaml"), None)[0]
    >>> rail["name"], rail["side"], rail["at"], rail["floor"], rail["state"]
    ('like_rate', 'at_least', '-2%', '-5%', None)
    """
    found = []
    for rail in spec.guardrails:
        certificate = (answer or {}).get("certificate") or {}
        said = [verdict for verdict in verdicts if verdict["name"] == rail.name]
        worst = max(said, key=lambda verdict: SEVERITY[verdict["state"]], default=None)
        found.append(
            {
                "name": rail.name,
                "metric": rail.metric,
                "side": "at_least" if rail.lower else "at_most",
                "at": rail.at.written(),
                "kind": "hard" if rail.penalty is None else "soft",
                "penalty": rail.penalty,
                "budget": rail.budget,
                "floor": rail.floor.written(),
                "judged": floor_basis(spec, rail) or "control",
                "allowed": None if worst is None else worst.get("allowed"),
                "holds": certificate.get("holds", {}).get(rail.name),
                "price": (answer or {}).get("prices", {}).get(rail.name),
                "state": None if worst is None else worst["state"],
                "p_value": None if worst is None else worst["p_value"],
            }
        )
    return found


SEVERITY = {"holds": 0, "warning": 1, "breach": 2}
"""What the breaker says, as a number that rises with the trouble."""


def understated_errors(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics whose standard errors are too small, and by which factor; see `Certificate`.

    >>> understated_errors({"blend": {"certificate": {"understated_errors": {"revenue": 2.1}}}})
    {'revenue': 2.1}
    """
    answer = report.get("frozen") or report.get("blend") or {}
    return dict((answer.get("certificate") or {}).get("understated_errors") or {})


def quality(spec: Spec, rounds: Sequence[MeasuredRound], accounting: Mapping[str, Any] | None) -> dict[str, Any]:
    """How sound the data are: what came late, what was lost, what was cut to its range, what could not be credited."""
    units = sum(one.units for one in rounds)
    events = (accounting or {}).get("events", {})
    came = events.get("exposures", 0) + events.get("metrics", 0)
    late = (accounting or {}).get("late", {}).get("events", 0)
    clipped = (accounting or {}).get("clipped", {})
    return {
        "units": units,
        "events": came,
        "late": {"events": late, "share": late / came if came else None},
        "clipped": {
            column.name: {"units": clipped.get(column.name, 0), "share": clipped.get(column.name, 0) / units}
            for column in spec.columns
            if units
        },
        "uncredited": events.get("uncredited", 0),
        "excluded": events.get("excluded", 0),
        "rejected": (accounting or {}).get("rejected", {"events": 0, "reasons": []}),
        "missing": (accounting or {}).get("senders", {}).get("missing", 0),
        "departures": (accounting or {}).get("departures", []),
        "gap": sum(version["gap"] for version in (accounting or {}).get("versions", ())),
    }
