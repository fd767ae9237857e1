"""Interactions of users with items: the common form of every data set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import InputError

Codes = NDArray[np.int32]
Block = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32] | None]
"""Users, items and stars of some rows; None where a row by itself is a yes."""


@dataclass(frozen=True, slots=True, eq=False)
class Interactions:
    """Pairs of a user and an item that the user liked, with what is known of the items.

    >>> import numpy as np
    >>> pairs = Interactions("tiny", np.array([0, 0, 1], np.int32), np.array([0, 1, 1], np.int32), 2, 2)
    >>> pairs.events
    3
    """

    name: str
    """Name of the data set, as in results."""
    users: Codes
    """(events,): from 0."""
    items: Codes
    """(events,): from 0."""
    user_count: int
    item_count: int
    worth: Mapping[str, FloatArray] = field(default_factory=dict)
    """(items,) each: a price, or 1 for the items of a genre; NaN where it is not known."""
    rows: int = 0
    """Read from the files, before anything was left out."""

    @property
    def events(self) -> int:
        """Number of pairs."""
        return len(self.users)


@dataclass(frozen=True, slots=True, eq=False)
class InteractionLog:
    """Log of the rows that count, with the identifiers of the file."""

    users: NDArray[np.int64]
    items: NDArray[np.int64]
    rows: int


def gather(blocks: Iterable[Block], least: float) -> InteractionLog:
    """Select the pairs with at least `least` stars, block by block, so that at most one block is in memory.

    >>> import numpy as np
    >>> block = (np.array([7, 7]), np.array([1, 2]), np.array([2.5, 3.0], np.float32))
    >>> gather([block], least=3.0).items
    array([2])
    """
    users, items, rows = [], [], 0
    for some_users, some_items, stars in blocks:
        rows += len(some_users)
        selected = slice(None) if stars is None else stars >= least
        users.append(some_users[selected].astype(np.int32, casting="same_kind"))
        items.append(some_items[selected].astype(np.int32, casting="same_kind"))
    if not rows:
        raise InputError("the file has no ratings at all")
    return InteractionLog(np.concatenate(users).astype(np.int64), np.concatenate(items).astype(np.int64), rows)


def numbered(
    name: str, found: InteractionLog, worth: Mapping[str, Mapping[int, float]] | None = None, missing: float = np.nan
) -> Interactions:
    """Return the pairs with users and items numbered from 0, once each, and the weight of each item.

    >>> import numpy as np
    >>> found = InteractionLog(np.array([7, 7, 7]), np.array([20, 10, 20]), 3)
    >>> pairs = numbered("tiny", found, {"price": {10: 4.5}})
    >>> pairs.events, pairs.worth["price"]
    (2, array([4.5, nan]))
    """
    users, user_codes = np.unique(found.users, return_inverse=True)
    items, item_codes = np.unique(found.items, return_inverse=True)
    pairs = np.unique(user_codes.astype(np.int64) * max(1, len(items)) + item_codes)
    return Interactions(
        name,
        (pairs // max(1, len(items))).astype(np.int32),
        (pairs % max(1, len(items))).astype(np.int32),
        len(users),
        len(items),
        {
            each: np.array([values.get(identity, missing) for identity in items.tolist()])
            for each, values in (worth or {}).items()
        },
        found.rows,
    )
