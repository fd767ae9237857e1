"""Studies over a continuous space, compared with worlds whose best blend is known."""

import json
from collections.abc import Callable

import numpy as np
import pytest

import pasto
from pasto.arrays import FloatArray
from pasto.errors import InputError, UnsupportedError
from pasto.optimize.learners import Thompson
from pasto.sim.continuous import LANDSCAPES, Columns, Landscape, apart, mixed, peaks, valley
from pasto.study import study as module


def played(study: pasto.Study, world: Landscape, rounds: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        asked = study.ask(parallel=10)
        measured = world.draw([assignment.values for assignment in asked], rng)
        study.tell(asked, measured, standard_errors=np.full(measured.shape, world.noise))


def relative_gain(study: pasto.Study, world: Landscape) -> float:
    """Return r of the study's answer: 0 is the best single point of the space, 1 its best blend."""
    best, prices = world.best()
    _, single = world.single(prices)
    blend = study.blend()
    metrics = world.means(list(study.candidates)) @ np.array(blend.probabilities)
    return (float(world.value(metrics, prices)) - single) / (best.value - single)


@pytest.mark.parametrize("make", LANDSCAPES)
def test_the_optimum_is_the_same_by_grid_and_by_column_generation(make: Callable[[float], Landscape]) -> None:
    world = make(0.1)
    grid, (best, prices) = world.on_grid(), world.best()
    assert grid.value <= best.value + 1e-9
    assert best.value - grid.value < 3e-4
    assert len(best.points) in (2, 3)
    _, single = world.single(prices)
    assert best.value - single > 0.15


def test_no_single_point_is_feasible_where_guardrails_lie_apart() -> None:
    world = apart()
    form = world.objective.form()
    rows = [row for line in world.lines for row in pasto.grid({name: list(line[name]) for name in line})]
    assert not form.met(world.means(rows).T).any()
    best, _ = world.best()
    assert form.met(world.means(best.points) @ np.array(best.shares))


@pytest.mark.parametrize(
    ("make", "rounds", "support", "seeds"),
    [(valley, 8, 2, (1, 2)), (peaks, 16, 3, (1, 2)), (apart, 16, 3, (1, 2)), (mixed, 45, 2, (1,))],
)
def test_a_study_finds_the_blend(
    make: Callable[[float], Landscape], rounds: int, support: int, seeds: tuple[int, ...]
) -> None:
    world = make(0.1)
    for seed in seeds:
        study = pasto.Study(world.space, world.objective, learner="thompson", seed=seed)
        played(study, world, rounds, seed)
        assert relative_gain(study, world) > 0.75
        assert count_places(study) <= support


def count_places(study: pasto.Study, radius: float = 0.2) -> int:
    """Count the places of a blend: candidates nearer than `radius`, in units of the parameters' ranges, are one."""
    rows = [study.candidates[k] for k in study.blend().support]
    names = [name for name, value in rows[0].items() if isinstance(value, float)]
    points = np.array([[row[name] for name in names] for row in rows])
    ranges = np.ptp(np.array([[row[name] for name in names] for row in study.candidates]), axis=0)
    places: list[FloatArray] = []
    for point in points / ranges:
        if all(np.linalg.norm(point - place) > radius for place in places):
            places.append(point)
    return len(places)


def quotas() -> Landscape:
    """Return four metrics, and a budget that all quotas share."""

    def function(columns: Columns) -> FloatArray:
        search, social, depth = (columns[name].astype(float) / 10 for name in ("search", "social", "depth"))
        return np.array([search + social, 1.0 - search**2, 1.0 - social**2, depth * (1 - depth)])

    return Landscape(
        "quotas",
        pasto.Space(
            "search + social <= 12",
            search=pasto.Integer(0, 10),
            social=pasto.Integer(0, 10),
            depth=pasto.Integer(0, 10),
        ),
        pasto.maximize("goal")
        .keep("first", at_least=0.5)
        .keep("second", at_least=0.5)
        .keep("third", at_least=0.1, penalty=5.0),
        function,
        0.1,
        (),
    )


def test_new_candidates_meet_the_constraints() -> None:
    world = quotas()
    study = pasto.Study(world.space, world.objective, learner="thompson", seed=1)
    before = len(study.candidates)
    played(study, world, 6, seed=1)
    assert len(study.candidates) > before
    assert all(world.space.contains(row) for row in study.candidates)
    assert set(study.blend().metrics) == {"goal", "first", "second", "third"}


@pytest.mark.parametrize(
    "space", [pasto.Space(mode=["a", "b", "c"]), pasto.Space(depth=pasto.Integer(1, 4), fast=[False, True])]
)
def test_a_space_that_is_used_up_is_just_its_points(space: pasto.Space) -> None:
    study = pasto.Study(space, pasto.maximize("x").keep("y", at_least=0.5, penalty=5.0), learner="thompson", seed=1)
    count = len(space.grid(10))
    rng = np.random.default_rng(0)
    for _ in range(4):
        assert len(study.candidates) == count
        asked = study.ask(parallel=10)
        study.tell(asked, rng.random((10, 2)), standard_errors=np.full((10, 2), 0.1))
    assert study.blend().support


def test_no_two_candidates_are_nearly_one() -> None:
    world = valley()
    study = pasto.Study(world.space, world.objective, learner="thompson", seed=1)
    start = len(study.candidates)
    played(study, world, 10, seed=1)
    places = np.array([float(row["a"]) for row in study.candidates])
    gaps = np.abs(places[:, None] - places[None, start:])
    gaps[start + np.arange(len(places) - start), np.arange(len(places) - start)] = 1.0
    assert len(places) > start
    assert gaps.min() > 0.01


def test_growth_ends_at_the_most_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_GROWN_CANDIDATES", 14)
    world = peaks()
    study = pasto.Study(world.space, world.objective, learner="thompson", seed=1)
    played(study, world, 5, seed=1)
    assert len(study.candidates) == 14


def test_a_study_restored_in_the_middle_continues_bit_for_bit() -> None:
    world = peaks()
    study = pasto.Study(world.space, world.objective, learner="thompson", seed=5)
    played(study, world, 3, seed=1)
    again = pasto.Study.from_state(json.loads(json.dumps(study.state())))
    for one in (study, again):
        played(one, world, 3, seed=2)
    assert again.policy == study.policy
    assert again.candidates == study.candidates
    assert again.blend() == study.blend()


def test_a_baseline_of_the_space_comes_first_and_keeps_its_place() -> None:
    world = valley()
    study = pasto.Study(world.space, world.objective, learner="thompson", seed=1, baseline={"a": 0.4})
    played(study, world, 4, seed=1)
    assert study.baseline == 0
    assert study.candidates[0] == {"a": 0.4}


def test_a_baseline_outside_the_space_is_refused() -> None:
    with pytest.raises(InputError, match="does not lie in the space"):
        pasto.Study(pasto.Space(a=(0, 1)), pasto.maximize("x"), learner="thompson", baseline={"a": 2.0})


@pytest.mark.parametrize("learner", ["algorithm1", Thompson(structure="independent")])
def test_other_learners_are_refused_with_the_fix(learner: str | Thompson) -> None:
    with pytest.raises(UnsupportedError, match=r"learner='thompson'.*space\.sobol"):
        pasto.Study(pasto.Space(a=(0, 1)), pasto.maximize("x"), learner=learner)
