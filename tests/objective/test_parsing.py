from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasto.errors import ObjectiveError
from pasto.objective import Guardrail, Objective, maximize, minimize, parse_keep, parse_metric, parse_objective, ratio

names = st.text(st.characters(codec="utf-8", categories=["L", "N"], include_characters="_- .()"), min_size=1).filter(
    lambda name: name == name.strip()
)
numbers = st.floats(allow_nan=False, allow_infinity=False)
blanks = st.text(" \t", max_size=2)


@given(
    metric=names | st.tuples(names, names).filter(lambda pair: pair[0] != pair[1]),
    at=numbers | st.floats(0, 1e6).map(lambda percent: f"-{percent:f}%"),
    lower=st.booleans(),
    penalty=st.none() | st.floats(1e-300, 1e300),
    within=st.sampled_from([None, "each", "heavy", "new users"]),
    blank=blanks,
)
def test_a_guardrail_comes_back_as_it_was_typed(
    metric: str | tuple[str, str], at: float | str, lower: bool, penalty: float | None, within: str | None, blank: str
) -> None:
    left = metric if isinstance(metric, str) else f"{blank}/{blank}".join(metric)
    text = f"{blank}{left}{blank}{'>=' if lower else '<='}{blank}{at}{blank}"
    if within is not None:
        text += f",{blank}within{blank}={blank}{within}{blank}"
    if penalty is not None:
        text += f",{blank}penalty{blank}={blank}{penalty!r}{blank}"
    meant = Guardrail.parse(
        metric if isinstance(metric, str) else ratio(*metric),
        at_least=at if lower else None,
        at_most=None if lower else at,
        penalty=penalty,
        within=within,
    )
    assert Guardrail.parse(**parse_keep(text)) == meant


@given(
    at=st.integers(-9999, 9999).map(lambda tenths: tenths / 10),
    relative=st.booleans(),
    lower=st.booleans(),
    penalty=st.none() | st.integers(1, 99999),
    within=st.sampled_from([None, "each", "new users"]),
)
def test_what_an_objective_prints_is_read_back(
    at: float, relative: bool, lower: bool, penalty: float | None, within: str | None
) -> None:
    rail = Guardrail("like rate", at, lower, None if penalty is None else float(penalty), relative, within)
    assert Guardrail.parse(**parse_keep(str(rail))) == rail


def test_signs_of_mathematics_are_read_too() -> None:
    assert parse_keep("y≥0") == {"metric": "y", "at_least": 0.0}
    assert parse_keep("y ≤ 2e-3") == {"metric": "y", "at_most": 0.002}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y", "no threshold; write it in quotes"),
        ("", "no threshold"),
        ("y > 0", "write >= for at least or <= for at most"),
        ("y = 0", "write >= for at least"),
        ("0 <= y <= 1", "two thresholds"),
        ("y >= ", "write it as"),
        (">= 0", "write it as"),
        ("y >= much", "write it as"),
        ("y >= nan", "write it as"),
        ("y >= 0, penalty=", "write it as"),
        ("y >= 0, within=", "write it as"),
        ("y >= 0 within", "write it as"),
        ("y >= 0 penalty", "write it as"),
        ("a/b/c >= 0", "cannot read the metric 'a/b/c'"),
        ("a/ >= 0", "cannot read the metric"),
        ("a/a >= 0", "two different metrics"),
    ],
)
def test_a_guardrail_that_cannot_be_read_is_refused_with_the_fix(text: str, message: str) -> None:
    with pytest.raises(ObjectiveError, match=message):
        parse_keep(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [("y >= 1e999", "finite"), ("y >= 2%", "could mean a rise or a fall"), ("y >= 0, penalty=-1", "positive number")],
)
def test_a_guardrail_that_makes_no_sense_is_refused_by_keep(text: str, message: str) -> None:
    with pytest.raises(ObjectiveError, match=message):
        maximize("x").keep(**parse_keep(text))


@pytest.mark.parametrize(
    ("raised", "lowered", "meant"),
    [
        (["x"], [], maximize("x")),
        (["x = 2.5"], [], maximize({"x": 2.5})),
        (["x", "y=0.3"], [], maximize({"x": 1.0, "y": 0.3})),
        ([], ["x"], minimize("x")),
        ([], ["x=2", "y"], minimize({"x": 2.0, "y": 1.0})),
        (["x"], ["y=2"], maximize({"x": 1.0, "y": -2.0})),
        (["likes/views"], [], maximize(ratio("likes", "views"))),
        ([], ["likes/views"], minimize(ratio("likes", "views"))),
    ],
)
def test_goals_are_read_with_their_weights(raised: list[str], lowered: list[str], meant: Objective) -> None:
    assert parse_objective(maximize=raised, minimize=lowered) == meant


@pytest.mark.parametrize(
    ("raised", "lowered", "message"),
    [
        ([], [], "no goal was given"),
        (["x", "x=2"], [], "'x' is a goal twice"),
        (["x"], ["x"], "'x' is a goal twice"),
        (["x=0"], [], "weights are positive"),
        (["x=-1"], [], "weights are positive"),
        (["x=much"], [], "cannot read the goal 'x=much'"),
        (["x>=2"], [], "cannot read the goal 'x>=2'"),
        (["likes/views", "x"], [], "must be the only goal"),
        (["likes/views=2"], [], "without a weight"),
        (["x=1e999"], [], "finite"),
    ],
)
def test_goals_that_cannot_be_read_are_refused(raised: list[str], lowered: list[str], message: str) -> None:
    with pytest.raises(ObjectiveError, match=message):
        parse_objective(maximize=raised, minimize=lowered)


def test_a_whole_objective_is_read() -> None:
    objective = parse_objective(maximize=["x"], keep=["y >= 0, penalty=5", "likes/views <= 0.1"])
    assert objective == maximize("x").keep("y", at_least=0, penalty=5).keep(parse_metric("likes/views"), at_most=0.1)
