"""Covariates in a running study: the learner uses adjusted cells in closes, corrections, replays and reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pasto.arrays import FloatArray
from pasto.service.close_record import CloseRecord
from pasto.service.reports.candidate_estimates import estimate_candidates
from pasto.service.round_history import RoundHistoryReader
from pasto.service.rounds.close_inputs import CloseInputs, read_close_inputs
from pasto.service.rounds.learner_step import round_observations
from pasto.service.service import Service
from pasto.service.study_file import parse_spec
from pasto.service.study_state import MaturingRound
from pasto.store.sqlite_store import SqliteStore
from pasto.study import Study
from pasto_sdk.policy import PublishedPolicy

HOUR = 3600.0
METRICS: dict[str, dict[str, Any]] = {
    "watch": {"event": "see", "value": "x", "aggregate": "sum", "range": [-90, 90], "covariate": "2h"},
    "rate": {"ratio": [{"event": "see", "value": "x", "cap": 90}, {"event": "see"}]},
    "scrolled": {"event": "see", "value": "y", "aggregate": "sum", "range": [-90, 90]},
}
LIFT = {"w=0": 0.0, "w=1": 2.0, "w=2": 1.0}


def document(*, adjusted: bool = True, **learner: Any) -> dict[str, Any]:
    watch = {name: value for name, value in METRICS["watch"].items() if adjusted or name != "covariate"}
    return {
        "name": "feed",
        "baseline": {"w": 0},
        "parameters": {"w": [0, 1, 2]},
        "metrics": {**METRICS, "watch": watch},
        "goal": {"maximize": "watch"},
        "guardrails": [{"metric": "rate", "at_least": "-50%"}],
        "traffic": {"control": "20%", "min_share": "30%"},
        "rounds": {"every": "1h", "accept_late": "3h"},
        **learner,
    }


class RunningStudy:
    """Study with a clock set by hand, and users of different tastes who return every round."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.now = 1_700_000_000.0
        self.spec = parse_spec(given)
        self.store = SqliteStore(None, clock=lambda: self.now)
        self.service = Service(self.store, clock=lambda: self.now, monotonic=lambda: self.now)
        self.service.create(given, who="ann", seed=7)
        self.service.change("feed", "start", who="ann")

    def send(self, users: range, *, version: int | None = None) -> None:
        """Send the actions of users under the current policy, or too late under an earlier one."""
        row = self.store.read_study("feed")
        assert row is not None
        stored = self.store.read_policy(row.number, version or row.version)
        assert stored is not None
        policy = PublishedPolicy.from_text(stored.document, stored.checksum)
        events: list[dict[str, Any]] = []
        for number in users:
            unit, rng = f"user {number}", np.random.default_rng([policy.version, number])
            cell = policy.draw(unit)
            drawn = {"unit": unit, "version": policy.version, "candidate": cell.name}
            taste = 10.0 + 5.0 * np.random.default_rng(number).standard_normal()
            x = float(taste + LIFT[cell.name] + 2.0 * rng.standard_normal())
            fields = {"x": x, "y": float(x + rng.standard_normal())}
            stamp = f"{policy.version}/{number}"
            events.append({"type": "exposure", "id": f"e{stamp}", **drawn})
            events.append({"type": "metric", "id": f"m{stamp}", "name": "see", "fields": fields, **drawn})
        answer = self.service.ingest("feed", self.service.decode(json.dumps(events).encode())).result(timeout=60)
        assert answer.rejected == ()

    def close(self) -> CloseRecord:
        self.now += HOUR
        self.service.close_round("feed", who="ann")
        row = self.store.read_study("feed")
        assert row is not None
        (close,) = self.store.list_closes(row.number, after=row.round - 2, limit=1)
        return CloseRecord.from_text(close.record)

    def run(self, rounds: int, users: int = 80) -> list[CloseRecord]:
        records = []
        for _ in range(rounds):
            self.send(range(users))
            records.append(self.close())
        return records

    @property
    def learner(self) -> Study:
        row = self.store.read_study("feed")
        assert row is not None
        text = self.store.read_learner_state(row.number)
        assert text is not None
        return Study.from_state(json.loads(text))

    def lifts(self) -> tuple[FloatArray, FloatArray]:
        """Return lifts of w=1 and w=2 in the watched amount, with their posterior deviations."""
        samples = self.learner.posterior_samples(300)[:, 0]
        lifts = samples[:, 1:] - samples[:, :1]
        return lifts[0], lifts[1:].std(axis=0)


Start = Callable[[dict[str, Any]], RunningStudy]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[RunningStudy] = []

    def begin(given: dict[str, Any]) -> RunningStudy:
        running.append(RunningStudy(given))
        return running[-1]

    yield begin
    for each in running:
        each.service.shutdown()


