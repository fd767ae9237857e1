"""Certificates and confirmations of the demonstration's worlds over many seeds, held against the truth.

The service is the real one: its closes, learner, guardrail monitor, freeze and confirmation. Only the way from users to
the cells of a round is short. Users are drawn from the policy's shares, their values are added up in arrays, and the
store holds the resulting cells instead of events.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter
from typing import Any, Self

import numpy as np

from pasto.demo.scenario import ARMS, PLANS, DemoPlan, confirm_blend, limits, study_file
from pasto.metrics import Moments
from pasto.metrics.engines import ENGINES, Engine, MeasureRequest
from pasto.metrics.engines.sqlite import build_moments
from pasto.report.records import BlendRecord
from pasto.service.close_record import StoredCells
from pasto.service.service import Service
from pasto.service.study_file import parse_spec
from pasto.sim import APPLICATIONS, Conditions, KnownMeans, Progress, SimulatedApplication, known_means
from pasto.store.sqlite_store import SqliteStore
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport
from pasto_sdk.policy_document import BUCKET_TOTAL

CONFIDENCE = 0.95
"""Of each certified guardrail and of each confirmed interval: low enough for a hundred seeds to show a miss."""
BINDING_WITHIN = 1e-3
"""A guardrail binds if its stated probability exceeds the confidence by less than this."""
WHO = "bench"
FIRST_SEED = 1_000
"""Of the studies; the learner was built on others."""

SIZES: Mapping[str, DemoPlan] = {
    "feed": DemoPlan(rounds=15, users=3_000, confirming=12_000),
    "ads": DemoPlan(rounds=15, users=3_000, confirming=12_000),
    "shop": PLANS["shop"],
}
"""Traffic of one seed, by world."""


class CellStore(SqliteStore):
    """Store in memory that holds the cells of each round instead of events."""

    dialect = "cells"

    def __init__(self) -> None:
        super().__init__(None)
        self._write(lambda connection: connection.execute("CREATE TABLE cells (version INTEGER, cells TEXT)"))

    def add_cells(self, version: int, cells: tuple[Moments, ...]) -> None:
        """Add what the units of a policy measured."""
        values = version, json.dumps(StoredCells.from_moments(cells).document)
        self._write(lambda connection: connection.execute("INSERT INTO cells VALUES (?, ?)", values))


def _read_cells(connection: Any, request: MeasureRequest) -> tuple[Moments, ...]:
    row = connection.execute("SELECT cells FROM cells WHERE version = ?", (request.version,)).fetchone()
    return () if row is None else StoredCells(json.loads(row[0])).moments()


ENGINES[CellStore.dialect] = Engine(CellStore.dialect, _read_cells)


class SimulatedStudy:
    """A world's study in a service of this process, with simulated users.

    >>> with SimulatedStudy(APPLICATIONS["feed"](), seed=1) as study:
    ...     study.learn(users=500), study.service.show("feed").round
    (True, 2)
    """

    def __init__(self, application: SimulatedApplication, seed: int) -> None:
        document = study_file(application, confidence=CONFIDENCE)
        self.application = application
        self.spec = parse_spec(document)
        self.store = CellStore()
        self.service = Service(self.store)
        self.service.create(document, who=WHO, seed=seed)
        self.service.change(application.name, "start", who=WHO)
        self._rng = np.random.default_rng(seed)
        self._conditions = Conditions(night=application.night)
        places: dict[str, int] = {}
        for name, metric in self.spec.metrics.items():
            measure = application.measures[name]
            places[metric.numerator.name] = measure.numerator
            if metric.denominator is not None and measure.denominator is not None:
                places[metric.denominator.name] = measure.denominator
        self._places = [places[column.name] for column in self.spec.columns]
        self._bounds = (
            np.array([-np.inf if column.low is None else column.low for column in self.spec.columns]),
            np.array([np.inf if column.high is None else column.high for column in self.spec.columns]),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.service.shutdown()

    def learn(self, users: int) -> bool:
        """Serve one round's users, close the round, and return whether the guardrail monitor lets the study go on."""
        self._serve(users)
        closed = self.service.close_round(self.application.name, who=WHO)
        return bool(closed.next_state == "learning")

    def confirm(self, users: int) -> BlendRecord:
        """Freeze the blend, serve the confirmation's users, and return the frozen blend as the service shows it."""
        confirmed = self.service.change(self.application.name, "confirm", who=WHO, reason="learned enough")
        self._serve(users)
        assert confirmed.frozen is not None  # noqa: S101 -- a confirming study has a frozen blend
        return confirmed.frozen

    def _serve(self, users: int) -> None:
        """Draw users from the served policy and store what they did by arm and candidate."""
        policy = self.service.policy_cache.current(self.application.name)
        counts = self._rng.multinomial(users, np.array([cell.width for cell in policy.cells]) / BUCKET_TOTAL)
        chosen = np.repeat([cell.candidate for cell in policy.cells], counts)
        mood = self._conditions.mood(policy.round)
        totals = self.application.visit(chosen, self._rng, mood).totals(users)[:, self._places]
        values = np.clip(totals.astype(float), *self._bounds)
        parts = np.split(values, np.cumsum(counts)[:-1])
        unclipped = (0,) * len(self._places)
        cells = [
            build_moments(cell.arm, cell.candidate, part, unclipped)
            for cell, part in zip(policy.cells, parts, strict=True)
            if len(part)
        ]
        self.store.add_cells(policy.version, tuple(sorted(cells, key=lambda cell: (cell.arm, cell.candidate))))


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One seed's certificate and confirmation against the truth."""

    stopped: bool = False
    """Whether the guardrail monitor stopped the study before it had a blend."""
    certified: bool = False
    holds: Mapping[str, bool] = field(default_factory=dict)
    """By guardrail: whether the blend truly is within its limit."""
    binding: Mapping[str, bool] = field(default_factory=dict)
    """By guardrail: whether its stated probability is the confidence and no more."""
    covered: tuple[tuple[str, bool], ...] = ()
    """Of each lift of the confirmation, its metric and whether its interval contains the truth."""
    gain: float = 0.0
    """The blend's true goal over that of the best single setting, as a share of the best possible blend's."""
    seconds: float = 0.0


