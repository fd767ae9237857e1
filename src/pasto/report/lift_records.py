"""Lift records: lifts, sample ratio and confirmation as a report holds them; None is a number that is not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
    effect_spread: float | None = None
    """Standard deviation of the candidates' effects, as a share of the mean; None with few candidates."""
    swing: float | None = None
    """Deviation of a round's level beyond its error, as a share; None if rounds are not shorter than a day, or do not
    cover one."""


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
    lifts: tuple[LiftRecord, ...]
    predicted: tuple[PredictedLift, ...]
    sample_ratio: SampleRatioReport | None
    verdict: ConfirmationVerdict
