"""Ranking quality: hits among each user's first twenty items, counted, priced, or of one genre only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pasto.arrays import FloatArray
from pasto.errors import InputError
from pasto.sim import Progress

TOP = 20

Scores = NDArray[np.float32]

Scorer = Callable[[csr_array], Scores]
"""From users' known items, (users, items), to the scores of all items, of the same shape."""

ROWS = 512
"""Users ranked at once."""


def batches(count: int, size: int = ROWS) -> Iterator[slice]:
    """Return slices that cover a range.

    >>> list(batches(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def gains(scores: Scores, history: csr_array, held_out: csr_array, top: int = TOP) -> FloatArray:
    """Return each user's wanted weights among the first `top`, over min(top, wanted items); NaN if there are none.

    Known items are never ranked. With weights of one this is R@20; with prices it is REV@20, the mean price that a
    place of the list brings in; with ones for a genre's items only, that genre's recall. `scores` are changed in place.

    >>> import numpy as np
    >>> scores = np.array([[0.9, 0.8, 0.7, 0.1]], np.float32)
    >>> known, wanted = csr_array([[1.0, 0, 0, 0]]), csr_array([[0, 0, 1.0, 1.0]])
    >>> gains(scores, known, wanted, top=2)                  # the first two are items 1 and 2
    array([0.5])
    """
    return reached(scores, hide(scores, history, top), held_out, top)


def hide(scores: Scores, history: csr_array, top: int = TOP) -> Scores:
    """Put known items last, and return each user's score of the last place on the list, (users,)."""
    scores[np.repeat(np.arange(history.shape[0]), np.diff(history.indptr)), history.indices] = -np.inf
    return edge(scores, top)


def edge(scores: Scores, top: int = TOP) -> Scores:
    """Return the score of the last place on each user's list, (users,)."""
    if scores.shape[1] <= top:
        return np.full(len(scores), -np.inf, dtype=scores.dtype)
    return np.asarray(np.partition(scores, -top, axis=1)[:, -top])


def reached(scores: Scores, last: Scores, held_out: csr_array, top: int = TOP) -> FloatArray:
    """Return `gains`, given the score of the last place."""
    users = np.repeat(np.arange(held_out.shape[0]), np.diff(held_out.indptr))
    return counted(scores[users, held_out.indices], last, held_out, top)


def counted(own: Scores, last: Scores, held_out: csr_array, top: int = TOP) -> FloatArray:
    """Return `reached` from the scores of the wanted pairs alone, (pairs,)."""
    sizes = np.diff(held_out.indptr)
    users = np.repeat(np.arange(held_out.shape[0]), sizes)
    hits = np.bincount(
        users, weights=held_out.data * ((own >= last[users]) & np.isfinite(own)), minlength=held_out.shape[0]
    )
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(sizes > 0, hits / np.minimum(top, sizes), np.nan))


def weighted(pairs: csr_array, worth: FloatArray) -> csr_array:
    """Return the pairs weighted by their items; pairs of weight zero are left out.

    >>> import numpy as np
    >>> weighted(csr_array([[1.0, 1.0], [0.0, 1.0]]), np.array([2.5, 0.0])).toarray()
    array([[2.5, 0. ],
           [0. , 0. ]])
    """
    found = csr_array((worth[pairs.indices], pairs.indices, pairs.indptr), shape=pairs.shape, copy=True)
    found.eliminate_zeros()
    return found


def rate(score: Scorer, history: csr_array, held_out: csr_array, top: int = TOP) -> FloatArray:
    """Return each user's gain under a model, (users,), a batch of users at a time."""
    parts = [gains(score(history[rows]), history[rows], held_out[rows], top) for rows in batches(history.shape[0])]
    return np.concatenate(parts)


LOWEST = np.float32(-1e9)
"""The score of what is never ranked: below any logit, and still a number when it is weighted by zero."""

BLOCK = 64
"""Items looked at together when contenders are sought."""


def mixed(
    first: Scorer,
    second: Scorer,
    history: csr_array,
    held_out: Mapping[str, csr_array],
    alphas: Sequence[float],
    *,
    top: int = TOP,
    progress: Progress | None = None,
    label: str = "",
) -> NDArray[np.float32]:
    """Return each user's gain of each kind at each α, (kinds, alphas, users); NaN where a user wants nothing of a kind.

    Models score in logits: what a softmax would subtract is the same for all items of a user, so it moves no ranking.
    """
    found = np.empty((len(held_out), len(alphas), history.shape[0]), dtype=np.float32)
    for rows in batches(history.shape[0], ROWS):
        some = history[rows]
        scores = first(some), second(some)
        for score_matrix in scores:
            score_matrix[_users(some), some.indices] = LOWEST
        parts = [each[rows] for each in held_out.values()]
        own = [tuple(score_matrix[_users(part), part.indices] for score_matrix in scores) for part in parts]
        likely = contenders(*scores, top)
        for place, alpha in enumerate(alphas):
            last = edge(_mix(likely, alpha), top)
            for kind, part in enumerate(parts):
                found[kind, place, rows] = counted(_mix(own[kind], alpha), last, part, top)
        if progress is not None:
            progress(label, rows.stop, history.shape[0])
    return found


