"""Race with segments: rounds until an answer has three quarters and nine tenths of the segmented optimum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Protocol

import numpy as np

import pasto
from pasto.arrays import FloatArray
from pasto.sim import Progress
from pasto.study.segmented_study import SegmentedStudy
from pasto_research.bench.benchmark import BenchmarkReport
from pasto_research.bench.learner_courses import LearnerCourse
from pasto_research.bench.segment_worlds import SegmentJudge, SegmentWorld, pool_segments

CHECKPOINTS = (1, 2, 3, 4, 5, 6, 8, 10, 15)
"""Rounds."""
LEVELS = (0.75, 0.9)
FIRST_SEED = 1_910_000
"""Of the worlds; nothing was chosen on them."""
COLLAPSE_MARK = 10
"""The round at which the loss against one blend is given."""


class Racer(Protocol):
    """A way of learning in a world with segments."""

    def propose(self) -> FloatArray:
        """Return the next policies, (segments, candidates)."""
        ...

    def learn(self, world: SegmentWorld, rng: np.random.Generator) -> None:
        """Draw a round under these policies, and learn it."""
        ...

    def answer(self) -> FloatArray:
        """Return the distributions to deploy, (segments, candidates)."""
        ...


def _candidates(world: SegmentWorld) -> list[dict[str, str]]:
    return [{"setting": f"c{k}"} for k in range(world.means.shape[2])]


class SegmentsRacer:
    """A blend for each segment, learned together."""

    def __init__(self, world: SegmentWorld, seed: int) -> None:
        self.study = SegmentedStudy(_candidates(world), world.objective, seed=seed, segments=world.names)

    def propose(self) -> FloatArray:
        """Return the study's policies."""
        return np.array(list(self.study.policy.segments.values()))

    def learn(self, world: SegmentWorld, rng: np.random.Generator) -> None:
        """Observe a round."""
        self.study.observe(world.draw_round(self.study.policy.version, self.propose(), rng))

    def answer(self) -> FloatArray:
        """Return the blends."""
        return np.array([part.probabilities for part in self.study.blend().segments.values()])


class CommonRacer:
    """One blend for everybody, learned from all traffic."""

    def __init__(self, world: SegmentWorld, seed: int) -> None:
        self.study = pasto.Study(_candidates(world), world.objective, seed=seed)
        self.segments = len(world.shares)

    def propose(self) -> FloatArray:
        """Return the study's policy for each segment."""
        return np.tile(self.study.policy.probabilities, (self.segments, 1))

    def learn(self, world: SegmentWorld, rng: np.random.Generator) -> None:
        """Observe a round of all traffic."""
        self.study.observe(pool_segments(world.draw_round(self.study.policy.version, self.propose(), rng)))

    def answer(self) -> FloatArray:
        """Return the blend for each segment."""
        return np.tile(self.study.blend(deploy_rounds=None).probabilities, (self.segments, 1))


class SeparateRacer:
    """A study for each segment by itself, which holds the guardrails there."""

    def __init__(self, world: SegmentWorld, seed: int) -> None:
        self.studies = {name: pasto.Study(_candidates(world), world.objective, seed=seed) for name in world.names}

    def propose(self) -> FloatArray:
        """Return the policy of each study."""
        return np.array([study.policy.probabilities for study in self.studies.values()])

    def learn(self, world: SegmentWorld, rng: np.random.Generator) -> None:
        """Observe the segments' parts of a round."""
        rows = world.draw_round(next(iter(self.studies.values())).policy.version, self.propose(), rng)
        for name, study in self.studies.items():
            study.observe(pool_segments([row for row in rows if row.segment == name]))

    def answer(self) -> FloatArray:
        """Return the blend of each study."""
        return np.array([study.blend(deploy_rounds=None).probabilities for study in self.studies.values()])


RACERS: dict[str, Callable[[SegmentWorld, int], Racer]] = {
    "a blend for each segment": SegmentsRacer,
    "one blend for everybody": CommonRacer,
    "each segment by itself": SeparateRacer,
}


