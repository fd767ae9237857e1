from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from pasto_research.paper.models.ranking import LOWEST, Scores, contenders, gains, mixed

ALPHAS = [0.0, 0.125, 0.3, 0.5, 0.77, 1.0]


def some_scores(users: int, items: int, alike: float, seed: int) -> tuple[Scores, Scores]:
    """Return the scores of two models that agree more or less, with repeated values and so with ties."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(users, items))
    first, second = (np.round(alike * common + rng.normal(size=(users, items)), 1) for _ in range(2))
    return first.astype(np.float32), second.astype(np.float32)


@given(st.integers(2, 300), st.integers(1, 20), st.floats(-3, 3), st.integers(0, 10_000))
def test_contenders_are_all_that_the_edge_of_a_list_depends_on(items: int, top: int, alike: float, seed: int) -> None:
    first, second = some_scores(3, items, alike, seed)
    likely = contenders(first, second, top)
    if items <= top:
        assert likely[0] is first
        return
    for alpha in np.array(ALPHAS, dtype=np.float32):
        complete = np.sort(alpha * first + np.float32(1 - alpha) * second, axis=1)[:, -top]
        part = np.sort(alpha * likely[0] + np.float32(1 - alpha) * likely[1], axis=1)[:, -top]
        np.testing.assert_array_equal(part, complete)


def test_models_that_agree_leave_few_contenders() -> None:
    first, _ = some_scores(5, 1_000, 1.0, 1)
    likely, other = contenders(first, first, 20)
    assert likely.shape == other.shape == (5, 21)
    assert (likely[:, -1] == LOWEST).all()


@given(st.integers(1, 3), st.integers(0, 1_000))
def test_a_mixture_ranks_as_the_product_of_powers_does(top: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    users, items = 8, 12
    first, second = (rng.permuted(np.tile(np.arange(items), (users, 1)), axis=1).astype(np.float32) for _ in range(2))
    known = rng.random((users, items)) < 0.3
    wanted = (rng.random((users, items)) < 0.4) & ~known
    pairs, others = csr_array(known.astype(float)), csr_array(wanted * np.arange(1.0, items + 1))
    found = mixed(lambda _: first.copy(), lambda _: second.copy(), pairs, {"worth": others}, ALPHAS, top=top)
    for place, alpha in enumerate(ALPHAS):
        powers = np.exp(first.astype(float)) ** alpha * np.exp(second.astype(float)) ** (1 - alpha)
        ordered = np.sort(np.where(known, -1e9, np.log(powers)), axis=1)[:, ::-1]
        clear = np.abs(ordered[:, top - 1] - ordered[:, top]) > 1e-4
        expected = gains(np.log(powers).astype(np.float32), pairs, others, top)
        np.testing.assert_allclose(found[0, place][clear], expected[clear], rtol=1e-6)
