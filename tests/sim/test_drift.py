from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasto.errors import MeansError, OptionError
from pasto.sim import drift, example_a, monte_carlo


@given(
    round=st.integers(1, 300),
    period=st.floats(2.0, 400.0),
    phase=st.floats(-7.0, 7.0),
    amplitude=st.floats(-3.0, 3.0),
    ramp=st.floats(-0.1, 0.1),
)
def test_the_running_mean_is_the_mean_of_the_means(
    round: int, period: float, phase: float, amplitude: float, ramp: float
) -> None:
    world = drift(example_a(), amplitude=[[amplitude], [1.0]], period=period, phase=[[phase, 0.3]], ramp=ramp)
    average = np.mean([world.means(number) for number in range(1, round + 1)], axis=0)
    np.testing.assert_allclose(world.running_means(round), average, rtol=1e-9, atol=1e-9)


def test_draws_follow_the_round() -> None:
    world = drift(example_a(variance=0.0), ramp=0.5)
    rng = np.random.default_rng(0)
    assert world.draw([0, 1], rng, round=4).tolist() == [[4.0, 0.0], [2.0, 4.0]]


def test_without_drift_it_is_the_world_it_came_from() -> None:
    world = example_a()
    still = drift(world)
    np.testing.assert_array_equal(still.running_means(17), world.truth)
    trace, again = (monte_carlo("algorithm1", one, runs=5, rounds=50, seed=2) for one in (world, still))
    np.testing.assert_array_equal(trace.answer, again.answer)


def test_a_drifting_run_learns_from_the_means_of_its_round() -> None:
    world = drift(example_a(variance=0.0), ramp=[[0.1], [0.0]])
    measured: list[float] = []

    def record(moment: Any) -> Any:
        measured.append(float((moment.state.total[0] @ moment.served[0])[0]))
        return moment.value(moment.running, moment.served)

    trace = monte_carlo("algorithm1", world, runs=1, rounds=3, measures={"f": record}, checkpoints=[1, 2, 3])
    np.testing.assert_array_equal(trace.measures["f"], trace.served)
    # One draw, no noise: Û p_t is the drawn candidate's own metric, with the ramp's first step in it.
    assert min(abs(measured[0] - value) for value in (2.1, 0.1)) < 1e-12


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"period": 1.0}, OptionError),
        ({"period": float("nan")}, OptionError),
        ({"amplitude": [1.0, 2.0, 3.0]}, MeansError),
        ({"ramp": float("inf")}, MeansError),
        ({"phase": "late"}, MeansError),
    ],
)
def test_bad_drifts_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        drift(example_a(), **options)