def contenders(first: Scores, second: Scores, top: int = TOP) -> tuple[Scores, Scores]:
    """Return both models' scores of all items that are among a user's first `top` at some α, and some more.

    (users, most contenders) each; users with fewer have `LOWEST` in the places left over. An item that `top` others
    equal or surpass in both scores is not among the first at any α, and mostly that leaves a few in a hundred.

    >>> first = np.arange(1_000, dtype=np.float32)[None]
    >>> contenders(first, first, top=3)[0].tolist()                # models that agree leave three, and a place over
    [[999.0, 998.0, 997.0, -1000000000.0]]
    """
    users, items = first.shape
    if items <= top:
        return first, second
    order = np.argsort(-first, axis=1)
    first, second = np.take_along_axis(first, order, axis=1), np.take_along_axis(second, order, axis=1)
    candidates = np.ones((users, items), dtype=bool)
    best = second[:, :top]
    for start in range(top, items, BLOCK):
        block = second[:, start : start + BLOCK]
        candidates[:, start : start + BLOCK] = block > best.min(axis=1, keepdims=True)
        best = np.partition(np.concatenate([best, block], axis=1), -top, axis=1)[:, -top:]
    counts = candidates.sum(axis=1)
    rows, columns = np.nonzero(candidates)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    found = np.full((2, users, max(top + 1, int(counts.max()))), LOWEST)
    for scores, one in zip(found, (first, second), strict=True):
        scores[rows, places] = one[rows, columns]
    return found[0], found[1]


def _mix(scores: tuple[Scores, ...], alpha: float) -> Scores:
    """Mix two scores; products are rounded first, so an item lower in both is never higher in the sum."""
    first, second = scores
    return np.asarray(np.float32(alpha) * first + np.float32(1.0 - alpha) * second)


def _users(pairs: csr_array) -> NDArray[np.intp]:
    return np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Users' impressions, with the logarithms of what was predicted and what really came.

    >>> users = np.array([7, 7, 7])
    >>> lists = Lists.of(users, {"watch": np.array([1.0, 2.0, 3.0])}, {"seconds": np.array([10.0, 0.0, 30.0])}, 3, 2)
    >>> lists.top_values({"watch": 1.0})                # the last two are shown
    array([[15.]])
    """

    users: NDArray[np.intp]
    """(impressions,): from 0, sorted."""
    starts: NDArray[np.intp]
    """(users,): each user's first impression."""
    logs: dict[str, FloatArray]
    """(impressions,) each: ln of the predictions."""
    truth: dict[str, FloatArray]
    """(impressions,) each: what came of an impression."""
    top: int

    @classmethod
    def of(
        cls,
        users: NDArray[np.int64],
        scores: Mapping[str, FloatArray],
        truth: Mapping[str, FloatArray],
        least: int,
        top: int,
    ) -> Lists:
        """Return the lists of users with at least `least` impressions; users must be sorted."""
        _, places, counts = np.unique(users, return_inverse=True, return_counts=True)
        candidates = counts[places] >= least
        if not candidates.any():
            raise InputError(f"no user has {least} impressions")
        _, codes, sizes = np.unique(places[candidates], return_inverse=True, return_counts=True)
        return cls(
            codes.astype(np.intp),
            np.cumsum(sizes) - sizes,
            {name: np.log(values[candidates]) for name, values in scores.items()},
            {name: values[candidates] for name, values in truth.items()},
            top,
        )

    def top_values(self, weights: Mapping[str, float]) -> FloatArray:
        """Return the mean feedback of each user's first impressions under this ranking, (kinds, users)."""
        score = sum((weight * self.logs[name] for name, weight in weights.items()), np.zeros(len(self.users)))
        order = np.lexsort((-score, self.users))
        places = np.arange(len(order)) - self.starts[self.users[order]]
        first = order[places < self.top]
        return np.array(
            [
                np.bincount(self.users[first], weights=values[first], minlength=len(self.starts)) / self.top
                for values in self.truth.values()
            ]
        )
