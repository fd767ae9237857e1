"""Late corrections once more: which rounds were open at each close, and what late events changed in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pasto.measure import Moments
from pasto.service.details import Waiting
from pasto.service.packing import read_cells
from pasto.service.rounds.again import Again
from pasto.service.rounds.close import lesson
from pasto.service.rounds.late import revision, stirred
from pasto.service.rounds.step import Lesson, Revision
from pasto.service.spec import Spec
from pasto.store import CloseRow, Store, StudyRow


class Reopened:
    """The rounds that were open to correction, close by close, and what each was known to have measured."""

    def __init__(self, store: Store, spec: Spec, row: StudyRow, measuring: Again) -> None:
        self._store = store
        self._spec = spec
        self._study = row.number
        self._measuring = measuring
        self._known: dict[int, tuple[Waiting, tuple[Moments, ...]]] = {}
        self._mark = 0
        self.corrected: dict[int, tuple[Moments, ...]] = {}
        """By the close at hand."""

    def measure(self, close: CloseRow, told: Mapping[str, Any]) -> bool:
        """Correct what events since the last close corrected; whether that is what was recorded."""
        claimed = {one["round"]: read_cells(one["moments"]) for one in told.get("corrected", ())}
        self.corrected = {}
        moved = stirred(self._store, self._study, self._known, self._mark, close.high_water)
        self._mark = close.high_water
        if not claimed.keys() <= self._known.keys():
            return False
        for number in sorted(moved | claimed.keys()):
            one, before = self._known[number]
            now = self._measuring.measure(one, close.high_water, claimed.get(number, before), told["engine"])
            if now is None or now != claimed.get(number, before):
                return False
            if number in claimed:
                self.corrected[number] = now
                self._known[number] = one, now
        return True

    def revision(self, told: Mapping[str, Any]) -> Revision:
        """What the learner was told of the rounds it knew."""
        settled = {one["round"] for one in told.get("settled", ())}
        due = [one["round"] for one in told["rounds"]]
        stay = {*self._known, *(one["round"] for one in told["rounds"] if one.get("open"))} - settled
        return revision([*self._known], self.corrected, due, stay, self._lesson)

    def add(self, rounds: Iterable[tuple[Waiting, Sequence[Moments]]], told: Mapping[str, Any]) -> None:
        """Take in the rounds that the close learned and left open, and let go of those that it made final."""
        for one in told.get("settled", ()):
            self._known.pop(one["round"], None)
        kept = {one["round"] for one in told["rounds"] if one.get("open")}
        self._known |= {one.round: (one, tuple(moments)) for one, moments in rounds if one.round in kept}

    def _lesson(self, number: int) -> Lesson:
        return lesson(self._spec, *self._known[number])
