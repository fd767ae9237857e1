import copy
import itertools
import json
import math
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pasto
from pasto import Choice, Integer, Real, Space
from pasto.errors import SpaceError, StateError
from pasto.space import sampling

QUOTAS = Space(
    "search + social + fresh <= 10",
    "search >= social",
    search=Integer(0, 10),
    social=Integer(0, 10),
    fresh=Integer(0, 10),
)
SPACES = st.sampled_from(
    [
        QUOTAS,
        Space(alpha=(0, 1)),
        Space("a + b <= 1", "a - b >= -0.5", a=(0, 1), b=(0, 1)),
        Space("a + n <= 4", a=(-3.5, 7), n=Integer(-2, 9), mode=["fast", "careful"], cut=[0.5, 2, 8], on=[True, False]),
        Space("n == 3", n=Integer(0, 9), x=(5, 2000)),
        Space("x <= 0", x=(0, 1), y=(0, 1)),
    ]
)


@settings(deadline=None)
@given(SPACES, st.integers(1, 60), st.integers(0, 2**32))
def test_sobol_points_are_inside_feasible_distinct_and_reproducible(space: Space, count: int, seed: int) -> None:
    candidates = space.sobol(count, seed=seed)
    assert len(candidates) == count
    assert candidates.parameters == tuple(space.parameters)
    assert len(set(candidates.table)) == count
    assert all(space.contains(row) for row in candidates)
    assert candidates == space.sobol(count, seed=seed)
    assert space.sobol(2 * count, seed=seed).table[:count] == candidates.table


@settings(deadline=None)
@given(SPACES, st.integers(1, 60), st.integers(0, 2**32))
def test_sampled_points_are_inside_and_feasible(space: Space, count: int, seed: int) -> None:
    rows = space.sample(count, np.random.default_rng(seed))
    assert len(rows) == count
    assert all(space.contains(row) for row in rows)
    assert rows == space.sample(count, np.random.default_rng(seed))


@settings(deadline=None)
@given(SPACES, st.integers(2, 4))
def test_grids_are_the_feasible_part_of_the_levels(space: Space, levels: int) -> None:
    every = itertools.product(*(parameter.levels(levels) for parameter in space.parameters.values()))
    rows = [dict(zip(space.parameters, row, strict=True)) for row in every]
    expected = [row for row in rows if space.contains(row)]
    if not expected:
        with pytest.raises(SpaceError, match="no combination"):
            space.grid(levels)
        return
    assert list(space.grid(levels)) == expected


@settings(deadline=None)
@given(SPACES)
def test_saved_and_read_back_is_the_same(space: Space) -> None:
    back = Space.from_saved(json.loads(json.dumps(space.to_saved())))
    assert back == space
    assert list(back.parameters) == list(space.parameters)
    assert back.sobol(5) == space.sobol(5)
    assert pickle.loads(pickle.dumps(space)) == copy.deepcopy(space) == space  # noqa: S301 -- our own


@settings(deadline=None)
@given(SPACES, st.integers(0, 99))
def test_features_lie_in_the_unit_cube(space: Space, seed: int) -> None:
    features = space.features(space.sobol(12, seed=seed))
    assert features.shape[0] == 12
    assert ((features >= 0) & (features <= 1)).all()


def test_another_seed_gives_other_points() -> None:
    assert pasto.sobol(8, x=(0, 1), seed=1) != pasto.sobol(8, x=(0, 1), seed=2)


def test_sobol_spreads_better_than_chance() -> None:
    cells = Counter((int(8 * row["x"]), int(8 * row["y"])) for row in pasto.sobol(64, x=(0, 1), y=(0, 1)))
    assert len(cells) > 55  # 64 independent points would leave about 23 of the 64 cells empty


def test_sample_is_uniform_over_the_feasible_points() -> None:
    space = Space("a + b <= 3", a=Integer(0, 9), b=Integer(0, 9))
    counts = Counter(tuple(row.values()) for row in space.sample(10_000, np.random.default_rng(3)))
    assert len(counts) == 10
    # 10,000 draws over 10 points: five deviations are 150
    assert all(abs(count - 1_000) < 150 for count in counts.values())


