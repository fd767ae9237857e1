"""Race with a thousand candidates and a million users a round: regret after a few rounds, certificates and seconds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pasto
from pasto.arrays import FloatArray
from pasto.objective import Objective, maximize
from pasto.observation import Observation
from pasto.optimize import solve_exact
from pasto.optimize.learners import Thompson
from pasto.sim import Progress
from pasto.space import Candidates
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport
from pasto_research.bench.guardrail_counts import format_share_held
from pasto_research.bench.learner_courses import Judge

CHECKPOINTS = (3, 6, 12)
"""Rounds after which the answer is judged."""
FIRST_SEED = 931_000
"""Of the worlds; nothing was chosen on them."""
USER_DEVIATION = 30.0
"""Deviation of one user's metrics, relative to that of the candidates' means: a lift of 5 % on metrics of 150 %."""
USER_CORRELATION = 0.3
"""Correlation of a user's metrics."""
LIMIT = 0.5
"""Of the guardrails, in deviations of the candidates' means, which average 0."""
CONFIDENCE = 0.95
"""Of each guardrail."""


@dataclass(frozen=True, slots=True)
class ManyCandidates:
    """Family of worlds with many candidates: a goal and two hard guardrails, each normal over the candidates.

    >>> world = ManyCandidates("small", candidates=20, users=10_000).draw(np.random.default_rng(1))
    >>> world.truth.shape
    (3, 20)
    """

    name: str
    trade_off: float = 0.0
    """Correlation between the goal's means and each guardrail's, with the opposite sign."""
    candidates: int = 1_000
    users: int = 1_000_000
    """Users a round."""

    @property
    def objective(self) -> Objective:
        """The goal, with two hard guardrails."""
        return maximize("goal").keep("guardrail 1", at_least=LIMIT).keep("guardrail 2", at_least=LIMIT)

    @property
    def settings(self) -> Candidates:
        """The candidates, known by name only."""
        return Candidates.from_rows([{"setting": f"s{number}"} for number in range(self.candidates)])

    def draw(self, rng: np.random.Generator) -> ManyCandidatesWorld:
        """Draw one truth."""
        truth = rng.standard_normal((3, self.candidates))
        truth[1:] = -self.trade_off * truth[0] + np.sqrt(1.0 - self.trade_off**2) * truth[1:]
        return ManyCandidatesWorld(self, truth)


@dataclass(frozen=True, slots=True, eq=False)
class ManyCandidatesWorld:
    """One truth: the mean of every metric and candidate."""

    family: ManyCandidates
    truth: FloatArray
    """(metrics, candidates)."""

    def draw_round(self, shares: FloatArray, version: int, rng: np.random.Generator) -> list[Observation]:
        """Draw the users of one round and return the cells of the candidates, with measured covariances."""
        units = rng.multinomial(self.family.users, shares)
        served = np.flatnonzero(units >= 2)
        counts = units[served]
        unit_covariance = USER_DEVIATION**2 * (USER_CORRELATION + (1.0 - USER_CORRELATION) * np.eye(3))
        root = np.linalg.cholesky(unit_covariance)
        noise = rng.standard_normal((len(served), 3)) @ root.T / np.sqrt(counts)[:, None]
        # The sample covariance of n users has a Wishart distribution (Bartlett's decomposition).
        factors = np.tril(rng.standard_normal((len(served), 3, 3)), -1)
        degrees = np.maximum(counts[:, None] - 1.0 - np.arange(3), 0.5)
        factors[:, np.arange(3), np.arange(3)] = np.sqrt(rng.chisquare(degrees))
        factors = root @ factors
        covariances = factors @ factors.transpose(0, 2, 1) / ((counts - 1.0) * counts)[:, None, None]
        means = self.truth[:, served].T + noise
        return [
            Observation(version, candidate, count, tuple(mean), tuple(map(tuple, covariance)))
            for candidate, count, mean, covariance in zip(
                served.tolist(), counts.tolist(), means.tolist(), covariances.tolist(), strict=True
            )
        ]


