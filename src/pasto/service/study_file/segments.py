"""Segments of a study file: the attributes that divide units into groups, from a mapping or a list and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from typing import Any

from pasto.document_validation import MAX_TEXT_CHARACTERS, FieldKind, ProblemList, show_value
from pasto.objective import EACH_SEGMENT
from pasto.service.study_file.audience import MAX_ATTRIBUTES, RESERVED_ATTRIBUTES
from pasto.service.study_file.spec import TeamSource, plain
from pasto.space import Candidates, Space
from pasto_sdk.enrolment import (
    MAX_ATTRIBUTE_NUMBER,
    MAX_SEGMENT_CHARACTERS,
    OTHER_SEGMENT,
    SegmentAttribute,
    SegmentRule,
    plain_numbers,
)

MAX_SEGMENTS = 50
"""Segments of a study, with "other"."""
MAX_SEGMENT_CELLS = 50_000
"""Segments times candidates: the shares that a policy document may hold."""
_EXAMPLE = "{attribute: activity, values: [new, heavy]}"
_NEEDED = f"must be {_EXAMPLE}, lists by attribute such as {{tenure_days: [7, 30]}}, or a list of attributes"
_VALUE = {"type": ["number", "boolean", "string"], "maxLength": MAX_TEXT_CHARACTERS}
_VALUES = {"type": "array", "items": _VALUE, "minItems": 1, "maxItems": MAX_SEGMENTS, "uniqueItems": True}
_ATTRIBUTE_NAME = {"type": "string", "minLength": 1, "maxLength": MAX_TEXT_CHARACTERS}
_ATTRIBUTE = {
    "type": "object",
    "properties": {
        "attribute": _ATTRIBUTE_NAME,
        "values": _VALUES,
        "cuts": {**_VALUES, "items": {"type": "number"}},
    },
    "required": ["attribute"],
    "oneOf": [{"required": ["values"]}, {"required": ["cuts"]}],
    "additionalProperties": False,
}


def read_segments(problems: ProblemList, path: str, given: object) -> SegmentRule | None:
    """Return the rule of the segments, or None and its problems.

    >>> for given in (
    ...     {"attribute": "activity", "values": ["new", "heavy"]},
    ...     {"tenure_days": [7, 30]},
    ...     [{"attribute": "level", "values": ["low", "high"]}, {"attribute": "tenure_days", "cuts": [7]}],
    ... ):
    ...     print(read_segments(ProblemList(), "segments", given).names)
    ('new', 'heavy')
    ('tenure_days below 7', 'tenure_days 7 to 30', 'tenure_days from 30')
    ('low / tenure_days below 7', 'low / tenure_days from 7', 'high / tenure_days below 7', 'high / tenure_days from 7')
    """
    before = len(problems.found)
    attributes = [
        attribute
        for place, part in _list_attributes(problems, path, given)
        if (attribute := _read_attribute(problems, place, part)) is not None
    ]
    if len(problems.found) > before:
        return None
    names = [attribute.attribute for attribute in attributes]
    if repeated := [name for place, name in enumerate(names) if name in names[:place]]:
        problems.add(path, f"has the attribute {repeated[0]!r} twice; give it once, with all its values or cuts")
        return None
    count = 1 + math.prod(attribute.part_count for attribute in attributes)
    if count > MAX_SEGMENTS:
        problems.add(
            path,
            f"gives {count:,} segments with {OTHER_SEGMENT!r}, and {MAX_SEGMENTS} are the most; use fewer values, cuts "
            "or attributes",
        )
        return None
    return _name_segments(problems, path, attributes)


def write_segments(rule: SegmentRule) -> dict[str, Any] | list[dict[str, Any]]:
    """Return segments as a study file writes them.

    >>> write_segments(read_segments(ProblemList(), "segments", {"activity": ["new"]}))
    {'attribute': 'activity', 'values': ['new']}
    """
    written = [
        {"attribute": part.attribute, "cuts": plain_numbers(part.cuts)}
        if part.cuts
        else {"attribute": part.attribute, "values": plain_numbers(part.values)}
        for part in rule.attributes
    ]
    return written[0] if len(written) == 1 else written


def check_segments(
    problems: ProblemList,
    rule: SegmentRule,
    candidates: Candidates | Space | None,
    source: TeamSource | None,
    *,
    is_external: bool,
    has_history: bool,
) -> None:
    """Note what the rest of a study file has that does not fit its segments."""
    count = len(rule.names) + 1
    if isinstance(candidates, Space):
        problems.add("segments", "cannot be given with ranges yet; list the settings with parameters or candidates")
    elif candidates is not None and (shares := count * len(candidates)) > MAX_SEGMENT_CELLS:
        problems.add(
            "segments",
            f"gives {count} segments, which with {len(candidates):,} candidates are {shares:,} shares, and "
            f"{MAX_SEGMENT_CELLS:,} are the most; use fewer segments, or fewer candidates",
        )
    if is_external:
        problems.add(
            "segments",
            "cannot be given with assigned_by: external, because another platform assigns the units; leave one of them "
            "out",
        )
    if has_history:
        problems.add("segments", "cannot be given with history yet, because its rows name no segment; leave one out")
    if source is not None:
        known = source.tables.exposures.attributes
        for attribute in (part.attribute for part in rule.attributes):
            if attribute not in known:
                problems.add(
                    "source.exposures.attributes",
                    f"names no column of {attribute!r}, which decides on the segment of an exposure; add "
                    f"attributes: {{{attribute}: COLUMN}}",
                )


def _list_attributes(problems: ProblemList, path: str, given: object) -> list[tuple[str, Mapping[Any, Any]]]:
    """Return each attribute in its long form, with its path."""
    if isinstance(given, Mapping) and not isinstance(given.get("attribute", ()), (list, tuple)):
        return [(path, given)]
    if isinstance(given, Mapping) and 0 < len(given) <= MAX_ATTRIBUTES:
        return [
            (f"{path}.{attribute}", {"attribute": attribute, "cuts" if _are_cuts(listed) else "values": listed})
            for attribute, listed in given.items()
        ]
    if isinstance(given, (list, tuple)) and 0 < len(given) <= MAX_ATTRIBUTES:
        parts = [(f"{path}[{place}]", part) for place, part in enumerate(given)]
        if all(isinstance(part, Mapping) for _, part in parts):
            return parts
    problems.add(path, f"{_NEEDED}, got {show_value(given)}")
    return []


def _are_cuts(listed: object) -> bool:
    return isinstance(listed, (list, tuple)) and bool(listed) and all(map(_is_number, listed))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _read_attribute(problems: ProblemList, path: str, part: Mapping[Any, Any]) -> SegmentAttribute | None:
    unknown = [name for name in part if name not in ("attribute", "values", "cuts")]
    if unknown or ("values" in part) == ("cuts" in part):
        needed = f"must have attribute, and either values or cuts, as in {_EXAMPLE}"
        problems.add(path, f"{needed}, got {show_value(dict(part))}")
        return None
    attribute = problems.text(f"{path}.attribute", part.get("attribute"))
    if attribute is None:
        return None
    if attribute in RESERVED_ATTRIBUTES:
        problems.add(path, f"reads {attribute!r}, which the clients use themselves; choose another attribute")
        return None
    field = "values" if "values" in part else "cuts"
    listed = part[field]
    if not isinstance(listed, (list, tuple)) or not 0 < len(listed) < MAX_SEGMENTS:
        problems.add(path, f"must list 1 to {MAX_SEGMENTS - 1} {field}, as in {_EXAMPLE}, got {show_value(listed)}")
        return None
    if field == "cuts":
        cuts = _read_cuts(problems, path, listed)
        return None if cuts is None else SegmentAttribute(attribute, cuts=cuts)
    values = _read_values(problems, path, listed)
    return None if values is None else SegmentAttribute(attribute, values)


def _read_values(problems: ProblemList, path: str, listed: Sequence[object]) -> tuple[float | str | bool, ...] | None:
    values: list[float | str | bool] = []
    for value in listed:
        if not isinstance(value, (str, bool, int, float)):
            problems.add(path, f"must list texts, numbers or true and false, got {show_value(listed)}")
            return None
        if isinstance(value, str) and problems.text(path, value) is None:
            return None
        if value == OTHER_SEGMENT:
            problems.add(path, f"lists {OTHER_SEGMENT!r}, the segment of all values that are not listed; leave it out")
            return None
        if isinstance(value, (int, float)) and not abs(value) <= MAX_ATTRIBUTE_NUMBER:
            problems.add(path, f"must have numbers up to {MAX_ATTRIBUTE_NUMBER:g}, got {show_value(listed)}")
            return None
        values.append(value if isinstance(value, (str, bool)) else float(value) + 0.0)
    if len(set(map(type, values))) > 1:
        problems.add(path, f"must list values of one type, got {show_value(listed)}; put texts in quotes")
        return None
    if repeated := [value for place, value in enumerate(values) if value in values[:place]]:
        problems.add(path, f"lists {_show(repeated[0])} twice; list each value once")
        return None
    return tuple(values)


def _read_cuts(problems: ProblemList, path: str, listed: Sequence[Any]) -> tuple[float, ...] | None:
    if not all(_is_number(cut) and abs(cut) <= MAX_ATTRIBUTE_NUMBER for cut in listed):
        problems.add(path, f"must have cuts that are numbers up to {MAX_ATTRIBUTE_NUMBER:g}, got {show_value(listed)}")
        return None
    cuts = [float(cut) + 0.0 for cut in listed]
    if not all(low < high for low, high in pairwise(cuts)):
        rising = ", ".join(map(_show, sorted(set(cuts))))
        problems.add(path, f"must have cuts that rise, got {show_value(listed)}; write [{rising}]")
        return None
    return tuple(cuts)


def _name_segments(problems: ProblemList, path: str, attributes: Sequence[SegmentAttribute]) -> SegmentRule | None:
    names = [" / ".join(parts) for parts in product(*map(_name_parts, attributes))]
    long = next((name for name in names if len(name) > MAX_SEGMENT_CHARACTERS), None)
    if long is not None:
        problems.add(
            path,
            f"gives a segment a name of {len(long)} characters, and {MAX_SEGMENT_CHARACTERS} are the most; use shorter "
            "values, or fewer attributes",
        )
    elif repeated := [name for place, name in enumerate(names) if name in names[:place]]:
        problems.add(path, f"gives two segments the name {repeated[0]!r}; use other values")
    elif EACH_SEGMENT in names:
        problems.add(
            path,
            f"gives a segment the name {EACH_SEGMENT!r}, by which guardrails mean all segments; use another value",
        )
    else:
        return SegmentRule(tuple(attributes), tuple(names))
    return None


def _name_parts(attribute: SegmentAttribute) -> list[str]:
    name, cuts = attribute.attribute, [_show(cut) for cut in attribute.cuts]
    if not cuts:
        return [value if isinstance(value, str) else f"{name}: {_show(value)}" for value in attribute.values]
    between = [f"{name} {low} to {high}" for low, high in pairwise(cuts)]
    return [f"{name} below {cuts[0]}", *between, f"{name} from {cuts[-1]}"]


def _show(value: float | str | bool) -> str:
    """Return a value as a segment's name has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else plain(value)


SEGMENTS = FieldKind(
    "mapping or list",
    {
        "anyOf": [
            _ATTRIBUTE,
            {
                "type": "object",
                "minProperties": 1,
                "maxProperties": MAX_ATTRIBUTES,
                "propertyNames": _ATTRIBUTE_NAME,
                "additionalProperties": _VALUES,
            },
            {"type": "array", "items": _ATTRIBUTE, "minItems": 1, "maxItems": MAX_ATTRIBUTES},
        ]
    },
    read_segments,
)
