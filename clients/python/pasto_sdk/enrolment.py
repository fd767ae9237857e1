"""Enrolment: the units that take part in a study, by slices of the hash and by conditions on attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
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


def is_in_audience(audience: Sequence[AudienceCondition], attributes: Attributes) -> bool:
    """Return whether attributes meet all conditions."""
    return all(condition.is_met(attributes) for condition in audience)


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
