"""The report: the answer so far, how the policy came about, and the books."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

from pasto.errors import NothingLearned, PastoError
from pasto.service.accounting import Ledger
from pasto.service.answer import shown, with_joint_bound
from pasto.service.board import Standing
from pasto.service.details import Details
from pasto.service.generation_cache import GenerationCache
from pasto.service.overview import closed
from pasto.service.rounds.held_rounds import held_rounds
from pasto.service.rounds.sender_check import SenderRecord, describe_departures, read_record
from pasto.service.rounds.step import unchanged
from pasto.store import Store

HISTORY = 100
"""Closed rounds that a report shows, the latest ones."""


class Reporter:
    """Reports on studies; what only changes with a close is computed once for each."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._learned: GenerationCache[tuple[dict[str, Any], tuple[str, ...]]] = GenerationCache()
        self._records: dict[int, tuple[int, SenderRecord | None]] = {}
        self._ledgers: dict[int, Ledger] = {}
        self._lock = Lock()

    def report(self, standing: Standing) -> dict[str, Any]:
        """Everything that is known of a study."""
        row, spec = standing.row, standing.spec
        learned, names = self._learned.get(row.number, row.generation, lambda: self._fresh(standing))
        return {
            "name": row.name,
            "state": row.state,
            "round": row.round,
            "version": row.version,
            "metrics": list(spec.metrics),
            **learned,
            "accounting": self._accounting(standing, names) if row.version else None,
        }

    def _accounting(self, standing: Standing, names: Sequence[str]) -> dict[str, Any]:
        row, spec = standing.row, standing.spec
        with self._lock:
            known = self._records.get(row.number)
        if known is None or known[0] != row.generation:
            known = row.generation, read_record(self._store, row.number, row.round - 1)
            with self._lock:
                self._records[row.number] = known
        record = known[1]
        shown = self._ledger(row.number).shown(names, [column.name for column in spec.columns], record)
        return {**shown, "departures": [] if record is None else describe_departures(spec, record, names)}

    def keep_up(self, study: int) -> None:
        """Bring a study's books up to date."""
        self._ledger(study).keep_up()

    def _ledger(self, study: int) -> Ledger:
        with self._lock:
            return self._ledgers.setdefault(study, Ledger(self._store, study))

    def _fresh(self, standing: Standing) -> tuple[dict[str, Any], tuple[str, ...]]:
        row, hard = standing.row, standing.spec.objective.hard
        details = Details.from_text(row.details)
        found: dict[str, Any] = {
            "rounds_learned": 0,
            "blend": None,
            "problem": None,
            "frozen": None if details.frozen is None else with_joint_bound(details.frozen.answer, hard),
            "waiting": [one.round for one in details.waiting],
            "held": held_rounds(details),
            "policy": [],
            "history": [],
        }
        saved = self._store.learner(row.number) if row.version else None
        if saved is None:
            return found, ()
        study = unchanged(saved).study
        names = tuple(study.candidates.names)
        found["rounds_learned"] = study.rounds
        found["policy"] = [
            {"name": name, "probability": share}
            for name, share in zip(names, study.policy.probabilities, strict=True)
            if share > 0
        ]
        try:
            found["blend"] = with_joint_bound(shown(study.blend()), hard)
        except NothingLearned:
            found["problem"] = "no round has been learned yet"
        except (PastoError, ArithmeticError) as error:
            found["problem"] = f"the answer could not be computed: {type(error).__name__}: {error}"
        first = max(0, row.round - 1 - HISTORY)
        found["history"] = [closed(close) for close in self._store.closes(row.number, after=first, limit=HISTORY + 1)]
        return found, names
