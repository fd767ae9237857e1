from __future__ import annotations

import numpy as np

import pasto
from pasto.optimize import solve
from pasto_research.paper.continuous import Terrain, _claim, _figure, _table, climb
from pasto_research.paper.experiment import Size
from pasto_sdk.policy_document import Value


def terrain(users: int = 400) -> Terrain:
    """Return a goal that peaks at one end and a guardrail metric that peaks at the other, with a valley between."""
    noise = 0.2 * np.random.default_rng(0).standard_normal((2, users))

    def at(row: dict[str, Value]) -> np.ndarray:
        a = float(row["a"])
        return (np.exp(-0.5 * ((a - np.array([[0.2], [0.8]])) / 0.12) ** 2) + noise).astype(np.float32)

    space = pasto.Space(a=(0.0, 1.0))
    wanted = pasto.maximize("x").keep("y", at_least=0.4, penalty=5.0)
    return Terrain("valley", space, wanted, at, space.grid(levels=21), {})


def test_a_space_and_a_grid_are_both_learned_and_reported() -> None:
    place, size = terrain(), Size(runs=1, rounds=20)
    ways = (climb(place, place.space, "the space itself", size), climb(place, place.grid, "a grid of 21", size))
    best = solve(place.truth([dict(row) for row in place.grid]), place.objective)
    assert best.gain.value is not None
    single = best.value - best.gain.value
    for climbed in ways:
        assert climbed.values.shape == (1, 2)
        assert climbed.values[:, -1].mean() > single
        assert min(climbed.points) >= 2
    claim = _claim(place, best, ways)
    assert claim.what.startswith("valley: a continuous space")
    table = _table(place, best, ways)
    assert table.header == ("given", "10 rounds", "20 rounds")
    assert [row[0] for row in table.rows][-1] == "best single point of the grid"
    assert len(_figure([(place, best, ways), (place, best, ways)]).axes) == 2


def test_points_are_measured_once() -> None:
    place = terrain(20)
    first = place.values([{"a": 0.25}, {"a": 0.5}])
    again = place.values([{"a": 0.5}])
    assert len(place.known) == 2
    np.testing.assert_array_equal(first[:, 1], again[:, 0])
