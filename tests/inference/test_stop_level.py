"""Stop levels in a metric's own units: no alarm from common swings, an alarm if the policy does harm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pasto.errors import MeasurementError
from pasto.inference import CellStatistics, Quantity, ValueRange
from pasto.inference.guardrail_monitor import watch_guardrails
from pasto.inference.round_data import CellMoments, MeasuredRound, record_rounds
from pasto.inference.stop_level import Basis, LevelEvidence, RoundSum, StopLevel, gather_evidence

STUDIES, HOUR = 60, 3600.0
TRIP = np.log(20.0)


def swinging(
    ratio: float, *, rounds: int = 96, units: tuple[int, ...] = (900, 100), good: int = 0, seed: int = 1
) -> CellStatistics:
    """Return studies whose level swings by 10 % around 10, with the served arm and the control."""
    rng = np.random.default_rng(seed)
    day = 1.0 + 0.1 * np.sin(2.0 * np.pi * (np.arange(rounds) + rng.uniform(0, 24, (STUDIES, 1))) / 24.0)
    count = np.broadcast_to(np.array(units, dtype=float), (STUDIES, rounds, len(units)))
    ratios = np.stack([np.where(np.arange(rounds) < good, 1.0, ratio), np.ones(rounds)], axis=-1)[:, : len(units)]
    mean = day[..., None] * (10.0 * ratios + rng.standard_normal(count.shape) / np.sqrt(count))
    return CellStatistics(count, mean[..., None], (day[..., None] ** 2 * rng.chisquare(count - 1.0))[..., None, None])


def first_alarms(cells: CellStatistics, floor: StopLevel, **options: Any) -> Any:
    """Return the first round with an alarm in every study, counted from 1; 0 without an alarm."""
    options = {"seconds": [HOUR] * cells.units.shape[-2], **options}
    alarm = gather_evidence(cells, floor, 0, 1, **options)[0] >= TRIP
    return np.where(alarm.any(axis=-1), alarm.argmax(axis=-1) + 1, 0)


@pytest.mark.parametrize("basis", ["control", "days"])
@pytest.mark.parametrize("at_most", [False, True])
def test_a_swing_of_all_arms_does_not_trip(basis: Basis, at_most: bool) -> None:
    floor = StopLevel("likes", Quantity(0), 10.5 if at_most else 9.5, at_most=at_most)
    healthy = swinging(1.0)
    assert (first_alarms(healthy, floor) > 0).mean() > 0.95
    assert not first_alarms(
        healthy, StopLevel(floor.name, floor.quantity, floor.value, at_most=at_most, basis=basis)
    ).any()


@pytest.mark.parametrize("basis", ["control", "days"])
def test_a_policy_at_the_stop_level_seldom_trips(basis: Basis) -> None:
    floor = StopLevel("likes", Quantity(0), 9.5, basis=basis)
    assert (first_alarms(swinging(0.95), floor) > 0).mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / STUDIES)
    assert not first_alarms(swinging(0.97), floor).any()


@pytest.mark.parametrize("basis", ["control", "days"])
@pytest.mark.parametrize("at_most", [False, True])
def test_harm_trips_at_the_end_of_the_first_day(basis: Basis, at_most: bool) -> None:
    floor = StopLevel("likes", Quantity(0), 10.5 if at_most else 9.5, at_most=at_most, basis=basis)
    found = first_alarms(swinging(1.12 if at_most else 0.88, rounds=48), floor)
    assert (found >= 24).all()
    assert found.max() <= 26


def test_harm_that_begins_later_trips_within_hours() -> None:
    found = first_alarms(swinging(0.88, good=60), StopLevel("likes", Quantity(0), 9.5, basis="control"))
    assert (found > 60).all()
    assert np.median(found) <= 64


@pytest.mark.parametrize(("basis", "latest"), [("control", 5), ("days", 2)])
def test_a_crash_trips_on_the_first_day(basis: Basis, latest: int) -> None:
    found = first_alarms(swinging(0.35, rounds=12), StopLevel("likes", Quantity(0), 9.5, basis=basis))
    assert (found > 0).all()
    assert found.max() <= latest


def test_a_policy_no_worse_than_a_control_beyond_the_stop_level_does_not_trip() -> None:
    floor = StopLevel("likes", Quantity(0), 12.0, basis="control")
    healthy = swinging(1.0)
    assert (first_alarms(healthy, floor) > 0).mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / STUDIES)
    assert (first_alarms(swinging(0.95), floor) > 0).all()


@pytest.mark.parametrize("within", [None, ValueRange(0.0, 1.0)])
def test_a_rare_event_is_judged_by_whole_days_and_its_control(within: ValueRange | None) -> None:
    rng = np.random.default_rng(4)
    count = np.broadcast_to([1800.0, 200.0], (STUDIES, 120, 2))
    floor = StopLevel("bought", Quantity(0), 0.019, within=within, basis="control")
    for ratio, least, most in ((1.0, 0.0, 0.12), (0.95, 0.0, 0.12), (0.6, 0.95, 1.0)):
        rate = rng.binomial(count.astype(int), np.array([0.02 * ratio, 0.02])) / count
        cells = CellStatistics(count, rate[..., None], (count * rate * (1.0 - rate))[..., None, None])
        assert least <= (first_alarms(cells, floor) > 0).mean() <= most


def test_days_are_counted_in_seconds() -> None:
    harmed, floor = swinging(0.8, rounds=48), StopLevel("likes", Quantity(0), 9.5, basis="days")
    found = first_alarms(harmed, floor, seconds=[6 * HOUR] * 48)
    assert set(found.tolist()) == {4}
    assert not first_alarms(harmed, floor, seconds=[60.0] * 48).any()
    assert first_alarms(harmed, floor, seconds=None).max() <= 2


def test_without_a_control_a_floor_against_it_is_refused() -> None:
    alone = swinging(1.0, rounds=2, units=(500,))
    with pytest.raises(MeasurementError, match="judged against the control, but the study has no control"):
        gather_evidence(alone, StopLevel("likes", Quantity(0), 9.5, basis="control"), 0, None)


def test_a_stop_level_of_zero_or_less_is_judged_over_whole_days() -> None:
    rng = np.random.default_rng(5)
    count = np.full((STUDIES, 48, 1), 400.0)
    for value, level, tripped in ((0.0, 0.5, False), (0.0, -0.5, True), (-2.0, -1.9, False), (-2.0, -2.5, True)):
        mean = level + rng.standard_normal(count.shape) / np.sqrt(count)
        cells = CellStatistics(count, mean[..., None], rng.chisquare(count - 1.0)[..., None, None])
        found = gather_evidence(cells, StopLevel("net", Quantity(0), value, basis="days"), 0, None, seconds=[HOUR] * 48)
        assert (found[0] >= TRIP).any(axis=-1).mean() == float(tripped)


def test_a_verdict_names_the_metric_and_the_limit() -> None:
    def measured(number: int) -> MeasuredRound:
        cells = [CellMoments(arm, arm == "learner", 4_000, (10.0,), ((4_000.0,),)) for arm in ("control", "learner")]
        return MeasuredRound(number, {}, cells)

    record = record_rounds([measured(number) for number in range(40)])
    floors = [StopLevel("likes", Quantity(0), 9.0, basis="control"), StopLevel("days", Quantity(0), 9.0, basis="days")]
    first, second = watch_guardrails(record, floors, seconds=[HOUR] * 40)
    assert (first.basis, first.state, first.p_value) == ("control", "holds", 1.0)
    assert first.allowed == pytest.approx(-0.1, abs=0.002)
    assert (second.basis, second.state, second.allowed) == ("days", "holds", None)
    early = watch_guardrails(record_rounds([measured(0)]), floors, seconds=[HOUR])[0]
    assert early.allowed == pytest.approx(-0.55, abs=0.01)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(0, 30), min_size=1, max_size=8))
def test_rounds_put_together_have_the_moments_of_all_their_units(seed: int, sizes: list[int]) -> None:
    rng = np.random.default_rng(seed)
    drawn = [rng.normal(rng.uniform(-9, 9), 2.0, (size, 2)) for size in sizes]
    total: RoundSum | None = None
    for number, rows in enumerate(drawn):
        mean = rows.mean(axis=0) if len(rows) else np.zeros(2)
        apart = rows - mean
        cells = CellStatistics(np.full((1, 1), float(len(rows))), mean[None, None], (apart.T @ apart)[None, None])
        added = RoundSum.of_round(cells, np.ones((1, 1, 2, 2)), 0, number, 60.0)
        total = added if total is None else total.join(added)
    assert total is not None
    rows = np.concatenate(drawn)
    assert (float(total.units), total.seconds, total.first_round) == (len(rows), 60.0 * len(sizes), 0)
    if len(rows):
        apart = rows - rows.mean(axis=0)
        assert total.mean == pytest.approx(rows.mean(axis=0))
        assert total.cross == pytest.approx(apart.T @ apart, abs=1e-9)
        assert total.noise == pytest.approx(np.full((2, 2), float(len(rows))))


def test_nothing_is_allowed_or_not_before_the_control_had_units() -> None:
    floor = StopLevel("likes", Quantity(0), 9.5, basis="control")
    assert LevelEvidence("control").allowed_change(floor) is None
