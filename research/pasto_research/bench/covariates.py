"""Benchmark of learning with covariates: rounds that are saved, and certificates that still hold."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.optimize import solve_exact
from pasto.optimize.learners import Thompson
from pasto.sim import Progress
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport
from pasto_research.bench.covariate_mutants import CentredOnAllRounds, CentredOnRound, MutantThompson
from pasto_research.bench.covariate_worlds import DRIFTING, FAMILIES, FEW_CANDIDATES, CovariateWorld, Side, steady
from pasto_research.bench.guardrail_counts import count_guardrails

SIDES: tuple[Side, Side] = ("at least", "at most")
SHARES = (0.0, 0.4, 0.6)
"""Shares of a unit's variance that its past explains."""
CHECKPOINTS = (5, 10, 20, 40)
CONFIDENCE = 0.95
QUICK_STUDIES = 3
"""Studies of each world and side in a quick run."""
FIRST_SEED = 500_000
"""Of the studies; the adjustment was built on others."""
LEARNERS = ("raw", "adjusted", "centred on the round", "centred on all rounds")
WORLDS = (*(replace(family, explained=share) for family in FAMILIES for share in SHARES), DRIFTING, FEW_CANDIDATES)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Answer of a study after some rounds, compared with the truth."""

    gain: float
    """Gain over the best single candidate; what guardrails miss is charged at twice its true price."""
    binding: int
    """Guardrails that a certificate promises with the stated confidence and no more."""
    holds: int
    """The binding guardrails that truly hold."""
    certified: bool
    understated: bool
    """True if the study questions its errors."""


@dataclass(frozen=True, slots=True)
class StudyCourse:
    """Course of one study, with the gain of the best blend over the best single candidate."""

    possible: float
    checkpoints: tuple[Checkpoint, ...]


def run_study(world: CovariateWorld, side: Side, learner: str, seed: int, marks: Sequence[int]) -> StudyCourse | None:
    """Run one study and compare its answers with the truth; None if the truth has no feasible single candidate."""
    instance = world.draw(side, np.random.default_rng([seed, 1]))
    form = instance.form
    goals = form.goal.value(instance.means.T)  # in percent of the baseline if guardrails are
    exact = solve_exact(form, instance.means)
    meets = (form.slack(instance.means.T) >= 0.0).all(axis=1)
    if not exact.feasible or not meets.any():
        return None
    single, charges = float(goals[meets].max()), 2.0 * exact.duals
    study = instance.study(seed, make_learner(learner, contrast=world.contrast))
    rng, checkpoints = np.random.default_rng([seed, 2]), []
    for number in range(marks[-1]):
        instance.run_round(study, number, rng, adjusted=learner != "raw")
        if number + 1 not in marks:
            continue
        blend = study.blend(deploy_rounds=None)
        shares, certificate = np.array(blend.probabilities), blend.certificate
        assert certificate is not None  # noqa: S101 -- this learner always gives one
        slack = form.slack(instance.means @ shares)
        binding, holds = count_guardrails(certificate, slack)
        checkpoints.append(
            Checkpoint(
                gain=float(goals @ shares - charges @ np.maximum(0.0, -slack)) - single,
                binding=binding,
                holds=holds,
                certified=certificate.certified,
                understated=bool(certificate.understated_errors),
            )
        )
    return StudyCourse(float(goals @ exact.probabilities) - single, tuple(checkpoints))


def make_learner(name: str, *, contrast: bool) -> Thompson:
    """Return the learner, or a mutant of it, by its name in the report."""
    options: dict[str, Any] = {"contrast": "auto" if contrast else None, "structure": "independent"}
    if name == "centred on the round":
        return MutantThompson(adjustment=CentredOnRound, **options)
    if name == "centred on all rounds":
        return MutantThompson(adjustment=CentredOnAllRounds, **options)
    return Thompson(**options)


@dataclass(frozen=True, slots=True)
class Courses:
    """Courses of the studies of one world, side and learner; None for a truth that is not used."""

    studies: tuple[StudyCourse | None, ...]

    def numbers(self, name: str) -> FloatArray:
        """Return a number of the checkpoints, (studies, checkpoints)."""
        return np.array(
            [[getattr(mark, name) for mark in course.checkpoints] for course in self.studies if course is not None],
            dtype=float,
        )

    @property
    def possible(self) -> FloatArray:
        """Gain of the best blend, (studies,)."""
        return np.array([course.possible for course in self.studies if course is not None])


def relative_gain(worlds: Sequence[Sequence[Courses]]) -> tuple[FloatArray, FloatArray]:
    """Return r at each checkpoint, the mean over worlds of a ratio of means, and each seed's part of its error.

    A world has the courses of both sides. All worlds have the same seeds, so studies of one seed are not independent.
    """
    ratios, parts = [], []
    for courses in worlds:
        gains = np.concatenate([each.numbers("gain") for each in courses])
        possible = np.concatenate([each.possible for each in courses])
        ratio = gains.sum(axis=0) / possible.sum()
        ratios.append(ratio)
        parts.append(_sum_by_seed(courses, (gains - ratio * possible[:, None]) / possible.sum()))
    return np.mean(ratios, axis=0), np.mean(parts, axis=0)


def share_held(courses: Sequence[Courses]) -> tuple[float, float, int]:
    """Return the share of binding guardrails that hold over all checkpoints, its standard error, and their number.

    The answers of one study depend on each other, and the studies of one seed, so the error is that over seeds.
    """
    holds = np.concatenate([each.numbers("holds") for each in courses]).sum(axis=1)
    binding = np.concatenate([each.numbers("binding") for each in courses]).sum(axis=1)
    if not binding.sum():
        return float("nan"), float("nan"), 0
    share = float(holds.sum() / binding.sum())
    parts = _sum_by_seed(courses, holds - share * binding)
    return share, float(np.sqrt(np.square(parts).sum()) / binding.sum()), int(binding.sum())


def _sum_by_seed(courses: Sequence[Courses], parts: FloatArray) -> FloatArray:
    """Return the sums of the studies' parts over all courses, (seeds, ...)."""
    seeds = [seed for each in courses for seed, study in enumerate(each.studies) if study is not None]
    sums = np.zeros((max(len(each.studies) for each in courses), *parts.shape[1:]))
    np.add.at(sums, seeds, parts)
    return sums


