"""Candidate growth: the search of a continuous space for points that would improve the blend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.blend import Blend
from pasto.optimize.column_generation import ColumnProspect
from pasto.optimize.learners import Learner, LearningProblem
from pasto.optimize.learners.certificate import find_single
from pasto.space import Candidates, Choice, Integer, Space
from pasto.space.sampling import feasible
from pasto_sdk.policy_document import Value

Row = dict[str, Value]

MAX_GROWN_CANDIDATES = 200
"""Candidates of a continuous space, after which no more are added."""
RANDOM_POINTS = 256
"""Points drawn all over the space at the start of a search."""
LEADING_CANDIDATES = 5
"""Candidates with the largest shares that a search starts from too."""
SEARCH_STEPS = (0.2, 0.1, 0.05, 0.02, 0.01)
"""Distance of new points from the best ones so far, as a part of each range, pass after pass."""
BEST_POINTS = 4
"""Points that each pass of a search continues from."""
NEIGHBOURS_PER_POINT = 16
SAME_POINT_DISTANCE = 0.01
"""As a part of each range: settings that are closer are one setting."""
SAME_REGION_DISTANCE = 0.1
"""As a part of each range: settings that are closer lie in one region, and one of them may stand for all."""


def choose_first_points(space: Space, seed: int) -> Candidates:
    """Return a spread of points, enough to learn a length scale in every dimension, or all points of a small space.

    >>> import pasto
    >>> small = pasto.Space(mode=["fast", "slow"])
    >>> len(choose_first_points(pasto.Space(a=(0, 1)), 0)), len(choose_first_points(small, 0))
    (10, 2)
    """
    count = max(10, 4 * len(space.parameters) + 4)
    sizes = [parameter.size for parameter in space.parameters.values()]
    if all(size is not None and size <= count for size in sizes) and len(grid := space.grid(count)) <= count:
        return grid
    return space.sobol(count, seed=seed % 2**32)


def find_new_points(
    space: Space,
    prospects: Iterable[ColumnProspect],
    candidates: Candidates,
    shares: Sequence[float],
    rng: np.random.Generator,
) -> list[Row]:
    """Return the best point for each prospect, if it would enter the blend and is not a candidate already.

    `shares` are the policy's shares of the candidates: a search starts from the largest ones too.
    """
    order = np.argsort(-np.array(shares), kind="stable")
    leading = [candidates[int(k)] for k in order[:LEADING_CANDIDATES]]
    points: list[Row] = []
    for prospect in prospects:
        row, worth = find_best_point(space, prospect.worth, leading, rng)
        if worth > prospect.bar and is_distinct(space, row, [*candidates, *points]):
            points.append(row)
    return points


def find_best_point(
    space: Space,
    worth: Callable[[FloatArray], FloatArray],
    leading: Iterable[Mapping[str, Value]],
    rng: np.random.Generator,
) -> tuple[Row, float]:
    """Return the point that is worth most, and its worth: search the whole space, then around the best points.

    `worth` takes features (points, columns), as `Space.features` makes them.

    >>> import numpy as np, pasto
    >>> space = pasto.Space("a + b <= 1", a=(0, 1), b=(0, 1))
    >>> def worth(points): return -((points - (0.3, 0.6)) ** 2).sum(axis=1)
    >>> row, _ = find_best_point(space, worth, [], np.random.default_rng(0))
    >>> round(row["a"], 1), round(row["b"], 1)
    (0.3, 0.6)
    """
    rows = [*space.sample(RANDOM_POINTS, rng), *(dict(row) for row in leading)]
    worths = worth(space.features(rows))
    for step in SEARCH_STEPS:
        top = np.argsort(-worths, kind="stable")[:BEST_POINTS]
        near = _draw_neighbours(space, [rows[index] for index in top], step, rng)
        rows, worths = [rows[index] for index in top] + near, worths[top]
        if near:
            worths = np.concatenate([worths, worth(space.features(near))])
    best = int(np.argmax(worths))
    return rows[best], float(worths[best])


def is_distinct(space: Space, row: Mapping[str, Value], others: Sequence[Mapping[str, Value]]) -> bool:
    """Return whether a setting differs from all others by more than a hundredth of some range, or in a choice.

    >>> import pasto
    >>> is_distinct(pasto.Space(a=(0, 1)), {"a": 0.504}, [{"a": 0.5}, {"a": 0.8}])
    False
    """
    features = space.features([row, *others])
    return bool((np.abs(features[1:] - features[0]).max(axis=1) > SAME_POINT_DISTANCE).all())


def find_region_leaders(space: Space, rows: Sequence[Mapping[str, Value]]) -> list[int]:
    """Return the index of the first row of each region: the others lie within a tenth of every range of it.

    >>> import pasto
    >>> find_region_leaders(pasto.Space(a=(0, 1)), [{"a": 0.25}, {"a": 0.8}, {"a": 0.3}])
    [0, 1]
    """
    features = space.features(rows)
    leaders: list[int] = []
    for index, point in enumerate(features):
        if (np.abs(features[leaders] - point).max(axis=1, initial=0.0) > SAME_REGION_DISTANCE).all():
            leaders.append(index)
    return leaders


def merge_neighbours(
    space: Space, candidates: Candidates, learner: Learner[Any], problem: LearningProblem, state: Any, answer: Blend
) -> Blend:
    """Return the answer with one point in each region of a continuous space, if that is nearly as good.

    A robust answer spreads over neighbours to average out the uncertainty of each.
    """
    support = sorted(answer.support, key=lambda k: -answer.probabilities[k])
    leaders = {support[place] for place in find_region_leaders(space, [candidates[k] for k in support])}
    if len(leaders) == len(support) or answer.outlook is None:
        return answer
    leaders |= set() if problem.baseline is None else {problem.baseline}
    merged: Blend = learner.answer(replace(problem, retired=frozenset(range(len(candidates))) - leaders), state)
    certified = merged.certificate is not None and merged.certificate.certified
    worth = answer.outlook.worth
    if (certified or not answer.feasible) and merged.value >= answer.value - 10.0 * worth:
        return replace(merged, outlook=replace(answer.outlook, equal_single=find_single(merged, worth)))
    return answer


def _draw_neighbours(space: Space, rows: Sequence[Row], step: float, rng: np.random.Generator) -> list[Row]:
    """Return feasible points around rows; about two parameters move at a time, and more if the step is wide."""
    parameters = space.parameters
    units = np.repeat([_to_unit_cube(space, row) for row in rows], NEIGHBOURS_PER_POINT, axis=0)
    moves = step * rng.standard_normal(units.shape)
    anywhere = rng.random(units.shape)
    for axis, parameter in enumerate(parameters.values()):
        if isinstance(parameter, Choice):
            moves[:, axis] = np.where(rng.random(len(units)) < 0.2, anywhere[:, axis] - units[:, axis], 0.0)
        elif isinstance(parameter, Integer):  # at least one value further, if it moves at all
            width = 1.0 / (parameter.high - parameter.low + 1)
            moves[:, axis] = np.sign(moves[:, axis]) * np.maximum(np.abs(moves[:, axis]), width)
    moves *= rng.random(units.shape) < min(1.0, 2.0 / len(parameters))
    points = feasible(parameters, space.constraints, np.clip(units + moves, 0.0, 1.0 - 1e-12))
    return [dict(zip(parameters, point, strict=True)) for point in points]


def _to_unit_cube(space: Space, row: Mapping[str, Value]) -> list[float]:
    """Return the point of the unit cube that a row is drawn from."""
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
