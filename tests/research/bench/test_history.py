"""Warm-start benchmark: histories of a stated correlation, rounds to a level, small runs."""

from __future__ import annotations

import numpy as np
import pytest

from pasto_research.bench import history
from pasto_research.bench.history import CertificateTask, HistoryTask, checkpoints, past_results, rounds_to


@pytest.mark.parametrize("correlation", [0.9, 0.0, -0.5])
def test_a_history_has_the_correlation_and_the_spread_of_the_truth(correlation: float) -> None:
    truth = np.random.default_rng(1).uniform(-1, 1, (3, 4000))
    means, errors = past_results(truth, correlation, np.random.default_rng(2), stated_error=0.0)
    for past, row in zip(means, truth, strict=True):
        assert np.corrcoef(past, row)[0, 1] == pytest.approx(correlation, abs=0.05)
        assert past.std() == pytest.approx(row.std(), rel=0.05)
    assert not errors.any()


def test_rounds_are_read_from_a_curve_that_does_not_fall() -> None:
    gains, gaps = np.array([[0.0, 0.9, 0.5, 1.0]]), np.array([1.0])
    assert rounds_to(gains, gaps, (5, 10, 15, 20)) == pytest.approx(15 + 5 * 0.05 / 0.3)
    assert rounds_to(gains / 2, gaps, (5, 10, 15, 20)) == float("inf")
    assert checkpoints(60)[:4] == (2, 5, 10, 15)
    assert checkpoints(60)[-1] == 60


def test_a_row_compares_a_history_with_a_cold_start() -> None:
    marks = checkpoints(40)
    slow, fast = (history.HistoryCourse(tuple(min(1.0, mark / end) for mark in marks), 1.0) for end in (40, 20))
    rows = list(history.summarize_rounds("B", [slow] * 2 + [fast] * 8, marks))
    assert [row["rounds to r ≥ 0.75"] for row in rows] == [30, 15, 15, 15, 15]
    assert {row["instances"] for row in rows} == {2}
    assert (rows[1]["of the cold start"], rows[1]["interval"]) == ("0.50", "0.50 to 0.50")
    assert [row["r at 10"] for row in rows[:2]] == ["0.25 ± 0.00", "0.50 ± 0.00"]


def test_an_instance_and_a_study_run() -> None:
    course = history.run_instance(HistoryTask(0, 0.9, 0, 5, (2, 4)))
    assert len(course.gains) == 2
    assert course.gap > 0
    looks = history.run_study(CertificateTask(2, "at least", 0.9, 5))
    assert looks is not None
    assert all(0 <= holds <= binding for binding, holds in looks)


def test_certificates_of_all_worlds_count_seeds() -> None:
    """Compare two equal worlds, of one seed whose guardrails hold and one whose guardrails fail on one side."""
    good, bad = [(2, 2), (2, 2)], [(2, 1), (2, 0)]
    runs: dict[tuple[int, float | None], list[list[tuple[int, int]] | None]]
    runs = {(world, 0.9): [good, bad, good, None] for world in (0, 1)}
    rows = history.summarize_certificates(runs, 2).rows
    assert [row["world"] for row in rows[2:]] == ["all"]
    assert (rows[2]["binding after 3 rounds"], rows[2]["binding after 10 rounds"]) == (12, 12)
    assert rows[0]["hold after 3"] == rows[2]["hold after 3"] == "83.3 ± 15.7 %"
