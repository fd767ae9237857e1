"""Assignments and the policy that they are drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pasto_sdk.policy_document import Value


@dataclass(frozen=True, slots=True)
class Assignment:
    """One unit's candidate, with the probability it was drawn with.

    >>> Assignment(id="0/0", round=0, version=0, candidate=1, name="b", values={"weight": 2}, propensity=0.5).name
    'b'
    """

    id: str
    """Unique within the study: round and slot."""
    round: int
    version: int
    """The version of the policy it was drawn from."""
    candidate: int
    name: str
    values: Mapping[str, Value]
    propensity: float
    """The probability that the draw really used; every estimator must use it."""
    control: bool = False
    """Held on the baseline by design; its propensity is then the control's share."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Distribution over candidates that is served now, p_t, with a version.

    >>> Policy(version=0, probabilities=(0.5, 0.5)).version
    0
    """

    version: int
    probabilities: tuple[float, ...]
    """Over the candidates; with segments, of all traffic together."""
    segments: Mapping[str, tuple[float, ...]] = field(default_factory=dict, hash=False)
    """The distribution of each segment, by name; empty without segments."""
