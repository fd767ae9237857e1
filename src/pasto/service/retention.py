"""How long events are kept: rounds that were learned go to the archive, old files go, and a unit can be forgotten."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from pasto.errors import OptionError, UnknownStudyError
from pasto.service.archive import Archive
from pasto.service.rounds.replay import replay_study
from pasto.service.study_file import parse_spec
from pasto.service.study_state import StudyState, identity_of
from pasto.store import AuditRow, Store, StudyRow


class Retention:
    """The upkeep of a store's events; every answer is plain JSON.

    >>> import tempfile
    >>> from pasto.store import open_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store("memory:")
    ...     Retention(store, Archive(folder)).archive("feed")
    Traceback (most recent call last):
    pasto.errors.UnknownStudyError: there is no study 'feed'; create it first, or check the name
    >>> store.close()
    """

    def __init__(self, store: Store, archive: Archive, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._archive = archive
        self._clock = clock

    def archive(self, name: str, *, older: float = 0.0) -> dict[str, Any]:
        """Move the events of rounds that were learned so many seconds ago to the archive; may be done again."""
        before = self._clock() - older if older else math.inf
        row = self._row(name)
        with self._archive.alone():
            return self._archive.take(self._store, row, before)

    def drop(self, name: str, *, older: float) -> dict[str, Any]:
        """Delete archived events of rounds that were closed more than so many seconds ago; what they measured stays."""
        if not older >= 0:
            raise OptionError(f"older is {older!r}; it is a number of seconds, from 0")
        row = self._row(name)
        with self._archive.alone():
            gone = self._archive.drop(self._store, row, self._clock() - older)
        return {"study": name, "rounds": gone}

    def forget(self, name: str, unit: str, *, who: str, reason: str = "") -> dict[str, Any]:
        """Delete all that is kept of a unit; aggregates stay, and the audit log says that and how much, not of whom.

        The answer comes when everything is done; where it does not come, ask again.
        """
        if not unit:
            raise OptionError("a unit must have at least one character, got ''")
        row = self._row(name)
        with self._archive.alone():
            held = Counter(self._archive.holding(identity_of(row), unit))
            places = self._store.find_unit_events(row.number, unit)
            held.update(version for _, version in places)
            if held:
                rounds = {str(version): held[version] for version in sorted(held)}
                detail = json.dumps({"events": held.total(), "rounds": rounds}, separators=(",", ":"))
                line = AuditRow(self._clock(), who, "forget", reason, detail)
                # The record first: were it last, a death in between would leave a difference that nothing explains.
                self._store.erase_unit(row.number, unit, line, [sequence for sequence, _ in places])
                self._archive.forget(identity_of(row), unit)
        return {"study": name, "events": held.total(), "rounds": sorted(version for version in held if version)}

    def replay(self, name: str) -> dict[str, Any]:
        """Compute every policy again, archived rounds included, and say whether each is identical."""
        row = self._row(name)
        return replay_study(self._store, parse_spec(json.loads(row.study_file), stored=True), row, self._archive)

    def _row(self, name: str) -> StudyRow:
        row = self._store.read_study(name)
        if row is None:
            raise UnknownStudyError(f"there is no study {name!r}; create it first, or check the name")
        return row


def trim_rows(store: Store, row: StudyRow) -> int:
    """Let go of exposures that nothing can be credited to any more; how many.

    What may still be learned from is the policy that is served, and those of rounds that wait for late events or are
    open to correction.
    """
    details = StudyState.from_text(row.details)
    known = [one.round for one in details.waiting] + [one.waiting.round for one in details.correctable]
    served = row.version + (row.state == "archived")
    return store.delete_latest_exposures(row.number, min([served, *known]))
