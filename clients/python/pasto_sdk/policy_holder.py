"""Holder of the policy that a client decides by: replaced as a whole, and read without a lock."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pasto_sdk.decision import Decision
from pasto_sdk.errors import PolicyError
from pasto_sdk.exposure_signature import sign_exposure
from pasto_sdk.policy import PublishedPolicy

MIN_RESTART_SECONDS = 60.0
"""Time by which a policy with a lower version must be newer to replace the held one; clocks of nodes differ by less."""


class DecisionCache:
    """Cache of the last decision of each recent unit.

    It has two generations. A unit that is looked up moves to the young one; if that is full, the old one is dropped.
    So frequent units stay, at the cost of one dictionary lookup.

    >>> cache = DecisionCache(size=2)
    >>> cache.get("user 7") is None
    True
    """

    __slots__ = ("_size", "old", "young")

    def __init__(self, size: int) -> None:
        self._size = size
        self.young: dict[str, Decision] = {}
        self.old: dict[str, Decision] = {}

    def get(self, unit: str) -> Decision | None:
        """Return the unit's last decision, or None."""
        decision = self.young.get(unit)
        if decision is None and (decision := self.old.get(unit)) is not None:
            self.put(unit, decision)
        return decision

    def put(self, unit: str, decision: Decision) -> None:
        """Store a unit's last decision."""
        if len(self.young) >= self._size:
            self.old, self.young = self.young, {}
        self.young[unit] = decision

    def forget(self, unit: str) -> None:
        """Remove a unit, so that its next decision is made again."""
        self.young.pop(unit, None)
        self.old.pop(unit, None)


@dataclass(frozen=True, slots=True)
class PolicyState:
    """Policy and decisions at one moment, replaced together."""

    policy: PublishedPolicy | None
    until: float
    """When it expires, on the client's clock."""
    decisions: DecisionCache
    not_enrolled: DecisionCache
    """Decisions of units that do not take part. They must not displace others, because most units may be among them."""
    contact: float = -math.inf
    """When the service last confirmed it, on the same clock."""
    reads_attributes: bool = False
    """True if a unit's decision also depends on its attributes."""


@dataclass(slots=True)
class PolicyHolder:
    """Holder of the last good policy: only a newer one replaces it, and it becomes stale with time."""

    study: str
    clock: Callable[[], float]
    size: int
    """Units in each of the two generations of the decision cache."""
    live: PolicyState = field(init=False)
    has_answered: bool = field(init=False, default=False)
    """True once the service itself has answered; a policy from disk does not count."""
    signing_key: str = field(init=False, default="", repr=False)
    """Key from the service to sign exposures with, in memory only; empty if there is none."""

    def __post_init__(self) -> None:
        self.live = PolicyState(None, -math.inf, DecisionCache(self.size), DecisionCache(self.size))

    def offer(self, text: str | bytes, checksum: str | None, *, age: float = 0.0) -> PublishedPolicy:
        """Take a policy, confirmed `age` seconds ago; raise PolicyError if it is damaged or older than the held one.

        A lower version is a late copy, or a study that was created again under the same name. In the second case it
        was published well after the held one, by the clock of the service. Once the held policy has expired, any
        policy of the service replaces it.
        """
        policy = PublishedPolicy.from_text(text, checksum)
        if policy.study != self.study:
            raise PolicyError(f"the policy is of study {policy.study!r}, and {self.study!r} is needed")
        live = self.live
        held = live.policy
        if held is not None and policy.checksum != held.checksum and policy.version <= held.version:
            is_restarted = policy.valid_from > held.valid_from + MIN_RESTART_SECONDS
            if not is_restarted and self.clock() < live.until:
                raise PolicyError(f"version {policy.version} is older than version {held.version}, which is held")
        same = held is not None and policy.checksum == held.checksum
        if held is not None and same:
            self._confirm(held, age, live)
        else:
            self._confirm(policy, age)
        return policy

    def confirm(self) -> bool:
        """Record that the held policy is still current; return False if none is held."""
        if self.live.policy is None:
            return False
        self._confirm(self.live.policy, 0.0, self.live)
        return True

    @property
    def awaits_signing_key(self) -> bool:
        """True if exposures must be signed and the service has not answered yet."""
        policy = self.live.policy
        return policy is not None and policy.signed and not self.signing_key and not self.has_answered

    def sign(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return an event as it is sent: exposures that count get a signature, if there is a key."""
        if not self.signing_key or event["type"] != "exposure" or "fallback" in event or "override" in event:
            return event
        parts = {name: event[name] for name in ("version", "unit", "candidate", "segment") if name in event}
        return {**event, "signature": sign_exposure(self.signing_key, study=self.study, **parts)}

    def end(self) -> None:
        """Make the held policy stale, because the study has stopped serving."""
        self.live = replace(self.live, until=-math.inf)

    def is_fresh(self) -> bool:
        """Return whether there is a policy that has not expired."""
        return self.live.policy is not None and self.clock() < self.live.until

    def is_current(self) -> bool:
        """Return whether that policy comes from the service, not only from disk."""
        return self.has_answered and self.is_fresh()

    def renew(self) -> None:
        """Keep the policy and drop cached decisions, in a child process after a fork."""
        self.live = replace(self.live, decisions=DecisionCache(self.size), not_enrolled=DecisionCache(self.size))

    def _confirm(self, policy: PublishedPolicy, age: float, held: PolicyState | None = None) -> None:
        """Make a policy the live one; the decisions of `held`, the state of the same policy, stay."""
        contact = self.clock() - age
        self.has_answered = self.has_answered or not age
        self.live = PolicyState(
            policy,
            contact + policy.expires_after,
            DecisionCache(self.size) if held is None else held.decisions,
            DecisionCache(self.size) if held is None else held.not_enrolled,
            contact,
            policy.reads_attributes,
        )
