"""Space of settings: parameters with their ranges, and the constraints among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import SpaceError, StateError
from pasto.space import sampling
from pasto.space.candidates import LIMIT, Candidates, default_names, fit, ordered
from pasto.space.constraints import Constraint
from pasto.space.parameters import Choice, Given, Integer, Parameter, Real, check_whole, gather, plain_column, read
from pasto.space.product_grid import product
from pasto_sdk.policy_document import Value

_KINDS: dict[str, type[Real] | type[Integer] | type[Choice]] = {"real": Real, "integer": Integer, "choice": Choice}


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Space:
    """Parameters with their ranges, and linear constraints among them.

    A parameter is a Real, an Integer or a Choice; a tuple (low, high) is short for Real, even between two ints, and
    a list for Choice. Constraints are text and come first. Parameters whose names are not keywords go in a mapping,
    which also comes first, and stand in `backticks` inside constraints.

    >>> import pasto
    >>> space = pasto.Space(
    ...     "search + social <= 100", search=pasto.Integer(0, 100), social=pasto.Integer(0, 100), freshness=(0, 2)
    ... )
    >>> space.parameters["freshness"]
    Real(low=0.0, high=2.0)
    >>> space.contains({"search": 60, "social": 50, "freshness": 0.5})
    False
    >>> len(space.grid(levels=3))
    18
    """

    parameters: Mapping[str, Parameter]
    constraints: tuple[Constraint, ...]

    def __init__(self, /, *given: str | Mapping[str, Given], **parameters: Given) -> None:
        texts, named = gather("Space", given, parameters)
        read_in = {name: read(name, parameter) for name, parameter in named.items()}
        bounds = {name: parameter.bounds for name, parameter in read_in.items()}
        constraints = tuple(Constraint.parse(text, bounds) for text in texts)
        sampling.tighten(read_in, constraints)  # refuses constraints that leave nothing
        object.__setattr__(self, "parameters", read_in)
        object.__setattr__(self, "constraints", constraints)

    def grid(self, levels: int | Mapping[str, int] = 5, *, limit: int = LIMIT) -> Candidates:
        """Return evenly spaced candidates that meet the constraints, the last parameter changing fastest.

        A range gets `levels` values with both ends among them (a mapping gives their number by parameter, 5 if it has
        none), an Integer with no more values than that gets them all, and a Choice always gets all its options.

        >>> import pasto
        >>> pasto.Space("a + b <= 1", a=(0, 1), b=(0, 1)).grid(levels=3).names
        ('a=0,b=0', 'a=0,b=0.5', 'a=0,b=1', 'a=0.5,b=0', 'a=0.5,b=0.5', 'a=1,b=0')
        """
        limit = check_whole(limit, "limit")
        counts = dict(levels) if isinstance(levels, Mapping) else dict.fromkeys(self.parameters, levels)
        for name in counts:
            if name not in self.parameters:
                raise SpaceError(f"levels names {name!r}; the parameters are {', '.join(self.parameters)}")
        chosen = {}
        for name, parameter in self.parameters.items():
            count = check_whole(counts.get(name, 5), "levels")
            if not isinstance(parameter, Choice) and min(count, parameter.size or count) > limit:
                raise SpaceError(f"{name!r} alone has {count:,} levels, more than the limit of {limit:,} candidates")
            chosen[name] = Choice(parameter.levels(count))
        return product(chosen, [constraint.text for constraint in self.constraints], limit)

    def sobol(self, count: int, *, seed: int = 0, limit: int = LIMIT) -> Candidates:
        """Return candidates spread evenly over the space by a scrambled Sobol sequence, the same for the same seed.

        Reals are rounded to about a millionth of their range. Points that repeat, or break a constraint, are replaced
        by later points of the sequence, so that a smaller count gives the first ones of a larger.

        >>> import pasto
        >>> space = pasto.Space("a + b <= 10", a=pasto.Integer(0, 10), b=pasto.Integer(0, 10))
        >>> candidates = space.sobol(20, seed=1)
        >>> len(candidates), all(row["a"] + row["b"] <= 10 for row in candidates)
        (20, True)
        """
        from scipy.stats import qmc  # half a second to load, and only needed here

        if check_whole(count, "count") > check_whole(limit, "limit"):
            raise SpaceError(
                f"{count:,} candidates are more than the limit of {limit:,}; ask for fewer, or raise limit="
            )
        box = sampling.tighten(self.parameters, self.constraints)
        sampling.refuse_thin(box, self.constraints)
        if (there := sampling.counted(box, self.constraints, count)) < count:
            raise SpaceError(
                f"{count:,} points were asked for and the space has only {there:,}; "
                + ("ask for fewer, or take them all by grid" if there else "widen a constraint or a range")
            )
        # a generator, because scipy reads a bare number differently from version to version
        engine = qmc.Sobol(len(box), scramble=True, seed=np.random.default_rng(check_whole(seed, "seed", least=0)))
        block = min(sampling.BLOCK, 1 << (count - 1).bit_length())
        found: dict[tuple[Value, ...], None] = {}
        drawn = 0
        while len(found) < count:
            if drawn >= sampling.effort(count):
                raise sampling.too_rare(self.constraints, count, len(found), drawn)
            found.update(dict.fromkeys(sampling.feasible(box, self.constraints, engine.random(block))))
            drawn += block
        table = tuple(found)[:count]
        return Candidates(tuple(box), default_names(tuple(box), table), table)

    def sample(self, count: int, rng: np.random.Generator) -> list[dict[str, Value]]:
        """Return independent points, uniform over the part of the space that meets the constraints; one may come twice.

        >>> import numpy as np, pasto
        >>> rows = pasto.Space("a + b <= 1", a=(0, 1), b=(0, 1)).sample(3, np.random.default_rng(0))
        >>> len(rows), all(row["a"] + row["b"] <= 1 for row in rows)
        (3, True)
        """
        check_whole(count, "count")
        box = sampling.tighten(self.parameters, self.constraints)
        sampling.refuse_thin(box, self.constraints)
        block = min(sampling.BLOCK, max(2 * count, 256))
        found: list[tuple[Value, ...]] = []
        drawn = 0
        while len(found) < count:
            if drawn >= sampling.effort(count):
                raise sampling.too_rare(self.constraints, count, len(found), drawn)
            found.extend(sampling.feasible(box, self.constraints, rng.random((block, len(box)))))
            drawn += block
        return [dict(zip(box, row, strict=True)) for row in found[:count]]

    def contains(self, values: Mapping[str, object]) -> bool:
        """Return whether a setting lies in every range and meets every constraint.

        >>> import pasto
        >>> pasto.Space(alpha=(0, 1)).contains({"alpha": 0.5}), pasto.Space(alpha=(0, 1)).contains({"alpha": 2})
        (True, False)
        """
        row = dict(zip(self.parameters, ordered(tuple(self.parameters), values, "the setting"), strict=True))
        if not all(parameter.contains(row[name]) for name, parameter in self.parameters.items()):
            return False
        return all(
            constraint.holds({name: np.array([float(row[name])]) for name in constraint.weights}).all()
            for constraint in self.constraints
        )

    def features(self, rows: Iterable[Mapping[str, object]]) -> FloatArray:
        """Return points (rows, columns): ranges scaled to [0, 1], string options one-hot, constants left out.

        >>> import pasto
        >>> pasto.Space(alpha=(0, 4), mode=["a", "b"]).features([{"alpha": 1, "mode": "b"}])
        array([[0.25, 0.  , 1.  ]])
        """
        names = tuple(self.parameters)
        taken = list(rows)
        for index, row in enumerate(taken):
            fit(names, row, "row {}", index)
        columns = []
        for name, parameter in self.parameters.items():
            try:
                columns.append(parameter.features(plain_column([row[name] for row in taken], "row {}")))
            except SpaceError as error:
                raise SpaceError(f"parameter {name!r}: {error}") from error
        return np.hstack(columns)

    def to_saved(self) -> dict[str, Any]:
        """Return the space as a plain JSON value.

        >>> import pasto
        >>> pasto.Space("a <= 1", a=(0, 2)).to_saved()
        {'parameters': [{'name': 'a', 'kind': 'real', 'low': 0.0, 'high': 2.0}], 'constraints': ['a <= 1']}
        """
        saved = []
        for name, parameter in self.parameters.items():
            fields = {key: list(value) if key == "options" else value for key, value in asdict(parameter).items()}
            saved.append({"name": name, "kind": type(parameter).__name__.lower(), **fields})
        return {"parameters": saved, "constraints": [constraint.text for constraint in self.constraints]}

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> Space:
        """Read back what `to_saved` wrote.

        >>> import pasto
        >>> space = pasto.Space("a <= 1", a=(0, 2))
        >>> pasto.Space.from_saved(space.to_saved()) == space
        True
        """
        try:
            parameters: dict[str, Given] = {}
            for entry in saved["parameters"]:
                fields = {key: value for key, value in entry.items() if key not in {"name", "kind"}}
                parameters[entry["name"]] = _KINDS[entry["kind"]](**fields)
            return cls(parameters, *saved["constraints"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StateError(f"the saved space cannot be read: {error}") from error

    def __repr__(self) -> str:
        parts = [repr(constraint.text) for constraint in self.constraints]
        parts += [f"{name}={parameter!r}" for name, parameter in self.parameters.items()]
        return f"Space({', '.join(parts)})"


def sobol(
    count: int, /, *given: str | Mapping[str, Given], seed: int = 0, limit: int = LIMIT, **parameters: Given
) -> Candidates:
    """Return candidates spread evenly over ranges by a scrambled Sobol sequence; the arguments are those of `Space`.

    >>> import pasto
    >>> candidates = pasto.sobol(4, alpha=(0.0, 2.0), depth=pasto.Integer(1, 5), mode=["fast", "careful"], seed=7)
    >>> len(candidates), candidates.parameters
    (4, ('alpha', 'depth', 'mode'))
    >>> candidates == pasto.sobol(4, alpha=(0.0, 2.0), depth=pasto.Integer(1, 5), mode=["fast", "careful"], seed=7)
    True
    """
    return Space(*given, **parameters).sobol(count, seed=seed, limit=limit)
