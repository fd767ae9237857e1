import numpy as np

from pasto.optimize.learners import Algorithm1
from pasto.sim import LearningTrace, example_a, monte_carlo
from pasto_research.paper.curves import TRUE_G, horizons, measure_curves, schedules
from pasto_research.paper.experiment import Size
from pasto_research.paper.theory_bounds import Constants

KNOWN = Constants(gradient=8.0, slope=1.0, size=1.0, smoothness=1.0)


def test_the_theorem_prescribes_its_floor_and_step() -> None:
    simulations, true, small = schedules(KNOWN)
    assert simulations.learner(100) == Algorithm1()
    assert true.name == TRUE_G
    learner = true.learner(400)
    assert [learner.floor.at(t) for t in (1, 100, 256, 6_400)] == [0.75, 0.75, 0.5, 0.1]
    assert small.learner(400).floor.at(100) == 0.1
    assert {true.learner(400).step.at(t) for t in (1, 400)} == {0.05}  # type: ignore[union-attr]


def test_horizons_end_at_the_number_of_rounds() -> None:
    assert horizons(1_000) == (10, 30, 100, 300, 1_000)
    assert horizons(7) == (7,)


def test_a_step_that_depends_on_the_horizon_has_a_run_for_each() -> None:
    def ends(trace: LearningTrace) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return trace.answer

    size, world = Size(runs=4, rounds=50, seed=3), example_a()
    simulations, true, _ = schedules(KNOWN)
    curve = measure_curves(true, world, size, {"answer": ends})["answer"]
    assert curve.rounds == (10, 30, 50)
    for place, horizon in enumerate(curve.rounds):
        alone = monte_carlo(Algorithm1.theorem(8.0, horizon), world, runs=4, rounds=horizon, seed=3)
        np.testing.assert_array_equal(curve.values[:, place], alone.answer[:, -1])
    anytime = measure_curves(simulations, world, size, {"answer": ends})["answer"]
    together = monte_carlo("algorithm1", world, runs=4, rounds=50, seed=3, checkpoints=(10, 30))
    np.testing.assert_array_equal(anytime.values, together.answer)
