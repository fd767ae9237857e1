"""Source health: the failures to read a team's tables when a round was last measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pasto.errors import SourceError, StoreError
from pasto.store import Store, StudyRow


class SourceHealth:
    """Last failure of each study's source, stored so that every node and command can show it.

    >>> from pasto.store import open_store
    >>> store = open_store("memory:")
    >>> row = StudyRow("feed", 1, 1, "learning", "{}", 7, 3, 3, 0.0, 0.0)
    >>> health = SourceHealth(store, lambda: 60.0)
    >>> health.record_failure(row, SourceError("no such column"))
    >>> health.problem(row)
    {'message': 'no such column', 'round': 3, 'since': 60.0}
    >>> health.record_success(row)
    >>> health.problem(row) is None
    True
    >>> store.close()
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    def problem(self, row: StudyRow) -> dict[str, Any] | None:
        """Return the problem of a study's source with its round and start; None if the source works."""
        problem: dict[str, Any] | None = json.loads(self._store.read_cache(_name(row)) or "null")
        return problem

    def record_failure(self, row: StudyRow, error: SourceError) -> None:
        """Store why a round could not be measured; the time of the first failure in a row stays."""
        before = self.problem(row)
        now = {
            "message": str(error),
            "round": row.round,
            "since": self._clock() if before is None else before["since"],
        }
        if now != before:
            self._write(row, json.dumps(now))

    def record_success(self, row: StudyRow) -> None:
        """Store that a round was measured."""
        if self.problem(row) is not None:
            self._write(row, "null")

    def _write(self, row: StudyRow, text: str) -> None:
        with suppress(StoreError):  # the failure itself is raised, and must not be hidden by this one
            self._store.write_cache(_name(row), text)


def _name(row: StudyRow) -> str:
    return f"source/{row.number}"
