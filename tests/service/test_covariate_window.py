"""Covariate window: windows and covariates of a running study, at a close and in a replay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pasto.report.records import write_record
from pasto.service.archive import Archive
from pasto.service.close_record import CloseRecord, StoredCells
from pasto.service.covariate_window import covariate_window, first_assignments, needed_from
from pasto.service.retention import Retention
from pasto.service.service import Service
from pasto.service.study_file import parse_spec
from pasto.store import Store
from pasto.store.postgres_store import PostgresStore
from pasto.store.sqlite_store import SqliteStore

HOUR = 3600.0
DOCUMENT: dict[str, Any] = {
    "name": "feed",
    "baseline": {"w": 1},
    "parameters": {"w": [0, 1, 2]},
    "metrics": {
        "seen": {"event": "see", "value": "x", "aggregate": "sum", "range": [-50, 50], "covariate": "2h"},
        "soon": {"event": "see", "value": "x", "aggregate": "sum", "range": [-50, 50], "window": "30m"},
        "rate": {"ratio": [{"event": "see", "value": "x", "cap": 50}, {"event": "see"}], "covariate": "90m"},
    },
    "goal": {"maximize": "seen"},
    "traffic": {"control": "30%"},
    "rounds": {"every": "1h", "maturity": "30m"},
}


class Play:
    """Study whose clock is set by hand, with users who return every round."""

    def __init__(self, url: str | None = None) -> None:
        self.now = 1_700_000_000.0
        self.store: Store = SqliteStore(None, clock=lambda: self.now)
        if url is not None:
            self.store.close()
            self.store = PostgresStore(url, clock=lambda: self.now)
        self.service = Service(self.store, clock=lambda: self.now, monotonic=lambda: self.now)
        self.service.create(DOCUMENT, who="ann", seed=7)
        self.service.change("feed", "start", who="ann")
        self.log: list[tuple[float, str, float]] = []
        """When, whose and how much of every metric event."""
        self.rng = np.random.default_rng(3)
        self._sent = 0

    def send(self, users: int = 60) -> None:
        """Expose every user; each sends events at once and three quarters of an hour later."""
        policy = self.service.policy_cache.current("feed")
        for late, exposing in ((0.0, True), (0.75 * HOUR, False)):
            self.now += late
            events: list[dict[str, Any]] = []
            for number in range(users):
                unit, self._sent = f"user {number}", self._sent + 1
                drawn = {"unit": unit, "version": policy.version, "candidate": policy.draw(unit).name}
                x = float(np.round(number / 10.0 + self.rng.standard_normal(), 3))
                if exposing:
                    events.append({"type": "exposure", "id": f"e{self._sent}", **drawn})
                event = {"type": "metric", "id": f"m{self._sent}", "name": "see", "fields": {"x": x}, **drawn}
                events.append(event)
                self.log.append((self.now, unit, x))
            answer = self.service.ingest("feed", self.service.decode(json.dumps(events).encode())).result(timeout=60)
            assert answer.rejected == ()

    def close(self) -> None:
        self.now += 0.25 * HOUR
        self.service.close_round("feed", who="ann")

    def record(self, round: int) -> CloseRecord:
        (close,) = self.store.list_closes(self.number, after=round - 1, limit=1)
        return CloseRecord.from_text(close.record)

    @property
    def number(self) -> int:
        row = self.store.read_study("feed")
        assert row is not None
        return row.number


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.services)])
def play(request: pytest.FixtureRequest) -> Iterator[Play]:
    if request.param == "sqlite":
        made = Play()
        yield made
        made.service.shutdown()
        return
    server = request.getfixturevalue("postgres_server")
    url = server.fresh()
    made = Play(url)
    yield made
    made.service.shutdown()
    server.drop(url)


def means(cells: StoredCells, column: int) -> float:
    """Return a column's mean over all units of all cells."""
    return sum(cell.units * cell.mean[column] for cell in cells.moments()) / cells.count_units()


