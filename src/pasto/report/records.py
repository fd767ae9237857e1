"""Report records: the typed parts of a study's report, which text, HTML, dashboard, JSON and OpenAPI come from.

A number that is not known is None. `write_report` and `read_report` are the only writer and reader of its JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

GuardrailSide = Literal["at_least", "at_most"]
GuardrailKind = Literal["hard", "soft"]
LiftDirection = Literal["up", "down", "unclear"]


@dataclass(frozen=True, slots=True)
class IntervalEstimate:
    """A number with the ends of its interval."""

    value: float | None
    low: float | None
    high: float | None

    @property
    def is_bounded(self) -> bool:
        """True if both ends are known."""
        return self.low is not None and self.high is not None


@dataclass(frozen=True, slots=True)
class MeasuredInterval:
    """An interval whose ends are all known."""

    value: float
    low: float
    high: float


# Lifts


@dataclass(frozen=True, slots=True)
class AdjustedLiftRecord:
    """A lift after adjustment by what units did before they were assigned (CUPED)."""

    absolute: IntervalEstimate
    relative: IntervalEstimate
    direction: LiftDirection
    variance_reduced_by: float | None


@dataclass(frozen=True, slots=True)
class BoundedLiftRecord:
    """A lift with an interval by the metric's range, which holds for few units too."""

    absolute: IntervalEstimate
    relative: IntervalEstimate | None
    """None if the metric may be negative."""

    @property
    def estimate(self) -> IntervalEstimate:
        """The relative lift if there is one, otherwise the absolute lift."""
        return self.absolute if self.relative is None else self.relative


@dataclass(frozen=True, slots=True)
class LiftRecord:
    """One metric of one target against the concurrent control."""

    target: str
    metric: str
    level: float | None
    control: float | None
    absolute: IntervalEstimate
    relative: IntervalEstimate
    direction: LiftDirection
    adjusted: AdjustedLiftRecord | None
    bounded: BoundedLiftRecord | None
    rounds: int
    confidence: float
    sequential: bool
    """True if the interval holds at any look."""

    @property
    def best(self) -> LiftRecord | AdjustedLiftRecord:
        """The estimate to rely on: the adjusted one if there is one."""
        return self.adjusted or self


@dataclass(frozen=True, slots=True)
class IntervalSeries:
    """Estimates by round."""

    value: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class LiftHistoryRecord:
    """A lift by round, each round alone and all rounds so far."""

    target: str
    metric: str
    rounds: tuple[int, ...]
    by_round: IntervalSeries
    cumulative: IntervalSeries


@dataclass(frozen=True, slots=True)
class SuspectCell:
    """The arm or candidate whose number of units is wrong."""

    arm: str
    candidate: str | None
    """None if the whole arm is suspect."""
    left: float | None
    """Share of its units that arrived."""


@dataclass(frozen=True, slots=True)
class ArmUnits:
    """Units that an arm has, and units that it should have."""

    units: float
    expected: float


@dataclass(frozen=True, slots=True)
class SampleRatioReport:
    """Check of the units of each arm against the policy's shares."""

    alarm: bool
    p_value: float
    suspect: SuspectCell | None
    arms: Mapping[str, ArmUnits]


@dataclass(frozen=True, slots=True)
class WinnerReport:
    """Single candidates that beat the control in the goal, with all claims together at the confidence."""

    metric: str
    best_looking: str
    beat_the_control: tuple[str, ...]
    winner: str | None


@dataclass(frozen=True, slots=True)
class LearningReport:
    """Lifts of the learning rounds."""

    claims: str
    confidence: float
    rounds: tuple[int, ...] = ()
    lifts: tuple[LiftRecord, ...] = ()
    history: tuple[LiftHistoryRecord, ...] = ()
    sample_ratio: SampleRatioReport | None = None
    winner: WinnerReport | None = None


@dataclass(frozen=True, slots=True)
class MetricSpread:
    """Traffic and spread of a metric, from which a study is planned."""

    units: float
    """Units a round."""
    mean: float
    """Mean of the control."""
    deviation: float
    """Standard deviation of one unit."""
    control: float
    """Share of the control."""


# Confirmation


@dataclass(frozen=True, slots=True)
class GoalVerdict:
    """The goal in a confirmation."""

    name: str
    relative: bool
    measured: MeasuredInterval | None
    state: Literal["better", "worse", "unclear", "unmeasured"]


@dataclass(frozen=True, slots=True)
class ConfirmedGuardrail:
    """A guardrail in a confirmation."""

    name: str
    side: GuardrailSide
    at: str | float
    kind: GuardrailKind
    relative: bool
    measured: MeasuredInterval | None
    state: Literal["holds", "broken", "unclear", "unmeasured"]
    floor: str | float
    clear_of_floor: bool


