"""What the pictures of a study's rounds are drawn from: shares of the leaders, and metrics with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from pasto.dashboard.sampling import POINTS, Samples, Seen, Served, sampled
from pasto.errors import BadMeasurement
from pasto.estimate.intervals import Quantity
from pasto.report.guardrail_text import basis_text
from pasto.report.lift import Target, history
from pasto.report.measured import CellMoments, MeasuredRound, recorded
from pasto.service.board import Standing
from pasto.service.spec import Rail, Spec
from pasto.service.trust.lifted import aimed, finite
from pasto.service.trust.quantities import floor_basis, quantities

NAMED = 7
"""Candidates with a colour of their own; the rest are one."""
FEWEST = 50
"""Units on a side below which a level's interval says nothing."""


def series(samples: Samples, standing: Standing, first: int = 1, last: int | None = None) -> dict[str, Any]:
    """Policies and metrics over a range of rounds, in plain JSON."""
    row = standing.row
    last = row.version if last is None else min(last, row.version)
    stride, numbers = sampled(max(1, first), last, POINTS)
    served = samples.served(row.number, numbers)
    seen = [one for one in samples.seen(row.number, numbers) if one.round >= first]
    return {
        "first": numbers[0] if numbers else 0,
        "last": last,
        "stride": stride,
        "rounds": row.version,
        "policy": policy_series(served),
        "metrics": metric_series(standing.spec, seen),
    }


def policy_series(served: Sequence[Served]) -> dict[str, Any]:
    """Shares of the leaders by version; a candidate leads by what it has now, and by what it had."""
    weight: dict[str, float] = {}
    for place, one in enumerate(served):
        factor = len(served) if place == len(served) - 1 else 1.0
        for name, share in one.shares:
            weight[name] = weight.get(name, 0.0) + factor * share
    leaders = sorted(weight, key=lambda name: (-weight[name], name))[:NAMED]
    most = max((one.count for one in served), default=0)
    lines = [dict(one.shares) for one in served]
    shares = [[line.get(name, 0.0) for line in lines] for name in leaders]
    rest = most - len(leaders)
    found: dict[str, Any] = {
        "versions": [one.version for one in served],
        "states": [one.state for one in served],
        "names": leaders,
        "shares": shares,
        "others": None,
        "count": most,
    }
    if rest > 0:
        left = [max(0.0, 1.0 - sum(line.get(name, 0.0) for name in leaders)) for line in lines]
        found["others"] = {"name": f"{rest} other{'s' if rest > 1 else ''}", "shares": left}
    return found


def metric_series(spec: Spec, seen: Sequence[Seen]) -> list[dict[str, Any]]:
    """The goal's metrics and every guardrail's, each in the unit it is judged in."""
    known = quantities(spec)
    rails = {rail.metric: rail for rail in spec.guardrails}
    goals = [name for name in aimed(spec) if name not in rails]
    found = [_line(spec, known[name], name, None, seen) for name in goals if name in known]
    return found + [_line(spec, known[rail.metric], rail.metric, rail, seen) for rail in spec.guardrails]


def _line(spec: Spec, quantity: Quantity, name: str, rail: Rail | None, seen: Sequence[Seen]) -> dict[str, Any]:
    controlled = any(one.control is not None for one in seen) or not seen
    relative = controlled and (rail is None or rail.at.relative)
    rounds = [one for one in seen if one.learner is not None and (one.control is not None or not relative)]
    told = _lifts(spec, quantity, rounds) if relative else _levels(spec, quantity, rounds)
    found: dict[str, Any] = {
        "name": name if rail is None else rail.name,
        "role": "goal" if rail is None else "guardrail",
        "relative": relative,
        "rounds": [one.round for one in rounds],
        "units": [0 if one.learner is None else one.learner.units for one in rounds],
        "confidence": spec.confidence,
        "control": [_shown(one.control, quantity) for one in rounds],
        "served": [_shown(one.learner, quantity) for one in rounds],
        **told,
    }
    if rail is not None:
        same = relative == rail.at.relative
        found |= {
            "side": "at_least" if rail.lower else "at_most",
            "at": rail.at.number if same else None,
            "floor": rail.floor.number if same and rail.floor.relative == rail.at.relative else None,
            "limit": rail.at.written(),
            "floor_written": rail.floor.written(),
            "judged": basis_text(floor_basis(spec, rail) or "control"),
        }
    return found


def _lifts(spec: Spec, quantity: Quantity, rounds: Sequence[Seen]) -> dict[str, list[float | None]]:
    """Percent over the control, each round alone."""
    if not rounds:
        return {"value": [], "low": [], "high": []}
    measured = [MeasuredRound(one.round, {}, [c for c in (one.control, one.learner) if c]) for one in rounds]
    try:
        told = history(recorded(measured), quantity, Target("served"), confidence=spec.confidence).by_round
    except (BadMeasurement, ArithmeticError, ValueError):
        empty: list[float | None] = [None] * len(rounds)
        return {"value": empty, "low": empty, "high": empty}
    ends = (("value", told.estimate), ("low", told.low), ("high", told.high))
    return {end: [finite(100.0 * value) for value in values.tolist()] for end, values in ends}


def _levels(spec: Spec, quantity: Quantity, rounds: Sequence[Seen]) -> dict[str, list[float | None]]:
    """What was served in the metric's own unit, each round alone."""
    z = NormalDist().inv_cdf(0.5 + spec.confidence / 2)
    found: dict[str, list[float | None]] = {"value": [], "low": [], "high": []}
    for one in rounds:
        level, error = _level(one.learner, quantity)
        known = math.isfinite(error)
        found["value"].append(finite(level))
        found["low"].append(level - z * error if known else None)
        found["high"].append(level + z * error if known else None)
    return found


def _level(cell: CellMoments | None, quantity: Quantity) -> tuple[float, float]:
    """A quantity's level in a cell, and its standard error."""
    if cell is None:
        return math.nan, math.nan
    mean, top = np.array(cell.mean), quantity.numerator
    gradient = np.zeros(len(mean))
    gradient[top], level = 1.0, float(mean[top])
    if quantity.denominator is not None:
        under = float(mean[quantity.denominator])
        if not under:
            return math.nan, math.nan
        level /= under
        gradient /= under
        gradient[quantity.denominator] = -level / under
    if cell.units < FEWEST:
        return level, math.nan
    variance = float(gradient @ np.array(cell.cross) @ gradient) / (cell.units - 1) / cell.units
    return level, math.sqrt(max(0.0, variance))


def _shown(cell: CellMoments | None, quantity: Quantity) -> float | None:
    level = _level(cell, quantity)[0]
    return finite(level)
