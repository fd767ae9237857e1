"""Ask and tell: recorded observations, refused ones, and a refusal that loses nothing."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

import pasto
from pasto.errors import (
    AlreadyAnsweredError,
    InputError,
    MeasurementError,
    NotFittedError,
    ObjectiveError,
    OptionError,
    PastoError,
    StateError,
    UnknownAssignmentError,
)
from pasto.observation import Observation
from pasto.optimize.learners import Algorithm1, Thompson
from pasto.optimize.learners.mirror_ascent import Schedule
from pasto.study.pending_rounds import count_remembered_policies
from pasto.study.state import FORMAT

CANDIDATES = pasto.grid(like_weight=[0, 1], share_weight=[0, 1])
OBJECTIVE = pasto.maximize("x").keep("y", at_least=0, penalty=5.0)


@pytest.fixture
def study() -> pasto.Study:
    return pasto.Study(CANDIDATES, OBJECTIVE, seed=5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("watch_time", r"got 'watch_time'; write pasto\.maximize\('watch_time'\)"),
        ({"x": 1.0}, r"write pasto\.maximize\(\{'x': 1\.0\}\)"),
        (None, r"got None; write pasto\.maximize\('watch_time'\)"),
    ],
)
def test_what_is_no_objective_is_refused_with_what_to_write(given: Any, message: str) -> None:
    with pytest.raises(ObjectiveError, match=message):
        pasto.Study([{"w": 0}, {"w": 1}], given)
    with pytest.raises(ObjectiveError, match=message):
        pasto.solve({"watch_time": [1, 2]}, given)


def test_an_assignment_carries_what_the_caller_needs(study: pasto.Study) -> None:
    (assignment,) = study.ask()
    assert assignment.values == CANDIDATES[assignment.candidate]
    assert assignment.name == CANDIDATES.names[assignment.candidate]
    assert assignment.propensity == study.policy.probabilities[assignment.candidate]
    assert (assignment.version, assignment.round, assignment.id) == (0, 0, "0/0")


def test_draws_follow_the_policy(study: pasto.Study) -> None:
    for _ in range(30):
        study.tell(study.ask(), [10.0, 1.0])
    shares = np.array(study.policy.probabilities)
    drawn = Counter(a.candidate for a in study.ask(20_000))
    observed = np.array([drawn[k] for k in range(4)])
    spread = np.sqrt(20_000 * shares * (1 - shares))
    assert (np.abs(observed - 20_000 * shares) < 4.5 * spread).all()


def test_a_round_is_learned_when_its_last_assignment_is_measured_or_dropped(study: pasto.Study) -> None:
    first, second, third = study.ask(3)
    study.tell(second, {"x": 1, "y": 2})
    assert study.rounds == 0
    study.drop(first)
    assert study.rounds == 0
    assert [a.id for a in study.pending] == [third.id]
    study.tell([third], [{"y": 2.0, "x": 1.0}])
    assert study.rounds == 1
    assert study.pending == ()


def test_overlapping_rounds_finish_in_any_order(study: pasto.Study) -> None:
    early, late = study.ask(2), study.ask(2)
    assert {a.version for a in early + late} == {0}
    study.tell(late, np.ones((2, 2)))
    study.tell(early, np.ones((2, 2)))
    assert study.rounds == 2


@pytest.mark.parametrize(
    ("metrics", "cure"),
    [
        ([[1.0, float("nan")], [1.0, 1.0]], "y = nan in row 0"),
        ([[1.0, 1.0], [float("inf"), 1.0]], "x = inf in row 1"),
        ([[1.0, 1.0], [1.0, 1e16]], "at most 1e"),
        ([[1.0, 1.0]], r"shape \(2, 2\)"),
        ([[1.0], [1.0]], r"shape \(2, 2\)"),
        (1.0, "list of dicts"),
        ("ab", "list of dicts"),
        ([["1", "2"], ["1", "2"]], "must be numbers"),
        ([[True, False], [True, False]], "must be numbers"),
        ([[None, 1.0], [1.0, 1.0]], "must be numbers"),
        ([[1.0, 1.0], [1.0]], "must be numbers"),
        ([{"x": 1.0}, {"x": 1.0, "y": 1.0}], "row 0 of metrics lacks 'y'"),
        ([{"x": 1.0, "y": 1.0}, {"x": 1.0, "y": 1.0, "z": 0.0}], "'z'"),
        ([{"x": 1.0, "y": 1.0}, [1.0, 1.0]], "not a dict"),
    ],
)
def test_bad_metrics_are_refused_and_nothing_is_lost(study: pasto.Study, metrics: Any, cure: str) -> None:
    assignments = study.ask(2)
    before = json.dumps(study.state())
    with pytest.raises(MeasurementError, match=cure):
        study.tell(assignments, metrics)
    assert json.dumps(study.state()) == before
    study.tell(assignments, np.ones((2, 2)))
    assert study.rounds == 1


@pytest.mark.parametrize("errors", [[[-0.1, 0.1]], [[float("nan"), 0.1]], [[0.1]]])
def test_bad_errors_are_refused(study: pasto.Study, errors: Any) -> None:
    (assignment,) = study.ask()
    with pytest.raises(MeasurementError):
        study.tell(assignment, [1.0, 1.0], standard_errors=errors)
    assert study.pending == (assignment,)


def test_a_state_of_another_format_names_the_fix(study: pasto.Study) -> None:
    state = study.state()
    assert state["format"] == 3
    with pytest.raises(
        StateError, match=r"format 1, from an older version of PASTO; this one reads 2 to 3, .* create it again"
    ):
        pasto.Study.from_state({**state, "format": 1})
    with pytest.raises(StateError, match=r"format 4, from a newer version of PASTO; this one reads 2 to 3\. Upgrade"):
        pasto.Study.from_state({**state, "format": 4})
    others: list[Any] = [{}, [], None, {**state, "format": "3"}, {**state, "format": True}]
    for other in others:
        with pytest.raises(StateError, match=r"is what state\(\) returned"):
            pasto.Study.from_state(other)


def test_what_the_learner_saves_belongs_to_this_format() -> None:
    """Fail if the learner's state changes and FORMAT does not; then raise FORMAT, and write the new names here."""
    common = {"before", "fitted", "noise", "rounds", "units"}
    model = {f"model.{name}" for name in ("baseline", "kernels", "mixing", "prior", "reference")}
    level = "units sums squares repeats squared_units known_units known_repeats covariance_sums variance_squares"
    contrast = "rounds percent units sums squares squared_units information weighted noise_sums scale_sums degrees"
    assert FORMAT == 3
    assert saved_names(Thompson()) == common | model | {
        f"model.statistics.{name}" for name in ("origin", "expected_scatter", *level.split())
    }
    assert saved_names(Thompson(contrast="difference")) == common | model | {
        f"model.contrasts.{name}"
        for name in ("expected_squares", "repeats", "variance_sums", "variance_squares", *contrast.split())
    }


