"""Units and standard errors of `tell`: counted, pooled and refused ones."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import pasto
from pasto.errors import MeasurementError, OptionError, PastoWarning
from pasto.optimize.learners import Thompson

CANDIDATES = [{"w": k} for k in range(4)]


def study(**options: object) -> pasto.Study:
    return pasto.Study(CANDIDATES, pasto.maximize("x"), seed=3, **options)  # type: ignore[arg-type]


def test_the_first_round_warns_of_a_guardrail_that_cannot_fail() -> None:
    study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x").keep("likes", at_least=-0.02), seed=1)
    with pytest.warns(
        PastoWarning, match=r"at_least=-0\.02\) cannot fail: likes is never negative in this round.*'-2%'"
    ):
        study.tell(study.ask(parallel=4), [[1.0, 0.03], [2.0, 0.02]] * 2)
    study.tell(study.ask(parallel=4), [[1.0, 0.03], [2.0, 0.02]] * 2)  # given once
    signed = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x").keep("margin", at_least=-0.02), seed=1)
    signed.tell(signed.ask(parallel=2), [[1.0, 0.03], [2.0, -0.02]])


def test_units_weigh_the_measurements() -> None:
    light, heavy = study(), study()
    for each, units in ((light, None), (heavy, [9_000, 1_000] * 10)):
        for number in range(6):
            asked = each.ask(parallel=20)
            values = [[10.0 if place % 2 == 0 else 0.0] for place in range(20)]
            each.tell(asked, values, np.full((20, 1), 0.1 + 0.001 * number), units)
    assert light.posterior_samples()[0].mean() == pytest.approx(5.0, abs=1.5)
    assert heavy.posterior_samples()[0].mean() == pytest.approx(9.0, abs=1.0)


def test_one_number_of_units_serves_all_assignments() -> None:
    one, each = study(), study()
    asked = one.ask(parallel=4)
    one.tell(asked, [[1.0]] * 4, [[0.1]] * 4, 500)
    each.tell(each.ask(parallel=4), [[1.0]] * 4, [[0.1]] * 4, [500, 500, 500, 500])
    assert json.dumps(one.state()) == json.dumps(each.state())


def test_the_older_name_of_standard_errors_is_refused_with_the_new_one() -> None:
    one = study()
    assignments = one.ask(parallel=4)
    renamed: dict[str, Any] = {"errors": [[0.1]] * 4}
    with pytest.raises(OptionError, match=r"tell\(\) has no option errors=; it is called standard_errors= now"):
        one.tell(assignments, [[1.0]] * 4, **renamed)
    assert len(one.pending) == 4


@pytest.mark.parametrize("units", [0, -3, float("nan"), [1, 2], "many", [[1]] * 4])
def test_units_that_make_no_sense_are_refused_and_nothing_is_recorded(units: object) -> None:
    one = study()
    asked = one.ask(parallel=4)
    before = json.dumps(one.state())
    with pytest.raises(MeasurementError, match="units"):
        one.tell(asked, [[1.0]] * 4, [[0.1]] * 4, units)
    assert json.dumps(one.state()) == before


def test_units_of_some_assignments_alone_do_not_count() -> None:
    one, none = study(), study()
    asked = one.ask(parallel=4)
    one.tell(asked[:2], [[1.0]] * 2, [[0.1]] * 2, 1_000)
    one.tell(asked[2:], [[3.0]] * 2, [[0.1]] * 2)
    other = none.ask(parallel=4)
    none.tell(other, [[1.0]] * 2 + [[3.0]] * 2, [[0.1]] * 4)
    assert one.posterior_samples().tolist() == none.posterior_samples().tolist()


def test_an_error_of_zero_is_not_exact() -> None:
    """Check a cell without events: its rate is not known to be zero."""
    objective = pasto.maximize("x").keep("rate", at_most=0.01)
    one = pasto.Study(CANDIDATES, objective, learner=Thompson(structure="independent"), seed=3)
    asked = one.ask(parallel=20)
    rates = np.array([[1.0, 0.0 if assignment.candidate == 1 else 0.02] for assignment in asked])
    errors = np.array([[0.1, 0.0 if assignment.candidate == 1 else 0.01] for assignment in asked])
    one.tell(asked, rates, errors)
    spread = one.posterior_samples(draws=400)[1:, 1, 1].std()
    assert spread > 0.001  # a fifth of the error of other candidates, never zero


def test_a_state_with_units_survives_being_saved() -> None:
    one = study()
    asked = one.ask(parallel=4)
    one.tell(asked[:2], [[1.0]] * 2, [[0.1]] * 2, 1_000)
    again = pasto.Study.from_state(json.loads(json.dumps(one.state())))
    for each in (one, again):
        each.tell(asked[2:], [[3.0]] * 2, [[0.1]] * 2, 2_000)
    assert json.dumps(one.state()) == json.dumps(again.state())
