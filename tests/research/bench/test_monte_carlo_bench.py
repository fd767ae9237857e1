from __future__ import annotations

import numpy as np

from pasto.sim import monte_carlo, synthetic_b
from pasto_research.bench.monte_carlo import SIGMA, by_hand, measure


def test_the_loop_by_hand_does_the_same_work() -> None:
    runs, rounds, candidates, parallel = 400, 300, 10, 4
    shares = by_hand(runs=runs, rounds=rounds, candidates=candidates, parallel=parallel, seed=5)
    truth = np.random.default_rng(5).uniform(-1.0, 1.0, (runs, 3, candidates))
    objective = synthetic_b(0, SIGMA, candidates).objective
    theirs = objective.value((truth * shares[:, None, :]).sum(axis=2))
    start = objective.value(truth.mean(axis=2))
    trace = monte_carlo(
        "algorithm1",
        lambda rng: synthetic_b(rng, SIGMA, candidates),
        runs=runs,
        rounds=rounds,
        parallel=parallel,
        seed=6,
    )
    ours = trace.answer[:, -1] - trace.answer[:, 0]  # how far learning came from equal shares
    gain = theirs - start
    assert abs(ours.mean() - gain.mean()) <= 3.5 * np.hypot(ours.std(), gain.std()) / np.sqrt(runs)
    assert gain.mean() > 1.0


def test_both_ways_are_timed_and_progress_is_reported() -> None:
    heard: list[tuple[int, int]] = []
    timing = measure(
        runs=4,
        rounds=5,
        candidates=6,
        parallel=2,
        repeats=2,
        progress=lambda label, done, total: heard.append((done, total)),
    )
    assert heard == [(0, 2), (1, 2), (2, 2)]
    assert timing.ours > 0
    assert timing.by_hand > 0
    assert timing.ratio > 0
    assert (timing.runs, timing.rounds, timing.candidates, timing.parallel) == (4, 5, 6, 2)
