"""An objective as a plain JSON value, and back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pasto.errors import BadState
from pasto.objective.guardrail import Guardrail
from pasto.objective.objective import Objective, Utility
from pasto.objective.ratio import Ratio


def to_saved(objective: Objective) -> dict[str, Any]:
    """Write an objective down; of a utility only the metrics, since its functions cannot be saved.

    >>> import pasto
    >>> objective = pasto.maximize("x").keep("y", at_least=0, penalty=5.0)
    >>> from_saved(to_saved(objective)) == objective
    True
    """
    match objective.target:
        case Utility(over=over):
            target: dict[str, Any] = {"utility": list(over)}
        case Ratio():
            target = {"ratio": asdict(objective.target)}
        case weights:
            target = {"weights": dict(weights)}
    return {**target, "sign": objective.sign, "guardrails": [asdict(rail) for rail in objective.guardrails]}


def from_saved(saved: dict[str, Any]) -> Objective:
    """Read back what `to_saved` wrote; a utility has to be passed in by the caller instead."""
    if "utility" in saved:
        raise BadState(
            f"this study's objective is a utility of {', '.join(saved['utility'])}, whose functions are not in the "
            "saved state; pass it back in as objective="
        )
    try:
        target = Ratio(**saved["ratio"]) if "ratio" in saved else dict(saved["weights"])
        rails = tuple(
            Guardrail(
                **{**rail, "metric": Ratio(**rail["metric"]) if isinstance(rail["metric"], dict) else rail["metric"]}
            )
            for rail in saved["guardrails"]
        )
        return Objective(target, saved["sign"], rails)
    except (KeyError, TypeError) as error:
        raise BadState(f"the saved objective cannot be read: {error}") from error
