"""Covariates in a study: given with `tell` and `observe`, saved, corrected, and refused if they cannot be used."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import pasto
from pasto.arrays import FloatArray
from pasto.errors import MeasurementError
from pasto.observation import Observation
from pasto.optimize.learners import Thompson

CANDIDATES = [{"w": 0}, {"w": 1}, {"w": 2}]
TRUTH = np.array([10.0, 11.0, 10.5])
OBJECTIVE = pasto.maximize("watch")


def made(**options: Any) -> pasto.Study:
    return pasto.Study(CANDIDATES, OBJECTIVE, seed=7, **options)


def users(rng: np.random.Generator, candidates: Any) -> tuple[FloatArray, FloatArray]:
    """Return watched amounts of users, and earlier ones, which explain 80 % of them."""
    past = rng.normal(100.0, 20.0, len(candidates))
    rest = rng.standard_normal(len(candidates))
    return TRUTH[candidates] + 0.08 * (past - 100.0) + 0.8 * rest, past


def run_rounds(study: pasto.Study, rounds: int, *, adjusted: bool = True, parallel: int = 60) -> None:
    rng = np.random.default_rng(3)
    for _ in range(rounds):
        assignments = study.ask(parallel=parallel)
        watch, past = users(rng, [assignment.candidate for assignment in assignments])
        study.tell(assignments, {"watch": watch}, covariates={"before": past} if adjusted else None)


def observations(version: int, rng: np.random.Generator, size: int = 200, *, control: bool = False) -> Any:
    """Return a round of units, as observations and as a table with a row for each unit."""
    cells, frames = [], []
    for k, is_control in [(k, False) for k in range(3)] + ([(0, True)] if control else []):
        watch, past = users(rng, [k] * size)
        covariance = np.cov(np.array([watch, past])) / size
        rows = tuple(map(tuple, covariance.tolist()))
        cells.append(Observation(version, k, size, (watch.mean(),), rows, is_control, (past.mean(),)))
        columns = {"version": version, "candidate": k, "watch": watch, "before": past, "control": is_control}
        frames.append(pd.DataFrame(columns))
    return cells, pd.concat(frames, ignore_index=True)


def deviation(study: pasto.Study) -> float:
    """Return the posterior deviation of the difference between the first two candidates."""
    samples = study.posterior_samples(400)[1:, 0]
    return float((samples[:, 1] - samples[:, 0]).std())


def test_given_covariates_reduce_noise() -> None:
    raw, adjusted = made(), made()
    run_rounds(raw, 1, adjusted=False, parallel=300)
    run_rounds(adjusted, 1, parallel=300)
    assert deviation(adjusted) < 0.6 * deviation(raw)
    assert_allclose(adjusted.posterior_samples()[0, 0], TRUTH, atol=0.5)


def test_given_covariates_may_be_columns_rows_or_numbers() -> None:
    rng, states = np.random.default_rng(5), []
    past = rng.normal(size=(30, 2))
    for form in ("array", "rows", "columns", "frame"):
        study = made()
        assignments = study.ask(parallel=30)
        given: Any = past
        if form == "rows":
            given = [{"b": row[1], "a": row[0]} for row in past.tolist()]
        elif form == "columns":
            given = {"b": past[:, 1].tolist(), "a": past[:, 0].tolist()}
        elif form == "frame":
            given = pd.DataFrame({"id": [one.id for one in assignments], "b": past[:, 1], "a": past[:, 0]}).iloc[::-1]
        study.tell(assignments, np.arange(30.0)[:, None], covariates=given)
        states.append(study.state())
    assert all(state == states[0] for state in states)
    one = made()
    assignments = one.ask(parallel=30)
    one.tell(assignments, np.arange(30.0)[:, None], covariates=past[:, 0])
    assert one.rounds == 1


def test_a_round_of_which_some_covariates_are_missing_is_learned_without() -> None:
    states = []
    for given in (None, [[1.0], [2.0]]):
        study = made()
        first, second, *others = study.ask(parallel=8)
        study.tell([first, second], [[1.0], [3.0]], covariates=given)
        study.tell(others, [[float(k)] for k in range(6)])
        states.append(study.state())
    assert states[0] == states[1]


def test_covariates_of_open_assignments_are_saved() -> None:
    study = made()
    assignments = study.ask(parallel=20)
    rng = np.random.default_rng(6)
    watch, past = users(rng, [assignment.candidate for assignment in assignments])
    study.tell(assignments[:12], watch[:12, None], covariates=past[:12])
    again = pasto.Study.from_state(json.loads(json.dumps(study.state())))
    for each in (study, again):
        each.tell(assignments[12:], watch[12:, None], covariates=past[12:])
    assert again.state() == study.state()
    assert "adjustment" in study.state()["learned"]


def test_a_study_with_covariates_continues_bit_for_bit_and_one_without_has_no_new_parts() -> None:
    for contrast in (None, "percent"):
        study = made(learner=Thompson(contrast=contrast), baseline=0, control_share=0.2)
        rng = np.random.default_rng(8)
        for _ in range(3):
            study.observe(observations(study.policy.version, rng, control=True)[0])
        again = pasto.Study.from_state(json.loads(json.dumps(study.state())))
        cells, _ = observations(study.policy.version, rng, control=True)
        for each in (study, again):
            each.observe(cells)
        assert again.state() == study.state()
    plain = made()
    run_rounds(plain, 2, adjusted=False)
    plain.tell((opened := plain.ask(parallel=4))[:2], [[1.0], [2.0]])
    text = json.dumps(plain.state())
    assert not any(name in text for name in ("adjustment", "shared", "explained"))
    assert {len(slot) for slot in plain.state()["rounds"][0][1]["slots"]} == {7}
    assert len(opened) == 4


def test_observed_covariates_take_noise_out_with_and_without_contrast() -> None:
    for contrast in (None, "difference"):
        spreads = []
        for adjusted in (False, True):
            study = made(learner=Thompson(contrast=contrast), baseline=0)
            rng = np.random.default_rng(9)
            for _ in range(4):
                cells, _ = observations(study.policy.version, rng, control=True)
                if not adjusted:
                    cells = [replace(cell, covariates=(), covariance=((cell.covariance[0][0],),)) for cell in cells]
                study.observe(cells)
            spreads.append(deviation(study))
        assert spreads[1] < 0.6 * spreads[0]


@pytest.mark.parametrize("contrast", [None, "percent"])
def test_covariates_take_noise_out_of_a_study_with_a_history(contrast: Any) -> None:
    past = [{"w": k, "watch": float(TRUTH[k]) + 3.0} for k in range(3)]
    spreads = []
    for adjusted in (False, True):
        study = made(learner=Thompson(contrast=contrast), baseline=0, history=past)
        rng = np.random.default_rng(14)
        for _ in range(3):
            cells, _ = observations(study.policy.version, rng, size=50, control=True)
            if not adjusted:
                cells = [replace(cell, covariates=(), covariance=((cell.covariance[0][0],),)) for cell in cells]
            study.observe(cells)
        again = pasto.Study.from_state(json.loads(json.dumps(study.state())))
        assert again.state() == study.state()
        spreads.append(deviation(again))
    assert spreads[1] < 0.8 * spreads[0]


def test_a_table_of_units_is_averaged_to_observations() -> None:
    cells, frame = observations(0, np.random.default_rng(10), control=True)
    given, averaged = made(baseline=0, control_share=0.3), made(baseline=0, control_share=0.3)
    given.observe(cells)
    averaged.observe(frame.sample(frac=1.0, random_state=1), covariates=["before"])
    assert_allclose(averaged.posterior_samples(), given.posterior_samples(), rtol=1e-9)
    cells, frame = observations(1, np.random.default_rng(11), size=5)
    averaged.observe({name: frame[name].tolist() for name in frame}, covariates=["before"])
    assert averaged.rounds == 2


def test_a_corrected_round_is_learned_again_with_its_covariates() -> None:
    rng = np.random.default_rng(12)
    study, straight = made(), made()
    first, _ = observations(0, rng)
    late, _ = observations(0, rng)
    second, _ = observations(1, rng)
    study.observe(first, final=False)
    straight.observe(late, final=False)
    study.rewind()
    study.observe(late, final=False, publish=False)
    for each in (study, straight):
        each.observe(second, final=False)
        each.settle(late)
        each.settle(second)
    assert study.state()["learned"] == straight.state()["learned"]


def test_the_papers_learners_do_not_use_covariates() -> None:
    soft = pasto.maximize("watch")
    states = []
    for adjusted in (False, True):
        study = pasto.Study(CANDIDATES, soft, learner="algorithm1", seed=7)
        run_rounds(study, 3, adjusted=adjusted)
        states.append(study.state())
    assert states[0] == states[1]


def refused(message: str) -> Any:
    return pytest.raises(MeasurementError, match=message)


def test_covariates_that_cannot_be_used_are_refused() -> None:
    study = made()
    assignments = study.ask(parallel=4)
    metrics = [[1.0]] * 4
    with refused(r"covariates= and standard_errors= were both given"):
        study.tell(assignments, metrics, [[0.1]] * 4, covariates=[[1.0]] * 4)
    with refused(r"covariates must have shape \(4, 2\).* got \(3, 2\)"):
        study.tell(assignments, metrics, covariates=np.zeros((3, 2)))
    with refused(r"covariate 0 = nan in row 2"):
        study.tell(assignments, metrics, covariates=[[1.0], [1.0], [np.nan], [1.0]])
    with refused(r"covariates= has no columns of numbers"):
        study.tell(assignments, metrics, covariates=pd.DataFrame({"id": [one.id for one in assignments]}))
    study.tell(assignments[:2], metrics[:2], covariates=[[1.0]] * 2)
    with refused(r"the assignments of a round have 1 and 2 covariates"):
        study.tell(assignments[2:], metrics[2:], covariates=[[1.0, 2.0]] * 2)
    assert len(study.pending) == 2
    study.tell(assignments[2:], metrics[2:], covariates=[[1.0]] * 2)
    with refused(r"the round has 2 covariates, and the rounds before had 1"):
        study.tell(study.ask(parallel=4), metrics, covariates=[[1.0, 2.0]] * 4)


def test_observations_whose_covariates_cannot_be_used_are_refused() -> None:
    cells, frame = observations(0, np.random.default_rng(13))
    study = made()
    with refused(r"observation 1 has 0 covariates, and observation 0 has 1"):
        study.observe([cells[0], replace(cells[1], covariates=(), covariance=((1.0,),))])
    with refused(r"observation 0 has covariates, and covariance is None"):
        study.observe([replace(cells[0], covariance=None)])
    with refused(r"the covariance of observation 0 must be 2 × 2"):
        study.observe([replace(cells[0], covariance=((1.0,),))])
    with refused(r"covariate 0 = inf"):
        study.observe([replace(cells[0], covariates=(np.inf,))])
    with refused(r"covariates= names columns of a data frame with a row for each unit"):
        study.observe(cells, covariates=["before"])
    with refused(r"but the table has a column 'units'"):
        study.observe(frame.assign(units=1), covariates=["before"])
    with refused(r"lacks the column 'visits'"):
        study.observe(frame, covariates=["visits"])
    with refused(r"but standard_errors= was given"):
        study.observe(frame, standard_errors=frame, covariates=["before"])
    with refused(r"has the column 'more', which is not measured"):
        study.observe(frame.assign(more=1.0), covariates=["before"])
    with refused(r"'watch' has two meanings"):
        study.observe(frame, covariates=["watch"])
    with refused(r"got policy versions \[0, 1\]"):
        study.observe(frame.assign(version=np.arange(len(frame)) % 2), covariates=["before"])
    with refused(r"'control' must hold True or False"):
        study.observe(frame.assign(control="no"), covariates=["before"])
