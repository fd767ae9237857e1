"""Enrolment and segments: the units that take part in a study, and the groups that its attributes divide them into."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from operator import ge, gt, le, lt
from types import MappingProxyType

from pasto_sdk.errors import PolicyError

AttributeValue = float | int | str | bool
"""Value of an attribute of a unit."""

Attributes = Mapping[str, object]
"""Attributes of a unit as a caller gives them; values of other types than AttributeValue meet no condition."""

NO_ATTRIBUTES: Attributes = MappingProxyType({})

SLICE_KINDS = ("holdout", "layer", "ramp")
"""Purposes of a slice: units of no study, units of one study of a layer, units that a ramp has reached."""

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType({"<": lt, "<=": le, ">": gt, ">=": ge})

OPERATORS = ("in", *COMPARISONS)

MAX_ATTRIBUTE_NUMBER = 1e15
"""Largest number of an attribute; beyond it, languages print and read numbers differently."""


@dataclass(frozen=True, slots=True)
class EnrolmentSlice:
    """Interval of [0, 2^53): a unit takes part if its place under `salt` is at least `start` and below `until`.

    The salt has no version of the policy, so a slice that grows keeps its units.
    """

    kind: str
    """One of SLICE_KINDS."""
    salt: str
    start: int
    until: int


@dataclass(frozen=True, slots=True)
class AudienceCondition:
    """Condition on one attribute. An attribute that is missing, or has another type, does not meet it.

    >>> AudienceCondition("country", "in", ("de", "at")).is_met({"country": "at"})
    True
    >>> AudienceCondition("tenure_days", ">=", (7.0,)).is_met({"tenure_days": 3})
    False
    >>> AudienceCondition("employee", "in", (False,)).is_met({})
    False
    """

    attribute: str
    operator: str
    """One of OPERATORS."""
    values: tuple[float | str | bool, ...]
    """Values of one type; a comparison has one number."""

    def __post_init__(self) -> None:
        problem = _find_problem(self.operator, self.values)
        if problem is not None:
            raise PolicyError(f"the audience's condition on {self.attribute!r} {problem}")

    def is_met(self, attributes: Attributes) -> bool:
        """Return whether the attributes meet the condition; never raises."""
        value = _read_value(attributes.get(self.attribute))
        if self.operator == "in":
            kind = type(value)
            return any(value == wanted and type(wanted) is kind for wanted in self.values)
        return type(value) is float and COMPARISONS[self.operator](value, float(self.values[0]))


OTHER_SEGMENT = "other"
"""Segment of the units that are in no segment of a rule."""

MAX_SEGMENT_CHARACTERS = 200
"""Code points of a segment's name."""


@dataclass(frozen=True, slots=True)
class SegmentAttribute:
    """Attribute that divides units into parts: one for each value, or ranges between cuts.

    A part between cuts begins at its cut, and ends before the next one.

    >>> activity, tenure = SegmentAttribute("activity", ("new", "heavy")), SegmentAttribute("days", cuts=(7.0, 30.0))
    >>> [activity.find_part({"activity": value}) for value in ("heavy", "casual", 1)]
    [1, None, None]
    >>> [tenure.find_part({"days": days}) for days in (-1, 7, 29.9, 30, "30", None)]
    [0, 1, 1, 2, None, None]
    """

    attribute: str
    values: tuple[float | str | bool, ...] = ()
    """Values of one type; empty if there are cuts."""
    cuts: tuple[float, ...] = ()
    """Increasing numbers; empty if there are values."""
    part_count: int = field(init=False, repr=False, compare=False)
    _parts: Mapping[tuple[type, float | str | bool], int] = field(init=False, repr=False, compare=False)
    """Parts by type and value, because True is not 1."""

    def __post_init__(self) -> None:
        problem = _find_segment_problem(self.values, self.cuts)
        if problem is not None:
            raise PolicyError(f"the segments' attribute {self.attribute!r} {problem}")
        object.__setattr__(self, "part_count", len(self.values) or len(self.cuts) + 1)
        object.__setattr__(self, "_parts", {(type(value), value): part for part, value in enumerate(self.values)})

    def find_part(self, attributes: Attributes) -> int | None:
        """Return the part of a unit; None if its attribute is missing, or in no part. Never raises."""
        value = attributes.get(self.attribute)
        if type(value) is not str:
            value = _read_value(value)
        if self.cuts:
            return bisect_right(self.cuts, value) if type(value) is float else None
        return None if value is None else self._parts.get((type(value), value))


