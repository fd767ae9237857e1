"""Ensemble sort: each user's own impressions ranked by a product of predictions, each to the power of its weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.errors import BadInput
from pasto.objective import Array


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Users' impressions, with the logarithms of what was predicted and what really came.

    >>> users = np.array([7, 7, 7])
    >>> lists = Lists.of(users, {"watch": np.array([1.0, 2.0, 3.0])}, {"seconds": np.array([10.0, 0.0, 30.0])}, 3, 2)
    >>> lists.shown({"watch": 1.0})                # the last two are shown
    array([[15.]])
    """

    users: NDArray[np.intp]
    """(impressions,): from 0, sorted."""
    starts: NDArray[np.intp]
    """(users,): each user's first impression."""
    logs: dict[str, Array]
    """(impressions,) each: ln of the predictions."""
    truth: dict[str, Array]
    """(impressions,) each: what came of an impression."""
    top: int

    @classmethod
    def of(
        cls, users: NDArray[np.int64], scores: Mapping[str, Array], truth: Mapping[str, Array], least: int, top: int
    ) -> Lists:
        """Of users with at least so many impressions, who must come sorted."""
        _, places, counts = np.unique(users, return_inverse=True, return_counts=True)
        kept = counts[places] >= least
        if not kept.any():
            raise BadInput(f"no user has {least} impressions")
        _, codes, sizes = np.unique(places[kept], return_inverse=True, return_counts=True)
        return cls(
            codes.astype(np.intp),
            np.cumsum(sizes) - sizes,
            {name: np.log(values[kept]) for name, values in scores.items()},
            {name: values[kept] for name, values in truth.items()},
            top,
        )

    def shown(self, weights: Mapping[str, float]) -> Array:
        """What each user's first impressions bring on average if ranked so, (kinds, users)."""
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
