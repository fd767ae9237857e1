"""Guardrail evidence: no false alarms, and detection of real breaches, for every kind of threshold."""

from __future__ import annotations

import numpy as np
import pytest

from pasto.errors import MeasurementError
from pasto.inference import CellStatistics, Quantity, ValueRange
from pasto.inference.guardrail_evidence import floor_evidence
from pasto.inference.guardrail_monitor import watch_guardrails
from pasto.inference.round_data import CellMoments, MeasuredRound, RoundRecord, record_rounds
from pasto.inference.stop_level import StopLevel


def rounds_of(likes: list[float], *, control: float | None = 0.1, units: int = 2_000, seed: int = 1) -> RoundRecord:
    """Return coins with the given rates in each round; columns likes (0 or 1), views (1 to 9), watched views."""
    rng = np.random.default_rng(seed)
    found = []
    for number, rate in enumerate(likes):
        cells = []
        for arm, chance in (("learner", rate), *([("control", control)] if control is not None else [])):
            views = rng.integers(1, 10, units).astype(float)
            rows = np.stack([rng.random(units) < chance, views, rng.binomial(views.astype(int), chance)], axis=1)
            apart = rows - rows.mean(axis=0)
            cross = tuple(map(tuple, (apart.T @ apart).tolist()))
            cells.append(CellMoments(arm, 1 if arm == "learner" else 0, units, tuple(rows.mean(axis=0)), cross))
        found.append(MeasuredRound(number, {(cell.arm, cell.candidate): 0.5 for cell in cells}, cells))
    return record_rounds(found)


UNIT = ValueRange(0.0, 1.0)
FLOORS = {
    "absolute": StopLevel("likes", Quantity(0), 0.095),
    "absolute, range": StopLevel("likes", Quantity(0), 0.095, within=UNIT),
    "relative": StopLevel("likes", Quantity(0), -0.05, relative=True),
    "relative, range": StopLevel("likes", Quantity(0), -0.05, relative=True, within=UNIT),
    "ratio": StopLevel("rate", Quantity(2, 1), 0.095),
    "ratio, ranges": StopLevel(
        "rate", Quantity(2, 1), 0.095, within=ValueRange(0, 9), denominator_within=ValueRange(1, 9)
    ),
    "ratio, relative": StopLevel("rate", Quantity(2, 1), -0.05, relative=True),
}
CEILINGS = {
    "absolute": StopLevel("likes", Quantity(0), 0.105, at_most=True),
    "absolute, range": StopLevel("likes", Quantity(0), 0.105, at_most=True, within=UNIT),
    "relative": StopLevel("likes", Quantity(0), 0.05, relative=True, at_most=True),
    "relative, range": StopLevel("likes", Quantity(0), 0.05, relative=True, at_most=True, within=UNIT),
    "ratio": StopLevel("rate", Quantity(2, 1), 0.105, at_most=True),
    "ratio, ranges": StopLevel(
        "rate", Quantity(2, 1), 0.105, at_most=True, within=ValueRange(0, 9), denominator_within=ValueRange(1, 9)
    ),
    "ratio, relative": StopLevel("rate", Quantity(2, 1), 0.05, relative=True, at_most=True),
}


@pytest.mark.parametrize("kind", FLOORS)
def test_every_kind_of_floor_trips_on_harm_and_only_on_harm(kind: str) -> None:
    fine, harmed = rounds_of([0.1] * 30), rounds_of([0.075] * 30, seed=2)
    for floor, well, ill in ((FLOORS[kind], fine, harmed), (CEILINGS[kind], fine, rounds_of([0.13] * 30, seed=3))):
        assert watch_guardrails(well, [floor])[0].state == "holds"
        verdict = watch_guardrails(ill, [floor])[0]
        assert verdict.state == "breach"
        assert verdict.p_value < 0.05
        assert verdict.round is not None
        assert verdict.round < 30
        assert verdict.bounded == ("range" in kind)


@pytest.mark.parametrize("kind", ["absolute", "absolute, range", "relative", "ratio, relative"])
def test_a_rise_never_trips_a_floor(kind: str) -> None:
    assert watch_guardrails(rounds_of([0.14] * 30), [FLOORS[kind]])[0].p_value == 1.0


@pytest.mark.parametrize("kind", ["absolute", "absolute, range"])
def test_harm_that_begins_late_is_found_and_dated(kind: str) -> None:
    record = rounds_of([0.12] * 40 + [0.07] * 12)
    verdict = watch_guardrails(record, [FLOORS[kind]])[0]
    assert verdict.state == "breach"
    assert verdict.round is not None
    assert verdict.since is not None
    assert 40 <= verdict.round < 52
    assert abs(verdict.since - 40) <= 1


