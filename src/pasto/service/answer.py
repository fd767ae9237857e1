"""The answer so far as plain JSON, for reports and the audit log."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pasto.records import Blend, Certificate


def shown(blend: Blend) -> dict[str, Any]:
    """A blend with names for numbers.

    >>> import pasto
    >>> blend = pasto.solve({"x": [2, 0], "y": [-2, 2]}, pasto.maximize("x").keep("y", at_least=0))
    >>> answer = shown(blend)
    >>> answer["probabilities"], answer["prices"], answer["single"]
    ({'0': 0.5, '1': 0.5}, {'y': 0.5}, '1')
    """
    names = blend.names
    told = {
        "probabilities": {names[k]: blend.probabilities[k] for k in blend.support},
        "value": blend.value,
        "metrics": blend.metrics,
        "lifts": blend.lifts,
        "prices": blend.prices,
        "feasible": blend.feasible,
        "shortfalls": blend.shortfalls,
        "single": None if blend.single is None else names[blend.single],
        "single_value": blend.single_value,
        "gain": {**asdict(blend.gain), "candidate": names[blend.gain.candidate]},
        "certificate": None if blend.certificate is None else asdict(blend.certificate),
        "outlook": None,
    }
    if blend.outlook is not None:
        moves = [{**asdict(move), "candidate": names[move.candidate]} for move in blend.outlook.moves]
        told["outlook"] = {**asdict(blend.outlook), "moves": moves}
    plain: dict[str, Any] = _plain(told)
    return plain


def with_joint_bound(answer: Mapping[str, Any] | None, hard: Sequence[str]) -> dict[str, Any] | None:
    """Return an answer whose certificate also names the hard guardrails, with a bound for all of them together.

    An answer that was frozen before this was shown gets it too.

    >>> answer = {"certificate": {"confidence": 0.95, "certified": True, "holds": {"a": 0.97, "b": 0.96}}}
    >>> found = with_joint_bound(answer, ["a", "b"])["certificate"]
    >>> found["hard"], round(found["joint_lower_bound"], 12)
    (['a', 'b'], 0.93)
    """
    if answer is None or not answer.get("certificate"):
        return None if answer is None else dict(answer)
    certificate = answer["certificate"]
    holds = {name: chance or 0.0 for name, chance in certificate["holds"].items()}
    named = [name for name in hard if name in holds]
    bound = Certificate(certificate["confidence"], certificate["certified"], holds, {}).joint_lower_bound(named)
    return {
        **answer,
        "certificate": {**certificate, "hard": named, "joint_lower_bound": bound if named else None},
    }


def _plain(value: Any) -> Any:
    """The same as JSON has it: lists for tuples, null for a number that is not finite."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
