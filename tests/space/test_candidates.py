import copy
import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pasto
from pasto import Candidates
from pasto.errors import OptionError, SpaceError, StateError

NUMBERS = st.integers(-1000, 1000) | st.integers(-1000, 1000).map(lambda tick: tick / 8)
ROWS = st.lists(
    st.fixed_dictionaries({"weight": NUMBERS, "mode": st.text(max_size=3) | NUMBERS, "flag": st.booleans()}),
    min_size=1,
    max_size=12,
    unique_by=lambda row: (row["weight"], row["mode"], row["flag"]),  # the order of keys varies
)


@settings(deadline=None)
@given(ROWS)
def test_rows_keep_their_order_and_get_names_of_their_own(rows: list[dict[str, Any]]) -> None:
    candidates = Candidates.from_rows(rows)
    assert list(candidates) == rows
    assert list(candidates.rows) == rows
    assert len(candidates) == len(rows)
    assert len(set(candidates.names)) == len(rows)
    for place, (name, row) in enumerate(zip(candidates.names, rows, strict=True)):
        assert candidates[place] == candidates[name] == candidates[place - len(rows)] == row
        assert candidates.index(name) == candidates.index(place - len(rows)) == candidates.find(row) == place


@settings(deadline=None)
@given(ROWS)
def test_saved_and_read_back_is_the_same(rows: list[dict[str, Any]]) -> None:
    candidates = Candidates.from_rows(rows)
    back = Candidates.from_saved(json.loads(json.dumps(candidates.to_saved())))
    assert back == candidates
    assert [list(map(type, row)) for row in back.table] == [list(map(type, row)) for row in candidates.table]
    assert pickle.loads(pickle.dumps(candidates)) == copy.deepcopy(candidates) == candidates  # noqa: S301 -- our own


@settings(deadline=None)
@given(ROWS, st.integers(0, 12))
def test_adding_keeps_what_was_there(rows: list[dict[str, Any]], cut: int) -> None:
    first, later = rows[: cut + 1], rows[cut + 1 :]
    grown = Candidates.from_rows(first).add(later)
    assert grown == Candidates.from_rows(rows)
    assert grown.names[: len(first)] == Candidates.from_rows(first).names


@settings(deadline=None)
@given(ROWS)
def test_features_lie_in_the_unit_cube_and_differ_between_candidates(rows: list[dict[str, Any]]) -> None:
    features = Candidates.from_rows(rows).features()
    assert features.shape[0] == len(rows)
    assert ((features >= 0) & (features <= 1)).all()
    assert len({tuple(row) for row in features.tolist()}) == len(rows)
    assert all(len(set(column)) > 1 for column in features.T.tolist())


def test_names_read_as_the_values() -> None:
    rows = [{"like_weight": 1, "share_weight": 2.0}, {"like_weight": 0.1 + 0.2, "share_weight": -0.0}]
    candidates = Candidates.from_rows(rows)
    assert candidates.names == ("like_weight=1,share_weight=2", "like_weight=0.3,share_weight=0")
    assert pasto.grid(mode=["fast", "1", "a,b", ""], on=[True]).names == (
        "mode=fast,on=True",
        "mode='1',on=True",
        "mode='a,b',on=True",
        "mode='',on=True",
    )


def test_values_handed_out_are_copies() -> None:
    source = {"alpha": 1}
    candidates = Candidates.from_rows([source])
    candidates[0]["alpha"] = 9
    candidates.rows[0]["alpha"] = 9
    source["alpha"] = 9
    assert candidates[0] == {"alpha": 1}
    with pytest.raises(AttributeError):
        candidates.names = ("x",)  # type: ignore[misc]


def test_equality_and_hash_follow_names_and_values() -> None:
    assert pasto.grid(a=[1, 2]) == pasto.grid(a=[1.0, 2.0])
    assert hash(pasto.grid(a=[1, 2])) == hash(pasto.grid(a=[1.0, 2.0]))
    assert pasto.grid(a=[1, 2]) != pasto.grid(a=[2, 1])
    assert pasto.grid(a=[1, 2]) != pasto.grid(b=[1, 2])
    assert pasto.grid(a=[1]) != Candidates.from_rows([{"a": 1}], names=["x"])


