"""Runner: many independent runs of a learner in a world, vectorised across runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import OptionError, UnsupportedError
from pasto.estimate import Sample
from pasto.objective import NormalForm
from pasto.optimize import solve, solve_exact
from pasto.optimize.learners import Learner, LearningProblem, RoundResult, make_learner
from pasto.optimize.learners.mirror_ascent import MirrorAscent, MirrorAscentState
from pasto.sim.random_streams import RandomDraws, RandomStreams, draw_candidates, stream
from pasto.sim.results import LearningTrace, Progress, checkpoint_rounds, join_traces
from pasto.sim.world import World
from pasto.study import Study


@dataclass(frozen=True, slots=True, eq=False)
class RunRound:
    """State of all runs of a chunk after a round: the argument of `measures` and `totals` of `monte_carlo`.

    This example records the regret against the best blend, summed over rounds:

    >>> from pasto.sim import example_a, monte_carlo
    >>> def regret(run_round):
    ...     return 1.0125 - run_round.value(run_round.running, run_round.served)
    >>> trace = monte_carlo("algorithm1", example_a(), runs=20, rounds=10, totals={"regret": regret})
    >>> trace.totals["regret"].shape == (20, len(trace.checkpoints))
    True
    """

    round: int
    """t, counted from 1."""
    served: FloatArray
    """(runs, candidates): p_t."""
    state: MirrorAscentState
    """State after the round; the next round changes it in place, so copy arrays that you store."""
    worlds: Sequence[World]
    """One for each run."""
    form: NormalForm

    @property
    def answer(self) -> FloatArray:
        """(runs, candidates): p̄_t."""
        return np.asarray(self.state.served / self.round)

    @property
    def estimate(self) -> FloatArray:
        """(runs, metrics, candidates): V̂_t = (V̂_0 + Σ Û_s)/(t + 1), as in Algorithm 1."""
        return np.asarray(self.state.total / (self.round + 1))

    @property
    def running(self) -> FloatArray:
        """(runs or 1, metrics, candidates): V_t, the running mean of the true means; μ if they are constant."""
        if all(world is self.worlds[0] for world in self.worlds):
            return self.worlds[0].running_means(self.round)[None]
        return np.array([world.running_means(self.round) for world in self.worlds])

    def value(self, means: FloatArray, probabilities: FloatArray) -> FloatArray:
        """Return f(means · p), (runs,), for means (runs or 1, metrics, candidates)."""
        return self.form.smooth((means * probabilities[:, None, :]).sum(axis=-1))


class MeasurementSampler:
    """Sampler of measurements for all runs at once, from tables with one row per candidate of every run."""

    def __init__(self, worlds: Sequence[World]) -> None:
        self.worlds = worlds if any(world is not worlds[0] for world in worlds) else worlds[:1]
        metrics, count = worlds[0].truth.shape
        self.offsets = np.arange(len(self.worlds), dtype=np.intp)[:, None] * count
        self.is_drifting = any(type(world).means is not World.means for world in self.worlds)
        self.means = self._rows([world.truth for world in self.worlds])
        self.same_noise = all(world.noise.shape[1] == 1 for world in self.worlds)
        if self.same_noise:  # the same for every candidate
            self.noise = np.array([world.noise.T for world in self.worlds])
        else:
            self.noise = self._rows([np.broadcast_to(world.noise, (metrics, count)) for world in self.worlds])

    def draw(self, round: int, chosen: NDArray[np.intp], normals: FloatArray) -> FloatArray:
        """Return the measurements û, (runs, draws, metrics)."""
        if self.is_drifting:
            self.means = self._rows([world.means(round) for world in self.worlds])
        rows = chosen + self.offsets
        measured = normals * (self.noise if self.same_noise else self.noise.take(rows, axis=0))
        measured += self.means.take(rows, axis=0)
        return np.asarray(measured)

    @staticmethod
    def _rows(tables: Sequence[FloatArray]) -> FloatArray:
        return np.concatenate([means.T for means in tables])


def run_learner(
    learner: MirrorAscent[Any],
    problem: LearningProblem,
    worlds: Sequence[World],
    draws: RandomDraws,
    *,
    rounds: int,
    parallel: int,
) -> Iterator[RunRound]:
    """Run the learner's `propose` and `advance` in every world, and yield after each round."""
    state = learner.start(problem, (len(worlds),))
    form = problem.objective.form()
    sampler = MeasurementSampler(worlds)
    shares = np.full((len(worlds), parallel), 1.0 / parallel)
    for number, (uniforms, normals) in enumerate(draws.rounds(rounds), start=1):
        served = learner.propose(problem, state)
        chosen = draw_candidates(served, uniforms)
        sample = Sample(
            candidates=chosen,
            metrics=sampler.draw(number, chosen, normals),
            probabilities=np.take_along_axis(served, chosen, axis=-1),
            shares=shares,
        )
        learner.advance(problem, state, RoundResult(served, sample), form)
        yield RunRound(number, served, state, worlds, form)