def saved_names(learner: Thompson) -> set[str]:
    """Return the names in the state of a learner that has learned a round, as paths."""
    study = pasto.Study(CANDIDATES, OBJECTIVE, learner=learner, seed=1, baseline=0, control_share=0.3)
    asked = study.ask(40)
    study.tell(asked, [[1.0 + each.candidate, 1.0] for each in asked], standard_errors=[[0.1, 0.1]] * len(asked))
    return paths(study.state()["learned"])


def paths(saved: Any) -> set[str]:
    """Yield the paths to the values in nested mappings."""
    if not isinstance(saved, dict):
        return {""}
    return {f"{name}.{rest}".rstrip(".") for name, value in saved.items() for rest in paths(value)}


def test_a_second_measurement_is_refused(study: pasto.Study) -> None:
    first, second = study.ask(2)
    study.tell(first, [1.0, 1.0])
    with pytest.raises(AlreadyAnsweredError, match="measured before"):
        study.tell(first, [2.0, 2.0])
    with pytest.raises(AlreadyAnsweredError, match="measured before"):
        study.drop(first)
    study.drop(second)
    with pytest.raises(AlreadyAnsweredError, match="has been learned"):
        study.tell(second, [1.0, 1.0])
    third, fourth = study.ask(2)
    with pytest.raises(AlreadyAnsweredError, match="twice in one call"):
        study.tell([third, third], np.ones((2, 2)))
    study.drop(third)
    with pytest.raises(AlreadyAnsweredError, match="dropped before"):
        study.tell([fourth, third], np.ones((2, 2)))
    assert study.pending == (fourth,)


@pytest.mark.parametrize("stranger", ["7/0", "0/9", "x", "0", "-1/0", "0/0/0", "0/-1", "²/0"])
def test_unknown_assignments_are_refused(study: pasto.Study, stranger: str) -> None:
    study.ask(2)
    with pytest.raises(UnknownAssignmentError, match="never asked"):
        study.tell(stranger, [1.0, 1.0])


def test_an_empty_observation_is_refused(study: pasto.Study) -> None:
    with pytest.raises(MeasurementError, match="no assignment"):
        study.tell([], np.ones((0, 2)))


@pytest.mark.parametrize("parallel", [0, -1, 1.5, True, "2"])
def test_a_round_of_no_size_is_refused(study: pasto.Study, parallel: Any) -> None:
    with pytest.raises(OptionError, match="parallel"):
        study.ask(parallel)


def test_no_answer_before_the_first_round(study: pasto.Study) -> None:
    with pytest.raises(NotFittedError, match="ask"):
        study.blend()


def test_baselines_go_by_index_name_or_values() -> None:
    for baseline in (3, CANDIDATES.names[3], {"like_weight": 1, "share_weight": 1}):
        assert pasto.Study(CANDIDATES, OBJECTIVE, baseline=baseline).baseline == 3
    for stranger in (4, "nobody", {"like_weight": 7, "share_weight": 1}, -1):
        with pytest.raises(InputError):
            pasto.Study(CANDIDATES, OBJECTIVE, baseline=stranger)


