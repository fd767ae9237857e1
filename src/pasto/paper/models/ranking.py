"""How good a ranking is: hits among each user's first twenty items, counted, priced, or of one genre only."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pasto.objective import Array

TOP = 20
Scores = NDArray[np.float32]
Scorer = Callable[[csr_array], Scores]
"""From users' known items, (users, items), to the scores of all items, of the same shape."""
ROWS = 512
"""Users ranked at once."""


def batches(count: int, size: int = ROWS) -> Iterator[slice]:
    """Slices that cover a range.

    >>> list(batches(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def gains(scores: Scores, known: csr_array, wanted: csr_array, top: int = TOP) -> Array:
    """Each user's wanted weights among the first `top`, over min(top, wanted items); NaN for users who want nothing.

    Known items are never ranked. With weights of one this is R@20; with prices it is REV@20, the mean price that a
    place of the list brings in; with ones for a genre's items only, that genre's recall. `scores` are changed in place.

    >>> import numpy as np
    >>> scores = np.array([[0.9, 0.8, 0.7, 0.1]], np.float32)
    >>> known, wanted = csr_array([[1.0, 0, 0, 0]]), csr_array([[0, 0, 1.0, 1.0]])
    >>> gains(scores, known, wanted, top=2)                  # the first two are items 1 and 2
    array([0.5])
    """
    return reached(scores, hide(scores, known, top), wanted, top)


def hide(scores: Scores, known: csr_array, top: int = TOP) -> Scores:
    """Put known items last, and return each user's score of the last place on the list, (users,)."""
    scores[np.repeat(np.arange(known.shape[0]), np.diff(known.indptr)), known.indices] = -np.inf
    return edge(scores, top)


def edge(scores: Scores, top: int = TOP) -> Scores:
    """The score of the last place on each user's list, (users,)."""
    if scores.shape[1] <= top:
        return np.full(len(scores), -np.inf, dtype=scores.dtype)
    return np.asarray(np.partition(scores, -top, axis=1)[:, -top])


def reached(scores: Scores, last: Scores, wanted: csr_array, top: int = TOP) -> Array:
    """As `gains`, where the score of the last place is known already."""
    users = np.repeat(np.arange(wanted.shape[0]), np.diff(wanted.indptr))
    return counted(scores[users, wanted.indices], last, wanted, top)


def counted(own: Scores, last: Scores, wanted: csr_array, top: int = TOP) -> Array:
    """As `reached`, of the scores of the wanted pairs alone, (pairs,)."""
    sizes = np.diff(wanted.indptr)
    users = np.repeat(np.arange(wanted.shape[0]), sizes)
    hits = np.bincount(
        users, weights=wanted.data * ((own >= last[users]) & np.isfinite(own)), minlength=wanted.shape[0]
    )
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(sizes > 0, hits / np.minimum(top, sizes), np.nan))


def weighted(pairs: csr_array, worth: Array) -> csr_array:
    """The pairs with their items' worth as weights; pairs worth nothing are left out.

    >>> import numpy as np
    >>> weighted(csr_array([[1.0, 1.0], [0.0, 1.0]]), np.array([2.5, 0.0])).toarray()
    array([[2.5, 0. ],
           [0. , 0. ]])
    """
    found = csr_array((worth[pairs.indices], pairs.indices, pairs.indptr), shape=pairs.shape, copy=True)
    found.eliminate_zeros()
    return found


def rate(score: Scorer, known: csr_array, wanted: csr_array, top: int = TOP) -> Array:
    """Each user's gain under a model, (users,), a batch of users at a time."""
    parts = [gains(score(known[rows]), known[rows], wanted[rows], top) for rows in batches(known.shape[0])]
    return np.concatenate(parts)
