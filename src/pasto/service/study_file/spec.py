"""Study of a study file: its candidates, metrics, objective, guardrails, traffic and rounds.

Functions translate its metrics and stop levels into the records that the statistics take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from pasto.inference import Quantity, ValueRange
from pasto.inference.stop_level import Basis, StopLevel
from pasto.metrics import MEMBERS, Column, Metric
from pasto.metrics.sources.team_tables import TeamTables
from pasto.objective import Objective
from pasto.optimize.learners import Learner
from pasto.space import Candidates, Space
from pasto.study import Study
from pasto.study.candidate_growth import MAX_GROWN_CANDIDATES
from pasto.study.history_table import History
from pasto.study.pending_rounds import count_remembered_policies
from pasto_sdk.enrolment import OTHER_SEGMENT, AudienceCondition, SegmentRule
from pasto_sdk.policy_document import Value


class GuardrailLevel(NamedTuple):
    """Level of a metric: in its own units, or in percent over the baseline.

    >>> GuardrailLevel(-2.0, True).written(), GuardrailLevel(0.03, False).written()
    ('-2%', 0.03)
    """

    number: float
    relative: bool

    def moved(self, by: float) -> GuardrailLevel:
        """Return another level, with the difference reckoned in decimals.

        >>> GuardrailLevel(-0.3, True).moved(-0.1)
        GuardrailLevel(number=-0.4, relative=True)
        """
        return GuardrailLevel(float(Decimal(repr(self.number)) + Decimal(repr(by))), self.relative)

    def written(self) -> str | float:
        """Return it as a study file writes it, signed if it is relative."""
        return f"{plain(self.number, signed=True)}%" if self.relative else self.number


def plain(number: float, *, signed: bool = False) -> str:
    """Return a number in full, without an exponent; it reads back as the same number.

    >>> plain(1e-07), plain(2.0, signed=True)
    ('0.0000001', '+2')
    """
    text = format(Decimal(repr(number)), "+f" if signed else "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True, slots=True)
class GuardrailSpec:
    """Guardrail with its three numbers: the threshold, the loss budget and the stop level."""

    name: str
    """Name in the objective."""
    metric: str
    at: GuardrailLevel
    """Threshold: the target of a soft guardrail, the limit of a hard one."""
    lower: bool
    """True for at_least, False for at_most."""
    penalty: float | None
    """None makes it hard."""
    loss_budget: float | None
    """Distance by which the served policy may miss it while learning, in the units of `at`."""
    stop_at: GuardrailLevel
    """Level at which the study stops: the metric is surely on the wrong side of it."""
    tolerance: float
    """Distance from `at` to the stop level if the file names none."""
    within: str | None = None
    """Segment in which it holds by itself, "each" for all of them; None if it holds for all traffic together."""


@dataclass(frozen=True, slots=True)
class TrafficSpec:
    """Shares of traffic."""

    control: float = 0.1
    """Of the units that take part, held on the baseline to compare with."""
    explore: float = 1.0
    """Of all units, those that take part; the others get the baseline, and nothing is learned from them."""
    ramp: tuple[float, ...] = ()
    """Increasing shares of all units that take part, by step, instead of `explore`; empty without a ramp."""
    advance_after: int = 3
    """Learned rounds of a step, with every guardrail holding, after which a ramp goes one step forward."""
    min_share: float = 0.01
    """Of the learner's units, spread evenly over all candidates."""
    max_share: float | None = None
    """The most that any candidate except the baseline may get of the learner's units."""
    new_candidate_share: float | None = None
    """The most that a candidate without any measurement may get of them."""

    def enrolled(self, step: int = 1) -> float:
        """Return the share of all units that take part, at a step of the ramp from 1 on.

        >>> TrafficSpec(explore=0.2).enrolled(), TrafficSpec(ramp=(0.01, 0.05)).enrolled(2)
        (0.2, 0.05)
        """
        return self.ramp[step - 1] if self.ramp else self.explore

    def to_document(self) -> dict[str, Any]:
        """Return the section as a study file writes it.

        >>> TrafficSpec(ramp=(0.01, 1.0)).to_document()
        {'control': 0.1, 'ramp': [0.01, 1.0], 'advance_after': 3, 'min_share': 0.01}
        """
        unused = ("explore",) if self.ramp else ("ramp", "advance_after")
        document = {name: share for name, share in asdict(self).items() if share is not None and name not in unused}
        return document | ({"ramp": list(self.ramp)} if self.ramp else {})