def test_a_relative_objective_learns_a_blend_in_percent() -> None:
    objective = pasto.maximize("x").keep("y", at_least="-2%", penalty=0.5)
    learns = Algorithm1(step=0.0005, floor=Schedule(0.3, power=0.0))
    study = pasto.Study([{"w": 0}, {"w": 1}, {"w": 2}], objective, learner=learns, seed=1, baseline=0)
    truth = np.array([[1.0, 1.5, 0.9], [1.0, 0.9, 1.2]])
    for _ in range(400):
        assignments = study.ask(20)
        study.tell(assignments, [truth[:, a.candidate] for a in assignments])
    blend = study.blend()
    best = pasto.solve(truth, objective, baseline=0)
    reached = float(objective.value(truth @ blend.probabilities, baseline=truth[:, 0].tolist()))
    assert best.best_single_value is not None
    assert best.best_single_value < reached <= best.value
    assert set(blend.lifts) == {"x", "y"}


def observe(study: pasto.Study, **changes: Any) -> None:
    settings: dict[str, Any] = {"version": study.policy.version, "candidate": 0, "units": 10, "mean": (1.0, 2.0)}
    study.observe([Observation(**(settings | changes))])


@pytest.mark.parametrize(
    ("changes", "cure"),
    [
        ({"candidate": 4}, "0 to 3"),
        ({"candidate": -1}, "0 to 3"),
        ({"units": 0}, "units"),
        ({"units": float("nan")}, "units"),
        ({"mean": (1.0,)}, "shape"),
        ({"mean": (1.0, float("nan"))}, "y = nan"),
        ({"version": 1}, "never served"),
        ({"covariance": ((1.0,),)}, "2 × 2"),
        ({"covariance": ((1.0, 2.0), (0.0, 1.0))}, "symmetric"),
        ({"covariance": ((1.0, 2.0), (2.0, 1.0))}, "semi-definite"),
        ({"control": True}, "control"),
    ],
)
def test_bad_observations_are_refused_and_nothing_is_lost(study: pasto.Study, changes: Any, cure: str) -> None:
    before = study.state()
    with pytest.raises(MeasurementError, match=cure):
        observe(study, **changes)
    assert study.state() == before


def test_a_version_is_observed_once_and_late_ones_while_they_are_stored(study: pasto.Study) -> None:
    observe(study)
    with pytest.raises(AlreadyAnsweredError, match="observed before"):
        observe(study, version=0)
    for _ in range(count_remembered_policies(len(CANDIDATES)) + 2):
        study.tell(study.ask(), [1.0, 1.0])
    observe(study, version=study.policy.version - 3)
    with pytest.raises(AlreadyAnsweredError, match="older than"):
        observe(study, version=1)


def test_one_call_observes_one_round(study: pasto.Study) -> None:
    with pytest.raises(MeasurementError, match="at least one"):
        study.observe([])
    observation = Observation(0, 0, 5, (1.0, 1.0))
    with pytest.raises(MeasurementError, match="versions"):
        study.observe([observation, Observation(1, 1, 5, (1.0, 1.0))])
    with pytest.raises(MeasurementError, match="observed twice"):
        study.observe([observation, observation])


def test_a_utility_is_passed_back_in() -> None:
    utility = pasto.utility(lambda y: np.log(y).sum(axis=-1), lambda y: 1 / y, over={"a": (0.1, 5), "b": (0.1, 5)})
    study = pasto.Study([{"w": 0}, {"w": 1}], utility, seed=2, learner=Algorithm1(step=0.05))
    assert study.learner == "algorithm1"
    state = json.loads(json.dumps(study.state()))
    with pytest.raises(StateError, match="objective="):
        pasto.Study.from_state(state)
    again = pasto.Study.from_state(state, objective=utility)
    assert again.ask(5) == study.ask(5)
    with pytest.raises(StateError, match="not the one"):
        pasto.Study.from_state(study.state(), objective=OBJECTIVE)


@pytest.mark.parametrize(
    "harm",
    [
        {"format": 99},
        {"candidates": None},
        {"learner": {"name": "oracle", "settings": {}}},
        {"learned": {}},
        {"version": 12},
        {"rounds": [[0, {}]]},
        {"policies": 3},
    ],
)
def test_a_broken_state_is_refused(study: pasto.Study, harm: dict[str, Any]) -> None:
    with pytest.raises(StateError):
        pasto.Study.from_state({**study.state(), **harm})


def test_a_state_that_is_none_is_refused() -> None:
    with pytest.raises(StateError):
        pasto.Study.from_state([])  # type: ignore[arg-type]


def test_equal_seeds_equal_studies_and_no_seed_fresh_ones() -> None:
    def ids(seed: int | None) -> list[int]:
        return [a.candidate for a in pasto.Study(CANDIDATES, OBJECTIVE, seed=seed).ask(64)]

    assert ids(1) == ids(1)
    assert ids(1) != ids(2)
    assert ids(None) != ids(None)


def test_every_refusal_is_an_error_of_the_library() -> None:
    for kind in (
        AlreadyAnsweredError,
        InputError,
        MeasurementError,
        ObjectiveError,
        StateError,
        NotFittedError,
        UnknownAssignmentError,
    ):
        assert issubclass(kind, PastoError)
