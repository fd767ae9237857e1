"""Guardrail monitor: continued from its state, it gives the verdicts of all rounds together."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pasto.errors import MeasurementError
from pasto.inference import Quantity, ValueRange
from pasto.inference.guardrail_monitor import GuardrailMonitor, watch_guardrails
from pasto.inference.round_data import CellMoments, MeasuredRound, record_rounds
from pasto.inference.stop_level import StopLevel

UNIT = ValueRange(0.0, 1.0)
FLOORS = [
    StopLevel("absolute", Quantity(0), 0.48),
    StopLevel("absolute, range", Quantity(0), 0.48, within=UNIT),
    StopLevel("relative", Quantity(2), -0.05, relative=True),
    StopLevel("relative, range", Quantity(0), 0.05, relative=True, at_most=True, within=UNIT),
    StopLevel("ratio", Quantity(0, 1), 0.16, at_most=True),
    StopLevel("ratio, ranges", Quantity(0, 1), 0.14, within=UNIT, denominator_within=ValueRange(0.0, 9.0)),
    StopLevel("ratio, relative", Quantity(0, 1), -0.05, relative=True),
    StopLevel("against the control", Quantity(0), 0.48, basis="control"),
    StopLevel("against the control, range", Quantity(0), 0.48, within=UNIT, basis="control"),
    StopLevel("against the control, ratio", Quantity(0, 1), 0.16, at_most=True, basis="control"),
    StopLevel("whole days", Quantity(0), 0.48, basis="days"),
    StopLevel("whole days, range", Quantity(0), 0.48, within=UNIT, basis="days"),
    StopLevel("whole days, ratio", Quantity(0, 1), 0.16, at_most=True, basis="days"),
]


SECONDS = 6 * 3600.0


def drawn(seed: int, sizes: list[tuple[int, int]], harm: float) -> list[MeasuredRound]:
    """Return rounds of units of the learner and of the control; columns like, views, seconds, and an unused one."""
    rng = np.random.default_rng(seed)
    found = []
    for number, counts in enumerate(sizes):
        cells = []
        for arm, units in zip(("learner", "control"), counts, strict=True):
            if not units:
                continue
            fall = harm if arm == "learner" and number > len(sizes) // 2 else 0.0
            columns = [rng.random(units) < 0.5 - fall, rng.integers(1, 7, units), rng.normal(9.0, 1.0, units) - fall]
            rows = np.stack([*columns, rng.random(units)], axis=1)
            apart = rows - rows.mean(axis=0)
            cross = tuple(map(tuple, (apart.T @ apart).tolist()))
            cells.append(CellMoments(arm, -1, units, tuple(rows.mean(axis=0).tolist()), cross))
        found.append(MeasuredRound(3 + 2 * number, {}, cells, SECONDS))
    return found


SIZES = st.tuples(st.sampled_from([0, 1, 3, 30, 120, 400]), st.sampled_from([0, 2, 30, 150]))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(SIZES, min_size=1, max_size=25),
    harm=st.sampled_from([0.0, 0.1, 0.3]),
    cuts=st.sets(st.integers(1, 25)),
)
def test_it_gives_the_verdict_of_all_rounds(
    seed: int, sizes: list[tuple[int, int]], harm: float, cuts: set[int]
) -> None:
    rounds = drawn(seed, sizes, harm)
    monitor = GuardrailMonitor()
    for first, last in zip([0, *sorted(cuts)], [*sorted(cuts), len(rounds)], strict=True):
        monitor = monitor.add_rounds(FLOORS, rounds[first:last])
        monitor = GuardrailMonitor.from_saved(json.loads(json.dumps(monitor.to_saved(), allow_nan=False)))
    verdicts = monitor.verdicts(FLOORS)
    known = [one for one in rounds if one.cells]
    arms = {cell.arm for one in known for cell in one.cells}
    if "learner" not in arms:
        assert verdicts == ()
        return
    judged = [floor for floor in FLOORS if "control" in arms or not (floor.relative or floor.basis == "control")]
    record = record_rounds(known)
    seconds = [SECONDS] * len(known)
    for one, other, floor in zip(verdicts, watch_guardrails(record, judged, seconds=seconds), judged, strict=True):
        if floor.basis is not None and len(known) < len(rounds):
            continue  # a round without units extends a day, which a record does not store
        assert (one.name, one.state, one.bounded) == (other.name, other.state, other.bounded)
        assert one.p_value == pytest.approx(other.p_value, rel=1e-7)
        assert one.since == (None if other.since is None else record.versions[other.since])


def test_what_it_carries_does_not_grow_with_the_rounds() -> None:
    rounds = drawn(1, [(40, 5)] * 60, 0.0)
    texts = []
    monitor = GuardrailMonitor()
    for one in rounds:
        monitor = monitor.add_rounds(FLOORS, [one])
        texts.append(len(json.dumps(monitor.to_saved())))
    assert texts[-1] < 1.2 * texts[24]
    quiet = GuardrailMonitor().add_rounds(FLOORS, rounds[:1])
    control_only = drawn(2, [(0, 5)] * 40, 0.0)
    for one in control_only:
        quiet = quiet.add_rounds(FLOORS, [one])
    assert len(json.dumps(quiet.to_saved())) < 1.2 * texts[24]


def test_a_round_without_units_is_a_part_of_the_day() -> None:
    floor = StopLevel("likes", Quantity(0), 0.48, basis="days")
    busy, quiet = drawn(1, [(400, 0)] * 3, 0.0), MeasuredRound(99, {}, [], SECONDS)
    open_day = GuardrailMonitor().add_rounds([floor], busy)
    assert open_day.floor_states is not None
    assert open_day.floor_states["likes"].evidence_state.level.evidence_state is None  # type: ignore[union-attr]
    whole_day = open_day.add_rounds([floor], [quiet])
    assert whole_day.floor_states is not None
    assert whole_day.floor_states["likes"].evidence_state.level.evidence_state is not None  # type: ignore[union-attr]


def test_re_arming_drops_the_evidence_and_keeps_the_level_of_the_control() -> None:
    floor = StopLevel("likes", Quantity(0), 0.48, basis="control")
    monitor = GuardrailMonitor().add_rounds([floor], drawn(1, [(400, 200)] * 9, 0.3))
    assert [verdict.state for verdict in monitor.verdicts([floor])] == ["breach"]
    allowed = monitor.allowed_changes([floor])
    again = GuardrailMonitor.from_saved(json.loads(json.dumps(monitor.rearm().to_saved())))
    assert again.verdicts([floor]) == ()
    assert again.allowed_changes([floor]) == allowed
    harmed = again.add_rounds([floor], drawn(2, [(400, 200)], 0.0))
    assert [verdict.state for verdict in harmed.verdicts([floor])] == ["holds"]


def test_rounds_that_carried_nothing_change_nothing() -> None:
    monitor = GuardrailMonitor().add_rounds(FLOORS, [MeasuredRound(1, {}, [])])
    assert monitor.floor_states is None
    assert monitor.verdicts(FLOORS) == ()
    assert GuardrailMonitor().add_rounds([], drawn(1, [(40, 5)], 0.0)).floor_states is None


def test_what_is_no_number_is_refused() -> None:
    cell = CellMoments("learner", -1, 200, (float("nan"), 1.0, 1.0), ((1.0,) * 3,) * 3)
    with pytest.raises(MeasurementError, match="finite"):
        GuardrailMonitor().add_rounds(FLOORS, [MeasuredRound(1, {}, [cell])])
