"""Chart data of a study: at most a few hundred evenly sampled rounds, each read once."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from threading import Lock
from typing import Any, Literal

import numpy as np

from pasto.errors import MeasurementError
from pasto.inference import Quantity
from pasto.inference.lift import LiftTarget, estimate_history
from pasto.inference.round_data import CellMoments, MeasuredRound, record_rounds
from pasto.report.guardrail_text import basis_text
from pasto.report.lift_records import GuardrailSide
from pasto.report.records import extend_record, finite
from pasto.service.close_record import CloseRecord, RecordedRound
from pasto.service.http.responses import HttpResponse, json_response
from pasto.service.policy_cache import StudySnapshot
from pasto.service.reports.lift_report import aimed_quantities
from pasto.service.reports.tradeoff import chart_tradeoff, read_posterior_means
from pasto.service.service import Service
from pasto.service.study_file import GuardrailSpec, StudySpec
from pasto.service.study_file.spec import build_quantities, find_stop_basis
from pasto.store import Store
from pasto_sdk.policy_document import BUCKET_TOTAL

NO_STORE = ((b"cache-control", b"no-store"),)
POINTS = 150
"""Rounds in one chart at most."""

LEADERS = 40
"""Candidates of each policy whose shares are cached; the others are summed."""

MAX_CACHED_ROUNDS = 4_000
"""Sampled rounds that are cached, of all studies together."""

BATCH = 25
"""Rounds read at once if every one is needed; in wide studies more would be much text."""


@dataclass(frozen=True, slots=True)
class PolicySample:
    """Shares of the candidates under one policy, without its control: the leaders, and all others together."""

    version: int
    state: str
    shares: tuple[tuple[str, float], ...]
    """The largest first."""
    others: float
    count: int
    """Candidates that were served."""


@dataclass(frozen=True, slots=True)
class RoundSample:
    """Measurements of one learning round: one cell for its control, and one for all that the learner served."""

    round: int
    control: CellMoments | None
    learner: CellMoments | None
    clipped: int


def sample_rounds(first: int, last: int, points: int = POINTS) -> tuple[int, list[int]]:
    """Return the stride and the rounds to read, both ends included; strides double, so that points are reused.

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
    """Reader of sampled policies and closes, which caches them: both are written once and never change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._policies: OrderedDict[tuple[int, int], PolicySample] = OrderedDict()
        self._rounds: OrderedDict[tuple[int, int], tuple[tuple[RoundSample, ...], tuple[RoundSample, ...]]] = (
            OrderedDict()
        )
        """Rounds that closes learned, and earlier rounds that they corrected."""
        self._lock = Lock()

    def read_policies(self, study: int, versions: Sequence[int]) -> list[PolicySample]:
        """Return the policies of these versions, if they exist."""
        series = self._fetch(self._policies, study, versions, self._load_policies)
        return [series[version] for version in versions if version in series]

    def read_rounds(self, study: int, rounds: Sequence[int]) -> list[RoundSample]:
        """Return the rounds that these closes learned, in order."""
        series = self._fetch(self._rounds, study, rounds, self._load_closes)
        closes = [series[close] for close in rounds if close in series]
        learned = {sample.round: sample for new, _ in closes for sample in new}
        learned |= {sample.round: sample for _, corrected in closes for sample in corrected if sample.round in learned}
        return [learned[number] for number in sorted(learned)]

    def _fetch(self, cache: OrderedDict[tuple[int, int], Any], study: int, wanted: Sequence[int], read: Any) -> Any:
        with self._lock:
            series = {number: cache[study, number] for number in wanted if (study, number) in cache}
        for first, count in _runs([number for number in wanted if number not in series]):
            new = read(study, first, count)
            series |= new
            with self._lock:
                cache.update({(study, number): sample for number, sample in new.items()})
                while len(cache) > MAX_CACHED_ROUNDS:
                    cache.popitem(last=False)
        return series

    def _load_policies(self, study: int, first: int, count: int) -> dict[int, PolicySample]:
        return {
            row.version: _policy_sample(row.document)
            for row in self._store.list_policies(study, after=first - 1, limit=count)
        }

    def _load_closes(self, study: int, first: int, count: int) -> dict[int, tuple[tuple[RoundSample, ...], ...]]:
        series = {}
        for row in self._store.list_closes(study, after=first - 1, limit=count):
            record = CloseRecord.from_text(row.record)
            series[row.round] = tuple(
                tuple(map(_round_sample, entries)) for entries in (record.rounds, record.corrected)
            )
        return series


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return runs of neighbouring numbers as first and count, with at most a batch in each.

    >>> _runs([1, 2, 3, 8, 12, 13])
    [(1, 3), (8, 1), (12, 2)]
    """
    series: list[tuple[int, int]] = []
    for number in numbers:
        if series and sum(series[-1]) == number and series[-1][1] < BATCH:
            series[-1] = series[-1][0], series[-1][1] + 1
        else:
            series.append((number, 1))
    return series


