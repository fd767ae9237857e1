"""Assignments of many units: exact shares, independent shuffles, and few sticky units that change their candidate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from pasto.arrays import FloatArray
from pasto_sdk.policy import PublishedPolicy

Make = Callable[..., PublishedPolicy]

SHARES = [0.02, 0.03, 0.05, 0.1, 0.2, 0.25, 0.35]
LEARNING = [
    ("control", 0, 0.1),
    *(("learner", k, 0.8 * share) for k, share in enumerate(SHARES)),
    ("not_enrolled", 0, 0.1),
]
CONFIRMING = [("control", 0, 0.25), ("best_single", 3, 0.25), ("blend", 1, 0.2), ("blend", 3, 0.2), ("blend", 6, 0.1)]


def fit(policy: PublishedPolicy, count: int) -> float:
    """Return the probability of counts that fit the propensities worse, if the propensities are true."""
    counts_by_cell = Counter((cell.arm, cell.candidate) for cell in policy.draw_many(f"unit-{n}" for n in range(count)))
    counts = [counts_by_cell[cell.arm, cell.candidate] for cell in policy.cells]
    assert sum(counts) == count
    return float(stats.chisquare(counts, [count * cell.propensity for cell in policy.cells]).pvalue)


def check_shares(made: Make, count: int) -> None:
    assert fit(made(LEARNING), count) > 0.001
    assert fit(made(CONFIRMING, mode="sticky", salt="feed"), count) > 0.001
    assert fit(made([("blend", k, share) for k, share in enumerate(SHARES)], mode="sticky"), count) > 0.001


def test_draws_follow_their_propensities(made: Make) -> None:
    check_shares(made, 100_000)


@pytest.mark.services
def test_a_million_draws_follow_their_propensities(made: Make) -> None:
    check_shares(made, 1_000_000)


def dependence(first: PublishedPolicy, second: PublishedPolicy, count: int) -> float:
    """Return the probability of a more dependent table of two draws, if the draws are independent."""
    listed = [f"unit-{number}" for number in range(count)]
    table = np.zeros((len(SHARES), len(SHARES)))
    for one, other in zip(first.draw_many(listed), second.draw_many(listed), strict=True):
        table[one.candidate, other.candidate] += 1
    return float(stats.chi2_contingency(table).pvalue)


@pytest.mark.parametrize("mode", ["shuffled", "sticky"])
def test_two_studies_are_independent(made: Make, mode: str) -> None:
    shares = [("learner", k, share) for k, share in enumerate(SHARES)]
    feed, search = made(shares, salt="feed/1", mode=mode), made(shares, salt="search/1", mode=mode)
    assert dependence(feed, search, 30_000) > 0.001
    assert dependence(feed, feed, 30_000) < 1e-9


def test_two_versions_of_a_study_are_independent(made: Make) -> None:
    shares = [("learner", k, share) for k, share in enumerate(SHARES)]
    assert dependence(made(shares, salt="feed/1"), made(shares, salt="feed/2", version=2), 30_000) > 0.001


def test_a_sticky_unit_and_its_arm_are_independent_of_its_candidate(made: Make) -> None:
    shares = [
        ("best_single", 0, 0.1),
        ("best_single", 1, 0.2),
        ("best_single", 2, 0.2),
        ("blend", 0, 0.1),
        ("blend", 1, 0.2),
    ]
    policy = made([*shares, ("blend", 2, 0.2)], mode="sticky")
    table = np.zeros((2, 3))
    for cell in policy.draw_many(f"unit-{number}" for number in range(30_000)):
        table[int(cell.arm == "blend"), cell.candidate] += 1
    assert stats.chi2_contingency(table).pvalue > 0.001


Change = Callable[[np.random.Generator, FloatArray], FloatArray]


def draw_shares(rng: np.random.Generator, shares: FloatArray) -> FloatArray:
    return rng.dirichlet(np.ones(len(shares)))


def nearby(rng: np.random.Generator, shares: FloatArray) -> FloatArray:
    changed: FloatArray = shares * np.exp(rng.normal(0, 0.2, len(shares)))
    changed /= changed.sum()
    return changed


def churn(made: Make, change: Change, changes: int, count: int) -> tuple[float, float]:
    """Return units moved divided by total variation at K = 10, averaged over random changes, for two sticky methods."""
    rng = np.random.default_rng(5)
    listed = [f"unit-{number}" for number in range(count)]
    ratios: dict[str, list[float]] = {"sticky": [], "shuffled": []}
    for _ in range(changes):
        before = rng.dirichlet(np.ones(10))
        after = change(rng, before)
        for mode, found in ratios.items():
            drawn = []
            for shares in (before, after):
                policy = made([("blend", k, float(share)) for k, share in enumerate(shares)], mode=mode, salt="feed")
                drawn.append([cell.candidate for cell in policy.draw_many(listed)])
            moved = np.mean(np.array(drawn[0]) != np.array(drawn[1]))
            found.append(float(moved / (np.abs(before - after).sum() / 2)))
    return float(np.mean(ratios["sticky"])), float(np.mean(ratios["shuffled"]))


@pytest.mark.parametrize("change", [draw_shares, nearby])
def test_few_sticky_units_move(made: Make, change: Change) -> None:
    sticky, line = churn(made, change, changes=15, count=1500)
    assert sticky <= 1.4
    assert line > sticky


@pytest.mark.services
@pytest.mark.parametrize("change", [draw_shares, nearby])
def test_few_sticky_units_move_over_many_changes(made: Make, change: Change) -> None:
    assert churn(made, change, changes=100, count=4000)[0] <= 1.4


def test_a_sticky_unit_moves_only_to_a_candidate_that_grew(made: Make) -> None:
    listed = [f"unit-{number}" for number in range(3000)]
    before = made([("blend", 0, 0.5), ("blend", 1, 0.3), ("blend", 2, 0.2)], mode="sticky")
    after = made([("blend", 0, 0.7), ("blend", 1, 0.18), ("blend", 2, 0.12)], mode="sticky")
    moved = {
        (one.candidate, other.candidate)
        for one, other in zip(before.draw_many(listed), after.draw_many(listed), strict=True)
        if one.candidate != other.candidate
    }
    assert moved == {(1, 0), (2, 0)}
