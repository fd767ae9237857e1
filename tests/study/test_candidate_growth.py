"""Candidate growth: the search for new candidates."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import pasto
from pasto.study.candidate_growth import choose_first_points, find_best_point, is_distinct
from pasto_sdk.policy_document import Value

SPACE = pasto.Space(
    "a + b <= 1.2", a=(0, 1), b=(0, 1), depth=pasto.Integer(1, 5), size=[1, 2, 4], mode=["fast", "careful"]
)


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_the_best_point_lies_in_the_space_and_near_the_peak(seed: int) -> None:
    rng = np.random.default_rng(seed)
    target = SPACE.features(SPACE.sample(1, rng))
    row, worth = find_best_point(SPACE, lambda at: -((at - target) ** 2).sum(axis=1), [], rng)
    assert SPACE.contains(row)
    assert np.isclose(worth, -((SPACE.features([row]) - target) ** 2).sum())
    assert worth > -0.02


def test_the_search_continues_from_the_leading_candidates() -> None:
    needle: dict[str, Value] = {"a": 0.123456, "b": 0.654321, "depth": 3, "size": 4, "mode": "careful"}
    target = SPACE.features([needle])
    row, _ = find_best_point(
        SPACE, lambda at: np.exp(-1e4 * ((at - target) ** 2).sum(axis=1)), [needle], np.random.default_rng(0)
    )
    assert row == needle


def test_small_spaces_begin_with_every_point() -> None:
    assert len(choose_first_points(pasto.Space(mode=["a"]), 0)) == 1
    assert len(choose_first_points(pasto.Space("a + b <= 2", a=pasto.Integer(0, 2), b=pasto.Integer(0, 2)), 0)) == 6


def test_spaces_that_are_larger_begin_with_a_spread() -> None:
    assert len(choose_first_points(SPACE, 1)) == 24
    assert choose_first_points(SPACE, 1) != choose_first_points(SPACE, 2)


def test_a_choice_sets_settings_apart_and_a_hair_does_not() -> None:
    row: dict[str, Value] = {"a": 0.5, "b": 0.5, "depth": 3, "size": 2, "mode": "fast"}
    assert not is_distinct(SPACE, {**row, "a": 0.505}, [row])
    assert is_distinct(SPACE, {**row, "a": 0.52}, [row])
    assert is_distinct(SPACE, {**row, "mode": "careful"}, [row])
    assert is_distinct(SPACE, {**row, "depth": 4}, [row])
