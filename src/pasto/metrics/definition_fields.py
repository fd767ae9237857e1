"""Fields of a metric's definition in a study file."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from pasto.document_validation import (
    BOOL,
    LARGEST,
    Field,
    FieldKind,
    FieldTable,
    choice_kind,
    number_kind,
    pattern_kind,
    text_kind,
)
from pasto.durations import duration_kind
from pasto.metrics.definitions import Aggregate, Comparison

MAX_CONDITIONS = 32
"""Conditions of one metric, and values in one list."""
MAX_VALUE_CHARACTERS = 256
COMPARISONS: tuple[str, ...] = get_args(Comparison)
METRIC_NAME = r"[A-Za-z_][A-Za-z0-9_-]{0,62}"
FIELD_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,63}"

_EVENT_NAME = pattern_kind(
    r"[A-Za-z0-9_][A-Za-z0-9_.:/ -]{0,127}", "an event's name: up to 128 letters, digits, spaces and _ . : / -"
)
_EVENT_FIELD = pattern_kind(FIELD_NAME, "a field's name: up to 64 letters, digits and _ . -, and a letter or _ first")
_WINDOW = duration_kind(low=1.0)
_VALUE = {"type": ["number", "boolean", "string"], "maxLength": MAX_VALUE_CHARACTERS}
_VALUES = {"type": "array", "items": _VALUE, "minItems": 1, "maxItems": MAX_CONDITIONS}
_COMPARISON_VALUES = {
    sign: _VALUES if sign == "in" else _VALUE if sign in ("=", "!=") else {"type": "number"} for sign in COMPARISONS
}
_CONDITIONS = FieldKind(
    "mapping",
    {
        "type": "object",
        "minProperties": 1,
        "maxProperties": MAX_CONDITIONS,
        "propertyNames": {"pattern": f"^(?:{FIELD_NAME})$"},
        "additionalProperties": {
            "anyOf": [
                _VALUE,
                _VALUES,
                {
                    "type": "object",
                    "minProperties": 1,
                    "properties": _COMPARISON_VALUES,
                    "additionalProperties": False,
                },
            ]
        },
    },
)
_RANGE = FieldKind(
    "two numbers",
    {
        "type": "array",
        "items": {"type": "number", "minimum": -LARGEST, "maximum": LARGEST},
        "minItems": 2,
        "maxItems": 2,
    },
)
_RATIO = FieldKind(
    "two definitions",
    {"type": "array", "items": {"$ref": "#/$defs/metrics.NAME.ratio"}, "minItems": 2, "maxItems": 2},
)
_COVARIATE = FieldKind("duration or mapping", {"anyOf": [_WINDOW.schema, {"$ref": "#/$defs/metrics.NAME.covariate"}]})

_AGGREGATES = [aggregate for aggregate in get_args(Aggregate) if aggregate != "members"]

_COLUMN = (
    Field("event", _EVENT_NAME, "required", "The event it reads", "watch"),
    Field(
        "value",
        _EVENT_FIELD,
        "—",
        "The event's field that holds its number, for `sum`, `mean`, `max` and `last`; for `distinct`, the field whose "
        "different values are counted, texts or numbers",
        "seconds",
    ),
    Field(
        "aggregate",
        choice_kind(*_AGGREGATES, synonyms={"avg": "mean", "average": "mean"}),
        "`sum` with a value, else `count`",
        "How one unit's events become one number; a unit without any counts 0",
        "sum",
        "per_unit",
    ),
    Field(
        "cap",
        number_kind(above=0.0),
        "—",
        "A unit's number is cut down to it: short for `range: [0, cap]`",
        "7200",
    ),
    Field("range", _RANGE, "—", "Lowest and highest number of a unit, 0 among them; beyond, it is cut", "[-50, 50]"),
    Field(
        "where",
        _CONDITIONS,
        "—",
        "Conditions that an event must meet, by field: a value, a list of values, or comparisons",
        '{surface: home, seconds: {">=": 3}}',
    ),
    Field("by", _EVENT_FIELD, "—", "For `last`: the event's field, such as a timestamp, that orders the events", "at"),
    Field(
        "window",
        _WINDOW,
        "—",
        "Only events within it after the unit's first exposure of the round count; at most `rounds.maturity`",
        "2h",
    ),
)


def _place(section: str, field: Field) -> Field:
    return replace(field, path=f"{section}.{field.name}")


RATIO_FIELDS = FieldTable(_place("metrics.NAME.ratio", field) for field in _COLUMN)
"""Fields of a ratio's numerator or denominator: those of a metric that is not a ratio."""

METRIC_FIELDS = FieldTable(
    (
        replace(_COLUMN[0], path="metrics.NAME.event", default="one of two"),
        *(_place("metrics.NAME", field) for field in _COLUMN[1:]),
        Field(
            "metrics.NAME.ratio",
            _RATIO,
            "one of two",
            "Instead of `event`: numerator and denominator, each with the fields above; their means are divided, not "
            "each unit's numbers",
            "[{event: like}, {event: view}]",
        ),
        Field("metrics.NAME.lower_is_better", BOOL, "false", "`true`: a fall is good, as for a load time", "true"),
        Field(
            "metrics.NAME.covariate",
            _COVARIATE,
            "—",
            "Behaviour of the units before the round, which takes noise out of learning and lifts (CUPED): a "
            "look-back, or the fields below",
            "7d",
        ),
        Field("metrics.NAME.covariate.lookback", _WINDOW, "required", "Time before the round to look at", "7d"),
        Field(
            "metrics.NAME.covariate.metric",
            text_kind(),
            "the metric itself",
            "The metric to look at instead",
            "watch_time",
        ),
        Field(
            "metrics.NAME.covariate.cap",
            number_kind(above=0.0),
            "—",
            "A unit's number of that time is cut down to it",
            "50000",
        ),
    )
)
"""Fields of a metric and of its covariate."""
