"""Race with many candidates at a tenth of its size, and its worlds."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from pasto.optimize.learners import Thompson
from pasto_research.bench.learner_courses import Judge
from pasto_research.bench.many_candidates import (
    ALLOCATORS,
    FAMILIES,
    USER_CORRELATION,
    USER_DEVIATION,
    EvenAllocator,
    HalvingAllocator,
    ManyCandidates,
    OracleAllocator,
    measure_many_candidates,
    run_allocator,
)

SMALL = ManyCandidates("small", trade_off=0.6, candidates=150, users=150_000)


def test_stated_covariances_are_those_of_the_cells() -> None:
    family = ManyCandidates("two", candidates=400, users=40_000)
    world = family.draw(np.random.default_rng(1))
    rng = np.random.default_rng(2)
    errors, stated = [], np.zeros((0, 3, 3))
    for version in range(20):
        for cell in world.draw_round(np.full(400, 1 / 400), version, rng):
            errors.append((np.array(cell.mean) - world.truth[:, cell.candidate]) * np.sqrt(cell.units))
            stated = np.concatenate([stated, np.array(cell.covariance)[None] * cell.units])
    expected = USER_DEVIATION**2 * (USER_CORRELATION + (1 - USER_CORRELATION) * np.eye(3))
    assert_allclose(np.cov(np.array(errors).T), expected, rtol=0.12)
    assert_allclose(stated.mean(axis=0), expected, rtol=0.02)
    assert 0.1 < float(stated[:, 0, 0].std()) / USER_DEVIATION**2 < 0.2  # of about 100 users each


def test_the_two_families_differ_in_their_correlation() -> None:
    truths = [family.draw(np.random.default_rng(1)).truth for family in FAMILIES]
    apart, opposed = (np.asarray(np.corrcoef(truth))[0, 1:] for truth in truths)
    assert np.abs(apart).max() < 0.1
    assert_allclose(opposed, -0.6, atol=0.06)


def test_halving_keeps_the_better_half_down_to_eight() -> None:
    world = SMALL.draw(np.random.default_rng(3))
    rng, halving = np.random.default_rng(4), HalvingAllocator(world, 0)
    left = []
    for _ in range(6):
        shares = halving.propose()
        assert shares.sum() == pytest.approx(1.0)
        left.append(int((shares > 0).sum()))
        halving.observe(world.draw_round(shares, halving.study.policy.version, rng))
    assert left == [150, 75, 38, 19, 10, 8]
    score = Judge(SMALL.objective.form(), world.truth)
    assert score.value(np.array(halving.study.blend().probabilities)) > score.value(np.full(150, 1 / 150))


def test_the_oracle_serves_the_best_blend_s_candidates_after_an_even_round() -> None:
    world = SMALL.draw(np.random.default_rng(3))
    oracle = OracleAllocator(world, 0)
    assert (oracle.propose() == 1 / 150).all()
    oracle.observe(world.draw_round(oracle.propose(), 0, np.random.default_rng(4)))
    assert 2 <= int((oracle.propose() > 0).sum()) <= 3
    assert (EvenAllocator(world, 0).propose() == 1 / 150).all()


def test_the_study_finds_better_blends_than_the_even_sweep() -> None:
    ours, even = (
        np.array([run_allocator(SMALL, name, run, seed=9).regrets[-1] for run in range(3)])
        for name in ("posterior blend", "even sweep")
    )
    assert (ours >= -1e-9).all()
    assert ours.mean() < 0.5 * even.mean()


def test_a_run_repeats_and_the_mutant_differs() -> None:
    ours, again, mutant = (
        run_allocator(SMALL, name, 0, seed=9).regrets
        for name in ("posterior blend", "posterior blend", "posterior blend, 32 draws")
    )
    assert np.array_equal(ours, again)
    assert not np.array_equal(ours, mutant)
    assert Thompson().draws is None


def test_the_report_has_a_row_for_each_world_and_learner() -> None:
    report = measure_many_candidates([SMALL], instances=2, seed=7)
    assert [row["learner"] for row in report.rows] == list(ALLOCATORS)
    for row in report.rows:
        assert row["certified"] == "100%"
        assert row["binding"] > 0
        assert "±" in row["hold"] or row["hold"] == f"{row['binding']} of {row['binding']}"
    assert f"{SMALL.users:,} users" in report.note


def test_two_processes_give_the_same_table() -> None:
    tables = [
        measure_many_candidates([SMALL], instances=2, players=["even sweep"], workers=workers).rows[0]
        for workers in (1, 2)
    ]
    assert [table["regret at 12"] for table in tables] == [tables[0]["regret at 12"]] * 2
