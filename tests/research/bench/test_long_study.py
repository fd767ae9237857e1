"""Long study: a close costs what it costs in a short study, counted in reads and not in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pasto.inference.event_shortage import MAX_EARLIER_ROUNDS
from pasto.report.records import write_record
from pasto.service.close_record import CloseRecord
from pasto.service.service import Service
from pasto_research.bench.long_study import HOUR, NAME, PAGES, crowd, grow, measure, opened


@contextmanager
def counted(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the closes that are read from the store."""
    read, found = service.store.list_closes, [0]

    def closes(study: int, *, after: int = 0, limit: int = 1000) -> Any:
        rows = read(study, after=after, limit=limit)
        found[0] += len(rows)
        return rows

    with monkeypatch.context() as patched:
        patched.setattr(service.store, "list_closes", closes)
        yield found


@pytest.mark.parametrize("rounds", [50, 1_500])
def test_neither_a_close_nor_a_page_reads_a_study_through(
    tmp_path: Path, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = grow(tmp_path, rounds=rounds, candidates=8, units=200)
    service = opened(tmp_path, clock)
    service.report(NAME)
    service.shutdown()
    service = opened(tmp_path, clock)
    crowd(service, 200)
    clock.now += HOUR
    with counted(service, monkeypatch) as read:
        assert service.close_round(NAME, who="ann").problems == ()
    # The close is reported, its senders are added to the last record, and it is compared with the latest rounds.
    assert read == [2 + MAX_EARLIER_ROUNDS]
    with counted(service, monkeypatch) as read:
        report = write_record(service.report(NAME))
    assert report["learning"]["rounds"][-1] == rounds
    assert len(report["learning"]["rounds"]) == min(rounds, 1_000)
    assert read[0] <= 1_000 + 100 + 100  # the compared rounds, the listed ones, and those since the last event counts
    with counted(service, monkeypatch) as read:
        service.report(NAME)
    assert read == [0]
    assert service.show(NAME).state == "learning"
    assert [verdict.state for verdict in service.show(NAME).guardrail_monitor.verdicts] == ["holds", "holds"]
    assert report["accounting"]["events"]["exposures"] >= rounds
    service.shutdown()


def test_what_is_packed_is_computed_again_bit_for_bit(tmp_path: Path) -> None:
    service = opened(tmp_path, grow(tmp_path, rounds=5, candidates=60, units=200))
    rounds = [entry for close in service.store.list_closes(1) for entry in CloseRecord.from_text(close.record).rounds]
    assert {isinstance(entry.cells.document, dict) for entry in rounds} >= {True}
    assert write_record(service.replay(NAME)) == {"identical": True, "rounds": 4, "first_difference": None}
    assert [row.units for row in service.rounds(NAME)] == [200] * 4
    service.shutdown()


def test_every_page_is_measured_at_both_ages() -> None:
    report = measure((8, 30), 4, 60)
    assert [row["what"] for row in report.rows][2:] == list(PAGES)
    assert all(row["s at 30"] > 0 for row in report.rows)
    assert all(row["ratio"] > 0 and row["first s"] > 0 for row in report.rows if row["ratio"] is not None)
