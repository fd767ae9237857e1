"""Lifts from the moments of rounds, as a report uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pasto.errors import MeasurementError
from pasto.inference import CellStatistics, Quantity, ValueRange
from pasto.inference.lift import LiftTarget, estimate_history, estimate_lifts
from pasto.inference.round_data import CellMoments, MeasuredRound, RoundRecord, record_rounds
from pasto.metrics.engines.sqlite import build_moments

SHARES = {("control", 0): 0.2, ("learner", 0): 0.2, ("learner", 1): 0.3, ("learner", 2): 0.3}
METRICS = {"watch_time": Quantity(0), "like_rate": Quantity(1, 2)}


def measured(rounds: int, *, seed: int = 1, units: int = 4_000, missing: Sequence[int] = ()) -> RoundRecord:
    """Return rounds of a day that swings by half, candidate 2 ten percent above: watch, likes, views, before."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(rounds):
        level = 1.0 + 0.5 * np.sin(number)
        counts = rng.multinomial(units, list(SHARES.values()))
        cells = []
        for (arm, candidate), size in zip(SHARES, counts, strict=True):
            if candidate == 2 and number in missing:
                continue
            before = rng.standard_normal(size)
            views = 5.0 + rng.poisson(5.0, size)
            likes = rng.binomial(views.astype(int), 0.1 if candidate < 2 else 0.11)
            watch = 20.0 * level * (1.1 if candidate == 2 else 1.0) + 3.0 * before + rng.standard_normal(size)
            rows = np.stack([watch, likes, views, before], axis=1)
            apart = rows - rows.mean(axis=0)
            cells.append(
                CellMoments(
                    arm, candidate, size, tuple(rows.mean(axis=0)), tuple(map(tuple, (apart.T @ apart).tolist()))
                )
            )
        found.append(MeasuredRound(number, SHARES, cells))
    return record_rounds(found)


def test_candidates_blends_and_all_that_was_served() -> None:
    targets = [LiftTarget("learner"), LiftTarget("best", shares={2: 1.0}), LiftTarget("half", shares={1: 0.5, 2: 0.5})]
    found = {(one.target, one.metric): one for one in estimate_lifts(measured(10), METRICS, targets)}
    truth = {"learner": 0.1 * 0.3 / 0.8, "best": 0.1, "half": 0.05}
    for (target, metric), lift in found.items():
        assert lift.relative.low <= truth[target] <= lift.relative.high, (target, metric)
        assert lift.rounds == 10
    assert found["best", "watch_time"].absolute.direction == "up"
    assert found["best", "like_rate"].control == pytest.approx(0.1, abs=0.005)
    assert str(found["best", "watch_time"]).startswith("best: watch_time rose by")


@pytest.mark.parametrize(
    ("target", "truth"),
    [
        (LiftTarget("learner"), 0.0375),
        (LiftTarget("best", shares={2: 1.0}), 0.1),
        (LiftTarget("half", shares={1: 0.5, 2: 0.5}), 0.05),
    ],
)
def test_a_covariate_narrows_the_interval(target: LiftTarget, truth: float) -> None:
    record = measured(6)
    (plain,) = estimate_lifts(record, {"watch_time": Quantity(0)}, [target])
    lifts, other = estimate_lifts(record, METRICS, [target], covariates={"watch_time": Quantity(3)})
    assert lifts.relative == plain.relative
    assert plain.adjusted is None
    assert plain.best == plain
    assert other.adjusted is None
    assert lifts.adjusted is not None
    assert lifts.best.relative == lifts.adjusted.relative
    width, narrow = (one.high - one.low for one in (lifts.relative, lifts.adjusted.relative))
    assert narrow < 0.45 * width
    assert lifts.adjusted.reduction == pytest.approx(0.9, abs=0.03)
    assert lifts.adjusted.relative.low <= truth <= lifts.adjusted.relative.high


def test_a_covariate_of_units_without_a_past_changes_nothing() -> None:
    record = measured(3)
    blank = np.zeros((*record.cells.mean.shape[:2], 2))
    cells = CellStatistics(
        record.cells.units,
        np.concatenate([record.cells.mean, blank], axis=-1),
        np.pad(record.cells.cross, [(0, 0), (0, 0), (0, 2), (0, 2)]),
    )
    empty = RoundRecord(record.keys, record.versions, cells, record.shares)
    for covariate in (Quantity(4), Quantity(4, 5)):
        (lifts,) = estimate_lifts(
            empty, {"watch_time": Quantity(0)}, [LiftTarget("learner")], covariates={"watch_time": covariate}
        )
        assert lifts.adjusted is not None
        assert lifts.adjusted.relative == lifts.relative
        assert lifts.adjusted.reduction == 0.0


