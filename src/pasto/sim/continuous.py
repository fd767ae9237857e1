"""Landscapes: worlds over a continuous space with a known best blend, by a grid and by column generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from pasto.arrays import FloatArray
from pasto.objective import Objective, maximize
from pasto.optimize.exact.solver import solve_exact
from pasto.space import Integer, Real, Space
from pasto_sdk.policy_document import Value

Function = Callable[[Mapping[str, NDArray[np.generic]]], FloatArray]
"""Function from points, one array per parameter, to their values, (points,)."""

START_POINTS = 1024
"""Number of random points, the best of which are the starts."""


def maximize_function(
    space: Space, function: Function, starts: int, rng: np.random.Generator
) -> tuple[dict[str, Value], float]:
    """Return the best of several ascents: reals by gradients and others value by value, in turns.

    >>> import numpy as np, pasto
    >>> space = pasto.Space(a=(0, 1), depth=pasto.Integer(1, 5))
    >>> hill = lambda at: -((at["a"] - 0.3) ** 2) - (at["depth"] - 4) ** 2
    >>> row, value = maximize_function(space, hill, 2, np.random.default_rng(0))
    >>> round(row["a"], 6), row["depth"], abs(round(value, 9))
    (0.3, 4, 0.0)
    """
    points = space.sample(START_POINTS, rng)
    order = np.argsort(-_evaluate(function, points), kind="stable")[:starts]
    ends = [_ascend(space, function, points[index]) for index in order]
    return max(ends, key=lambda end: end[1])


def _ascend(space: Space, function: Function, row: dict[str, Value]) -> tuple[dict[str, Value], float]:
    value = float(_evaluate(function, [row])[0])
    while True:
        next_row = _ascend_reals(space, function, row)
        for name, parameter in space.parameters.items():
            if not isinstance(parameter, Real):
                others = [{**next_row, name: option} for option in parameter.levels(10_000)]
                next_row = others[int(np.argmax(_evaluate(function, others)))]
        next_value = float(_evaluate(function, [next_row])[0])
        if next_value <= value + 1e-12:
            return row, value
        row, value = next_row, next_value


def _ascend_reals(space: Space, function: Function, row: dict[str, Value]) -> dict[str, Value]:
    """Ascend along the real parameters and leave the others as they are."""
    reals = {name: parameter for name, parameter in space.parameters.items() if isinstance(parameter, Real)}
    if not reals:
        return row

    def row_at(point: FloatArray) -> dict[str, Value]:
        return {**row, **dict(zip(reals, point.tolist(), strict=True))}

    def negative_value(point: FloatArray) -> float:
        return -float(_evaluate(function, [row_at(point)])[0])

    result = minimize(
        negative_value,
        np.array([float(row[name]) for name in reals]),
        bounds=[parameter.bounds for parameter in reals.values()],
        tol=1e-13,
    )
    return row_at(result.x)


def _evaluate(function: Function, rows: list[dict[str, Value]]) -> FloatArray:
    return function({name: np.array([row[name] for row in rows]) for name in rows[0]})


Columns = Mapping[str, NDArray[np.generic]]
"""Points of a space, one array per parameter."""

Row = Mapping[str, Value]


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Mixture of a few points of a space: their shares, and the value of the blend."""

    points: tuple[Row, ...]
    shares: tuple[float, ...]
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class Landscape:
    """World whose metrics are known functions of the parameters, measured with Gaussian noise.

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
    """Function from points to their metrics, (metrics, points)."""
    noise: float
    """Standard deviation of one measurement, the same for every metric."""
    lines: tuple[Mapping[str, Sequence[Value]], ...]
    """Grids that contain the optimum; a parameter with the same best value for every metric needs only that value."""

    def means(self, rows: Sequence[Row]) -> FloatArray:
        """Return the true metrics, (metrics, rows)."""
        return self.function({name: np.array([row[name] for row in rows]) for name in self.space.parameters})

    def draw(self, rows: Sequence[Row], rng: np.random.Generator) -> FloatArray:
        """Return one measurement of each row, (rows, metrics)."""
        means = self.means(rows).T
        return np.asarray(means + self.noise * rng.standard_normal(means.shape))

    def value(self, metrics: FloatArray, prices: FloatArray) -> FloatArray:
        """Return f(y), (...), minus twice the optimal price for each unit by which a hard guardrail is missed.

        No blend exceeds the optimum, and blends that miss a guardrail slightly can be compared with it.
        """
        form = self.objective.form()
        short = np.minimum(0.0, form.slack(metrics)) * np.where(form.hard, 2.0 * prices, 0.0)
        return np.asarray(form.smooth(metrics) + short.sum(axis=-1))

    def on_grid(self) -> Mixture:
        """Return the best blend of the points of the grids."""
        rows = [row for line in self.lines for row in _grid(line)]
        shares = solve_exact(self.objective.form(), self.means(rows)).probabilities
        return self._mixture(rows, shares)

    def best(self, starts: int = 8, seed: int = 0) -> tuple[Mixture, FloatArray]:
        """Return the best blend of all points and its prices (guardrails,), by column generation on the true functions.

        Each step solves the blend of the current points and adds the point of highest value at its prices, found by
        numerical optimisation from many starts. It ends if no point has a higher value than those of the blend.
        """
        form, rng = self.objective.form(), np.random.default_rng(seed)
        rows: list[Row] = list(self.space.sample(64, rng))
        while True:
            truth = self.means(rows)
            solved = solve_exact(form, truth)
            slope = form.goal.gradient(truth @ solved.probabilities) + solved.duals @ form.rows
            row, worth = maximize_function(self.space, self._priced(slope), starts, rng)
            if worth <= float((slope @ truth).max()) + 1e-9:
                return self._mixture(rows, solved.probabilities), solved.duals
            rows.append(row)

    def single(self, prices: FloatArray, starts: int = 8, seed: int = 0) -> tuple[Row, float]:
        """Return the best single point and its value; a missed hard guardrail is priced, not rejected."""
        return maximize_function(
            self.space,
            lambda columns: self.value(self.function(columns).T, prices),
            starts,
            np.random.default_rng(seed),
        )

    def _priced(self, slope: FloatArray) -> Callable[[Columns], FloatArray]:
        return lambda columns: slope @ self.function(columns)

    def _mixture(self, rows: Sequence[Row], shares: FloatArray) -> Mixture:
        used = np.flatnonzero(shares > 1e-9).tolist()
        value = float(self.objective.form().smooth(self.means(rows) @ shares))
        return Mixture(tuple(rows[k] for k in used), tuple(shares[used].tolist()), value)


def valley(noise: float = 0.1) -> Landscape:
    """Return a landscape of one dimension: the goal and the hard guardrail's metric peak at opposite ends."""

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
    """Return a landscape of two dimensions, one peak per metric and two soft guardrails; all three are blended."""

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
    """Return a landscape of two dimensions and two hard guardrails that only blends meet."""
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
    """Return a landscape of three real, two integer and one choice parameter; only two of them trade metrics off."""
    goal_offsets = {"bold": 0.3, "plain": 0.1, "careful": 0.0}
    guarded_offsets = {"bold": 0.0, "plain": 0.1, "careful": 0.3}

    def function(columns: Columns) -> FloatArray:
        loss = (
            0.8 * (columns["b"].astype(float) - 0.6) ** 2
            + 0.3 * (columns["c"].astype(float) - 0.2) ** 2
            + 0.02 * (columns["depth"].astype(float) - 5) ** 2
            + 0.002 * (columns["width"].astype(float) - 12) ** 2
        )
        modes = columns["mode"].tolist()
        goal = _bump(columns, a=(0.25, 0.15)) + np.array([goal_offsets[mode] for mode in modes])
        guarded = _bump(columns, a=(0.75, 0.15)) + np.array([guarded_offsets[mode] for mode in modes])
        return np.array([goal - loss, guarded - loss])

    tuned: dict[str, Sequence[Value]] = {"b": [0.6], "c": [0.2], "depth": [5], "width": [12]}
    return Landscape(
        "mixed, 6-D",
        Space(
            a=(0, 1), b=(0, 1), c=(-1, 1), depth=Integer(1, 8), width=Integer(0, 20), mode=["bold", "plain", "careful"]
        ),
        maximize("goal").keep("kept", at_least=0.6, penalty=5.0),
        function,
        noise,
        ({"a": np.linspace(0, 1, 2001).tolist(), **tuned, "mode": list(goal_offsets)},),
    )


LANDSCAPES: tuple[Callable[[float], Landscape], ...] = (valley, peaks, apart, mixed)


def _bump(columns: Columns, **peaks: tuple[float, float]) -> FloatArray:
    """Return a Gaussian bump of height one, from the centre and width in each parameter."""
    squares = [((columns[name].astype(float) - centre) / width) ** 2 for name, (centre, width) in peaks.items()]
    return np.asarray(np.exp(-0.5 * np.sum(squares, axis=0)))


def _grid(line: Mapping[str, Sequence[Value]]) -> list[Row]:
    tables = np.meshgrid(*(np.arange(len(values)) for values in line.values()), indexing="ij")
    indices = np.stack([table.ravel() for table in tables], axis=1).tolist()
    return [
        {name: values[index] for (name, values), index in zip(line.items(), index_row, strict=True)}
        for index_row in indices
    ]
