"""Counts of certified guardrails: how many are stated with the confidence and no more, and how many of them hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.blend import Certificate

BINDING_WITHIN = 1e-3
"""A guardrail is binding if its stated probability exceeds the confidence by less than this."""
SLACK_TOLERANCE = 1e-12
"""Of the true slack of a guardrail that holds."""


def count_guardrails(
    certificate: Certificate | None, slack: FloatArray, hard: NDArray[np.bool_] | None = None
) -> tuple[int, int]:
    """Return the number of binding guardrails, and of those that truly hold; none if nothing is certified.

    `slack` has the true slack of each guardrail of the certificate, in its order; `hard` names those that count.
    """
    if certificate is None or not certificate.certified:
        return 0, 0
    binding = np.array([chance < certificate.confidence + BINDING_WITHIN for chance in certificate.holds.values()])
    if hard is not None:
        binding &= hard
    return int(binding.sum()), int((binding & (slack >= -SLACK_TOLERANCE)).sum())


def share_held(counts: FloatArray) -> tuple[float, float]:
    """Return the share of binding guardrails that hold and its standard error; NaN without binding ones.

    `counts` has a row (binding, holding) for each independent study. Answers of one study depend on each other.

    >>> share_held(np.array([[2, 2], [2, 1]]))
    (0.75, 0.1767766952966369)
    """
    binding, holds = np.asarray(counts, dtype=float).reshape(-1, 2).T
    total = float(binding.sum())
    if not total:
        return float("nan"), float("nan")
    share = float(holds.sum()) / total
    return share, float(np.sqrt(np.square(holds - share * binding).sum())) / total


def format_share_held(counts: FloatArray) -> str | None:
    """Return the share in percent with its error, or the number if all hold; None without binding guardrails.

    >>> format_share_held(np.array([[2, 2], [2, 1]])), format_share_held(np.array([[3, 3]]))
    ('75.0 ± 17.7 %', '3 of 3')
    """
    binding, holds = np.asarray(counts).reshape(-1, 2).sum(axis=0).astype(int).tolist()
    if binding == holds:  # a standard error of zero would claim too much
        return f"{holds} of {binding}" if binding else None
    share, error = share_held(counts)
    return f"{100 * share:.1f} ± {100 * error:.1f} %"
