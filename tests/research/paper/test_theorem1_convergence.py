import json
from pathlib import Path

import numpy as np
import pytest

from pasto.sim import example_a
from pasto_research.paper import Outcome, run, write
from pasto_research.paper.curves import TRUE_G
from pasto_research.paper.theory_bounds import Constants, convergence_bound


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run("convergence", runs=300, rounds=1_000, seed=4)


def test_the_distance_is_the_references(outcome: Outcome) -> None:
    curve = outcome.data["curves"]["simulations"]
    assert abs(curve["mean"][-1] - (1.0125 - 0.909)) < 4 * curve["error"][-1] + 0.0005
    assert 0 < curve["error"][-1] < 0.03


def test_every_schedule_comes_closer_and_stays_below_the_bound(outcome: Outcome) -> None:
    world = example_a()
    known = Constants.of(world.objective, world.truth)
    assert outcome.data["rounds"] == (10, 30, 100, 300, 1_000)
    assert outcome.data["bound"] == [convergence_bound(known, 2, mark) for mark in outcome.data["rounds"]]
    for curve in outcome.data["curves"].values():
        mean = curve["mean"]
        assert 0 < mean[-1] < mean[-2] < mean[-3]
        assert (mean < outcome.data["bound"]).all()
    assert outcome.claims[0].holds is True


def test_a_floor_of_three_quarters_keeps_both_arms(outcome: Outcome) -> None:
    # f(0.625, 0.375) is the minimum over p in [3/8, 5/8].
    worst = 1.0125 - float(example_a().value([0.625, 0.375]))
    assert (outcome.data["curves"][TRUE_G]["mean"] < worst).all()
    assert outcome.data["even_split"] == pytest.approx(0.0125)
    assert outcome.data["worst_blend"] == pytest.approx(19.0125)


def test_the_orders_are_judged_only_from_enough_rounds(outcome: Outcome) -> None:
    orders = [claim for claim in outcome.claims if "1/√T (" in claim.what]
    assert len(orders) == 3
    assert all(claim.holds is None and "T^−" in claim.measured for claim in orders)


@pytest.mark.parametrize(("runs", "rounds"), [(1, 1), (1, 40), (3, 9)])
def test_tiny_sizes_run(runs: int, rounds: int) -> None:
    outcome = run("convergence", runs=runs, rounds=rounds)
    assert np.isfinite(outcome.data["curves"]["simulations"]["mean"]).all()


def test_the_figure_and_the_file_are_written(outcome: Outcome, tmp_path: Path) -> None:
    assert {path.suffix for path in write(outcome, tmp_path)} == {".json", ".md", ".png", ".svg"}
    saved = json.loads((tmp_path / "convergence.json").read_text(encoding="utf-8"))
    assert set(saved["data"]["curves"]) == {"simulations", TRUE_G, "theorem, G = 1"}
