"""How long events are kept: rounds that were learned go to the archive, old files go, and a unit can be forgotten."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from pasto.errors import BadOption, UnknownStudy
from pasto.service.archive import Archive
from pasto.service.rounds.replay import replay
from pasto.service.spec import parse_spec
from pasto.store import AuditRow, Store, StudyRow

_HELD = "SELECT coalesce(version, 0), count(*) FROM events WHERE study = ? AND unit = ? GROUP BY 1"


class Keeping:
    """The upkeep of a store's events; every answer is plain JSON.

    >>> import tempfile
    >>> from pasto.store import open_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store("memory:")
    ...     Keeping(store, Archive(folder)).archive("feed")
    Traceback (most recent call last):
    pasto.errors.UnknownStudy: there is no study 'feed'; create it first, or check the name
    >>> store.close()
    """

    def __init__(self, store: Store, archive: Archive, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._archive = archive
        self._clock = clock

    def archive(self, name: str) -> dict[str, Any]:
        """Move the events of every round that was learned into the archive; may be done again at any time."""
        return self._archive.take(self._store, self._row(name))

    def drop(self, name: str, *, older: float) -> dict[str, Any]:
        """Delete archived events of rounds that were closed more than so many seconds ago; what they measured stays."""
        if not older >= 0:
            raise BadOption(f"older is {older!r}; it is a number of seconds, from 0")
        gone = self._archive.drop(self._store, self._row(name), self._clock() - older)
        return {"study": name, "rounds": gone}

    def forget(self, name: str, unit: str, *, who: str, reason: str = "") -> dict[str, Any]:
        """Delete all that is kept of a unit; aggregates stay, and the audit log says that and how much, not of whom.

        The answer comes when everything is done; where it does not come, ask again.
        """
        if not unit:
            raise BadOption("a unit must have at least one character, got ''")
        row = self._row(name)
        held = Counter(self._archive.holding(name, unit))
        query = _HELD.replace("?", "%s") if self._store.dialect == "postgres" else _HELD
        with self._store.reading() as connection:
            held.update({int(version): int(count) for version, count in connection.execute(query, (row.number, unit))})
        if held:
            detail = {"events": sum(held.values()), "rounds": {str(version): held[version] for version in sorted(held)}}
            line = AuditRow(self._clock(), who, "forget", reason, json.dumps(detail, separators=(",", ":")))
            # The record first: were it last, a death in between would leave a difference that nothing explains.
            self._store.forget(row.number, unit, line)
            self._archive.forget(name, unit)
        return {"study": name, "events": sum(held.values()), "rounds": sorted(version for version in held if version)}

    def replay(self, name: str) -> dict[str, Any]:
        """Compute every policy again, archived rounds included, and say whether each is identical."""
        row = self._row(name)
        return replay(self._store, parse_spec(json.loads(row.document)), row, self._archive)

    def _row(self, name: str) -> StudyRow:
        row = self._store.study(name)
        if row is None:
            raise UnknownStudy(f"there is no study {name!r}; create it first, or check the name")
        return row
