"""Warm start of a study: tables, matching, learned results, and saved states."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pasto
from pasto.errors import HistoryError, UnsupportedError
from pasto.optimize.learners import Thompson
from pasto.study.history_table import History

CANDIDATES = pasto.grid(like=[0, 1, 2], share=[0, 1, 2])
TRUTH = np.array([[30, 33, 34, 34, 33, 34, 36, 35, 33], [4.0, 4.4, 5.0, 3.5, 4.1, 4.3, 3.0, 3.3, 3.9]])
OBJECTIVE = pasto.maximize("watch").keep("likes", at_least=4)
ERRORS = np.tile([1.0, 0.3], (10, 1))


def _rows(count: int = 9, **errors: float) -> list[dict[str, Any]]:
    """Return the true means as the result of an earlier test."""
    return [{**CANDIDATES[k], "watch": float(TRUTH[0, k]), "likes": float(TRUTH[1, k]), **errors} for k in range(count)]


def _learn(study: pasto.Study, rounds: int, seed: int = 0) -> pasto.Study:
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        assignments = study.ask(parallel=10)
        means = TRUTH[:, [assignment.candidate for assignment in assignments]].T
        study.tell(assignments, means + ERRORS * rng.standard_normal(means.shape), ERRORS, units=400)
    return study


def test_the_first_policy_serves_what_was_good_before() -> None:
    cold, warm = (pasto.Study(CANDIDATES, OBJECTIVE, seed=7, history=rows) for rows in (None, _rows()))
    best = pasto.solve(TRUTH, OBJECTIVE, names=CANDIDATES.names).support
    share = sum(warm.policy.probabilities[k] for k in best)
    assert share > 1.5 * sum(cold.policy.probabilities[k] for k in best)
    assert warm.history is not None
    assert (warm.history.listed, warm.history.candidates) == (9, 9)
    assert cold.history is None


@pytest.mark.parametrize("contrast", [None, "auto", "percent"])
def test_a_study_learns_how_good_its_history_is(contrast: Any) -> None:
    scrambled = np.random.default_rng(1).permuted(TRUTH, axis=1)
    explained = []
    for table in (TRUTH, scrambled):
        rows = [
            {"candidate": name, "watch": table[0, k], "likes": table[1, k]} for k, name in enumerate(CANDIDATES.names)
        ]
        learner = Thompson(contrast=contrast)
        study = pasto.Study(CANDIDATES, OBJECTIVE, learner=learner, seed=7, baseline=4, control_share=0.2, history=rows)
        _learn(study, 12)
        assert study.history is not None
        explained.append(min(study.history.explained.values()))
        assert study.blend().metrics["likes"] > 3.5
    assert explained[0] > 0.7
    assert explained[1] < 0.5


def test_candidates_without_a_row_learn_from_their_neighbours() -> None:
    line = pasto.grid(w=[round(x, 2) for x in np.linspace(0, 1, 21).tolist()])
    listed = [{"w": x, "x": float(np.sin(3 * x)), "x_se": 0.01} for x in np.linspace(0, 1, 21).round(2).tolist()[::2]]
    study = pasto.Study(line, pasto.maximize("x"), seed=1, history=listed)
    history = study._problem.history
    assert history is not None
    assert int(history.listed.sum()) == 11
    values = np.sin(3 * np.linspace(0, 1, 21))
    np.testing.assert_allclose(history.means[0], values, atol=0.05)
    alone = pasto.Study(
        line, pasto.maximize("x"), learner=Thompson(structure="independent"), seed=1, history=listed
    )._problem.history
    assert alone is not None
    assert np.ptp(alone.means[0, ~alone.listed]) == 0.0
    assert alone.covariances[1, 0, 0] > 100 * alone.covariances[0, 0, 0]


def test_settings_that_are_not_candidates_inform_their_neighbours() -> None:
    line = pasto.grid(w=[0.05, 0.45, 0.85])
    rows = [{"w": x, "x": float(np.sin(3 * x)), "x_se": 0.01} for x in np.linspace(0, 1, 11).round(1).tolist()]
    history = pasto.Study(line, pasto.maximize("x"), seed=1, history=rows)._problem.history
    assert history is not None
    assert not history.listed.any()
    np.testing.assert_allclose(history.means[0], np.sin(3 * np.array([0.05, 0.45, 0.85])), atol=0.05)


def test_a_history_of_some_metrics_informs_those_alone() -> None:
    rows = [{key: value for key, value in row.items() if key != "likes"} for row in _rows()]
    study = pasto.Study(CANDIDATES, OBJECTIVE, seed=7, history=rows)
    assert max(study.policy.probabilities) == pytest.approx(1 / 9)  # the guardrail is unknown
    _learn(study, 3)
    assert study.history is not None
    assert list(study.history.explained) == ["watch"]


def test_larger_errors_draw_a_row_further_toward_the_others() -> None:
    rows = _rows(watch_se=0.1, likes_se=0.01)
    rows[6] = {**rows[6], "watch_se": 5.0, "likes_se": 0.5}
    history = pasto.Study(
        CANDIDATES, OBJECTIVE, learner=Thompson(structure="independent"), seed=7, history=rows
    )._problem.history
    assert history is not None
    distances = np.abs(history.means[0] - TRUTH[0])
    assert distances[6] > 1.0
    assert max(distances[:6]) < 0.1


def test_an_error_of_zero_is_not_exact_if_units_are_given() -> None:
    rows = [{**row, "units": 100} for row in _rows(watch_se=2.0, likes_se=1.0)]
    rows[6] = {**rows[6], "likes_se": 0.0}
    history = pasto.Study(
        CANDIDATES, OBJECTIVE, learner=Thompson(structure="independent"), seed=7, history=rows
    )._problem.history
    assert history is not None
    assert history.covariances[6, 1, 1] > 0.01


def test_a_study_with_history_is_saved_and_continued_bit_for_bit() -> None:
    study = _learn(pasto.Study(CANDIDATES, OBJECTIVE, seed=7, history=_rows(watch_se=1.0, likes_se=0.1)), 3)
    saved = json.loads(json.dumps(study.state()))
    copy = pasto.Study.from_state(saved)
    assert copy.state() == study.state()
    assert copy.history == study.history
    assert _learn(copy, 2, seed=5).state() == _learn(study, 2, seed=5).state()
    assert _learn(study.copy(), 2, seed=6).state() == _learn(study, 2, seed=6).state()


def test_a_study_without_history_has_no_trace_of_it_in_its_state() -> None:
    saved = _learn(pasto.Study(CANDIDATES, OBJECTIVE, seed=7), 2).state()
    assert "history" not in saved
    assert "history" not in saved["learned"]["model"]


def test_new_candidates_find_their_row_in_the_history() -> None:
    rows = [*_rows(), {"like": 3, "share": 0, "watch": 60.0, "likes": 8.0}]
    study = _learn(pasto.Study(CANDIDATES, OBJECTIVE, seed=7, history=rows), 3)
    (index,) = study.add([{"like": 3, "share": 0}])
    assert study.history is not None
    assert study.history.listed == 10
    assert study.policy.probabilities[index] > 0.2
    study.retire(index)
    assert study.history.listed == 9


def test_every_kind_of_table_reads_alike() -> None:
    rows = _rows(watch_se=1.0, likes_se=0.1)
    frame = pd.DataFrame(rows)
    named = pd.DataFrame(rows, index=list(CANDIDATES.names)).drop(columns=["like", "share"])
    columns = {name: frame[name].tolist() for name in frame.columns}
    expected = pasto.Study(CANDIDATES, OBJECTIVE, seed=7, history=rows).policy
    for table in (frame, named, columns, History.read(rows, OBJECTIVE.metrics, CANDIDATES.parameters)):
        assert pasto.Study(CANDIDATES, OBJECTIVE, seed=7, history=table).policy == expected


def test_covariances_of_means_are_read() -> None:
    rows = [{**row, "likes_watch_cov": -0.05} for row in _rows(watch_se=1.0, likes_se=0.1)]
    history = History.read(rows, OBJECTIVE.metrics, CANDIDATES.parameters)
    np.testing.assert_allclose(np.array(history.rows[0].covariance), [[1.0, -0.05], [-0.05, 0.01]])
    assert History.read(history.to_rows(), OBJECTIVE.metrics, CANDIDATES.parameters) == history


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"candidate": [], "watch": []}, "needs at least one row"),
        ("past.csv", "the history must be a data frame, a list of rows"),
        ([{"like": 0, "share": 0, "reads": 1.0}], "none of the metrics watch, likes; its columns are 'like', 'share'"),
        ([{"watch": 1.0}], "does not name its candidates; add a column 'candidate', or like, share"),
        ([{"like": 0, "watch": 1.0}], "lacks the parameter 'share'"),
        ([{"candidate": "like=0,share=O", "watch": 1.0}], "which is not a candidate .did you mean 'like"),
        ([{"like": 0, "share": 0, "watch": "high"}], "column 'watch' of the history must be a number, got 'high'"),
        ([{"like": 0, "share": 0, "watch": float("nan")}], "must be a number, got nan in row 1; leave the row out"),
        ([{"like": 0, "share": 0, "watch": 1.0, "watch_se": -1.0}], "must be zero or more, got -1.0"),
        ([{"like": 0, "share": 0, "watch": 1.0, "units": 0}], "must be a positive number, got 0"),
        ([{"like": 0, "share": 0, "watch": 1.0, "likes": 1.0, "watch_se": 1.0}], "lacks 'likes_se'"),
        ([{"like": 0, "share": 0, "watch": 1.0, "watc_se": 1.0}], "has the column 'watc_se', which is not a metric"),
        ([{"like": 9, "share": 9, "watch": 1.0}], "no row of the history is a candidate of this study"),
        ([{"like": 0, "share": 0, "watch": 1.0}] * 2, "rows 1 and 2 of the history are of one candidate; merge them"),
        ([{"candidate": "like=0,share=1", "like": 0, "share": 0, "watch": 1.0}], "has the parameters of"),
        (
            [{"like": 0, "share": 0, "watch": 1, "likes": 1, "watch_se": 1, "likes_se": 1, "watch_likes_cov": 2.0}],
            "are larger than the standard errors allow",
        ),
        ([{"like": 0, "share": 0, "watch": 1, "likes": 1, "watch_likes_cov": 2.0}], "needs the standard errors"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(rows: Any, message: str) -> None:
    with pytest.raises(HistoryError, match=message):
        pasto.Study(CANDIDATES, OBJECTIVE, seed=7, history=rows)


def test_only_the_default_learner_starts_from_a_history() -> None:
    soft = pasto.maximize("watch").keep("likes", at_least=4, penalty=1.0)
    with pytest.raises(UnsupportedError, match="'algorithm1' cannot start from a history; 'thompson' can"):
        pasto.Study(CANDIDATES, soft, learner="algorithm1", seed=7, history=_rows())
    with pytest.raises(UnsupportedError, match="a continuous space cannot start from a history"):
        pasto.Study(pasto.Space(w=(0, 1)), pasto.maximize("x"), seed=7, history=[{"w": 0.5, "x": 1.0}])
