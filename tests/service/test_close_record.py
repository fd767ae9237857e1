"""Close record: cells and records are read exactly as written, and stored closes of format 1 can still be read."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pasto.inference.round_data import join_cells
from pasto.inference.sender_departure import Departure, SenderEvidence
from pasto.metrics import Moments
from pasto.metrics.engines.sqlite import build_moments
from pasto.report.records import ArmVerdict, RoundShortage
from pasto.service import close_record
from pasto.service.close_record import (
    CloseRecord,
    FinalRound,
    HeldRound,
    NextPhase,
    RecordedLook,
    RecordedRound,
    SenderRecord,
    SenderTotals,
    StoredCells,
)


def cells(seed: int, count: int, width: int) -> list[Moments]:
    rng = np.random.default_rng(seed)
    found = []
    for candidate in range(count):
        size = int(rng.integers(1, 6))
        values = rng.lognormal(0.0, 3.0, (size, width)) * rng.choice([0.0, 1.0, -1e-9, 1e12], width)
        clipped = rng.integers(0, 4, width).tolist()
        found.append(build_moments("learner" if candidate else "control", candidate, values, clipped))
    return found


def through_text(cells: StoredCells) -> StoredCells:
    return StoredCells(json.loads(json.dumps(cells.document, allow_nan=False)))


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32), st.integers(0, 80), st.integers(1, 6), st.booleans())
def test_cells_come_back_as_they_were(seed: int, count: int, width: int, of_clusters: bool) -> None:
    measured = cells(seed, count, width)
    if of_clusters:
        members = cells(seed + 1, count, width)
        measured = [replace(cell, member_cross=other.cross) for cell, other in zip(measured, members, strict=True)]
    stored = through_text(StoredCells.from_moments(measured))
    assert isinstance(stored.document, dict) == (count * width * (width + 1) >= close_record.MIN_PACKED_NUMBERS)
    assert stored.moments() == tuple(measured)
    assert str(stored.moments()) == str(tuple(measured))  # including the sign of zero
    table = stored.table()
    assert (table.member_cross is not None) == (of_clusters and count > 0)
    assert [cell.member_cross for cell in table] == [cell.member_cross for cell in measured]
    assert stored.count_units() == sum(cell.units for cell in measured)
    assert stored.count_clipped() == [sum(column) for column in zip(*(cell.clipped for cell in measured), strict=True)]
    table = stored.table()
    assert [asdict(one) for one in table] == [
        {name: value for name, value in asdict(cell).items() if name != "clipped"} for cell in measured
    ]
    for arm in ("control", "learner"):
        assert stored.total(arm) == join_cells(arm, measured)
    assert table[1:2] == [table[1]] if count > 1 else len(table) == count


def test_packed_cells_take_about_a_third_of_the_plain_json() -> None:
    measured = cells(1, 500, 8)
    packed, plain = (
        json.dumps(document) for document in (StoredCells.from_moments(measured).document, list(map(asdict, measured)))
    )
    assert len(packed) < 0.36 * len(plain)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_rejected_when_written(number: float) -> None:
    measured = [*cells(1, 200, 3), Moments("learner", 999, 1, (number, 0.0, 0.0), ((0.0,) * 3,) * 3, (0, 0, 0))]
    with pytest.raises(ValueError, match="not JSON compliant"):
        through_text(StoredCells.from_moments(measured))


def test_products_that_are_not_symmetric_are_stored_in_full() -> None:
    measured = [Moments("learner", k, 2, (1.0, 2.0), ((1.0, 0.5), (0.5000000001, 1.0)), (0, 0)) for k in range(200)]
    assert through_text(StoredCells.from_moments(measured)).moments() == tuple(measured)


def test_a_record_is_read_as_it_was_written() -> None:
    stored = StoredCells.from_moments(cells(1, 3, 2))
    evidence = SenderEvidence(
        place=1,
        cells=(("learner", 2),),
        units=(9.0,),
        sums=(((1.0, 2.0),),),
        level=((3.0,),),
        recent_units=(4.0,),
        recent_sums=(((5.0,),),),
        recent_level=((6.0,),),
        departure=Departure("shares", 0.001, ("learner", 2)),
    )
    record = CloseRecord(
        state="learning",
        learns=True,
        engine="sqlite",
        next_phase=NextPhase("confirming", {"control": 0.5, "blend": 0.5}, horizon=7.5),
        rounds=(RecordedRound(4, 3, 90, stored, 60.0, is_correctable=True, is_accepted=True),),
        corrected=(RecordedRound(3, 2, 80, stored),),
        held=(HeldRound(2, (RoundShortage("none", "likes", 40, 12.5, 0.0, 3),)),),
        final=(FinalRound(1, 0, 95),),
        look=RecordedLook(2.5, stored),
        senders=SenderRecord(
            {"keys": {"ab12": SenderTotals(9, (1.0, 2.0), evidence, 4)}, "sources": {}}, {"keys": 1, "sources": 0}
        ),
        verdicts=(ArmVerdict("likes", "learner", "warning", 0.1, allowed=-0.02),),
        method=3,
        problems=("round 2 is held",),
    )
    back = CloseRecord.from_text(record.to_text())
    assert back.to_text() == record.to_text()
    for entry, original in zip(back.measured, record.measured, strict=True):
        assert replace(entry, cells=stored) == replace(original, cells=stored)
        assert entry.cells.moments() == stored.moments()
    assert back.look is not None
    assert (back.look.elapsed, back.look.cells.moments()) == (2.5, stored.moments())
    parts = ("state", "learns", "engine", "next_phase", "held", "final", "senders", "verdicts", "method", "problems")
    assert [getattr(back, part) for part in parts] == [getattr(record, part) for part in parts]


@pytest.fixture(scope="module")
def format_1() -> list[tuple[int, dict[str, Any]]]:
    """Return rounds and close texts of a store that was written before records had a format number."""
    path = Path(__file__).parents[1] / "system" / "stores" / "close_format_1.sql"
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(path.read_text(encoding="utf-8"))
        rows = connection.execute("SELECT round, observed FROM closes ORDER BY round").fetchall()
    return [(round, json.loads(text)) for round, text in rows]


def test_records_of_format_1_are_read(format_1: list[tuple[int, dict[str, Any]]]) -> None:
    assert len(format_1) == 10
    assert not any("format" in old for _, old in format_1)
    for _, old in format_1:
        record = CloseRecord.from_text(json.dumps(old))
        assert (record.state, record.learns, record.engine) == (old["state"], old["learns"], old["engine"])
        assert asdict(record.next_phase) == old["next"]
        assert [asdict(verdict) for verdict in record.verdicts or ()] == old["breaker"]
        assert (record.method, list(record.problems)) == (old["method"], old["problems"])
        for kind, entries in (("rounds", record.rounds), ("corrected", record.corrected)):
            for entry, old_round in zip(entries, old.get(kind, ()), strict=True):
                assert (entry.round, entry.learner_version) == (old_round["round"], old_round["learned"])
                assert (entry.after, entry.seconds) == (old_round["after"], old_round["seconds"])
                assert entry.is_correctable == old_round.get("open", False)
                assert entry.is_accepted == old_round.get("accepted", False)
                cells = json.loads(json.dumps([asdict(cell) for cell in entry.cells.moments()]))
                assert cells == [{**cell, "member_cross": None} for cell in old_round["moments"]]
        assert [asdict(entry) for entry in record.final] == old.get("settled", [])
        assert [entry.round for entry in record.held] == [entry["round"] for entry in old.get("held", ())]
        assert (record.look is None) == ("look" not in old)
        again = CloseRecord.from_text(record.to_text())
        assert again.to_text() == record.to_text()
        assert record.senders is not None
        for kind, senders in old["senders"]["groups"].items():
            for name, totals in senders.items():
                read = json.loads(json.dumps(asdict(record.senders.groups[kind][name])))
                evidence = {field: read["evidence"][field] for field in totals["evidence"]}
                assert {**read, "evidence": evidence} == totals


@pytest.mark.parametrize("candidates", [2, 200])
def test_arms_of_format_2_get_their_present_names(candidates: int) -> None:
    present = cells(1, candidates, 3)
    arms = ["best_single" if cell.arm == "control" else "paused" for cell in present]
    renamed = [replace(cell, arm=arm) for cell, arm in zip(present, arms, strict=True)]
    old_names = {"best_single": "single", "paused": "held"}
    stored = StoredCells.from_moments([replace(cell, arm=old_names[cell.arm]) for cell in renamed])
    verdict = {"name": "y", "arm": "single", "state": "holds", "p_value": 1.0}
    evidence = asdict(SenderEvidence(1, cells=(("outside", 3),), departure=Departure("effect", 0.1, ("held", 3))))
    totals = {"units": 3, "sums": [1.0], "evidence": evidence, "departed": 4}
    text = json.dumps(
        {
            "format": 2,
            "state": "confirming",
            "learns": False,
            "engine": "sqlite",
            "problems": [],
            "next_phase": {"state": "confirming", "split": {"control": 0.2, "single": 0.3, "blend": 0.5}},
            "rounds": [{"round": 1, "learner_version": 1, "after": 0, "cells": stored.document}],
            "look": {"elapsed": 2.5, "cells": stored.document},
            "verdicts": [verdict],
            "method": 3,
            "senders": {"groups": {"keys": {"a": totals}, "sources": {}}, "places": {"keys": 1}, "is_phase": False},
        }
    )
    record = CloseRecord.from_text(text)
    assert record.look is not None
    assert record.look.cells.moments() == tuple(sorted(renamed, key=lambda cell: (cell.arm, cell.candidate)))
    assert record.rounds[0].cells.moments() == record.look.cells.moments()
    assert record.verdicts is not None
    assert [entry.arm for entry in record.verdicts] == ["best_single"]
    assert record.next_phase.split == {"control": 0.2, "best_single": 0.3, "blend": 0.5}
    assert record.senders is not None
    read = record.senders.groups["keys"]["a"].evidence
    assert read.cells == (("not_enrolled", 3),)
    assert read.departure is not None
    assert read.departure.cell == ("paused", 3)
    assert json.loads(record.to_text())["format"] == 3


def test_packed_cells_of_format_1_have_their_totals() -> None:
    measured = cells(1, 200, 3)
    stored = StoredCells.from_moments(measured).document
    assert isinstance(stored, dict)
    document = dict(stored)
    document["whole"] = document.pop("totals")
    old = {
        "state": "learning",
        "learns": True,
        "engine": "sqlite",
        "problems": [],
        "next": {"state": "learning"},
        "rounds": [{"round": 1, "learned": 1, "after": 0, "moments": document}],
    }
    (entry,) = CloseRecord.from_text(json.dumps(old)).rounds
    assert entry.cells.total("control") == join_cells("control", measured)
    assert entry.cells.moments() == tuple(measured)
