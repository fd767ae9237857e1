"""Two models mixed in one ranking, s = p₁^α · p₂^(1−α), for every user and many α at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pasto.paper.models.ranking import ROWS, TOP, Scorer, batches, edge, reached
from pasto.sim import Progress

LOWEST = np.float32(-1e9)
"""The score of what is never ranked: below any logit, and still a number when it is weighted by zero."""


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
        users = np.repeat(np.arange(some.shape[0]), np.diff(some.indptr))
        base, step = second(some), first(some)
        for scores in (base, step):
            scores[users, some.indices] = LOWEST
        step -= base
        parts = [each[rows] for each in wanted.values()]
        scores = np.empty_like(base)
        for place, alpha in enumerate(alphas):
            np.multiply(step, np.float32(alpha), out=scores)
            scores += base
            last = edge(scores, top)
            for kind, part in enumerate(parts):
                found[kind, place, rows] = reached(scores, last, part, top)
        if progress is not None:
            progress(label, rows.stop, known.shape[0])
    return found
