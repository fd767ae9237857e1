"""Rounding: the differences between two policies that count as rounding, and those that do not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pasto.report.records import ArmVerdict
from pasto.service.rounds.rounding import measure_difference, verdicts_match
from pasto_sdk.enrolment import AudienceCondition, SegmentAttribute, SegmentRule
from pasto_sdk.policy import Share, publish_policy

SHARES = [("control", 0, 0.25), ("learner", 0, 0.25), ("learner", 1, 0.5)]
RULE = SegmentRule((SegmentAttribute("plan", ("free", "paid")),), ("free", "paid"))
SMALL = 2.0**-40


def policy(**changed: Any) -> str:
    fields: dict[str, Any] = {
        "study": "feed",
        "version": 3,
        "round": 3,
        "state": "learning",
        "mode": "shuffled",
        "salt": "feed/3",
        "candidates": {0: ("a", {"w": 0.5, "n": 1, "m": "x"}), 1: ("b", {"w": 0.75, "n": 2, "m": "y"})},
        "baseline": 0,
        "shares": SHARES,
        "valid_from": 0.0,
        "expires_after": 60.0,
    }
    return publish_policy(**{**fields, **changed}).text


def move(shares: list[Share], by: float) -> list[Share]:
    """Return shares of which the first gives a part to the last."""
    (arm, candidate, first), *middle, (last_arm, last_candidate, last) = shares
    return [(arm, candidate, first - by), *middle, (last_arm, last_candidate, last + by)]


def test_equal_policies_have_no_difference() -> None:
    assert measure_difference(policy(), policy()) == 0.0


@pytest.mark.parametrize("by", [2.0**-53, 1e-9, 0.1])
def test_the_largest_difference_of_a_share_is_returned(by: float) -> None:
    moved = policy(shares=move(SHARES, by))
    assert measure_difference(moved, policy()) == pytest.approx(by, abs=2.0**-53)
    assert measure_difference(policy(), moved) == measure_difference(moved, policy())


def test_a_share_that_only_one_policy_has_counts_in_full() -> None:
    rest = [("control", 0, 0.25), ("learner", 0, 0.25 - SMALL), ("learner", 1, 0.5), ("learner", 2, SMALL)]
    candidates = {index: (name, {"w": index}) for index, name in enumerate("abc")}
    more, fewer = policy(shares=rest, candidates=candidates), policy(candidates=candidates)
    assert measure_difference(more, fewer) == measure_difference(fewer, more) == SMALL


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 4},
        {"state": "confirming"},
        {"mode": "sticky"},
        {"salt": "feed/4"},
        {"baseline": 1},
        {"valid_from": 1e-9},
        {"signed": True},
        {"audience": (AudienceCondition("country", "in", ("de",)),)},
        {"shares": [SHARES[0], SHARES[2], SHARES[1]]},
        {"candidates": {0: ("a", {"w": 0.5 + 1e-6, "n": 1, "m": "x"}), 1: ("b", {"w": 0.75, "n": 2, "m": "y"})}},
        {"candidates": {0: ("a", {"w": 0.5, "n": 1.0, "m": "x"}), 1: ("b", {"w": 0.75, "n": 2, "m": "y"})}},
        {"candidates": {0: ("a", {"w": 0.5, "n": 1, "m": "z"}), 1: ("b", {"w": 0.75, "n": 2, "m": "y"})}},
        {"candidates": {0: ("a", {"w": 0.5, "n": 1}), 1: ("b", {"w": 0.75, "n": 2, "m": "y"})}},
    ],
    ids=str,
)
def test_any_other_difference_is_infinite(changed: dict[str, Any]) -> None:
    assert measure_difference(policy(**changed), policy()) == math.inf
    assert measure_difference(policy(), policy(**changed)) == math.inf


def test_a_parameter_may_be_rounded() -> None:
    rounded = {0: ("a", {"w": 0.5 + 1e-13, "n": 1, "m": "x"}), 1: ("b", {"w": 0.75, "n": 2, "m": "y"})}
    assert measure_difference(policy(candidates=rounded), policy()) == 0.0


def test_a_damaged_text_is_not_a_policy() -> None:
    for damaged in ("", "[]", "{}", policy()[:-5], policy().replace("feed/3", "feed/4")):
        assert measure_difference(policy(), damaged) == math.inf


def test_shares_of_each_segment_are_compared() -> None:
    def divided(free: list[Share], paid: list[Share], rule: SegmentRule = RULE) -> str:
        return policy(segments=rule, segment_shares=dict(zip(rule.names, (free, paid), strict=True)))

    same = divided(SHARES, SHARES)
    assert measure_difference(divided(SHARES, move(SHARES, SMALL)), same) == SMALL
    assert measure_difference(divided(move(SHARES, 0.125), SHARES), same) == 0.125
    assert measure_difference(policy(), same) == math.inf
    other = SegmentRule((SegmentAttribute("plan", ("free", "pro")),), ("free", "paid"))
    assert measure_difference(divided(SHARES, SHARES, other), same) == math.inf


def test_verdicts_may_differ_in_the_last_digit_of_a_number() -> None:
    verdict = ArmVerdict("likes", "learner", "holds", p_value=0.1234, allowed=-0.05)
    assert verdicts_match([verdict], [verdict])
    assert verdicts_match([ArmVerdict("likes", "learner", "holds", p_value=0.1235, allowed=-0.05)], [verdict])
    for other in (
        ArmVerdict("likes", "learner", "holds", p_value=0.1236, allowed=-0.05),
        ArmVerdict("likes", "learner", "warning", p_value=0.1234, allowed=-0.05),
        ArmVerdict("likes", "control", "holds", p_value=0.1234, allowed=-0.05),
        ArmVerdict("likes", "learner", "holds", p_value=0.1234, since=2, allowed=-0.05),
        ArmVerdict("likes", "learner", "holds", p_value=0.1234),
    ):
        assert not verdicts_match([other], [verdict])
        assert not verdicts_match([verdict], [other])
    assert not verdicts_match([], [verdict])
