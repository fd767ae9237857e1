"""Kinds of strategic parameter: a range of reals, a range of integers, a choice among options."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import SpaceError
from pasto_sdk.policy_document import Value

LARGEST = 1e300
"""Numbers beyond this overflow when a range of them is measured."""


def plain(value: object, place: str, *parts: object) -> Value:
    """Return one value as plain Python, or refuse it; `place` is a format for `parts`, filled in only for the error.

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
        raise SpaceError(
            f"{place.format(*parts)} is {value!r} ({type(value).__name__}); a value is a number, a string or a bool"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise SpaceError(f"{place.format(*parts)} is {value!r}; a number must be finite")
    raise SpaceError(f"{place.format(*parts)} is larger than {LARGEST:g}; state the parameter in a larger unit")


def plain_column(values: Sequence[object], place: str, *parts: object) -> list[Value]:
    """Check one parameter's values as `plain` does, all at once if they are of one kind, because sets are large."""
    kinds = set(map(type, values))
    if kinds == {float}:
        array = np.array(values, dtype=float)
        if (np.abs(array) <= LARGEST).all():
            plains: list[Value] = (array + 0.0).tolist()
            return plains
    return [plain(value, place, index, *parts) for index, value in enumerate(values)]


def is_number(value: object) -> bool:
    """Return whether a plain value is a number; True and False are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_numeric(values: Iterable[Value]) -> bool:
    """Return whether every value has a place on a line: numbers, or bools counted as 0 and 1."""
    return str not in set(map(type, values))


def refuse_mixed(values: Iterable[Value], place: str) -> None:
    """Refuse True together with 1: they are equal in Python, and different for a reader."""
    kinds = set(map(type, values))
    if bool in kinds and kinds & {int, float}:
        raise SpaceError(f"{place} mixes True or False with numbers; use one or the other")


def text(value: Value) -> str:
    """Return a value as names show it: 15 digits of a number, quotes only around strings that could be misread.

    >>> text(2.0), text(0.1 + 0.2), text("fast"), text("1"), text(True)
    ('2', '0.3', 'fast', "'1'", 'True')
    """
    if isinstance(value, str):
        return repr(value) if _misreadable(value) else value
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def check_whole(value: object, name: str, *, least: int = 1) -> int:
    """Return an option that must be a whole number, such as count or limit."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= least:
        return int(value)
    raise SpaceError(
        f"{name}={value!r} must be a whole number of at least {least}; if {name!r} is meant as a parameter, put it "
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


T = TypeVar("T")

_EXACT = 2**53
"""Integers beyond this have no exact float, and constraints and features are computed in floats."""

_CELLS = 50_000_000
"""The most cells that one parameter's one-hot features may fill."""


@dataclass(frozen=True, slots=True)
class Real:
    """Real number from low to high, both included.

    >>> import pasto
    >>> pasto.Real(0, 2)
    Real(low=0.0, high=2.0)
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        low, high = plain(self.low, "Real's low"), plain(self.high, "Real's high")
        if not (is_number(low) and is_number(high) and low < high):  # type: ignore[operator]
            raise SpaceError(f"Real needs two numbers, low < high, got low={self.low!r} and high={self.high!r}")
        object.__setattr__(self, "low", float(low))
        object.__setattr__(self, "high", float(high))

    @property
    def size(self) -> int | None:
        """Return the number of values; None if they cannot be counted."""
        return None

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the least and the largest value."""
        return self.low, self.high

    def levels(self, count: int) -> tuple[Value, ...]:
        """Return evenly spaced values, both ends among them."""
        if count < 2:
            raise SpaceError(f"levels={count} cannot reach both ends of {self}; use 2 levels or more")
        spaced: list[float] = np.linspace(self.low, self.high, count).tolist()
        # fifteen digits make 0.3 of 0.30000000000000004; a narrow range far from 0 needs them all
        short = [self.low, *(float(f"{value:.15g}") for value in spaced[1:-1]), self.high]
        for levels in (short, spaced):
            if all(map(operator.lt, levels, levels[1:])):
                return tuple(levels)
        raise SpaceError(f"{self} is too narrow for {count} levels that differ; use fewer")

    def contains(self, value: Value) -> bool:
        """Return whether a plain value lies in the range."""
        return is_number(value) and self.low <= value <= self.high  # type: ignore[operator]

    def draw(self, units: FloatArray) -> NDArray[Any]:
        """Return values for numbers in [0, 1), rounded to about a millionth of the range for readable names."""
        span = self.high - self.low
        decimals = 6 - int(np.floor(np.log10(span)))
        drawn = self.low + units * span
        if abs(decimals) <= 22:  # powers of ten beyond this are not exact, and rounding would add digits
            drawn = np.round(drawn, decimals)
        return np.clip(drawn, self.low, self.high) + 0.0

    def narrow(self, low: float, high: float, slack: float) -> Parameter | None:
        """Return the part of the range between two numbers, up to rounding; None if it is empty."""
        if low <= self.low and self.high <= high:
            return self
        low, high = max(low, self.low), min(high, self.high)
        if high - low > slack:
            return Real(low, high)
        return Choice((min(max(low, self.low), self.high),)) if low - high <= slack else None

    def features(self, values: Sequence[Value]) -> FloatArray:
        """Return values scaled to [0, 1], as one column."""
        return _scaled(values, *self.bounds)


@dataclass(frozen=True, slots=True)
class Integer:
    """Whole number from low to high, both included.

    >>> import pasto
    >>> pasto.Integer(0, 10).size
    11
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        low, high = plain(self.low, "Integer's low"), plain(self.high, "Integer's high")
        if not (type(low) is int and type(high) is int and low <= high):
            raise SpaceError(f"Integer needs two ints, low <= high, got low={self.low!r} and high={self.high!r}")
        if max(abs(low), abs(high)) > _EXACT:
            raise SpaceError(f"{self} is beyond ±2**53, where whole numbers stop being exact; use Real")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def size(self) -> int | None:
        """Return the number of values."""
        return self.high - self.low + 1

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the least and the largest value."""
        return float(self.low), float(self.high)

    def levels(self, count: int) -> tuple[Value, ...]:
        """Return every value if there are at most `count`, else that many evenly spaced ones with both ends."""
        if self.high - self.low < count:
            return tuple(range(self.low, self.high + 1))
        if count < 2:
            raise SpaceError(f"levels={count} cannot reach both ends of {self}; use 2 levels or more")
        return tuple(self.low + round(step * (self.high - self.low) / (count - 1)) for step in range(count))

    def contains(self, value: Value) -> bool:
        """Return whether a plain value is a whole number in the range; 3.0 counts as 3."""
        return is_number(value) and self.low <= value <= self.high and value == int(value)  # type: ignore[operator]

    def draw(self, units: FloatArray) -> NDArray[Any]:
        """Return values for numbers in [0, 1), spread evenly over the whole numbers of the range."""
        count = self.high - self.low + 1
        return self.low + np.minimum(units * count, count - 1).astype(np.int64)

    def narrow(self, low: float, high: float, slack: float) -> Parameter | None:
        """Return the part of the range between two numbers, up to rounding; None if it is empty."""
        least, most = math.ceil(max(low - slack, self.low)), math.floor(min(high + slack, self.high))
        return Integer(least, most) if least <= most else None

    def features(self, values: Sequence[Value]) -> FloatArray:
        """Return values scaled to [0, 1], as one column; no column if there is only one value."""
        return _scaled(values, *self.bounds)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few options: strings, bools or numbers, and numbers keep their numeric meaning.

    >>> import pasto
    >>> pasto.Choice(["fast", "careful"]).options
    ('fast', 'careful')
    """

    options: Sequence[Value]

    def __post_init__(self) -> None:
        given = self.options
        if isinstance(given, (str, bytes, Mapping, set, frozenset)) or not isinstance(given, Iterable):
            raise SpaceError(f"Choice needs a list of options, got {given!r}; write Choice([...])")
        options = tuple(plain(option, "option {}", place) for place, option in enumerate(given))
        if not options:
            raise SpaceError("Choice needs at least one option, got none")
        refuse_mixed(options, "the list of options")
        distinct: set[Value] = set()
        for option in options:
            if option in distinct:
                raise SpaceError(f"{option!r} is listed twice; list each option once")
            distinct.add(option)
        object.__setattr__(self, "options", options)

    @property
    def size(self) -> int | None:
        """Return the number of options."""
        return len(self.options)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Return the least and the largest option; None if some are strings."""
        if not is_numeric(self.options):
            return None
        numbers = [float(option) for option in self.options]
        return min(numbers), max(numbers)

    def levels(self, count: int) -> tuple[Value, ...]:
        """Return every option in the given order, for any count."""
        return tuple(self.options)

    def contains(self, value: Value) -> bool:
        """Return whether a plain value is one of the options; True is not 1."""
        return any(option == value and isinstance(option, bool) == isinstance(value, bool) for option in self.options)

    def draw(self, units: FloatArray) -> NDArray[Any]:
        """Return values for numbers in [0, 1), spread evenly over the options."""
        options = np.empty(len(self.options), dtype=object)  # filled, not converted: NumPy would make 1 and "a" strings
        options[:] = self.options
        return options[(units * len(options)).astype(np.int64)]

    def narrow(self, low: float, high: float, slack: float) -> Parameter | None:
        """Return the numeric options between two numbers, up to rounding; None if there is none."""
        options = tuple(option for option in self.options if low - slack <= float(option) <= high + slack)
        return Choice(options) if options else None

    def features(self, values: Sequence[Value]) -> FloatArray:
        """Return numbers scaled to [0, 1] as one column, or one column an option if some are strings."""
        if self.bounds is not None:
            return _scaled(values, *self.bounds)
        if len(self.options) == 1:
            return np.empty((len(values), 0))
        if len(values) * len(self.options) > _CELLS:
            raise SpaceError(
                f"{len(self.options):,} different options make no features for {len(values):,} candidates; describe "
                "them by numbers, or leave that parameter out"
            )
        places = {option: place for place, option in enumerate(self.options)}
        for value in values:
            if value not in places:
                raise SpaceError(f"{value!r} is not one of the options {', '.join(map(text, self.options))}")
        features = np.zeros((len(values), len(self.options)))
        features[np.arange(len(values)), [places[value] for value in values]] = 1.0
        return features


Parameter = Real | Integer | Choice

Given = Parameter | Sequence[Value]
"""A parameter, or a shorthand: a tuple (low, high) for Real, a list for Choice."""


def read(name: str, given: object) -> Parameter:
    """Return a parameter from its short form: a tuple (low, high) is a Real, a list is a Choice."""
    try:
        match given:
            case Real() | Integer() | Choice():
                return given
            case tuple() if len(given) == 2 and all(is_number(plain(end, "a bound")) for end in given):
                return Real(*given)
            case list():
                return Choice(given)
    except SpaceError as error:
        raise SpaceError(f"parameter {name!r}: {error}") from error
    raise SpaceError(
        f"parameter {name!r} is {given!r}; write Real(low, high) or (low, high) for a range, Integer(low, high) for "
        "whole numbers, Choice([...]) or a list for options"
    )


def gather(door: str, given: Iterable[str | Mapping[str, T]], named: Mapping[str, T]) -> tuple[list[str], dict[str, T]]:
    """Return the constraints and the parameters by name among a function's arguments, in their order."""
    texts: list[str] = []
    gathered: dict[str, T] = {}
    for one in (*given, named):
        if isinstance(one, str):
            texts.append(one)
            continue
        if not isinstance(one, Mapping):
            raise SpaceError(f"{door} takes constraints as text and parameters by name, got {one!r}")
        for name, parameter in one.items():
            if not isinstance(name, str) or not name:
                raise SpaceError(f"a parameter's name is a string with something in it, got {name!r}")
            if name in gathered:
                raise SpaceError(f"parameter {name!r} is given twice, in a mapping and by name; keep one")
            gathered[name] = parameter
    if not gathered:
        raise SpaceError(f"{door} needs at least one parameter, as in {door}(alpha=...)")
    return texts, gathered


def _scaled(values: Sequence[Value], low: float, high: float) -> FloatArray:
    if low == high:
        return np.empty((len(values), 0))
    if not is_numeric(values):
        strange = next(value for value in values if isinstance(value, str))
        raise SpaceError(f"{strange!r} is not a number, as this parameter's values are")
    return ((np.array(values, dtype=float) - low) / (high - low)).reshape(-1, 1)
