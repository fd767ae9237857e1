"""A study's past in at most a few hundred points, however long it is: rounds are sampled evenly, each read once."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from threading import Lock
from typing import Any

import numpy as np

from pasto.errors import MeasurementError
from pasto.inference import Quantity
from pasto.inference.lift import LiftTarget, estimate_history
from pasto.inference.round_data import CellMoments, MeasuredRound, record_rounds
from pasto.report.guardrail_text import basis_text
from pasto.service.close_record import CloseRecord, RecordedRound
from pasto.service.policy_cache import StudySnapshot
from pasto.service.reports.lift_report import aimed_quantities, finite
from pasto.service.study_file import GuardrailSpec, StudySpec
from pasto.service.study_file.quantities import build_quantities, find_stop_basis
from pasto.store import Store
from pasto_sdk.policy_document import BUCKET_TOTAL

POINTS = 150
"""Rounds that one picture shows at most."""

LEADERS = 40
"""Candidates whose shares are kept of each policy; the others are counted together."""

KEPT = 4_000
"""Sampled rounds that are remembered, of all studies together."""

BATCH = 25
"""Rounds read at once where every one is wanted; of wide studies more would be a lot of text."""


@dataclass(frozen=True, slots=True)
class PolicySample:
    """Who got what under one policy, without its control: the leaders, and all others together."""

    version: int
    state: str
    shares: tuple[tuple[str, float], ...]
    """The largest first."""
    others: float
    count: int
    """Candidates that were served."""


@dataclass(frozen=True, slots=True)
class RoundSample:
    """What one learning round measured: its control, and all that the learner served, as one cell each."""

    round: int
    control: CellMoments | None
    learner: CellMoments | None
    clipped: int


def sample_rounds(first: int, last: int, points: int = POINTS) -> tuple[int, list[int]]:
    """The stride and the numbers to look at, both ends among them; strides double, so that points are met again.

    >>> sample_rounds(1, 5)
    (1, [1, 2, 3, 4, 5])
    >>> sample_rounds(1, 10, points=4)
    (4, [1, 4, 8, 10])
    """
    stride = 1
    while (last - first) // stride + 1 > points:
        stride *= 2
    inner = range(first + (-first) % stride, last + 1, stride)
    return stride, sorted({first, *inner, last}) if last >= first else []


class RoundSamples:
    """Reads sampled policies and closes, and remembers them: both are written once and never change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._served: OrderedDict[tuple[int, int], PolicySample] = OrderedDict()
        self._seen: OrderedDict[tuple[int, int], tuple[tuple[RoundSample, ...], tuple[RoundSample, ...]]] = (
            OrderedDict()
        )
        """What closes learned from, and what they corrected of rounds before."""
        self._lock = Lock()

    def served(self, study: int, versions: Sequence[int]) -> list[PolicySample]:
        """The policies of these versions, as far as there are such."""
        found = self._all(self._served, study, versions, self._read_policies)
        return [found[version] for version in versions if version in found]

    def seen(self, study: int, rounds: Sequence[int]) -> list[RoundSample]:
        """What the closes of these rounds learned from, in order of the rounds learned."""
        found = self._all(self._seen, study, rounds, self._read_closes)
        closes = [found[close] for close in rounds if close in found]
        learned = {one.round: one for new, _ in closes for one in new}
        learned |= {one.round: one for _, corrected in closes for one in corrected if one.round in learned}
        return [learned[number] for number in sorted(learned)]

    def _all(self, kept: OrderedDict[tuple[int, int], Any], study: int, wanted: Sequence[int], read: Any) -> Any:
        with self._lock:
            found = {number: kept[study, number] for number in wanted if (study, number) in kept}
        for first, count in _runs([number for number in wanted if number not in found]):
            new = read(study, first, count)
            found |= new
            with self._lock:
                kept.update({(study, number): one for number, one in new.items()})
                while len(kept) > KEPT:
                    kept.popitem(last=False)
        return found

    def _read_policies(self, study: int, first: int, count: int) -> dict[int, PolicySample]:
        return {
            row.version: _served(row.document) for row in self._store.list_policies(study, after=first - 1, limit=count)
        }

    def _read_closes(self, study: int, first: int, count: int) -> dict[int, tuple[tuple[RoundSample, ...], ...]]:
        found = {}
        for row in self._store.list_closes(study, after=first - 1, limit=count):
            record = CloseRecord.from_text(row.record)
            found[row.round] = tuple(tuple(map(_seen, entries)) for entries in (record.rounds, record.corrected))
        return found


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring numbers as first and count, few enough of them at once.

    >>> _runs([1, 2, 3, 8, 12, 13])
    [(1, 3), (8, 1), (12, 2)]
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and sum(found[-1]) == number and found[-1][1] < BATCH:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((number, 1))
    return found


