"""Amounts: shares and levels as people write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasto.document_validation import ProblemList
from pasto.service.study_file.amounts import read_level, read_loss, read_share
from pasto.service.study_file.spec import GuardrailLevel, plain


@pytest.mark.parametrize(
    ("given_", "share"), [("10%", 0.1), (0.1, 0.1), ("0.1%", 0.001), (" 5 % ", 0.05), (1, 1.0), ("100%", 1.0)]
)
def test_shares(given_: Any, share: float) -> None:
    assert read_share(ProblemList(), "x", given_) == share


@pytest.mark.parametrize("given_", ["10", "-10%", "110%", 10, -0.1, None, True, float("nan"), "ten", [0.1]])
def test_what_is_no_share(given_: Any) -> None:
    problems = ProblemList()
    assert read_share(problems, "traffic.max_share", given_) is None
    assert "'10%' or 0.1" in problems.found["traffic.max_share"]


def test_a_share_that_was_meant_in_percent_is_recognised() -> None:
    problems = ProblemList()
    read_share(problems, "traffic.max_share", 30)
    assert problems.found["traffic.max_share"].endswith("; for 30 percent write '30%'")


def test_ends_that_a_share_may_not_reach() -> None:
    for given_, ends in (("0%", "low"), ("100%", "high")):
        problems = ProblemList()
        assert read_share(problems, "x", given_, open_ends=ends) is None
        assert problems.found


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_in_full_read_back_as_themselves(number: float) -> None:
    assert float(plain(number)) == number
    assert "e" not in plain(number)


@given(st.floats(-1e9, 1e9).map(lambda number: round(number, 6)))
def test_levels_read_back_as_themselves(number: float) -> None:
    for level in (GuardrailLevel(number + 0.0, True), GuardrailLevel(number + 0.0, False)):
        problems = ProblemList()
        assert read_level(problems, "x", level.written()) == level
        assert not problems.found


@pytest.mark.parametrize("given_", ["2%", "two", "-2", "--2%", None, True, float("inf"), {"at": 1}])
def test_what_is_no_level(given_: Any) -> None:
    problems = ProblemList()
    assert read_level(problems, "x", given_) is None
    assert problems.found


def test_a_loss_is_written_like_its_guardrail() -> None:
    assert read_loss(ProblemList(), "x", "1%", relative=True) == 1.0
    assert read_loss(ProblemList(), "x", 0.01, relative=False) == 0.01
    for given_, relative in ((1, True), ("-1%", True), ("1%", False), (-1, False), (True, False)):
        problems = ProblemList()
        assert read_loss(problems, "x", given_, relative=relative) is None
        assert problems.found
