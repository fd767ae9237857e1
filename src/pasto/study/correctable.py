"""Rounds that were learned and may still be corrected: what was known before them, and what they served."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pasto.records import Policy


@dataclass(frozen=True, slots=True)
class Correctable:
    """The rounds at the end of what was learned that are not final yet.

    They can be learned anew from what was known before the oldest of them, so a correction costs as much as they are
    many, however old the study is.
    """

    learned: Any
    """The learner's state before the oldest of them."""
    rounds: int
    """How many rounds that state has learned."""
    policies: Mapping[int, Policy]
    """What each of them served, by version, in the order they were learned."""

    def with_round(self, policy: Policy) -> Correctable:
        """The same and one more round."""
        return replace(self, policies={**self.policies, policy.version: policy})

    def settled(self, version: int, learned: Any) -> Correctable:
        """Without the oldest round, which the learner's state now knows for good."""
        rest = {other: policy for other, policy in self.policies.items() if other != version}
        return Correctable(learned, self.rounds + 1, rest)

    def widened(self, learned: Any, candidates: int) -> Correctable:
        """Described over more candidates, which none of the rounds served."""
        return replace(
            self,
            learned=learned,
            policies={
                version: replace(
                    old, probabilities=(*old.probabilities, *([0.0] * (candidates - len(old.probabilities))))
                )
                for version, old in self.policies.items()
            },
        )

    def to_saved(self, save: Callable[[Any], Any]) -> dict[str, Any]:
        """A plain JSON value; `save` writes a learner's state."""
        return {
            "learned": save(self.learned),
            "rounds": self.rounds,
            "policies": [[version, list(policy.probabilities)] for version, policy in self.policies.items()],
        }

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any], load: Callable[[Any], Any]) -> Correctable:
        """What `to_saved` wrote."""
        policies = {version: Policy(version, tuple(shares)) for version, shares in saved["policies"]}
        return cls(load(saved["learned"]), saved["rounds"], policies)