@pytest.mark.parametrize("contrast", ["auto", None])
def test_the_learner_sees_adjusted_cells_and_a_replay_is_identical(start: Start, contrast: str | None) -> None:
    learner = {"learner": {"name": "thompson", "contrast": contrast}}
    raw, adjusted = (start(document(adjusted=flag, **learner)) for flag in (False, True))
    without, records = raw.run(6), adjusted.run(6)
    assert [record.uses_covariates for record in records] == [True] * 6
    assert not any("uses_covariates" in record.to_text() for record in without)
    assert "adjustment" in adjusted.learner.state()["learned"]
    assert "adjustment" not in raw.learner.state()["learned"]
    found, spread = adjusted.lifts()
    assert (spread < 0.75 * raw.lifts()[1]).all()
    assert (np.abs(found - [2.0, 1.0]) < 3.0 * spread).all()
    for study in (raw, adjusted):
        assert study.service.replay("feed").identical


def test_late_events_correct_the_adjusted_cells_and_their_covariates(start: Start) -> None:
    study = start(document())
    study.run(1)
    study.send(range(50))
    study.close()
    study.send(range(50, 80), version=2)
    corrected = study.run(1)[0]
    assert [entry.round for entry in corrected.corrected] == [2]
    assert corrected.uses_covariates
    study.run(5)  # until round 2 is final
    row = study.store.read_study("feed")
    assert row is not None
    rounds = RoundHistoryReader(study.store, row.number).read(row.round).rounds
    assert [measured.units for measured in rounds] == [80] * 8
    names = [column.name for column in study.spec.measured_columns]
    columns = [*map(names.index, study.spec.objective.metrics), names.index("watch.covariate")]
    products = sum(np.array(cell.cross)[np.ix_(columns, columns)] for measured in rounds for cell in measured.cells)
    adjustment = study.learner.state()["learned"]["adjustment"]
    np.testing.assert_allclose(np.array(adjustment["products"]), products, rtol=1e-9)
    assert study.service.replay("feed").identical


def test_closes_from_before_the_learner_used_covariates_replay_as_they_were(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = start(document())

    def read(*given: Any, **named: Any) -> CloseInputs:
        return replace(read_close_inputs(*given, **named), uses_covariates=False)

    with monkeypatch.context() as earlier:
        earlier.setattr("pasto.service.rounds.close.read_close_inputs", read)
        records = study.run(2)
    assert not any("uses_covariates" in record.to_text() for record in records)
    assert "adjustment" not in study.learner.state()["learned"]
    study.run(2)
    assert "adjustment" in study.learner.state()["learned"]
    assert study.service.replay("feed").identical


def test_observations_have_the_covariates_after_the_metrics_of_the_objective(start: Start) -> None:
    study = start(document())
    (entry,) = study.run(2)[1].rounds
    cells = entry.cells.moments()
    waiting = MaturingRound(entry.round, entry.learner_version, entry.after, 0.0)
    names = [column.name for column in study.spec.measured_columns]
    columns = [*map(names.index, study.spec.objective.metrics), names.index("watch.covariate")]
    assert len(columns) < len(names)  # a metric that is in no goal and no guardrail is left out
    for cell, observation in zip(cells, round_observations(study.spec, waiting, cells).observations, strict=True):
        assert (*observation.mean, *observation.covariates) == tuple(cell.mean[place] for place in columns)
        expected = np.array(cell.cross)[np.ix_(columns, columns)] / (cell.units - 1) / cell.units
        np.testing.assert_allclose(np.array(observation.covariance), expected)
    plain = round_observations(study.spec, waiting, cells, uses_covariates=False).observations
    assert {len(observation.covariates) for observation in plain} == {0}


def test_reports_find_winners_and_estimate_other_metrics_from_adjusted_cells(start: Start) -> None:
    raw, adjusted = (start(document(adjusted=flag)) for flag in (False, True))
    spreads, winners = [], []
    for study in (raw, adjusted):
        study.run(7)
        report = study.service.report("feed")
        assert report.learning is not None and report.learning.winner is not None  # noqa: PT018
        winners.append(report.learning.winner.beat_the_control)
        row = study.store.read_study("feed")
        assert row is not None
        rounds = RoundHistoryReader(study.store, row.number).read(row.round).rounds
        estimates = estimate_candidates(study.spec, study.learner, rounds)
        other = estimates.columns.index("scrolled")
        draws = estimates.means[1:, other]
        assert abs(float(estimates.means[0, other, 1] - estimates.means[0, other, 0]) - 2.0) < 2.0
        spreads.append(draws[:, 1].std())
    assert winners[0] == ()
    assert "w=1" in winners[1]
    assert spreads[1] < 0.75 * spreads[0]