def measure_race(
    heterogeneities: Sequence[float],
    *,
    worlds: int,
    separate_worlds: int,
    rounds: int = CHECKPOINTS[-1],
    seed: int = FIRST_SEED,
    processes: int = 1,
    progress: Progress | None = None,
) -> BenchmarkReport:
    """Race all ways of learning in the same worlds; studies of each segment by itself only in the first few.

    >>> report = measure_race([0.5], worlds=1, separate_worlds=1, rounds=1)
    >>> [row["learner"] for row in report.rows][-1]
    'oracle, one blend for everybody'
    """
    rows, losses = [], []
    for heterogeneity in heterogeneities:
        counts = {name: separate_worlds if racer is SeparateRacer else worlds for name, racer in RACERS.items()}
        courses = _race(heterogeneity, counts, rounds, seed, processes, progress)
        for course in courses:
            marks = {f"after {mark}": course.at(mark) for mark in (1, 5, 10, 15) if mark in course.marks}
            levels = {f"rounds to {level:.0%}": course.rounds_to(level) for level in LEVELS}
            rows.append({"heterogeneity": heterogeneity, "learner": course.player, **levels, **marks})
        losses.append({"heterogeneity": heterogeneity, "worlds": worlds, **_compare(courses[0], courses[1])})
    return BenchmarkReport(
        title="Learning with 8 segments and 30 candidates: part of the segmented optimum's gain",
        rows=tuple(rows),
        note="24,000 units a round; gains over an even policy, a missed guardrail charged at twice its true price. "
        "An oracle knows all means.",
        more=(
            BenchmarkReport(
                title="A blend for each segment against one for everybody: gain lost, in percent of the optimum's",
                rows=tuple(losses),
                note="Negative is a gain; ± two standard errors over worlds.",
            ),
        ),
    )


def _race(
    heterogeneity: float,
    counts: Mapping[str, int],
    rounds: int,
    seed: int,
    processes: int,
    progress: Progress | None,
) -> list[LearnerCourse]:
    tasks = [(heterogeneity, name, rounds, seed + number) for name, count in counts.items() for number in range(count)]
    runs = []
    for done, course in enumerate(_run_tasks(tasks, processes), start=1):
        runs.append(course)
        if progress is not None:
            progress(f"race, heterogeneity {heterogeneity}", done, len(tasks))
    courses = [LearnerCourse.join([run for run in runs if run.player == name]) for name in counts if counts[name]]
    judges = [SegmentJudge(_draw(heterogeneity, seed + number)) for number in range(max(counts.values()))]
    common = np.array([[judge.best_common - judge.reference] for judge in judges])
    oracle = LearnerCourse(
        "oracle, one blend for everybody", (1,), common, courses[0].gaps, loss=float("nan"), seconds=float("nan")
    )
    return [*courses, oracle]


Task = tuple[float, str, int, int]


def _run_tasks(tasks: Sequence[Task], processes: int) -> Iterator[LearnerCourse]:
    if processes <= 1:
        yield from map(_run_task, tasks)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(_run_task, tasks, chunksize=2)


def _draw(heterogeneity: float, seed: int) -> SegmentWorld:
    return SegmentWorld.draw(np.random.default_rng([seed, 1]), heterogeneity)


def _run_task(task: Task) -> LearnerCourse:
    heterogeneity, name, rounds, seed = task
    world = _draw(heterogeneity, seed)
    judge, racer, rng = SegmentJudge(world), RACERS[name](world, seed), np.random.default_rng([seed, 2])
    marks = tuple(mark for mark in CHECKPOINTS if mark <= rounds)
    gains = []
    for number in range(1, rounds + 1):
        racer.learn(world, rng)
        if number in marks:
            gains.append(judge.value(racer.answer()) - judge.reference)
    gap = np.array([judge.best - judge.reference])
    return LearnerCourse(name, marks, np.array([gains]), gap, loss=float("nan"), seconds=float("nan"))


def _compare(segments: LearnerCourse, common: LearnerCourse) -> dict[str, float]:
    """Return the mean gain that segments lose against one blend, and two standard errors, in percent."""
    mark = max(mark for mark in segments.marks if mark <= COLLAPSE_MARK)
    place = segments.marks.index(mark)
    lost = (common.gains[:, place] - segments.gains[:, place]) / segments.gaps.mean()
    spread = float(lost.std(ddof=1)) if len(lost) > 1 else float("nan")
    return {
        "round": mark,
        "lost_percent": 100.0 * float(lost.mean()),
        "two_standard_errors": 200.0 * spread / float(np.sqrt(len(lost))),
    }