@dataclass(frozen=True, slots=True)
class ConfirmationVerdict:
    """Verdict on a confirmation; `missing` for a blend that was never confirmed."""

    state: Literal["confirmed", "failed", "inconclusive", "missing"]
    balanced: bool
    """False if units did not arrive at the arms they were sent to."""
    goal: GoalVerdict
    guardrails: tuple[ConfirmedGuardrail, ...]


@dataclass(frozen=True, slots=True)
class PredictedLift:
    """A lift that the frozen blend was expected to have, and the lift that the confirmation measured."""

    target: str
    metric: str
    predicted: float
    realised: IntervalEstimate
    inside: bool | None
    """True if the prediction lies in the interval; None if an end is not known."""


@dataclass(frozen=True, slots=True)
class ConfirmationReport:
    """The frozen blend, the best single candidate and the baseline side by side on new units."""

    state: str
    version: int
    looks: int
    at: float
    units: Mapping[str, int]
    """Units by arm."""
    horizon: float | None
    """Time at which the confirmation is judged, in seconds since 1970; None for any look."""
    sequential: bool
    confidence: float
    note: str
    claims: str
    lifts: tuple[LiftRecord, ...]
    predicted: tuple[PredictedLift, ...]
    sample_ratio: SampleRatioReport | None
    verdict: ConfirmationVerdict


