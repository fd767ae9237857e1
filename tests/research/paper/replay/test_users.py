from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pasto
from pasto.errors import InputError
from pasto_research.paper.replay import UserSample, halves, learn_by_algorithm1, learn_by_default
from pasto_research.paper.replay.learner_runs import Pool

OBJECTIVE = pasto.maximize("x").keep("y", at_least=0.5)


def user_sample(users: int = 400, seed: int = 0) -> UserSample:
    """Return three candidates that trade x against y; every third user has no y."""
    rng = np.random.default_rng(seed)
    truth = np.array([[1.0, 0.6, 0.0], [0.0, 0.4, 1.0]])
    values = truth[:, :, None] + 0.3 * rng.standard_normal((2, 1, users))
    values[1, :, ::3] = np.nan
    return UserSample.of(("x", "y"), values)


def test_the_truth_is_the_mean_of_those_who_have_a_metric() -> None:
    values = np.array([[[1.0, 2.0, 6.0]], [[np.nan, 4.0, 8.0]]])
    some = UserSample.of(("x", "y"), values)
    assert some.truth.tolist() == [[3.0], [6.0]]
    assert some.errors[:, 0].tolist() == pytest.approx([np.std([1, 2, 6], ddof=1) / 3**0.5, 2.0])
    assert some.part(np.array([0, 1])).truth.tolist() == [[1.5], [4.0]]


def test_a_metric_under_some_candidates_only_is_refused() -> None:
    with pytest.raises(InputError, match="under every candidate or under none"):
        UserSample.of(("x",), np.array([[[1.0], [np.nan]]]))
    with pytest.raises(InputError, match="no user has the metric 'y'"):
        UserSample.of(("x", "y"), np.array([[[1.0]], [[np.nan]]]))


@given(st.integers(1, 7), st.integers(0, 100))
def test_folds_are_disjoint_and_of_equal_size(count: int, seed: int) -> None:
    """Check folds of users whose values are powers of two, so that a fold's sum identifies its users."""
    users = 20
    some = UserSample.of(("x",), 2.0 ** np.arange(users)[None, None])
    means, _ = some.measure([0] * count, np.random.default_rng(seed))
    size = users // count
    members = [round(float(mean) * size) for mean in means[:, 0]]
    assert all(member.bit_count() == size for member in members)
    assert sum(members).bit_count() == size * count


def test_folds_measure_without_bias_and_with_the_right_error() -> None:
    some, rng = user_sample(), np.random.default_rng(1)
    measurements = [some.measure([0, 1, 2, 1], rng) for _ in range(600)]
    means, errors = np.array([one for one, _ in measurements]), np.array([one for _, one in measurements])
    np.testing.assert_allclose(means.mean(axis=0), some.truth[:, [0, 1, 2, 1]].T, atol=0.005)
    drawn_without_return = np.sqrt(1 - 1 / 4)
    np.testing.assert_allclose(means.std(axis=0), drawn_without_return * errors.mean(axis=0), rtol=0.12)


def test_errors_are_pooled_over_folds_and_rounds() -> None:
    pool = Pool()
    assert pool.add(np.array([[0.0, 3.0], [2.0, 4.0]])).tolist() == [[2.0**0.5, 12.5**0.5]] * 2
    assert pool.add(np.zeros((2, 2))).tolist() == [[1.0, 2.5]] * 2
    assert (Pool().add(np.zeros((3, 1))) > 0).all()


def test_both_learners_find_the_blend_for_easy_users() -> None:
    some = user_sample()
    hard = learn_by_default(some, OBJECTIVE, pasto.grid(a=[0, 1, 2]), repeats=2, rounds=15, marks=(5,))
    assert hard.marks == (5, 15)
    assert hard.answers.shape == (2, 2, 3)
    mean, error = hard.last(some.truth)
    assert mean[0] > 0.46
    assert mean[1] > 0.48
    assert error.shape == (2,)
    soft = pasto.maximize("x").keep("y", at_least=0.5, penalty=5.0)
    learned = learn_by_algorithm1(some, soft, repeats=2, rounds=400, marks=(10, 1_000))
    assert learned.marks == (10, 400)
    values = np.asarray(soft.value(learned.metrics(some.truth)))
    assert values[:, -1].mean() > values[:, 0].mean()
    np.testing.assert_allclose(learned.answers.sum(axis=2), 1.0)


def test_repeats_are_decided_by_the_seed() -> None:
    soft = pasto.maximize("x").keep("y", at_least=0.5, penalty=5.0)
    first, again, other = (
        learn_by_algorithm1(user_sample(), soft, repeats=2, rounds=20, seed=seed).answers for seed in (1, 1, 2)
    )
    assert (first == again).all()
    assert (first != other).any()
    assert (first[0] != first[1]).any()


def test_halves_choose_on_one_half_and_measure_on_the_other() -> None:
    """Add a fourth candidate that is best for even users and worst for odd ones: its gain is only chance."""
    users = 200
    rng = np.random.default_rng(3)
    values = np.concatenate([np.zeros((1, 1, users)), rng.normal(0.0, 5.0, (1, 30, users))], axis=1)
    values[0, 1:] -= values[0, 1:].mean(axis=1, keepdims=True)
    lucky = UserSample.of(("x",), values)
    found = halves(lucky, lambda part: pasto.maximize("x"), splits=20)
    assert found.single.mean() < -0.3
    np.testing.assert_allclose(found.difference, 0.0, atol=1e-9)
    traded = halves(user_sample(), lambda part: OBJECTIVE, splits=10, choices=3)
    assert traded.difference[:, 0].min() > 0.3
    assert traded.chosen_gain.min() > 0.3