def test_sobol_finds_every_point_of_a_small_space_and_then_stops() -> None:
    space = Space("a + b <= 2", a=Integer(0, 3), b=Integer(0, 3))
    assert set(space.sobol(6).table) == {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)}
    with pytest.raises(SpaceError, match="7 points were asked for and the space has only 6"):
        space.sobol(7)
    with pytest.raises(SpaceError, match="9 points were asked for and the space has only 8"):
        pasto.sobol(9, a=Integer(0, 3), b=["x", "y"])
    with pytest.raises(SpaceError, match="has only 0; widen a constraint or a range"):
        pasto.sobol(1, "2*a + 2*b + 2*c == 61", a=Integer(0, 20), b=Integer(0, 20), c=Integer(0, 20))
    with pytest.raises(SpaceError, match="has only 200,001"):
        pasto.sobol(200_002, a=Integer(0, 200_000), limit=300_000)


def test_rare_points_are_refused_after_bounded_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_EFFORT", 4096)
    names = "abcdefgh"
    space = Space(" + ".join(names) + " <= 100", **dict.fromkeys(names, Integer(0, 100)))
    with pytest.raises(SpaceError, match=r"100 points were asked for, and 4,\d+ draws found \d+ new ones that meet 'a"):
        space.sobol(100)
    with pytest.raises(SpaceError, match="narrow the parameters' ranges"):
        space.sample(100, np.random.default_rng(0))


def test_ranges_are_tightened_before_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_EFFORT", 4096)  # of 10**12 combinations, 21 are feasible
    space = Space("a + b <= 5", a=Integer(0, 10**6), b=Integer(0, 10**6))
    assert len(space.sobol(21)) == 21


def test_equality_among_reals_is_refused_with_the_fix() -> None:
    space = Space("a + b == 1", a=(0, 1), b=(0, 1))
    for draw in (lambda: space.sobol(4), lambda: space.sample(4, np.random.default_rng(0))):
        with pytest.raises(
            SpaceError, match=r"'a [+] b == 1' asks for equality, which drawn points of the real 'a' never"
        ):
            draw()
    assert len(space.grid(levels=11)) == 11
    assert len(pasto.sobol(5, "a + b == 10", a=Integer(0, 10), b=Integer(0, 10))) == 5
    assert {row["a"] for row in pasto.sobol(5, "2*a == 1", a=(0, 1), b=(0, 1))} == {0.5}


def test_shorthands_are_not_guessed() -> None:
    space = Space(a=(0, 2), b=[0, 2], c=Integer(0, 2))
    assert dict(space.parameters) == {"a": Real(0, 2), "b": Choice([0, 2]), "c": Integer(0, 2)}
    assert repr(Space("a <= 1", a=(0, 2))) == "Space('a <= 1', a=Real(low=0.0, high=2.0))"
    named = Space({"like weight": (0, 1), "self": (0, 1)}, "`like weight` + self <= 1", given=[1], parameters=[2])
    assert list(named.parameters) == ["like weight", "self", "given", "parameters"]
    assert list(pasto.sobol(2, {"seed": (0, 1), "limit": (0, 1)}, count=(0, 1)).parameters) == [
        "seed",
        "limit",
        "count",
    ]


def test_levels_by_parameter() -> None:
    space = Space(a=(0, 1), n=Integer(0, 100), mode=["x", "y"])
    assert len(space.grid()) == 5 * 5 * 2
    assert len(space.grid({"n": 11})) == 5 * 11 * 2
    assert {row["n"] for row in space.grid({"a": 2, "n": 11})} == set(range(0, 101, 10))


def test_contains_checks_ranges_kinds_and_constraints() -> None:
    good = {"search": 4, "social": 3, "fresh": 3}
    assert QUOTAS.contains(good)
    assert QUOTAS.contains({**good, "fresh": np.int64(2)})
    assert not QUOTAS.contains({**good, "fresh": 4})
    assert not QUOTAS.contains({**good, "social": 5, "fresh": 0})
    assert not QUOTAS.contains({**good, "fresh": 2.5})
    assert not QUOTAS.contains({**good, "fresh": "3"})
    assert not QUOTAS.contains({**good, "fresh": -1})
    with pytest.raises(SpaceError, match="the setting lacks 'fresh' and has unknown 'fish'"):
        QUOTAS.contains({"search": 4, "social": 3, "fish": 3})
    with pytest.raises(SpaceError, match="the setting: 'fresh' is nan"):
        QUOTAS.contains({**good, "fresh": math.nan})


