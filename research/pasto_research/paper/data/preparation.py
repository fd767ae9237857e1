"""Preparation of a data set: the pairs that are used, and the split for testing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from pasto.errors import InputError
from pasto_research.paper.data.interactions import Interactions


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Pairs to train on and pairs to test with, users in rows and items in columns."""

    pairs: Interactions
    train: csr_array
    """(users, items) of ones."""
    test: csr_array
    """(users, items) of ones."""


def priced(pairs: Interactions, worth: str) -> Interactions:
    """Return only the items whose worth is known.

    >>> import numpy as np
    >>> both = Interactions("tiny", np.array([0, 0], np.int32), np.array([0, 1], np.int32), 1, 2,
    ...     {"price": np.array([4.5, np.nan])})
    >>> priced(both, "price").events
    1
    """
    return _kept(pairs, np.isfinite(pairs.worth[worth])[pairs.items])


def busiest(pairs: Interactions, count: int) -> Interactions:
    """Return the users with the most pairs and their items; the name states it if users are left out.

    >>> import numpy as np
    >>> some = Interactions("tiny", np.array([0, 1, 1], np.int32), np.array([0, 1, 2], np.int32), 2, 3)
    >>> busiest(some, 1).name, busiest(some, 1).item_count, busiest(some, 2).name
    ('tiny (the busiest 1 of 2 users)', 2, 'tiny')
    """
    if pairs.user_count <= count:
        return pairs
    order = np.argsort(-np.bincount(pairs.users, minlength=pairs.user_count), kind="stable")
    chosen = np.zeros(pairs.user_count, dtype=bool)
    chosen[order[:count]] = True
    name = f"{pairs.name} (the busiest {count:,} of {pairs.user_count:,} users)"
    return replace(_kept(pairs, chosen[pairs.users]), name=name)


def core(pairs: Interactions, least: int = 5) -> Interactions:
    """Return users and items with at least so many pairs each, leaving out the others until none is left to leave out.

    >>> import numpy as np
    >>> some = Interactions("tiny", np.array([0, 0, 1, 1, 2], np.int32), np.array([0, 1, 0, 1, 2], np.int32), 3, 3)
    >>> kept = core(some, least=2)
    >>> kept.user_count, kept.item_count, kept.events
    (2, 2, 4)
    """
    while True:
        users = np.bincount(pairs.users, minlength=pairs.user_count)
        items = np.bincount(pairs.items, minlength=pairs.item_count)
        enough = (users[pairs.users] >= least) & (items[pairs.items] >= least)
        if enough.all() and pairs.events:
            return _kept(pairs, enough)
        if not enough.any():
            raise InputError(f"{pairs.name}: no user and item have {least} pairs each; the data is too small")
        pairs = _kept(pairs, enough)


def split(pairs: Interactions, share: float = 0.7, seed: int = 1) -> Split:
    """Split each user's pairs into a random share for training (rounded up) and the rest for testing.

    >>> import numpy as np
    >>> ten = Interactions("tiny", np.zeros(10, np.int32), np.arange(10, dtype=np.int32), 1, 10)
    >>> halves = split(ten)
    >>> halves.train.nnz, halves.test.nnz
    (7, 3)
    """
    order = np.lexsort((np.random.default_rng(seed).random(pairs.events), pairs.users))
    counts = np.bincount(pairs.users, minlength=pairs.user_count)
    places = np.arange(pairs.events) - np.repeat(np.cumsum(counts) - counts, counts)
    training = places < np.repeat(np.ceil(np.round(share * counts, 9)), counts)
    return Split(pairs, _table(pairs, order[training]), _table(pairs, order[~training]))


def _table(pairs: Interactions, chosen: np.ndarray) -> csr_array:
    ones = np.ones(len(chosen), dtype=np.float32)
    found = csr_array((ones, (pairs.users[chosen], pairs.items[chosen])), shape=(pairs.user_count, pairs.item_count))
    found.sort_indices()
    return found


def _kept(pairs: Interactions, chosen: np.ndarray) -> Interactions:
    """Return the chosen pairs, without users and items that have none, and renumber the others."""
    users, user_codes = np.unique(pairs.users[chosen], return_inverse=True)
    items, item_codes = np.unique(pairs.items[chosen], return_inverse=True)
    return replace(
        pairs,
        users=user_codes.astype(np.int32),
        items=item_codes.astype(np.int32),
        user_count=len(users),
        item_count=len(items),
        worth={name: values[items] for name, values in pairs.worth.items()},
    )
