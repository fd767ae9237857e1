"""Many independent runs of a learner, vectorised across runs."""

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
from pasto.sim.random_streams import RandomDraws, RandomStreams, pick, stream
from pasto.sim.results import LearningTrace, Progress, join_traces, spaced
from pasto.sim.world import World
from pasto.study import Study


@dataclass(frozen=True, slots=True, eq=False)
class RunRound:
    """All runs of a chunk just after a round was learned: what `measures` and `totals` of `monte_carlo` are given.

    Here the regret against the best blend, summed over rounds:

    >>> from pasto.sim import example_a, monte_carlo
    >>> def regret(moment):
    ...     return 1.0125 - moment.value(moment.running, moment.served)
    >>> trace = monte_carlo("algorithm1", example_a(), runs=20, rounds=10, totals={"regret": regret})
    >>> trace.totals["regret"].shape == (20, len(trace.checkpoints))
    True
    """

    round: int
    """t, counted from 1."""
    served: FloatArray
    """(runs, candidates): p_t."""
    state: MirrorAscentState
    """After the round; changed in place by the next one, so copy what is kept."""
    worlds: Sequence[World]
    """One for each run."""
    form: NormalForm

    @property
    def answer(self) -> FloatArray:
        """(runs, candidates): p̄_t."""
        return np.asarray(self.state.served / self.round)

    @property
    def estimate(self) -> FloatArray:
        """(runs, metrics, candidates): V̂_t = (V̂_0 + Σ Û_s)/(t + 1), as Algorithm 1 keeps it."""
        return np.asarray(self.state.total / (self.round + 1))

    @property
    def running(self) -> FloatArray:
        """(runs or 1, metrics, candidates): V_t, the running mean of the truth; μ where it stands still."""
        if all(world is self.worlds[0] for world in self.worlds):
            return self.worlds[0].running(self.round)[None]
        return np.array([world.running(self.round) for world in self.worlds])

    def value(self, means: FloatArray, probabilities: FloatArray) -> FloatArray:
        """(runs,): f(means · p), for means (runs or 1, metrics, candidates)."""
        return self.form.smooth((means * probabilities[:, None, :]).sum(axis=-1))


class _Measured:
    """What candidates measure, gathered for all runs at once from tables with one row a candidate, run after run."""

    def __init__(self, worlds: Sequence[World]) -> None:
        self.worlds = worlds if any(world is not worlds[0] for world in worlds) else worlds[:1]
        metrics, count = worlds[0].truth.shape
        self.offsets = np.arange(len(self.worlds), dtype=np.intp)[:, None] * count
        self.moving = any(type(world).means is not World.means for world in self.worlds)
        self.means = self._rows([world.truth for world in self.worlds])
        self.even = all(world.noise.shape[1] == 1 for world in self.worlds)
        if self.even:  # the same for every candidate: nothing to gather
            self.noise = np.array([world.noise.T for world in self.worlds])
        else:
            self.noise = self._rows([np.broadcast_to(world.noise, (metrics, count)) for world in self.worlds])

    def at(self, round: int, chosen: NDArray[np.intp], normals: FloatArray) -> FloatArray:
        """(runs, draws, metrics): û."""
        if self.moving:
            self.means = self._rows([world.means(round) for world in self.worlds])
        places = chosen + self.offsets
        seen = normals * (self.noise if self.even else self.noise.take(places, axis=0))
        seen += self.means.take(places, axis=0)
        return np.asarray(seen)

    @staticmethod
    def _rows(tables: Sequence[FloatArray]) -> FloatArray:
        return np.concatenate([one.T for one in tables])


def run_learner(
    learner: MirrorAscent[Any],
    problem: LearningProblem,
    worlds: Sequence[World],
    draws: RandomDraws,
    *,
    rounds: int,
    parallel: int,
) -> Iterator[RunRound]:
    """Run the learner's own propose and advance in every world, and yield after each round."""
    state = learner.start(problem, (len(worlds),))
    form = problem.objective.form()
    measured = _Measured(worlds)
    shares = np.full((len(worlds), parallel), 1.0 / parallel)
    for number, (uniforms, normals) in enumerate(draws.rounds(rounds), start=1):
        served = learner.propose(problem, state)
        chosen = pick(served, uniforms)
        sample = Sample(
            candidates=chosen,
            metrics=measured.at(number, chosen, normals),
            probabilities=np.take_along_axis(served, chosen, axis=-1),
            shares=shares,
        )
        learner.advance(problem, state, RoundResult(served, sample), form)
        yield RunRound(number, served, state, worlds, form)


