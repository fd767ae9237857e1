"""What a report adds to the answer and the books: everything that can be trusted under changing traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from pasto.service.board import Standing
from pasto.service.details import Details
from pasto.service.spec import Spec
from pasto.service.trust.lifted import learned
from pasto.service.trust.measured import Measured, Reader
from pasto.service.trust.standing import guardrails, quality
from pasto.store import Store


class Trust:
    """Computes a study's trusted numbers, once for each of its generations."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._readers: dict[int, Reader] = {}
        self._known: dict[int, tuple[int, dict[str, Any]]] = {}
        self._lock = Lock()

    def told(
        self, standing: Standing, report: Mapping[str, Any], names: Sequence[str], baseline: int | None
    ) -> dict[str, Any]:
        """The keys that a report gains; `report` is what it has already."""
        row, spec = standing.row, standing.spec
        measured = self.measured(row.number)
        with self._lock:
            known = self._known.get(row.number)
        if known is None or known[0] != row.generation:
            known = row.generation, _computed(spec, measured, report, names, baseline, row.details)
            with self._lock:
                self._known[row.number] = known
        return {
            **known[1],
            "quality": {
                **quality(spec, measured.rounds, report.get("accounting")),
                "sample_ratio": known[1]["learning"]["sample_ratio"],
            },
        }

    def measured(self, study: int) -> Measured:
        """What a study's closes measured."""
        with self._lock:
            reader = self._readers.setdefault(study, Reader(self._store, study))
        return reader.read()


def _computed(
    spec: Spec,
    measured: Measured,
    report: Mapping[str, Any],
    names: Sequence[str],
    baseline: int | None,
    details: str,
) -> dict[str, Any]:
    frozen = Details.from_text(details).frozen
    answer = report.get("blend") if frozen is None else dict(frozen.answer)
    learning = learned(spec, measured.rounds, names, answer, baseline)
    return {
        "claims": learning["claims"],
        "learning": learning,
        "guardrails": guardrails(spec, answer),
    }
