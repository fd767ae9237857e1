"""Table of every field of a study file: the source of its parser, its reference page and its JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pasto.document_validation import (
    BOOL,
    MAX_TEXT_CHARACTERS,
    Field,
    FieldKind,
    FieldTable,
    ProblemList,
    allow_null,
    choice_kind,
    integer_kind,
    number_kind,
    pattern_kind,
    show_value,
    text_kind,
)
from pasto.durations import duration_kind
from pasto.metrics.definition_fields import METRIC_FIELDS, METRIC_NAME, RATIO_FIELDS
from pasto.metrics.parsing import MAX_METRICS
from pasto.optimize.learners import LEARNERS
from pasto.service.study_file.amounts import LEVEL, LOSS, RAMP, ROUNDS, share_kind
from pasto.service.study_file.audience import AUDIENCE
from pasto.service.study_file.segments import MAX_SEGMENTS, SEGMENTS

MAX_CANDIDATES = 10_000
MAX_PARAMETERS = 64
MAX_CONSTRAINT_CHARACTERS = 500
MAX_DESCRIPTION_CHARACTERS = 2_000
MAX_GUARDRAILS = 64
MAX_TABLES = 64
MIN_ROUND_SECONDS = 1.0
MAX_COLUMN_CHARACTERS = 63

_VALUE = {"type": ["number", "boolean", "string"], "maxLength": MAX_TEXT_CHARACTERS}
_OPTIONS = {"type": "array", "items": _VALUE, "minItems": 1, "maxItems": MAX_CANDIDATES}


def _section(path: str) -> FieldKind:
    return FieldKind("mapping", {"$ref": f"#/$defs/{path}"})


def _by_parameter(values: Any) -> dict[str, Any]:
    """Return the JSON Schema of a mapping from parameters to values."""
    return {
        "type": "object",
        "minProperties": 1,
        "maxProperties": MAX_PARAMETERS,
        "propertyNames": {"maxLength": MAX_TEXT_CHARACTERS},
        "additionalProperties": values,
    }


def _read_description(problems: ProblemList, path: str, given: object) -> str | None:
    limit = MAX_DESCRIPTION_CHARACTERS
    if isinstance(given, str) and len(given) <= limit and "".join(given.split()).isprintable():
        return given
    problems.add(path, f"must be a printable text of at most {limit:,} characters, got {show_value(given)}")
    return None


def _read_names(problems: ProblemList, path: str, given: object) -> tuple[str, ...] | None:
    if isinstance(given, (list, tuple)) and all(isinstance(name, str) for name in given):
        return tuple(dict.fromkeys(given))
    problems.add(path, f"must be a list of candidates' names, got {show_value(given)}")
    return None


def _read_column_names(problems: ProblemList, path: str, given: object) -> dict[str, str] | None:
    if isinstance(given, Mapping) and all(_is_column_name(text) for pair in given.items() for text in pair):
        return dict(given)
    problems.add(path, f"must be columns by field, such as {{seconds: secs}}, got {show_value(given)}")
    return None


def _is_column_name(text: object) -> bool:
    return isinstance(text, str) and 0 < len(text) <= MAX_COLUMN_CHARACTERS and text.isprintable()


_NAME = pattern_kind(r"[a-z0-9][a-z0-9_-]{0,62}", "up to 63 of a-z, 0-9, _ and -, such as home-feed")
_UNIT = pattern_kind(r"[A-Za-z][A-Za-z0-9_-]{0,62}", "one word, such as user, session or request")
_UNIT_OR_CLUSTER = FieldKind("word or mapping", {"anyOf": [_UNIT.schema, _section("unit").schema]})
_DESCRIPTION = FieldKind("text", {"type": "string", "maxLength": MAX_DESCRIPTION_CHARACTERS}, _read_description)
_BASELINE = FieldKind("mapping or text", {"anyOf": [_by_parameter(_VALUE), {"type": "string"}]})
_PARAMETERS = FieldKind("mapping of lists", _by_parameter(_OPTIONS))
_NAMED_ROW = {
    "type": "object",
    "properties": {"name": text_kind().schema, "values": _by_parameter(_VALUE)},
    "required": ["name", "values"],
    "additionalProperties": False,
}
_CANDIDATES = FieldKind(
    "list",
    {
        "type": "array",
        "items": {"anyOf": [_by_parameter(_VALUE), _NAMED_ROW]},
        "minItems": 1,
        "maxItems": MAX_CANDIDATES,
    },
)
_RETIRED = FieldKind(
    "list of names",
    {"type": "array", "items": {"type": "string"}, "maxItems": MAX_CANDIDATES},
    _read_names,
)
_RANGES = FieldKind("mapping", _by_parameter({"anyOf": [_OPTIONS, {"$ref": "#/$defs/ranges.NAME"}]}))
_CONSTRAINTS = FieldKind(
    "list of texts",
    {
        "type": "array",
        "items": {"type": "string", "minLength": 1, "maxLength": MAX_CONSTRAINT_CHARACTERS},
        "maxItems": MAX_PARAMETERS,
    },
)
_METRICS = FieldKind(
    "mapping",
    {
        "type": "object",
        "minProperties": 1,
        "maxProperties": MAX_METRICS,
        "propertyNames": {"pattern": f"^(?:{METRIC_NAME})$"},
        "additionalProperties": {"$ref": "#/$defs/metrics.NAME"},
    },
)
_WEIGHTS = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "number", "not": {"const": 0}}}
_AIM = FieldKind("text or mapping", {"anyOf": [{"type": "string"}, _WEIGHTS]})
_GUARDRAILS = FieldKind("list", {"type": "array", "items": {"$ref": "#/$defs/guardrails"}, "maxItems": MAX_GUARDRAILS})
_COLUMN = text_kind(MAX_COLUMN_CHARACTERS)
_TABLE = pattern_kind(
    r"[A-Za-z_][A-Za-z0-9_-]{0,62}(?:\.[A-Za-z_][A-Za-z0-9_-]{0,62}){0,2}", "a table's name, such as lake.plays"
)
_PLACE = pattern_kind(
    r"[a-z][a-z0-9_]{0,31}",
    "the name of a place that the service's operator has set as PASTO_SOURCE_NAME: up to 32 of a-z, 0-9 and _",
)
_TABLES = FieldKind(
    "list", {"type": "array", "items": {"$ref": "#/$defs/source.events"}, "minItems": 1, "maxItems": MAX_TABLES}
)
_COLUMN_NAMES = FieldKind("mapping", {"type": "object", "additionalProperties": _COLUMN.schema}, _read_column_names)
_CELL = {"type": ["number", "boolean", "string"], "maxLength": MAX_TEXT_CHARACTERS}
_HISTORY = FieldKind(
    "list of rows",
    {
        "type": "array",
        "items": {"type": "object", "minProperties": 1, "additionalProperties": _CELL},
        "minItems": 1,
        "maxItems": MAX_CANDIDATES,
    },
)
_LEARNER_NAME = choice_kind(*LEARNERS)
_LEARNER = FieldKind("text or mapping", {"anyOf": [_LEARNER_NAME.schema, {"$ref": "#/$defs/learner"}]})

FIELDS = FieldTable(
    (
        Field("name", _NAME, "required", "The study's name everywhere: up to 63 of a-z, 0-9, `_`, `-`", "feed"),
        Field(
            "unit",
            _UNIT_OR_CLUSTER,
            "user",
            "What is assigned, and averaged over: `user`, `session`, `request`, any word; or the fields below, to "
            "assign clusters of units as a whole",
            "session",
        ),
        Field("unit.name", _UNIT, "user", "What is averaged over", "pupil"),
        Field(
            "unit.cluster",
            _UNIT,
            "—",
            "The attribute with the cluster of a unit: all units of a cluster get the same candidate, and intervals "
            "are computed by cluster",
            "school",
        ),
        Field("description", _DESCRIPTION, "—", "Its purpose, in up to 2,000 characters", "Weights of the home feed"),
        Field("owner", text_kind(), "—", "The team or person to ask about the study", "feed team"),
        Field("baseline", _BASELINE, "required", "The setting that is served today, or its name", "{weight: 1}"),
        Field(
            "parameters",
            _PARAMETERS,
            "one of three",
            "The levels of each parameter; every combination is a candidate",
            "{weight: [0, 1, 2]}",
        ),
        Field(
            "candidates",
            _CANDIDATES,
            "one of three",
            "Settings one by one: rows of values, or `{name: …, values: …}` to name one",
            "[{weight: 0}, {name: bold, values: {weight: 2}}]",
        ),
        Field(
            "ranges",
            _RANGES,
            "one of three",
            "A continuous space: each parameter a range, or a list of options; new settings are found as it learns",
            "{weight: {low: 0, high: 2}}",
        ),
        Field("ranges.NAME.low", number_kind(), "required", "Lowest value", "0", "from"),
        Field("ranges.NAME.high", number_kind(), "required", "Highest value", "2", "to"),
        Field("ranges.NAME.integer", BOOL, "false", "`true`: only integers are tried", "true", "whole"),
        Field(
            "constraints",
            _CONSTRAINTS,
            "[]",
            "Linear constraints that every setting meets; with `parameters` or `ranges`",
            '["search + 2*social <= 100"]',
        ),
        Field(
            "retired",
            _RETIRED,
            "[]",
            "In a running study: names of candidates that are not served any more; `pasto study candidate` changes it",
            '["like_weight=2,share_weight=0"]',
        ),
        Field(
            "metrics",
            _METRICS,
            "required",
            "Definitions of metrics by name, up to 64",
            "{likes: {event: like}}",
        ),
        *METRIC_FIELDS,
        Field(
            "goal", _section("goal"), "required", "Purpose of the study: one of the two below", "{maximize: watch_time}"
        ),
        Field(
            "goal.maximize",
            _AIM,
            "one of two",
            "A metric to raise, or weights by metric",
            "{watch_time: 1, comments: 0.3}",
        ),
        Field("goal.minimize", _AIM, "one of two", "A metric to lower, or weights by metric", "load_time"),
        Field(
            "guardrails",
            _GUARDRAILS,
            "[]",
            "Limits that must hold meanwhile, up to 64",
            "[{metric: like_rate, at_least: -2%}]",
        ),
        Field("guardrails.metric", text_kind(), "required", "The metric", "like_rate", "keep"),
        Field(
            "guardrails.at_least",
            LEVEL,
            "one of two",
            "Its lowest value: a number in its own units, or a signed percentage over the baseline",
            "-2%",
        ),
        Field("guardrails.at_most", LEVEL, "one of two", "Its highest value, likewise", "+1%"),
        Field(
            "guardrails.penalty",
            number_kind(above=0.0),
            "—",
            "Makes it soft: the cost of a breach, in goal units per squared unit of breach (percents if relative); "
            "without one it is hard, and the answer meets it with the stated confidence",
            "5",
        ),
        Field(
            "guardrails.within",
            text_kind(),
            "all traffic",
            "In a study with segments: `each` if it holds in every segment by itself, or the segment in which it "
            "holds; a percentage is then over the baseline of the same segment",
            "each",
        ),
        Field(
            "guardrails.loss_budget",
            LOSS,
            "—",
            "By how much the served policy may miss it while learning, in the guardrail's own terms",
            "1%",
            "budget",
        ),
        Field(
            "guardrails.stop_at",
            LEVEL,
            "`at_least` less the tolerance (`at_most` plus it)",
            "Level at which the study stops: when the metric is surely beyond it, traffic is pulled; a number is "
            "judged against the control, or over whole days if there is no control",
            "-5%",
            "floor",
        ),
        Field(
            "guardrails.tolerance",
            LOSS,
            "hard: 0; soft: a tenth of the target, or as much again and at least 1% if relative",
            "Distance from the threshold to `stop_at` if that is left out",
            "3%",
        ),
        Field("traffic", _section("traffic"), "{}", "Shares of traffic", "{control: 10%, max_share: 30%}"),
        Field(
            "traffic.control",
            share_kind(open_ends="high"),
            "10%",
            "Of the units that take part: held on the baseline, to compare with",
            "5%",
        ),
        Field(
            "traffic.explore",
            share_kind(open_ends="low"),
            "100%",
            "Of all units: take part, always the same ones; the others get the baseline, without exposures",
            "20%",
        ),
        Field(
            "traffic.ramp",
            RAMP,
            "—",
            "Instead of `explore`: shares that grow step by step, while every guardrail holds",
            "[1%, 5%, 25%, 100%]",
        ),
        Field(
            "traffic.advance_after",
            ROUNDS,
            "3",
            "Learned rounds of a step after which the ramp goes one step forward, if every guardrail holds; a warning "
            "takes it one step back",
            "3 rounds",
        ),
        Field(
            "traffic.min_share",
            share_kind(open_ends="high"),
            "1%",
            "Of the learner's units: spread evenly over all candidates",
            "2%",
            "floor",
        ),
        Field(
            "traffic.max_share",
            allow_null(share_kind(open_ends="low")),
            "—",
            "The most that any candidate except the baseline gets of the learner's units",
            "30%",
            "cap",
        ),
        Field(
            "traffic.new_candidate_share",
            allow_null(share_kind(open_ends="low")),
            "—",
            "The most that a candidate without any measurement gets of them",
            "1%",
            "entry",
        ),
        Field(
            "layer",
            _section("layer"),
            "—",
            "A group of studies that share no unit: each has an interval of the layer's hash line",
            "{name: home, share: 40%}",
        ),
        Field("layer.name", _NAME, "required", "The layer, which exists as long as a study names it", "home"),
        Field(
            "layer.share",
            share_kind(open_ends="low"),
            "required",
            "Of all units: the part that only this study has; a multiple of 0.0001%",
            "40%",
        ),
        Field(
            "layer.start",
            share_kind(open_ends="high"),
            "a free place",
            "Start of the interval; the service chooses it and writes it here",
            "0.6",
        ),
        Field(
            "audience",
            AUDIENCE,
            "—",
            "Attributes of the units that take part: a value, a list of values, or comparisons with a number. A unit "
            "without the attribute is outside",
            '{country: [de, at], tenure_days: ">= 7, < 30", employee: false}',
        ),
        Field(
            "segments",
            SEGMENTS,
            "—",
            "Groups of units by attributes, each with a blend of its own: `attribute` with `values`, or with rising "
            "`cuts` of a number; several attributes in a list are crossed. `{tenure_days: [7, 30]}` is short for cuts, "
            "and a list of texts for values. All other units are the segment `other`. Up to "
            f"{MAX_SEGMENTS} segments with it. No service learns by segment yet, so a file with segments is refused",
            "{attribute: activity, values: [new, casual, regular, heavy]}",
        ),
        Field("rounds", _section("rounds"), "{every: 1h}", "End of a round, and time to learning", "{every: 1h}"),
        Field("rounds.every", duration_kind(low=MIN_ROUND_SECONDS), "1h", "Length of a round", "30min"),
        Field(
            "rounds.exposures",
            integer_kind(1, 10**12),
            "—",
            "Instead of `every`: end a round after so many exposures",
            "50000",
        ),
        Field(
            "rounds.maturity",
            duration_kind(),
            "0s",
            "Time to wait for late events before a round is learned",
            "2h",
        ),
        Field(
            "rounds.accept_late",
            duration_kind(),
            "0s",
            "Time after that in which late events still correct a learned round",
            "2d",
            "late",
        ),
        Field("exposures", _section("exposures"), "{}", "Requirements of exposures that are sent", "{signed: true}"),
        Field(
            "exposures.signed",
            BOOL,
            "false",
            "`true`: only exposures signed by an SDK with the scope `evaluate` are accepted; not with `source`",
            "true",
        ),
        Field(
            "exposures.assigned_by",
            choice_kind("pasto", "external"),
            "pasto",
            "`external`: another platform assigns units by the published shares, and the candidate that an exposure "
            "names counts; not with `signed`",
            "external",
        ),
        Field(
            "source",
            _section("source"),
            "—",
            "Your own tables of exposures and events, instead of events sent to PASTO",
            "{from: lake, exposures: {table: seen}, events: [{table: plays, event: play, version: policy}]}",
        ),
        Field("source.from", _PLACE, "required", "A place that the operator set: `PASTO_SOURCE_LAKE` for lake", "lake"),
        Field(
            "source.exposures",
            _section("source.exposures"),
            "required",
            "The table of exposures",
            "{table: seen, unit: user_id}",
        ),
        Field(
            "source.exposures.table",
            _TABLE,
            "required",
            "Its name; in a folder of files, a folder or file",
            "lake.seen",
        ),
        Field("source.exposures.unit", _COLUMN, "unit", "The column of units", "user_id"),
        Field("source.exposures.version", _COLUMN, "version", "The column of the policy's version", "policy"),
        Field("source.exposures.candidate", _COLUMN, "—", "The column of the candidate's name, to be checked", "shown"),
        Field(
            "source.exposures.time",
            _COLUMN,
            "—",
            "The column of the time (a timestamp, or seconds), if events have no version or a metric has a window or "
            "a covariate",
            "at",
        ),
        Field(
            "source.exposures.attributes",
            _COLUMN_NAMES,
            "{}",
            "The columns of attributes of the `audience`: exposures that do not meet it are left out; without a "
            "column, every exposure meets the condition. Also the column of the `unit`'s cluster",
            "{country: country_code}",
        ),
        Field(
            "source.events",
            _TABLES,
            "required",
            "The tables of events, up to 64",
            "[{table: plays, event: play, time: at}]",
        ),
        Field("source.events.table", _TABLE, "required", "Its name", "lake.plays"),
        Field("source.events.unit", _COLUMN, "unit", "The column of units", "user_id"),
        Field("source.events.name", _COLUMN, "name", "The column of the event's name", "kind"),
        Field("source.events.event", text_kind(128), "—", "Instead of `name`: the name of all its events", "play"),
        Field("source.events.version", _COLUMN, "—", "The column of the policy's version", "policy"),
        Field(
            "source.events.time",
            _COLUMN,
            "—",
            "The column of the time: instead of `version`, or as above",
            "at",
        ),
        Field(
            "source.events.fields", _COLUMN_NAMES, "{}", "Columns by field, if their names differ", "{seconds: secs}"
        ),
        Field(
            "history",
            _HISTORY,
            "—",
            "Earlier results to start from: rows with `candidate` or the parameters, a mean for each metric, its "
            "standard error `METRIC_se`, and `units`",
            "[{weight: 1, likes: 0.31, likes_se: 0.01}]",
        ),
        Field("learner", _LEARNER, "thompson", "The learner: a name, or a name with settings", "thompson"),
        Field("learner.name", _LEARNER_NAME, "required", "The learner, if settings follow", "algorithm1"),
        Field(
            "learner.draws",
            allow_null(integer_kind(1, 10_000)),
            "32; more with over 100 candidates and much traffic",
            "`thompson`: posterior draws of each policy",
            "64",
        ),
        Field(
            "learner.structure",
            choice_kind("auto", "independent", "process"),
            "auto; process with ranges",
            "`thompson`: `process` if neighbouring settings share strength",
            "independent",
        ),
        Field(
            "learner.contrast",
            choice_kind("auto", "difference", "percent", None),
            "auto if there are a control and at most 500 candidates, else null",
            "`thompson`: learn each round against its own control, so that changes of all candidates alike cancel; "
            "auto takes percent for metrics of a goal or guardrail relative to the baseline, else differences",
            "null",
        ),
        Field(
            "learner.half_life",
            allow_null(number_kind(above=0.0)),
            "—",
            "`thompson`: number of rounds after which an observation counts half",
            "48",
        ),
        Field(
            "learner.step",
            number_kind(above=0.0),
            "0.1 / candidates",
            "`algorithm1` and `scgd`: the step of the mirror ascent",
            "0.001",
        ),
        Field(
            "confidence",
            share_kind(low=0.5, open_ends="high"),
            "95%",
            "Confidence of each hard guardrail and each loss budget, from 50% to below 100%",
            "99%",
        ),
        Field(
            "deploy_for",
            duration_kind(low=MIN_ROUND_SECONDS),
            "180d",
            "Time for which the blend will be served after learning: the advice to stop weighs the gain of more rounds "
            "over this time against their cost; if exposures end rounds, a round counts as an hour",
            "30d",
        ),
        Field(
            "expires_after",
            duration_kind(low=1.0),
            "1d",
            "Time after which a caller that gets nothing new goes back to the baseline",
            "6h",
        ),
    )
)

SECTIONS = FieldTable((*FIELDS, *RATIO_FIELDS))
"""All fields, with those of a ratio's halves, which the reference page shows once only."""

_LEARNER_SETTINGS = {
    "thompson": ("draws", "structure", "contrast", "half_life"),
    "algorithm1": ("step",),
    "scgd": ("step",),
}


def learner_settings(name: str) -> tuple[str, ...]:
    """Return the names of a learner's settings.

    >>> learner_settings("algorithm1")
    ('step',)
    """
    return _LEARNER_SETTINGS[name]