def test_features_use_the_bounds_of_the_space() -> None:
    space = Space(a=(0, 4), mode=["x", "y"], n=Integer(2, 2), cut=[1, 3])
    rows = [{"a": 1, "mode": "y", "n": 2, "cut": 1}, {"a": 4.0, "mode": "x", "n": 2, "cut": 3}]
    assert space.features(rows).tolist() == [[0.25, 0, 1, 0], [1, 1, 0, 1]]
    assert space.features([]).shape == (0, 4)
    with pytest.raises(SpaceError, match="parameter 'mode': 'z' is not one of the options x, y"):
        space.features([{**rows[0], "mode": "z"}])
    with pytest.raises(SpaceError, match="row 1 lacks 'a'"):
        space.features([rows[0], {"mode": "x", "n": 2, "cut": 3}])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Space(), r"Space needs at least one parameter"),
        (lambda: Space(a=3), "parameter 'a' is 3; write Real"),  # type: ignore[arg-type]
        (lambda: Space(a=(0, 1, 2)), r"parameter 'a' is \(0, 1, 2\); write Real"),
        (lambda: Space(a=("x", "y")), r"parameter 'a' is \('x', 'y'\); write Real"),
        (lambda: Space(a=range(3)), r"parameter 'a' is range\(0, 3\); write Real"),
        (lambda: Space(a=(2, 1)), "parameter 'a': Real needs two numbers, low < high"),
        (lambda: Space(a=(0, math.inf)), "parameter 'a': a bound is inf"),
        (lambda: Space(a=[]), "parameter 'a': Choice needs at least one option"),
        (lambda: Space({"a": (0, 1)}, a=(0, 1)), "parameter 'a' is given twice"),
        (lambda: Space("a + z <= 1", a=(0, 1)), "names 'z'; the parameters are a"),
        (lambda: Space("a >= 2", a=(0, 1)), "can never hold"),
        (
            lambda: Space("a >= 0.8", "a <= 0.2", a=(0, 1)),
            "the constraints leave no value for 'a': 'a <= 0.2' rules out",
        ),
        (lambda: Space("2*a == 1", a=Integer(0, 1)), "the constraints leave no value for 'a'"),
        (lambda: pasto.sobol(0, a=(0, 1)), "count=0 must be a whole number of at least 1"),
        (lambda: pasto.sobol(2.0, a=(0, 1)), "count=2.0 must be a whole number"),  # type: ignore[arg-type]
        (lambda: pasto.sobol(2, a=(0, 1), seed=-1), "seed=-1 must be a whole number of at least 0"),
        (lambda: pasto.sobol(2, a=(0, 1), seed=(0, 1)), r"put it in a mapping: \{'seed': ...\}"),  # type: ignore[arg-type]
        (lambda: pasto.sobol(100_001, a=(0, 1)), "100,001 candidates are more than the limit of 100,000"),
        (lambda: pasto.sobol(4, a=(0, 1), limit=3), "4 candidates are more than the limit of 3"),
        (lambda: QUOTAS.sample(0, np.random.default_rng(0)), "count=0"),
        (lambda: QUOTAS.grid(levels=0), "levels=0 must be a whole number"),
        (lambda: QUOTAS.grid(levels=1), "use 2 levels or more"),
        (lambda: QUOTAS.grid({"fish": 3}), "levels names 'fish'; the parameters are search, social, fresh"),
        (lambda: Space(a=(0, 1)).grid(200_000), "'a' alone has 200,000 levels"),
        (lambda: Space(a=(0, 1), b=(0, 1)).grid(1000), "this grid has 1,000,000 candidates"),
    ],
)
def test_refusals(build: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        build()


@pytest.mark.parametrize(
    "saved",
    [
        {},
        {"parameters": [], "constraints": []},
        {"parameters": [3], "constraints": []},
        {"parameters": [{"name": "a", "kind": "odd"}], "constraints": []},
        {"parameters": [{"name": "a", "kind": "real", "low": 0}], "constraints": []},
        {"parameters": [{"name": "a", "kind": "real", "low": 0, "high": 0}], "constraints": []},
        {"parameters": [{"name": "a", "kind": "real", "low": 0, "high": 1}], "constraints": ["b <= 1"]},
    ],
)
def test_a_broken_saved_state_is_refused(saved: Any) -> None:
    with pytest.raises(StateError, match="the saved space cannot be read"):
        Space.from_saved(saved)
