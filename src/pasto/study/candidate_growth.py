"""New candidates from a continuous space: the search for a point that would improve the blend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from pasto.arrays import FloatArray
from pasto.records import Value
from pasto.space import Candidates, Choice, Integer, Space
from pasto.space.sampling import feasible

Row = dict[str, Value]
ANYWHERE = 256
"""Points looked at all over the space."""
LEADING = 5
"""Candidates of the policy that are looked around first."""
STEPS = (0.2, 0.1, 0.05, 0.02, 0.01)
"""How far, as a part of each range, one look after another goes around the best points so far."""
BEST = 4
"""Points that each look goes around."""
AROUND = 16
"""Neighbours looked at around each."""
NEAREST = 0.01
"""Of every range: settings closer than that are one setting."""
PLACE = 0.1
"""Of every range: settings closer than that lie in one place, and one of them may stand for all."""


def first_points(space: Space, seed: int) -> Candidates:
    """The candidates to begin with: a spread with enough points to learn lengths in every dimension, or all there are.

    >>> import pasto
    >>> len(first_points(pasto.Space(a=(0, 1)), 0)), len(first_points(pasto.Space(mode=["fast", "slow"]), 0))
    (10, 2)
    """
    count = max(10, 4 * len(space.parameters) + 4)
    sizes = [parameter.size for parameter in space.parameters.values()]
    if all(size is not None and size <= count for size in sizes) and len(every := space.grid(count)) <= count:
        return every
    return space.sobol(count, seed=seed % 2**32)


def best_point(
    space: Space,
    worth: Callable[[FloatArray], FloatArray],
    leading: Iterable[Mapping[str, Value]],
    rng: np.random.Generator,
) -> tuple[Row, float]:
    """The point worth most, and what: looks all over the space, then closer and closer around the best so far.

    `worth` takes features (points, columns), as `Space.features` makes them.

    >>> import numpy as np, pasto
    >>> space = pasto.Space("a + b <= 1", a=(0, 1), b=(0, 1))
    >>> row, worth = best_point(space, lambda at: -((at - (0.3, 0.6)) ** 2).sum(axis=1), [], np.random.default_rng(0))
    >>> round(row["a"], 1), round(row["b"], 1)
    (0.3, 0.6)
    """
    rows = [*space.sample(ANYWHERE, rng), *(dict(row) for row in leading)]
    worths = worth(space.features(rows))
    for step in STEPS:
        top = np.argsort(-worths, kind="stable")[:BEST]
        near = _neighbours(space, [rows[place] for place in top], step, rng)
        rows, worths = [rows[place] for place in top] + near, worths[top]
        if near:
            worths = np.concatenate([worths, worth(space.features(near))])
    place = int(np.argmax(worths))
    return rows[place], float(worths[place])


def apart(space: Space, row: Mapping[str, Value], others: Sequence[Mapping[str, Value]]) -> bool:
    """Whether a setting differs from all others by more than a hundredth of some range, or in a choice.

    >>> import pasto
    >>> apart(pasto.Space(a=(0, 1)), {"a": 0.504}, [{"a": 0.5}, {"a": 0.8}])
    False
    """
    features = space.features([row, *others])
    return bool((np.abs(features[1:] - features[0]).max(axis=1) > NEAREST).all())


def leaders(space: Space, rows: Sequence[Mapping[str, Value]]) -> list[int]:
    """Which rows stand for their place: each the first of those that lie within a tenth of every range of it.

    >>> import pasto
    >>> leaders(pasto.Space(a=(0, 1)), [{"a": 0.25}, {"a": 0.8}, {"a": 0.3}])
    [0, 1]
    """
    features = space.features(rows)
    kept: list[int] = []
    for place, point in enumerate(features):
        if (np.abs(features[kept] - point).max(axis=1, initial=0.0) > PLACE).all():
            kept.append(place)
    return kept


def _neighbours(space: Space, rows: Sequence[Row], step: float, rng: np.random.Generator) -> list[Row]:
    """Feasible points around rows: about two parameters moved at a time, or more where the step is wide."""
    parameters = space.parameters
    units = np.repeat([_units(space, row) for row in rows], AROUND, axis=0)
    moves = step * rng.standard_normal(units.shape)
    anywhere = rng.random(units.shape)
    for axis, parameter in enumerate(parameters.values()):
        if isinstance(parameter, Choice):
            moves[:, axis] = np.where(rng.random(len(units)) < 0.2, anywhere[:, axis] - units[:, axis], 0.0)
        elif isinstance(parameter, Integer):  # one value at least, where it moves at all
            one = 1.0 / (parameter.high - parameter.low + 1)
            moves[:, axis] = np.sign(moves[:, axis]) * np.maximum(np.abs(moves[:, axis]), one)
    moves *= rng.random(units.shape) < min(1.0, 2.0 / len(parameters))
    found = feasible(parameters, space.constraints, np.clip(units + moves, 0.0, 1.0 - 1e-12))
    return [dict(zip(parameters, row, strict=True)) for row in found]


def _units(space: Space, row: Mapping[str, Value]) -> list[float]:
    """The point of the unit cube that a row is drawn from."""
    units = []
    for name, parameter in space.parameters.items():
        value = row[name]
        if isinstance(parameter, Choice):
            units.append((parameter.options.index(value) + 0.5) / len(parameter.options))
        elif isinstance(parameter, Integer):
            units.append((int(value) - parameter.low + 0.5) / (parameter.high - parameter.low + 1))
        else:
            units.append((float(value) - parameter.low) / (parameter.high - parameter.low))
    return units
