"""Policy history: the current policy of a study, and the past ones that wait for their observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pasto.errors import AlreadyAnsweredError, MeasurementError
from pasto.records import Policy

MIN_REMEMBERED_POLICIES = 32
"""Past policies that every study remembers, for rounds that are observed late."""

MAX_REMEMBERED_POLICIES = 500

MAX_REMEMBERED_SHARES = 50_000
"""Shares of past policies that a saved state holds: with few candidates it remembers more policies."""


def count_remembered_policies(candidates: int) -> int:
    """Return how many policies may wait for their observations at once.

    >>> count_remembered_policies(2), count_remembered_policies(1_000), count_remembered_policies(10_000)
    (500, 50, 32)
    """
    return max(MIN_REMEMBERED_POLICIES, min(MAX_REMEMBERED_POLICIES, MAX_REMEMBERED_SHARES // candidates))


class PolicyHistory:
    """Policies whose rounds are not observed yet, by version, and the current policy.

    >>> history = PolicyHistory(Policy(0, (0.5, 0.5)))
    >>> history.add(Policy(1, (0.2, 0.8)))
    >>> history.find(0).probabilities, history.current.version
    ((0.5, 0.5), 1)
    """

    def __init__(self, current: Policy, waiting: Mapping[int, Policy] | None = None) -> None:
        self.current = current
        self._waiting = {current.version: current} if waiting is None else dict(waiting)

    def add(self, policy: Policy) -> None:
        """Make a policy the current one, and forget the oldest ones if there are too many."""
        self.current = self._waiting[policy.version] = policy
        while len(self._waiting) > count_remembered_policies(len(policy.probabilities)):
            del self._waiting[min(self._waiting)]

    def find(self, version: int) -> Policy:
        """Return the policy of a version whose round is not observed yet; raise if there is none."""
        policy = self._waiting.get(version)
        if policy is not None:
            return policy
        if 0 <= version <= self.current.version:
            limit = count_remembered_policies(len(self.current.probabilities))
            raise AlreadyAnsweredError(
                f"policy version {version} was observed before, or is older than the {limit} versions that this study "
                "remembers"
            )
        raise MeasurementError(
            f"policy version {version!r} was never served; the current one is {self.current.version}"
        )

    def forget(self, version: int) -> None:
        """Remove a policy whose round is observed."""
        del self._waiting[version]

    def restore(self, policies: Mapping[int, Policy]) -> None:
        """Let policies wait again whose rounds are taken back."""
        self._waiting = dict(sorted({**self._waiting, **policies}.items()))

    def pad(self, candidates: int) -> None:
        """Describe every policy over more candidates."""
        self.current = pad_policy(self.current, candidates)
        self._waiting = {version: pad_policy(policy, candidates) for version, policy in self._waiting.items()}

    def to_saved(self) -> list[list[Any]]:
        """Return the waiting policies as a plain JSON value."""
        return [[version, list(policy.probabilities)] for version, policy in self._waiting.items()]

    @classmethod
    def from_saved(cls, saved: Sequence[Sequence[Any]], version: int) -> PolicyHistory:
        """Read what `to_saved` wrote; `version` is that of the current policy."""
        waiting = {number: Policy(number, tuple(shares)) for number, shares in saved}
        return cls(waiting[version], waiting)


def pad_policy(policy: Policy, candidates: int) -> Policy:
    """Return a policy over more candidates, which it did not serve.

    >>> pad_policy(Policy(3, (0.4, 0.6)), 3).probabilities
    (0.4, 0.6, 0.0)
    """
    missing = candidates - len(policy.probabilities)
    return replace(policy, probabilities=(*policy.probabilities, *([0.0] * missing)))
