import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pasto
from pasto import Choice, Integer, Real
from pasto.errors import SpaceError
from pasto.space import product_grid

LEVELS = st.lists(st.lists(st.integers(-6, 6), min_size=1, max_size=5, unique=True), min_size=1, max_size=4)
SENSES = {
    "<=": lambda left, right: left <= right,
    ">=": lambda left, right: left >= right,
    "==": lambda left, right: left == right,
}


@settings(deadline=None)
@given(LEVELS)
def test_is_the_product_with_the_last_parameter_fastest(levels: list[list[int]]) -> None:
    names = "abcd"[: len(levels)]
    candidates = pasto.grid(dict(zip(names, levels, strict=True)))
    assert candidates.parameters == tuple(names)
    assert list(candidates.table) == list(itertools.product(*levels))


@settings(deadline=None)
@given(
    LEVELS,
    st.lists(
        st.tuples(
            st.lists(st.integers(-3, 3), min_size=4, max_size=4), st.sampled_from(list(SENSES)), st.integers(-9, 9)
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([1, 7, 1 << 16]),
)
def test_constraints_filter_the_product_for_every_block_size(
    levels: list[list[int]], rules: list[tuple[list[int], str, int]], cells: int
) -> None:
    names = "abcd"[: len(levels)]
    expected = [
        row
        for row in itertools.product(*levels)
        if all(SENSES[sign](sum(map(lambda w, x: w * x, weights, row)), bound) for weights, sign, bound in rules)
    ]
    texts = [
        " + ".join(f"{weight}*{name}" for weight, name in zip(weights, names, strict=False)) + f" {sign} {bound}"
        for weights, sign, bound in rules
        if any(weights[: len(names)])
    ]
    if not all(any(weights[: len(names)]) or SENSES[sign](0, bound) for weights, sign, bound in rules):
        return  # a rule without a parameter that never holds: nothing to compare
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(product_grid, "_CELLS", cells)
        if not expected:
            with pytest.raises(SpaceError, match=r"can never hold|no combination"):
                pasto.grid(*texts, dict(zip(names, levels, strict=True)))
            return
        assert list(pasto.grid(*texts, dict(zip(names, levels, strict=True))).table) == expected


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(0, 6), st.integers(1, 3))
def test_budgets_match_brute_force(quotas: int, budget: int, step: int) -> None:
    names = "abcd"[:quotas]
    levels = range(0, 7, step)
    found = pasto.grid(f"{' + '.join(names)} <= {budget}", dict.fromkeys(names, levels))
    assert list(found.table) == [row for row in itertools.product(levels, repeat=quotas) if sum(row) <= budget]


def test_a_tight_budget_never_visits_the_full_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_grid, "_EFFORT", 100_000)  # of 101**6, more than 10**12
    quotas = dict.fromkeys("abcdef", range(101))
    assert len(pasto.grid("a + b + c + d + e + f <= 5", quotas)) == math.comb(11, 6)
    assert len(pasto.grid("a + b + c + d + e + f >= 596", quotas)) == math.comb(10, 6)
    assert len(pasto.grid("a + b + c + d + e + f == 3", quotas)) == math.comb(8, 5)


def test_too_many_stop_early_with_what_is_known() -> None:
    with pytest.raises(SpaceError, match=r"this grid has 1,030,301 candidates, more than the limit of 100,000"):
        pasto.grid(a=range(101), b=range(101), c=range(101))
    with pytest.raises(SpaceError, match=r"more than 100,000 candidates of this grid's 1,061,520,150,601 meet"):
        pasto.grid("a + b + c + d + e + f <= 100", dict.fromkeys("abcdef", range(101)))
    assert len(pasto.grid(a=range(3), b=range(2), limit=6)) == 6
    with pytest.raises(SpaceError, match="more than 5 candidates of this grid's 9 meet"):
        pasto.grid("a + b <= 2", a=range(3), b=range(3), limit=5)
    assert len(pasto.grid("a + b <= 2", a=range(3), b=range(3), limit=6)) == 6
    with pytest.raises(SpaceError, match="'a' alone has more levels than the limit of 100,000"):
        pasto.grid(a=itertools.count())


