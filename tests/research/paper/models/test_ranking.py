from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from pasto_research.paper.models.ranking import gains, rate, weighted


def test_recall_revenue_and_genre_recall_by_hand() -> None:
    """Check 30 items with scores 30, 29, …, 1, of which the first two are known: the list is items 2 to 21."""
    scores = np.arange(30, 0, -1, dtype=np.float32)[None]
    known = csr_array(np.eye(30)[[0]] + np.eye(30)[[1]])
    wanted = csr_array(np.isin(np.arange(30), [2, 10, 21, 22, 29]).astype(float)[None])
    assert gains(scores.copy(), known, wanted)[0] == pytest.approx(3 / 5)
    prices = np.zeros(30)
    prices[[2, 10, 21, 22, 29]] = 10.0, 2.5, 4.0, 100.0, 1.0
    assert gains(scores.copy(), known, weighted(wanted, prices))[0] == pytest.approx(16.5 / 5)
    genre = np.isin(np.arange(30), [10, 22]).astype(float)
    assert gains(scores.copy(), known, weighted(wanted, genre))[0] == pytest.approx(1 / 2)


def test_the_denominator_is_at_most_the_length_of_the_list() -> None:
    scores = np.arange(60, 0, -1, dtype=np.float32)[None]
    wanted = csr_array((np.arange(60) % 2 == 0).astype(float)[None])
    assert gains(scores, csr_array((1, 60)), wanted)[0] == pytest.approx(10 / 20)


def test_users_who_want_nothing_count_nowhere() -> None:
    scores = np.tile(np.arange(4, dtype=np.float32), (2, 1))
    wanted = csr_array(np.array([[0.0, 0, 0, 1], [0, 0, 0, 0]]))
    found = gains(scores, csr_array((2, 4)), wanted, top=1)
    assert found[0] == 1.0
    assert np.isnan(found[1])


def test_a_list_longer_than_the_items_holds_them_all_but_the_known() -> None:
    found = gains(np.zeros((1, 3), np.float32), csr_array(np.eye(3)[[0]]), csr_array(np.array([[1.0, 1.0, 0]])), top=20)
    assert found[0] == pytest.approx(1 / 2)


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_gains_agree_with_sorting(seed: int, top: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.permutation(6 * 9).reshape(6, 9).astype(np.float32)
    known = rng.random((6, 9)) < 0.3
    weights = np.where((rng.random((6, 9)) < 0.4) & ~known, rng.integers(1, 9, (6, 9)), 0).astype(float)
    found = gains(scores.copy(), csr_array(known.astype(float)), csr_array(weights), top)
    for user in range(6):
        ranked = [item for item in np.argsort(-scores[user]) if not known[user, item]][:top]
        count = np.count_nonzero(weights[user])
        if count:
            assert found[user] == pytest.approx(weights[user, ranked].sum() / min(top, count))
        else:
            assert np.isnan(found[user])


def test_weights_leave_the_pairs_as_they_were() -> None:
    pairs = csr_array(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]))
    before = pairs.toarray()
    assert weighted(pairs, np.array([0.0, 2.0, 0.0])).nnz == 2
    np.testing.assert_array_equal(pairs.toarray(), before)


def test_a_model_is_rated_batch_by_batch() -> None:
    rng = np.random.default_rng(0)
    known = csr_array((rng.random((1_100, 8)) < 0.3).astype(float))
    wanted = csr_array(((rng.random((1_100, 8)) < 0.3) & (known.toarray() == 0)).astype(float))
    complete = rate(lambda some: np.tile(np.arange(8, dtype=np.float32), (some.shape[0], 1)), known, wanted, top=3)
    np.testing.assert_array_equal(
        complete, gains(np.tile(np.arange(8, dtype=np.float32), (1_100, 1)), known, wanted, top=3)
    )
