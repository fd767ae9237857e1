"""Verdict records: the decision that a study's numbers allow, and each metric judged by its measured interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pasto.report.lift_records import GuardrailKind, GuardrailSide, MeasuredInterval

Decision = Literal[
    "start",
    "collect",
    "confirm",
    "ship",
    "may_ship",
    "do_not_ship",
    "fix_data",
    "stopped",
    "paused",
    "deployed",
    "deployed_unconfirmed",
    "ended",
]
MetricState = Literal["better", "worse", "held", "broken", "not_shown", "not_measured", "changed"]


@dataclass(frozen=True, slots=True)
class MetricVerdict:
    """One metric of the blend: its measured interval against its limit, with the word for it.

    Intervals are shares of the control's level if `relative`, and levels in the metric's own units otherwise.
    """

    name: str
    metric: str
    role: Literal["goal", "guardrail", "other"]
    state: MetricState
    """By the whole interval: `held` and `broken` against the limit, `better` and `worse` against the control."""
    word: str
    relative: bool
    blend: MeasuredInterval | None
    best_single: MeasuredInterval | None
    side: GuardrailSide
    """Side of the limit on which the metric must be."""
    limit: float | None
    """0 for a goal, because the control is its limit; None for a metric that is neither goal nor guardrail."""
    limit_text: str
    kind: GuardrailKind | None = None
    stop: float | None = None
    """Stop level of a guardrail, if it is in the unit of the limit."""
    predicted: float | None = None
    """Prediction of the learner for the blend, in the unit of the interval."""
    predicted_to_hold: float | None = None
    """Probability that the guardrail holds, predicted by the learner."""


@dataclass(frozen=True, slots=True)
class StudyVerdict:
    """Verdict on a study: what to do now, and the measured numbers that say so."""

    decision: Decision
    headline: str
    """A few words, such as Ship or Keep collecting, about 6 more days."""
    sentence: str
    """Reason for the headline."""
    next_step: str
    """Advice for the state that the study is in; empty if there is nothing to do."""
    served: str
    """Sentence on what units get now; empty if no policy is served."""
    phase: Literal["learning", "confirming"]
    """Phase in which the intervals were measured."""
    confidence: float
    sequential: bool
    """True if the intervals hold at any look, False if they hold at a horizon that was set."""
    metrics: tuple[MetricVerdict, ...] = ()
    """Goals first, then guardrails, then the other metrics."""
    wait_seconds: float | None = None
    """Estimated time until the question is decided, if more data are needed and the time can be estimated."""
