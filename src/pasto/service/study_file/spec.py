"""A study file, read and checked: everything the running system needs to know of a study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pasto.metrics import Column, Metric
from pasto.objective import Objective
from pasto.optimize.learners import Learner
from pasto.records import Value
from pasto.service.study_file.amounts import GuardrailLevel
from pasto.service.study_file.sources import TeamSource
from pasto.space import Candidates, Space
from pasto.study import Study
from pasto.study.candidate_growth import MAX_GROWN_CANDIDATES
from pasto.study.policy_history import count_remembered_policies


@dataclass(frozen=True, slots=True)
class GuardrailSpec:
    """A guardrail's three numbers: where it is kept, what exploring may cost it, and where traffic is pulled."""

    name: str
    """As the objective names it."""
    metric: str
    at: GuardrailLevel
    """The target where it is soft, the limit where it is hard."""
    lower: bool
    """True for at_least, False for at_most."""
    penalty: float | None
    """None makes it hard."""
    loss_budget: float | None
    """How far the served policy may miss it while learning, in percent or in the metric's units as `at` is."""
    stop_at: GuardrailLevel
    """Level at which the study stops: the metric is surely on the wrong side of it."""
    tolerance: float
    """How far beyond `at` the stop level lies if the file names none."""


@dataclass(frozen=True, slots=True)
class TrafficSpec:
    """Who may be served what, as shares."""

    control: float = 0.1
    """Of all units, held on the baseline to compare with."""
    explore: float = 1.0
    """Of the units not in control, those that the learner may steer; the others get the baseline."""
    min_share: float = 0.01
    """Of the learner's units, spread evenly over all candidates."""
    max_share: float | None = None
    """The most that any candidate but the baseline may get of the learner's units."""
    new_candidate_share: float | None = None
    """The most that a candidate nobody has measured may get of them."""


LOOK_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class RoundsSpec:
    """When a round ends, and when it may be learned from."""

    every: float | None = 3600.0
    """Seconds; None where exposures end it."""
    exposures: int | None = None
    maturity: float = 0.0
    """Seconds that late events are waited for after a round's end."""
    accept_late: float = 0.0
    """Seconds after that in which a learned round is still corrected by what comes."""

    @property
    def pace(self) -> float:
        """Seconds between closes, or between looks at a phase if exposures end a round.

        >>> RoundsSpec(every=None, exposures=5000).pace
        3600.0
        """
        return self.every or LOOK_SECONDS


@dataclass(frozen=True, slots=True)
class StudySpec:
    """One study as its file states it; built by `parse_spec`.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> spec = read_spec(EXAMPLE, "yaml")
    >>> spec.name, len(spec.candidates), spec.objective.metrics
    ('feed', 9, ('watch_time', 'like_rate.numerator', 'like_rate.denominator'))
    >>> spec.study(seed=7).control_share
    0.1
    """

    name: str
    unit: str
    description: str
    candidates: Candidates | Space
    baseline: Mapping[str, Value]
    metrics: Mapping[str, Metric]
    columns: tuple[Column, ...]
    """What is measured: the objective's metrics in their order, then the others."""
    objective: Objective
    guardrails: tuple[GuardrailSpec, ...]
    traffic: TrafficSpec
    rounds: RoundsSpec
    learner: Learner[Any]
    confidence: float
    expires_after: float
    """Seconds after which a caller that hears nothing new goes back to the baseline."""
    document: dict[str, Any]
    """The same as plain JSON, with every default written out."""
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """What is usable, but probably not what was meant."""
    source: TeamSource | None = None
    """A team's own tables; None where events are sent to PASTO."""
    signed: bool = False
    """Whether an exposure that is sent must be signed."""

    @property
    def covariates(self) -> tuple[Column, ...]:
        """The columns that metrics are adjusted by, each once; the learner never sees them."""
        found = (metric.covariate for metric in self.metrics.values())
        return tuple(dict.fromkeys(column for one in found if one is not None for column in one.columns))

    @property
    def measured(self) -> tuple[Column, ...]:
        """Every column that a round is measured in: `columns`, then the covariates."""
        return (*self.columns, *self.covariates)

    @property
    def remembered_policies(self) -> int:
        """Policies that a study of this kind keeps for rounds that are learned late; a continuous space grows."""
        count = len(self.candidates) if isinstance(self.candidates, Candidates) else MAX_GROWN_CANDIDATES
        return count_remembered_policies(count)

    @property
    def max_maturing_rounds(self) -> int:
        """Rounds that may wait for late events while another is open, so that none is forgotten before it is learned.

        Rounds that end by exposures ripen in fits and starts, and a close that learns from several at once publishes
        a policy for each: those take places too.
        """
        return self.remembered_policies - 1 if self.rounds.every is not None else self.remembered_policies // 2 - 1

    def study(self, seed: int) -> Study:
        """A new study of this kind, nothing learned yet."""
        return Study(
            self.candidates,
            self.objective,
            learner=self.learner,
            seed=seed,
            baseline=self.baseline,
            control_share=self.traffic.control,
            loss_budget={rail.name: rail.loss_budget for rail in self.guardrails if rail.loss_budget is not None}
            or None,
            confidence=self.confidence,
            max_share=self.traffic.max_share,
            new_candidate_share=self.traffic.new_candidate_share,
        )
