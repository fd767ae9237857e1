"""Sampling of a space: its points from points of the unit cube, without those that break a constraint."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import SpaceError
from pasto.space.constraints import Constraint
from pasto.space.parameters import Choice, Parameter, Real
from pasto.space.product_grid import combinations
from pasto_sdk.policy_document import Value

BLOCK = 1 << 16
"""The most points drawn at once; a power of two, as Sobol's sequence wants."""
_EFFORT = 1 << 20
_EFFORT_A_POINT = 32
_ROUNDS = 20
_LISTED = 100_000


def effort(count: int) -> int:
    """Return the number of points that may be drawn to find this many."""
    return max(_EFFORT, _EFFORT_A_POINT * count)


def tighten(parameters: Mapping[str, Parameter], constraints: Sequence[Constraint]) -> dict[str, Parameter]:
    """Return the smallest box that each constraint by itself leaves, so that fewer draws are lost."""
    box = dict(parameters)
    for _ in range(_ROUNDS):
        before = dict(box)
        for constraint in constraints:
            box |= _narrowed(box, constraint)
        if box == before:
            break
    return box


def feasible(
    box: Mapping[str, Parameter], constraints: Sequence[Constraint], units: FloatArray
) -> Iterator[tuple[Value, ...]]:
    """Return the rows of points of the unit cube, (n, parameters), without those that break a constraint."""
    columns = {name: parameter.draw(units[:, axis]) for axis, (name, parameter) in enumerate(box.items())}
    keep = np.ones(len(units), dtype=bool)
    for constraint in constraints:
        keep &= constraint.holds({name: columns[name].astype(float) for name in constraint.weights})
    return zip(*(column[keep].tolist() for column in columns.values()), strict=True)


def refuse_thin(box: Mapping[str, Parameter], constraints: Sequence[Constraint]) -> None:
    """Refuse an equality among reals, which drawing points can never meet."""
    for constraint in constraints:
        real = [name for name in constraint.weights if isinstance(box[name], Real)]
        if constraint.low == constraint.high and real:
            raise SpaceError(
                f"constraint {constraint.text!r} asks for equality, which drawn points of the real {real[0]!r} never "
                "meet exactly; leave that parameter out and compute it from the others, or use Integer, or grid(...)"
            )


def too_rare(constraints: Sequence[Constraint], count: int, found: int, drawn: int) -> SpaceError:
    """Return the error that too few draws met the constraints."""
    return SpaceError(
        f"{count:,} points were asked for, and {drawn:,} draws found {found:,} new ones that meet "
        f"{', '.join(repr(constraint.text) for constraint in constraints) or 'the ranges'}; narrow the parameters' "
        "ranges to where the constraints hold, ask for fewer, or use grid, which searches instead of drawing"
    )


def counted(box: Mapping[str, Parameter], constraints: Sequence[Constraint], enough: int) -> float:
    """Return the number of points of a space: exact if below `enough` and countable, else an upper bound."""
    sizes = [math.inf if parameter.size is None else parameter.size for parameter in box.values()]
    if max(sizes) > _LISTED:
        return math.prod(sizes)
    levels = {name: Choice(parameter.levels(_LISTED)) for name, parameter in box.items()}
    there = 0
    try:
        for block in combinations(levels, constraints):
            there += len(block)
            if there >= enough:
                break
    except SpaceError:  # the search gave up
        return math.prod(sizes)
    return there


def _narrowed(box: Mapping[str, Parameter], constraint: Constraint) -> dict[str, Parameter]:
    """Return the part of each parameter that one constraint leaves, with the others at their best."""
    bounds = {name: limits for name in constraint.weights if (limits := box[name].bounds) is not None}
    least, most, slack = constraint.reach(bounds)
    left = {}
    for name, weight in constraint.weights.items():
        own = sorted(weight * end for end in bounds[name])
        ends = (constraint.low - (most - own[1])) / weight, (constraint.high - (least - own[0])) / weight
        narrowed = box[name].narrow(min(ends), max(ends), slack / abs(weight))
        if narrowed is None:
            raise SpaceError(f"the constraints leave no value for {name!r}: {constraint.text!r} rules out the last")
        left[name] = narrowed
    return left
