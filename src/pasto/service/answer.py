"""The answer so far as plain JSON, for reports and the audit log."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pasto.records import Blend


def shown(blend: Blend) -> dict[str, Any]:
    """A blend with names for numbers.

    >>> import pasto
    >>> blend = pasto.solve({"x": [2, 0], "y": [-2, 2]}, pasto.maximize("x").keep("y", at_least=0))
    >>> answer = shown(blend)
    >>> answer["probabilities"], answer["prices"], answer["single"]
    ({'0': 0.5, '1': 0.5}, {'y': 0.5}, '1')
    """
    names = blend.names
    return {
        "probabilities": {names[k]: blend.probabilities[k] for k in blend.support},
        "value": blend.value,
        "metrics": dict(blend.metrics),
        "lifts": dict(blend.lifts),
        "prices": dict(blend.prices),
        "feasible": blend.feasible,
        "shortfalls": dict(blend.shortfalls),
        "single": None if blend.single is None else names[blend.single],
        "single_value": blend.single_value,
        "gain": {**asdict(blend.gain), "candidate": names[blend.gain.candidate]},
        "certificate": None if blend.certificate is None else _plain(asdict(blend.certificate)),
        "outlook": None if blend.outlook is None else _outlook(blend),
    }


def _outlook(blend: Blend) -> dict[str, Any]:
    assert blend.outlook is not None  # noqa: S101 -- asked only where there is one
    outlook = asdict(blend.outlook)
    outlook["moves"] = [{**move, "candidate": blend.names[move["candidate"]]} for move in outlook["moves"]]
    return _plain(outlook)


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """Tuples as lists, as JSON has them."""
    return {name: [*part] if isinstance(part, tuple) else part for name, part in value.items()}