@pytest.mark.parametrize("at_most", [False, True])
def test_a_ratio_exactly_at_its_relative_floor_seldom_trips(at_most: bool) -> None:
    """Check a ratio whose noise is far below that of its numerator, because likes follow views."""
    rng = np.random.default_rng(12)
    studies, rounds = 200, 50
    unit = np.array([[4.0, 5.5], [5.5, 9.0]])
    factor = 1.1 if at_most else 0.9
    units = np.broadcast_to([500.0, 500.0], (studies, rounds, 2))
    means = np.array([[factor * 6.0, 10.0], [6.0, 10.0]])
    drawn = rng.multivariate_normal([0.0, 0.0], unit, (studies, rounds, 2))
    cells = CellStatistics(units, means + drawn / np.sqrt(units)[..., None], units[..., None, None] * unit)
    floor = StopLevel("rate", Quantity(0, 1), factor - 1.0, relative=True, at_most=at_most)
    evidence, _ = floor_evidence(cells, floor, 0, 1)
    tripped = (evidence >= np.log(20)).any(axis=-1).mean()
    assert tripped <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / studies)
    worse = StopLevel(
        "rate", Quantity(0, 1), 1.007 * factor - 1.0 if not at_most else factor / 1.007 - 1.0, True, at_most
    )
    assert (floor_evidence(cells, worse, 0, 1)[0][:, -1] >= np.log(20)).mean() > 0.9


def test_a_warning_comes_before_the_breach_and_guardrails_share_the_error() -> None:
    record = rounds_of([0.088] * 60, seed=5)
    floor = FLOORS["absolute"]
    states = [
        watch_guardrails(recorded_prefix(record, upto), [floor], confidence=0.999, warning=0.8)[0].state
        for upto in range(1, 61)
    ]
    assert states[0] == "holds"
    assert states[-1] == "breach"
    assert "warning" in states[: states.index("breach")]
    short = recorded_prefix(record, 30)
    alone, five = watch_guardrails(short, [floor])[0], watch_guardrails(short, [floor] * 5)[0]
    assert five.p_value == pytest.approx(min(1.0, 5 * alone.p_value))
    assert 0 < alone.p_value < 0.1
    stated = 1.0 - 2.0 * alone.p_value
    assert watch_guardrails(short, [floor], confidence=stated, warning=0.5)[0].state == "breach"
    assert watch_guardrails(short, [floor] * 5, confidence=stated, warning=0.5)[0].state != "breach"


def recorded_prefix(record: RoundRecord, upto: int) -> RoundRecord:
    cells = CellStatistics(record.cells.units[:upto], record.cells.mean[:upto], record.cells.cross[:upto])
    return RoundRecord(record.keys, record.versions[:upto], cells, record.shares[:upto])


def test_a_breach_stays_one() -> None:
    record = rounds_of([0.07] * 10 + [0.2] * 20)
    assert watch_guardrails(record, [FLOORS["absolute"]])[0].state == "breach"


def test_a_first_round_without_events_does_not_hide_later_harm() -> None:
    rng = np.random.default_rng(3)
    found = []
    for number in range(6):
        cells = []
        for arm, level in (("learner", 0.2), ("control", 1.0)):
            paid = (rng.random(4_000) < 0.05) * rng.normal(9_000.0, 2_000.0, 4_000) * level * (number > 0)
            cross = float(((paid - paid.mean()) ** 2).sum())
            cells.append(CellMoments(arm, int(arm == "learner"), 4_000, (float(paid.mean()),), ((cross,),)))
        found.append(MeasuredRound(number, {(cell.arm, cell.candidate): 0.5 for cell in cells}, cells))
    (verdict,) = watch_guardrails(record_rounds(found), [StopLevel("paid", Quantity(0), -0.05, relative=True)])
    assert (verdict.state, verdict.since) == ("breach", 1)


def test_units_of_measurement_do_not_matter() -> None:
    record = rounds_of([0.09] * 20)
    scaled = CellStatistics(record.cells.units, 1e6 * record.cells.mean, 1e12 * record.cells.cross)
    place = record.cell_index("learner", 1)
    for floor, large in (
        (FLOORS["absolute"], StopLevel("likes", Quantity(0), 0.095e6)),
        (FLOORS["absolute, range"], StopLevel("likes", Quantity(0), 0.095e6, within=ValueRange(0.0, 1e6))),
    ):
        plain, other = (
            floor_evidence(record.cells, floor, place, None)[0],
            floor_evidence(scaled, large, place, None)[0],
        )
        assert other == pytest.approx(plain, rel=1e-6)


def test_a_relative_floor_needs_a_control() -> None:
    record = rounds_of([0.1] * 3, control=None)
    with pytest.raises(MeasurementError, match="needs one control cell"):
        watch_guardrails(record, [FLOORS["relative"]])
    with pytest.raises(MeasurementError, match="relative to the control"):
        floor_evidence(record.cells, FLOORS["relative"], 0, None)
    assert watch_guardrails(record, []) == ()
