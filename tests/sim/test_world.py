from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pasto
from pasto.errors import MeansError
from pasto.sim import World, example_a, synthetic_b, table

OBJECTIVE = pasto.maximize("x").keep("y", at_least=0, penalty=5.0)


def test_example_a_is_the_papers() -> None:
    world = example_a()
    assert world.truth.tolist() == [[2, 0], [-2, 2]]
    assert world.metrics == ("x", "y")
    np.testing.assert_allclose(world.noise**2, 5.0)
    assert world.value([0.5, 0.5]) == 1.0
    assert world.value([[1.0, 0.0], [0.0, 1.0]]).tolist() == [-18.0, 0.0]


def test_synthetic_b_is_the_papers() -> None:
    world = synthetic_b(3, sigma=0.7)
    assert world.truth.shape == (3, 100)
    assert world.truth.min() >= -1.0
    assert world.truth.max() <= 1.0
    assert (world.noise == 0.7).all()
    assert str(world.objective) == "maximize x, keep y1 >= 0.5 (penalty 5), keep y2 >= 0.5 (penalty 5)"
    np.testing.assert_array_equal(world.truth, synthetic_b(3, sigma=0.1).truth)
    assert not np.array_equal(world.truth, synthetic_b(4, sigma=0.7).truth)
    assert synthetic_b(np.random.default_rng(3), 0.7, candidates=5).truth.shape == (3, 5)


def test_draws_have_the_means_and_deviations_asked_for() -> None:
    noise = np.array([[0.5, 2.0, 1.0], [3.0, 0.0, 1.0]])
    world = table([[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0]], noise, OBJECTIVE)
    rng = np.random.default_rng(0)
    for candidate in range(3):
        measured = world.draw(np.full(40_000, candidate), rng)
        error = noise[:, candidate] / np.sqrt(len(measured))
        assert (np.abs(measured.mean(axis=0) - world.truth[:, candidate]) <= 4.5 * error).all()
        np.testing.assert_allclose(measured.std(axis=0), noise[:, candidate], rtol=0.03)
    metrics = world.draw(np.zeros(40_000, dtype=int), rng)
    assert abs(np.prod(metrics - world.truth[:, 0], axis=1).mean()) < 0.05 * noise[:, 0].prod()


@pytest.mark.parametrize("noise", [0.5, [0.5, 0.5], {"y": 0.5, "x": 0.5}, [[0.5], [0.5]], np.full((2, 2), 0.5)])
def test_noise_may_be_written_in_several_ways(noise: Any) -> None:
    world = table({"x": [2, 0], "y": [-2, 2]}, noise, OBJECTIVE)
    assert (np.broadcast_to(world.noise, (2, 2)) == 0.5).all()


def test_metrics_that_the_objective_does_not_read_are_left_out() -> None:
    assert table({"other": [7, 7], "y": [-2, 2], "x": [2, 0]}, 1.0, OBJECTIVE).truth.tolist() == [[2, 0], [-2, 2]]


@pytest.mark.parametrize(
    ("means", "noise", "message"),
    [
        ({"x": [1, 2]}, 1.0, "lacks 'y'"),
        ({"x": [1, 2], "y": [1, float("nan")]}, 1.0, "finite"),
        ({"x": [1, 2], "y": [1, 2]}, -1.0, "not negative"),
        ({"x": [1, 2], "y": [1, 2]}, float("nan"), "not negative"),
        ({"x": [1, 2], "y": [1, 2]}, {"x": 1.0}, "lacks 'y'"),
        ({"x": [1, 2], "y": [1, 2]}, [1.0, 2.0, 3.0], r"got shape \(3,\)"),
        ({"x": [1, 2], "y": [1, 2]}, "much", "standard deviations"),
    ],
)
def test_bad_tables_are_refused(means: Any, noise: Any, message: str) -> None:
    with pytest.raises(MeansError, match=message):
        table(means, noise, OBJECTIVE)


def test_a_study_learns_in_a_world_by_hand() -> None:
    world: World = table({"x": [2, 0], "y": [-2, 2]}, 0.1, OBJECTIVE, names=["bold", "careful"])
    study = pasto.Study(world.candidates, world.objective, learner="algorithm1", seed=3)
    rng = np.random.default_rng(3)
    for number in range(1, 301):
        assignments = study.ask(parallel=5)
        study.tell(assignments, world.draw([a.candidate for a in assignments], rng, round=number))
    assert study.blend().names == ("bold", "careful")
    assert world.value(study.blend().probabilities) > 0.5
