"""Multiple comparisons: claims about winners that hold together."""

from __future__ import annotations

import numpy as np
import pytest

from pasto.errors import MeasurementError
from pasto.inference import Quantity
from pasto.inference.multiple_comparisons import find_winners
from pasto.inference.round_data import CellMoments, MeasuredRound, RoundRecord, record_rounds


def study(
    levels: list[float], *, rounds: int = 10, units: int = 2_000, seed: int = 1, control: bool = True
) -> RoundRecord:
    rng = np.random.default_rng(seed)
    found = []
    keys = [("learner", k) for k in range(len(levels))] + ([("control", 0)] if control else [])
    for number in range(rounds):
        day = 5.0 * np.sin(number)
        cells = []
        for arm, candidate in keys:
            level = levels[0] if arm == "control" else levels[candidate]
            mean = day + level + rng.standard_normal() / np.sqrt(units)
            cells.append(CellMoments(arm, candidate, units, (mean,), ((float(units),),)))
        found.append(MeasuredRound(number, dict.fromkeys(keys, 1.0 / len(keys)), cells))
    return record_rounds(found)


def test_a_winner_beats_the_control_and_all_others() -> None:
    found = find_winners(study([0.0, 0.0, 0.1, 0.3]), Quantity(0), leave_out=0)
    assert found.winners == (2, 3)
    assert (found.best, found.winner) == (3, 3)
    assert set(found.claims) == {1, 2, 3}
    assert found.claims[3].low < 0.3 < found.claims[3].high


def test_two_equally_good_candidates_both_beat_the_control_and_neither_wins() -> None:
    found = find_winners(study([0.0, 0.3, 0.3]), Quantity(0), leave_out=0)
    assert found.winners == (1, 2)
    assert found.winner is None


def test_lower_may_be_better() -> None:
    found = find_winners(study([0.0, 0.2, -0.3]), Quantity(0), at_most=True, leave_out=0)
    assert (found.best, found.winners, found.winner) == (2, (2,), 2)


def test_intervals_widen_with_the_claims_and_with_looking() -> None:
    few, many = (find_winners(study([0.0, 0.1, *[0.0] * more]), Quantity(0)).claims[1] for more in (0, 30))
    assert many.high - many.low > few.high - few.low
    once = find_winners(study([0.0, 0.1]), Quantity(0), sequential=False).claims[1]
    assert once.high - once.low < few.high - few.low


def test_a_winner_needs_a_control() -> None:
    with pytest.raises(MeasurementError, match="no round has an arm 'control'"):
        find_winners(study([0.0, 1.0], control=False), Quantity(0))
