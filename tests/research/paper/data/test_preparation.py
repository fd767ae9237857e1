from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasto.errors import InputError
from pasto_research.paper.data import Interactions, busiest, core, priced, split

PAIRS = st.sets(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1)


def of(pairs: set[tuple[int, int]], worth: list[float] | None = None) -> Interactions:
    users, items = np.array(sorted(pairs), dtype=np.int32).T
    known = {} if worth is None else {"price": np.array(worth)}
    return Interactions("tiny", users, items, 13, 13, known)


def filter_one_by_one(pairs: set[tuple[int, int]], least: int) -> set[tuple[int, int]]:
    """Remove one user or item at a time, until all have enough ratings."""
    left = set(pairs)
    while True:
        for side in (0, 1):
            for one in {pair[side] for pair in left}:
                if sum(pair[side] == one for pair in left) < least:
                    left = {pair for pair in left if pair[side] != one}
                    break
            else:
                continue
            break
        else:
            return left


@given(PAIRS, st.integers(1, 4))
def test_the_core_is_the_largest_set_in_which_all_have_enough(pairs: set[tuple[int, int]], least: int) -> None:
    expected = filter_one_by_one(pairs, least)
    if not expected:
        with pytest.raises(InputError, match="the data is too small"):
            core(of(pairs), least)
        return
    selected = core(of(pairs), least)
    assert selected.events == len(expected)
    assert selected.user_count == len({user for user, _ in expected})
    assert selected.item_count == len({item for _, item in expected})
    assert np.bincount(selected.users).min() >= least
    assert np.bincount(selected.items).min() >= least


def test_items_keep_their_worth_when_others_are_left_out() -> None:
    pairs = of({(0, 0), (0, 2), (1, 2), (1, 5)}, [float(item) for item in range(13)])
    assert core(pairs, 1).worth["price"].tolist() == [0.0, 2.0, 5.0]
    assert core(pairs, 1).events == 4
    worth = [np.nan if item == 2 else 1.0 for item in range(13)]
    assert priced(of({(0, 0), (0, 2), (1, 2), (1, 5)}, worth), "price").events == 2


@given(PAIRS, st.floats(0.05, 0.95), st.integers(0, 3))
def test_a_split_parts_each_users_pairs(pairs: set[tuple[int, int]], share: float, seed: int) -> None:
    found = split(of(pairs), share, seed)
    assert found.train.multiply(found.test).nnz == 0
    both = (found.train + found.test).toarray()
    assert {(int(user), int(item)) for user, item in zip(*np.nonzero(both), strict=True)} == pairs
    counts = np.bincount([user for user, _ in pairs], minlength=13)
    np.testing.assert_array_equal(found.train.sum(axis=1), np.ceil(np.round(share * counts, 9)))


def test_a_split_is_random_and_the_seed_decides() -> None:
    pairs = of({(user, item) for user in range(13) for item in range(13)})
    first, again, other = (split(pairs, seed=seed).train.toarray() for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    assert len({tuple(row) for row in first.tolist()}) > 5


@given(PAIRS, st.integers(1, 14))
def test_the_busiest_users_keep_all_their_pairs(pairs: set[tuple[int, int]], count: int) -> None:
    all_pairs = core(of(pairs), 1)
    selected = busiest(all_pairs, count)
    before = sorted(np.bincount(all_pairs.users).tolist(), reverse=True)
    assert sorted(np.bincount(selected.users).tolist(), reverse=True) == before[:count]
    assert selected.item_count == len(np.unique(selected.items))
    assert (selected.name == "tiny") == (count >= all_pairs.user_count)
