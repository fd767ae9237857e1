"""Two models mixed in one ranking, s = p₁^α · p₂^(1−α), for every user and many α at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pasto.paper.models.ranking import ROWS, TOP, Scorer, Scores, batches, counted, edge
from pasto.sim import Progress

LOWEST = np.float32(-1e9)
"""The score of what is never ranked: below any logit, and still a number when it is weighted by zero."""
BLOCK = 64
"""Items looked at together when contenders are sought."""


def mixed(
    first: Scorer,
    second: Scorer,
    known: csr_array,
    wanted: Mapping[str, csr_array],
    alphas: Sequence[float],
    *,
    top: int = TOP,
    progress: Progress | None = None,
    label: str = "",
) -> NDArray[np.float32]:
    """Each user's gain of each kind at each α, (kinds, alphas, users); NaN where a user wants nothing of a kind.

    Models score in logits: what a softmax would subtract is the same for all items of a user, so it moves no ranking.
    """
    found = np.empty((len(wanted), len(alphas), known.shape[0]), dtype=np.float32)
    for rows in batches(known.shape[0], ROWS):
        some = known[rows]
        scores = first(some), second(some)
        for one in scores:
            one[_users(some), some.indices] = LOWEST
        parts = [each[rows] for each in wanted.values()]
        own = [tuple(one[_users(part), part.indices] for one in scores) for part in parts]
        likely = contenders(*scores, top)
        for place, alpha in enumerate(alphas):
            last = edge(_mix(likely, alpha), top)
            for kind, part in enumerate(parts):
                found[kind, place, rows] = counted(_mix(own[kind], alpha), last, part, top)
        if progress is not None:
            progress(label, rows.stop, known.shape[0])
    return found


def contenders(first: Scores, second: Scores, top: int = TOP) -> tuple[Scores, Scores]:
    """Both models' scores of all items that are among a user's first `top` at some α, and some more.

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
    kept = np.ones((users, items), dtype=bool)
    best = second[:, :top]
    for start in range(top, items, BLOCK):
        block = second[:, start : start + BLOCK]
        kept[:, start : start + BLOCK] = block > best.min(axis=1, keepdims=True)
        best = np.partition(np.concatenate([best, block], axis=1), -top, axis=1)[:, -top:]
    counts = kept.sum(axis=1)
    rows, columns = np.nonzero(kept)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    found = np.full((2, users, max(top + 1, int(counts.max()))), LOWEST)
    for scores, one in zip(found, (first, second), strict=True):
        scores[rows, places] = one[rows, columns]
    return found[0], found[1]


def _mix(scores: tuple[Scores, ...], alpha: float) -> Scores:
    """Each product is rounded before they are added, so an item behind in both scores is never ahead in the sum."""
    first, second = scores
    return np.asarray(np.float32(alpha) * first + np.float32(1.0 - alpha) * second)


def _users(pairs: csr_array) -> NDArray[np.intp]:
    return np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
