"""Continuous spaces: rounds until the blend of a few points is found, and what knowing where points lie is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Literal

import numpy as np

import pasto
from pasto.arrays import FloatArray
from pasto.optimize.learners import Thompson
from pasto.sim import Progress
from pasto.sim.continuous import LANDSCAPES, Landscape
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport

Structure = Literal["auto", "independent", "process"]
MARKS = (2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 20, 24, 28, 34, 40, 48, 56, 68, 80, 96, 110, 130, 160)
"""Rounds after which the answer is held against the truth."""
PARALLEL = 10
WAYS: dict[str, Structure | None] = {
    "space": None,
    "100 points, geometry": "process",
    "100 points, none": "independent",
}
"""What a study is given: the space itself, or points drawn from it, with and without where they lie."""


def climb(world: Landscape, way: str, *, rounds: int, seed: int) -> tuple[list[float], float, int]:
    """Return r at each checkpoint of one study, the seconds per round, and the number of points of the last answer."""
    best, prices = world.best()
    _, single = world.single(prices)
    structure = WAYS[way]
    study = (
        pasto.Study(world.space, world.objective, learner="thompson", seed=seed)
        if structure is None
        else pasto.Study(
            world.space.sobol(100, seed=seed), world.objective, learner=Thompson(structure=structure), seed=seed
        )
    )
    rng = np.random.default_rng([seed, 9])
    gains, spent = [], 0.0
    for number in range(1, rounds + 1):
        begun = perf_counter()
        asked = study.ask(PARALLEL)
        spent += perf_counter() - begun
        measured = world.draw([assignment.values for assignment in asked], rng)
        begun = perf_counter()
        study.tell(asked, measured, standard_errors=np.full(measured.shape, world.noise))
        spent += perf_counter() - begun
        if number in MARKS:
            blend = study.blend()
            metrics = world.means([study.candidates[k] for k in blend.support]) @ [
                blend.probabilities[k] for k in blend.support
            ]
            gains.append((float(world.value(metrics, prices)) - single) / (best.value - single))
    return gains, spent / rounds, len(study.blend().support)


def surfaces(rng: np.random.Generator, places: FloatArray, waves: Sequence[int]) -> FloatArray:
    """Return three smooth random metrics over places (points, dimensions): slow random waves on [−1, 1]."""
    slow = np.array(waves)
    directions = rng.standard_normal((3, len(slow), places.shape[1]))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    heights = rng.standard_normal((3, len(slow))) / slow
    phases = rng.uniform(0.0, 2.0 * np.pi, (3, len(slow), 1))
    turns = np.pi * slow[:, None] * np.einsum("mwd,kd->mwk", directions, places) + phases
    values = np.einsum("mw,mwk->mk", heights, np.sin(turns))
    low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    return np.asarray(2.0 * (values - low) / (high - low) - 1.0)


def geometry(
    shape: str, structure: Structure, *, studies: int, rounds: int, sigma: float = 0.5, progress: Progress | None = None
) -> list[float]:
    """Return r at each checkpoint, as a ratio of means, over random smooth worlds in which mixing gains 0.2."""
    candidates, waves = FIXED[shape]
    objective = (
        pasto.maximize("goal").keep("first", at_least=0.5, penalty=5.0).keep("second", at_least=0.5, penalty=5.0)
    )
    places = np.array(candidates.table, dtype=float)
    gained, possible, tried, number = np.zeros(sum(mark <= rounds for mark in MARKS)), 0.0, 0, 0
    while number < studies:
        truth = surfaces(np.random.default_rng([tried, 77]), places, waves)
        tried += 1
        exact = pasto.solve(objective.by_metric(truth), objective)
        if exact.gain.value is None or exact.gain.value < 0.2:
            continue
        study = pasto.Study(candidates, objective, learner=Thompson(structure=structure), seed=number)
        rng, reached = np.random.default_rng([number, 5]), []
        for round_ in range(1, rounds + 1):
            asked = study.ask(PARALLEL)
            means = truth[:, [assignment.candidate for assignment in asked]].T
            errors = np.full(means.shape, sigma)
            study.tell(asked, means + errors * rng.standard_normal(means.shape), standard_errors=errors)
            if round_ in MARKS:
                reached.append(float(objective.value(truth @ study.blend().probabilities)))
        gained += np.array(reached) - (exact.value - exact.gain.value)
        possible += exact.gain.value
        number += 1
        if progress is not None:
            progress(f"{shape}, {structure}", number, studies)
    return [float(gain) for gain in gained / possible]


def first_above(gains: Sequence[float], level: float = 0.75) -> int | None:
    """Return the first checkpoint from which r stays at or above a level.

    >>> first_above([0.5, 0.8, 0.7, 0.9, 0.9])
    5
    """
    below = [place for place, gain in enumerate(gains) if gain < level]
    place = below[-1] + 1 if below else 0
    return MARKS[place] if place < len(gains) else None


def measure(
    *,
    studies: int = 10,
    rounds: int = 40,
    worlds: Sequence[Callable[[float], Landscape]] = LANDSCAPES,
    fixed: Sequence[str] = ("line of 100", "cube of 125"),
    instances: int = 20,
    noise: float = 0.3,
    progress: Progress | None = None,
) -> BenchmarkReport:
    """Compare spaces with fixed points of them, and fixed points with and without geometry."""
    rows: list[dict[str, Any]] = []
    for make in worlds:
        world = make(noise)
        for way in WAYS:
            runs = []
            for seed in range(studies):
                runs.append(climb(world, way, rounds=rounds, seed=seed))
                if progress is not None:
                    progress(f"{world.name}, {way}", seed + 1, studies)
            gains = np.mean([gains for gains, _, _ in runs], axis=0).tolist()
            rows.append(
                {
                    "world": world.name,
                    "given": way,
                    "rounds to r ≥ 0.75": first_above(gains),
                    "r at the end": round(gains[-1], 2),
                    "points": max(points for _, _, points in runs),
                    "ms a round": round(1000 * float(np.mean([spent for _, spent, _ in runs]))),
                }
            )
    for shape in fixed:
        structures: tuple[Structure, ...] = ("auto", "independent")
        for structure in structures:
            gains = geometry(
                shape, structure, studies=instances, rounds=rounds if structure == "auto" else 160, progress=progress
            )
            rows.append(
                {
                    "world": shape,
                    "given": structure,
                    "rounds to r ≥ 0.75": first_above(gains),
                    "r at the end": round(gains[-1], 2),
                    "points": None,
                    "ms a round": None,
                }
            )
    return BenchmarkReport(
        "Continuous spaces: rounds to three quarters of what mixing is worth",
        tuple(rows),
        note=f"{PARALLEL} draws a round. Spaces: {studies} studies of {rounds} rounds each, noise {noise:g}, r "
        f"over the best single point of the whole space. Line and cube: {instances} random smooth worlds each, "
        "noise 0.5.",
    )


FIXED: dict[str, tuple[pasto.Candidates, tuple[int, ...]]] = {
    "line of 100": (pasto.grid(a=np.linspace(0.0, 1.0, 100).round(4).tolist()), (1, 2, 3, 4)),
    "cube of 125": (pasto.Space(a=(0, 1), b=(0, 1), c=(0, 1)).grid(levels=5), (1, 1, 1, 2, 2, 2)),
}
"""Fixed points, and how many half waves of each metric fit into their range."""

BENCHMARK = Benchmark(
    name="continuous",
    summary="a continuous space, compared with points of it with and without their geometry",
    run=lambda progress, quick: measure(
        studies=2 if quick else 10,
        rounds=20 if quick else 56,
        worlds=LANDSCAPES[:2] if quick else LANDSCAPES,
        fixed=() if quick else tuple(FIXED),
        progress=progress,
    ),
)