def _policy_sample(text: str) -> PolicySample:
    document = json.loads(text)
    names = {sample["index"]: sample["name"] for sample in document["candidates"]}
    shares: dict[int, float] = {}
    before = 0
    for cell in document["cells"]:
        width, before = cell["until"] - before, cell["until"]
        if cell["arm"] != "control":
            shares[cell["candidate"]] = shares.get(cell["candidate"], 0.0) + width / BUCKET_TOTAL
    total = sum(shares.values()) or 1.0
    largest = sorted(shares.items(), key=lambda share: (-share[1], share[0]))
    leaders = tuple((names[k], share / total) for k, share in largest[:LEADERS])
    others = sum(share for _, share in largest[LEADERS:]) / total
    return PolicySample(document["version"], document["state"], leaders, others, len(shares))


def _round_sample(entry: RecordedRound) -> RoundSample:
    cells = entry.cells
    return RoundSample(entry.round, cells.total("control"), cells.total("learner"), sum(cells.count_clipped()))


MAX_LEADERS = 7
"""Candidates with a colour of their own; the rest are one."""

MIN_UNITS = 50
"""Units below which a level has no interval."""


@dataclass(frozen=True, slots=True)
class OtherShares:
    """Shares of all candidates but the leading ones, by version."""

    name: str
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PolicySeries:
    """Shares of the leading candidates by version."""

    versions: tuple[int, ...]
    states: tuple[str, ...]
    names: tuple[str, ...]
    shares: tuple[tuple[float, ...], ...]
    """Of each name, by version."""
    others: OtherShares | None
    count: int
    """Largest number of candidates that a version served."""


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """One metric by round: its level in the control and in the served traffic, and its lift or level with interval."""

    name: str
    role: Literal["goal", "guardrail"]
    relative: bool
    """True if `value` is the lift in percent over the control."""
    rounds: tuple[int, ...]
    units: tuple[int, ...]
    confidence: float
    control: tuple[float | None, ...]
    served: tuple[float | None, ...]
    value: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class GuardrailSeries(MetricSeries):
    """Metric of a guardrail by round, with its limit and its stop level."""

    side: GuardrailSide
    at: float | None
    """Limit in the unit of `value`; None if it has another unit."""
    floor: float | None
    """Stop level in the unit of `value`; None if it has another unit."""
    limit: str | float
    """Limit as the study file has it."""
    floor_written: str | float
    judged: str


@dataclass(frozen=True, slots=True)
class RoundSeries:
    """Policies and metrics over a range of rounds."""

    first: int
    last: int
    stride: int
    rounds: int
    """Rounds of the study."""
    policy: PolicySeries
    metrics: tuple[MetricSeries, ...]


def build_series(
    samples: RoundSamples, snapshot: StudySnapshot, first: int = 1, last: int | None = None
) -> RoundSeries:
    """Return policies and metrics over a range of rounds."""
    row = snapshot.row
    last = row.version if last is None else min(last, row.version)
    stride, numbers = sample_rounds(max(1, first), last, POINTS)
    served = samples.read_policies(row.number, numbers)
    rounds = [sample for sample in samples.read_rounds(row.number, numbers) if sample.round >= first]
    return RoundSeries(
        first=numbers[0] if numbers else 0,
        last=last,
        stride=stride,
        rounds=row.version,
        policy=build_policy_series(served),
        metrics=tuple(build_metric_series(snapshot.spec, rounds)),
    )


def build_policy_series(served: Sequence[PolicySample]) -> PolicySeries:
    """Return the shares of the leading candidates by version; the latest share counts most."""
    weight: dict[str, float] = {}
    for place, sample in enumerate(served):
        factor = len(served) if place == len(served) - 1 else 1.0
        for name, share in sample.shares:
            weight[name] = weight.get(name, 0.0) + factor * share
    leaders = tuple(sorted(weight, key=lambda name: (-weight[name], name))[:MAX_LEADERS])
    most = max((sample.count for sample in served), default=0)
    lines = [dict(sample.shares) for sample in served]
    others = None
    if (rest := most - len(leaders)) > 0:
        left = tuple(max(0.0, 1.0 - sum(line.get(name, 0.0) for name in leaders)) for line in lines)
        others = OtherShares(f"{rest} other{'s' if rest > 1 else ''}", left)
    return PolicySeries(
        versions=tuple(sample.version for sample in served),
        states=tuple(sample.state for sample in served),
        names=leaders,
        shares=tuple(tuple(line.get(name, 0.0) for line in lines) for name in leaders),
        others=others,
        count=most,
    )


