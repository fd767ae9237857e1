"""Text of `print(blend)`: the goal's name at f, and why a single candidate with a higher f is not the answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pasto
from pasto.blend import Blend
from pasto.formatting import format_number, format_percent
from pasto.report.summary import write_advice

TRUTH = np.array([[0.0, 2.0, 3.0], [1.0, 0.6, 0.1]])


def learned(objective: object, *, truth: Any = TRUTH, error: float = 0.5, rounds: int = 3, **options: object) -> Blend:
    """Return the answer of a study over three candidates, of which the best one hardly meets its guardrail."""
    study = pasto.Study([{"w": 0}, {"w": 1}, {"w": 2}], objective, seed=2, **options)  # type: ignore[arg-type]
    for _ in range(rounds):
        assignments = study.ask(parallel=30)
        metrics = [truth[:, assignment.candidate] for assignment in assignments]
        study.tell(assignments, metrics, standard_errors=np.full((30, 2), error))
    return study.blend()


def test_f_carries_the_name_of_the_goal() -> None:
    means = {"watch": [30.0, 36.0], "likes": [4.0, 3.0]}
    for objective, message in (
        (pasto.maximize("watch"), "100.0% 1: f(watch) = 36 (watch = 36, likes = 3)\nbest single 1: f(watch) = 36"),
        (pasto.minimize("watch"), "100.0% 0: f(-watch) = -30 (watch = 30, likes = 4)\nbest single 0: f(-watch) = -30"),
        (pasto.maximize({"watch": 1, "likes": 9}), "100.0% 0: f(1 watch + 9 likes) = 66 (watch = 30, likes = 4)"),
        (pasto.maximize(pasto.ratio("likes", "watch")), "100.0% 0: f(likes/watch) = 0.13333 ("),
    ):
        assert str(pasto.solve(means, objective)).startswith(message)
    relative = pasto.maximize("watch").keep("likes", at_least="-10%")
    text = str(pasto.solve(means, relative, baseline=0))
    assert text.startswith("60.0% 0 + 40.0% 1: f(watch) = 8% (watch = 32.4, likes = 3.6)\nbest single 0: f(watch) = 0%")
    total = pasto.utility(lambda y: y.sum(axis=-1), np.ones_like, over={"watch": (0, 99)}).keep(
        "likes", at_least="-10%"
    )
    assert "f(utility of watch) = 32.4 (" in str(pasto.solve(means, total, baseline=0))


def test_a_better_single_candidate_that_is_not_certified_is_marked() -> None:
    blend = learned(pasto.maximize("x").keep("y", at_least=0), error=1.0)
    assert blend.best_single == 2
    assert blend.best_single_value is not None
    assert blend.best_single_value > blend.value
    assert blend.certificate is not None
    assert blend.certificate.certified
    assert blend.best_single_certified is False
    (held,) = blend.best_single_holds.values()
    value = format_number(blend.best_single_value)
    note = f"f(x) = {value}, not certified: y holds with {format_percent(held)}, and 95% is asked for"
    assert str(blend).endswith(f"\nbest single w=2: {note}")
    assert 0.5 < held < 0.95


def test_where_nothing_is_certified_both_are_named() -> None:
    blend = learned(pasto.maximize("x").keep("y", at_least=0.3), rounds=1, error=3.0)
    assert blend.certificate is not None
    assert not blend.certificate.certified
    assert str(blend).endswith("and 95% is asked for; the blend is not certified either")


def test_a_worse_single_candidate_is_not_mentioned() -> None:
    blend = learned(pasto.maximize("x").keep("y", at_least=0), error=0.01)
    assert blend.best_single_certified is True
    assert "certified" not in str(blend)


def test_advice_never_ships_a_single_candidate_that_is_not_certified() -> None:
    near = np.array([[0.0, 2.9995, 3.0], [1.0, 0.6, 0.001]])
    blend = learned(pasto.maximize("x").keep("y", at_least=0), truth=near, error=0.02, rounds=12)
    assert len(blend.support) == 2
    assert blend.outlook is not None
    assert blend.best_single_certified is False
    assert blend.outlook.equal_single is None
    assert "ship" not in write_advice(blend)


def test_a_retired_candidate_is_not_the_best_single_one() -> None:
    study = pasto.Study([{"w": 0}, {"w": 1}, {"w": 2}], pasto.maximize("x"), seed=2)
    assignments = study.ask(parallel=30)
    study.tell(assignments, [[TRUTH[0, a.candidate]] for a in assignments], standard_errors=np.full((30, 1), 0.1))
    assert study.blend().best_single == 2
    study.retire(2)
    assert study.blend().best_single == 1


@pytest.mark.parametrize("learner", ["algorithm1", "scgd"])
def test_answers_without_a_certificate_say_nothing_of_it(learner: str) -> None:
    blend = learned(pasto.maximize("x").keep("y", at_least=0, penalty=5.0), learner=learner)
    assert blend.best_single_certified is None
    assert "certified" not in str(blend)
    assert "f(x) = " in str(blend)