def test_enumeration_stops_on_constraints_that_bounds_cannot_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_grid, "_EFFORT", 1_000)
    with pytest.raises(SpaceError, match="gave up after trying"):
        pasto.grid("2*a + 2*b + 2*c == 51", dict.fromkeys("abc", range(26)))


def test_levels_come_as_any_ordered_values() -> None:
    expected = pasto.grid(a=[0, 1, 2])
    assert pasto.grid(a=(0, 1, 2)) == expected
    assert pasto.grid(a=range(3)) == expected
    assert pasto.grid(a=np.arange(3)) == expected
    assert pasto.grid(a=(number for number in range(3))) == expected
    assert pasto.grid(a=(0.0, 2.0)).table == ((0.0,), (2.0,))
    assert pasto.grid(alpha=np.linspace(0, 1, 11)).names[3] == "alpha=0.3"


def test_names_that_are_no_keywords_go_in_a_mapping() -> None:
    candidates = pasto.grid({"like weight": [0, 1], "limit": [1, 2]}, "`like weight` + limit <= 2", last=[5])
    assert candidates.parameters == ("like weight", "limit", "last")
    assert candidates.table == ((0, 1, 5), (0, 2, 5), (1, 1, 5))


def test_decimals_meet_a_budget_that_they_add_up_to() -> None:
    tenths = [0.1, 0.2, 0.3]
    found = pasto.grid("a + b + c == 0.6", a=tenths, b=tenths, c=tenths)
    assert len(found) == 7


def test_bools_count_as_zero_and_one_in_constraints() -> None:
    assert len(pasto.grid("a + b <= 1", a=[False, True], b=[False, True])) == 3


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: pasto.grid(), r"grid needs at least one parameter, as in grid\(alpha=...\)"),
        (lambda: pasto.grid("a <= 1"), "needs at least one parameter"),
        (lambda: pasto.grid(a=[]), "'a' has no levels"),
        (lambda: pasto.grid(a=3), r"the levels of 'a' as a list, got 3; write a=\[...\]"),  # type: ignore[arg-type]
        (lambda: pasto.grid(a="fast"), "the levels of 'a' as a list, got 'fast'"),
        (lambda: pasto.grid(a={1, 2}), "as a list"),
        (lambda: pasto.grid(a=Real(0, 1)), r"or write Space\(...\).grid"),  # type: ignore[arg-type]
        (lambda: pasto.grid(a=Integer(0, 1)), r"or write Space\(...\).grid"),  # type: ignore[arg-type]
        (lambda: pasto.grid(a=Choice([0, 1])), r"or write Space\(...\).grid"),  # type: ignore[arg-type]
        (lambda: pasto.grid(a=[1, 1.0]), "the levels of 'a': 1.0 is listed twice"),
        (lambda: pasto.grid(a=[1, math.nan]), "the levels of 'a': option 1 is nan"),
        (lambda: pasto.grid(limit=[1, 2], a=[1]), r"limit=\[1, 2\] must be a whole number .* in a mapping"),  # type: ignore[arg-type]
        (lambda: pasto.grid(limit=0, a=[1]), "at least 1"),
        (lambda: pasto.grid({"a": [1]}, a=[2]), "parameter 'a' is given twice"),
        (lambda: pasto.grid({"": [1]}), "a string with something in it, got ''"),
        (lambda: pasto.grid([1, 2]), r"constraints as text and parameters by name, got \[1, 2\]"),  # type: ignore[arg-type]
        (lambda: pasto.grid("a + z <= 1", a=[1]), "names 'z'; the parameters are a"),
        (lambda: pasto.grid("mode <= 1", mode=["x"]), "adds up 'mode'"),
        (lambda: pasto.grid("a <= -1", a=[0, 1]), "can never hold"),
        (lambda: pasto.grid("a + b == 1", a=[0, 2], b=[0, 2]), "no combination of the levels meets 'a [+] b == 1'"),
    ],
)
def test_refusals(build: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        build()