def build_metric_series(spec: StudySpec, rounds: Sequence[RoundSample]) -> list[MetricSeries]:
    """Return the series of the goal's metrics and of every guardrail, each in the unit it is judged in."""
    known = build_quantities(spec)
    guardrails = {guardrail.metric: guardrail for guardrail in spec.guardrails}
    goals = [name for name in aimed_quantities(spec) if name not in guardrails]
    series = [_line(spec, known[name], name, None, rounds) for name in goals if name in known]
    return series + [
        _line(spec, known[guardrail.metric], guardrail.metric, guardrail, rounds) for guardrail in spec.guardrails
    ]


def _line(
    spec: StudySpec, quantity: Quantity, name: str, guardrail: GuardrailSpec | None, rounds: Sequence[RoundSample]
) -> MetricSeries:
    controlled = any(sample.control is not None for sample in rounds) or not rounds
    relative = controlled and (guardrail is None or guardrail.at.relative)
    rounds = [
        sample for sample in rounds if sample.learner is not None and (sample.control is not None or not relative)
    ]
    value, low, high = _lifts(spec, quantity, rounds) if relative else _levels(spec, quantity, rounds)
    series = MetricSeries(
        name=name if guardrail is None else guardrail.name,
        role="goal" if guardrail is None else "guardrail",
        relative=relative,
        rounds=tuple(sample.round for sample in rounds),
        units=tuple(0 if sample.learner is None else sample.learner.units for sample in rounds),
        confidence=spec.confidence,
        control=tuple(_known_level(sample.control, quantity) for sample in rounds),
        served=tuple(_known_level(sample.learner, quantity) for sample in rounds),
        value=value,
        low=low,
        high=high,
    )
    if guardrail is None:
        return series
    same = relative == guardrail.at.relative
    return extend_record(
        series,
        GuardrailSeries,
        side="at_least" if guardrail.lower else "at_most",
        at=guardrail.at.number if same else None,
        floor=guardrail.stop_at.number if same and guardrail.stop_at.relative == guardrail.at.relative else None,
        limit=guardrail.at.written(),
        floor_written=guardrail.stop_at.written(),
        judged=basis_text(find_stop_basis(spec, guardrail) or "control"),
    )


Numbers = tuple[float | None, ...]


def _lifts(spec: StudySpec, quantity: Quantity, rounds: Sequence[RoundSample]) -> tuple[Numbers, Numbers, Numbers]:
    """Return the lift in percent over the control, each round alone: the estimates and both ends of the intervals."""
    if not rounds:
        return (), (), ()
    measured = [
        MeasuredRound(sample.round, {}, [c for c in (sample.control, sample.learner) if c]) for sample in rounds
    ]
    try:
        intervals = estimate_history(
            record_rounds(measured), quantity, LiftTarget("served"), confidence=spec.confidence
        ).by_round
    except (MeasurementError, ArithmeticError, ValueError):
        unknown = (None,) * len(rounds)
        return unknown, unknown, unknown
    estimate, low, high = (
        tuple(finite(100.0 * value) for value in values.tolist())
        for values in (intervals.estimate, intervals.low, intervals.high)
    )
    return estimate, low, high


def _levels(spec: StudySpec, quantity: Quantity, rounds: Sequence[RoundSample]) -> tuple[Numbers, Numbers, Numbers]:
    """Return the level of the learner's traffic in the metric's own unit, each round alone, with both ends."""
    z = NormalDist().inv_cdf(0.5 + spec.confidence / 2)
    levels = [_level(sample.learner, quantity) for sample in rounds]
    return (
        tuple(finite(level) for level, _ in levels),
        tuple(finite(level - z * error) for level, error in levels),
        tuple(finite(level + z * error) for level, error in levels),
    )


def _level(cell: CellMoments | None, quantity: Quantity) -> tuple[float, float]:
    """Return a quantity's level in a cell, and its standard error."""
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
    if cell.units < MIN_UNITS:
        return level, math.nan
    variance = float(gradient @ np.array(cell.cross) @ gradient) / (cell.units - 1) / cell.units
    return level, math.sqrt(max(0.0, variance))


def _known_level(cell: CellMoments | None, quantity: Quantity) -> float | None:
    level = _level(cell, quantity)[0]
    return finite(level)


def answer_tradeoff(service: Service, name: str, limits: Mapping[int, float], across: int) -> HttpResponse:
    """Compute the trade-off of a study; a browser must not cache the response."""
    posterior = read_posterior_means(service.policy_cache.reload(name))
    chart = None if posterior is None else chart_tradeoff(posterior, limits, across)
    return json_response({"tradeoff": chart}, headers=NO_STORE)
