"""The breaker: whether what is served has fallen through a guardrail's floor, told at every round without crying wolf.

Every guardrail gets its share of the chance of error, so all of them together raise a false alarm in at most that share
of studies. A metric with a range or a cap is judged by a process that needs no large numbers; without one, by the
central limit theorem, which heavy tails deceive: declare a cap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pasto.estimate.intervals import chance_of_error
from pasto.report.measured import Record
from pasto.report.shortfall import Basis, Floor, Gathered, bounded
from pasto.report.stop_level import REFERENCE_SHARE, STUDY_ERROR, LevelEvidence, gather_evidence

State = Literal["holds", "warning", "breach"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the breaker says of one guardrail."""

    name: str
    state: State
    p_value: float
    """Valid at any time and over all guardrails together."""
    round: int | None
    """Of the first alarm, counted from 0."""
    since: int | None
    """The round that the harm most likely began in, where there is a breach."""
    bounded: bool
    """Whether the metric's own range was used, and not the central limit theorem."""
    basis: Basis | None = None
    """What a level in the metric's own units is judged against."""
    allowed: float | None = None
    """The change against the control that such a level allows now, −0.05 for five percent less."""


def watch(
    record: Record,
    floors: Sequence[Floor],
    *,
    served: str = "learner",
    confidence: float = 0.95,
    warning: float = 0.8,
    seconds: Sequence[float] | None = None,
) -> tuple[Verdict, ...]:
    """Hold what one arm was served against every floor, the rounds so far together.

    A breach stays one: only a person re-arms, and then the rounds from there on are what is handed in. `seconds` says
    how long every round lasted; without it, each counts as a whole day.

    >>> from pasto.estimate.intervals import Quantity
    >>> from pasto.report.measured import CellMoments, MeasuredRound, recorded
    >>> shares = {("control", 0): 0.5, ("learner", 1): 0.5}
    >>> means = {("control", 0): 1.0, ("learner", 1): 0.6}
    >>> cells = [CellMoments(*key, 200, (mean,), ((200.0,),)) for key, mean in means.items()]
    >>> record = recorded([MeasuredRound(version, shares, cells) for version in range(4)])
    >>> [verdict.state for verdict in watch(record, [Floor("likes", Quantity(0), -0.05, relative=True)])]
    ['breach']
    """
    cells, place, covariances = record.view(served, running=True)
    error, early = (chance_of_error(level, max(len(floors), 1)) for level in (confidence, warning))
    verdicts = []
    for floor in floors:
        against = record.control if floor.relative or floor.basis == "control" else None
        evidence, gathered = gather_evidence(
            cells, floor, place, against, covariances, seconds=seconds, claims=len(floors)
        )
        alarm = evidence >= -np.log(error)
        told = verdict(floor, float(evidence.max()), float(evidence[-1]), gathered, error, early, len(floors))
        verdicts.append(replace(told, round=int(np.argmax(alarm)) if alarm.any() else None))
    return tuple(verdicts)


def verdict(
    floor: Floor,
    highest: float,
    latest: float,
    gathered: Gathered | LevelEvidence,
    error: float,
    early: float,
    claims: int,
) -> Verdict:
    """What evidence says of one floor: the highest so far, for a breach stays one, and the latest for a warning."""
    breached, warned = highest >= -np.log(error), latest >= -np.log(early)
    p_value = claims * float(np.exp(-max(0.0, highest)))
    allowed = None
    if isinstance(gathered, LevelEvidence) and floor.basis == "control":
        allowed = gathered.allowed_change(floor, claims)
        if p_value < 1.0:  # the bounds on the control's level have their part of the error
            p_value = (1.0 - REFERENCE_SHARE) * p_value + REFERENCE_SHARE * STUDY_ERROR
    return Verdict(
        name=floor.name,
        state="breach" if breached else "warning" if warned else "holds",
        p_value=min(1.0, p_value),
        round=None,
        since=int(gathered.since) if breached else None,
        bounded=bounded(floor),
        basis=floor.basis,
        allowed=allowed,
    )
