"""Worlds over a continuous space whose best blend is known, by a grid and by column generation on the true metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from pasto.arrays import FloatArray
from pasto.objective import Objective, maximize
from pasto.optimize.exact.solver import solve_exact
from pasto.records import Value
from pasto.space import Integer, Real, Space

Function = Callable[[Mapping[str, NDArray[np.generic]]], FloatArray]
"""From points, an array a parameter, to their values, (points,)."""

LOOKS = 1024
"""Random points, the best of which are the starts."""


def highest(space: Space, function: Function, starts: int, rng: np.random.Generator) -> tuple[dict[str, Value], float]:
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


def _ascended(space: Space, function: Function, row: dict[str, Value]) -> tuple[dict[str, Value], float]:
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


def _climbed(space: Space, function: Function, row: dict[str, Value]) -> dict[str, Value]:
    """Along the reals, the others as they are."""
    reals = {name: parameter for name, parameter in space.parameters.items() if isinstance(parameter, Real)}
    if not reals:
        return row

    def at(point: FloatArray) -> dict[str, Value]:
        return {**row, **dict(zip(reals, point.tolist(), strict=True))}

    def depth(point: FloatArray) -> float:
        return -float(_values(function, [at(point)])[0])

    found = minimize(
        depth,
        np.array([float(row[name]) for name in reals]),
        bounds=[parameter.bounds for parameter in reals.values()],
        tol=1e-13,
    )
    return at(found.x)


def _values(function: Function, rows: list[dict[str, Value]]) -> FloatArray:
    return function({name: np.array([row[name] for row in rows]) for name in rows[0]})


Columns = Mapping[str, NDArray[np.generic]]
"""Points of a space, an array a parameter."""

Row = Mapping[str, Value]


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """A few points of a space with their shares, and what the blend of them is worth."""

    points: tuple[Row, ...]
    shares: tuple[float, ...]
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class Landscape:
    """Metrics that are known functions of the parameters, seen through Gaussian noise.

    >>> import numpy as np
    >>> world = valley()
    >>> world.means([{"a": 0.25}, {"a": 0.75}]).round(2)
    array([[1., 0.],
           [0., 1.]])
    >>> world.draw([{"a": 0.25}], np.random.default_rng(0)).shape
    (1, 2)
    """

    name: str
    space: Space
    objective: Objective
    function: Callable[[Columns], FloatArray]
    """From points to their metrics, (metrics, points)."""
    noise: float
    """The standard deviation of one measurement, the same for every metric."""
    lines: tuple[Mapping[str, Sequence[Value]], ...]
    """Grids that the optimum lies on; a parameter whose best value is the same for every metric needs no more."""

    def means(self, rows: Sequence[Row]) -> FloatArray:
        """The true metrics, (metrics, rows)."""
        return self.function({name: np.array([row[name] for row in rows]) for name in self.space.parameters})

    def draw(self, rows: Sequence[Row], rng: np.random.Generator) -> FloatArray:
        """What each row measures once, (rows, metrics)."""
        means = self.means(rows).T
        return np.asarray(means + self.noise * rng.standard_normal(means.shape))

    def value(self, metrics: FloatArray, prices: FloatArray) -> FloatArray:
        """f(y), (...), where missing a hard guardrail costs twice its price at the optimum for each unit.

        Nothing beats the optimum in it, and blends that miss a guardrail by a hair can be compared with it.
        """
        form = self.objective.form()
        short = np.minimum(0.0, form.slack(metrics)) * np.where(form.hard, 2.0 * prices, 0.0)
        return np.asarray(form.smooth(metrics) + short.sum(axis=-1))

    def on_grid(self) -> Mixture:
        """The best blend of the grid's points."""
        rows = [row for line in self.lines for row in _grid(line)]
        shares = solve_exact(self.objective.form(), self.means(rows)).probabilities
        return self._mixture(rows, shares)

    def best(self, starts: int = 8, seed: int = 0) -> tuple[Mixture, FloatArray]:
        """The best blend of all points and its prices (guardrails,), by column generation on the true functions.

        Solve the blend of the points at hand, look for the point worth most at its prices by numerical optimisation
        from many starts, take it in, and end when no point is worth more than the blend's own.
        """
        form, rng = self.objective.form(), np.random.default_rng(seed)
        rows: list[Row] = list(self.space.sample(64, rng))
        while True:
            truth = self.means(rows)
            solved = solve_exact(form, truth)
            slope = form.goal.gradient(truth @ solved.probabilities) + solved.duals @ form.rows
            row, worth = highest(self.space, self._priced(slope), starts, rng)
            if worth <= float((slope @ truth).max()) + 1e-9:
                return self._mixture(rows, solved.probabilities), solved.duals
            rows.append(row)

    def single(self, prices: FloatArray, starts: int = 8, seed: int = 0) -> tuple[Row, float]:
        """The best single point, and what it is worth; a hard guardrail that it must miss is priced, not refused."""
        return highest(
            self.space,
            lambda columns: self.value(self.function(columns).T, prices),
            starts,
            np.random.default_rng(seed),
        )

    def _priced(self, slope: FloatArray) -> Callable[[Columns], FloatArray]:
        return lambda columns: slope @ self.function(columns)

    def _mixture(self, rows: Sequence[Row], shares: FloatArray) -> Mixture:
        kept = np.flatnonzero(shares > 1e-9).tolist()
        value = float(self.objective.form().smooth(self.means(rows) @ shares))
        return Mixture(tuple(rows[k] for k in kept), tuple(shares[kept].tolist()), value)