def run_seed(truth: KnownMeans, plan: DemoPlan, seed: int) -> SeedResult:
    """Learn and confirm a blend with one seed and compare both with the truth."""
    start = perf_counter()
    application = truth.application
    names = application.candidates.names
    with SimulatedStudy(application, seed) as study:
        if not all(study.learn(plan.users) for _ in range(plan.rounds)):
            return SeedResult(stopped=True, seconds=perf_counter() - start)
        frozen = study.confirm(plan.confirming)
        lifts = confirm_blend(study.store, study.spec, confidence=CONFIDENCE, together=False)
    blend = np.array([frozen.probabilities.get(name, 0.0) for name in names])
    blend /= blend.sum()
    covered = []
    for lift in lifts:
        shares = blend if lift.target == ARMS["blend"] else truth.single_shares(names.index(frozen.best_single))
        true_lift = truth.lift(lift.metric, shares).value
        covered.append((lift.metric, lift.relative.low <= true_lift <= lift.relative.high))
    best = truth.best()
    goal = next(iter(application.measures))
    single = truth.single_shares(best.gain.candidate)
    gains = [truth.lift(goal, shares, single).value for shares in (blend, best.probabilities)]
    certificate = frozen.certificate
    assert certificate is not None  # noqa: S101 -- a learned blend has one
    stated = dict(zip(limits(application), certificate.holds.values(), strict=True))
    return SeedResult(
        certified=certificate.certified,
        holds={metric: limit.allows(truth.lift(metric, blend).value) for metric, limit in limits(application).items()},
        binding={metric: (chance or 0.0) < CONFIDENCE + BINDING_WITHIN for metric, chance in stated.items()},
        covered=tuple(covered),
        gain=gains[0] / gains[1],
        seconds=perf_counter() - start,
    )


def summarize(world: str, guardrails: Sequence[str], results: Sequence[SeedResult]) -> list[dict[str, Any]]:
    """Return a row of one world and a row of each of its guardrails.

    Shares carry their standard errors. Guardrails count only if their blend is certified.
    """
    certified = [result for result in results if result.certified]
    gains = [result.gain for result in results if not result.stopped]
    rows = []
    for name, counted in (("all", guardrails), *((guardrail, [guardrail]) for guardrail in guardrails)):
        held = [result.holds[guardrail] for result in certified for guardrail in counted]
        binding = [
            result.holds[guardrail] for result in certified for guardrail in counted if result.binding[guardrail]
        ]
        intervals = [hit for result in results for metric, hit in result.covered if name == "all" or metric == name]
        is_total = name == "all"
        rows.append(
            {
                "world": world,
                "guardrail": name,
                "seeds": len(results),
                "stopped": sum(result.stopped for result in results),
                "certified": f"{len(certified) / len(results):.0%}",
                "guardrails certified": len(held),
                "truly hold": _share(held),
                "binding": len(binding),
                "binding truly hold": _share(binding),
                "intervals cover": _share(intervals),
                "goal kept": f"{fmean(gains):.0%}" if is_total and gains else None,
                "seconds a seed": fmean(result.seconds for result in results) if is_total else None,
            }
        )
    return rows


def measure(
    *, seeds: int = 100, plans: Mapping[str, DemoPlan] = SIZES, progress: Progress | None = None
) -> BenchmarkReport:
    """Run every world with that many seeds."""
    rows: list[dict[str, Any]] = []
    for world, plan in plans.items():
        truth = known_means(APPLICATIONS[world](), plan.truth)
        results = []
        for seed in range(seeds):
            results.append(run_seed(truth, plan, FIRST_SEED + seed))
            if progress is not None:
                progress(f"demo worlds: {world}", seed + 1, seeds)
        rows += summarize(world, list(limits(truth.application)), results)
    sizes = "; ".join(
        f"{world}: {plan.rounds} rounds of {plan.users:,} users, {plan.confirming:,} to confirm"
        for world, plan in plans.items()
    )
    return BenchmarkReport(
        f"The demonstration's worlds, certified at {CONFIDENCE:.0%}, against the truth",
        tuple(rows),
        note=f"{sizes}. Stopped: by the guardrail monitor, while learning. Standard errors count guardrails and "
        "intervals as independent. The intervals of a world include those of its goal. Goal kept: the blend's true "
        "gain over the best single setting, 100% for the best possible blend.",
    )


def _share(hits: Sequence[bool]) -> str:
    """Return a share of hits with its standard error, which one more hit and one more miss keep above zero.

    >>> _share([True] * 19), _share([])
    ('100.0% ± 4.9%', 'n/a')
    """
    if not hits:
        return "n/a"
    smoothed = (sum(hits) + 1) / (len(hits) + 2)
    return f"{fmean(hits):.1%} ± {np.sqrt(smoothed * (1.0 - smoothed) / len(hits)):.1%}"


BENCHMARK = Benchmark(
    name="demo",
    summary="how often certified guardrails and confirmed lifts are true in the worlds of `pasto demo`, by seed",
    run=lambda progress, quick: measure(seeds=8 if quick else 100, progress=progress),
)
