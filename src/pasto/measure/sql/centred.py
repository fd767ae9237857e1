"""Sums over units around their own means: what a cell's moments are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from pasto.measure.moments import Moments


def sums_query(units: str, width: int, prelude: str = "", products: str = "{}") -> str:
    """The query for every cell's units, means, rests, clipped counts and sums of products, given a table of units.

    Products are of deviations from the cell's mean, so that a mean that dwarfs its deviation costs no digits; what
    rounding left of the mean is told as well. `products` is what to make of the sums of products, which are many.

    >>> sums_query("units", 1).splitlines()[-1]
    ') AS deviations GROUP BY arm, candidate'
    """
    places = range(width)
    centres = ", ".join(f"avg(x{i}) AS c{i}" for i in places)
    deviations = ", ".join(f"u.x{i} - c.c{i} AS d{i}, u.o{i} AS o{i}, c.c{i} AS c{i}" for i in places)
    shown = [
        *(f"min(c{i})" for i in places),
        *(f"sum(d{i})" for i in places),
        *(f"sum(o{i})" for i in places),
        products.format(", ".join(f"sum(d{i} * d{j})" for i, j in combinations_with_replacement(places, 2))),
    ]
    return f"""WITH {prelude}centres AS (
    SELECT arm, candidate, {centres} FROM {units} GROUP BY arm, candidate
)
SELECT arm, candidate, count(*), {", ".join(shown)} FROM (
    SELECT u.arm AS arm, u.candidate AS candidate, {deviations}
    FROM {units} AS u JOIN centres AS c ON u.arm = c.arm AND u.candidate = c.candidate
) AS deviations GROUP BY arm, candidate"""  # noqa: S608 -- numbered names only


def moments_from(rows: Iterable[Sequence[Any]], width: int) -> tuple[Moments, ...]:
    """What `sums_query` gave, as moments sorted by arm and candidate.

    >>> moments_from([("learner", 0, 2, 2.0, 0.0, 0, 2.0)], 1)[0].cross
    ((2.0,),)
    """
    pairs = list(combinations_with_replacement(range(width), 2))
    found = []
    for arm, candidate, units, *numbers in sorted(rows, key=lambda row: (row[0], row[1])):
        centre, rest = np.array(numbers[:width], dtype=float), np.array(numbers[width : 2 * width], dtype=float)
        cross = np.empty((width, width))
        for (i, j), product in zip(pairs, numbers[3 * width :], strict=True):
            cross[i, j] = cross[j, i] = float(product) - rest[i] * rest[j] / units
        mean = tuple((centre + rest / units).tolist())
        clipped = tuple(map(int, numbers[2 * width : 3 * width]))
        found.append(Moments(arm, int(candidate), int(units), mean, tuple(map(tuple, cross.tolist())), clipped))
    return tuple(found)