Measure = Callable[[RunRound], FloatArray]
"""Function that records a number of every run after a round, (runs,)."""

CHUNK_NUMBERS = 500_000
"""Numbers that a chunk works on. Measured: smaller chunks spend time in NumPy calls, and larger ones miss the cache."""


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
) -> LearningTrace:
    """Run a learner many times and record f of its answer at checkpoints.

    `world` is one world for every run, or a function that makes the world of a run from its random generator. Every run
    draws from streams keyed by (seed, run), so its result does not depend on the number of runs, on later rounds, or on
    the chunk, bit for bit. `measures` are functions of a `RunRound` to record at checkpoints. `totals` are summed over
    all rounds up to each checkpoint. `progress(label, done, total)` counts run-rounds.

    Runs are advanced `chunk` at a time. A chunk needs at most about 8·(chunk·candidates·(4·metrics + 8) + 4,000,000)
    bytes; the trace itself 8·runs·(candidates + checkpoints·(2 + measures + totals)). In a drifting world, f is taken
    at V_t, the running mean of the true means, and the optimum and the best single candidate are those of V_T.

    >>> from pasto.sim import example_a, synthetic_b
    >>> trace = monte_carlo("algorithm1", example_a(), runs=200, rounds=1_000, seed=1)
    >>> bool(abs(trace.mean[-1] - 0.909) < 0.07)
    True
    >>> each = monte_carlo("algorithm1", lambda rng: synthetic_b(rng, sigma=0.1), runs=3, rounds=10, parallel=10)
    >>> each.optimum.shape
    (3,)
    """
    chosen = make_learner(learner)
    if not isinstance(chosen, MirrorAscent):
        raise UnsupportedError(f"learner {chosen.name!r} cannot advance many runs at once; 'algorithm1' and 'scgd' can")
    for name, value in {
        "runs": runs,
        "rounds": rounds,
        "parallel": parallel,
        "chunk": 1 if chunk is None else chunk,
    }.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise OptionError(f"{name}= must be a whole number of at least 1, got {value!r}")
    first = _make_world(world, seed, 0)
    problem = LearningProblem(first.objective, first.names)
    if first.objective.relative:
        raise UnsupportedError(
            "a simulation needs thresholds in the metrics' own units; write numbers instead of percentages, the true "
            "means of the baseline are known here"
        )
    chosen.check(problem)
    recorded_rounds = _read_checkpoints(checkpoints, rounds)
    size = chunk or max(1, CHUNK_NUMBERS // (len(first.names) * (2 * len(first.metrics) + 4) + 8 * parallel + 64))

    def run_chunk(run_numbers: range) -> LearningTrace:
        worlds = [_make_world(world, seed, run) for run in run_numbers]
        _check_alike(worlds, first)
        shape = (len(run_numbers), len(recorded_rounds))
        answer, served = np.empty(shape), np.empty(shape)
        recorded, sums = ({name: np.empty(shape) for name in wanted or {}} for wanted in (measures, totals))
        running = {name: np.zeros(len(run_numbers)) for name in sums}
        column = 0
        draws = RandomStreams(seed, run_numbers, parallel, len(first.metrics))
        for run_round in run_learner(chosen, problem, worlds, draws, rounds=rounds, parallel=parallel):
            for name, measure in (totals or {}).items():
                running[name] += measure(run_round)
            if progress is not None and (run_round.round % 64 == 0 or run_round.round == rounds):
                done = run_numbers.start * rounds + len(run_numbers) * run_round.round
                progress(label or chosen.name, done, runs * rounds)
            if run_round.round != recorded_rounds[column]:
                continue
            means = run_round.running
            answer[:, column] = run_round.value(means, run_round.answer)
            served[:, column] = run_round.value(means, run_round.served)
            for name, measure in (measures or {}).items():
                recorded[name][:, column] = measure(run_round)
            for name, total in running.items():
                sums[name][:, column] = total
            column += 1
        best, single = _solve_worlds(worlds, rounds)
        return LearningTrace(
            learner=chosen.name,
            parallel=parallel,
            seed=seed,
            checkpoints=np.array(recorded_rounds, dtype=np.intp),
            answer=answer,
            served=served,
            probabilities=run_round.answer,
            optimum=best,
            single=single,
            measures=recorded,
            totals=sums,
        )

    return join_traces([run_chunk(range(start, min(start + size, runs))) for start in range(0, runs, size)])


def _read_checkpoints(checkpoints: Sequence[int] | None, rounds: int) -> tuple[int, ...]:
    recorded_rounds = (
        checkpoint_rounds(rounds)
        if checkpoints is None
        else tuple(sorted({int(mark) for mark in checkpoints} | {rounds}))
    )
    if recorded_rounds[0] < 1 or recorded_rounds[-1] > rounds:
        raise OptionError(
            f"checkpoints= must lie between 1 and rounds={rounds}, got {recorded_rounds[0]} to {recorded_rounds[-1]}"
        )
    return recorded_rounds


def _make_world(world: World | Callable[[np.random.Generator], World], seed: int, run: int) -> World:
    return world if isinstance(world, World) else world(stream(seed, run, "truth"))


def _check_alike(worlds: Sequence[World], first: World) -> None:
    for world in worlds:
        if world.objective != first.objective or world.names != first.names:
            raise OptionError(
                "every run's world must have the same objective and candidates; only means and noise differ"
            )


def _solve_worlds(worlds: Sequence[World], rounds: int) -> tuple[FloatArray, FloatArray]:
    """Return f at the best blend and at the best single candidate, (runs,) each."""
    values_by_world: dict[int, tuple[float, float]] = {}
    for world in worlds:
        if id(world) not in values_by_world:
            form, means = world.objective.form(), world.running_means(rounds)
            blended = means @ solve_exact(form, means).probabilities
            tolerances = form.tolerances(means)
            single = float(form.value(means.T, tolerances).max())
            values_by_world[id(world)] = (float(form.value(blended, tolerances)), single)
    best, singles = np.array([values_by_world[id(world)] for world in worlds]).T
    return best, singles


def run_studies(
    learner: Learner[Any],
    world: World | Callable[[np.random.Generator], World],
    *,
    runs: int,
    rounds: int,
    parallel: int,
    seed: int,
    checkpoints: list[int],
    progress: Progress,
    label: str,
) -> LearningTrace:
    """Run a study in each run by ask and tell, with the standard errors of the measurements.

    The worlds are those that `monte_carlo` makes from the same seed. f does not charge for hard guardrails; if there
    are any, the measure `held` is 1 if the answer truly meets them. The optimum is NaN if no blend meets them, and the
    best single value is NaN if no single candidate does.
    """
    shape = (runs, len(checkpoints))
    answer, served, held = np.empty(shape), np.empty(shape), np.empty(shape)
    shares: list[tuple[float, ...]] = []
    optimum, single = np.full(runs, np.nan), np.full(runs, np.nan)
    for run in range(runs):
        run_world = world if isinstance(world, World) else world(stream(seed, run, "truth"))
        form, noise = run_world.objective.form(), stream(seed, run, "noise")
        errors = np.broadcast_to(run_world.noise, run_world.truth.shape).T
        study_seed = int(stream(seed, run, "choice").integers(2**63))
        study = Study(run_world.candidates, run_world.objective, learner=learner, seed=study_seed)
        for number in range(1, rounds + 1):
            policy = np.array(study.policy.probabilities)
            assignments = study.ask(parallel)
            chosen = [assignment.candidate for assignment in assignments]
            study.tell(assignments, run_world.draw(chosen, noise), standard_errors=errors[chosen])
            progress(label, run * rounds + number, runs * rounds)
            if number in checkpoints:
                position = run, checkpoints.index(number)
                blended = run_world.truth @ np.array(study.blend().probabilities)
                answer[position] = form.smooth(blended)
                held[position] = form.met(blended, form.tolerances(run_world.truth))
                served[position] = form.smooth(run_world.truth @ policy)
        shares.append(study.blend().probabilities)
        exact = solve(run_world.objective.by_metric(run_world.truth), run_world.objective, names=run_world.names)
        if exact.feasible:
            optimum[run] = exact.value
        if exact.best_single_value is not None:
            single[run] = exact.best_single_value
    return LearningTrace(
        learner=learner.name,
        parallel=parallel,
        seed=seed,
        checkpoints=np.array(checkpoints, dtype=np.intp),
        answer=answer,
        served=served,
        probabilities=np.array(shares),
        optimum=optimum,
        single=single,
        measures={"held": held} if form.hard.any() else {},
    )
