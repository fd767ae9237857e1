"""Safe exploration: how often a served policy breaks its budget, and what keeping it costs in rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import pasto
from pasto.objective import Objective
from pasto.sim import Progress, World, table
from pasto.sim.random_streams import stream
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport
from pasto_research.bench.learners import CHECKPOINTS

BUDGET = 0.2
"""By how much a served policy may miss a guardrail, of means that spread over [−1, 1]."""


@dataclass(frozen=True, slots=True)
class Journey:
    """Course of many guarded or unguarded studies."""

    broken: float
    """The share of rounds whose policy truly missed some guardrail by more than the budget."""
    relative: tuple[float, ...]
    """r at each checkpoint."""
    baseline: float
    """The mean share of traffic on the baseline."""

    def rounds_to(self, level: float, marks: list[int]) -> int | None:
        """Return the first checkpoint from which r stays at or above a level."""
        below = [place for place, gain in enumerate(self.relative) if gain < level]
        place = below[-1] + 1 if below else 0
        return marks[place] if place < len(marks) else None


def world(rng: np.random.Generator, sigma: float, candidates: int = 30) -> World:
    """Return synthetic B with a baseline, the first candidate, that meets both guardrails with a low goal."""
    objective = _objective()
    truth = rng.uniform(-1.0, 1.0, (3, candidates))
    truth[:, 0] = (0.0, 0.7, 0.7)
    return table(objective.by_metric(truth), sigma, objective)


def travel(
    *, guarded: bool, studies: int, rounds: int, sigma: float = 1.0, seed: int = 1, progress: Progress | None = None
) -> Journey:
    """Run studies and hold every policy they served against the truth."""
    marks = [mark for mark in CHECKPOINTS if mark <= rounds]
    broken, home = 0, 0.0
    gains, gaps = np.zeros(len(marks)), 0.0
    for number in range(studies):
        place = world(stream(seed, number, "truth"), sigma)
        exact = pasto.solve(place.objective.by_metric(place.truth), place.objective)
        assert exact.best_single_value is not None  # noqa: S101 -- the guardrails are soft
        gaps += exact.value - exact.best_single_value
        study = pasto.Study(
            place.candidates,
            place.objective,
            learner="thompson",
            seed=number,
            baseline=0,
            loss_budget=BUDGET if guarded else None,
        )
        rng = np.random.default_rng([seed, number])
        errors = np.broadcast_to(place.noise, place.truth.shape).T
        form = place.objective.form()
        for round_ in range(1, rounds + 1):
            served = np.array(study.policy.probabilities)
            broken += int((form.slack(place.truth @ served) < -BUDGET).any())
            home += float(served[0])
            asked = study.ask(parallel=10)
            places = [assignment.candidate for assignment in asked]
            study.tell(asked, place.draw(places, rng), standard_errors=errors[places])
            if round_ in marks:
                reached = float(place.value(study.blend().probabilities))
                gains[marks.index(round_)] += reached - exact.best_single_value
        if progress is not None:
            progress("guarded" if guarded else "unguarded", number + 1, studies)
    total = studies * rounds
    return Journey(broken / total, tuple((gains / gaps).tolist()), home / total)


def measure(*, studies: int = 40, rounds: int = 300, progress: Progress | None = None) -> BenchmarkReport:
    """Compare guarded with unguarded studies."""
    marks = [mark for mark in CHECKPOINTS if mark <= rounds]
    rows: list[dict[str, Any]] = []
    for guarded in (False, True):
        journey = travel(guarded=guarded, studies=studies, rounds=rounds, progress=progress)
        rows.append(
            {
                "exploration": f"budget of {BUDGET:g}" if guarded else "unlimited",
                "rounds that broke the budget": f"{journey.broken:.1%}",
                "rounds to r ≥ 0.75": journey.rounds_to(0.75, marks),
                "r at the end": round(journey.relative[-1], 2),
                "traffic on the baseline": f"{journey.baseline:.0%}",
            }
        )
    return BenchmarkReport(
        "Safe exploration: budgets broken and rounds needed",
        tuple(rows),
        note=f"{studies} studies of {rounds} rounds, 30 candidates, two guardrails, noise 1, 10 draws a round.",
    )


def _objective() -> Objective:
    return pasto.maximize("x").keep("y", at_least=0.5, penalty=5.0).keep("z", at_least=0.5, penalty=5.0)


BENCHMARK = Benchmark(
    name="safety",
    summary="how often exploration breaks a guardrail's budget, and what keeping it costs",
    run=lambda progress, quick: measure(studies=2 if quick else 40, rounds=60 if quick else 300, progress=progress),
)
