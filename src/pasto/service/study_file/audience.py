"""Audience of a study file: conditions on attributes of a unit, from a mapping and back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pasto.document_validation import MAX_TEXT_CHARACTERS, FieldKind, ProblemList, show_value
from pasto.service.study_file.spec import plain
from pasto_sdk.enrolment import COMPARISONS, MAX_ATTRIBUTE_NUMBER, AudienceCondition, plain_numbers

MAX_ATTRIBUTES = 32
MAX_VALUES = 1_000
RESERVED_ATTRIBUTES = ("override", "targetingKey")
"""Names that `assign` and OpenFeature use themselves."""
_COMPARISON = re.compile(r"\s*(<=|>=|<|>)\s*([+-]?[0-9]{1,15}(?:\.[0-9]{1,15})?)\s*")
_VALUE = {"type": ["number", "boolean", "string"], "maxLength": MAX_TEXT_CHARACTERS}
_NEEDED = "must be a value, a list of values of one type, or a comparison such as '>= 7' or '>= 7, < 30'"


def read_audience(problems: ProblemList, path: str, given: object) -> tuple[AudienceCondition, ...] | None:
    """Return the conditions of an audience, in the order of the file; or None and its problems.

    >>> audience = {"country": ["de", "at"], "tenure_days": ">= 7, < 30", "employee": False}
    >>> for condition in read_audience(ProblemList(), "audience", audience):
    ...     print(condition.attribute, condition.operator, condition.values)
    country in ('de', 'at')
    tenure_days >= (7.0,)
    tenure_days < (30.0,)
    employee in (False,)
    """
    if not isinstance(given, Mapping) or not 0 < len(given) <= MAX_ATTRIBUTES:
        example = "{country: [de, at], tenure_days: '>= 7'}"
        problems.add(
            path, f"must map 1 to {MAX_ATTRIBUTES} attributes to values, as in {example}, got {show_value(given)}"
        )
        return None
    conditions: list[AudienceCondition] = []
    for attribute, wanted in given.items():
        if problems.text(path, attribute) is None:
            continue
        if attribute in RESERVED_ATTRIBUTES:
            problems.add(f"{path}.{attribute}", "cannot be given to the clients, which use this name; choose another")
            continue
        conditions += _read_conditions(problems, f"{path}.{attribute}", attribute, wanted)
    return tuple(conditions)


def write_audience(audience: Sequence[AudienceCondition]) -> dict[str, Any]:
    """Return an audience as a study file writes it.

    >>> conditions = [AudienceCondition("age", ">=", (18.0,)), AudienceCondition("plan", "in", ("> 1",))]
    >>> write_audience(conditions)
    {'age': '>= 18', 'plan': ['> 1']}
    """
    document: dict[str, Any] = {}
    for condition in audience:
        if condition.operator != "in":
            comparison = f"{condition.operator} {plain(float(condition.values[0]))}"
            before = document.get(condition.attribute)
            document[condition.attribute] = comparison if before is None else f"{before}, {comparison}"
            continue
        values = plain_numbers(condition.values)
        is_plain = len(values) == 1 and not (isinstance(values[0], str) and values[0].lstrip()[:1] in ("<", ">", "="))
        document[condition.attribute] = values[0] if is_plain else values
    return document


def _read_conditions(problems: ProblemList, path: str, attribute: str, wanted: object) -> list[AudienceCondition]:
    if isinstance(wanted, str) and wanted.lstrip()[:1] in ("<", ">", "="):
        return _read_comparisons(problems, path, attribute, wanted)
    values = list(wanted) if isinstance(wanted, (list, tuple)) else [wanted]
    if not 0 < len(values) <= MAX_VALUES:
        problems.add(path, f"{_NEEDED}; a list has 1 to {MAX_VALUES:,} values, got {len(values):,}")
        return []
    read: list[float | str | bool] = []
    for value in values:
        if not isinstance(value, (str, bool, int, float)):
            problems.add(path, f"{_NEEDED}; got {show_value(wanted)}")
            return []
        read.append(value if isinstance(value, (str, bool)) else float(value))
    if len(set(map(type, read))) > 1:
        problems.add(path, f"must have values of one type, got {show_value(wanted)}; put texts in quotes")
        return []
    for value in read:
        if isinstance(value, str) and problems.text(path, value) is None:
            return []
        if isinstance(value, float) and not abs(value) <= MAX_ATTRIBUTE_NUMBER:
            problems.add(path, f"must have numbers up to {MAX_ATTRIBUTE_NUMBER:g}, got {show_value(wanted)}")
            return []
    return [AudienceCondition(attribute, "in", tuple(dict.fromkeys(read)))]


def _read_comparisons(problems: ProblemList, path: str, attribute: str, wanted: str) -> list[AudienceCondition]:
    conditions: list[AudienceCondition] = []
    lowest, highest = -math.inf, math.inf
    for part in wanted.split(","):
        match = _COMPARISON.fullmatch(part)
        if match is None:
            cure = "a text that begins in this way needs a list, as in ['< 18']"
            problems.add(
                path, f"must compare with a number by {', '.join(COMPARISONS)}, as in '>= 7', got {wanted!r}; {cure}"
            )
            return []
        number = float(match[2]) + 0.0
        conditions.append(AudienceCondition(attribute, match[1], (number,)))
        if match[1].startswith(">"):
            lowest = max(lowest, number)
        else:
            highest = min(highest, number)
    if lowest > highest:
        problems.add(path, f"is {wanted!r}, which no number meets; exchange the two numbers")
    return conditions


AUDIENCE = FieldKind(
    "mapping",
    {
        "type": "object",
        "minProperties": 1,
        "maxProperties": MAX_ATTRIBUTES,
        "propertyNames": {"minLength": 1, "maxLength": MAX_TEXT_CHARACTERS},
        "additionalProperties": {
            "anyOf": [_VALUE, {"type": "array", "items": _VALUE, "minItems": 1, "maxItems": MAX_VALUES}]
        },
    },
    read_audience,
)