def rounds_needed(ratio: FloatArray, level: float, marks: Sequence[int]) -> float | None:
    """Return the round at which r first reaches a level, between checkpoints by interpolation; None if it does not.

    >>> rounds_needed(np.array([0.25, 0.5, 1.0]), 0.75, (5, 10, 20))
    15.0
    >>> rounds_needed(np.array([0.25, 0.5, 1.0]), 0.1, (5, 10, 20))
    5.0
    """
    reached = np.flatnonzero(ratio >= level)
    if not len(reached):
        return None
    place = int(reached[0])
    if place == 0:
        return float(marks[0])
    before, after = ratio[place - 1], ratio[place]
    return float(marks[place - 1] + (marks[place] - marks[place - 1]) * (level - before) / (after - before))


def measure(
    worlds: Sequence[CovariateWorld] = WORLDS,
    *,
    studies: int | None = None,
    marks: Sequence[int] = CHECKPOINTS,
    seed: int = FIRST_SEED,
    workers: int = 1,
    progress: Progress | None = None,
) -> BenchmarkReport:
    """Return the rounds that covariates save, and how often certificates hold, with the mutants next to them."""
    runs: dict[tuple[int, str, Side], Courses] = {}
    jobs: list[tuple[int, str, Side]] = []
    for place, world in enumerate(worlds):
        wrong = [] if world.explained < max(SHARES) else list(LEARNERS[2:] if not world.contrast else LEARNERS[2:3])
        jobs += [(place, name, side) for name in ("raw", "adjusted", *wrong) for side in SIDES]
    counts = [studies or worlds[place].studies for place, _, _ in jobs]
    tasks = [
        (worlds[place], side, name, seed + number, tuple(marks))
        for (place, name, side), count in zip(jobs, counts, strict=True)
        for number in range(count)
    ]
    courses = _run(tasks, workers)
    for job, count in zip(jobs, counts, strict=True):
        place, name, side = job
        found = []
        for number in range(count):
            found.append(next(courses))
            if progress is not None:
                progress(f"{_title(worlds[place])}: {name}, {side}", number + 1, count)
        runs[job] = Courses(tuple(found))
    return summarize(
        worlds,
        [
            {(name, side): run for (other, name, side), run in runs.items() if other == place}
            for place in range(len(worlds))
        ],
        marks,
    )


def _run(tasks: Sequence[tuple[CovariateWorld, Side, str, int, tuple[int, ...]]], workers: int) -> Iterator[Any]:
    if workers == 1:
        yield from starmap(run_study, tasks)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(_run_task, tasks, chunksize=4)


def _run_task(task: tuple[CovariateWorld, Side, str, int, tuple[int, ...]]) -> StudyCourse | None:
    return run_study(*task)


