"""What a parameter's value may be, and how it reads inside a name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from pasto.errors import BadSpace
from pasto.records import Value

LARGEST = 1e300
"""Numbers beyond this overflow when a range of them is measured."""


def plain(value: object, place: str, *parts: object) -> Value:
    """Check one value and make it plain Python; `place` is a format for `parts`, filled in only to complain.

    Adding 0.0 turns −0.0 into 0.0, so that one value has one name.

    >>> import numpy as np
    >>> plain(np.float64(0.5), "alpha")
    0.5
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if abs(value) <= LARGEST:
            return int(value)
    elif isinstance(value, float):
        if abs(value) <= LARGEST:
            return float(value) + 0.0
    else:
        raise BadSpace(
            f"{place.format(*parts)} is {value!r} ({type(value).__name__}); a value is a number, a string or a bool"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise BadSpace(f"{place.format(*parts)} is {value!r}; a number must be finite")
    raise BadSpace(f"{place.format(*parts)} is larger than {LARGEST:g}; state the parameter in a larger unit")


def plain_column(values: Sequence[object], place: str, *parts: object) -> list[Value]:
    """Check one parameter's values as `plain` does, all at once where they are of one kind; sets are large."""
    kinds = set(map(type, values))
    if kinds == {float}:
        array = np.array(values, dtype=float)
        if (np.abs(array) <= LARGEST).all():
            plains: list[Value] = (array + 0.0).tolist()
            return plains
    return [plain(value, place, index, *parts) for index, value in enumerate(values)]


def is_number(value: object) -> bool:
    """Whether a plain value is a number; True and False are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_numeric(values: Iterable[Value]) -> bool:
    """Whether every value has a place on a line: numbers, or bools counted as 0 and 1."""
    return str not in set(map(type, values))


def refuse_mixed(values: Iterable[Value], place: str) -> None:
    """Refuse True beside 1: Python calls them equal, a reader does not."""
    kinds = set(map(type, values))
    if bool in kinds and kinds & {int, float}:
        raise BadSpace(f"{place} mixes True or False with numbers; use one or the other")


def text(value: Value) -> str:
    """A value as names show it: 15 digits of a number, quotes only around strings that could be misread.

    >>> text(2.0), text(0.1 + 0.2), text("fast"), text("1"), text(True)
    ('2', '0.3', 'fast', "'1'", 'True')
    """
    if isinstance(value, str):
        return repr(value) if _misreadable(value) else value
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def whole(value: object, name: str, *, least: int = 1) -> int:
    """Check an option that must be a whole number, such as count or limit."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= least:
        return int(value)
    raise BadSpace(
        f"{name}={value!r} must be a whole number of at least {least}; where {name!r} is meant as a parameter, put it "
        f"in a mapping: {{{name!r}: ...}}"
    )


def _misreadable(value: str) -> bool:
    if not value.isprintable() or value != value.strip() or value in {"", "True", "False"}:
        return True
    if any(mark in value for mark in ",='\""):
        return True
    try:
        float(value)
    except ValueError:
        return False
    return True