def test_what_a_close_measures(play: Play) -> None:
    began = []
    for _ in range(5):
        began.append(play.now)
        play.send()
        play.close()
    rounds = [entry for round in range(1, 6) for entry in play.record(round).rounds]
    assert [entry.round for entry in rounds] == [1, 2, 3, 4]
    for entry, start in zip(rounds, began, strict=False):
        during = [(at, x) for at, _, x in play.log if start <= at < start + HOUR]
        assert means(entry.cells, 0) == pytest.approx(sum(x for _, x in during) / 60)
        soon = [x for at, x in during if at <= start + HOUR / 2]
        names = [column.name for column in parse_spec(DOCUMENT).measured_columns]
        assert means(entry.cells, names.index("soon")) == pytest.approx(sum(soon) / 60)
        for name, back in (("seen.covariate", 2.0), ("rate.covariate.numerator", 1.5)):
            before = [x for at, _, x in play.log if start - back * HOUR <= at < start]
            assert means(entry.cells, names.index(name)) == pytest.approx(sum(before) / 60)
        before = [x for at, _, x in play.log if start - 1.5 * HOUR <= at < start]
        assert means(entry.cells, names.index("rate.covariate.denominator")) == len(before) / 60
    assert write_record(play.service.replay("feed")) == {"identical": True, "rounds": 5, "first_difference": None}


def test_units_that_stay_in_their_arm_have_their_past_before_the_first_such_policy(play: Play) -> None:
    for _ in range(3):
        play.send()
        play.close()
    play.service.change("feed", "confirm", who="ann")
    first = play.service.policy_cache.current("feed").version
    began = play.now
    play.send()
    play.service.change("feed", "pause", who="ann", reason="lunch")
    play.now += HOUR
    play.service.change("feed", "resume", who="ann")
    play.send()
    again = play.service.policy_cache.current("feed").version
    assert again > first + 1
    play.close()
    spec = parse_spec(DOCUMENT)
    assert first_assignments(play.store, play.number, again).version == first
    assert first_assignments(play.store, play.number, first - 1).version == first - 1
    past = covariate_window(play.store, spec, play.number, again)
    assert past is not None
    assert past.at == began
    row = play.store.read_study("feed")
    assert row is not None
    (close,) = play.store.list_closes(play.number, after=row.round - 2, limit=1)
    look = CloseRecord.from_text(close.record).look
    assert look is not None
    names = [column.name for column in spec.measured_columns]
    before = [x for at, _, x in play.log if began - 2 * HOUR <= at < began]
    assert means(look.cells, names.index("seen.covariate")) == pytest.approx(sum(before) / 60)
    assert play.service.replay("feed").identical


def test_the_archive_leaves_what_covariates_still_look_back_at(play: Play, tmp_path: Path) -> None:
    for _ in range(6):
        play.send()
        play.close()
    retention = Retention(play.store, Archive(tmp_path), clock=lambda: play.now)
    row = play.store.read_study("feed")
    assert row is not None
    spec = parse_spec(DOCUMENT)
    needed = needed_from(play.store, spec, row)
    assert needed < play.now - 2 * HOUR
    retention.archive("feed")
    with play.store.read_transaction() as connection:
        (oldest,) = connection.execute("SELECT min(received_at) FROM events WHERE unit <> ''").fetchone()
    assert play.store.list_archived_spans(row.number, 0, play.store.read_high_water(row.number))
    assert oldest <= needed + HOUR
    replayed = retention.replay("feed")
    assert write_record(replayed) == {"identical": True, "rounds": 6, "first_difference": None}
    apart = Retention(play.store, Archive(tmp_path / "elsewhere"), clock=lambda: play.now).replay("feed")
    assert apart.identical
    assert apart.exceptions.keys() == {"covariates", "deleted_events"}
    start = play.now
    play.send()
    play.close()
    play.send()
    play.close()
    names = [column.name for column in spec.measured_columns]
    (entry,) = (entry for entry in play.record(8).rounds if entry.round == 7)
    before = [x for at, _, x in play.log if start - 2 * HOUR <= at < start]
    assert means(entry.cells, names.index("seen.covariate")) == pytest.approx(sum(before) / 60)
    assert write_record(retention.replay("feed")) == {"identical": True, "rounds": 8, "first_difference": None}
    retention.forget("feed", "user 3", who="ann")
    replayed = retention.replay("feed")
    assert replayed.identical
    assert replayed.exceptions.keys() == {"covariates", "deleted_units"}
    play.now += HOUR
    assert retention.drop("feed", older=0.0)
    replayed = retention.replay("feed")
    assert replayed.identical
    assert replayed.exceptions.keys() == {"covariates", "deleted_units", "deleted_events"}


def test_without_covariates_nothing_is_held_back(play: Play) -> None:
    plain = parse_spec({**DOCUMENT, "metrics": {"seen": {"event": "see", "value": "x"}}})
    row = play.store.read_study("feed")
    assert row is not None
    assert needed_from(play.store, plain, row) == float("inf")
    assert covariate_window(play.store, plain, row.number, 1) is None
