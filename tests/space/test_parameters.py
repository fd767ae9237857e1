import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pasto import Choice, Integer, Real
from pasto.errors import SpaceError
from pasto.space.parameters import Parameter, text

UNITS = np.array([0.0, 0.1, 0.25, 0.5, 0.75, np.nextafter(1.0, 0.0)])


@st.composite
def parameters(draw: st.DrawFn) -> Parameter:
    kind = draw(st.sampled_from(["real", "integer", "choice"]))
    if kind == "choice":
        return Choice(draw(st.lists(st.text(max_size=3) | st.integers(-9, 9), min_size=1, max_size=5, unique=True)))
    if kind == "integer":
        low = draw(st.integers(-(2**52), 2**52))
        return Integer(low, low + draw(st.integers(0, 2**50)))
    low_end = draw(st.floats(-1e12, 1e12))
    return Real(low_end, low_end + draw(st.floats(1e-3 + 1e-9 * abs(low_end), 1e12)))


@settings(deadline=None)
@given(parameters(), st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20))
def test_every_draw_is_a_plain_value_of_the_parameter(parameter: Parameter, units: list[float]) -> None:
    for value in parameter.draw(np.array(units)).tolist():
        assert type(value) in {float, int, str}
        assert parameter.contains(value)


@settings(deadline=None)
@given(parameters(), st.integers(2, 30))
def test_levels_are_distinct_ordered_values_with_both_ends(parameter: Parameter, count: int) -> None:
    levels = parameter.levels(count)
    assert all(parameter.contains(level) for level in levels)
    if isinstance(parameter, Choice):
        assert levels == parameter.options
        return
    assert list(levels) == sorted(set(levels))
    assert levels[0] == parameter.low
    assert levels[-1] == parameter.high
    assert len(levels) == min(count, parameter.size or count)


def test_levels_are_decimals_people_would_write() -> None:
    assert Real(0, 1).levels(11) == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    assert Integer(0, 100).levels(11) == tuple(range(0, 101, 10))
    assert Integer(3, 5).levels(9) == (3, 4, 5)
    assert Integer(3, 3).levels(1) == (3,)


def test_draws_cover_both_ends_of_discrete_parameters() -> None:
    assert Integer(1, 4).draw(UNITS).tolist() == [1, 1, 2, 3, 4, 4]
    assert Choice(["a", 1]).draw(UNITS).tolist() == ["a", "a", "a", 1, 1, 1]


def test_reals_are_drawn_with_few_digits() -> None:
    drawn = Real(5, 2000).draw(np.array([1 / 3, 1 / 7])).tolist()
    assert drawn == [670.0, 290.0]
    assert Real(0, 1).draw(np.array([1 / 3])).tolist() == [0.333333]
    tiny = Real(0, 1e-250).draw(np.array([1 / 3])).tolist()[0]
    assert math.isclose(tiny, 1e-250 / 3)


def test_contains_keeps_bools_and_numbers_apart() -> None:
    assert Real(0, 1).contains(1)
    assert not Real(0, 1).contains(True)
    assert Integer(0, 3).contains(3.0)
    assert not Integer(0, 3).contains(2.5)
    assert not Integer(0, 3).contains("2")
    assert Choice([0, 1]).contains(1.0)
    assert not Choice([0, 1]).contains(True)
    assert Choice([True, False]).contains(False)


def test_features_scale_numbers_and_split_strings() -> None:
    assert Real(1, 3).features([1, 2.0]).tolist() == [[0.0], [0.5]]
    assert Integer(0, 4).features([1, 4]).tolist() == [[0.25], [1.0]]
    assert Choice([2, 10, 4]).features([4, 10]).tolist() == [[0.25], [1.0]]
    assert Choice([False, True]).features([True, False]).tolist() == [[1.0], [0.0]]
    assert Choice(["off", 1]).features([1, "off"]).tolist() == [[0.0, 1.0], [1.0, 0.0]]
    for constant in (Integer(2, 2), Choice(["x"]), Choice([7])):
        assert constant.features(list(constant.levels(1)) * 3).shape == (3, 0)


def test_features_refuse_unknown_values_and_huge_tables() -> None:
    with pytest.raises(SpaceError, match=r"'c' is not one of the options a, b"):
        Choice(["a", "b"]).features(["c"])
    with pytest.raises(SpaceError, match=r"'fast' is not a number"):
        Real(0, 1).features([0.5, "fast"])
    many = [f"model {number}" for number in range(10_000)]
    with pytest.raises(SpaceError, match=r"10,000 different options make no features for 10,000"):
        Choice(many).features(many)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Real(1, 1), "low < high, got low=1 and high=1"),
        (lambda: Real(2, 1), "low < high"),
        (lambda: Real(0, math.nan), "Real's high is nan; a number must be finite"),
        (lambda: Real(-math.inf, 0), "Real's low is -inf; a number must be finite"),
        (lambda: Real(0, 1e301), "larger than 1e[+]300"),
        (lambda: Real(False, 1), "two numbers"),
        (lambda: Real("0", 1), "two numbers"),  # type: ignore[arg-type]
        (lambda: Integer(0, 2.0), "two ints"),  # type: ignore[arg-type]
        (lambda: Integer(True, 2), "two ints"),
        (lambda: Integer(3, 2), "low <= high, got low=3 and high=2"),
        (lambda: Integer(0, 2**53 + 1), "use Real"),
        (lambda: Choice([]), "at least one option"),
        (lambda: Choice("fast"), r"got 'fast'; write Choice\(\[...\]\)"),
        (lambda: Choice({"a", "b"}), "needs a list"),  # type: ignore[arg-type]
        (lambda: Choice([1, 2, 1.0]), "1.0 is listed twice"),
        (lambda: Choice(["a", "a"]), "'a' is listed twice"),
        (lambda: Choice([True, 2]), "mixes True or False with numbers"),
        (lambda: Choice([1, math.nan]), "option 1 is nan"),
        (lambda: Choice([None]), "option 0 is None .NoneType.; a value is a number, a string or a bool"),  # type: ignore[list-item]
        (lambda: Real(0, 1).levels(1), "use 2 levels or more"),
        (lambda: Integer(0, 5).levels(1), "use 2 levels or more"),
        (lambda: Real(1, 1 + 4e-16).levels(9), "too narrow for 9 levels that differ"),
    ],
)
def test_refusals(build: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        build()


def test_numpy_values_become_plain() -> None:
    assert repr(Real(np.float32(0.5), np.int64(2))) == "Real(low=0.5, high=2.0)"  # type: ignore[arg-type]
    assert repr(Integer(np.int8(1), np.int64(2))) == "Integer(low=1, high=2)"  # type: ignore[arg-type]
    options = Choice(np.array([0.5, 1.5])).options  # type: ignore[arg-type]
    assert [type(option) for option in options] == [float, float]
    assert Choice([np.str_("a"), np.bool_(True)]).options == ("a", True)  # type: ignore[list-item]


VALUES = (
    st.booleans() | st.integers(-99, 99) | st.text(max_size=4) | st.sampled_from(["1", "True", "-0.5", "nan", "a,b"])
)


@settings(deadline=None)
@given(VALUES, VALUES)
def test_different_values_have_different_texts(left: Any, right: Any) -> None:
    same = left == right and isinstance(left, bool) == isinstance(right, bool)
    assert (text(left) == text(right)) == same