def test_shows_its_size_and_its_first_few() -> None:
    assert repr(pasto.grid(a=[1])) == "<1 candidate: a=1>"
    assert repr(pasto.grid(a=range(1500))) == "<1,500 candidates: a=0; a=1; a=2; a=3; …>"


def test_numpy_values_become_plain() -> None:
    row = Candidates.from_rows([{"a": np.float64(0.5), "b": np.int64(3), "c": np.bool_(True), "d": np.str_("x")}])[0]
    assert row == {"a": 0.5, "b": 3, "c": True, "d": "x"}
    assert list(map(type, row.values())) == [float, int, bool, str]


def test_key_order_of_later_rows_does_not_matter() -> None:
    assert Candidates.from_rows([{"a": 1, "b": 2}, {"b": 4, "a": 3}]).table == ((1, 2), (3, 4))


def test_features_by_hand() -> None:
    candidates = Candidates.from_rows(
        [
            {"fixed": 3, "mode": "a", "on": True, "weight": 10},
            {"fixed": 3, "mode": "b", "on": False, "weight": 15.0},
            {"fixed": 3, "mode": "a", "on": False, "weight": 20},
        ]
    )
    assert candidates.features().tolist() == [[1, 0, 1, 0.0], [0, 1, 0, 0.5], [1, 0, 0, 1.0]]
    assert pasto.grid(a=[1]).features().shape == (1, 0)


def test_a_hundred_thousand_are_taken_and_one_more_is_refused() -> None:
    rows = [{"a": number} for number in range(100_001)]
    assert len(Candidates.from_rows(rows[:-1])) == 100_000
    with pytest.raises(
        SpaceError, match=r"100,001 candidates are more than the limit of 100,000; give fewer, or raise"
    ):
        Candidates.from_rows(rows)
    with pytest.raises(SpaceError, match="more than 3 candidates are more than the limit of 3"):
        Candidates.from_rows(iter(rows), limit=3)
    assert len(Candidates.from_rows(rows, limit=100_001)) == 100_001
    three = Candidates.from_rows(rows[:3])
    with pytest.raises(SpaceError, match="5 candidates are more than the limit of 4"):
        three.add(rows[3:5], limit=4)


ONE = {"a": 1}


