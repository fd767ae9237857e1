"""Rounding: differences between policies and verdicts that another kind of arithmetic explains."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

from pasto.errors import PastoError
from pasto.report.records import ArmVerdict
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import Value, upgrade_policy

MAX_DIFFERENCE = 1e-9
"""Largest difference of a share, or relative one of a parameter, that other arithmetic explains."""
MAX_VERDICT_DIFFERENCE = 1e-3
"""Largest relative difference of a number of a verdict, which is stored with four digits."""


def measure_difference(computed: str, published: str) -> float:
    """Return the largest difference of a share between two policies; infinity if they differ in another part.

    Parameters of points that a learner found in a continuous space may differ as rounded numbers do.

    >>> from pasto_sdk.policy import publish_policy
    >>> first, second, third = (
    ...     publish_policy(study="feed", version=version, round=1, state="learning", mode="shuffled", salt="feed/1",
    ...                    candidates={0: ("a", {"w": 1}), 1: ("b", {"w": 2})}, baseline=0, valid_from=0,
    ...                    shares=[("control", 0, share), ("learner", 1, 1.0 - share)], expires_after=60).text
    ...     for version, share in ((1, 0.25), (1, 0.25 + 2**-30), (2, 0.25)))
    >>> measure_difference(first, second) == 2**-30, measure_difference(first, third)
    (True, inf)
    """
    try:
        policies = [PublishedPolicy.from_text(text) for text in (computed, published)]
        rest = [json.loads(upgrade_policy(text)) for text in (computed, published)]
    except (PastoError, KeyError, TypeError, ValueError):  # a damaged text
        return math.inf
    for document in rest:
        for part in ("cells", "candidates", "sha256"):
            document.pop(part, None)
    if rest[0] != rest[1]:
        return math.inf
    first, second = ({(cell.arm, cell.candidate): cell.propensity for cell in policy.cells} for policy in policies)
    if [pair for pair in first if pair in second] != [pair for pair in second if pair in first]:
        return math.inf
    for name, candidate in policies[0].named.items():
        other = policies[1].named.get(name)
        if other is not None and not (
            candidate.candidate == other.candidate
            and candidate.values.keys() == other.values.keys()
            and all(_values_match(value, other.values[parameter]) for parameter, value in candidate.values.items())
        ):
            return math.inf
    return max(abs(first.get(pair, 0.0) - second.get(pair, 0.0)) for pair in {*first, *second})


def _values_match(first: Value, second: Value) -> bool:
    """Return whether two values of a parameter differ by rounding at most."""
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=MAX_DIFFERENCE, abs_tol=MAX_DIFFERENCE)
    return type(first) is type(second) and first == second


def verdicts_match(computed: Sequence[ArmVerdict], recorded: Sequence[ArmVerdict]) -> bool:
    """Return whether verdicts are the recorded ones except for the last digit of their numbers."""

    def is_close(first: float | None, second: float | None) -> bool:
        if first is None or second is None:
            return first is second
        return math.isclose(first, second, rel_tol=MAX_VERDICT_DIFFERENCE)

    return len(computed) == len(recorded) and all(
        replace(first, p_value=second.p_value, allowed=second.allowed) == second
        and is_close(first.p_value, second.p_value)
        and is_close(first.allowed, second.allowed)
        for first, second in zip(computed, recorded, strict=True)
    )
