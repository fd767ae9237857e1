"""The policy a client decides by: taken whole, replaced whole, and read without a lock."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pasto_sdk.decision import Decision
from pasto_sdk.errors import PolicyError
from pasto_sdk.exposure_signature import sign_exposure
from pasto_sdk.policy import PublishedPolicy

LATER = 60.0
"""Seconds by which a policy of an earlier version must be younger to be believed; clocks of nodes differ by less."""


class DecisionCache:
    """The last decision of each unit, for the units that came lately; the rest are forgotten.

    Two generations: what is asked for moves to the young one, and when that is full the old one goes. So the units
    that come often stay, at the price of one dictionary lookup.

    >>> remembered = DecisionCache(size=2)
    >>> remembered.get("somebody") is None
    True
    """

    __slots__ = ("_size", "old", "young")

    def __init__(self, size: int) -> None:
        self._size = size
        self.young: dict[str, Decision] = {}
        self.old: dict[str, Decision] = {}

    def get(self, unit: str) -> Decision | None:
        """The unit's last decision."""
        decision = self.young.get(unit)
        if decision is None and (decision := self.old.get(unit)) is not None:
            self.put(unit, decision)
        return decision

    def put(self, unit: str, decision: Decision) -> None:
        """Remember a unit's last decision."""
        if len(self.young) >= self._size:
            self.old, self.young = self.young, {}
        self.young[unit] = decision

    def forget(self, unit: str) -> None:
        """Decide anew when the unit comes again."""
        self.young.pop(unit, None)
        self.old.pop(unit, None)


@dataclass(frozen=True, slots=True)
class PolicyState:
    """What holds at one moment."""

    policy: PublishedPolicy | None
    until: float
    """When it expires, on the client's clock."""
    remembered: DecisionCache
    contact: float = -math.inf
    """When the service last confirmed it, on the same clock."""


@dataclass(slots=True)
class PolicyHolder:
    """Holds the last good policy: only a better one replaces it, and only time makes it stale."""

    study: str
    clock: Callable[[], float]
    size: int
    """How many units to remember, in each of two generations."""
    live: PolicyState = field(init=False)
    heard: bool = field(init=False, default=False)
    """Whether the service itself has spoken, beside what was found on disk."""
    signing_key: str = field(init=False, default="", repr=False)
    """The key that the service gave to sign exposures with, in memory only; empty if it gave none."""

    def __post_init__(self) -> None:
        self.live = PolicyState(None, -math.inf, DecisionCache(self.size))

    def offer(self, text: str | bytes, checksum: str | None, *, age: float = 0.0) -> PublishedPolicy:
        """Take a policy, confirmed `age` seconds ago, if it is whole and is not behind the one held; else BadPolicy.

        A version that goes back is a copy that came late, or a study that was made anew under the old name. The
        second is told by the service's own clock: it was published well after the one held. Once that has expired,
        whatever the service says is taken.
        """
        policy = PublishedPolicy.from_text(text, checksum)
        if policy.study != self.study:
            raise PolicyError(f"the policy is of study {policy.study!r}, and {self.study!r} was asked for")
        live = self.live
        held = live.policy
        if held is not None and policy.checksum != held.checksum and policy.version <= held.version:
            anew = policy.valid_from > held.valid_from + LATER
            if not anew and self.clock() < live.until:
                raise PolicyError(f"version {policy.version} was offered and version {held.version} is held already")
        same = held is not None and policy.checksum == held.checksum
        self._confirm(held if held is not None and same else policy, live.remembered if same else None, age)
        return policy

    def confirm(self) -> bool:
        """The service says that the policy held is still the one; False where none is."""
        if self.live.policy is None:
            return False
        self._confirm(self.live.policy, self.live.remembered, 0.0)
        return True

    @property
    def awaits_signing_key(self) -> bool:
        """Whether exposures must be signed, and the service has not been asked for the key yet."""
        policy = self.live.policy
        return policy is not None and policy.signed and not self.signing_key and not self.heard

    def sign(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return an event as it is sent: an exposure that is learned from gets a signature if there is a key."""
        if not self.signing_key or event["type"] != "exposure" or "fallback" in event or "override" in event:
            return event
        parts = {name: event[name] for name in ("version", "unit", "candidate")}
        return {**event, "signature": sign_exposure(self.signing_key, study=self.study, **parts)}

    def end(self) -> None:
        """The service says that the study serves no policy any more: what is held is stale from now on."""
        self.live = replace(self.live, until=-math.inf)

    def fresh(self) -> bool:
        """Whether there is a policy to decide by."""
        return self.live.policy is not None and self.clock() < self.live.until

    def current(self) -> bool:
        """Whether that policy is the service's own word, and not only what was found on disk."""
        return self.heard and self.fresh()

    def renew(self) -> None:
        """Keep the policy and nothing that other processes could share: what a child does after a fork."""
        self.live = replace(self.live, remembered=DecisionCache(self.size))

    def _confirm(self, policy: PublishedPolicy, remembered: DecisionCache | None, age: float) -> None:
        contact = self.clock() - age
        self.heard = self.heard or not age
        self.live = PolicyState(policy, contact + policy.expires_after, remembered or DecisionCache(self.size), contact)