LAYER_PARTS = 1_000_000
"""Parts of a layer's hash line: shares and starts are multiples of a millionth, so intervals meet exactly."""


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """Interval of a layer's hash line that only this study uses, in millionths."""

    name: str
    parts: int
    """Length of the interval."""
    start: int | None = None
    """None until the service chooses a free interval."""

    def document(self) -> dict[str, Any]:
        """Return it as a study file writes it."""
        start = {} if self.start is None else {"start": self.start / LAYER_PARTS}
        return {"name": self.name, "share": self.parts / LAYER_PARTS, **start}


PHASE_CHECK_SECONDS = 3600.0
"""Seconds between checks of a phase if exposures end a round."""
GROWING_AGGREGATES = ("sum", "count", "any", "max", "distinct")
"""Aggregates by which a unit's number grows with the length of a phase."""


@dataclass(frozen=True, slots=True)
class RoundsSpec:
    """Length of a round, and the times in which late events count."""

    every: float | None = 3600.0
    """Length of a round in seconds; None if exposures end it."""
    exposures: int | None = None
    maturity: float = 0.0
    """Seconds that late events are waited for after a round's end."""
    accept_late: float = 0.0
    """Seconds after that in which late events still correct a learned round."""

    @property
    def interval_seconds(self) -> float:
        """Seconds between closes, or between checks of a phase if exposures end a round.

        >>> RoundsSpec(every=None, exposures=5000).interval_seconds
        3600.0
        """
        return self.every or PHASE_CHECK_SECONDS


@dataclass(frozen=True, slots=True)
class TeamSource:
    """Source of a study's events, instead of PASTO's own store."""

    origin: str
    """Name of one of the places that the service's operator has set; never an address."""
    tables: TeamTables

    def document(self) -> dict[str, Any]:
        """Return it as a study file writes it."""
        events = [_table_document(asdict(table)) for table in self.tables.events]
        return {"from": self.origin, "exposures": _table_document(asdict(self.tables.exposures)), "events": events}


@dataclass(frozen=True, slots=True)
class StudySpec:
    """Study as its file states it; built by `parse_spec`.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> spec = read_spec(EXAMPLE, "yaml")
    >>> spec.name, len(spec.candidates), spec.objective.metrics
    ('feed', 9, ('watch_time', 'like_rate.numerator', 'like_rate.denominator'))
    >>> spec.build_study(seed=7).control_share
    0.1
    """

    name: str
    unit: str
    """Unit that metrics are averaged over."""
    description: str
    candidates: Candidates | Space
    baseline: Mapping[str, Value]
    metrics: Mapping[str, Metric]
    columns: tuple[Column, ...]
    """Columns that are measured: those of the objective in its order, then the others."""
    objective: Objective
    guardrails: tuple[GuardrailSpec, ...]
    traffic: TrafficSpec
    rounds: RoundsSpec
    learner: Learner[Any]
    confidence: float
    deploy_for: float
    """Seconds for which the blend will be served after learning."""
    expires_after: float
    """Seconds after which a caller that gets nothing new goes back to the baseline."""
    document: dict[str, Any]
    """Study file as plain JSON, with every default written out."""
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """Sentences on fields that can be used, and were probably meant otherwise."""
    source: TeamSource | None = None
    """Tables of the team; None if events are sent to PASTO."""
    signed: bool = False
    """Exposures that are sent must be signed."""
    is_external: bool = False
    """Another platform assigns units, and the candidate that an exposure names counts."""
    history: History | None = None
    """Earlier results that the study starts from."""
    owner: str = ""
    """Team or person to ask about the study."""
    retired: tuple[str, ...] = ()
    """Names of candidates that a running study serves no longer."""
    audience: tuple[AudienceCondition, ...] = ()
    """Conditions on the attributes of the units that take part."""
    segments: SegmentRule | None = None
    """Rule that divides the units into groups with a blend of their own; None without segments."""
    layer: LayerSpec | None = None
    """Layer whose studies share no unit; None if the study is in none."""
    cluster: str | None = None
    """Attribute with the cluster of a unit: clusters are assigned as a whole; None if units are assigned."""

    @property
    def assigned_unit(self) -> str:
        """Attribute or unit that is assigned: the cluster if there is one."""
        return self.cluster or self.unit

    @property
    def segment_names(self) -> tuple[str, ...]:
        """Names of the segments, "other" last; empty without segments."""
        return () if self.segments is None else (*self.segments.names, OTHER_SEGMENT)

    @property
    def covariates(self) -> tuple[Column, ...]:
        """Columns by which metrics are adjusted, each once: in lifts, and for the learner."""
        covariates = [metric.covariate for metric in self.metrics.values() if metric.covariate is not None]
        return tuple(dict.fromkeys(column for covariate in covariates for column in covariate.columns))

    @property
    def measured_columns(self) -> tuple[Column, ...]:
        """Columns that a round is measured in: `columns`, then the covariates."""
        return (*self.columns, *self.covariates)

    @property
    def deploy_rounds(self) -> float:
        """Number of rounds for which the blend will be served after learning."""
        return max(1.0, self.deploy_for / self.rounds.interval_seconds)

    @property
    def remembered_policies(self) -> int:
        """Number of policies that a study remembers for rounds that are learned late."""
        count = len(self.candidates) if isinstance(self.candidates, Candidates) else MAX_GROWN_CANDIDATES
        return count_remembered_policies(count)

    @property
    def max_maturing_rounds(self) -> int:
        """Number of rounds that may wait for late events while another is open.

        More would be forgotten before they are learned. Rounds that end by exposures mature in bursts: a close that
        learns from several publishes a policy for each, and those are remembered, too.
        """
        remembered = self.remembered_policies
        return remembered - 1 if self.rounds.every is not None else remembered // 2 - 1

    def grows_with_phase(self, metric: Metric) -> bool:
        """Return whether a unit's number grows with the length of a phase in which units keep their arm."""
        column = metric.numerator
        growing = (
            metric.denominator in (None, MEMBERS) and column.aggregate in GROWING_AGGREGATES and column.window is None
        )
        return growing and self.unit != "request"

    def build_study(self, seed: int) -> Study:
        """Return a new study that has not learned anything."""
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
            history=self.history,
            segments=self.segment_names or None,
        )


