"""Counts of certified guardrails that hold."""

from __future__ import annotations

import numpy as np
import pytest

from pasto.blend import Certificate
from pasto_research.bench.guardrail_counts import count_guardrails, format_share_held, share_held

CHANCES = {"likes": 0.95, "shares": 0.9505, "views": 0.97, "visits": 0.95}


def test_binding_guardrails_are_counted_and_compared_with_the_truth() -> None:
    certificate, slack = Certificate(0.95, True, CHANCES, {}), np.array([0.1, -0.1, -0.1, 0.0])
    assert count_guardrails(certificate, slack) == (3, 2)
    assert count_guardrails(certificate, slack, hard=np.array([False, True, True, True])) == (2, 1)


def test_an_answer_without_a_certificate_promises_nothing() -> None:
    assert count_guardrails(Certificate(0.95, False, CHANCES, {}), np.ones(4)) == (0, 0)
    assert count_guardrails(None, np.ones(4)) == (0, 0)


def test_binding_follows_the_stated_confidence() -> None:
    assert count_guardrails(Certificate(0.5, True, {"likes": 0.95}, {}), np.ones(1)) == (0, 0)


def test_the_error_is_over_studies() -> None:
    """Compare ten answers of a study that all fail with ten studies of one answer each."""
    together, apart = np.array([[90, 90], [10, 0]]), np.array([[9, 9]] * 10 + [[1, 0]] * 10)
    assert share_held(together)[0] == share_held(apart)[0] == pytest.approx(0.9)
    assert share_held(together)[1] > 2 * share_held(apart)[1]
    assert format_share_held(np.zeros((2, 2))) is None
