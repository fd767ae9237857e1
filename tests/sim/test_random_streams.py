from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasto.sim import random_streams
from pasto.sim.random_streams import RandomStreams, draw_candidates


@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_a_pick_inverts_the_cumulative_sum(candidates: int, runs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shares = rng.exponential(size=(runs, candidates)) ** 4
    shares /= shares.sum(axis=1, keepdims=True)
    points = rng.random((runs, 7))
    points[0, 0], points[-1, -1] = 0.0, np.nextafter(1.0, 0.0)
    found = draw_candidates(shares, points)
    for run in range(runs):
        edges = np.cumsum(shares[run])
        expected = np.searchsorted(edges, points[run] * edges[-1], side="right").clip(max=candidates - 1)
        np.testing.assert_array_equal(found[run], expected)


def test_candidates_are_drawn_with_their_probability() -> None:
    shares = np.array([[0.7, 0.2, 0.0999, 0.0001]])
    found = draw_candidates(shares, np.random.default_rng(1).random((1, 200_000)))
    counts = np.bincount(found[0], minlength=4)
    errors = np.sqrt(200_000 * shares[0] * (1 - shares[0]))
    assert (np.abs(counts - 200_000 * shares[0]) <= 4.0 * errors).all()


def test_a_candidate_with_no_probability_is_never_picked() -> None:
    shares = np.array([[0.0, 0.5, 0.0, 0.5, 0.0]])
    points = np.concatenate([np.random.default_rng(0).random(1_000), [0.0, 0.5, np.nextafter(1.0, 0.0)]])[None]
    assert set(draw_candidates(shares, points)[0].tolist()) == {1, 3}


def _collected(streams: RandomStreams, count: int) -> tuple[np.ndarray, np.ndarray]:
    rounds = [(uniforms.copy(), normals.copy()) for uniforms, normals in streams.rounds(count)]
    return np.array([first for first, _ in rounds]), np.array([second for _, second in rounds])


@pytest.mark.parametrize("ahead", [1, 12, 700])
def test_a_run_sees_the_same_numbers_in_any_company_and_any_block(monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    uniforms, normals = _collected(RandomStreams(seed=5, runs=range(10), parallel=2, metrics=3), 50)
    monkeypatch.setattr(random_streams, "MAX_BLOCK_NUMBERS", ahead)
    alone, noise = _collected(RandomStreams(seed=5, runs=[7], parallel=2, metrics=3), 50)
    np.testing.assert_array_equal(alone[:, 0], uniforms[:, 7])
    np.testing.assert_array_equal(noise[:, 0], normals[:, 7])


def test_runs_and_seeds_differ() -> None:
    uniforms, _ = _collected(RandomStreams(seed=5, runs=range(3), parallel=2, metrics=1), 4)
    other, _ = _collected(RandomStreams(seed=6, runs=range(3), parallel=2, metrics=1), 4)
    assert len(np.unique(np.concatenate([uniforms.ravel(), other.ravel()]))) == 2 * uniforms.size
