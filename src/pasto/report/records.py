"""Report records: the typed parts of a study's report, which text, HTML, dashboard, JSON and OpenAPI come from.

A number that is not known is None. `write_record` and `read_record` convert records to and from JSON.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

from pasto.report.data_quality_records import (
    AccountingReport,
    QualityReport,
)
from pasto.report.lift_records import (
    ConfirmationReport,
    GuardrailKind,
    GuardrailSide,
    IntervalEstimate,
    LearningReport,
    MetricSpread,
)
from pasto.report.ramp_text import RampReport
from pasto.report.verdict_records import StudyVerdict

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class GainRecord:
    """Gain of a blend over one candidate."""

    candidate: str
    value: float | None
    goal: float | None
    violations: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CertificateRecord:
    """Confidence with which a blend meets its guardrails."""

    confidence: float
    certified: bool
    holds: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    understated_errors: Mapping[str, float] = field(default_factory=dict)
    """Metrics whose standard errors are too small, and by which factor."""
    hard: tuple[str, ...] | None = None
    joint_lower_bound: float | None = None
    """Lower bound of the probability that all hard guardrails hold together."""


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """A candidate whose worth changed most in the last round."""

    candidate: str
    change: float | None
    metrics: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class LearningForecastRecord:
    """Expected effect of more rounds, compared with deploying the present blend now."""

    rounds: int
    gain: float | None
    """Rise of f in each round of the deployment that follows."""
    cost: float | None
    """Loss of f while learning, summed over these rounds."""
    net: float | None
    """The gain summed over the rounds of the deployment, less the cost."""


@dataclass(frozen=True, slots=True)
class OutlookRecord:
    """Value of further learning, and the decision that follows from it.

    Outlooks of earlier releases have no decision, rounds, cost and forecasts.
    """

    gain: float | None
    """Rise of f if the true means were known."""
    worth: float | None
    """The smallest difference in f that counts."""
    advice: str
    decision: Literal["learn", "stop"] | None = None
    deploy_rounds: float | None = None
    round_cost: float | None = None
    """f of the blend less that of the next round's traffic."""
    forecasts: tuple[LearningForecastRecord, ...] = ()
    equal_single: str | None = None
    """The candidate that may be deployed alone."""
    moves: tuple[MoveRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class BlendRecord:
    """A blend with candidates by name."""

    probabilities: Mapping[str, float]
    value: float | None
    metrics: Mapping[str, float | None]
    lifts: Mapping[str, float | None]
    """Percent over the baseline."""
    prices: Mapping[str, float | None]
    feasible: bool
    shortfalls: Mapping[str, float | None]
    best_single: str | None
    best_single_value: float | None
    gain: GainRecord
    certificate: CertificateRecord | None = None
    outlook: OutlookRecord | None = None


@dataclass(frozen=True, slots=True)
class GuardrailReport:
    """A guardrail with its limit and floor, the blend's certificate of it and the monitor's latest verdict."""

    name: str
    metric: str
    side: GuardrailSide
    at: str | float
    kind: GuardrailKind
    penalty: float | None
    budget: float | None
    floor: str | float
    judged: Literal["control", "days"]
    allowed: float | None
    """Change against the control that the floor allows now."""
    holds: float | None
    price: float | None
    state: str | None
    p_value: float | None


@dataclass(frozen=True, slots=True)
class PriceReport:
    """Gain in the goal if a guardrail is relaxed by one unit."""

    guardrail: str
    value: float | None
    low: float | None
    high: float | None
    words: str


@dataclass(frozen=True, slots=True)
class TradeoffPoint:
    """Goal and guardrail metric of a blend."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class BrokenLimit:
    """Guardrail that a single candidate breaks, in the unit of its limit."""

    name: str
    level: float
    limit: float
    unit: str
    """% for a change over the baseline; empty for the metric's own unit."""


@dataclass(frozen=True, slots=True)
class SinglePoint:
    """Goal and guardrail metric of one candidate."""

    name: str
    x: float
    y: float
    broken: tuple[BrokenLimit, ...] = ()
    """Limits that the candidate breaks, of every guardrail."""


@dataclass(frozen=True, slots=True)
class TradeoffReport:
    """The goal and the metric of the first guardrail: of blends, of single candidates and of the answer."""

    x: str
    y: str
    blends: tuple[TradeoffPoint, ...]
    singles: tuple[SinglePoint, ...]
    answer: TradeoffPoint | None = None
    limit: float | None = None
    """Limit of the first guardrail, as a level of `y`."""
    side: GuardrailSide = "at_least"


@dataclass(frozen=True, slots=True)
class ArmVerdict:
    """Verdict of the guardrail monitor on one guardrail in one arm."""

    name: str
    arm: str
    state: str
    """"holds", "warning" or "breach"."""
    p_value: float
    since: int | None = None
    """Round in which the harm most likely began."""
    bounded: bool = False
    """True if the evidence uses the metric's own range instead of the central limit theorem."""
    judged: str = "control"
    """Basis of the comparison: "control" or "days"."""
    allowed: float | None = None
    """Change against the control that the stop level allows."""


@dataclass(frozen=True, slots=True)
class PauseRecord:
    """A pause that the guardrail monitor caused."""

    round: int
    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class MonitorReport:
    """State of the guardrail monitor."""

    verdicts: tuple[ArmVerdict, ...] = ()
    tripped: PauseRecord | None = None


# Rounds


@dataclass(frozen=True, slots=True)
class RoundShortage:
    """Lack of events in a round: the expected and the measured total of a metric."""

    kind: str
    """"no_events" of any metric, "none" of one, or "fell": far less of it than before."""
    column: str | None
    """Column of the metric; None for no_events."""
    units: int
    expected: float
    seen: float
    rounds: int
    """Earlier rounds that the expectation comes from."""
    expected_events: float | None = None
    p_value: float | None = None


@dataclass(frozen=True, slots=True)
class HeldRoundRecord:
    """A round that is not learned because events seem to be missing."""

    round: int
    closed_at: float
    text: str
    findings: tuple[RoundShortage, ...]
    resolution: str | None


@dataclass(frozen=True, slots=True)
class ClosedRoundRecord:
    """A closed round: the phase it was in, the rounds learned at its end, and the next phase."""

    round: int
    version: int
    next_version: int
    state: str
    next_state: str
    learned_from: tuple[int, ...]
    corrected: tuple[int, ...]
    held: tuple[int, ...]
    units: int
    interim_units: int | None
    verdicts: tuple[ArmVerdict, ...]
    problems: tuple[str, ...]
    high_water: int
    learner_checksum: str | None
    closed_at: float


@dataclass(frozen=True, slots=True)
class CandidateShare:
    """Probability of one candidate in the learner's policy."""

    name: str
    probability: float


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """Failure to read a study's own tables."""

    message: str
    round: int
    since: float


@dataclass(frozen=True, slots=True)
class ConcurrentStudy:
    """Other study that ran on the same units at the same time."""

    name: str
    state: str
    since: float
    """Start of its first round."""
    until: float | None
    """Time at which it was archived; None if it serves a policy."""
    share: float | None
    """Share of this study's units that take part in the other one too; None if the two cannot be compared.

    It holds for the latest policies of both. Audiences are left out: they are parts of the share.
    """


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """Clusters of a study that assigns them as a whole."""

    cluster: str
    """Attribute with the cluster of a unit."""
    unit: str
    """Unit of which clusters consist."""
    clusters: int
    """Clusters in the latest round, or in the phase that the study is in."""
    members: int
    """Units in them."""
    design_effects: Mapping[str, float]
    """By metric: its variance over that of independent units."""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that is known of a study."""

    name: str
    state: str
    round: int
    version: int
    verdict: StudyVerdict | None = None
    """Decision and judged metrics; None in a report that was not made by a service."""
    metrics: tuple[str, ...] = ()
    rounds_learned: int = 0
    blend: BlendRecord | None = None
    problem: str | None = None
    """Reason why there is no blend."""
    frozen: BlendRecord | None = None
    waiting: tuple[int, ...] = ()
    held: tuple[HeldRoundRecord, ...] = ()
    policy: tuple[CandidateShare, ...] = ()
    history: tuple[ClosedRoundRecord, ...] = ()
    accounting: AccountingReport | None = None
    learning: LearningReport | None = None
    confirmation: ConfirmationReport | None = None
    guardrail_monitor: MonitorReport = MonitorReport()
    guardrails: tuple[GuardrailReport, ...] = ()
    prices: tuple[PriceReport, ...] = ()
    trade_off: TradeoffReport | None = None
    spreads: Mapping[str, MetricSpread] = field(default_factory=dict)
    quality: QualityReport | None = None
    age: float = 0.0
    """Age of the open round in seconds."""
    source_problem: SourceProblem | None = None
    assigned_by: Literal["pasto", "external"] = "pasto"
    """"external" if another platform assigns the units."""
    ramp: RampReport | None = None
    """Ramp of a study that learns or is being confirmed."""
    concurrent: tuple[ConcurrentStudy, ...] = ()
    """Other studies on the same units, those with the largest share first."""
    clusters: ClusterReport | None = None
    """Clusters; None if the study assigns units, or has not measured a round."""

    @property
    def answer(self) -> BlendRecord | None:
        """The frozen blend if there is one, otherwise the blend so far."""
        return self.frozen or self.blend


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """Answer to another objective, computed from what a study has learned."""

    name: str
    rounds_learned: int
    objective: str
    candidates: int
    """Candidates that may take part."""
    answer: BlendRecord
    metrics: Mapping[str, IntervalEstimate]
    lifts: Mapping[str, IntervalEstimate]
    prices: Mapping[str, IntervalEstimate]
    confidence: float
    from_log: tuple[str, ...]
    """Metrics that the learner does not learn, estimated from the log."""
    assumes: str


def finite(value: float | None) -> float | None:
    """Return a number as JSON has it: None if it is not finite.

    >>> finite(0.5), finite(float("inf"))
    (0.5, None)
    """
    return None if value is None or not math.isfinite(value) else float(value)


def extend_record(record: object, kind: type[Record], **more: object) -> Record:
    """Return a record of a kind that has all fields of another record, and more.

    >>> extend_record(TradeoffPoint(1.0, 2.0), SinglePoint, name="a").name
    'a'
    """
    return kind(**{part.name: getattr(record, part.name) for part in fields(record)}, **more)  # type: ignore[arg-type]


def write_record(record: object) -> dict[str, Any]:
    """Return a record as JSON has it; a number that is not finite becomes None.

    >>> write_record(Report("feed", "draft", 0, 0))["state"]
    'draft'
    """
    import msgspec

    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(record))
    return document


def read_record(document: Mapping[str, Any], kind: type[Record]) -> Record:
    """Read a record from its JSON; fields of later versions are ignored.

    >>> report = Report("feed", "draft", 0, 0)
    >>> read_record(write_record(report), Report) == report
    True
    """
    import msgspec

    return msgspec.convert(document, kind)
