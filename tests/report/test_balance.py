"""Sample ratios under shares that change: exact on average, and pointing at the culprit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multinomial

from pasto.errors import BadMeasurement
from pasto.report.balance import balance, imbalance
from pasto.report.measured import CellMoments, MeasuredRound, recorded


def test_evidence_is_one_on_average_over_every_outcome() -> None:
    """Two rounds of six units over three cells, the second's shares depending on the first's counts."""
    total = 6
    outcomes = [(a, b, total - a - b) for a in range(total + 1) for b in range(total + 1 - a)]
    first = np.array([0.5, 0.3, 0.2])
    average = 0.0
    for one in outcomes:
        after = (np.array(one) + 1.0) / (total + 3.0)
        for two in outcomes:
            chance = multinomial.pmf(one, total, first) * multinomial.pmf(two, total, after)
            evidence, _ = imbalance(np.array([one, two], dtype=float), np.stack([first, after]))
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


def test_a_healthy_study_is_left_alone() -> None:
    found = balance(recorded(rounds_with({})))
    assert not found.alarm
    assert (found.suspect, found.round, found.left) == (None, None, None)
    assert found.p_value > 0.01
    assert sum(found.expected.values()) == pytest.approx(sum(found.observed.values()))


@pytest.mark.parametrize("left", [0.9, 0.5, 0.0])
def test_losses_are_found_and_named(left: float) -> None:
    found = balance(recorded(rounds_with({2: left})))
    assert found.alarm
    assert found.suspect == ("learner", 2)
    assert found.left == pytest.approx(left, abs=0.03)
    assert found.round is not None


def test_an_arm_that_is_left_out_leaves_the_others_in_proportion() -> None:
    rounds = rounds_with({})
    inside = [
        MeasuredRound(one.version, {k: v for k, v in one.shares.items() if k[0] == "learner"}, one.cells[1:])
        for one in rounds
    ]
    found = balance(recorded(inside))
    assert not found.alarm
    assert sum(found.expected.values()) == pytest.approx(sum(found.observed.values()))


def test_a_silent_cell_of_small_share_is_red() -> None:
    shares = {("control", 0): 0.5, ("learner", 1): 0.49, ("learner", 2): 0.01}
    rounds = [MeasuredRound(n, shares, [moments("control", 0, 500), moments("learner", 1, 490)]) for n in range(3)]
    found = balance(recorded(rounds))
    assert found.alarm
    assert found.suspect == ("learner", 2)


def test_a_unit_where_none_could_be_is_red_at_once() -> None:
    shares = {("control", 0): 0.5, ("learner", 1): 0.5, ("learner", 2): 0.0}
    cells = [moments("control", 0, 50), moments("learner", 1, 50), moments("learner", 2, 1)]
    found = balance(recorded([MeasuredRound(0, shares, cells)]))
    assert found.alarm
    assert found.suspect == ("learner", 2)
    assert found.p_value == 0.0


def test_shapes_must_agree() -> None:
    with pytest.raises(BadMeasurement, match="same shape"):
        imbalance(np.zeros((2, 3)), np.zeros((2, 4)))