def _served(text: str) -> PolicySample:
    document = json.loads(text)
    names = {one["index"]: one["name"] for one in document["candidates"]}
    shares: dict[int, float] = {}
    before = 0
    for cell in document["cells"]:
        width, before = cell["until"] - before, cell["until"]
        if cell["arm"] != "control":
            shares[cell["candidate"]] = shares.get(cell["candidate"], 0.0) + width / BUCKET_TOTAL
    whole = sum(shares.values()) or 1.0
    largest = sorted(shares.items(), key=lambda share: (-share[1], share[0]))
    leaders = tuple((names[k], share / whole) for k, share in largest[:LEADERS])
    others = sum(share for _, share in largest[LEADERS:]) / whole
    return PolicySample(document["version"], document["state"], leaders, others, len(shares))


def _seen(entry: RecordedRound) -> RoundSample:
    cells = entry.cells
    return RoundSample(entry.round, cells.total("control"), cells.total("learner"), sum(cells.count_clipped()))


NAMED = 7
"""Candidates with a colour of their own; the rest are one."""

FEWEST = 50
"""Units on a side below which a level's interval says nothing."""


def build_series(
    samples: RoundSamples, standing: StudySnapshot, first: int = 1, last: int | None = None
) -> dict[str, Any]:
    """Policies and metrics over a range of rounds, in plain JSON."""
    row = standing.row
    last = row.version if last is None else min(last, row.version)
    stride, numbers = sample_rounds(max(1, first), last, POINTS)
    served = samples.served(row.number, numbers)
    seen = [one for one in samples.seen(row.number, numbers) if one.round >= first]
    return {
        "first": numbers[0] if numbers else 0,
        "last": last,
        "stride": stride,
        "rounds": row.version,
        "policy": build_policy_series(served),
        "metrics": build_metric_series(standing.spec, seen),
    }


def build_policy_series(served: Sequence[PolicySample]) -> dict[str, Any]:
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


def build_metric_series(spec: StudySpec, seen: Sequence[RoundSample]) -> list[dict[str, Any]]:
    """The goal's metrics and every guardrail's, each in the unit it is judged in."""
    known = build_quantities(spec)
    rails = {rail.metric: rail for rail in spec.guardrails}
    goals = [name for name in aimed_quantities(spec) if name not in rails]
    found = [_line(spec, known[name], name, None, seen) for name in goals if name in known]
    return found + [_line(spec, known[rail.metric], rail.metric, rail, seen) for rail in spec.guardrails]


def _line(
    spec: StudySpec, quantity: Quantity, name: str, rail: GuardrailSpec | None, seen: Sequence[RoundSample]
) -> dict[str, Any]:
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
            "floor": rail.stop_at.number if same and rail.stop_at.relative == rail.at.relative else None,
            "limit": rail.at.written(),
            "floor_written": rail.stop_at.written(),
            "judged": basis_text(find_stop_basis(spec, rail) or "control"),
        }
    return found


def _lifts(spec: StudySpec, quantity: Quantity, rounds: Sequence[RoundSample]) -> dict[str, list[float | None]]:
    """Percent over the control, each round alone."""
    if not rounds:
        return {"value": [], "low": [], "high": []}
    measured = [MeasuredRound(one.round, {}, [c for c in (one.control, one.learner) if c]) for one in rounds]
    try:
        told = estimate_history(
            record_rounds(measured), quantity, LiftTarget("served"), confidence=spec.confidence
        ).by_round
    except (MeasurementError, ArithmeticError, ValueError):
        empty: list[float | None] = [None] * len(rounds)
        return {"value": empty, "low": empty, "high": empty}
    ends = (("value", told.estimate), ("low", told.low), ("high", told.high))
    return {end: [finite(100.0 * value) for value in values.tolist()] for end, values in ends}


def _levels(spec: StudySpec, quantity: Quantity, rounds: Sequence[RoundSample]) -> dict[str, list[float | None]]:
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
