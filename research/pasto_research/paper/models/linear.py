"""EASE (Steck 2019): a linear model of items on items, in closed form."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack
from scipy.sparse import csr_array

from pasto_research.paper.models.ranking import Scorer, Scores

RIDGE = 500.0
"""λ, of the order that its author recommends for data of this density."""


def ease(train: csr_array, ridge: float = RIDGE) -> Scorer:
    """Fit a ridge regression of each item on all others: B = I − P/diag(P) with P = (XᵀX + λI)⁻¹.

    >>> import numpy as np
    >>> taken = csr_array(np.array([[1.0, 1, 0], [1, 1, 0], [0, 0, 1]]))
    >>> ease(taken, ridge=1.0)(csr_array([[1.0, 0, 0]])).round(2)
    array([[0.  , 0.67, 0.  ]], dtype=float32)
    """
    gram = (train.T @ train).toarray().astype(np.float64)
    gram[np.diag_indices_from(gram)] += ridge
    factor, _ = lapack.dpotrf(gram, lower=1, overwrite_a=1)
    lower, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)  # a third of the work of solving for every column
    inverse = np.tril(lower) + np.tril(lower, -1).T
    weights = (-inverse / np.diag(inverse)).astype(np.float32)
    np.fill_diagonal(weights, 0.0)

    def score(history: csr_array) -> Scores:
        return np.asarray(history.astype(np.float32) @ weights)

    return score


def popularity(train: csr_array) -> Scorer:
    """Return scores of items by their number of users; of equal ones, the first is ranked first.

    >>> score = popularity(csr_array([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]]))
    >>> score(csr_array([[0.0, 0.0, 1.0]])).argmax()
    np.int64(1)
    """
    counts = np.bincount(train.indices, minlength=train.shape[1])
    order = np.lexsort((np.arange(len(counts)), -counts))
    places = np.empty(len(counts), dtype=np.float32)
    places[order] = -np.arange(len(counts), dtype=np.float32)

    def score(history: csr_array) -> Scores:
        return np.tile(places, (history.shape[0], 1))

    return score
