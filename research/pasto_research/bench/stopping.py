"""Benchmark of the advice to stop: what a study loses that follows it, and whether its certificate then holds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.sim import Progress
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport
from pasto_research.bench.guardrail_counts import count_guardrails
from pasto_research.bench.stopping_worlds import STOPPING_WORLDS, StoppingWorld

FIRST_SEED = 920_000
"""Of the studies; the advice was built on others."""
LATER_ANSWERS = 12
"""Answers after the stop that are computed, evenly spaced on a log axis; the others lie between them."""


@dataclass(frozen=True, slots=True, eq=False)
class StoppedStudy:
    """One study, which goes on after it was advised to stop, so that the two can be compared."""

    stop: int
    """Round of the first advice to stop, or the last one."""
    is_stopped: bool
    answers: FloatArray
    """(rounds,): f of the answer after each round, less that of the best blend."""
    served: FloatArray
    """(rounds,): f of the traffic of each round, control included, less that of the best blend."""
    gain: float
    """f of the best blend less the reference."""
    certified: bool
    """At the stop."""
    binding: int
    """Hard guardrails that the certificate promises with the stated confidence and no more, at the stop."""
    held: int
    """Those of them that truly hold."""

    def losses(self, deploy_rounds: float) -> FloatArray:
        """Return the loss if learning ends after each round: of learning, and of the deployment after it, (rounds,)."""
        return np.asarray(-np.cumsum(self.served) - deploy_rounds * self.answers)


def run_study(world: StoppingWorld, seed: int) -> StoppedStudy:
    """Run one study to the end and note when it is advised to stop."""
    run = world.start(seed)
    study, judge = run.study, run.judge
    rounds, answers, served = [], [], []
    stop, certified, binding, held = None, False, 0, 0
    for number in range(1, world.rounds + 1):
        served.append(judge.value(run.serve()) - judge.best)
        if stop is None:
            blend = study.blend(deploy_rounds=world.deploy_rounds)
            outlook, certificate = blend.outlook, blend.certificate
            assert outlook is not None and certificate is not None  # noqa: S101, PT018 -- this learner has both
            if outlook.decision == "stop" or number == world.rounds:
                stop, certified, is_stopped = number, certificate.certified, outlook.decision == "stop"
                slack = judge.form.slack(judge.truth @ np.array(blend.probabilities))
                binding, held = count_guardrails(certificate, slack, hard=judge.form.hard)
                marks = set(np.geomspace(number, world.rounds, LATER_ANSWERS).round().astype(int).tolist())
        elif number in marks:
            blend = study.blend(deploy_rounds=None)
        else:
            continue
        rounds.append(number)
        answers.append(judge.value(np.array(blend.probabilities)) - judge.best)
    assert stop is not None  # noqa: S101 -- the last round is a stop
    every = np.interp(np.arange(1, world.rounds + 1), rounds, answers)
    gain = judge.best - run.reference
    return StoppedStudy(stop, is_stopped, every, np.array(served), gain, certified, binding, held)


def summarize(world: StoppingWorld, studies: Sequence[StoppedStudy]) -> dict[str, Any]:
    """Return the table's row."""
    stops = np.array([study.stop for study in studies])
    gain = float(np.mean([study.gain for study in studies]))
    losses = np.array([study.losses(world.deploy_rounds) for study in studies])
    at_stop = losses[np.arange(len(studies)), stops - 1]
    fixed = int(np.argmin(losses.mean(axis=0)))
    extra = (at_stop - losses[:, fixed]) / world.deploy_rounds
    left = np.array([study.answers[-1] - study.answers[study.stop - 1] for study in studies])
    low, high = np.quantile(stops, (0.1, 0.9))
    return {
        "world": world.name,
        "deployed for": int(world.deploy_rounds),
        "stops after": f"{stops.mean():.0f} ({low:.0f} to {high:.0f})",
        "not stopped": f"{np.mean([not study.is_stopped for study in studies]):.0%} of {world.rounds}",
        "best fixed round": None if world.is_flat else fixed + 1,
        "lost": None if world.is_flat else _percent(extra, gain),
        "left to gain": None if world.is_flat else _percent(left, gain),
        "certified": f"{np.mean([study.certified for study in studies]):.0%}",
        "binding": sum(study.binding for study in studies),
        "hold": _share_held(studies),
    }


def _share_held(studies: Sequence[StoppedStudy]) -> str | None:
    """Return the share of binding guardrails that hold, with its standard error, or their number if all hold."""
    held, binding = (sum(getattr(study, name) for study in studies) for name in ("held", "binding"))
    if held == binding:  # a standard error of zero would claim too much
        return f"{held} of {binding}" if binding else None
    share = held / binding
    return f"{100 * share:.1f} ± {100 * np.sqrt(share * (1.0 - share) / binding):.1f} %"


def _percent(amounts: FloatArray, gain: float) -> str:
    """Return the mean of amounts as a part of the possible gain, with its standard error."""
    error = amounts.std(ddof=1) / np.sqrt(len(amounts)) if len(amounts) > 1 else np.nan
    return f"{100 * amounts.mean() / gain:.1f} ± {100 * error / gain:.1f} %"


def measure(
    worlds: Iterable[StoppingWorld] = STOPPING_WORLDS,
    *,
    studies: int | None = None,
    seed: int = FIRST_SEED,
    workers: int = 1,
    progress: Progress | None = None,
) -> BenchmarkReport:
    """Return one row for every world."""
    rows = []
    for world in worlds:
        count = studies or world.studies
        runs = []
        for done, run in enumerate(_run_studies(world, range(seed, seed + count), workers), start=1):
            runs.append(run)
            if progress is not None:
                progress(world.name, done, count)
        rows.append(summarize(world, runs))
    return BenchmarkReport(
        "Studies that stop when they are advised to",
        tuple(rows),
        "Every study goes on after the advice to stop, to compare. Lost: by stopping then, in learning and deployment "
        "together, compared with the number of rounds that is best for all studies of that world in hindsight. Left to "
        "gain: what the answer after the last round has more. Both are parts of the best blend's gain over the "
        "baseline, or over an average candidate. A missed hard guardrail is charged at twice its true price. Hold: "
        "binding guardrails of certified answers at the stop, stated with 95 %.",
    )


def _run_studies(world: StoppingWorld, seeds: range, workers: int) -> Iterator[StoppedStudy]:
    if workers <= 1:
        yield from (run_study(world, seed) for seed in seeds)
        return
    # Worlds hold functions that cannot be sent to another process, so a task goes by the world's place.
    place = STOPPING_WORLDS.index(world)
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(_run_task, [(place, seed) for seed in seeds])


def _run_task(task: tuple[int, int]) -> StoppedStudy:
    place, seed = task
    return run_study(STOPPING_WORLDS[place], seed)


QUICK_WORLDS = (0, 5, 9)
"""Places of the worlds of a quick run."""


def _run(progress: Progress | None, quick: bool) -> BenchmarkReport:
    workers = os.cpu_count() or 1
    if quick:
        worlds = [STOPPING_WORLDS[place] for place in QUICK_WORLDS]
        return measure(worlds, studies=3, workers=workers, progress=progress)
    return measure(workers=workers, progress=progress)


BENCHMARK = Benchmark(
    name="stopping",
    summary="what a study loses that stops when it is advised to, and whether its certificate holds then",
    run=_run,
)
