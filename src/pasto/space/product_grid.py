"""Grid of all combinations of levels that meet the constraints, found without building the full product."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import SpaceError
from pasto.space.candidates import LIMIT, Candidates, default_names
from pasto.space.constraints import Constraint
from pasto.space.parameters import Choice, Integer, Real, check_whole, gather
from pasto_sdk.policy_document import Value

_CELLS = 1 << 16
"""How many combinations are tried at once."""
_EFFORT = 200_000_000
"""How many are tried in all before the search gives up."""


def grid(*given: str | Mapping[str, Iterable[Value]], limit: int = LIMIT, **levels: Iterable[Value]) -> Candidates:
    """Return every combination of the levels that meets the constraints, the last parameter changing fastest.

    Levels are any ordered values: a list, a tuple, a range, a NumPy array. Constraints are linear and come first, as
    text. Parameters whose names are not keywords (or are `limit`) go in a mapping, which also comes first.

    >>> import pasto
    >>> pasto.grid(like_weight=[0, 1, 2], share_weight=[0, 1, 2])
    <9 candidates: like_weight=0,share_weight=0; like_weight=0,share_weight=1; like_weight=0,share_weight=2; ...; …>
    >>> quotas = pasto.grid("search + social + fresh <= 100", search=range(0, 101, 10), social=[0, 50], fresh=[0, 50])
    >>> len(quotas)
    24
    >>> pasto.grid({"like weight": [0, 1]}, "`like weight` + b == 1", b=[0, 1]).names
    ('like weight=0,b=1', 'like weight=1,b=0')
    """
    texts, named = gather("grid", given, levels)
    limit = check_whole(limit, "limit")
    return product({name: _levels(name, values, limit) for name, values in named.items()}, texts, limit)


def product(levels: Mapping[str, Choice], texts: Iterable[str], limit: int) -> Candidates:
    """Return the candidates of a grid whose levels are checked."""
    bounds = {name: choice.bounds for name, choice in levels.items()}
    constraints = [Constraint.parse(text, bounds) for text in texts]
    full = math.prod(len(choice.options) for choice in levels.values())
    if not constraints and full > limit:
        raise SpaceError(
            f"this grid has {full:,} candidates, more than the limit of {limit:,}; use fewer levels, add a "
            "constraint, or raise limit="
        )
    found, blocks = 0, []
    for block in combinations(levels, constraints):
        blocks.append(block)
        found += len(block)
        if found > limit:
            raise SpaceError(
                f"more than {limit:,} candidates of this grid's {full:,} meet the constraints, and {limit:,} is the "
                "limit; use fewer levels, tighten a constraint, or raise limit="
            )
    if not found:
        raise SpaceError(
            f"no combination of the levels meets {', '.join(repr(constraint.text) for constraint in constraints)}; add "
            "levels or widen a constraint"
        )
    picks = np.vstack(blocks)
    columns = [
        [choice.options[place] for place in picks[:, axis].tolist()] for axis, choice in enumerate(levels.values())
    ]
    table = tuple(zip(*columns, strict=True))
    return Candidates(tuple(levels), default_names(tuple(levels), table), table)


def combinations(levels: Mapping[str, Choice], constraints: Sequence[Constraint]) -> Iterator[NDArray[np.int64]]:
    """Yield blocks of feasible combinations, (n, parameters) places of levels, in the product's order.

    The depth-first search carries a block of partial combinations. A partial combination is
    dropped as soon as no values of the parameters still to come can bring it inside every constraint.
    """
    terms = [_terms(name, choice, constraints) for name, choice in levels.items()]
    least, most, size = (_still_to_come(terms, best) for best in (np.min, np.max, _largest))
    start = np.zeros((1, len(constraints)))
    stack = [(np.zeros((1, 0), dtype=np.int64), start, start)]
    tried = 0
    while stack:
        picks, totals, sizes = stack.pop()
        depth = picks.shape[1]
        if depth == len(terms):
            yield picks
            continue
        count = len(terms[depth])
        rows = max(1, _CELLS // count)
        if len(picks) > rows:  # what comes later in the order waits on the stack
            stack.append((picks[rows:], totals[rows:], sizes[rows:]))
            picks, totals, sizes = picks[:rows], totals[:rows], sizes[:rows]
        tried += len(picks) * count
        if tried > _EFFORT:
            raise SpaceError(
                f"gave up after trying {tried:,} partial combinations; use fewer levels, or constraints that rule out "
                "more of them"
            )
        parents = np.repeat(np.arange(len(picks)), count)
        places = np.tile(np.arange(count), len(picks))
        totals = totals[parents] + terms[depth][places]
        sizes = sizes[parents] + np.abs(terms[depth][places])
        keep = np.ones(len(parents), dtype=bool)
        for column, constraint in enumerate(constraints):
            ahead = least[depth][column], most[depth][column]
            keep &= constraint.within(totals[:, column], sizes[:, column] + size[depth][column], ahead)
        if keep.any():
            stack.append((np.column_stack([picks[parents[keep]], places[keep]]), totals[keep], sizes[keep]))


def _terms(name: str, choice: Choice, constraints: Sequence[Constraint]) -> FloatArray:
    """Return the term of each level in each constraint's sum, (levels, constraints)."""
    terms = np.zeros((len(choice.options), len(constraints)))
    for column, constraint in enumerate(constraints):
        if name in constraint.weights:
            terms[:, column] = constraint.weights[name] * np.array(choice.options, dtype=float)
    return terms


def _still_to_come(terms: Sequence[FloatArray], best: Callable[..., FloatArray]) -> list[FloatArray]:
    """Return, for each parameter, the sum of the best terms of those after it, (constraints,) each."""
    after = [np.zeros(terms[0].shape[1])]
    for later in reversed(terms[1:]):
        after.append(after[-1] + best(later, axis=0))
    return after[::-1]


def _largest(terms: FloatArray, axis: int) -> FloatArray:
    largest: FloatArray = np.max(np.abs(terms), axis=axis)
    return largest


def _levels(name: str, values: object, limit: int) -> Choice:
    if isinstance(values, (Real, Integer, Choice)):
        raise SpaceError(
            f"grid needs the levels of {name!r} as a list, got {values}; or write Space(...).grid(levels=5)"
        )
    if isinstance(values, (str, bytes, Mapping, set, frozenset)) or not isinstance(values, Iterable):
        raise SpaceError(f"grid needs the levels of {name!r} as a list, got {values!r}; write {name}=[...]")
    levels = list(islice(values, limit + 1))
    if not levels:
        raise SpaceError(f"{name!r} has no levels; give at least one value")
    if len(levels) > limit:
        raise SpaceError(f"{name!r} alone has more levels than the limit of {limit:,} candidates; give fewer")
    try:
        return Choice(levels)
    except SpaceError as error:
        raise SpaceError(f"the levels of {name!r}: {error}") from error
