"""Data frames as tables: read by column name, never by position."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import pasto
from pasto.errors import InputError, MeansError, MeasurementError, OptionError, SpaceError
from pasto.sim import table

NAMES = ["clips", "friends", "fresh"]
MEANS = {"watch_time": [6.0, 4.0, 5.0], "likes": [-1.0, 1.0, -2.0], "shares": [0.7, -0.5, 3.0]}
OBJECTIVE = pasto.maximize("watch_time").keep("likes", at_least=0).keep("shares", at_least=0)
RIGHT = pasto.solve(MEANS, OBJECTIVE, names=NAMES)

Frame = Callable[[dict[str, Any]], Any]
FRAMES = [pd.DataFrame, pl.DataFrame]


@pytest.mark.parametrize("frame", FRAMES)
def test_a_square_frame_is_read_by_its_columns(frame: Frame) -> None:
    assert pasto.solve(frame(MEANS), OBJECTIVE, names=NAMES) == RIGHT
    turned = {name: MEANS[name] for name in reversed(MEANS)}
    assert pasto.solve(frame(turned), OBJECTIVE, names=NAMES) == RIGHT


@pytest.mark.parametrize("frame", FRAMES)
def test_a_text_column_names_the_candidates(frame: Frame) -> None:
    assert pasto.solve(frame({"setting": NAMES, **MEANS}), OBJECTIVE) == RIGHT
    assert pasto.solve(frame({**MEANS, "note": ["", "new", "new"], "Name": NAMES}), OBJECTIVE) == RIGHT
    both = frame({"team": ["a", "b", "c"], "setting": NAMES, **MEANS})
    assert pasto.solve(both, OBJECTIVE, names="setting") == RIGHT
    with pytest.raises(MeansError, match="'team', 'setting' could all hold the rows' names"):
        pasto.solve(both, OBJECTIVE)
    with pytest.raises(MeansError, match="names='name' is not a column; the table has 'team', 'setting', 'watch_time'"):
        pasto.solve(both, OBJECTIVE, names="name")


def test_the_index_of_pandas_names_the_candidates() -> None:
    frame = pd.DataFrame(MEANS, index=NAMES)
    assert pasto.solve(frame.assign(note="old"), OBJECTIVE) == RIGHT
    assert pasto.solve(frame.reset_index(names="setting").set_index("setting"), OBJECTIVE) == RIGHT
    assert pasto.solve(frame.reset_index(drop=True), OBJECTIVE).names == ("0", "1", "2")
    pairs = pd.MultiIndex.from_tuples([("clips", 1), ("clips", 2), ("fresh", 1)], names=["feed", "size"])
    assert pasto.solve(frame.set_index(pairs), OBJECTIVE).names == ("clips, 1", "clips, 2", "fresh, 1")


def test_lists_by_name_may_hold_the_names_as_well() -> None:
    assert pasto.solve({"name": NAMES, **MEANS}, OBJECTIVE) == RIGHT


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_that_does_not_fit_is_refused(frame: Frame) -> None:
    turned = frame(
        {"metric": list(MEANS), **dict(zip(NAMES, map(list, zip(*MEANS.values(), strict=True)), strict=True))}
    )
    with pytest.raises(MeansError, match=r"lacks 'watch_time', 'likes'.*Its rows are the metrics: transpose it"):
        pasto.solve(turned, OBJECTIVE)
    with pytest.raises(MeansError, match="the means of 'likes' must be numbers, got 'few'"):
        pasto.solve(frame({**MEANS, "likes": ["few", "some", "many"]}), OBJECTIVE, names=NAMES)
    with pytest.raises(MeansError, match="the mean of 'likes' for candidate 'friends' is nan"):
        pasto.solve(frame({**MEANS, "likes": [1.0, None, 2.0]}), OBJECTIVE, names=NAMES)
    with pytest.raises(MeansError, match="the names have 'a' twice"):
        pasto.solve(frame({"name": ["a", "a", "b"], **MEANS}), OBJECTIVE)


def test_other_tables_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(MeansError, match=r"lazy LazyFrame; collect it first"):
        pasto.solve(pl.DataFrame(MEANS).lazy(), OBJECTIVE)
    twice = pd.DataFrame(np.ones((2, 2)), columns=["likes", "likes"])
    with pytest.raises(MeansError, match="cannot be read: Expected unique column names"):
        pasto.solve(twice, OBJECTIVE)
    with pytest.raises(MeansError, match="two columns of one name"):
        pasto.solve(pd.DataFrame([[1, 2]], columns=[0, "0"]), OBJECTIVE)


def test_a_square_array_is_refused_with_both_ways_to_say_what_is_meant() -> None:
    array = np.array(list(MEANS.values()))
    for given in (array, array.tolist()):
        with pytest.raises(MeansError, match=r"3 × 3 numbers.*objective\.by_metric\(array\).*by_metric\(array\.T\)"):
            pasto.solve(given, OBJECTIVE, names=NAMES)
    with pytest.raises(MeansError, match="could be metrics or candidates"):
        table(array, 0.1, OBJECTIVE)
    assert pasto.solve(OBJECTIVE.by_metric(array), OBJECTIVE, names=NAMES) == RIGHT
    assert pasto.solve(array[:, :2], OBJECTIVE).probabilities == (0.5, 0.5)  # only one reading
    assert pasto.solve([[1.0]], pasto.maximize("x")).probabilities == (1.0,)
    with pytest.raises(pasto.PastoError, match="rows watch_time, likes, shares, got shape"):
        OBJECTIVE.by_metric(array[:2])
    with pytest.raises(MeansError, match="names='setting' names a column, and an array has none"):
        pasto.solve(array[:, :2], OBJECTIVE, names="setting")


@pytest.mark.parametrize("frame", FRAMES)
def test_candidates_come_from_a_frame(frame: Frame) -> None:
    rows = {"weight": [0.0, 0.5], "ranker": ["old", "new"], "boost": [True, False]}
    plain = [{"weight": 0.0, "ranker": "old", "boost": True}, {"weight": 0.5, "ranker": "new", "boost": False}]
    assert pasto.Candidates.from_rows(frame(rows)) == pasto.Candidates.from_rows(plain)
    named = pasto.Candidates.from_rows(frame({**rows, "setting": ["a", "b"]}), names="setting")
    assert named == pasto.Candidates.from_rows(plain, names=["a", "b"])
    assert (
        pasto.Study(frame(rows), pasto.maximize("x"), seed=1).candidates.names[1] == "weight=0.5,ranker=new,boost=False"
    )
    assert named.add(frame({"weight": [2], "ranker": ["old"], "boost": [True]}), names=["c"]).names == ("a", "b", "c")
    with pytest.raises(SpaceError, match="names='name' is not a column"):
        pasto.Candidates.from_rows(frame(rows), names="name")
    with pytest.raises(SpaceError, match="row 1: 'weight' is nan"):
        pasto.Candidates.from_rows(frame({"weight": [1.0, None]}))


def test_an_index_of_text_names_the_candidates_of_a_frame() -> None:
    frame = pd.DataFrame({"weight": [0, 1]}, index=["calm", "bold"])
    assert pasto.Candidates.from_rows(frame).names == ("calm", "bold")


def _study() -> pasto.Study:
    return pasto.Study([{"w": 0}, {"w": 1}, {"w": 2}], OBJECTIVE, seed=3)


def state_after(*given: Any, **options: Any) -> Any:
    study = _study()
    study.tell(study.ask(parallel=12), *given, **options)
    return study.state()


def _measured() -> dict[str, list[float]]:
    return {name: np.random.default_rng(place).normal(size=12).tolist() for place, name in enumerate(OBJECTIVE.metrics)}


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_is_recognized_by_its_columns(frame: Frame) -> None:
    measured, errors = _measured(), {name: [0.5] * 12 for name in OBJECTIVE.metrics}
    rows = [dict(zip(measured, row, strict=True)) for row in zip(*measured.values(), strict=True)]
    right = state_after(rows, [[0.5] * 3] * 12, units=range(1, 13))
    turned = {name: measured[name] for name in reversed(measured)}
    assert state_after(frame(turned), frame(errors), units=frame({"n": list(range(1, 13))})) == right
    candidates = [assignment.name for assignment in _study().ask(parallel=12)]
    assert state_after(frame({"name": candidates, **measured}), frame(errors), units=range(1, 13)) == right


@pytest.mark.parametrize("frame", FRAMES)
def test_rows_with_assignment_ids_are_put_in_order(frame: Frame) -> None:
    measured = _measured()
    ids = [f"0/{place}" for place in range(12)]
    order = sorted(range(12), key=lambda place: ids[place])  # in the order of a group by: 0/0, 0/1, 0/10, …
    shuffled = {"assignment": [ids[k] for k in order], **{n: [v[k] for k in order] for n, v in measured.items()}}
    rows = list(zip(*measured.values(), strict=True))
    units = {"assignment": shuffled["assignment"], "n": [k + 1 for k in order]}
    assert state_after(frame(shuffled), units=frame(units)) == state_after(rows, units=range(1, 13))


def test_a_series_of_units_is_put_in_order_by_its_index() -> None:
    rows = list(zip(*_measured().values(), strict=True))
    units = pd.Series(range(1, 13), index=[f"0/{place}" for place in range(12)])
    assert state_after(rows, units=units[::-1]) == state_after(rows, units=range(1, 13))


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_that_does_not_fit_the_assignments_is_refused(frame: Frame) -> None:
    measured = _measured()
    for change, message in (
        ({"shares_se": [0.1] * 12}, r"has the column 'shares_se'.*leave it out, as in table\[\['watch_time', 'likes'"),
        ({"name": ["w=9"] * 12}, r"labelled 'w=9', 'w=9', 'w=9', … *, which are neither the assignments' ids \('0/0'"),
        ({"likes": ["few"] * 12}, "metrics must be numbers"),
        ({"likes": [None] + [1.0] * 11}, "likes = nan in row 0"),
    ):
        with pytest.raises(MeasurementError, match=message):
            state_after(frame({**measured, **change}))
    with pytest.raises(MeasurementError, match="lacks the column 'likes'; it has 'watch_time', 'shares'"):
        state_after(frame({name: measured[name] for name in ("watch_time", "shares")}))
    with pytest.raises(MeasurementError, match="metrics has 3 rows for 12 assignments"):
        state_after(frame({name: values[:3] for name, values in measured.items()}))
    with pytest.raises(MeasurementError, match="units must be one column of numbers, got 'a', 'b'"):
        state_after(frame(measured), units=frame({"a": [1] * 12, "b": [1] * 12}))


OBSERVED: dict[str, list[Any]] = {"version": [0] * 4, "units": [90, 100, 110, 20], "control": [False] * 3 + [True]}
SEEN = {"watch_time": [6.0, 4.0, 5.0, 6.1], "likes": [-1.0, 1.0, -2.0, -1.1], "shares": [0.7, -0.5, 3.0, 0.8]}
ROWS = [0, 1, 2, 0]


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("named", [["w=0", "w=1", "w=2", "w=0"], ROWS])
def test_a_frame_is_observed(frame: Frame, named: list[Any]) -> None:
    columns = {**SEEN, **OBSERVED, "candidate": named}
    plain, errors, study = _study(), _study(), _study()
    spread = tuple(tuple(0.25 * (i == k) for k in range(3)) for i in range(3))
    rows = [
        pasto.Observation(0, ROWS[k], OBSERVED["units"][k], tuple(v[k] for v in SEEN.values()), None, k == 3)
        for k in range(4)
    ]
    plain.observe(rows)
    study.observe(frame({name: columns[name] for name in reversed(columns)}))
    assert study.state() == plain.state()
    plain = _study()
    plain.observe([pasto.Observation(r.version, r.candidate, r.units, r.mean, spread, r.control) for r in rows])
    errors.observe(frame(columns), standard_errors=frame({name: [0.5] * 4 for name in SEEN}))
    assert errors.state() == plain.state()


def test_the_index_names_the_candidates_of_an_observed_frame() -> None:
    columns = {name: values[:3] for name, values in {**SEEN, **OBSERVED}.items()}
    frame = pd.DataFrame(columns, index=["w=2", "w=0", "w=1"])
    by_column, by_index, by_number = _study(), _study(), _study()
    by_column.observe(frame.reset_index(names="candidate"))
    by_index.observe(frame)
    by_number.observe(frame.set_index(pd.Index([2, 0, 1], name="candidate")))
    assert by_index.state() == by_column.state() == by_number.state()


@pytest.mark.parametrize("frame", FRAMES)
def test_an_observed_frame_that_does_not_fit_is_refused(frame: Frame) -> None:
    columns = {**SEEN, **OBSERVED, "candidate": ROWS}

    def without(name: str) -> Any:
        return frame({column: values for column, values in columns.items() if column != name})

    cases: list[tuple[Any, dict[str, Any], type[InputError], str]] = [
        (without("version"), {}, MeasurementError, "lacks the column 'version'; give each row study.policy.version"),
        (without("units"), {}, MeasurementError, "lacks the column 'units'"),
        (without("candidate"), {}, MeasurementError, "names no candidates; add a column 'candidate'"),
        (without("likes"), {}, MeasurementError, "lacks the column 'likes'"),
        (frame({**columns, "likes_se": [1] * 4}), {}, MeasurementError, "has the column 'likes_se'"),
        (frame({**columns, "control": [0, 0, 0, 1]}), {}, MeasurementError, "'control' must hold True or False, got 0"),
        (frame({**columns, "candidate": ["w=9"] * 4}), {}, OptionError, "no candidate is named 'w=9'"),
        (frame(columns), {"standard_errors": [0.1]}, MeasurementError, "standard_errors must be a data frame"),
        (frame(columns), {"standard_errors": frame({**SEEN, "likes": ["?"] * 4})}, MeasurementError, "must be numbers"),
        ([], {"standard_errors": frame(SEEN)}, MeasurementError, "an Observation carries its own covariance"),
    ]
    for given, options, kind, message in cases:
        with pytest.raises(kind, match=re.escape(message)):
            _study().observe(given, **options)
    clash = pasto.Study([{"w": 0}], pasto.maximize("units"), seed=1)
    with pytest.raises(MeasurementError, match="'units' is called like a column"):
        clash.observe(frame(columns))


def test_series_by_name_must_have_one_index_which_names_the_candidates() -> None:
    names = ["clips", "friends", "fresh"]
    truth = {name: pd.Series(values, index=names) for name, values in MEANS.items()}
    assert pasto.solve(truth, OBJECTIVE).names == tuple(names)
    truth["likes"] = truth["likes"].iloc[::-1]
    with pytest.raises(MeansError, match="'watch_time' and 'likes' have different indexes"):
        pasto.solve(truth, OBJECTIVE)
    counted = {name: pd.Series(values) for name, values in MEANS.items()}
    assert pasto.solve(counted, OBJECTIVE).names == ("0", "1", "2")
    counted["likes"] = counted["likes"].sort_values()
    with pytest.raises(MeansError, match="different indexes"):
        pasto.solve(counted, OBJECTIVE)


def test_an_index_that_does_not_count_names_the_candidates() -> None:
    pairs = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)])
    assert pasto.solve(pd.DataFrame(MEANS, index=pairs), OBJECTIVE).names == ("a, 1", "a, 2", "b, 1")
    assert pasto.solve(pd.DataFrame(MEANS, index=[0.5, 1.0, 2.0]), OBJECTIVE).names == ("0.5", "1.0", "2.0")
    assert pasto.solve(pd.DataFrame(MEANS, index=[7, 3, 5]), OBJECTIVE).names == ("0", "1", "2")


def test_rows_by_name_are_solved() -> None:
    rows = [dict(zip(MEANS, row, strict=True)) for row in zip(*MEANS.values(), strict=True)]
    assert pasto.solve(rows, OBJECTIVE).probabilities == pasto.solve(MEANS, OBJECTIVE).probabilities
    named = [{"name": name, **row} for name, row in zip("abc", rows, strict=True)]
    assert pasto.solve(named, OBJECTIVE).names == ("a", "b", "c")
    with pytest.raises(MeansError, match="row 1 has 'watch_time', and row 0 has 'watch_time', 'likes'"):
        pasto.solve([rows[0], {"watch_time": 3}], OBJECTIVE)


def test_columns_by_name_are_accepted() -> None:
    frame = {"likes": [1.0, 2.0], "watch_time": [10.0, 20.0]}
    objective = pasto.maximize("watch_time").keep("likes", at_least=0)
    messages = []
    for given in (frame, pd.DataFrame(frame), {name: np.array(values) for name, values in frame.items()}):
        study = pasto.Study(pasto.grid(a=[0, 1]), objective, seed=1)
        study.tell(study.ask(parallel=2), given, standard_errors={"watch_time": [0.1, 0.2], "likes": [0.3, 0.4]})
        messages.append(study.state())
    assert messages[0] == messages[1] == messages[2]
    study = pasto.Study(pasto.grid(a=[0, 1]), objective, seed=1)
    asked = study.ask(parallel=2)
    for wrong, message in (
        ({"likes": [1.0, 2.0], "watch_time": [10.0]}, "differ in length"),
        ({"likes": [1.0], "watch_time": [10.0]}, "has 1 rows for 2 assignments"),
        ([[1.0, 2.0], [None, 3.0]], "got None in row 1"),
    ):
        with pytest.raises(MeasurementError, match=message):
            study.tell(asked, wrong)
