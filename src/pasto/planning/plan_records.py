"""Plan records: the numbers of a plan, from which its sentences and its JSON are written."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pasto.planning.study_outline import FactSource

RoundReason = Literal["swing unknown", "swing seen", "window", "few units", "maturity", "traffic"]
GuardrailState = Literal["reached", "not in time", "no slack", "soft"]


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """Recommended length of a round."""

    seconds: float
    reason: RoundReason
    given: float | None
    """Length as the study file has it."""
    window: float
    """Longest window of a metric, in seconds."""
    maturity: float
    units_per_candidate: float
    """Units of each candidate in a round with even shares."""


@dataclass(frozen=True, slots=True)
class ControlPlan:
    """Recommended share of the control."""

    share: float
    given: float
    most_precise: float
    """Share at which the error of the blend's lift is smallest."""
    excess_error: float
    """Part by which the error at the recommended share exceeds that."""
    given_excess_error: float
    """The same at the share of the study file."""
    dilution: float
    """Variance of the blend's mean over that of as many units on the blend alone."""


@dataclass(frozen=True, slots=True)
class CandidateGain:
    """Expected gain with a list of candidates."""

    candidates: int
    gain: float


@dataclass(frozen=True, slots=True)
class CandidatePlan:
    """Number of candidates that are worth listing."""

    listed: int
    worth_listing: int
    gains: tuple[CandidateGain, ...]
    """Gain at the end of the study, for shorter and longer lists."""
    neighbours: bool
    """True if candidates differ in numbers, and neighbours are taken to be alike."""
    is_space: bool = False
    """True if the study chooses its candidates from ranges."""


@dataclass(frozen=True, slots=True)
class GuardrailPlan:
    """Days until the certificate of a guardrail holds for a blend as good as the baseline."""

    name: str
    metric: str
    lower: bool
    limit: float
    relative: bool
    state: GuardrailState
    days: float | None
    slack: float
    """Distance of the baseline from the limit, in the guardrail's terms."""
    first_margin: float | None
    """Margin that the certificate needs after the first round, in the guardrail's terms."""
    deviation: float
    """Standard deviation of one unit, in the guardrail's terms."""


@dataclass(frozen=True, slots=True)
class GainPoint:
    """Expected gain of the answer after some days."""

    day: float
    gain: float
    certified: float
    """Share of studies whose answer is certified."""


@dataclass(frozen=True, slots=True)
class GainPlan:
    """Expected gain of the answer over the baseline."""

    possible: float
    """Gain of the best blend if all means were known."""
    feasible: float
    """Share of simulated studies in which some blend meets every hard guardrail."""
    percent: bool
    """True if gains are in percent of the baseline."""
    days_to_half: float | None
    """Days until 80 % of studies have a certified answer with half of their possible gain."""
    days_to_most: float | None
    """Days until the expected gain is three quarters of the possible one."""
    at_end: float
    """Expected gain after the days that the study may take."""
    course: tuple[GainPoint, ...]

    def after(self, day: float) -> float:
        """Return the expected gain after some days, between the points of the course."""
        place = bisect_left([point.day for point in self.course], day)
        if place in (0, len(self.course)):
            return self.course[min(place, len(self.course) - 1)].gain
        before, after = self.course[place - 1], self.course[place]
        part = (day - before.day) / (after.day - before.day)
        return before.gain + part * (after.gain - before.gain)


@dataclass(frozen=True, slots=True)
class ConfirmationPlan:
    """Length of the confirmation, and the lift that it can show."""

    days: int | None
    """None if a year is not enough."""
    detectable_lift: float
    """Lift of the goal that is shown with the chance of 80 % after these days, or after a year."""
    expected_lift: float
    goal_days: float
    """Days until the expected lift is shown."""
    guardrail_days: Mapping[str, float | None]
    """Days until each hard guardrail is shown to be clear of its stop level; None if its stop level is its limit."""


@dataclass(frozen=True, slots=True)
class PlanFact:
    """A number that the plan rests on, and its source."""

    metric: str
    quantity: Literal["mean", "deviation", "spread"]
    value: float
    source: FactSource


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """Plan of a study before it starts.

    `report.plan_text.render_plan` writes it in sentences.
    """

    objective: str
    unit: str
    units_per_day: float
    days: float
    """Days that the study may take."""
    horizon: float
    """Days that the forecast covers."""
    confidence: float
    rounds: RoundPlan
    control: ControlPlan
    candidates: CandidatePlan
    guardrails: tuple[GuardrailPlan, ...]
    gain: GainPlan
    given_days_to_half: float | None
    """Days to half of the gain with the control of the study file, if another share is recommended."""
    confirmation: ConfirmationPlan
    facts: tuple[PlanFact, ...]
    competition: float
    """Assumed correlation of a candidate's gain in the goal with its loss in a guardrail."""
    chance: float
    """Share of simulated studies that have reached a goal by its day."""
    most: float
    """Part of the possible gain that counts as most of it."""
