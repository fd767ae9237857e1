"""Sender check: alarms for invented units, and rarely for honest ones."""

from __future__ import annotations

import numpy as np
import pytest

from pasto.inference.sender_departure import SenderEvidence, share_log_ratio, update_evidence
from pasto_research.bench.senders import ATTACKS, HEALTHY, attacked_study, healthy_study, look, tabulate

KEYS = [("learner", 0), ("learner", 1), ("learner", 2)]
SHARES = np.array([0.5, 0.3, 0.2])
LEAST_FOUND = {"one raised and the best lowered in part, after 20 honest rounds": 5}
"""Of 10 studies; all, of the other attacks."""


def test_the_share_ratio_has_mean_one_on_honest_units() -> None:
    rng = np.random.default_rng(5)
    ratios = [np.exp(share_log_ratio(rng.multinomial(12, SHARES).astype(float), SHARES)) for _ in range(20_000)]
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.1)


def test_units_in_a_cell_without_a_share_are_certain_evidence() -> None:
    assert share_log_ratio(np.array([3.0, 1.0]), np.array([1.0, 0.0])) == np.inf
    assert share_log_ratio(np.array([3.0, 0.0]), np.array([1.0, 0.0])) == 0.0


@pytest.mark.parametrize("attack", ATTACKS)
def test_invented_units_are_found_within_three_rounds(attack: str) -> None:
    found = [attacked_study(attack, np.random.default_rng([3, run]), rounds=3) for run in range(10)]
    assert len([number for number in found if number is not None]) >= LEAST_FOUND.get(attack, 10), found


@pytest.mark.parametrize("kind", HEALTHY)
def test_healthy_studies_stay_quiet(kind: str) -> None:
    assert not any(healthy_study(HEALTHY[kind], np.random.default_rng([4, run])) for run in range(4))


def test_a_weak_attack_is_found_by_all_rounds_together() -> None:
    """Check an attack of two points out of ten, which one round of 60 units hardly detects."""
    rng = np.random.default_rng(8)
    known: dict[int, SenderEvidence] = {}
    shares = np.full(3, 1.0 / 3.0)
    rang = []
    for _ in range(25):
        cells = {}
        for sender, size in ((0, 540), (1, 60)):
            drawn = rng.choice(3, size, p=shares)
            raised = np.where((drawn == 0) & (sender == 1), 8.0, 0.0)
            cells[sender] = tabulate(drawn, (rng.normal(30.0, 10.0, size) + raised)[:, None], 3)
        rang.append(look(known, cells, shares))
    assert not rang[0]
    assert rang[-1]


def test_a_sender_of_another_level_with_proportional_effects_raises_no_alarm() -> None:
    rng = np.random.default_rng(9)
    known: dict[int, SenderEvidence] = {}
    means = np.array([10.0, 12.0, 14.0])
    for _ in range(10):
        cells = {}
        for sender, level in ((0, 1.0), (1, 3.0)):
            drawn = rng.choice(3, 2_000, p=SHARES)
            cells[sender] = tabulate(drawn, (level * rng.normal(means[drawn], 4.0))[:, None], 3)
        assert not look(known, cells, SHARES)


@pytest.mark.parametrize("sender", [0, 1])
def test_a_sender_whose_level_alone_falls_departs_and_the_other_does_not(sender: int) -> None:
    rng = np.random.default_rng(13)
    known: dict[int, SenderEvidence] = {}
    for number in range(4):
        cells = {}
        for place in (0, 1):
            drawn = rng.choice(3, 400, p=SHARES)
            level = 0.1 if (number, place) == (3, sender) else 1.0
            cells[place] = tabulate(drawn, (level * rng.gamma(3.0, 10.0, 400))[:, None], 3)
        assert look(known, cells, SHARES) == (number == 3)
    departure = known[sender].departure
    assert departure is not None
    assert (departure.test, departure.cell, departure.column) == ("level", None, 0)
    assert known[1 - sender].departure is None


def test_levels_that_move_together_are_no_departure() -> None:
    rng = np.random.default_rng(14)
    known: dict[int, SenderEvidence] = {}
    for level in (1.0, 1.0, 0.05, 20.0, 1.0):
        cells = {}
        for place in (0, 1):
            drawn = rng.choice(3, 400, p=SHARES)
            cells[place] = tabulate(drawn, (level * (1 + place) * rng.gamma(3.0, 10.0, 400))[:, None], 3)
        assert not look(known, cells, SHARES)


def test_opposite_effects_are_a_departure() -> None:
    rng = np.random.default_rng(10)
    known: dict[int, SenderEvidence] = {}
    rang = False
    for _ in range(20):
        cells = {}
        for sender, means in ((0, np.array([10.0, 12.0, 14.0])), (1, np.array([14.0, 12.0, 10.0]))):
            drawn = rng.choice(3, 600, p=SHARES)
            cells[sender] = tabulate(drawn, rng.normal(means[drawn], 4.0)[:, None], 3)
        rang = look(known, cells, SHARES)
    assert rang
    departure = known[1].departure
    assert departure is not None
    assert (departure.test, departure.column) == ("effect", 0)
    assert departure.cell in (("learner", 0), ("learner", 2))


def test_an_outlier_is_not_a_departure() -> None:
    rng = np.random.default_rng(11)
    known: dict[int, SenderEvidence] = {}
    cells = {}
    for sender in (0, 1):
        drawn = rng.choice(3, 300, p=SHARES)
        values = rng.normal(10.0, 1.0, 300)
        values[0] += 1e6 * sender
        cells[sender] = tabulate(drawn, values[:, None], 3)
    assert not look(known, cells, SHARES)


def test_without_accumulation_a_look_replaces_the_one_before() -> None:
    rng = np.random.default_rng(12)
    drawn = rng.choice(3, 300, p=SHARES)
    cells = tabulate(drawn, rng.normal(10.0, 1.0, (300, 1)), 3)
    once = update_evidence(SenderEvidence(1), cells, cells, KEYS, SHARES, accumulate=False)
    twice = update_evidence(once, cells, cells, KEYS, SHARES, accumulate=False)
    assert (twice.looks, twice.units, twice.sums) == (2, once.units, once.sums)
    added = update_evidence(once, cells, cells, KEYS, SHARES)
    assert added.units == tuple(2.0 * units for units in once.units)
