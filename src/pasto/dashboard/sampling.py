"""A study's past in at most a few hundred points, however long it is: rounds are sampled evenly, each read once."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from pasto.assign import WHOLE
from pasto.report.measured import CellMoments
from pasto.service.packing import clipped_of, whole_of
from pasto.store import Store

POINTS = 150
"""Rounds that one picture shows at most."""
LEADERS = 40
"""Candidates whose shares are kept of each policy; the others are counted together."""
KEPT = 4_000
"""Sampled rounds that are remembered, of all studies together."""
BATCH = 25
"""Rounds read at once where every one is wanted; of wide studies more would be a lot of text."""


@dataclass(frozen=True, slots=True)
class Served:
    """Who got what under one policy, without its control: the leaders, and all others together."""

    version: int
    state: str
    shares: tuple[tuple[str, float], ...]
    """The largest first."""
    others: float
    count: int
    """Candidates that were served."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one learning round measured: its control, and all that the learner served, as one cell each."""

    round: int
    control: CellMoments | None
    learner: CellMoments | None
    clipped: int


def sampled(first: int, last: int, points: int = POINTS) -> tuple[int, list[int]]:
    """The stride and the numbers to look at, both ends among them; strides double, so that points are met again.

    >>> sampled(1, 5)
    (1, [1, 2, 3, 4, 5])
    >>> sampled(1, 10, points=4)
    (4, [1, 4, 8, 10])
    """
    stride = 1
    while (last - first) // stride + 1 > points:
        stride *= 2
    inner = range(first + (-first) % stride, last + 1, stride)
    return stride, sorted({first, *inner, last}) if last >= first else []


class Samples:
    """Reads sampled policies and closes, and remembers them: both are written once and never change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._served: OrderedDict[tuple[int, int], Served] = OrderedDict()
        self._seen: OrderedDict[tuple[int, int], tuple[tuple[Seen, ...], tuple[Seen, ...]]] = OrderedDict()
        """What closes learned from, and what they corrected of rounds before."""
        self._lock = Lock()

    def served(self, study: int, versions: Sequence[int]) -> list[Served]:
        """The policies of these versions, as far as there are such."""
        found = self._all(self._served, study, versions, self._read_policies)
        return [found[version] for version in versions if version in found]

    def seen(self, study: int, rounds: Sequence[int]) -> list[Seen]:
        """What the closes of these rounds learned from, in order of the rounds learned."""
        found = self._all(self._seen, study, rounds, self._read_closes)
        closes = [found[close] for close in rounds if close in found]
        learned = {one.round: one for new, _ in closes for one in new}
        learned |= {one.round: one for _, corrected in closes for one in corrected if one.round in learned}
        return [learned[number] for number in sorted(learned)]

    def _all(self, kept: OrderedDict[tuple[int, int], Any], study: int, wanted: Sequence[int], read: Any) -> Any:
        with self._lock:
            found = {number: kept[study, number] for number in wanted if (study, number) in kept}
        for first, count in _runs([number for number in wanted if number not in found]):
            new = read(study, first, count)
            found |= new
            with self._lock:
                kept.update({(study, number): one for number, one in new.items()})
                while len(kept) > KEPT:
                    kept.popitem(last=False)
        return found

    def _read_policies(self, study: int, first: int, count: int) -> dict[int, Served]:
        return {row.version: _served(row.text) for row in self._store.policies(study, after=first - 1, limit=count)}

    def _read_closes(self, study: int, first: int, count: int) -> dict[int, tuple[tuple[Seen, ...], ...]]:
        found = {}
        for row in self._store.closes(study, after=first - 1, limit=count):
            told = json.loads(row.observed)
            found[row.round] = tuple(tuple(map(_seen, told.get(kind, ()))) for kind in ("rounds", "corrected"))
        return found


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring numbers as first and count, few enough of them at once.

    >>> _runs([1, 2, 3, 8, 12, 13])
    [(1, 3), (8, 1), (12, 2)]
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and sum(found[-1]) == number and found[-1][1] < BATCH:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((number, 1))
    return found


def _served(text: str) -> Served:
    document = json.loads(text)
    names = {one["index"]: one["name"] for one in document["candidates"]}
    shares: dict[int, float] = {}
    before = 0
    for cell in document["cells"]:
        width, before = cell["until"] - before, cell["until"]
        if cell["arm"] != "control":
            shares[cell["candidate"]] = shares.get(cell["candidate"], 0.0) + width / WHOLE
    whole = sum(shares.values()) or 1.0
    largest = sorted(shares.items(), key=lambda share: (-share[1], share[0]))
    leaders = tuple((names[k], share / whole) for k, share in largest[:LEADERS])
    others = sum(share for _, share in largest[LEADERS:]) / whole
    return Served(document["version"], document["state"], leaders, others, len(shares))


def _seen(one: dict[str, Any]) -> Seen:
    cells = one["moments"]
    return Seen(one["round"], whole_of(cells, "control"), whole_of(cells, "learner"), sum(clipped_of(cells)))
