"""Learning while the world moves: swings that all candidates share, and a best blend that changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

import pasto
from pasto.arrays import FloatArray
from pasto.optimize.learners import Thompson
from pasto.sim import Progress
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport

OBJECTIVE = pasto.maximize("watch").keep("likes", at_least="-1%", penalty=1.0)
LEVELS = np.array([100.0, 20.0])
"""Of the baseline's metrics."""
EFFECT = 4.0
"""Percent: the spread of candidates around the baseline."""
NOISE = 1.0
"""Percent: the standard error of one measurement."""


def lifts(rng: np.random.Generator, candidates: int = 20) -> FloatArray:
    """Return candidates' lifts over the baseline in percent, (metrics, candidates); the baseline is first."""
    watch = rng.uniform(-EFFECT, EFFECT, candidates)
    likes = -0.7 * watch + 0.7 * rng.uniform(-EFFECT, EFFECT, candidates)
    effects = np.array([watch, likes])
    effects[:, 0] = 0.0
    return effects


def taught(
    effects: Callable[[int], FloatArray], swing: Callable[[int], float], learner: Thompson, rounds: int, seed: int
) -> pasto.Study:
    """Run a study in a world whose level swings by a factor and whose effects may move."""
    count = effects(0).shape[1]
    study = pasto.Study(
        [{"setting": k} for k in range(count)], OBJECTIVE, learner=learner, seed=seed, baseline=0, control_share=0.2
    )
    rng = np.random.default_rng([seed, 3])
    for number in range(rounds):
        asked = study.ask(parallel=20)
        places = [assignment.candidate for assignment in asked]
        means = LEVELS[:, None] * (1.0 + effects(number) / 100.0) * swing(number)
        errors = np.broadcast_to(LEVELS * swing(number) * NOISE / 100.0, (len(asked), 2))
        study.tell(asked, means[:, places].T + errors * rng.standard_normal(errors.shape), standard_errors=errors)
    return study


def gain(study: pasto.Study, effects: FloatArray) -> tuple[float, float]:
    """Return the true gains of the study's answer and of the exact blend over the best single candidate, in percent."""
    truth = LEVELS[:, None] * (1.0 + effects / 100.0)
    exact = pasto.solve(OBJECTIVE.by_metric(truth), OBJECTIVE, baseline=0)
    assert exact.best_single_value is not None  # noqa: S101 -- the guardrail is soft
    reached = float(OBJECTIVE.value(truth @ study.blend().probabilities, baseline=truth[:, 0].tolist()))
    return reached - exact.best_single_value, exact.value - exact.best_single_value


def swings(
    contrast: Literal["percent"] | None, *, studies: int, rounds: int, progress: Progress | None = None
) -> float:
    """Return r after learning through daily swings of ten times the candidates' effects, equal for all."""
    reached, possible = 0.0, 0.0
    for number in range(studies):
        still = lifts(np.random.default_rng([number, 5]))
        study = taught(
            lambda _, still=still: still,  # type: ignore[misc]
            lambda t: 1.0 + 10 * EFFECT / 100.0 * float(np.sin(2 * np.pi * t / 24.0)),
            Thompson(contrast=contrast, structure="independent"),
            rounds,
            number,
        )
        got, there = gain(study, still)
        reached, possible = reached + got, possible + there
        if progress is not None:
            progress("with contrast" if contrast else "without contrast", number + 1, studies)
    return reached / possible


def turn(half_life: float | None, *, studies: int, rounds: int, progress: Progress | None = None) -> float:
    """Return r at the end, if every candidate's effects are drawn again halfway."""
    reached, possible = 0.0, 0.0
    for number in range(studies):
        rng = np.random.default_rng([number, 7])
        before, after = lifts(rng), lifts(rng)
        study = taught(
            lambda t, before=before, after=after: before if t < rounds // 2 else after,  # type: ignore[misc]
            lambda _: 1.0,
            Thompson(contrast="percent", half_life=half_life, structure="independent"),
            rounds,
            number,
        )
        got, there = gain(study, after)
        reached, possible = reached + got, possible + there
        if progress is not None:
            progress("forgetting" if half_life else "never forgetting", number + 1, studies)
    return reached / possible


def measure(*, studies: int = 20, rounds: int = 96, progress: Progress | None = None) -> BenchmarkReport:
    """Measure both worlds, each with and without the option that it needs."""
    rows: list[dict[str, Any]] = []
    contrasts: dict[str, Literal["percent"] | None] = {
        "metrics as they are": None,
        "contrast with the control": "percent",
    }
    for name, contrast in contrasts.items():
        r = swings(contrast, studies=studies, rounds=rounds, progress=progress)
        rows.append({"world": "day and night", "learner": name, "r": round(r, 2)})
    memories = {"never forgets": None, "half-life of 12 rounds": 12.0}
    for name, half_life in memories.items():
        r = turn(half_life, studies=studies, rounds=rounds, progress=progress)
        rows.append({"world": "the best blend moves", "learner": name, "r": round(r, 2)})
    return BenchmarkReport(
        "Learning while the world moves: relative gain r of the answer",
        tuple(rows),
        note=f"{studies} studies of {rounds} rounds, 20 candidates, 20 draws a round, a control of 20%; effects up to "
        f"{EFFECT:g}%, swings of ±{10 * EFFECT:g}%, errors of {NOISE:g}% a draw.",
    )


BENCHMARK = Benchmark(
    name="drift",
    summary="learning through day and night, and after the best blend has moved",
    run=lambda progress, quick: measure(studies=3 if quick else 20, rounds=48 if quick else 96, progress=progress),
)