def valley(noise: float = 0.1) -> Landscape:
    """One dimension: the goal peaks at one end, the hard guardrail's metric at the other, and between is a valley."""

    def function(columns: Columns) -> FloatArray:
        return np.array([_bump(columns, a=(0.25, 0.12)), _bump(columns, a=(0.75, 0.12))])

    return Landscape(
        "valley, 1-D",
        Space(a=(0, 1)),
        maximize("goal").keep("kept", at_least=0.4),
        function,
        noise,
        ({"a": np.linspace(0, 1, 4001).tolist()},),
    )


def peaks(noise: float = 0.1) -> Landscape:
    """Two dimensions and two soft guardrails: three peaks, one a metric, and a blend of all three."""

    def function(columns: Columns) -> FloatArray:
        return np.array(
            [
                _bump(columns, a=(0.2, 0.18), b=(0.25, 0.18)),
                _bump(columns, a=(0.8, 0.18), b=(0.3, 0.18)),
                _bump(columns, a=(0.45, 0.18), b=(0.85, 0.18)),
            ]
        )

    line = np.linspace(0, 1, 81).tolist()
    return Landscape(
        "peaks, 2-D",
        Space(a=(0, 1), b=(0, 1)),
        maximize("goal").keep("first", at_least=0.35, penalty=5.0).keep("second", at_least=0.35, penalty=5.0),
        function,
        noise,
        ({"a": line, "b": line},),
    )


def apart(noise: float = 0.1) -> Landscape:
    """Two dimensions and two hard guardrails that no single point meets; some blends do."""
    soft = peaks(noise)
    return Landscape(
        "apart, 2-D",
        soft.space,
        maximize("goal").keep("first", at_least=0.3).keep("second", at_least=0.3),
        soft.function,
        noise,
        soft.lines,
    )


def mixed(noise: float = 0.1) -> Landscape:
    """Six dimensions, three real, two whole and a choice: two of them trade the metrics off, four are tuned for all."""
    goals = {"bold": 0.3, "plain": 0.1, "careful": 0.0}
    keeps = {"bold": 0.0, "plain": 0.1, "careful": 0.3}

    def function(columns: Columns) -> FloatArray:
        loss = (
            0.8 * (columns["b"].astype(float) - 0.6) ** 2
            + 0.3 * (columns["c"].astype(float) - 0.2) ** 2
            + 0.02 * (columns["depth"].astype(float) - 5) ** 2
            + 0.002 * (columns["width"].astype(float) - 12) ** 2
        )
        modes = columns["mode"].tolist()
        goal = _bump(columns, a=(0.25, 0.15)) + np.array([goals[mode] for mode in modes])
        kept = _bump(columns, a=(0.75, 0.15)) + np.array([keeps[mode] for mode in modes])
        return np.array([goal - loss, kept - loss])

    tuned: dict[str, Sequence[Value]] = {"b": [0.6], "c": [0.2], "depth": [5], "width": [12]}
    return Landscape(
        "mixed, 6-D",
        Space(
            a=(0, 1), b=(0, 1), c=(-1, 1), depth=Integer(1, 8), width=Integer(0, 20), mode=["bold", "plain", "careful"]
        ),
        maximize("goal").keep("kept", at_least=0.6, penalty=5.0),
        function,
        noise,
        ({"a": np.linspace(0, 1, 2001).tolist(), **tuned, "mode": list(goals)},),
    )


LANDSCAPES: tuple[Callable[[float], Landscape], ...] = (valley, peaks, apart, mixed)


def _bump(columns: Columns, **peaks: tuple[float, float]) -> FloatArray:
    """A Gaussian hill of height one, from the centre and width in each parameter."""
    squares = [((columns[name].astype(float) - centre) / width) ** 2 for name, (centre, width) in peaks.items()]
    return np.asarray(np.exp(-0.5 * np.sum(squares, axis=0)))


def _grid(line: Mapping[str, Sequence[Value]]) -> list[Row]:
    tables = np.meshgrid(*(np.arange(len(values)) for values in line.values()), indexing="ij")
    places = np.stack([table.ravel() for table in tables], axis=1).tolist()
    return [{name: values[at] for (name, values), at in zip(line.items(), place, strict=True)} for place in places]
