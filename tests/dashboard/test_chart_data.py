from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasto.dashboard.chart_data import (
    MAX_LEADERS,
    POINTS,
    PolicySample,
    RoundSamples,
    build_policy_series,
    build_series,
    sample_rounds,
)
from pasto.report.records import write_record
from pasto.service.service import Service


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(2, 500))
def test_samples_are_few_even_and_hold_both_ends(first: int, length: int, points: int) -> None:
    stride, numbers = sample_rounds(first, first + length, points)
    assert len(numbers) <= points + 2
    assert (numbers[0], numbers[-1]) == (first, first + length)
    assert numbers == sorted(set(numbers))
    assert all(number % stride == 0 for number in numbers[1:-1])
    assert stride == 1 or length // (stride // 2) + 1 > points


def test_a_long_study_is_read_by_a_few_rounds_and_each_once(learned: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = learned.policy_cache.snapshot("feed")
    samples = RoundSamples(learned.store)
    asked: list[int] = []
    inner = learned.store.list_closes

    def closes(study: int, *, after: int = 0, limit: int = 1000) -> Any:
        asked.append(limit)
        return inner(study, after=after, limit=limit)

    monkeypatch.setattr(learned.store, "list_closes", closes)
    build_series(samples, snapshot)
    assert sum(asked) <= POINTS
    read = len(asked)
    build_series(samples, snapshot)
    assert len(asked) <= read + 1  # the open round has no close yet, so it is queried again


def test_the_series_of_a_study(learned: Service) -> None:
    series = write_record(build_series(RoundSamples(learned.store), learned.policy_cache.snapshot("feed")))
    assert (series["first"], series["last"], series["stride"]) == (1, 4, 1)
    assert series["policy"]["versions"] == [1, 2, 3, 4]
    sums = [sum(parts) for parts in zip(*series["policy"]["shares"], strict=True)]
    assert sums == pytest.approx([1.0] * 4)
    goal, rail = series["metrics"]
    assert (goal["name"], goal["role"], rail["name"], rail["role"]) == ("watch", "goal", "likes", "guardrail")
    assert (rail["at"], rail["floor"], rail["side"]) == (-20.0, -90.0, "at_least")
    assert rail["judged"] == "against the control"
    assert goal["rounds"] == [1, 2, 3]
    for low, value, high in zip(goal["low"], goal["value"], goal["high"], strict=True):
        assert low < value < high
    for served, control, value in zip(goal["served"], goal["control"], goal["value"], strict=True):
        assert 100.0 * (served / control - 1.0) == pytest.approx(value)


def test_a_range_of_rounds_alone(learned: Service) -> None:
    series = write_record(build_series(RoundSamples(learned.store), learned.policy_cache.snapshot("feed"), 2, 3))
    assert series["policy"]["versions"] == [2, 3]
    assert series["metrics"][0]["rounds"] == [2, 3]


def test_a_hundred_candidates_are_a_few_leaders_and_the_rest() -> None:
    shares = tuple((f"c{k}", (100 - k) / 5050) for k in range(40))
    others = sum((100 - k) / 5050 for k in range(40, 100))
    series = write_record(
        build_policy_series([PolicySample(version, "learning", shares, others, 100) for version in (1, 2)])
    )
    assert series["names"] == [f"c{k}" for k in range(MAX_LEADERS)]
    assert series["others"]["name"] == "93 others"
    for at in (0, 1):
        total = sum(line[at] for line in series["shares"]) + series["others"]["shares"][at]
        assert total == pytest.approx(1.0)
