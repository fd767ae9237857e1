"""Event shortage: rounds without their events are detected, and healthy rounds cause no alarm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pasto.inference.event_shortage import MAX_EARLIER_ROUNDS, RoundTotals, find_shortages
from pasto_research.bench.missing_data import WORLDS, simulate_study

SWINGING = "±40 % between rounds, 2,000 units"


def counts(*cells: tuple[float, float]) -> RoundTotals:
    """Return candidates with their units, and the number of units with a counted event."""
    units, events = np.array(cells, dtype=float).T
    return RoundTotals(units, events[:, None].copy(), events[:, None].copy())


def kinds(now: RoundTotals, earlier: list[RoundTotals]) -> list[str]:
    return [one.kind for one in find_shortages(now, earlier, ["like"])]


@pytest.mark.parametrize("rounds", [1, 3, 16])
def test_no_event_where_twenty_five_were_expected(rounds: int) -> None:
    assert kinds(counts((500, 0)), [counts((500, 25))] * rounds) == ["no_events", "none"]


@pytest.mark.parametrize("rounds", [1, 3, 16])
def test_no_event_where_few_were_expected_is_chance(rounds: int) -> None:
    assert kinds(counts((500, 0)), [counts((500, 15))] * rounds) == []
    assert kinds(counts((10, 0)), [counts((500, 25))] * rounds) == []


def test_numbers_of_a_finding() -> None:
    (_, found) = find_shortages(counts((2000, 0)), [counts((1000, 90)), counts((1000, 110))], ["like"])
    assert (found.column, found.units, found.observed, found.rounds) == (0, 2000, 0.0, 2)
    assert found.expected == pytest.approx(200.0, rel=0.01)
    assert found.expected_events == pytest.approx(200.0, rel=0.01)


def test_a_fall_beyond_the_scatter_of_earlier_rounds() -> None:
    calm = [counts((4000, events)) for events in (400, 380, 420, 410, 390, 400, 405, 395, 400, 400)]
    (found,) = find_shortages(counts((4000, 12)), calm, ["like"])
    assert found.kind == "fell"
    assert found.p_value is not None
    assert found.p_value < 1e-6
    wild = [counts((4000, events)) for events in (400, 40, 900, 60, 400, 20, 800, 500, 30, 200)]
    assert kinds(counts((4000, 12)), wild) == []


def test_with_few_earlier_rounds_a_fall_is_not_judged() -> None:
    assert kinds(counts((4000, 12)), [counts((4000, 400))] * 2) == []


def test_a_first_swing_by_four_is_healthy() -> None:
    assert kinds(counts((4000, 100)), [counts((4000, 400))] * MAX_EARLIER_ROUNDS) == []


def test_a_policy_that_moves_to_a_candidate_with_few_events_is_healthy() -> None:
    before = [counts((2000, 0), (2000, 400))] * 8
    assert kinds(counts((3990, 0), (10, 1)), before) == []
    assert kinds(counts((4000, 0), (0, 0), (1000, 0)), before) == ["no_events"]


def test_a_fall_that_the_control_does_not_share_is_an_effect() -> None:
    earlier = [replace(counts((4000, 400)), control=counts((400, 40)))] * 10
    assert kinds(replace(counts((4000, 33)), control=counts((400, 33))), earlier) == []
    assert kinds(replace(counts((4000, 10)), control=counts((400, 1))), earlier) == ["fell"]
    assert kinds(replace(counts((4000, 10)), control=None), earlier) == ["fell"]


def test_a_study_that_never_had_an_event_is_asked_about_once() -> None:
    assert kinds(counts((999, 0)), []) == []
    assert kinds(counts((1000, 0)), []) == ["no_events"]
    assert kinds(counts((600, 0)), [counts((600, 0))]) == ["no_events"]
    assert kinds(counts((600, 0)), [counts((1200, 0))]) == []


def test_signed_amounts_are_judged_only_if_none_came() -> None:
    def round_of(total: float, squares: float) -> RoundTotals:
        return RoundTotals(np.array([1000.0]), np.array([[total]]), np.array([[squares]]))

    earlier = [round_of(total, 1000.0) for total in (400.0, -300.0, 350.0, -420.0, 410.0)]
    assert kinds(round_of(3.0, 900.0), earlier) == []
    assert kinds(round_of(0.0, 0.0), earlier) == ["no_events", "none"]


def test_a_range_above_zero_makes_no_events() -> None:
    cells = np.array([0]), np.array([500.0]), np.array([[1.0]]), np.array([[0.0]])
    assert not RoundTotals.from_cells(*cells, np.array([1.0])).squares.any()


def test_rounds_without_units_and_unknown_candidates_are_left_alone() -> None:
    nothing = RoundTotals(np.zeros(0), np.zeros((0, 1)), np.zeros((0, 1)))
    assert kinds(nothing, [counts((500, 50))]) == []
    assert kinds(counts((500, 20)), [nothing]) == []
    assert kinds(counts((0, 0), (500, 1)), [counts((500, 50))] * 12) == []


@pytest.mark.parametrize("world", WORLDS)
def test_healthy_studies_are_not_held_back(world: str) -> None:
    rng = np.random.default_rng(3)
    held = np.concatenate([simulate_study(rng, WORLDS[world], 40) for _ in range(2)])
    assert not held.any()


def test_missing_events_are_found() -> None:
    rng = np.random.default_rng(4)
    for left in ((0.0, 0.0, 0.0), (1.0, 0.0, 1.0)):
        held = simulate_study(rng, WORLDS[SWINGING], 30, np.array(left))
        assert held[2:].all()
