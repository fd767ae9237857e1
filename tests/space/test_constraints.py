import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pasto.errors import SpaceError
from pasto.space.constraints import Constraint

BOX: dict[str, tuple[float, float] | None] = {"a": (-1e6, 1e6), "b": (-1e6, 1e6), "c": (-1e6, 1e6)}


def read(text: str) -> Constraint:
    return Constraint.parse(text, BOX)


@pytest.mark.parametrize(
    ("text", "weights", "low", "high"),
    [
        ("a + 2*b - c <= 10", {"a": 1, "b": 2, "c": -1}, -math.inf, 10),
        ("a>=3", {"a": 1}, 3, math.inf),
        ("a == b", {"a": 1, "b": -1}, 0, 0),
        ("10 >= a", {"a": -1}, -10, math.inf),
        ("2*(a + b)/4 <= 1e2", {"a": 0.5, "b": 0.5}, -math.inf, 100),
        ("-(a - 3) <= --.5", {"a": -1}, -math.inf, -2.5),
        ("a*2 + a*3 <= 1_000", {"a": 5}, -math.inf, 1000),
        ("a + b <= 5 + b", {"a": 1}, -math.inf, 5),
        ("  `a`<=1  ", {"a": 1}, -math.inf, 1),
    ],
)
def test_reads_linear_constraints(text: str, weights: dict[str, float], low: float, high: float) -> None:
    constraint = read(text)
    assert (dict(constraint.weights), constraint.low, constraint.high) == (weights, low, high)
    assert constraint.text == text


def test_names_in_backticks_may_be_anything() -> None:
    constraint = Constraint.parse("`like weight` + `<=` <= 1", {"like weight": (0, 1), "<=": (0, 1)})
    assert set(constraint.weights) == {"like weight", "<="}


EXPRESSIONS: st.SearchStrategy[str] = st.recursive(
    st.sampled_from(["a", "b", "c"]) | st.integers(0, 9).map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" + ", "-"]), inner).map("".join),
        inner.map(lambda text: f"({text})"),
        st.tuples(st.integers(0, 9), inner).map(lambda pair: f"{pair[0]}*({pair[1]})"),
        inner.map(lambda text: f"-({text})/4"),
    ),
    max_leaves=8,
)
POINTS = st.fixed_dictionaries({name: st.integers(-20, 20) for name in "abc"})


@settings(deadline=None)
@given(EXPRESSIONS, EXPRESSIONS, st.sampled_from(["<=", ">=", "=="]), POINTS)
def test_agrees_with_pythons_own_arithmetic(left: str, right: str, sign: str, point: dict[str, int]) -> None:
    exact: dict[str, Any] = {name: Fraction(value) for name, value in point.items()}
    expected = eval(f"({left}) {sign} ({right})", {}, exact)  # noqa: S307 -- the text is made above
    try:
        constraint = read(f"{left} {sign} {right}")
    except SpaceError as refusal:
        if "no parameter is left" not in str(refusal) and "can never hold" not in str(refusal):
            raise
        return
    columns = {name: np.array([float(value)]) for name, value in point.items()}
    assert constraint.holds(columns).tolist() == [expected]


def test_rounding_errors_are_accepted_and_whole_units_are_not() -> None:
    tenths = read("a + b <= 0.3")
    assert tenths.holds({"a": np.array([0.1, 0.1]), "b": np.array([0.2, 0.200001])}).tolist() == [True, False]
    micros = Constraint.parse("a + b <= 100_000_000_000", {"a": (0, 1e11), "b": (0, 1e11)})
    assert micros.holds({"a": np.array([6e10, 6e10]), "b": np.array([4e10, 4e10 + 1])}).tolist() == [True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a < 3", "'<' is not available; write '<='"),
        ("a > 3", "'>' is not available; write '>='"),
        ("a = 3", "'=' is not available; write '=='"),
        ("a != 3", "needs one of <=, >= and =="),
        ("a + b", "needs one of <=, >= and =="),
        ("", "expected a number or a parameter's name, got 'the end'"),
        ("a <=", "got 'the end'"),
        ("0 <= a <= 3", "write it as two constraints"),
        ("2a <= 3", "did not expect 'a' there; write products with"),
        ("a <= 3 b", "did not expect 'b' there"),
        ("a ** 2 <= 3", "got '[*]'"),
        ("a*b <= 3", "a product of two parameters is not linear"),
        ("3/a <= 3", "only division by a number other than 0"),
        ("a/0 <= 3", "only division by a number other than 0"),
        ("(a <= 3", "a bracket is not closed"),
        ("a) <= 3", "did not expect '[)]'"),
        ("a % 2 <= 3", "cannot read '%'"),
        ("a.b <= 3", "cannot read '[.]'"),
        ("__import__('os') <= 3", 'cannot read "\'"'),
        ("1 <= 2", "no parameter is left in it"),
        ("a - a <= 2", "no parameter is left in it"),
        ("1e999*a <= 2", "numbers are too large"),
        ("(" * 60 + "a" + ")" * 60 + " <= 1", "nested deeper than 50"),
        ("a + size <= 3", "names 'size'; the parameters are a, b, c"),
        ("a + b <= -3e6", "can never hold: .* from -2e[+]06 to 2e[+]06, and at most -3e[+]06 is asked"),
        ("a >= 2e6", "at least 2e[+]06 is asked"),
        ("a == 2e6", "exactly 2e[+]06 is asked"),
    ],
)
def test_refusals_name_the_fix(text: str, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        read(text)


def test_refuses_strings_in_sums_and_constraints_that_are_no_text() -> None:
    with pytest.raises(SpaceError, match="adds up 'mode', whose values are not all numbers"):
        Constraint.parse("mode <= 3", {"mode": None})
    with pytest.raises(SpaceError, match="a constraint is a string such as"):
        read(3)  # type: ignore[arg-type]
