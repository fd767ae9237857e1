"""Rounding: differences between policies and verdicts that another kind of arithmetic explains."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

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
        rest = [_leave_out_cells(text) for text in (computed, published)]
    except (PastoError, KeyError, TypeError, ValueError):  # a damaged text
        return math.inf
    first, second = map(_list_shares, policies)
    in_other_order = [cell for cell in first if cell in second] != [cell for cell in second if cell in first]
    if rest[0] != rest[1] or in_other_order or not _candidates_match(*policies):
        return math.inf
    return max(abs(first.get(cell, 0.0) - second.get(cell, 0.0)) for cell in {*first, *second})


def _leave_out_cells(text: str) -> dict[str, Any]:
    """Return a policy's document without its cells, its candidates and its checksum."""
    document: dict[str, Any] = json.loads(upgrade_policy(text))
    for part in ("cells", "candidates", "sha256"):
        document.pop(part, None)
    for distribution in (document.get("segments") or {}).get("distributions", ()):
        del distribution["cells"]
    return document


def _list_shares(policy: PublishedPolicy) -> dict[tuple[str | None, str, int], float]:
    """Return the share of each cell by segment, arm and candidate, in order."""
    lines = policy.cells_by_segment.values() or (policy.cells,)
    return {(cell.segment, cell.arm, cell.candidate): cell.propensity for line in lines for cell in line}


def _candidates_match(first: PublishedPolicy, second: PublishedPolicy) -> bool:
    """Return whether the candidates of both policies are the same ones, except for rounded parameters."""
    return all(
        candidate.candidate == other.candidate
        and candidate.values.keys() == other.values.keys()
        and all(_values_match(value, other.values[parameter]) for parameter, value in candidate.values.items())
        for name, candidate in first.named.items()
        if (other := second.named.get(name)) is not None
    )


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
