"""Stopping benchmark at a small size, and its comparison."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pasto_research.bench.certificate_worlds import WORLDS
from pasto_research.bench.live_traffic_worlds import LIVE_TRAFFIC
from pasto_research.bench.stopping import StoppedStudy, measure, run_study, summarize
from pasto_research.bench.stopping_worlds import (
    STOPPING_WORLDS,
    AskedStudy,
    CertifiedStudy,
    LiveStudy,
    StoppingWorld,
    flat,
)
from pasto_research.bench.worlds import uniform

SMALL = StoppingWorld("small", lambda seed: AskedStudy(uniform(0.1, candidates=8), seed), rounds=30)
HARD = StoppingWorld("hard", lambda seed: AskedStudy(uniform(0.1, candidates=20, hard=True), seed), rounds=25)


def test_a_study_stops_and_continues_for_comparison() -> None:
    study = run_study(SMALL, seed=3)
    assert study.is_stopped
    assert 1 <= study.stop < 30
    assert study.answers.shape == study.served.shape == (30,)
    assert (study.answers <= 1e-9).all()
    losses = study.losses(180.0)
    assert losses[study.stop - 1] == pytest.approx(
        -study.served[: study.stop].sum() - 180 * study.answers[study.stop - 1]
    )
    assert run_study(SMALL, seed=3).stop == study.stop


def test_a_short_deployment_stops_earlier() -> None:
    stops = [
        np.mean([run_study(replace(SMALL, deploy_rounds=count), seed).stop for seed in range(3)])
        for count in (5, 5_000)
    ]
    assert stops[0] < stops[1]


def test_the_loss_is_compared_with_the_best_fixed_round() -> None:
    """Compare two studies that learn for one and three rounds, when two rounds are best for both."""

    def study(stop: int) -> StoppedStudy:
        answers, served = np.array([-1.0, 0.0, 0.0]), np.array([-1.0, -1.0, -1.0])
        return StoppedStudy(stop, True, answers, served, gain=2.0, certified=True, binding=2, held=1)

    row = summarize(replace(SMALL, deploy_rounds=10.0, rounds=3), [study(1), study(3)])
    assert row["best fixed round"] == 2
    assert row["lost"].startswith("25.0 ± ")  # (9 + 1) / 2 of 10 · 2
    assert row["left to gain"].startswith("25.0 ± ")
    assert (row["binding"], row["hold"]) == (4, "50.0 ± 25.0 %")
    holding = [replace(study(stop), held=2) for stop in (1, 3)]
    assert summarize(replace(SMALL, deploy_rounds=10.0, rounds=3), holding)["hold"] == "4 of 4"


def test_certificates_are_checked_at_the_stop() -> None:
    row = measure([HARD], studies=2).rows[0]
    assert row["certified"] == "100%"
    assert row["binding"] > 0


def test_nothing_is_lost_where_nothing_is_to_be_gained() -> None:
    flat_world = StoppingWorld("flat", lambda seed: AskedStudy(flat(0.5, candidates=6), seed), rounds=5, is_flat=True)
    row = measure([flat_world], studies=2).rows[0]
    assert (row["lost"], row["left to gain"], row["best fixed round"]) == (None, None, None)


def test_all_kinds_of_worlds_are_served() -> None:
    live = LiveStudy(replace(LIVE_TRAFFIC[0], users=5_000), 1)
    assert live.reference == pytest.approx(0.0, abs=1e-9)
    shares = live.serve()
    assert shares.sum() == pytest.approx(1.0)
    assert shares[LIVE_TRAFFIC[0].baseline] >= 0.1
    certified = CertifiedStudy(next(world for world in WORLDS if world.control > 0), 1)
    assert certified.serve().sum() == pytest.approx(1.0)
    assert certified.study.rounds == 1
    assert certified.judge.best > certified.reference


def test_every_world_starts() -> None:
    for world in STOPPING_WORLDS:
        run = world.start(5)
        assert run.study.rounds == 0
        assert run.judge.best - run.reference >= -1e-9
        assert (abs(run.judge.best - run.reference) < 1e-9) == world.is_flat