class StudyAllocator:
    """A study that serves its own policy; the other allocators replace the policy, and all have the study's answer."""

    def __init__(self, world: ManyCandidatesWorld, seed: int, draws: int | None = None) -> None:
        self.world, self.count = world, world.family.candidates
        self.study = pasto.Study(
            world.family.settings,
            world.family.objective,
            learner=Thompson(draws=draws),
            seed=seed,
            confidence=CONFIDENCE,
        )

    def propose(self) -> FloatArray:
        """Return the shares of the next round."""
        return np.array(self.study.policy.probabilities)

    def observe(self, cells: Sequence[Observation]) -> None:
        """Learn a round."""
        self.study.observe(cells)


class EvenAllocator(StudyAllocator):
    """The same share for some of the candidates, in every round."""

    def __init__(self, world: ManyCandidatesWorld, seed: int) -> None:
        super().__init__(world, seed, draws=1)
        self.served: NDArray[np.intp] = np.arange(self.count)

    def propose(self) -> FloatArray:
        """Return equal shares of the candidates that are left."""
        return np.bincount(self.served, minlength=self.count) / len(self.served)


class HalvingAllocator(EvenAllocator):
    """Successive halving: after each round, the better half of the candidates goes on, down to eight.

    A candidate's score is its goal plus its slacks at the prices of the exact blend of the sample means.
    """

    least = 8

    def __init__(self, world: ManyCandidatesWorld, seed: int) -> None:
        super().__init__(world, seed)
        self.units, self.sums = np.zeros(self.count), np.zeros_like(world.truth)

    def observe(self, cells: Sequence[Observation]) -> None:
        """Learn a round, and drop the worse half."""
        super().observe(cells)
        for cell in cells:
            self.units[cell.candidate] += cell.units
            self.sums[:, cell.candidate] += cell.units * np.array(cell.mean)
        form = self.world.family.objective.form()
        means = self.sums[:, self.served] / self.units[self.served]
        scores = form.goal.value(means.T) + form.slack(means.T) @ solve_exact(form, means).duals
        left = max(self.least, -(-len(self.served) // 2))
        self.served = np.sort(self.served[np.argsort(-scores, kind="stable")[:left]])


class OracleAllocator(EvenAllocator):
    """From the second round on, only the candidates of the true best blend: a limit for any allocation."""

    def observe(self, cells: Sequence[Observation]) -> None:
        """Learn a round."""
        super().observe(cells)
        exact = solve_exact(self.world.family.objective.form(), self.world.truth)
        self.served = np.flatnonzero(exact.probabilities > 0.0)


ALLOCATORS: dict[str, Callable[[ManyCandidatesWorld, int], StudyAllocator]] = {
    "posterior blend": StudyAllocator,
    "posterior blend, 32 draws": lambda world, seed: StudyAllocator(world, seed, draws=32),
    "even sweep": EvenAllocator,
    "successive halving": HalvingAllocator,
    "only the best blend's candidates": OracleAllocator,
}

FAMILIES = (
    ManyCandidates("uncorrelated metrics"),
    ManyCandidates("guardrails fall with the goal", trade_off=0.6),
)


@dataclass(frozen=True, slots=True, eq=False)
class ManyCandidatesRun:
    """One allocator in one world."""

    regrets: FloatArray
    """(checkpoints,): f of the best blend less that of the answer, in deviations of the candidates' goals."""
    certified: NDArray[np.bool_]
    """(checkpoints,)."""
    binding: NDArray[np.bool_]
    """(checkpoints, guardrails): stated with the confidence and no more, in certified answers."""
    holds: NDArray[np.bool_]
    """(checkpoints, guardrails): whether each truly holds."""
    seconds: FloatArray
    """(checkpoints,): CPU seconds of a close, from the cells to the next policy and the answer."""


def run_allocator(family: ManyCandidates, name: str, run: int, seed: int = FIRST_SEED) -> ManyCandidatesRun:
    """Run one allocator in one world.

    >>> outcome = run_allocator(ManyCandidates("small", candidates=12, users=20_000), "even sweep", 0)
    >>> outcome.regrets.shape, outcome.holds.shape
    ((3,), (3, 2))
    """
    world = family.draw(np.random.default_rng([seed, run, 1]))
    rng, form = np.random.default_rng([seed, run, 2]), family.objective.form()
    judge, allocator = Judge(form, world.truth), ALLOCATORS[name](world, run)
    regrets, certified, binding, holds, seconds = [], [], [], [], []
    for number in range(1, CHECKPOINTS[-1] + 1):
        cells = world.draw_round(allocator.propose(), allocator.study.policy.version, rng)
        began = process_time()
        allocator.observe(cells)
        if number not in CHECKPOINTS:
            continue
        blend = allocator.study.blend(deploy_rounds=None)  # as a close does; the outlook belongs to the report
        seconds.append(process_time() - began)
        answer, certificate = np.array(blend.probabilities), blend.certificate
        assert certificate is not None  # noqa: S101 -- a study's blend has one
        regrets.append((judge.best - judge.value(answer)) / float(world.truth[0].std()))
        certified.append(certificate.certified)
        binding.append([certificate.certified and chance < CONFIDENCE + 1e-3 for chance in certificate.holds.values()])
        holds.append(form.slack(world.truth @ answer) >= -1e-12)
    return ManyCandidatesRun(
        np.array(regrets), np.array(certified), np.array(binding), np.array(holds), np.array(seconds)
    )


Task = tuple[ManyCandidates, str, int, int]


def _run_task(task: Task) -> ManyCandidatesRun:
    return run_allocator(*task)


def _run_tasks(tasks: Sequence[Task], workers: int) -> Iterator[ManyCandidatesRun]:
    if workers <= 1:
        yield from map(_run_task, tasks)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(_run_task, tasks)


def measure_many_candidates(
    families: Sequence[ManyCandidates] = FAMILIES,
    *,
    instances: int = 40,
    seed: int = FIRST_SEED,
    players: Sequence[str] | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> BenchmarkReport:
    """Return the report of all allocators, which share worlds and random numbers of users."""
    rows = []
    for family in families:
        for name in ALLOCATORS if players is None else players:
            tasks = [(family, name, run, seed) for run in range(instances)]
            runs = []
            for done, outcome in enumerate(_run_tasks(tasks, workers), start=1):
                runs.append(outcome)
                if progress is not None:
                    progress(f"{family.name}: {name}", done, instances)
            rows.append({"world": family.name, "learner": name, **_summarize(runs)})
    note = (
        f"{instances} worlds each, {families[0].candidates:,} candidates, {families[0].users:,} users a round, a goal "
        f"and two hard guardrails at {CONFIDENCE:.0%}. Regret is f of the best blend less that of the answer, in "
        "deviations of the candidates' goals, with its standard error; a missed guardrail is charged at twice its true "
        "price. All have the answer of the posterior blend, so only the shares of the rounds differ. Hold counts the "
        "binding guardrails of certified answers at all checkpoints. A close is from the cells to the next policy "
        "and the answer."
    )
    return BenchmarkReport("A thousand candidates: regret after a few large rounds", tuple(rows), note)


def _summarize(runs: Sequence[ManyCandidatesRun]) -> dict[str, Any]:
    """Return the columns of one row; standard errors are over worlds."""
    regrets = np.array([run.regrets for run in runs])
    errors = regrets.std(axis=0, ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else np.full(len(CHECKPOINTS), np.nan)
    bound = np.array([run.binding.sum() for run in runs])
    held = np.array([(run.binding & run.holds).sum() for run in runs])
    return {
        **{
            f"regret at {mark}": f"{regret:.3f} ± {error:.3f}"
            for mark, regret, error in zip(CHECKPOINTS, regrets.mean(axis=0), errors, strict=True)
        },
        "certified": f"{np.mean([run.certified for run in runs]):.0%}",
        "binding": int(bound.sum()),
        "hold": format_share_held(np.stack([bound, held], axis=1)),
        "CPU s a close": round(float(np.median([run.seconds for run in runs])), 2),
    }


def _run(progress: Progress | None, quick: bool) -> BenchmarkReport:
    workers = os.cpu_count() or 1
    if quick:
        return measure_many_candidates(FAMILIES[1:], instances=3, workers=workers, progress=progress)
    return measure_many_candidates(workers=workers, progress=progress)


BENCHMARK = Benchmark(
    name="many-candidates",
    summary="regret with 1,000 candidates and a million users a round",
    run=_run,
)