# The blend and its guardrails


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
class OutlookRecord:
    """Expected gain of further learning."""

    gain: float | None
    probability: float | None
    worth: float | None
    advice: str
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
    single: str | None
    single_value: float | None
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
class ContradictionReport:
    """A guardrail that is certified although the blend's measured interval lies beyond its limit."""

    guardrail: str
    metric: str
    phase: Literal["learning", "confirming"]
    side: GuardrailSide
    at: str | float
    holds: float
    measured: MeasuredInterval
    relative: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class TradeoffPoint:
    """Goal and guardrail metric of a blend."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class SinglePoint:
    """Goal and guardrail metric of one candidate."""

    name: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class TradeoffReport:
    """The goal and the metric of the first guardrail: of blends, of single candidates and of the answer."""

    x: str
    y: str
    blends: tuple[TradeoffPoint, ...]
    singles: tuple[SinglePoint, ...]
    answer: TradeoffPoint | None = None


@dataclass(frozen=True, slots=True)
class ArmVerdictRecord:
    """Verdict of the guardrail monitor on one guardrail in one arm."""

    name: str
    arm: str
    state: str
    p_value: float
    since: int | None = None
    bounded: bool = False
    judged: str = "control"
    allowed: float | None = None


@dataclass(frozen=True, slots=True)
class PauseRecord:
    """A pause that the guardrail monitor caused."""

    round: int
    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class MonitorReport:
    """State of the guardrail monitor."""

    verdicts: tuple[ArmVerdictRecord, ...] = ()
    tripped: PauseRecord | None = None


# Data quality and event counts


@dataclass(frozen=True, slots=True)
class RejectionReason:
    """A reason for which events were rejected."""

    reason: str
    events: int
    first_at: float


@dataclass(frozen=True, slots=True)
class RejectedEvents:
    """Events that the service rejected."""

    events: int = 0
    reasons: tuple[RejectionReason, ...] = ()


@dataclass(frozen=True, slots=True)
class SenderDeparture:
    """A sender whose units depart from those of the others."""

    kind: str
    sender: str | None
    round: int
    test: str
    p_value: float
    arm: str | None = None
    candidate: str | None = None
    metric: str | None = None
    effect: float | None = None
    others: float | None = None


@dataclass(frozen=True, slots=True)
class LateEvents:
    """Events that came too late to be learned."""

    events: int
    share: float | None


@dataclass(frozen=True, slots=True)
class ClippedUnits:
    """Units whose value was clipped to the range of its metric."""

    units: int
    share: float


@dataclass(frozen=True, slots=True)
class QualityReport:
    """Quality of the data."""

    units: int
    events: int
    late: LateEvents
    clipped: Mapping[str, ClippedUnits]
    uncredited: int
    excluded: int
    rejected: RejectedEvents
    missing: int
    """Numbered events that never came."""
    departures: tuple[SenderDeparture, ...]
    gap: int
    """Decisions without a logged exposure."""
    sample_ratio: SampleRatioReport | None = None
    understated_errors: Mapping[str, float] = field(default_factory=dict)
    duplicates: int | None = None
    """Events that came again since the service started; None if the report was not made by a server."""


@dataclass(frozen=True, slots=True)
class EventTotals:
    """Events of a study by kind."""

    exposures: int
    metrics: int
    excluded: int
    uncredited: int


@dataclass(frozen=True, slots=True)
class CandidateCounts:
    """Exposures of one candidate."""

    name: str | None
    logged: int
    excluded: int
    numbered: int


@dataclass(frozen=True, slots=True)
class CandidateGap:
    """Exposures of one candidate under one policy, and the decisions that its senders report."""

    name: str | None
    logged: int
    excluded: int
    numbered: int
    assigned: int
    dropped: int
    gap: int


@dataclass(frozen=True, slots=True)
class PolicyExposures:
    """Exposures under one policy."""

    version: int
    logged: int
    excluded: int
    assigned: int
    dropped: int
    gap: int
    arms: Mapping[str, int]
    candidates: tuple[CandidateGap, ...]


@dataclass(frozen=True, slots=True)
class SequenceGap:
    """Numbered events of one source that never came."""

    source: str
    missing: int


@dataclass(frozen=True, slots=True)
class NumberedSenders:
    """Senders that number their events."""

    numbered: int
    missing: int
    gaps: tuple[SequenceGap, ...]


@dataclass(frozen=True, slots=True)
class SenderLine:
    """Units, events and means of one sender."""

    sender: str | None
    name: str | None
    units: int
    exposures: int
    metrics: int
    rejected: int
    means: Mapping[str, float]
    departs: bool


@dataclass(frozen=True, slots=True)
class LateRound:
    """Late events of one round."""

    round: int
    exposures: int
    metrics: int
    arms: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LateRounds:
    """Late events, in all and by round."""

    events: int
    rounds: tuple[LateRound, ...]


@dataclass(frozen=True, slots=True)
class AccountingReport:
    """Events of a study, counted by candidate, policy, sender and round."""

    events: EventTotals
    candidates: tuple[CandidateCounts, ...]
    versions: tuple[PolicyExposures, ...]
    senders: NumberedSenders
    rejected: RejectedEvents
    keys: tuple[SenderLine, ...]
    sources: tuple[SenderLine, ...]
    late: LateRounds
    clipped: Mapping[str, int]
    departures: tuple[SenderDeparture, ...] = ()


# Rounds


@dataclass(frozen=True, slots=True)
class MissingDataRecord:
    """A metric that lacks events in a round."""

    kind: str
    column: str | None
    units: int
    expected: float
    seen: float
    rounds: int
    expected_events: float | None = None
    p_value: float | None = None


@dataclass(frozen=True, slots=True)
class HeldRoundRecord:
    """A round that is not learned because events seem to be missing."""

    round: int
    closed_at: float
    text: str
    findings: tuple[MissingDataRecord, ...]
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
    breaker: tuple[ArmVerdictRecord, ...]
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
class Report:
    """Everything that is known of a study."""

    name: str
    state: str
    round: int
    version: int
    claims: str
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
    breaker: MonitorReport = MonitorReport()
    guardrails: tuple[GuardrailReport, ...] = ()
    prices: tuple[PriceReport, ...] = ()
    trade_off: TradeoffReport | None = None
    spreads: Mapping[str, MetricSpread] = field(default_factory=dict)
    contradictions: tuple[ContradictionReport, ...] = ()
    quality: QualityReport | None = None
    age: float = 0.0
    """Age of the open round in seconds."""
    source_problem: SourceProblem | None = None

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


def write_report(report: Report | WhatIfAnswer | ConfirmationVerdict) -> dict[str, Any]:
    """Return a report, or a part of one, as JSON has it.

    >>> write_report(Report("feed", "draft", 0, 0, "Nothing was measured yet."))["claims"]
    'Nothing was measured yet.'
    """
    import msgspec

    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(report))
    return document


def read_report(document: Mapping[str, Any]) -> Report:
    """Read a report from its JSON; fields of later versions are ignored.

    >>> report = Report("feed", "draft", 0, 0, "Nothing was measured yet.")
    >>> read_report(write_report(report)) == report
    True
    """
    import msgspec

    return msgspec.convert(document, Report)


def read_blend(document: Mapping[str, Any]) -> BlendRecord:
    """Read a blend from its JSON, as a study's state holds it."""
    import msgspec

    return msgspec.convert(document, BlendRecord)


def read_what_if(document: Mapping[str, Any]) -> WhatIfAnswer:
    """Read the answer to another objective from its JSON."""
    import msgspec

    return msgspec.convert(document, WhatIfAnswer)


def read_verdict(document: Mapping[str, Any]) -> ConfirmationVerdict:
    """Read the verdict on a confirmation from its JSON."""
    import msgspec

    return msgspec.convert(document, ConfirmationVerdict)
