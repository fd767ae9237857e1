"""Certificates against the truth, at sizes that fit the suite; `pasto bench certificates` runs every world in full."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pasto_research.bench.certificate_worlds import (
    WORLDS,
    Amounts,
    CertificateWorld,
    Counts,
    Events,
    Gaussian,
    MetricDistribution,
)
from pasto_research.bench.certificates import SIDES, Calibration, calibrate, run_study


def world(name: str) -> CertificateWorld:
    return next(world for world in WORLDS if world.name.startswith(name))


@pytest.mark.parametrize(
    "metric",
    [
        Gaussian(1.0, 3.0, 2.0),
        Events(0.02, 0.1),
        Amounts(0.5, 1.5, buyers=0.2, sigma=0.5),
        Amounts(0.5, 1.5, buyers=1.0, sigma=1.0),
        Counts(1.0, 3.0, 0.5),
    ],
)
def test_metrics_have_the_mean_and_variance_that_they_state(metric: MetricDistribution) -> None:
    rng = np.random.default_rng(1)
    truth = float(metric.scale(np.array([0.3]))[0])
    cells = np.array([metric.sample(truth, 200, rng) for _ in range(4_000)])
    assert cells[:, 0].mean() == pytest.approx(truth, rel=0.02)
    assert cells[:, 0].var() == pytest.approx(cells[:, 1].mean() / 200, rel=0.15)


def test_every_world_gives_a_study_whose_answer_can_be_checked() -> None:
    for place, each in enumerate(WORLDS):
        short = replace(each, rounds=2)
        outcomes = (run_study(short, SIDES[place % 2], seed) for seed in range(place, place + 5))
        outcome = next(outcome for outcome in outcomes if outcome is not None)
        assert len(outcome.holds) == each.guardrails, each.name


def test_a_calibration_counts_binding_guardrails_of_certified_answers() -> None:
    cell = Calibration(WORLDS[0], "at least")
    assert np.isnan(cell.share_held)
    outcome = run_study(WORLDS[0], "at least", 3)
    assert outcome is not None
    cell.outcomes.append(outcome)
    assert cell.binding == sum(outcome.binding)
    assert cell.row()["studies"] == 1


@pytest.mark.parametrize("name", ["revenue, 98 % zeros, 10,000 a cell, tell(), errors", "percent, control 5%, steady"])
def test_weights_by_sample_variance_are_caught(name: str) -> None:
    """Run a small version of the benchmark: the mutant breaks most guardrails, the learner holds them."""
    ours = calibrate([world(name)], studies=16)[1]
    mutant = calibrate([world(name)], studies=8, mutant=True)[1]
    assert ours.side == mutant.side == "at most"
    assert ours.binding >= 16
    assert ours.share_held >= 0.8
    assert mutant.share_held < 0.6


@pytest.mark.parametrize("name", ["rounds shift together", "four rows a user"])
def test_errors_that_are_too_small_are_questioned_and_nothing_is_certified(name: str) -> None:
    outcomes = [run_study(world(name), "at least", seed) for seed in range(6)]
    found = [outcome for outcome in outcomes if outcome is not None]
    assert sum(outcome.understated for outcome in found) >= len(found) - 1
    assert not any(outcome.certified for outcome in found if outcome.understated)


@pytest.mark.services
def test_certificates_hold_on_every_world() -> None:
    """Run a small version of the benchmark: in every world guardrails hold about as often as stated."""
    for cell in calibrate(WORLDS, studies=8, seed=70_000):
        if cell.world.independent:
            error = np.sqrt(0.05 * 0.95 / max(cell.binding, 1))
            assert cell.share_raised <= 0.25, cell.row()
            assert len(cell.certified) >= 0.5 * len(cell.outcomes), cell.row()
            assert cell.share_held + 4.0 * error >= 0.95, cell.row()
        else:
            assert cell.share_raised >= 0.75, cell.row()