def _learning_row(
    name: str, worlds: Sequence[CovariateWorld], runs: Sequence[dict[tuple[str, Side], Courses]], marks: Sequence[int]
) -> dict[str, Any]:
    """Return the row of one world, or of the mean over some."""
    (raw, raw_error), (adjusted, adjusted_error) = (
        relative_gain([[run[learner, side] for side in SIDES] for run in runs]) for learner in LEARNERS[:2]
    )
    error = np.sqrt(np.square(adjusted_error - raw_error).sum(axis=0))
    row: dict[str, Any] = {"world": name, "explained": f"{worlds[0].explained:.0%}"}
    row["studies"] = sum(len(run["adjusted", side].studies) for run in runs for side in SIDES)
    for number, mark in enumerate(marks):
        row[f"r at {mark}"] = f"{raw[number]:.2f} → {adjusted[number]:.2f}"
    row[f"gained at {marks[-2]}"] = f"{adjusted[-2] - raw[-2]:+.2f} ± {error[-2]:.2f}"
    for number in (-2, -1):
        rounds = rounds_needed(adjusted, float(raw[number]), marks)
        row[f"rounds for {marks[number]}"] = None if rounds is None else round(rounds, 1)
    return row


def _certificate_row(
    name: str,
    side: str,
    worlds: Sequence[CovariateWorld],
    runs: Sequence[dict[tuple[str, Side], Courses]],
    sides: Sequence[Side],
) -> dict[str, Any]:
    """Return the row of one world and side, or of several together."""
    row: dict[str, Any] = {"world": name, "explained": f"{worlds[0].explained:.0%}", "side": side}
    for learner in LEARNERS:
        courses = [run[learner, each] for run in runs for each in sides if (learner, each) in run]
        share, error, binding = share_held(courses) if courses else (float("nan"), float("nan"), 0)
        row[learner] = _describe_share(share, error, binding)
    adjusted = [run["adjusted", each] for run in runs for each in sides]
    row["binding"] = int(sum(each.numbers("binding").sum() for each in adjusted))
    row["certified"] = f"{np.mean([each.numbers('certified').mean() for each in adjusted]):.0%}"
    row["errors questioned"] = f"{np.mean([each.numbers('understated').mean() for each in adjusted]):.0%}"
    return row


def _describe_share(share: float, error: float, binding: int) -> str | None:
    if share == 1.0:  # a standard error of zero would claim too much
        return f"{binding} of {binding}"
    return f"{100 * share:.1f} ± {100 * error:.1f} %" if binding else None


def summarize(
    worlds: Sequence[CovariateWorld], runs: Sequence[dict[tuple[str, Side], Courses]], marks: Sequence[int]
) -> BenchmarkReport:
    """Return both tables from the courses of each world, by learner and side."""
    groups: dict[float, list[int]] = {}
    for place, world in enumerate(worlds):
        if world.covariate_level is steady:
            groups.setdefault(world.explained, []).append(place)
    several = [places for places in groups.values() if len(places) > 1]
    learning, certificates = [], []
    for world, run in zip(worlds, runs, strict=True):
        learning.append(_learning_row(world.name, [world], [run], marks))
        certificates += [_certificate_row(world.name, side, [world], [run], [side]) for side in SIDES]
    for places in several:
        part, part_runs = [worlds[place] for place in places], [runs[place] for place in places]
        learning.append(_learning_row("mean of the steady worlds", part, part_runs, marks))
        certificates.append(_certificate_row("all steady worlds", "both", part, part_runs, SIDES))
    return BenchmarkReport(
        "Relative gain r by rounds, raw and adjusted by covariates",
        tuple(learning),
        note="40 candidates if not stated, two hard guardrails. r is 0 at the best single candidate and 1 at the best "
        "blend; missed guardrails are charged at twice their price. The last columns are the rounds to the r of raw "
        f"metrics after {marks[-2]} and {marks[-1]}, between checkpoints by interpolation.",
        more=(
            BenchmarkReport(
                "Certified guardrails that truly hold",
                tuple(certificates),
                note=f"Stated: {CONFIDENCE:.0%} for each guardrail, at {len(marks)} checkpoints of each study; errors "
                "are those over seeds. The mutants centre the covariates on each round without its error, or on all "
                "rounds so far.",
            ),
        ),
    )


def _title(world: CovariateWorld) -> str:
    return f"{world.name}, {world.explained:.0%}"


def _run_benchmark(progress: Progress | None, quick: bool) -> BenchmarkReport:
    workers = os.cpu_count() or 1
    if not quick:
        return measure(workers=workers, progress=progress)
    worlds = (FAMILIES[0], DRIFTING, FEW_CANDIDATES)
    return measure(worlds, studies=QUICK_STUDIES, workers=workers, progress=progress)


BENCHMARK = Benchmark(
    name="covariates",
    summary="rounds that are saved by what units did before, and certificates that hold",
    run=_run_benchmark,
)
