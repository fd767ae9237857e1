"""Upgrade of study documents with the words of an earlier version: refused in a file, upgraded in a store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pasto.errors import StudyFileError
from pasto.service.service import Service
from pasto.service.study_file import FIELDS, parse_spec, upgrade_document
from pasto.store.sqlite_store import SqliteStore

STORE = Path(__file__).with_name("store_with_old_words.sql")
"""Store of three studies that learned three rounds each, written before the fields were renamed."""
VERSIONS = Path(__file__).parents[2] / "store" / "versions"

OLD: dict[str, Any] = {
    "name": "feed",
    "baseline": {"w": 1, "n": 2},
    "ranges": {"w": {"from": 0, "to": 2}, "n": {"from": 1, "to": 3, "whole": True}, "mode": ["a", "b"]},
    "metrics": {
        "watch": {"event": "watch", "value": "seconds", "per_unit": "sum", "cap": 20},
        "like_rate": {"ratio": [{"event": "like", "per_unit": "count"}, {"event": "view", "per_unit": "count"}]},
    },
    "goal": {"maximize": "watch"},
    "guardrails": [{"keep": "like_rate", "at_least": "-2%", "budget": "1%", "floor": "-5%"}],
    "traffic": {"control": 0.1, "floor": 0.02, "cap": 0.3, "entry": 0.01},
    "rounds": {"every": 3600.0, "late": 7200.0},
    "learner": {"name": "pasto", "step": 0.01},
}
NEW: dict[str, Any] = {
    **OLD,
    "ranges": {"w": {"low": 0, "high": 2}, "n": {"low": 1, "high": 3, "integer": True}, "mode": ["a", "b"]},
    "metrics": {
        "watch": {"event": "watch", "value": "seconds", "aggregate": "sum", "cap": 20},
        "like_rate": {"ratio": [{"event": "like", "aggregate": "count"}, {"event": "view", "aggregate": "count"}]},
    },
    "guardrails": [{"metric": "like_rate", "at_least": "-2%", "loss_budget": "1%", "stop_at": "-5%"}],
    "traffic": {"control": 0.1, "min_share": 0.02, "max_share": 0.3, "new_candidate_share": 0.01},
    "rounds": {"every": 3600.0, "accept_late": 7200.0},
    "learner": {"name": "algorithm1", "step": 0.01},
}


def test_every_old_word_is_replaced() -> None:
    old = json.loads(json.dumps(OLD))
    assert upgrade_document(old) == NEW
    assert old == OLD, "the document itself is left as it was"


def test_a_document_with_todays_words_stays_as_it_is() -> None:
    assert upgrade_document(NEW) == NEW
    assert upgrade_document({"learner": "pasto"}) == {"learner": "algorithm1"}


def test_a_file_with_old_words_is_refused_with_the_new_ones() -> None:
    with pytest.raises(StudyFileError) as refused:
        parse_spec({**OLD, "baseline": {"w": 1, "n": 2, "mode": "a"}})
    assert refused.value.problems == {
        "ranges.w.from": "is now called low; rename it",
        "ranges.w.to": "is now called high; rename it",
        "ranges.n.from": "is now called low; rename it",
        "ranges.n.to": "is now called high; rename it",
        "ranges.n.whole": "is now called integer; rename it",
        "metrics.watch.per_unit": "is now called aggregate; rename it",
        "metrics.like_rate.ratio[0].per_unit": "is now called aggregate; rename it",
        "metrics.like_rate.ratio[1].per_unit": "is now called aggregate; rename it",
        "guardrails[0].keep": "is now called metric; rename it",
        "guardrails[0].budget": "is now called loss_budget; rename it",
        "guardrails[0].floor": "is now called stop_at; rename it",
        "traffic.floor": "is now called min_share; rename it",
        "traffic.cap": "is now called max_share; rename it",
        "traffic.entry": "is now called new_candidate_share; rename it",
        "rounds.late": "is now called accept_late; rename it",
        "learner.name": "is pasto, which is now called algorithm1; rename it",
    }
    assert "guardrails[0].keep is now called metric" in str(refused.value)


def test_every_renamed_field_is_tried_here() -> None:
    tried = json.dumps(OLD)
    assert all(f'"{field.old_name}"' in tried for field in FIELDS if field.old_name)


def open_text(text: str, folder: Path) -> SqliteStore:
    with closing(sqlite3.connect(folder / "pasto.db")) as connection:
        connection.executescript(text)
    return SqliteStore(folder)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(open_text(STORE.read_text(encoding="utf-8"), tmp_path))
    yield service
    service.shutdown()


def test_the_stored_documents_have_old_words(service: Service) -> None:
    for name, words in {"feed": ("keep", "per_unit", "late", "entry"), "ads": ("from", "to", "whole")}.items():
        row = service.store.read_study(name)
        assert row is not None
        assert all(f'"{word}"' in row.study_file for word in words)


def test_a_stored_study_is_displayed_with_the_current_words(service: Service) -> None:
    document = service.show("feed").document
    assert document["guardrails"][0].keys() >= {"metric", "loss_budget", "stop_at"}
    assert document["metrics"]["watch"]["aggregate"] == "sum"
    assert document["traffic"].keys() >= {"min_share", "max_share", "new_candidate_share"}
    assert document["rounds"]["accept_late"] == 7200
    assert service.show("ads").document["ranges"]["n"] == {"low": 1, "high": 3, "integer": True}
    assert parse_spec(document).document == document


@pytest.mark.parametrize("name", ["feed", "ads", "paper"])
def test_a_stored_study_replays_and_continues(service: Service, name: str) -> None:
    before = service.replay(name)
    assert before.is_same, before  # on the processor that computed it, it is identical
    service.close_round(name, who="ann")
    after = service.replay(name)
    assert after.is_same, after
    assert after.rounds == before.rounds + 1


@pytest.mark.parametrize("version", sorted(VERSIONS.glob("*.sql")), ids=lambda path: path.stem)
def test_documents_of_every_store_version_are_upgraded(version: Path, tmp_path: Path) -> None:
    store = open_text(version.read_text(encoding="utf-8"), tmp_path)
    try:
        row = store.read_study("feed")
        assert row is not None
        assert upgrade_document(json.loads(row.study_file)) == {"name": "feed"}
    finally:
        store.close()
