"""The check of stated errors against the scatter of repeats."""

from __future__ import annotations

import numpy as np

from pasto.estimate import Overdispersion


def test_right_errors_seldom_raise_the_alarm_however_few_the_repeats() -> None:
    rng = np.random.default_rng(1)
    for degrees in (1, 3, 10, 100):
        ratios = rng.chisquare(degrees, 4_000) / degrees
        raised = Overdispersion.from_ratio(ratios, float(degrees)).raised
        assert raised.mean() <= 0.01


def test_errors_too_small_by_half_raise_it() -> None:
    rng = np.random.default_rng(2)
    ratios = 4.0 * rng.chisquare(60, 1_000) / 60
    assert Overdispersion.from_ratio(ratios, 60.0).raised.mean() > 0.99


def test_unknown_is_not_an_alarm() -> None:
    assert not Overdispersion.from_ratio(np.array([np.nan]), 0.0).raised.any()
