"""External assignment: another platform gives a unit its candidate, and PASTO draws the arm that the unit counts in.

The arms of a candidate serve the same values, so the arm can be drawn after the candidate: with P(arm | candidate) from
the published widths, arm and candidate together have the published shares. The draw depends on the unit and the salt
only, so that a unit keeps its arm, and every engine draws the same.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate

from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import BUCKET_TOTAL, Bucket

ARM_KEY = "arm"
"""Text between salt and unit in the hash of this draw."""
CACHED_POLICIES = 32


class ArmDraw:
    """Draw of the arm of a unit whose candidate is given.

    Its place is the top 53 bits of SHA-256(salt ‖ 0x00 ‖ "arm" ‖ 0x00 ‖ unit). The arms of a candidate divide [0, 2^53)
    by their widths.

    >>> from pasto_sdk.policy import publish_policy
    >>> policy = publish_policy(study="feed", version=1, round=1, state="learning", mode="shuffled", salt="feed/1",
    ...                  candidates={0: ("a", {}), 1: ("b", {})}, baseline=0,
    ...                  shares=[("control", 0, 0.25), ("learner", 0, 0.25), ("learner", 1, 0.5)],
    ...                  valid_from=0, expires_after=60)
    >>> draw = ArmDraw(policy)
    >>> [draw.bucket("ann", name).arm for name in ("a", "b")], draw.bucket("ann", "c") is None
    (['control', 'learner'], True)
    """

    def __init__(self, policy: PublishedPolicy) -> None:
        cells: dict[str, list[Bucket]] = {}
        for cell in policy.cells:
            cells.setdefault(cell.name, []).append(cell)
        self.cells = cells
        """Buckets of each served candidate, by its name."""
        self.cuts = {name: _cuts(own) for name, own in cells.items()}
        """Places at which all arms of a candidate end, except the last."""
        self._start = sha256(f"{policy.salt}\0{ARM_KEY}\0".encode())

    def bucket(self, unit: str, candidate: str) -> Bucket | None:
        """Return the bucket of a unit that was served a candidate; None if the policy does not serve it."""
        own = self.cells.get(candidate)
        if own is None:
            return None
        if len(own) == 1:
            return own[0]
        hashed = self._start.copy()
        hashed.update(unit.encode())
        place = int.from_bytes(hashed.digest()[:8], "big") >> 11
        return own[bisect_right(self.cuts[candidate], place)]


@lru_cache(CACHED_POLICIES)
def arm_draw(policy: PublishedPolicy) -> ArmDraw:
    """Return the draw of a policy, built once."""
    return ArmDraw(policy)


def _cuts(cells: list[Bucket]) -> list[int]:
    """Return the least integers that are at or above each arm's end in [0, 2^53)."""
    ends = list(accumulate(cell.width for cell in cells))
    return [-(-end * BUCKET_TOTAL // ends[-1]) for end in ends[:-1]]
