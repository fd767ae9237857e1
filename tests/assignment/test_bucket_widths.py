"""Bucket widths from shares, and input that `publish_policy` refuses."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasto.errors import PolicyError
from pasto_sdk.policy import PublishedPolicy, bucket_widths, publish_policy
from pasto_sdk.policy_document import BUCKET_TOTAL

Make = Callable[..., PublishedPolicy]

weights = st.lists(st.floats(min_value=0, max_value=1, allow_subnormal=True), min_size=1, max_size=60).filter(
    lambda listed: sum(listed) > 0
)


def normal(listed: list[float]) -> list[float]:
    total = math.fsum(listed)
    return [share for weight in listed if (share := weight / total) > 0]


@given(weights)
def test_widths_sum_to_the_whole_and_follow_their_shares(listed: list[float]) -> None:
    shares = normal(listed)
    parts = bucket_widths(shares)
    tiny = sum(share < 2**-53 for share in shares)
    total = sum(map(Fraction, shares))
    assert sum(parts) == BUCKET_TOTAL
    assert min(parts) >= 1
    for share, part in zip(shares, parts, strict=True):
        assert abs(Fraction(part, BUCKET_TOTAL) - Fraction(share) / total) <= Fraction(1 + tiny, BUCKET_TOTAL)


@given(st.lists(st.floats(min_value=1e-9, max_value=1), min_size=1, max_size=60))
def test_without_dust_a_propensity_is_its_share_to_the_last_digit(listed: list[float]) -> None:
    shares = normal(listed)
    for share, part in zip(shares, bucket_widths(shares), strict=True):
        assert abs(part / BUCKET_TOTAL - share) <= 2**-52


@given(st.lists(st.integers(min_value=1, max_value=2**40), min_size=0, max_size=20))
def test_shares_that_are_whole_parts_come_back_as_they_are(parts: list[int]) -> None:
    parts = [*parts, BUCKET_TOTAL - sum(parts)]
    assert bucket_widths([part / BUCKET_TOTAL for part in parts]) == parts


def test_equal_remainders_go_in_the_order_given() -> None:
    assert bucket_widths([1 / 3] * 3) == [BUCKET_TOTAL // 3 + (place < BUCKET_TOTAL % 3) for place in range(3)]


def test_dust_is_raised_to_one_part_and_the_others_pay_evenly() -> None:
    parts = bucket_widths([1e-300] * 10 + [0.5, 0.5])
    assert parts[:10] == [1] * 10
    assert parts[10:] == [BUCKET_TOTAL // 2 - 5, BUCKET_TOTAL // 2 - 5]
    assert bucket_widths([5e-324, 1.0]) == [1, BUCKET_TOTAL - 1]


@given(weights)
def test_the_cells_are_the_positive_shares_and_their_propensities_sum_to_one(made: Make, listed: list[float]) -> None:
    total = math.fsum(listed)
    shares = [("learner", k, weight / total) for k, weight in enumerate(listed)]
    policy = made(shares)
    assert [cell.candidate for cell in policy.cells] == [k for _, k, share in shares if share > 0]
    assert math.fsum(cell.propensity for cell in policy.cells) == 1.0
    assert sum(cell.width for cell in policy.cells) == BUCKET_TOTAL


def test_only_candidates_that_are_served_and_the_baseline_are_written(made: Make) -> None:
    policy = made([("learner", 1, 0.5), ("learner", 2, 0.0), ("learner", 3, 0.5)])
    assert [candidate["index"] for candidate in json.loads(policy.text)["candidates"]] == [0, 1, 3]
    assert policy.baseline.name == "c0"
    assert policy.baseline.propensity == 0
    assert policy.baseline.arm == "none"
    assert list(policy.named) == ["c0", "c1", "c3"]


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([], "sum to one"),
        ([("learner", 0, 0.0)], "sum to one"),
        ([("learner", 0, 0.5), ("learner", 1, 0.4)], r"sum to 0\.9"),
        ([("learner", 0, 0.5), ("learner", 1, 0.5 + 1e-8)], "sum to one"),
        ([("learner", 0, 1.25), ("learner", 1, -0.25)], r"between 0 and 1, got 1\.25"),
        ([("learner", 0, -0.25), ("learner", 1, 1.25)], r"between 0 and 1, got -0\.25"),
        ([("learner", 0, math.nan), ("learner", 1, 1.0)], "got nan"),
        ([("learner", 0, math.inf)], "got inf"),
        ([("learner", 0, True)], "must be a number, got True"),
        ([("learner", 0, "1")], "must be a number, got '1'"),
        ([("learner", 0, 0.5), ("learner", 9, 0.5)], "candidate 9 in arm 'learner' names a candidate that is not"),
        ([("learner", 0, 0.5), ("learner", 0, 0.5)], "repeats candidate 0"),
        ([("learner", 0, 0.5), ("control", 0, 0.25), ("learner", 1, 0.25)], "must be neighbours"),
        ([("treatment", 0, 1.0)], "'treatment'; the arms are control, learner"),
    ],
)
def test_shares_that_do_not_add_up_are_refused(made: Make, shares: Any, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        made(shares, candidates={0: ("a", {}), 1: ("b", {})})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"baseline": 7}, "baseline is 7"),
        ({"version": -1}, "version"),
        ({"version": True}, "version"),
        ({"mode": "random"}, "shuffled or sticky"),
        ({"salt": ""}, "salt"),
        ({"salt": "a\0b"}, "NUL"),
        ({"study": None}, "study"),
        ({"valid_from": math.nan}, "JSON"),
        ({"expires_after": 0}, "positive"),
        ({"candidates": {0: ("a", {}), 1: ("a", {})}}, "each index and name comes once"),
        ({"candidates": {0: ("a", {"w": math.inf}), 1: ("b", {})}}, "JSON"),
        ({"candidates": {0: ("a", {"w": [1]}), 1: ("b", {})}}, "a value is a finite number, a string or a bool"),
        ({"candidates": {0: ("a", {"w": object()}), 1: ("b", {})}}, "JSON"),
    ],
)
def test_input_that_makes_no_document_is_refused(made: Make, change: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        made([("learner", 0, 0.5), ("learner", 1, 0.5)], **change)


def test_the_document_is_the_one_agreed_upon() -> None:
    policy = publish_policy(
        study="feed",
        version=12,
        round=11,
        state="learning",
        mode="shuffled",
        salt="feed/12",
        candidates={0: ("a", {"w": 1}), 4: ("e", {"w": 0.5, "label": "ä", "on": True})},
        baseline=4,
        shares=[("control", 4, 0.125), ("learner", 0, 0.875)],
        valid_from=1700000000.5,
        expires_after=86400,
    )
    assert policy.text == (
        '{"format":2,"study":"feed","version":12,"round":11,"state":"learning","mode":"shuffled","salt":"feed/12",'
        '"baseline":4,"candidates":[{"index":0,"name":"a","values":{"w":1}},{"index":4,"name":"e","values":{"w":0.5,'
        '"label":"\\u00e4","on":true}}],"cells":[{"arm":"control","candidate":4,"until":1125899906842624},'
        '{"arm":"learner","candidate":0,"until":9007199254740992}],"valid_from":1700000000.5,"expires_after":86400,'
        '"sha256":"a8d51fa7e80a6e00b56900de4ca6afb24590f205e5dc1d5e7123bff20bba2754"}'
    )