def test_a_range_gives_intervals_without_large_samples() -> None:
    targets = [LiftTarget("learner"), LiftTarget("best", shares={2: 1.0})]
    ranges = {"watch_time": ValueRange(-50.0, 100.0), "like_rate": ValueRange(0.0, 1.0)}
    served, rate, best, _ = estimate_lifts(measured(12), METRICS, targets, ranges=ranges)
    assert served.bounded is not None
    assert served.bounded.relative is None  # a lift may be negative
    assert served.bounded.absolute.low <= 20.0 * 0.0375 <= served.bounded.absolute.high
    assert (rate.bounded, best.bounded) == (None, None)
    (never_negative,) = estimate_lifts(
        measured(12), {"m": Quantity(0)}, targets[:1], ranges={"m": ValueRange(0.0, 100.0)}
    )
    assert never_negative.bounded is not None
    assert never_negative.bounded.relative is not None
    assert never_negative.bounded.relative.low <= 0.0375 <= never_negative.bounded.relative.high
    wanted: list[dict[str, Any]] = [{"sequential": False}, {"elapsed": 3.0}, {"ranges": {}}]
    for options in wanted:
        lifts = estimate_lifts(
            measured(12), {"m": Quantity(0)}, targets[:1], **{"ranges": {"m": ValueRange(0.0, 100.0)}, **options}
        )
        assert lifts[0].bounded is None
    (once,) = estimate_lifts(measured(1), {"m": Quantity(0)}, targets[:1], ranges={"m": ValueRange(0.0, 100.0)})
    assert once.bounded is None


def test_one_look_is_narrower_than_every_look() -> None:
    record = measured(6)
    anytime, once = (
        estimate_lifts(record, METRICS, [LiftTarget("learner")], sequential=sequential)[0]
        for sequential in (True, False)
    )
    assert anytime.relative.value == once.relative.value
    assert anytime.relative.low < once.relative.low
    assert "at any look" in str(anytime)
    assert "set beforehand" in str(once)


def test_candidate_that_came_late_is_compared_in_the_rounds_it_was_in() -> None:
    record = measured(8, missing=(0, 1, 2))
    found = estimate_lifts(record, METRICS, [LiftTarget("best", shares={2: 1.0})])[0]
    assert found.rounds == 5
    assert found.relative.low <= 0.1 <= found.relative.high
    never = estimate_lifts(measured(3, missing=(0, 1, 2)), METRICS, [LiftTarget("best", shares={2: 1.0})])[0]
    assert never.rounds == 0
    assert np.isinf(never.absolute.high)
    assert never.absolute.direction == "unclear"
    assert "does not differ clearly" in str(never)


def test_history_by_round_and_all_together() -> None:
    record = measured(8)
    found = estimate_history(record, Quantity(0), LiftTarget("best", shares={2: 1.0}))
    assert found.by_round.estimate.shape == found.cumulative.estimate.shape == (8,)
    widths = found.cumulative.high - found.cumulative.low
    assert widths[-1] < widths[0]
    assert found.cumulative.covers(0.1).all()
    alone = estimate_lifts(measured(1), METRICS, [LiftTarget("best", shares={2: 1.0})], sequential=False)[0]
    assert found.by_round.low[0] == pytest.approx(alone.relative.low, rel=1e-3)


def test_a_phase_in_one_record_counts_the_rounds_it_has_run() -> None:
    record = measured(1)
    early, planned = (
        estimate_lifts(record, METRICS, [LiftTarget("learner")], elapsed=elapsed)[0] for elapsed in (None, 20.0)
    )
    assert planned.relative.high - planned.relative.low < early.relative.high - early.relative.low


def test_what_a_round_measured_goes_in_as_it_is() -> None:
    rng = np.random.default_rng(1)
    cells = [
        build_moments(arm, 0, rng.random((300, 1)) + lift, (0,)) for arm, lift in (("control", 0.0), ("learner", 0.2))
    ]
    record = record_rounds([MeasuredRound(1, {("control", 0): 0.5, ("learner", 0): 0.5}, cells)])
    assert estimate_lifts(record, {"watch_time": Quantity(0)}, [LiftTarget("learner")])[0].absolute.direction == "up"


def test_what_was_never_served_is_named() -> None:
    record = measured(2)
    with pytest.raises(MeasurementError, match="candidate 7 in the arm 'learner'"):
        estimate_lifts(record, METRICS, [LiftTarget("best", shares={7: 1.0})])
    with pytest.raises(MeasurementError, match="no round has an arm 'blend'"):
        estimate_lifts(record, METRICS, [LiftTarget("blend", arm="blend")])
    with pytest.raises(MeasurementError, match="at least one measured round"):
        record_rounds([])
    short = CellMoments("control", 0, 1, (1.0,), ((0.0,),))
    wide = CellMoments("learner", 0, 1, (1.0, 2.0), ((0.0, 0.0), (0.0, 0.0)))
    with pytest.raises(MeasurementError, match="the same number of columns"):
        record_rounds([MeasuredRound(0, {}, [short, wide])])
    with pytest.raises(MeasurementError, match="finite"):
        record_rounds([MeasuredRound(0, {}, [CellMoments("control", 0, 1, (float("nan"),), ((0.0,),))])])
