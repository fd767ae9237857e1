"""Benchmark of the certificate: how often a certified guardrail truly holds, on metrics of many shapes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import pasto
from pasto.sim import Progress
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport
from pasto_research.bench.certificate_mutants import InverseVarianceThompson
from pasto_research.bench.certificate_worlds import WORLDS, CertificateWorld, Side

SIDES: tuple[Side, Side] = ("at least", "at most")
CONFIDENCE = 0.95
FULL_STUDIES, QUICK_STUDIES = 350, 12
MUTANT_STUDIES = 60
FIRST_SEED = 700_000
"""Of the studies; the learner was built on others."""


@dataclass(frozen=True, slots=True)
class StudyOutcome:
    """Outcome of one study: its answer compared with the truth."""

    certified: bool
    holds: tuple[bool, ...]
    """Whether each guardrail truly holds."""
    binding: tuple[bool, ...]
    """Which guardrails the certificate promises with the stated confidence and no more."""
    goal: float
    """True gain of the blend's goal over the baseline, or over the average candidate."""
    best_goal: float
    """The same for the best blend, with the truth known."""
    goal_covered: bool | None
    """Whether the goal's interval covers its truth; None if the level swings, so that there is no one truth."""
    understated: bool
    """Whether the study reports standard errors that are too small."""


@dataclass(slots=True)
class Calibration:
    """Counts over many studies of one world and side."""

    world: CertificateWorld
    side: Side
    outcomes: list[StudyOutcome] = field(default_factory=list)

    @property
    def certified(self) -> list[StudyOutcome]:
        """The studies whose answer is certified."""
        return [outcome for outcome in self.outcomes if outcome.certified]

    @property
    def binding(self) -> int:
        """Binding guardrails of certified answers."""
        return sum(sum(outcome.binding) for outcome in self.certified)

    @property
    def share_held(self) -> float:
        """Share of the binding guardrails that truly hold; NaN if there are none."""
        held = sum(sum(np.logical_and(outcome.holds, outcome.binding)) for outcome in self.certified)
        return float(held) / self.binding if self.binding else float("nan")

    @property
    def standard_error(self) -> float:
        """Standard error of that share."""
        share = self.share_held
        return float(np.sqrt(share * (1.0 - share) / self.binding)) if self.binding else float("nan")

    @property
    def share_raised(self) -> float:
        """Share of studies that report errors that are too small."""
        return float(np.mean([outcome.understated for outcome in self.outcomes]))

    @property
    def goal_kept(self) -> float:
        """Goal gained by certified answers, as a part of what the best blends gain."""
        certified = self.certified
        possible = sum(outcome.best_goal for outcome in certified)
        return sum(outcome.goal for outcome in certified) / possible if possible else float("nan")

    def row(self) -> dict[str, Any]:
        """Return the table's row."""
        certified = self.certified
        covered = [outcome.goal_covered for outcome in certified if outcome.goal_covered is not None]
        return {
            "world": self.world.name,
            "side": self.side,
            "studies": len(self.outcomes),
            "certified": _percent(len(certified) / max(len(self.outcomes), 1)),
            "binding": self.binding,
            "hold": f"{100 * self.share_held:.1f} ± {100 * self.standard_error:.1f} %" if self.binding else "–",
            "all hold": _percent(float(np.mean([all(outcome.holds) for outcome in certified])) if certified else None),
            "goal kept": round(self.goal_kept, 3) if certified else "–",
            "goal covered": _percent(float(np.mean(covered)) if covered else None),
            "errors questioned": _percent(self.share_raised),
        }


