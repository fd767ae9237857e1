from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pasto
from pasto.arrays import FloatArray
from pasto.errors import OptionError, UnsupportedError
from pasto.optimize.learners import Algorithm1, Learner, LearningProblem, Scgd
from pasto.optimize.learners.mirror_ascent import Schedule
from pasto.sim import LearningTrace, RunRound, World, drift, example_a, monte_carlo, synthetic_b, table
from pasto.sim.runner import run_learner

RATIO = (
    pasto.maximize({"x": 1.0, "z": 0.3})
    .keep(pasto.ratio("n", "d"), at_least=0.31, penalty=3.7)
    .keep("z", at_most=0.123, penalty=0.77)
)


def _b(rng: np.random.Generator) -> World:
    return synthetic_b(rng, sigma=0.5)


def _ratio(rng: np.random.Generator) -> World:
    return table(rng.uniform(0.5, 1.0, (4, 7)), rng.uniform(0.0, 0.2, (4, 7)), RATIO)


def _same(one: LearningTrace, two: LearningTrace) -> bool:
    parts = ("checkpoints", "answer", "served", "probabilities", "optimum", "single")
    return all(np.array_equal(getattr(one, part), getattr(two, part)) for part in parts)


@pytest.mark.parametrize("learner", ["algorithm1", "scgd"])
@pytest.mark.parametrize(
    ("world", "parallel"),
    [(example_a(), 1), (_b, 10), (_ratio, 3), (drift(example_a(), amplitude=1.0, period=30), 2)],
    ids=["a", "b", "ratio", "drift"],
)
def test_chunks_do_not_change_a_bit(learner: str, world: Any, parallel: int) -> None:
    traces = [
        monte_carlo(learner, world, runs=15, rounds=120, parallel=parallel, seed=4, chunk=chunk)
        for chunk in (None, 1, 7, 14)
    ]
    assert all(_same(traces[0], other) for other in traces[1:])


def test_more_runs_and_more_rounds_leave_the_first_ones_as_they_were() -> None:
    few = monte_carlo("algorithm1", _b, runs=3, rounds=100, parallel=10)
    many = monte_carlo("algorithm1", _b, runs=5, rounds=300, parallel=10)
    shared = len(few.checkpoints)
    np.testing.assert_array_equal(few.answer, many.answer[:3, :shared])
    np.testing.assert_array_equal(few.optimum, many.optimum[:3])


class _RecordedDraws:
    """Numbers that a study and its world used, as one run's draws."""

    def __init__(self, seed: int, parallel: int, metrics: int) -> None:
        self.seed, self.parallel, self.metrics = seed, parallel, metrics

    def rounds(self, count: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        noise = np.random.default_rng(self.seed)
        for number in range(count):
            uniforms = np.random.default_rng([self.seed, number]).random(self.parallel)
            yield uniforms[None], noise.standard_normal((self.parallel, self.metrics))[None]


@pytest.mark.parametrize(
    "learner", [Algorithm1(), Scgd(), Algorithm1.theorem(2.0, 200), Scgd(tracking=Schedule(1.0, offset=1, power=1.0))]
)
@pytest.mark.parametrize("make", [lambda rng: synthetic_b(rng, 0.5, candidates=9), _ratio], ids=["b", "ratio"])
def test_many_runs_at_once_are_what_a_study_does_by_hand(
    learner: Any, make: Callable[[np.random.Generator], World]
) -> None:
    world = make(np.random.default_rng(0))
    study = pasto.Study(world.candidates, world.objective, learner=learner, seed=11)
    rng = np.random.default_rng(11)
    problem, draws = LearningProblem(world.objective, world.names), _RecordedDraws(11, 4, len(world.metrics))
    for moment in run_learner(learner, problem, [world], draws, rounds=200, parallel=4):
        np.testing.assert_allclose(moment.served[0], study.policy.probabilities, rtol=0, atol=1e-12)
        assignments = study.ask(parallel=4)
        study.tell(assignments, world.draw([a.candidate for a in assignments], rng))
    np.testing.assert_allclose(moment.answer[0], study.blend().probabilities, rtol=0, atol=1e-12)


def test_example_a_has_the_mean_of_the_reference() -> None:
    trace = monte_carlo("algorithm1", example_a(), runs=2_000, rounds=1_000, seed=1)
    values = trace.at(1_000)
    assert abs(values.mean() - 0.909) <= 3.5 * values.std(ddof=1) / np.sqrt(len(values)) + 0.0005
    assert 0.2 < values.std() < 0.28
    assert trace.optimum.round(9).tolist() == [1.0125] * 2_000
    assert not trace.single.any()


@pytest.mark.parametrize("learner", [Algorithm1(), Scgd()])
def test_the_sample_is_unbiased(learner: Learner[Any]) -> None:
    """Check that Σ Û_s − μ behaves as a sum of martingale differences, for the learner's own policies."""
    totals: list[FloatArray] = []

    def keep(moment: RunRound) -> FloatArray:
        totals.append(moment.state.total / moment.round)
        return np.zeros(len(moment.served))

    world = table([[1.0, -2.0, 0.5], [0.3, 0.4, -1.0]], 0.5, pasto.maximize("x").keep("y", at_least=0, penalty=2.0))
    monte_carlo(
        learner, world, runs=4_000, rounds=40, parallel=3, measures={"keep": keep}, checkpoints=[40], chunk=4_000
    )
    (found,) = totals
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - world.truth) <= 4.0 * error).all()
    assert error.max() < 0.05


