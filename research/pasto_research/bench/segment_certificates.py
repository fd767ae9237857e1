"""Certificates of studies with segments against the truth, with mutants that must fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pasto.estimate import SegmentPosterior, SegmentSpreads, fit_segments
from pasto.objective import Objective, maximize
from pasto.optimize.learners.base import LearningProblem
from pasto.optimize.learners.segmented_certificate import SegmentedAnswer, solve_certified_segments
from pasto.optimize.learners.segmented_thompson import SegmentedState, SegmentedThompson, measured_cells
from pasto.sim import Progress
from pasto.study.segmented_study import SegmentedStudy
from pasto_research.bench.benchmark import BenchmarkReport
from pasto_research.bench.segment_worlds import OBJECTIVE, SegmentJudge, SegmentWorld

CONFIDENCE = 0.95
FIRST_SEED = 1_930_000
"""Of the studies; the learner was built on others."""


class SeparateThompson(SegmentedThompson):
    """Mutant that shares and shrinks nothing: each cell counts alone."""

    def posterior(self, state: SegmentedState) -> SegmentPosterior:
        """Return the posterior under a prior that knows nothing."""
        assert state.spreads is not None  # noqa: S101 -- the state has learned a round
        wide = SegmentSpreads(state.spreads.common, 1e6 * np.eye(len(state.spreads.own)))
        return fit_segments(*measured_cells(state.statistics), wide, steps=0)


class KnownCovariancesThompson(SegmentedThompson):
    """Mutant that takes the learned covariances as known."""

    def posterior(self, state: SegmentedState) -> SegmentPosterior:
        """Return the posterior without their errors."""
        posterior = SegmentedThompson.posterior(self, state)
        segments, _, metrics = posterior.means.shape
        return replace(posterior, shared=posterior.shared[..., : segments * metrics])


class KnownSharesThompson(SegmentedThompson):
    """Mutant that takes the learned shares of traffic as exact."""

    def solve(self, problem: LearningProblem, state: SegmentedState, posterior: SegmentPosterior) -> SegmentedAnswer:
        """Return the answer without their errors."""
        answer = SegmentedThompson.solve(self, problem, state, posterior)
        return solve_certified_segments(problem, answer.form, posterior, answer.errors[:, :0], complete=True)


LEARNERS: dict[str, type[SegmentedThompson]] = {
    "learner": SegmentedThompson,
    "no shrinkage": SeparateThompson,
    "covariances as known": KnownCovariancesThompson,
    "shares as exact": KnownSharesThompson,
}

EACH = maximize("x").keep("y", at_least=0, within="each").keep("z", at_least=0)


@dataclass(frozen=True, slots=True)
class CertificateCase:
    """Kind of study whose certificates are compared with the truth."""

    name: str
    heterogeneity: float
    objective: Objective = OBJECTIVE
    segments: int = 8
    candidates: int = 30
    units: int = 24_000
    rounds: int = 6
    levels: float = 0.0
    mutants: tuple[str, ...] = ()

    def run(self, learner: str, seed: int) -> tuple[bool, list[tuple[bool, bool]]]:
        """Return if the answer is certified, and of each hard guardrail if it holds and if it binds."""
        world = SegmentWorld.draw(
            np.random.default_rng([seed, 1]),
            self.heterogeneity,
            segments=self.segments,
            candidates=self.candidates,
            units=self.units,
            objective=self.objective,
            levels=self.levels,
        )
        rows = [{"setting": f"c{k}"} for k in range(self.candidates)]
        study = SegmentedStudy(rows, self.objective, seed=seed, segments=world.names, learner=LEARNERS[learner]())
        rng = np.random.default_rng([seed, 2])
        for _ in range(self.rounds):
            policies = np.array(list(study.policy.segments.values()))
            study.observe(world.draw_round(study.policy.version, policies, rng))
        blend = study.blend()
        assert blend.certificate is not None  # noqa: S101 -- a learned blend has one
        judge = SegmentJudge(world)
        policies = np.array([part.probabilities for part in blend.segments.values()])
        slacks = [*judge.slack(policies), *np.concatenate(judge.own_slacks(policies))]
        certificates = [blend.certificate, *(part.certificate for part in blend.segments.values())]
        chances = [chance for certificate in certificates if certificate for chance in certificate.holds.values()]
        held = [(slack >= -1e-12, chance < CONFIDENCE + 1e-3) for slack, chance in zip(slacks, chances, strict=True)]
        return blend.certificate.certified, held


CASES = (
    CertificateCase("heterogeneity 0", 0.0, mutants=("no shrinkage",)),
    CertificateCase("heterogeneity 0.3", 0.3, mutants=("no shrinkage",)),
    CertificateCase("heterogeneity 0.6", 0.6, mutants=("no shrinkage",)),
    CertificateCase("heterogeneity 1", 1.0, mutants=("no shrinkage",)),
    CertificateCase(
        "few cells", 0.6, segments=3, candidates=6, units=3_000, rounds=3, mutants=("covariances as known",)
    ),
    CertificateCase("levels far apart", 0.6, levels=100.0, mutants=("shares as exact",)),
    CertificateCase("guardrail within each", 0.6, objective=EACH, segments=4, mutants=("no shrinkage",)),
)


def calibrate(
    cases: Sequence[CertificateCase] = CASES,
    *,
    studies: int,
    mutant_studies: int,
    seed: int = FIRST_SEED,
    processes: int = 1,
    progress: Progress | None = None,
) -> BenchmarkReport:
    """Return how often certified guardrails that bind truly hold, for each case and its mutants.

    >>> case = CertificateCase("small", 0.5, segments=2, candidates=4, rounds=2)
    >>> [row["learner"] for row in calibrate([case], studies=2, mutant_studies=0).rows]
    ['learner']
    """
    rows = []
    for place, case in enumerate(cases):
        for learner in ("learner", *case.mutants):
            count = studies if learner == "learner" else mutant_studies
            jobs = [(case, learner, seed + 10_000 * place + number) for number in range(count)]
            if jobs:
                outcomes = list(_run_jobs(jobs, processes, progress))
                rows.append({"case": case.name, "learner": learner, **_summarize(outcomes)})
    return BenchmarkReport(
        title="Certified guardrails of studies with segments, against the truth",
        rows=tuple(rows),
        note=f"Stated: {CONFIDENCE:.0%} for each guardrail. `hold` counts the binding guardrails of certified answers. "
        "The mutants must fail: without shrinkage the best of noisy cells is too good to be true.",
    )


Job = tuple[CertificateCase, str, int]


def _run_jobs(
    jobs: Sequence[Job], processes: int, progress: Progress | None
) -> Iterable[tuple[bool, list[tuple[bool, bool]]]]:
    label = f"{jobs[0][0].name}, {jobs[0][1]}"
    if processes == 1:
        found: Iterable[tuple[bool, list[tuple[bool, bool]]]] = map(_run_job, jobs)
        yield from _report_progress(found, label, len(jobs), progress)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from _report_progress(pool.map(_run_job, jobs, chunksize=4), label, len(jobs), progress)


def _run_job(job: Job) -> tuple[bool, list[tuple[bool, bool]]]:
    case, learner, seed = job
    return case.run(learner, seed)


def _report_progress(found: Iterable[Any], label: str, total: int, progress: Progress | None) -> Iterable[Any]:
    for done, outcome in enumerate(found, start=1):
        if progress is not None:
            progress(label, done, total)
        yield outcome


def _summarize(outcomes: Sequence[tuple[bool, list[tuple[bool, bool]]]]) -> dict[str, Any]:
    certified = [held for is_certified, held in outcomes if is_certified]
    binding = np.array([holds for held in certified for holds, binds in held if binds], dtype=float)
    share = float(binding.mean()) if len(binding) else float("nan")
    error = float(np.sqrt(share * (1.0 - share) / len(binding))) if len(binding) else float("nan")
    return {
        "studies": len(outcomes),
        "certified_percent": round(100.0 * len(certified) / len(outcomes), 1),
        "binding": len(binding),
        "hold_percent": round(100.0 * share, 1),
        "standard_error": round(100.0 * error, 1),
    }