Measure = Callable[[RunRound], FloatArray]
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
) -> LearningTrace:
    """Run a learner many times and record f of its answer at checkpoints.

    `world` is one world for every run, or a function that makes each run's own from its random generator. Every run
    draws from streams keyed by (seed, run), so its result is the same bit for bit whatever the number of runs, of
    rounds after it, or the chunk. `measures` are further functions of a `RunRound` to record at the checkpoints, and
    `totals` are summed over every round up to each checkpoint. `progress(label, done, total)` counts run-rounds.

    Runs are advanced `chunk` at a time. A chunk needs at most about 8·(chunk·candidates·(4·metrics + 8) + 4,000,000)
    bytes; the trace itself 8·runs·(candidates + checkpoints·(2 + measures + totals)). In a drifting world, f is taken
    at V_t, the running mean of the truth, and the optimum and the best single candidate are those of V_T.

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
    first = _world(world, seed, 0)
    problem = LearningProblem(first.objective, first.names)
    if first.objective.relative:
        raise UnsupportedError(
            "a simulation needs thresholds in the metrics' own units: turn the percentages into numbers, since the "
            "truth of the baseline is known here"
        )
    chosen.check(problem)
    marks = _marks(checkpoints, rounds)
    size = chunk or max(1, WORKING_SET // (len(first.names) * (2 * len(first.metrics) + 4) + 8 * parallel + 64))

    def part(numbers: range) -> LearningTrace:
        worlds = [_world(world, seed, run) for run in numbers]
        _alike(worlds, first)
        shape = (len(numbers), len(marks))
        answer, served = np.empty(shape), np.empty(shape)
        recorded, sums = ({name: np.empty(shape) for name in wanted or {}} for wanted in (measures, totals))
        running = {name: np.zeros(len(numbers)) for name in sums}
        column = 0
        draws = RandomStreams(seed, numbers, parallel, len(first.metrics))
        for moment in run_learner(chosen, problem, worlds, draws, rounds=rounds, parallel=parallel):
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
        return LearningTrace(
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

    return join_traces([part(range(start, min(start + size, runs))) for start in range(0, runs, size)])


def _marks(checkpoints: Sequence[int] | None, rounds: int) -> tuple[int, ...]:
    marks = spaced(rounds) if checkpoints is None else tuple(sorted({int(mark) for mark in checkpoints} | {rounds}))
    if marks[0] < 1 or marks[-1] > rounds:
        raise OptionError(f"checkpoints= must lie between 1 and rounds={rounds}, got {marks[0]} to {marks[-1]}")
    return marks


def _world(world: World | Callable[[np.random.Generator], World], seed: int, run: int) -> World:
    return world if isinstance(world, World) else world(stream(seed, run, "truth"))


def _alike(worlds: Sequence[World], first: World) -> None:
    for world in worlds:
        if world.objective != first.objective or world.names != first.names:
            raise OptionError(
                "every run's world must have the same objective and candidates; only means and noise differ"
            )


def _exact(worlds: Sequence[World], rounds: int) -> tuple[FloatArray, FloatArray]:
    """(runs,) each: f at the best blend and at the best single candidate."""
    found: dict[int, tuple[float, float]] = {}
    for world in worlds:
        if id(world) not in found:
            form, means = world.objective.form(), world.running(rounds)
            blended = means @ solve_exact(form, means).probabilities
            tolerances = form.tolerances(means)
            single = float(form.value(means.T, tolerances).max())
            found[id(world)] = (float(form.value(blended, tolerances)), single)
    best, singles = np.array([found[id(world)] for world in worlds]).T
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
    """A study in each run that asks, and is told what was measured with its standard errors.

    The worlds are those that `monte_carlo` makes of the same seed. f does not charge for hard guardrails; where there
    are any, the measure `held` says whether the answer truly meets them. Where no blend does, the optimum is NaN, and
    where no single candidate does, the best single one is.
    """
    shape = (runs, len(checkpoints))
    answer, served, held = np.empty(shape), np.empty(shape), np.empty(shape)
    shares: list[tuple[float, ...]] = []
    optimum, single = np.full(runs, np.nan), np.full(runs, np.nan)
    for run in range(runs):
        place = world if isinstance(world, World) else world(stream(seed, run, "truth"))
        form, noise = place.objective.form(), stream(seed, run, "noise")
        errors = np.broadcast_to(place.noise, place.truth.shape).T
        study_seed = int(stream(seed, run, "choice").integers(2**63))
        study = Study(place.candidates, place.objective, learner=learner, seed=study_seed)
        for done in range(1, rounds + 1):
            policy = np.array(study.policy.probabilities)
            assignments = study.ask(parallel)
            chosen = [assignment.candidate for assignment in assignments]
            study.tell(assignments, place.draw(chosen, noise), standard_errors=errors[chosen])
            progress(label, run * rounds + done, runs * rounds)
            if done in checkpoints:
                spot = run, checkpoints.index(done)
                blended = place.truth @ np.array(study.blend().probabilities)
                answer[spot] = form.smooth(blended)
                held[spot] = form.met(blended, form.tolerances(place.truth))
                served[spot] = form.smooth(place.truth @ policy)
        shares.append(study.blend().probabilities)
        exact = solve(place.objective.by_metric(place.truth), place.objective, names=place.names)
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
