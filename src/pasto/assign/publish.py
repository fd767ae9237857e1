"""From shares to a document: the one place where a probability becomes a width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from pasto.assign.cell import WHOLE
from pasto.assign.document import FORMAT, Candidates, write
from pasto.assign.published import Published
from pasto.errors import BadPolicy

TOLERANCE = 1e-9
"""How far from one the shares may sum."""

_SCALE = 1074
"""Every float is a whole multiple of 2^−1074."""


def publish(
    *,
    study: str,
    version: int,
    round: int,
    state: str,
    mode: Literal["shuffled", "sticky"],
    salt: str,
    candidates: Candidates,
    baseline: int,
    shares: Sequence[tuple[str, int, float]],
    valid_from: float,
    expires_after: float,
    signed: bool = False,
) -> Published:
    """Publish shares of traffic, (arm, candidate, share) each, as an immutable policy.

    Shares sum to one; zero shares are left out, and any positive one is given at least one part of 2^53. The document
    holds the candidates that are served, and the baseline. With `signed`, it asks for signed exposures.

    >>> policy = publish(study="feed", version=3, round=3, state="deployed", mode="sticky", salt="feed",
    ...                  candidates={0: ("a", {"weight": 1}), 1: ("b", {"weight": 2})}, baseline=0,
    ...                  shares=[("control", 0, 0.25), ("blend", 0, 0.5), ("blend", 1, 0.25)],
    ...                  valid_from=0, expires_after=86400)
    >>> [(cell.arm, cell.name, cell.propensity) for cell in policy.cells]
    [('control', 'a', 0.25), ('blend', 'a', 0.5), ('blend', 'b', 0.25)]
    """
    for arm, candidate, share in shares:
        _check(arm, candidate, share, candidates)
    served = [(arm, candidate, share) for arm, candidate, share in shares if share > 0]
    total = math.fsum(share for _, _, share in served)
    if not abs(total - 1) <= TOLERANCE:
        raise BadPolicy(f"the shares must sum to one, and these {len(served)} sum to {total!r}; divide them by it")
    if baseline not in candidates:
        raise BadPolicy(f"baseline is {baseline!r}, which is not among the candidates")
    until = 0
    cells = []
    for (arm, candidate, _), width in zip(served, widths([share for _, _, share in served]), strict=True):
        until += width
        cells.append({"arm": arm, "candidate": int(candidate), "until": until})
    kept = sorted({baseline, *(candidate for _, candidate, _ in served)})
    document = {
        "format": FORMAT,
        "study": study,
        "version": version,
        "round": round,
        "state": state,
        "mode": mode,
        "salt": salt,
        "baseline": baseline,
        "candidates": [
            {"index": index, "name": candidates[index][0], "values": dict(candidates[index][1])} for index in kept
        ],
        "cells": cells,
        "valid_from": valid_from,
        "expires_after": expires_after,
        **({"signed": True} if signed else {}),
    }
    try:
        text = write(document)
    except (TypeError, ValueError) as error:
        raise BadPolicy(f"the policy cannot be written as JSON: {error}") from error
    return Published.from_text(text)


def widths(shares: Sequence[float]) -> list[int]:
    """Whole numbers that sum to 2^53, each at least 1 and within one of its share of it: largest remainders first.

    Exact and the same everywhere, for it counts in whole numbers only; equal remainders go in the order given. Only
    shares below 2^−53, which are raised to one part each, can cost the others more than one.

    >>> [width / WHOLE for width in widths([0.5, 0.25, 0.25])], sum(widths([1 / 3, 1 / 3, 1 / 3])) == WHOLE
    ([0.5, 0.25, 0.25], True)
    """
    exact = []
    for share in shares:
        numerator, denominator = float(share).as_integer_ratio()
        exact.append(numerator * (2**_SCALE // denominator))
    total = sum(exact)
    parts = [max(1, part * WHOLE // total) for part in exact]
    # By how much each falls short of what it should have, in units of 1/total: below zero where it was raised to 1.
    short = [part * WHOLE - width * total for part, width in zip(exact, parts, strict=True)]
    missing = WHOLE - sum(parts)
    if missing >= 0:
        for place in sorted(range(len(parts)), key=lambda place: -short[place])[:missing]:
            parts[place] += 1
        return parts
    while missing:
        givers = sorted((place for place in range(len(parts)) if parts[place] > 1), key=lambda place: short[place])
        for place in givers[:-missing]:
            parts[place] -= 1
            missing += 1
    return parts


def _check(arm: object, candidate: object, share: object, candidates: Mapping[int, object]) -> None:
    place = f"the share of candidate {candidate!r} in arm {arm!r}"
    if candidate not in candidates:
        raise BadPolicy(f"{place} names a candidate that is not among the {len(candidates)} given")
    if isinstance(share, bool) or not isinstance(share, (int, float)):
        raise BadPolicy(f"{place} must be a number, got {share!r}")
    if not 0 <= share <= 1 + TOLERANCE:
        raise BadPolicy(f"{place} must lie between 0 and 1, got {share!r}")
