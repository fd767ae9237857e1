"""Sample ratio under changing shares: exact on average, with the cell or the arm that explains the counts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multinomial

from pasto.errors import MeasurementError
from pasto.inference.round_data import WHOLE_ARM, CellMoments, MeasuredRound, record_rounds
from pasto.inference.sample_ratio import (
    ARM_REMAINING_SHARES,
    ARM_REMAINING_WEIGHTS,
    MAX_FALSE_ALARM_RATE,
    arm_groups,
    check_sample_ratio,
    imbalance_evidence,
)
from pasto.report.data_quality_records import LateEvents, QualityReport, RejectedEvents
from pasto.report.lift_records import SuspectCell
from pasto.report.sections import quality_section
from pasto.report.summary import describe_mismatch
from pasto.service.reports.lift_report import sample_ratio_report

GROUPS = {
    "cells": None,
    "learner": arm_groups([("control", 0), ("learner", 0), ("learner", 1)]),
    "confirmation": arm_groups([("blend", 0), ("control", 0), ("best_single", 1)]),
    "no control": arm_groups([("learner", 0), ("learner", 1), ("learner", 2)]),
}


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
def test_evidence_is_one_on_average_over_every_outcome(groups: NDArray[np.bool_] | None) -> None:
    """Enumerate two rounds of six units over three cells; the second's shares depend on the first's counts."""
    total = 6
    outcomes = [(a, b, total - a - b) for a in range(total + 1) for b in range(total + 1 - a)]
    first = np.array([0.5, 0.3, 0.2])
    average = 0.0
    for one in outcomes:
        after = (np.array(one) + 1.0) / (total + 3.0)
        for two in outcomes:
            chance = multinomial.pmf(one, total, first) * multinomial.pmf(two, total, after)
            evidence, _ = imbalance_evidence(np.array([one, two], dtype=float), np.stack([first, after]), groups)
            average += chance * float(np.exp(evidence[-1]))
    assert average == pytest.approx(1.0, abs=1e-9)


def moments(arm: str, candidate: int, units: int) -> CellMoments:
    return CellMoments(arm, candidate, units, (0.0,), ((0.0,),))


def rounds_with(loss: dict[int, float], rounds: int = 20) -> list[MeasuredRound]:
    rng = np.random.default_rng(1)
    found = []
    for number in range(rounds):
        learner = 0.9 * rng.dirichlet(np.full(4, 5.0))
        shares = {("control", 0): 0.1, **{("learner", k): float(share) for k, share in enumerate(learner)}}
        counts = rng.multinomial(3_000, [*shares.values()])
        cells = []
        for (arm, candidate), count in zip(shares, counts, strict=True):
            left = loss.get(candidate, 1.0) if arm == "learner" else 1.0
            cells.append(moments(arm, candidate, int(rng.binomial(count, left))))
        found.append(MeasuredRound(number, shares, [cell for cell in cells if cell.units]))
    return found


def test_a_healthy_study_raises_no_alarm() -> None:
    found = check_sample_ratio(record_rounds(rounds_with({})))
    assert not found.alarm
    assert (found.suspect, found.round, found.remaining_share) == (None, None, None)
    assert found.p_value > 0.01
    assert sum(found.expected.values()) == pytest.approx(sum(found.observed.values()))


@pytest.mark.parametrize("left", [0.9, 0.5, 0.0])
def test_losses_are_found_and_named(left: float) -> None:
    found = check_sample_ratio(record_rounds(rounds_with({2: left})))
    assert found.alarm
    assert found.suspect == ("learner", 2)
    assert found.remaining_share == pytest.approx(left, abs=0.03)
    assert found.round is not None


def test_the_weights_of_the_alternatives_are_a_distribution() -> None:
    assert ARM_REMAINING_SHARES.shape == ARM_REMAINING_WEIGHTS.shape
    assert ARM_REMAINING_WEIGHTS.sum() == pytest.approx(1.0)
    assert MAX_FALSE_ALARM_RATE == 4e-3


@pytest.mark.parametrize(("left", "rounds"), [(0.95, 40), (0.9, 20), (0.5, 2), (0.0, 2)])
def test_a_loss_on_all_of_an_arm_names_the_arm(left: float, rounds: int) -> None:
    found = check_sample_ratio(record_rounds(rounds_with(dict.fromkeys(range(4), left), rounds)))
    assert found.alarm
    assert found.suspect == ("learner", WHOLE_ARM)
    assert found.remaining_share == pytest.approx(left, abs=0.015)
    ratio = sample_ratio_report(found, ["a", "b", "c", "d"])
    sentence = describe_mismatch(ratio)
    assert sentence.startswith(f"Of the units of the arm learner, {found.remaining_share:.0%} arrived, so nothing can")
    assert ratio.suspect == SuspectCell("learner", None, found.remaining_share)
    quality = QualityReport(1, 1, LateEvents(0, 0.0), {}, 0, 0, RejectedEvents(), 0, (), 0, sample_ratio=ratio)
    rows = quality_section(quality).rows
    (text,) = [row[1] for row in rows if row[0] == "sample ratio"]
    assert text.startswith("wrong: learner / all candidates (p = ")


def confirmed(loss: dict[str, float]) -> MeasuredRound:
    """Return a confirmation of 90,000 units in three arms, reduced to the given part of each."""
    shares = {("blend", 0): 0.2, ("blend", 1): 0.13, ("control", 2): 0.34, ("best_single", 1): 0.33}
    rng = np.random.default_rng(2)
    counts = rng.multinomial(90_000, [*shares.values()])
    cells = [
        moments(arm, candidate, int(rng.binomial(count, loss.get(arm, 1.0))))
        for (arm, candidate), count in zip(shares, counts, strict=True)
    ]
    return MeasuredRound(7, shares, cells)


@pytest.mark.parametrize(
    ("loss", "suspect", "left"),
    [
        ({"blend": 0.95}, ("blend", WHOLE_ARM), 0.95),
        ({"best_single": 0.95}, ("best_single", 1), 0.95),
        ({"control": 0.95}, ("control", 2), 0.95),
        ({"blend": 0.95, "best_single": 0.95}, ("control", 2), 1.05),
    ],
)
def test_a_confirmation_names_the_arm_that_differs(
    loss: dict[str, float], suspect: tuple[str, int], left: float
) -> None:
    found = check_sample_ratio(record_rounds([confirmed(loss)]))
    assert found.alarm
    assert found.suspect == suspect
    assert found.remaining_share == pytest.approx(left, abs=0.015)
    assert not check_sample_ratio(record_rounds([confirmed({})])).alarm


def test_arms_that_serve_the_baseline_are_what_the_others_are_compared_with() -> None:
    keys = [("control", 0), ("learner", 0), ("learner", 1), ("not_enrolled", 0)]
    assert arm_groups(keys).tolist() == [[False, True, True, False]]
    assert arm_groups([("learner", 0), ("learner", 1)]).shape == (0, 2)
    assert arm_groups([("paused", 0)]).shape == (0, 1)


def test_a_round_that_served_only_the_arm_adds_no_evidence() -> None:
    groups = arm_groups([("control", 0), ("learner", 0), ("learner", 1)])
    shares = np.array([[0.1, 0.4, 0.5], [0.0, 0.4, 0.6]])
    counts = np.array([[100.0, 400.0, 500.0], [0.0, 4_000.0, 6_000.0]])
    evidence, _ = imbalance_evidence(counts, shares, groups)
    assert evidence[1] <= evidence[0] < 0.0


def test_an_arm_that_is_left_out_leaves_the_others_in_proportion() -> None:
    rounds = rounds_with({})
    inside = [
        MeasuredRound(one.version, {k: v for k, v in one.shares.items() if k[0] == "learner"}, one.cells[1:])
        for one in rounds
    ]
    found = check_sample_ratio(record_rounds(inside))
    assert not found.alarm
    assert sum(found.expected.values()) == pytest.approx(sum(found.observed.values()))


def test_a_silent_cell_of_small_share_is_red() -> None:
    shares = {("control", 0): 0.5, ("learner", 1): 0.49, ("learner", 2): 0.01}
    rounds = [MeasuredRound(n, shares, [moments("control", 0, 500), moments("learner", 1, 490)]) for n in range(3)]
    found = check_sample_ratio(record_rounds(rounds))
    assert found.alarm
    assert found.suspect == ("learner", 2)


def test_a_unit_where_none_could_be_is_red_at_once() -> None:
    shares = {("control", 0): 0.5, ("learner", 1): 0.5, ("learner", 2): 0.0}
    cells = [moments("control", 0, 50), moments("learner", 1, 50), moments("learner", 2, 1)]
    found = check_sample_ratio(record_rounds([MeasuredRound(0, shares, cells)]))
    assert found.alarm
    assert found.suspect == ("learner", 2)
    assert found.p_value == 0.0


def test_shapes_must_agree() -> None:
    with pytest.raises(MeasurementError, match="same shape"):
        imbalance_evidence(np.zeros((2, 3)), np.zeros((2, 4)))
