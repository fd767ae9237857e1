import json
from pathlib import Path

import numpy as np
import pytest

from pasto.sim import RunRound, World, drift, example_a, monte_carlo
from pasto_research.paper import Outcome, run, write
from pasto_research.paper.curves import TRUE_G
from pasto_research.paper.theorem2_regret import best_fixed, worlds
from pasto_research.paper.theory_bounds import Constants, empirical_regret_bound, regret_bound

WORLDS = worlds(300)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run("regret", runs=30, rounds=300, seed=2)


def total(world: World, share: float, rounds: int) -> float:
    """Compute Σ f(V_t p) slowly, from the means of each round."""
    moved, value = np.zeros_like(world.truth), 0.0
    for t in range(1, rounds + 1):
        moved = moved + world.means(t)
        value += float(world.objective.value(moved / t @ [share, 1 - share]))
    return value


@pytest.mark.parametrize("name", WORLDS)
def test_no_fixed_blend_beats_the_comparator(name: str) -> None:
    world, marks = WORLDS[name], (1, 17, 300)
    totals, shares = best_fixed(world, marks)
    for mark, best, share in zip(marks, totals, shares, strict=True):
        assert best == pytest.approx(total(world, share, mark), abs=1e-9)
        others = [total(world, other, mark) for other in [*np.linspace(0, 1, 41), share - 1e-4, share + 1e-4]]
        assert max(others) <= best + 1e-9
    if name == "standing still":
        np.testing.assert_allclose(totals, 1.0125 * np.array(marks))


def test_a_comparator_at_an_end_is_found() -> None:
    rich = drift(example_a(), ramp=[[0.0, 0.0], [1.0, 0.0]])  # y of the first arm soon meets the guardrail by itself
    totals, shares = best_fixed(rich, (300,))
    assert shares[0] == pytest.approx(1.0, abs=0.01)
    poor = drift(example_a(), ramp=[[-1.0, 0.0], [0.0, 0.0]])
    totals, shares = best_fixed(poor, (300,))
    assert shares[0] == pytest.approx(0.0, abs=1e-12)
    assert totals[0] == pytest.approx(total(poor, 0.0, 300))


@pytest.mark.parametrize("name", WORLDS)
def test_regrets_are_sums_over_rounds(outcome: Outcome, name: str) -> None:
    world = WORLDS[name]

    def estimated_value(moment: RunRound) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        estimate = moment.state.total / (moment.round + 1)
        return world.objective.value(np.einsum("rmk,rk->rm", estimate, moment.served))

    every = monte_carlo(
        "algorithm1", world, runs=30, rounds=300, seed=2, checkpoints=range(1, 301), measures={"seen": estimated_value}
    )
    best, _ = best_fixed(world, (300,))
    curves = outcome.data["curves"][name]
    assert curves["first"]["simulations"]["mean"][-1] == pytest.approx(best[0] - every.served.sum(axis=1).mean())
    assert curves["second"]["simulations"]["mean"][-1] == pytest.approx(
        best[0] - every.measures["seen"].sum(axis=1).mean()
    )


def test_the_bounds_use_the_largest_constants_on_the_way(outcome: Outcome) -> None:
    still = Constants.of(example_a().objective, example_a().truth)
    marks = outcome.data["rounds"]
    assert outcome.data["bounds"]["standing still"]["first"] == [regret_bound(still, 2, mark) for mark in marks]
    assert outcome.data["bounds"]["standing still"]["second"] == [
        empirical_regret_bound(still, 2, mark) for mark in marks
    ]
    assert outcome.data["bounds"]["waves"]["first"][-1] > outcome.data["bounds"]["standing still"]["first"][-1]
    assert all(claim.holds for claim in outcome.claims if "bounds" in claim.what)
    assert all(claim.holds is None for claim in outcome.claims if "no faster" in claim.what)  # too few rounds to judge


def test_a_truth_that_stands_still_leaves_regret(outcome: Outcome) -> None:
    for curve in outcome.data["curves"]["standing still"]["first"].values():
        assert (curve["mean"] > 0).all()
        assert (np.diff(curve["mean"]) > 0).all()


def test_figures_and_file_are_written(outcome: Outcome, tmp_path: Path) -> None:
    names = {path.name for path in write(outcome, tmp_path)}
    assert {"regret.json", "regret.png", "regret.svg", "regret-bound.png"} <= names
    saved = json.loads((tmp_path / "regret.json").read_text(encoding="utf-8"))
    assert set(saved["data"]["curves"]["waves"]["second"]) == {"simulations", TRUE_G, "theorem, G = 1"}


def test_tiny_sizes_run() -> None:
    assert run("regret", runs=1, rounds=1).claims[0].holds is True
    assert len(run("regret", runs=2, rounds=12).tables) == 4
