"""Rounds that were asked and are not learned yet."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pasto.errors import AlreadyTold, BadState, UnknownAssignment
from pasto.estimate import ControlMeans, Sample
from pasto.optimize.learners.protocol import Array, Round
from pasto.records import Policy


@dataclass(slots=True)
class Slot:
    """One assignment's fate: waiting, told (metrics set) or dropped."""

    candidate: int
    probability: float
    metrics: list[float] | None = None
    errors: list[float] | None = None
    dropped: bool = False
    control: bool = False
    units: float | None = None

    @property
    def open(self) -> bool:
        """Whether it still waits for its measurement."""
        return self.metrics is None and not self.dropped


@dataclass(slots=True)
class PendingRound:
    """One ask: the policy its draws came from, and what became of each."""

    policy: Policy
    slots: list[Slot] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether every assignment was told or dropped."""
        return not any(slot.open for slot in self.slots)

    def learned(self) -> Round | None:
        """The round as a learner sees it; None where the policy's own assignments were all dropped."""
        told = [slot for slot in self.slots if slot.metrics is not None]
        own = [slot for slot in told if not slot.control]
        if not own:
            return None
        if _units(told) is None:  # units of some assignments alone cannot be compared with the others
            told = [replace(slot, units=None) for slot in told]
            own = [slot for slot in told if not slot.control]
        candidates = np.array([slot.candidate for slot in own], dtype=np.intp)
        served = np.array(self.policy.probabilities)
        return Round(
            served=served,
            sample=Sample(
                candidates=candidates,
                metrics=np.array([slot.metrics for slot in own], dtype=float),
                probabilities=served[candidates],
                shares=np.full(len(own), 1.0 / len(own)),
            ),
            covariances=_covariances(own),
            units=_units(own),
            control=_control([slot for slot in told if slot.control]),
        )

    def to_saved(self) -> dict[str, Any]:
        """A plain JSON value."""
        return {
            "version": self.policy.version,
            "probabilities": list(self.policy.probabilities),
            "slots": [
                [s.candidate, s.probability, s.metrics, s.errors, s.dropped, s.control, s.units] for s in self.slots
            ],
        }

    @classmethod
    def from_saved(cls, saved: dict[str, Any]) -> PendingRound:
        """What `to_saved` wrote."""
        try:
            policy = Policy(saved["version"], tuple(saved["probabilities"]))
            return cls(policy, [Slot(*slot) for slot in saved["slots"]])
        except (KeyError, TypeError) as error:
            raise BadState(f"a pending round in the saved state cannot be read: {error}") from error


def find(rounds: dict[int, PendingRound], identity: str, asked: int) -> tuple[int, Slot]:
    """The round and slot that an assignment's id names, still open; `asked` is how many rounds were asked in all."""
    number, _, place = identity.partition("/")
    if not (number.isdecimal() and place.isdecimal() and int(number) < asked):
        raise UnknownAssignment(f"this study never asked for an assignment {identity!r}")
    held = rounds.get(int(number))
    if held is None:
        raise AlreadyTold(f"assignment {identity!r} belongs to a round that has been learned; it cannot be told again")
    if int(place) >= len(held.slots):
        raise UnknownAssignment(f"this study never asked for an assignment {identity!r}")
    slot = held.slots[int(place)]
    if not slot.open:
        verb = "dropped" if slot.dropped else "told"
        raise AlreadyTold(f"assignment {identity!r} was {verb} before; tell each assignment once")
    return int(number), slot


def _control(told: list[Slot]) -> ControlMeans | None:
    """The control's mean and its covariance; None where there was none, or nobody knows its errors."""
    covariances = _covariances(told)
    if not told or covariances is None:
        return None
    metrics = np.array([slot.metrics for slot in told], dtype=float)
    units = _units(told)
    shares = np.full(len(told), 1.0 / len(told)) if units is None else units / units.sum()
    covariance = np.einsum("q,qij->ij", np.square(shares), covariances)
    return ControlMeans(shares @ metrics, covariance, float(len(told) if units is None else units.sum()))


def _covariances(told: list[Slot]) -> Array | None:
    """Diagonal covariances from the standard errors told; None unless every slot has them."""
    if any(slot.errors is None for slot in told):
        return None
    return np.array([np.diag(np.square(slot.errors)) for slot in told if slot.errors is not None])


def _units(told: list[Slot]) -> Array | None:
    """Return the units behind each slot; None unless every slot has them."""
    units = [slot.units for slot in told]
    return None if any(count is None for count in units) else np.array(units, dtype=float)
