from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pasto.errors import OptionError
from pasto.sim import Conditions


def test_smooth_traffic_raises_no_alarm() -> None:
    late, lost = Conditions().draw_delays(100, np.random.default_rng(1))
    assert not late.any()
    assert not lost.any()
    assert [Conditions().mood(round) for round in range(30)] == [1.0] * 30


def test_a_day_is_one_on_average() -> None:
    rough = Conditions(night=0.4, day=8)
    moods = [rough.mood(round) for round in range(8)]
    assert np.mean(moods) == pytest.approx(1.0)
    assert (min(moods), max(moods)) == pytest.approx((0.6, 1.4))
    assert rough.mood(3) == pytest.approx(rough.mood(11))


def test_events_are_late_or_lost_and_never_both() -> None:
    late, lost = Conditions(late=0.2, lost=0.1).draw_delays(100_000, np.random.default_rng(2))
    assert late.mean() == pytest.approx(0.2, abs=0.006)
    assert lost.mean() == pytest.approx(0.1, abs=0.005)
    assert not (late & lost).any()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"night": 1.0}, "night= must be a share"),
        ({"late": -0.1}, "late= must be a share"),
        ({"late": 0.6, "lost": 0.4}, "must leave some events"),
        ({"day": 1}, "at least 2 rounds"),
    ],
)
def test_impossible_conditions_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Conditions(**given)
