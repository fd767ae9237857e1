"""Saved state of older versions: studies open, continue as before, and their checksums remain comparable."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import pasto
from pasto.errors import OptionError, StateError
from pasto.optimize.learners import Algorithm1
from pasto.service.rounds.learner_step import LearnerUpdate, RoundObservations, update_learner
from pasto.study.state import FORMAT, write_format_2

SAVED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "states_of_format_2.json").read_text())
"""By learner: a state that format 2 wrote, the observations of its next round, and the state after it."""

every_learner = pytest.mark.parametrize("name", SAVED)


def observations(rows: list[list[Any]]) -> tuple[pasto.Observation, ...]:
    return tuple(
        pasto.Observation(version, candidate, units, tuple(mean), tuple(map(tuple, covariance)), control)
        for version, candidate, units, mean, covariance, control in rows
    )


@every_learner
def test_a_state_of_format_2_opens_under_the_new_names(name: str) -> None:
    before = SAVED[name]["before"]
    assert before["format"] == 2
    study = pasto.Study.from_state(before)
    assert study.learner == name
    assert study.control_share == 0.1
    state = study.state()
    assert state["format"] == FORMAT
    assert {"control_share", "limits"} <= state.keys()
    assert set(state["limits"]) == {"confidence", "max_share", "new_candidate_share", "loss_budget"}
    assert list(state["limits"].values()) == list(before["limits"].values())


@every_learner
def test_the_older_form_is_written_as_it_was_to_the_last_byte(name: str) -> None:
    before = SAVED[name]["before"]
    again = write_format_2(pasto.Study.from_state(before).state())
    assert json.dumps(again) == json.dumps(before)


def same_document(first: Any, second: Any) -> bool:
    """Return whether two documents are the same except for the last digits of numbers, which follow the processor."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same_document(first[key], second[key]) for key in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same_document, first, second))
    if isinstance(first, float):
        return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-12)
    return bool(first == second)


@every_learner
def test_a_round_learned_from_an_older_state_leads_to_the_state_of_then(name: str) -> None:
    before = SAVED[name]["before"]
    saved = LearnerUpdate(pasto.Study.from_state(before), json.dumps(before, separators=(",", ":")))
    lesson = RoundObservations(1, observations(SAVED[name]["observations"]))
    after = update_learner(saved, [lesson])
    assert after.problems == ()
    assert same_document(write_format_2(json.loads(after.text)), SAVED[name]["after"])
    assert not same_document(write_format_2(json.loads(after.text)), before)
    assert after.has_checksum(after.checksum)
    assert not after.has_checksum(saved.checksum)


@every_learner
def test_a_state_has_the_checksum_of_its_older_form(name: str) -> None:
    study = pasto.Study.from_state(SAVED[name]["after"])
    update = LearnerUpdate(study, json.dumps(study.state(), separators=(",", ":")))
    assert update.checksum != SAVED[name]["after_checksum"]
    assert update.has_checksum(SAVED[name]["after_checksum"])
    other = LearnerUpdate(study, update.text.replace('"rounds":', '"rounds": ', 1))
    assert other.has_checksum(SAVED[name]["after_checksum"]), "the older form does not depend on the present text"
    assert not LearnerUpdate(study, json.dumps(SAVED[name]["before"])).has_checksum(SAVED[name]["after_checksum"])


@pytest.mark.parametrize(
    ("part", "problem"),
    [({"control": None}, "control"), ({"limits": None}, "limits"), ({"learner": {}}, "name")],
)
def test_a_broken_state_of_format_2_is_refused(part: dict[str, Any], problem: str) -> None:
    document = {**SAVED["algorithm1"]["before"], **part}
    if part == {"control": None}:
        del document["control"]
    with pytest.raises(StateError, match=rf"cannot be read.*{problem}|cannot be read"):
        pasto.Study.from_state(document)


def test_the_older_name_of_algorithm_1_is_read_as_the_new_one() -> None:
    study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), learner="pasto", seed=1)
    assert study.learner == "algorithm1"
    assert study.state()["learner"]["name"] == Algorithm1.name


@pytest.mark.parametrize(
    ("old", "new"),
    [("control", "control_share"), ("budget", "loss_budget"), ("cap", "max_share"), ("entry", "new_candidate_share")],
)
def test_an_option_of_an_older_version_is_refused_with_its_new_name(old: str, new: str) -> None:
    renamed: dict[str, Any] = {old: 0.1}
    with pytest.raises(OptionError, match=f"no option {old}=; it is called {new}= now"):
        pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), baseline=0, **renamed)


def test_an_option_that_never_existed_is_a_type_error() -> None:
    unknown: dict[str, Any] = {"colour": "red"}
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), **unknown)


def test_the_older_name_of_means_is_refused_with_the_new_one() -> None:
    renamed: dict[str, Any] = {"truth": {"x": [1, 2]}, "objective": pasto.maximize("x")}
    with pytest.raises(TypeError, match="'means'"):
        pasto.solve(**renamed)