def run_study(world: CertificateWorld, side: Side, seed: int, *, mutant: bool = False) -> StudyOutcome | None:
    """Run one study and compare its answer with the truth; None if the truth has no feasible blend."""
    instance = world.draw(side, np.random.default_rng([seed, 1]))
    exact = pasto.solve(instance.objective.by_metric(instance.means), instance.objective, baseline=instance.baseline)
    if not exact.feasible:
        return None
    learner = InverseVarianceThompson(contrast=world.contrast, structure="independent") if mutant else None
    study, rng = instance.study(seed, learner), np.random.default_rng([seed, 2])
    for number in range(world.rounds):
        instance.run_round(study, number, rng)
        if world.stop_at_first:
            certificate = study.blend().certificate
            if certificate is not None and certificate.certified:
                break
    blend = study.blend()
    certificate = blend.certificate
    assert certificate is not None  # noqa: S101 -- this learner always gives one
    goals = instance.means[0]
    reference = goals.mean() if instance.baseline is None else goals[instance.baseline]
    goal = float(goals @ blend.probabilities)
    low, high = certificate.intervals["goal"]
    slack = instance.slack(np.array(blend.probabilities))
    return StudyOutcome(
        certified=certificate.certified,
        holds=tuple((slack >= -1e-12).tolist()),
        binding=tuple(chance < CONFIDENCE + 1e-3 for chance in certificate.holds.values()),
        goal=goal - float(reference),
        best_goal=float(goals @ exact.probabilities) - float(reference),
        goal_covered=low <= goal <= high if world.level is None else None,
        understated=bool(certificate.understated_errors),
    )


def calibrate(
    worlds: Iterable[CertificateWorld],
    *,
    studies: int,
    seed: int = FIRST_SEED,
    mutant: bool = False,
    processes: int = 1,
    progress: Progress | None = None,
) -> list[Calibration]:
    """Run studies of every world on both sides and compare them with the truth."""
    cells = [Calibration(world, side) for world in worlds for side in SIDES]
    jobs = [(WORLDS.index(cell.world), cell.side, seed + n, mutant) for cell in cells for n in range(studies)]
    if processes == 1:
        _collect(cells, studies, map(_run_job, jobs), progress)
    else:
        with ProcessPoolExecutor(processes) as pool:
            _collect(cells, studies, pool.map(_run_job, jobs, chunksize=4), progress)
    return cells


def _run_job(job: tuple[int, Side, int, bool]) -> StudyOutcome | None:
    place, side, seed, mutant = job
    return run_study(WORLDS[place], side, seed, mutant=mutant)


def _collect(
    cells: Sequence[Calibration], studies: int, outcomes: Iterable[StudyOutcome | None], progress: Progress | None
) -> None:
    for place, outcome in enumerate(outcomes):
        cell = cells[place // studies]
        if outcome is not None:
            cell.outcomes.append(outcome)
        if progress is not None:
            progress(f"{cell.world.name}, {cell.side}", place % studies + 1, studies)


def measure(
    *, studies: int = FULL_STUDIES, mutants: int = MUTANT_STUDIES, progress: Progress | None = None
) -> BenchmarkReport:
    """Return one row for every world and side, with the mutant's share next to it."""
    processes = os.cpu_count() or 1
    cells = calibrate(WORLDS, studies=studies, processes=processes, progress=progress)
    broken = calibrate(WORLDS, studies=mutants, mutant=True, processes=processes, progress=progress)
    rows = []
    for cell, mutant in zip(cells, broken, strict=True):
        share = f"{100 * mutant.share_held:.1f} ± {100 * mutant.standard_error:.1f} %" if mutant.binding else "–"
        rows.append({**cell.row(), "mutant holds": share})
    return BenchmarkReport(
        "Certified guardrails against the truth",
        tuple(rows),
        note=f"Stated: {CONFIDENCE:.0%} for each guardrail. 20 candidates, ten rounds; hold counts the binding "
        "guardrails of certified answers. The mutant weights cells by their own sample variance and divides contrasts "
        "by their own control. The last two worlds break the assumption of independent rows: there the study must "
        "question its errors.",
    )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


BENCHMARK = Benchmark(
    name="certificates",
    summary="how often a certified guardrail truly holds, on skewed, swinging and clustered metrics",
    run=lambda progress, quick: measure(
        studies=QUICK_STUDIES if quick else FULL_STUDIES,
        mutants=QUICK_STUDIES if quick else MUTANT_STUDIES,
        progress=progress,
    ),
)