def build_quantities(spec: StudySpec) -> dict[str, Quantity]:
    """Return every metric by its columns, ratios as ratios.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> build_quantities(read_spec(EXAMPLE, "yaml"))["like_rate"]
    Quantity(numerator=1, denominator=2)
    """
    places = {column.name: place for place, column in enumerate(spec.columns)}
    return {
        name: Quantity(
            places[metric.numerator.name], None if metric.denominator is None else places[metric.denominator.name]
        )
        for name, metric in spec.metrics.items()
    }


def build_stop_levels(spec: StudySpec) -> tuple[StopLevel, ...]:
    """Return the level at which each guardrail stops the study, with the range of its metric.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> [(level.name, level.value, level.relative) for level in build_stop_levels(read_spec(EXAMPLE, "yaml"))]
    [('like_rate', -0.05, True)]
    """
    metric_quantities = build_quantities(spec)
    stop_levels = []
    for rail in spec.guardrails:
        metric = spec.metrics[rail.metric]
        level = rail.stop_at
        ranges = [None if column is None or spec.cluster else _range(column) for column in _halves(metric)]
        stop_levels.append(
            StopLevel(
                name=rail.name,
                quantity=metric_quantities[rail.metric],
                value=level.number / 100.0 if level.relative else level.number,
                relative=level.relative,
                at_most=not rail.lower,
                within=ranges[0],
                denominator_within=ranges[1],
                basis=find_stop_basis(spec, rail),
            )
        )
    return tuple(stop_levels)


def find_stop_basis(spec: StudySpec, rail: GuardrailSpec) -> Basis | None:
    """Return the basis on which a stop level in the metric's own units is judged; None for a percentage.

    The basis is the control of the same rounds, if there is one. A level that is not above zero cannot be a share
    of the control, so whole days are judged, as in a study without a control.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> for text in (EXAMPLE, EXAMPLE.replace("stop_at: -5%", "stop_at: 0.01")):
    ...     spec = read_spec(text, "yaml")
    ...     print(find_stop_basis(spec, spec.guardrails[0]))
    None
    control
    """
    if rail.stop_at.relative:
        return None
    return "control" if spec.traffic.control > 0 and rail.stop_at.number > 0 else "days"


def _halves(metric: Metric) -> tuple[Column, Column | None]:
    return metric.numerator, metric.denominator


def _range(column: Column) -> ValueRange | None:
    if column.low is None or column.high is None:
        return None
    return ValueRange(column.low, column.high)


def _table_document(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: dict(value) if name == "fields" else value for name, value in table.items() if value not in (None, {})
    }
