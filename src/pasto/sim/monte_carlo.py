"""Many independent runs of a learner, vectorised across runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pasto.errors import BadOption, Unsupported
from pasto.objective import Array
from pasto.optimize import optimum
from pasto.optimize.learners import Learner, Problem
from pasto.optimize.learners import learner as named
from pasto.optimize.learners.mirror import Mirror
from pasto.sim.draws import Streams, stream
from pasto.sim.play import Moment, play
from pasto.sim.trace import Progress, Trace, joined, spaced
from pasto.sim.world import World

Measure = Callable[[Moment], Array]
"""Something to record of every run at a moment, (runs,)."""
WORKING_SET = 500_000
"""Numbers that a chunk keeps touching: measured, smaller chunks pay NumPy's calls and larger ones leave the cache."""


def monte_carlo(
    learner: str | Learner[Any],
    world: World | Callable[[np.random.Generator], World],
    *,
    runs: int,
    rounds: int,
    parallel: int = 1,
    seed: int = 1,
    checkpoints: Sequence[int] | None = None,
    measures: Mapping[str, Measure] | None = None,
    totals: Mapping[str, Measure] | None = None,
    progress: Progress | None = None,
    label: str = "",
    chunk: int | None = None,
) -> Trace:
    """Run a learner many times and record f of its answer at checkpoints.

    `world` is one world for every run, or a function that makes each run's own from its random generator. Every run
    draws from streams keyed by (seed, run), so its result is the same bit for bit whatever the number of runs, of
    rounds after it, or the chunk. `measures` are further functions of a `Moment` to record at the checkpoints, and
    `totals` are summed over every round up to each checkpoint. `progress(label, done, total)` counts run-rounds.

    Runs are advanced `chunk` at a time. A chunk needs at most about 8·(chunk·candidates·(4·metrics + 8) + 4,000,000)
    bytes; the trace itself 8·runs·(candidates + checkpoints·(2 + measures + totals)). In a drifting world, f is taken
    at V_t, the running mean of the truth, and the optimum and the best single candidate are those of V_T.

    >>> from pasto.sim import example_a, synthetic_b
    >>> trace = monte_carlo("pasto", example_a(), runs=200, rounds=1_000, seed=1)
    >>> bool(abs(trace.mean[-1] - 0.909) < 0.07)
    True
    >>> each = monte_carlo("pasto", lambda rng: synthetic_b(rng, sigma=0.1), runs=3, rounds=10, parallel=10)
    >>> each.optimum.shape
    (3,)
    """
    chosen = named(learner)
    if not isinstance(chosen, Mirror):
        raise Unsupported(f"learner {chosen.name!r} cannot advance many runs at once; 'pasto' and 'scgd' can")
    for name, value in {
        "runs": runs,
        "rounds": rounds,
        "parallel": parallel,
        "chunk": 1 if chunk is None else chunk,
    }.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise BadOption(f"{name}= must be a whole number of at least 1, got {value!r}")
    first = _world(world, seed, 0)
    problem = Problem(first.objective, first.names)
    if first.objective.relative:
        raise Unsupported(
            "a simulation needs thresholds in the metrics' own units: turn the percentages into numbers, since the "
            "truth of the baseline is known here"
        )
    chosen.check(problem)
    marks = _marks(checkpoints, rounds)
    size = chunk or max(1, WORKING_SET // (len(first.names) * (2 * len(first.metrics) + 4) + 8 * parallel + 64))

    def part(numbers: range) -> Trace:
        worlds = [_world(world, seed, run) for run in numbers]
        _alike(worlds, first)
        shape = (len(numbers), len(marks))
        answer, served = np.empty(shape), np.empty(shape)
        recorded, sums = ({name: np.empty(shape) for name in wanted or {}} for wanted in (measures, totals))
        running = {name: np.zeros(len(numbers)) for name in sums}
        column = 0
        draws = Streams(seed, numbers, parallel, len(first.metrics))
        for moment in play(chosen, problem, worlds, draws, rounds=rounds, parallel=parallel):
            for name, measure in (totals or {}).items():
                running[name] += measure(moment)
            if progress is not None and (moment.round % 64 == 0 or moment.round == rounds):
                done = numbers.start * rounds + len(numbers) * moment.round
                progress(label or chosen.name, done, runs * rounds)
            if moment.round != marks[column]:
                continue
            means = moment.running
            answer[:, column] = moment.value(means, moment.answer)
            served[:, column] = moment.value(means, moment.served)
            for name, measure in (measures or {}).items():
                recorded[name][:, column] = measure(moment)
            for name, total in running.items():
                sums[name][:, column] = total
            column += 1
        best, single = _exact(worlds, rounds)
        return Trace(
            learner=chosen.name,
            parallel=parallel,
            seed=seed,
            checkpoints=np.array(marks, dtype=np.intp),
            answer=answer,
            served=served,
            probabilities=moment.answer,
            optimum=best,
            single=single,
            measures=recorded,
            totals=sums,
        )

    return joined([part(range(start, min(start + size, runs))) for start in range(0, runs, size)])


def _marks(checkpoints: Sequence[int] | None, rounds: int) -> tuple[int, ...]:
    marks = spaced(rounds) if checkpoints is None else tuple(sorted({int(mark) for mark in checkpoints} | {rounds}))
    if marks[0] < 1 or marks[-1] > rounds:
        raise BadOption(f"checkpoints= must lie between 1 and rounds={rounds}, got {marks[0]} to {marks[-1]}")
    return marks


def _world(world: World | Callable[[np.random.Generator], World], seed: int, run: int) -> World:
    return world if isinstance(world, World) else world(stream(seed, run, "truth"))


def _alike(worlds: Sequence[World], first: World) -> None:
    for world in worlds:
        if world.objective != first.objective or world.names != first.names:
            raise BadOption(
                "every run's world must have the same objective and candidates; only means and noise differ"
            )


def _exact(worlds: Sequence[World], rounds: int) -> tuple[Array, Array]:
    """(runs,) each: f at the best blend and at the best single candidate."""
    found: dict[int, tuple[float, float]] = {}
    for world in worlds:
        if id(world) not in found:
            form, means = world.objective.form(), world.running(rounds)
            blended = means @ optimum(form, means).probabilities
            tolerances = form.tolerances(means)
            single = float(form.value(means.T, tolerances).max())
            found[id(world)] = (float(form.value(blended, tolerances)), single)
    best, singles = np.array([found[id(world)] for world in worlds]).T
    return best, singles