@pytest.mark.parametrize(
    ("rows", "names", "message"),
    [
        ([], None, "there are no candidates"),
        ([{}], None, "row 0 is {}; it needs at least one parameter"),
        ([{3: 1}], None, "named by a string"),
        ([{"": 1}], None, "a string with something in it"),
        (ONE, None, "rows must be a list of dicts or a data frame, a row for each candidate, got dict"),
        ("a", None, "rows must be a list of dicts"),
        (["a"], None, "row 0 is 'a'; write a dict"),
        ([ONE, {"b": 1}], None, "row 1 lacks 'a' and has unknown 'b'; the parameters are a"),
        ([ONE, {"a": 1, "b": 1}], None, "row 1 has unknown 'b'"),
        ([{"a": 1, "b": 1}, ONE], None, "row 1 lacks 'b'"),
        ([ONE, {"a": 2}, {"a": 1.0}], None, r"candidates 0 \('a=1'\) and 2 \('a=1'\) have the same values a=1"),
        ([ONE, ONE], ["x", "y"], r"candidates 0 \('x'\) and 1 \('y'\) have the same values"),
        ([ONE, {"a": 2}], ["x", "x"], r"candidates 0 \(1,\) and 1 \(2,\) are both named 'x'"),
        ([{"a": 0.3}, {"a": 0.1 + 0.2}], None, "are both named 'a=0.3'; give each a name of its own"),
        ([ONE], ["x", "y"], "2 names came for 1 candidates"),
        ([ONE], [""], "candidate 0 is named ''"),
        ([ONE], [3], "candidate 0 is named 3"),
        ([ONE], "x", "got the string 'x'"),
        ([ONE, {"a": math.nan}], None, "row 1: 'a' is nan; a number must be finite"),
        ([{"a": 0.5}, {"a": math.inf}], None, "row 1: 'a' is inf"),
        ([{"a": 10**400}], None, "larger than 1e[+]300"),
        ([{"a": None}], None, r"row 0: 'a' is None \(NoneType\); a value is a number, a string or a bool"),
        ([{"a": [1]}], None, r"row 0: 'a' is \[1\] \(list\)"),
        ([{"a": True}, {"a": 0}], None, "parameter 'a' mixes True or False with numbers"),
    ],
)
def test_refusals(rows: Any, names: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        Candidates.from_rows(rows, names)


def test_adding_refuses_what_is_there() -> None:
    candidates = pasto.grid(a=[1, 2])
    with pytest.raises(SpaceError, match=r"candidates 1 \('a=2'\) and 2 \('again'\) have the same values a=2"):
        candidates.add([{"a": 2.0}], names=["again"])
    with pytest.raises(SpaceError, match="are both named 'a=1'"):
        candidates.add([{"a": 3}], names=["a=1"])
    with pytest.raises(SpaceError, match="row 0 lacks 'a' and has unknown 'b'"):
        candidates.add([{"b": 3}])
    with pytest.raises(SpaceError, match="0 names came for 1"):
        candidates.add([{"a": 3}], names=[])
    assert candidates.add([]) == candidates


def test_looking_up_what_is_not_there() -> None:
    candidates = pasto.grid(a=[1, 2], on=[True])
    with pytest.raises(OptionError, match="no candidate is named 'a=3'; there are <2 candidates"):
        candidates["a=3"]
    with pytest.raises(OptionError, match="there is no candidate 2; the 2 candidates count from 0"):
        candidates[2]
    with pytest.raises(OptionError, match="there is no candidate -3"):
        candidates[-3]
    with pytest.raises(OptionError, match="there is no candidate True"):
        candidates[True]
    with pytest.raises(OptionError, match=r"by its index or its name, got 1\.0"):
        candidates[1.0]  # type: ignore[index]
    assert candidates[np.int64(1)] == {"a": 2, "on": True}
    with pytest.raises(OptionError, match="no candidate has a=3; it takes 1, 2"):
        candidates.find({"a": 3, "on": True})
    with pytest.raises(OptionError, match="no candidate has on=1; it takes True"):
        candidates.find({"a": 1, "on": 1})
    with pytest.raises(SpaceError, match="the setting to find lacks 'on'"):
        candidates.find({"a": 1})
    with pytest.raises(OptionError, match="no candidate has a=0,b=0 together; add it first"):
        pasto.grid("a + b >= 1", a=[0, 1], b=[0, 1]).find({"a": 0, "b": 0})
    with pytest.raises(OptionError, match="it takes 0, 1, 2, 3, 4, 5, 6, 7, …"):
        pasto.grid(a=range(20)).find({"a": 20})


@pytest.mark.parametrize(
    "saved",
    [
        {},
        {"parameters": ["a"], "names": ["x"]},
        {"parameters": ["a"], "names": ["x"], "values": [[1, 2]]},
        {"parameters": ["a", "a"], "names": ["x"], "values": [[1, 2]]},
        {"parameters": ["a", "b"], "names": ["x", "y"], "values": [[1, 2], [1]]},
        {"parameters": ["a"], "names": ["x"], "values": [[None]]},
        {"parameters": ["a"], "names": ["x"], "values": 3},
        {"parameters": [], "names": ["x"], "values": [[]]},
        {"parameters": ["a"], "names": [], "values": []},
    ],
)
def test_a_broken_saved_state_is_refused(saved: Any) -> None:
    with pytest.raises(StateError, match="the saved candidates cannot be read"):
        Candidates.from_saved(saved)
