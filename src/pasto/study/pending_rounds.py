"""Pending rounds: asked for, and not learned yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import AlreadyAnsweredError, StateError, UnknownAssignmentError
from pasto.estimate import ControlMeans, Sample
from pasto.optimize.learners.base import RoundResult
from pasto.records import Policy


@dataclass(slots=True)
class PendingAssignment:
    """One assignment: waiting for its measurement, measured (`metrics` is set) or dropped."""

    candidate: int
    probability: float
    metrics: list[float] | None = None
    errors: list[float] | None = None
    dropped: bool = False
    control: bool = False
    units: float | None = None

    @property
    def open(self) -> bool:
        """Return whether it still waits for its measurement."""
        return self.metrics is None and not self.dropped


@dataclass(slots=True)
class PendingRound:
    """One ask: the policy that its assignments were drawn from, and a slot for each assignment."""

    policy: Policy
    slots: list[PendingAssignment] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Return whether every assignment was measured or dropped."""
        return not any(slot.open for slot in self.slots)

    def learned(self) -> RoundResult | None:
        """Return the round as a learner sees it; None if the policy's own assignments were all dropped."""
        measured = [slot for slot in self.slots if slot.metrics is not None]
        own = [slot for slot in measured if not slot.control]
        if not own:
            return None
        if _units(measured) is None:  # units of some assignments alone cannot be compared with the others
            measured = [replace(slot, units=None) for slot in measured]
            own = [slot for slot in measured if not slot.control]
        candidates = np.array([slot.candidate for slot in own], dtype=np.intp)
        served = np.array(self.policy.probabilities)
        return RoundResult(
            served=served,
            sample=Sample(
                candidates=candidates,
                metrics=np.array([slot.metrics for slot in own], dtype=float),
                probabilities=served[candidates],
                shares=np.full(len(own), 1.0 / len(own)),
            ),
            covariances=_covariances(own),
            units=_units(own),
            control=_control([slot for slot in measured if slot.control]),
        )

    def to_saved(self) -> dict[str, Any]:
        """Return a plain JSON value."""
        return {
            "version": self.policy.version,
            "probabilities": list(self.policy.probabilities),
            "slots": [
                [s.candidate, s.probability, s.metrics, s.errors, s.dropped, s.control, s.units] for s in self.slots
            ],
        }

    @classmethod
    def from_saved(cls, saved: dict[str, Any]) -> PendingRound:
        """Read what `to_saved` wrote."""
        try:
            policy = Policy(saved["version"], tuple(saved["probabilities"]))
            return cls(policy, [PendingAssignment(*slot) for slot in saved["slots"]])
        except (KeyError, TypeError) as error:
            raise StateError(f"a pending round in the saved state cannot be read: {error}") from error


def find_assignment(rounds: dict[int, PendingRound], identity: str, asked: int) -> tuple[int, PendingAssignment]:
    """Return the round and open slot that an assignment's id names; `asked` is the number of rounds asked so far."""
    number, _, place = identity.partition("/")
    if not (number.isdecimal() and place.isdecimal() and int(number) < asked):
        raise UnknownAssignmentError(f"this study never asked for an assignment {identity!r}")
    held = rounds.get(int(number))
    if held is None:
        raise AlreadyAnsweredError(
            f"assignment {identity!r} belongs to a round that has been learned; it cannot be told again"
        )
    if int(place) >= len(held.slots):
        raise UnknownAssignmentError(f"this study never asked for an assignment {identity!r}")
    slot = held.slots[int(place)]
    if not slot.open:
        verb = "dropped" if slot.dropped else "told"
        raise AlreadyAnsweredError(f"assignment {identity!r} was {verb} before; tell each assignment once")
    return int(number), slot


def _control(slots: list[PendingAssignment]) -> ControlMeans | None:
    """Return the control's mean and its covariance; None without control slots, or without their standard errors."""
    covariances = _covariances(slots)
    if not slots or covariances is None:
        return None
    metrics = np.array([slot.metrics for slot in slots], dtype=float)
    units = _units(slots)
    shares = np.full(len(slots), 1.0 / len(slots)) if units is None else units / units.sum()
    covariance = np.einsum("q,qij->ij", np.square(shares), covariances)
    return ControlMeans(shares @ metrics, covariance, float(len(slots) if units is None else units.sum()))


def _covariances(slots: list[PendingAssignment]) -> FloatArray | None:
    """Return diagonal covariances from the slots' standard errors; None unless every slot has them."""
    if any(slot.errors is None for slot in slots):
        return None
    return np.array([np.diag(np.square(slot.errors)) for slot in slots if slot.errors is not None])


def _units(slots: list[PendingAssignment]) -> FloatArray | None:
    """Return the number of units of each slot; None unless every slot has it."""
    units = [slot.units for slot in slots]
    return None if any(count is None for count in units) else np.array(units, dtype=float)


@dataclass(frozen=True, slots=True)
class CorrectableRounds:
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

    def with_round(self, policy: Policy) -> CorrectableRounds:
        """The same and one more round."""
        return replace(self, policies={**self.policies, policy.version: policy})

    def settled(self, version: int, learned: Any) -> CorrectableRounds:
        """Without the oldest round, which the learner's state now knows for good."""
        rest = {other: policy for other, policy in self.policies.items() if other != version}
        return CorrectableRounds(learned, self.rounds + 1, rest)

    def widened(self, learned: Any, candidates: int) -> CorrectableRounds:
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
    def from_saved(cls, saved: Mapping[str, Any], load: Callable[[Any], Any]) -> CorrectableRounds:
        """What `to_saved` wrote."""
        policies = {version: Policy(version, tuple(shares)) for version, shares in saved["policies"]}
        return cls(load(saved["learned"]), saved["rounds"], policies)
