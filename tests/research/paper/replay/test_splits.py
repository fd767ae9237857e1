from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import pasto
from pasto_research.paper.replay import UserSample, learn_by_algorithm1
from pasto_research.paper.replay.users import Splits


def user_sample(users: int = 203, seed: int = 0) -> UserSample:
    """Return three candidates that trade x against y; every third user has no y."""
    rng = np.random.default_rng(seed)
    truth = np.array([[1.0, 0.6, 0.0], [0.0, 0.4, 1.0]])
    values = truth[:, :, None] + rng.standard_normal((2, 3, users))
    values[1, :, ::3] = np.nan
    return UserSample.of(("x", "y"), values)


@given(st.integers(1, 7), st.integers(1, 5), st.integers(0, 100))
def test_folds_of_a_split_are_disjoint_and_of_equal_size(folds: int, count: int, seed: int) -> None:
    """Check folds of users whose values are powers of two, so that a fold's sum identifies its users."""
    users = 20
    some = UserSample.of(("x",), 2.0 ** np.arange(users)[None, None])
    splits = Splits.of(some, folds=folds, count=count, rng=np.random.default_rng(seed))
    size = users // folds
    for means in splits.means[:, :, 0, 0]:
        members = [round(float(mean) * size) for mean in means]
        assert all(member.bit_count() == size for member in members)
        assert sum(members).bit_count() == size * folds


def test_a_split_measures_as_a_round_of_all_users_does() -> None:
    some, chosen = user_sample(), np.array([0, 1, 2, 1])
    rng = np.random.default_rng(1)
    splits = Splits.of(some, folds=4, count=3_000, rng=rng)
    measured = splits.measure(np.tile(chosen, (3_000, 1)), np.arange(3_000))
    direct = np.array([some.measure(chosen, rng)[0] for _ in range(3_000)])
    np.testing.assert_allclose(measured.mean(axis=0), some.truth[:, chosen].T, atol=0.01)
    np.testing.assert_allclose(measured.std(axis=0), direct.std(axis=0), rtol=0.08)
    together, apart = (np.corrcoef(one[:, 1, 0], one[:, 3, 0])[0, 1] for one in (measured, direct))
    assert abs(together - apart) < 0.08
    assert together < -0.2


def test_the_number_of_splits_held_at_once_changes_nothing() -> None:
    complete = Splits.of(user_sample(), folds=4, count=9, rng=np.random.default_rng(2)).means
    piecewise = Splits.of(user_sample(), folds=4, count=9, rng=np.random.default_rng(2), together=1).means
    np.testing.assert_allclose(piecewise, complete, atol=1e-6)


def test_a_repeat_continues_as_it_began_however_long_it_is_run() -> None:
    soft = pasto.maximize("x").keep("y", at_least=0.5, penalty=5.0)
    short = learn_by_algorithm1(user_sample(), soft, repeats=2, rounds=2_100, marks=(2_000,))
    long = learn_by_algorithm1(user_sample(), soft, repeats=2, rounds=3_200, marks=(2_000, 2_100))
    np.testing.assert_array_equal(short.answers, long.answers[:, :2])