def test_a_wrong_propensity_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    world = table([[1.0, -2.0, 0.5]], 0.0, pasto.maximize("x"))
    quick = Algorithm1(step=1.0)  # moves far enough from equal shares for a mistake to matter

    def bias() -> float:
        found: list[FloatArray] = []

        def keep(moment: RunRound) -> FloatArray:
            found.append(moment.state.total.mean(axis=0) / moment.round)
            return np.zeros(len(moment.served))

        monte_carlo(quick, world, runs=3_000, rounds=10, measures={"keep": keep}, checkpoints=[10], chunk=3_000)
        return float(np.abs(found[0] - world.truth).max())

    assert bias() < 0.2
    honest = np.take_along_axis
    monkeypatch.setattr(np, "take_along_axis", lambda p, k, axis: np.full_like(honest(p, k, axis=axis), 1 / 3))
    assert bias() > 0.4


def test_every_run_may_have_its_own_truth() -> None:
    trace = monte_carlo("algorithm1", _b, runs=6, rounds=5, parallel=10, seed=9)
    assert len(set(trace.optimum.tolist())) == 6
    again = monte_carlo("algorithm1", lambda rng: synthetic_b(rng, sigma=2.0), runs=6, rounds=5, parallel=10, seed=9)
    np.testing.assert_array_equal(trace.optimum, again.optimum)
    assert (trace.optimum >= trace.single).all()
    assert (trace.answer <= trace.optimum[:, None] + 1e-9).all()


def test_measures_are_taken_at_checkpoints_and_totals_over_every_round() -> None:
    trace = monte_carlo(
        "algorithm1",
        example_a(),
        runs=7,
        rounds=20,
        chunk=3,
        checkpoints=[5, 20],
        measures={"round": lambda moment: np.full(len(moment.served), float(moment.round))},
        totals={
            "rounds": lambda moment: np.full(len(moment.served), float(moment.round)),
            "served": lambda moment: moment.value(moment.running, moment.served),
            "estimated": lambda moment: moment.value(moment.estimate, moment.served),
        },
    )
    assert trace.measures["round"].tolist() == [[5.0, 20.0]] * 7
    assert trace.totals["rounds"].tolist() == [[15.0, 210.0]] * 7
    every = monte_carlo("algorithm1", example_a(), runs=7, rounds=20, checkpoints=range(1, 21))
    np.testing.assert_allclose(trace.totals["served"][:, 1], every.served.sum(axis=1))
    assert np.isfinite(trace.totals["estimated"]).all()


def test_progress_reaches_the_end_and_never_goes_back() -> None:
    heard: list[tuple[str, int, int]] = []
    monte_carlo(
        "scgd",
        example_a(),
        runs=5,
        rounds=150,
        chunk=2,
        label="S-SCGD",
        progress=lambda label, done, total: heard.append((label, done, total)),
    )
    assert {(label, total) for label, _, total in heard} == {("S-SCGD", 750)}
    steps = [done for _, done, _ in heard]
    assert steps == sorted(steps)
    assert steps[-1] == 750


def test_memory_is_bounded_by_the_chunk() -> None:
    def peak(runs: int) -> int:
        tracemalloc.start()
        monte_carlo("algorithm1", _b, runs=runs, rounds=3, parallel=10, checkpoints=[3], chunk=20)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    trace_itself = 8 * 100 * (100 + 2 + 2)
    assert peak(120) - peak(20) < 3 * trace_itself


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": 0}, "runs= must be"),
        ({"rounds": 0}, "rounds= must be"),
        ({"parallel": 1.5}, "parallel= must be"),
        ({"chunk": 0}, "chunk= must be"),
        ({"checkpoints": [0, 5]}, "between 1 and rounds=10"),
        ({"checkpoints": [11]}, "between 1 and rounds=10"),
    ],
)
def test_bad_sizes_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        monte_carlo("algorithm1", example_a(), **{"runs": 2, "rounds": 10, **options})


def test_worlds_that_differ_in_more_than_means_are_refused() -> None:
    def uneven(rng: np.random.Generator) -> World:
        return synthetic_b(rng, sigma=0.1, candidates=int(rng.integers(2, 50)))

    with pytest.raises(OptionError, match="same objective and candidates"):
        monte_carlo("algorithm1", uneven, runs=5, rounds=2)


def test_objectives_that_cannot_be_simulated_are_refused() -> None:
    hard = table({"x": [2, 0], "y": [-2, 2]}, 1.0, pasto.maximize("x").keep("y", at_least=0))
    with pytest.raises(UnsupportedError, match="penalty="):
        monte_carlo("algorithm1", hard, runs=2, rounds=2)
    percent = World(
        np.ones((2, 2)), pasto.maximize("x").keep("y", at_least="-2%", penalty=5.0), np.ones((2, 1)), ("a", "b")
    )
    with pytest.raises(UnsupportedError, match="own units"):
        monte_carlo("algorithm1", percent, runs=2, rounds=2)
