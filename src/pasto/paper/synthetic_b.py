"""Figure 4: the relative gain of Algorithm 1 on random problems, at several noise levels."""

from __future__ import annotations

from pasto.paper.experiment import Experiment, Outcome, Size
from pasto.sim import monte_carlo, synthetic_b


def run(size: Size) -> Outcome:
    """Run Algorithm 1 on synthetic B."""
    monte_carlo("pasto", lambda rng: synthetic_b(rng, sigma=0.1), runs=size.runs, rounds=size.rounds, parallel=10)
    return Outcome("synthetic-b", "Figure 4", settings={}, claims=(), tables=(), data={})


EXPERIMENT = Experiment(
    name="synthetic-b",
    summary="Figure 4: relative gain of Algorithm 1 on random problems, by noise level",
    runs=1_000,
    rounds=10_000,
    quick_runs=100,
    quick_rounds=1_000,
    run=run,
)
