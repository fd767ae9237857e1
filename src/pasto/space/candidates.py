"""Candidates of a study: settings with names, in an order that never changes."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from pasto.arrays import FloatArray
from pasto.data_frames import read_table
from pasto.errors import OptionError, SpaceError, StateError
from pasto.space.parameters import Choice, check_whole, plain, plain_column, refuse_mixed, text
from pasto_sdk.policy_document import Value

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame

LIMIT = 100_000
"""The most candidates that a set holds unless a larger limit is passed."""


@dataclass(frozen=True, slots=True, repr=False)
class Candidates:
    """Immutable, ordered set of named settings; build it by `from_rows`, `pasto.grid` or `pasto.sobol`.

    A candidate's name shows its values unless names are given. Values are numbers, strings or bools; 1 and 1.0 are
    the same value, True and 1 cannot meet in one parameter.

    >>> import pasto
    >>> candidates = pasto.Candidates.from_rows([{"like": 1, "share": 0.5}, {"like": 2, "share": 0.5}])
    >>> candidates
    <2 candidates: like=1,share=0.5; like=2,share=0.5>
    >>> candidates[1]
    {'like': 2, 'share': 0.5}
    >>> candidates["like=1,share=0.5"]
    {'like': 1, 'share': 0.5}
    >>> candidates.find({"like": 2.0, "share": 0.5})
    1
    """

    parameters: tuple[str, ...]
    names: tuple[str, ...]
    table: tuple[tuple[Value, ...], ...]
    """The values: a row a candidate, in the order of the parameters."""
    _by_name: dict[str, int] = field(init=False, compare=False)
    _by_values: dict[tuple[Value, ...], int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if not self.table:
            raise SpaceError("there are no candidates; give at least one")
        if not self.parameters:
            raise SpaceError("candidates need at least one parameter, got none")
        for parameter in self.parameters:
            if not isinstance(parameter, str) or not parameter:
                raise SpaceError(f"a parameter's name is a string with something in it, got {parameter!r}")
        if len(set(self.parameters)) < len(self.parameters):
            raise SpaceError(f"a parameter is named twice among {', '.join(self.parameters)}; name each once")
        if len(self.names) != len(self.table):
            raise SpaceError(f"{len(self.names):,} names came for {len(self.table):,} candidates; give one name each")
        for parameter, column in zip(self.parameters, zip(*self.table, strict=True), strict=True):
            refuse_mixed(column, f"parameter {parameter!r}")
        by_values: dict[tuple[Value, ...], int] = {}
        by_name: dict[str, int] = {}
        for index, (name, row) in enumerate(zip(self.names, self.table, strict=True)):
            if not isinstance(name, str) or not name:
                raise SpaceError(f"candidate {index} is named {name!r}; a name is a string with something in it")
            if (first := by_values.setdefault(row, index)) != index:
                raise SpaceError(
                    f"candidates {first} ({self.names[first]!r}) and {index} ({name!r}) have the same values "
                    f"{_name_row(self.parameters, row)}; list each setting once"
                )
            if (first := by_name.setdefault(name, index)) != index:
                raise SpaceError(
                    f"candidates {first} {self.table[first]} and {index} {row} are both named {name!r}; give each a "
                    "name of its own (default names show 15 digits of a number)"
                )
        object.__setattr__(self, "_by_values", by_values)
        object.__setattr__(self, "_by_name", by_name)

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[Mapping[str, object]] | IntoDataFrame,
        names: Iterable[str] | None = None,
        *,
        limit: int = LIMIT,
    ) -> Candidates:
        """Return candidates from a list of dicts with the same keys, or from a data frame, in that order.

        Each column of a data frame is a parameter. An index of text holds the names, and so does the column that
        names= names.

        >>> import pasto
        >>> pasto.Candidates.from_rows([{"ranker": "old"}, {"ranker": "new"}], names=["control", "trial"]).names
        ('control', 'trial')
        """
        return cls._built((), (), (), rows, names, limit)

    def add(
        self,
        rows: Iterable[Mapping[str, object]] | IntoDataFrame,
        names: Iterable[str] | None = None,
        *,
        limit: int = LIMIT,
    ) -> Candidates:
        """Return these candidates, then more; the first ones keep their index and name.

        >>> import pasto
        >>> pasto.grid(alpha=[0, 1]).add([{"alpha": 0.5}]).names
        ('alpha=0', 'alpha=1', 'alpha=0.5')
        """
        return self._built(self.parameters, self.names, self.table, rows, names, limit)

    @classmethod
    def _built(
        cls,
        parameters: tuple[str, ...],
        old_names: tuple[str, ...],
        old_table: tuple[tuple[Value, ...], ...],
        rows: Iterable[Mapping[str, object]] | IntoDataFrame,
        names: Iterable[str] | None,
        limit: int,
    ) -> Candidates:
        rows, names = _from_frame(rows, names)
        if isinstance(rows, (str, Mapping)) or not isinstance(rows, Iterable):
            raise SpaceError(
                f"rows must be a list of dicts or a data frame, a row for each candidate, got {type(rows).__name__}"
            )
        free = check_whole(limit, "limit") - len(old_table)
        taken = list(islice(rows, max(free, 0) + 1))
        if len(taken) > free:
            known = f"{len(old_table) + len(rows):,}" if isinstance(rows, Sized) else f"more than {limit:,}"
            raise SpaceError(f"{known} candidates are more than the limit of {limit:,}; give fewer, or raise limit=")
        parameters = parameters or _parameters(taken)
        for index, row in enumerate(taken):
            fit(parameters, row, "row {}", index)
        columns = [plain_column([row[name] for row in taken], "row {}: {!r}", name) for name in parameters]
        table = list(zip(*columns, strict=True))
        if isinstance(names, str):
            raise SpaceError(f"names must be a list of names, one for each candidate, got the string {names!r}")
        new_names = default_names(parameters, table) if names is None else tuple(names)
        if len(new_names) != len(table):
            raise SpaceError(f"{len(new_names):,} names came for {len(table):,} candidates; give one name each")
        return cls(parameters, (*old_names, *new_names), (*old_table, *table))

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[dict[str, Value]]:
        return (dict(zip(self.parameters, row, strict=True)) for row in self.table)

    def __getitem__(self, which: SupportsIndex | str) -> dict[str, Value]:
        return dict(zip(self.parameters, self.table[self.index(which)], strict=True))

    @property
    def rows(self) -> tuple[dict[str, Value], ...]:
        """Values of every candidate, as new dicts."""
        return tuple(self)

    def index(self, which: SupportsIndex | str) -> int:
        """Return the index of a candidate by its name; a number is checked, and counted from the end if negative.

        >>> import pasto
        >>> pasto.grid(alpha=[0, 1, 2]).index("alpha=2")
        2
        """
        if isinstance(which, str):
            if which not in self._by_name:
                raise OptionError(f"no candidate is named {which!r}; there are {self!r}")
            return self._by_name[which]
        try:
            place = operator.index(which)
        except TypeError:
            raise OptionError(f"a candidate is named by its index or its name, got {which!r}") from None
        if isinstance(which, bool) or not -len(self) <= place < len(self):
            raise OptionError(f"there is no candidate {which!r}; the {len(self):,} candidates count from 0")
        return place % len(self)

    def find(self, values: Mapping[str, object]) -> int:
        """Return the index of the candidate with these values.

        >>> import pasto
        >>> pasto.grid(like=[0, 1], share=[0, 1]).find({"share": 1, "like": 0})
        1
        """
        row = ordered(self.parameters, values, "the setting to find")
        place = self._by_values.get(row)
        # a bool equals 0 or 1 in Python, so that a row of the other kind would be found
        if place is not None and all(map(_are_alike, row, self.table[place])):
            return place
        for parameter, value, column in zip(self.parameters, row, zip(*self.table, strict=True), strict=True):
            levels = dict.fromkeys(column)
            if value not in levels or not any(_are_alike(value, level) for level in levels if level == value):
                listed = ", ".join(map(text, islice(levels, 8))) + (", …" if len(levels) > 8 else "")
                raise OptionError(f"no candidate has {parameter}={text(value)}; it takes {listed}")
        raise OptionError(
            f"no candidate has {_name_row(self.parameters, row)} together; add it first, by add([{{...}}])"
        )

    def features(self) -> FloatArray:
        """Return points (candidates, columns): numbers scaled to [0, 1], strings one-hot, constants left out.

        >>> import pasto
        >>> pasto.grid(alpha=[1, 3], mode=["a", "b"], fixed=[7]).features()
        array([[0., 1., 0.],
               [0., 0., 1.],
               [1., 1., 0.],
               [1., 0., 1.]])
        """
        columns = [Choice(tuple(dict.fromkeys(column))).features(column) for column in zip(*self.table, strict=True)]
        return np.hstack(columns)

    def to_saved(self) -> dict[str, Any]:
        """Return the candidates as a plain JSON value.

        >>> import pasto
        >>> pasto.grid(alpha=[0, 1]).to_saved()
        {'parameters': ['alpha'], 'names': ['alpha=0', 'alpha=1'], 'values': [[0], [1]]}
        """
        return {
            "parameters": list(self.parameters),
            "names": list(self.names),
            "values": [list(row) for row in self.table],
        }

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> Candidates:
        """Read back what `to_saved` wrote.

        >>> import pasto
        >>> candidates = pasto.grid(alpha=[0, 1])
        >>> pasto.Candidates.from_saved(candidates.to_saved()) == candidates
        True
        """
        try:
            parameters = tuple(saved["parameters"])
            table = tuple(tuple(plain(value, "a value") for value in row) for row in saved["values"])
            return cls(parameters, tuple(saved["names"]), table)
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"the saved candidates cannot be read: {error}") from error

    def __repr__(self) -> str:
        listed = "; ".join(self.names[:4]) + ("; …" if len(self) > 4 else "")
        return f"<{len(self):,} candidate{'s' if len(self) > 1 else ''}: {listed}>"


def fit(parameters: Sequence[str], row: object, place: str, *parts: object) -> None:
    """Refuse a row that is not a mapping, or whose names are not the parameters."""
    if not isinstance(row, Mapping):
        raise SpaceError(f"{place.format(*parts)} is {row!r}; write a dict of values such as {{'alpha': 0.5}}")
    if len(row) != len(parameters) or any([name not in row for name in parameters]):  # noqa: C419 -- twice as fast
        missing = [repr(name) for name in parameters if name not in row]
        strange = [repr(name) for name in row if name not in parameters]
        faults = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has unknown {', '.join(strange)}"] * bool(strange)
        raise SpaceError(f"{place.format(*parts)} {' and '.join(faults)}; the parameters are {', '.join(parameters)}")


def ordered(parameters: Sequence[str], row: Mapping[str, object], place: str) -> tuple[Value, ...]:
    """Return one row's plain values in the parameters' order."""
    fit(parameters, row, place)
    return tuple(plain(row[name], "{}: {!r}", place, name) for name in parameters)


def default_names(parameters: Sequence[str], table: Iterable[tuple[Value, ...]]) -> tuple[str, ...]:
    """Return a name for each row, made of its values."""
    return tuple([_name_row(parameters, row) for row in table])


def _from_frame(rows: Any, names: Iterable[str] | None) -> tuple[Any, Iterable[str] | None]:
    """Return a data frame as dicts with the names that it holds; anything else as it is."""
    table = read_table(rows, SpaceError)
    if table is None:
        return rows, names
    columns = dict(table.columns)
    if names is None:
        names = table.labels
    elif isinstance(names, str):
        names = table.row_names(column := names, SpaceError).names
        del columns[column]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)], names


def _parameters(rows: Sequence[object]) -> tuple[str, ...]:
    """Return the first row's keys, which every other row must have, too."""
    if not rows or not isinstance(rows[0], Mapping):
        return ()
    if not rows[0] or not all(isinstance(name, str) for name in rows[0]):
        raise SpaceError(f"row 0 is {rows[0]!r}; it needs at least one parameter, named by a string")
    return tuple(rows[0])


def _name_row(parameters: Sequence[str], row: Sequence[Value]) -> str:
    return ",".join([f"{parameter}={text(value)}" for parameter, value in zip(parameters, row, strict=True)])


def _are_alike(left: Value, right: Value) -> bool:
    return isinstance(left, bool) == isinstance(right, bool)