@dataclass(frozen=True, slots=True)
class SegmentRule:
    """Rule that gives each unit one segment: the parts of all attributes, crossed.

    A unit that is in no part of one of the attributes is in the segment "other".

    >>> attributes = SegmentAttribute("plan", ("free", "paid")), SegmentAttribute("days", cuts=(7.0,))
    >>> rule = SegmentRule(attributes, ("free, early", "free", "paid, early", "paid"))
    >>> rule.find_segment({"plan": "paid", "days": 3}), rule.find_segment({"plan": "paid"})
    ('paid, early', 'other')
    """

    attributes: tuple[SegmentAttribute, ...]
    names: tuple[str, ...]
    """Segments in the order of the crossed parts, the last attribute fastest; without "other"."""

    def __post_init__(self) -> None:
        if (problem := self._find_problem()) is not None:
            raise PolicyError(f"segments {problem}")

    def find_segment(self, attributes: Attributes) -> str:
        """Return the segment of a unit; never raises."""
        place = 0
        for attribute in self.attributes:
            part = attribute.find_part(attributes)
            if part is None:
                return OTHER_SEGMENT
            place = place * attribute.part_count + part
        return self.names[place]

    def _find_problem(self) -> str | None:
        read = [attribute.attribute for attribute in self.attributes]
        if not read or len(set(read)) < len(read):
            return f"have the attributes {read!r}; they need at least one, and each once"
        needed = math.prod(attribute.part_count for attribute in self.attributes)
        if len(self.names) != needed:
            return f"have {len(self.names)} distributions, and the parts of their attributes give {needed}"
        if len({*self.names, OTHER_SEGMENT}) <= needed:
            repeated = next(name for name in self.names if self.names.count(name) > 1 or name == OTHER_SEGMENT)
            return f"have the name {repeated!r} twice; each is used once, and {OTHER_SEGMENT!r} has the other units"
        long = next((name for name in self.names if len(name) > MAX_SEGMENT_CHARACTERS), None)
        return long and f"have a name of {len(long)} characters; {MAX_SEGMENT_CHARACTERS} are the most"


def plain_numbers(values: Iterable[float | str | bool]) -> list[float | str | bool]:
    """Return values as documents write them: numbers have no fraction if they can be integers.

    >>> plain_numbers([7.0, 7.5, "7.0", True])
    [7, 7.5, '7.0', True]
    """
    return [int(value) if type(value) is float and value.is_integer() else value for value in values]


def is_in_audience(audience: Sequence[AudienceCondition], attributes: Attributes) -> bool:
    """Return whether attributes meet all conditions."""
    return all(condition.is_met(attributes) for condition in audience)


MAX_CLUSTER_CHARACTERS = 256


def read_cluster(value: object) -> str | None:
    """Return the cluster that an attribute names, as text; None if it names none. An integer stands for its digits.

    >>> read_cluster("north"), read_cluster(7), read_cluster(""), read_cluster(True)
    ('north', '7', None, None)
    """
    plain = _read_value(value)
    if isinstance(plain, float):
        return str(int(plain)) if plain.is_integer() else None
    if not isinstance(plain, str) or not 0 < len(plain) <= MAX_CLUSTER_CHARACTERS:
        return None
    with suppress(UnicodeEncodeError):
        plain.encode()
        return plain
    return None


def _read_value(value: object) -> float | str | bool | None:
    """Return an attribute as a text, a boolean or a double; None for any other value."""
    if not isinstance(value, (str, bool, float, int)) and hasattr(value, "item"):
        with suppress(TypeError, ValueError):
            value = value.item()  # a number of numpy
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, (float, int)) and -MAX_ATTRIBUTE_NUMBER <= value <= MAX_ATTRIBUTE_NUMBER:
        return float(value)
    return None


def _find_problem(operator: str, values: tuple[float | str | bool, ...]) -> str | None:
    """Return the problem of a condition; None if it can be applied."""
    if operator not in OPERATORS:
        return f"has the operator {operator!r}; the operators are {', '.join(OPERATORS)}"
    if not values or len(set(map(type, values))) != 1 or type(values[0]) not in (str, bool, float):
        return f"has the values {list(values)!r}; it needs texts, numbers or booleans, all of one type"
    if any(isinstance(value, float) and not math.fabs(value) <= MAX_ATTRIBUTE_NUMBER for value in values):
        return f"has a number above {MAX_ATTRIBUTE_NUMBER:g}; nothing meets it"
    if operator in COMPARISONS and (len(values) != 1 or type(values[0]) is not float):
        return f"compares with {list(values)!r}; {operator} takes one number"
    return None


def _find_segment_problem(values: tuple[float | str | bool, ...], cuts: tuple[float, ...]) -> str | None:
    """Return the problem of an attribute of segments; None if it can be applied."""
    if bool(values) == bool(cuts):
        return "needs either values or cuts, at least one"
    if values:
        problem = _find_problem("in", values)
        repeats = problem is None and len(set(values)) < len(values)
        return f"has a value twice in {list(values)!r}" if repeats else problem
    if not all(type(cut) is float and math.fabs(cut) <= MAX_ATTRIBUTE_NUMBER for cut in cuts):
        return f"has the cuts {list(cuts)!r}; a cut is a number, at most {MAX_ATTRIBUTE_NUMBER:g} in size"
    return None if all(low < high for low, high in pairwise(cuts)) else f"has cuts that do not rise: {list(cuts)!r}"
