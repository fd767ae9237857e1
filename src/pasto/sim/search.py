"""The highest point of a known function over a space, by numerical optimisation from many starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from pasto.objective import Array
from pasto.records import Value
from pasto.space import Real, Space

Row = dict[str, Value]
Function = Callable[[Mapping[str, NDArray[np.generic]]], Array]
"""From points, an array a parameter, to their values, (points,)."""
LOOKS = 1024
"""Random points, the best of which are the starts."""


def highest(space: Space, function: Function, starts: int, rng: np.random.Generator) -> tuple[Row, float]:
    """The best of several ascents: reals by gradients, all others value by value, in turns until neither helps.

    >>> import numpy as np, pasto
    >>> space = pasto.Space(a=(0, 1), depth=pasto.Integer(1, 5))
    >>> hill = lambda at: -((at["a"] - 0.3) ** 2) - (at["depth"] - 4) ** 2
    >>> row, value = highest(space, hill, 2, np.random.default_rng(0))
    >>> round(row["a"], 6), row["depth"], abs(round(value, 9))
    (0.3, 4, 0.0)
    """
    looked = space.sample(LOOKS, rng)
    order = np.argsort(-_values(function, looked), kind="stable")[:starts]
    ends = [_ascended(space, function, looked[place]) for place in order]
    return max(ends, key=lambda end: end[1])


def _ascended(space: Space, function: Function, row: Row) -> tuple[Row, float]:
    value = float(_values(function, [row])[0])
    while True:
        moved = _climbed(space, function, row)
        for name, parameter in space.parameters.items():
            if not isinstance(parameter, Real):
                others = [{**moved, name: option} for option in parameter.levels(10_000)]
                moved = others[int(np.argmax(_values(function, others)))]
        reached = float(_values(function, [moved])[0])
        if reached <= value + 1e-12:
            return row, value
        row, value = moved, reached


def _climbed(space: Space, function: Function, row: Row) -> Row:
    """Along the reals, the others as they are."""
    reals = {name: parameter for name, parameter in space.parameters.items() if isinstance(parameter, Real)}
    if not reals:
        return row

    def at(point: Array) -> Row:
        return {**row, **dict(zip(reals, point.tolist(), strict=True))}

    def depth(point: Array) -> float:
        return -float(_values(function, [at(point)])[0])

    found = minimize(
        depth,
        np.array([float(row[name]) for name in reals]),
        bounds=[parameter.bounds for parameter in reals.values()],
        tol=1e-13,
    )
    return at(found.x)


def _values(function: Function, rows: list[Row]) -> Array:
    return function({name: np.array([row[name] for row in rows]) for name in rows[0]})
