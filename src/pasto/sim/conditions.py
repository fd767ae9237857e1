"""What makes real traffic harder than a table of means: night and day, events that come late or never."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.errors import BadOption


@dataclass(frozen=True, slots=True)
class Conditions:
    """How rough traffic is; by default it is as smooth as can be.

    None of it favours a candidate, so lifts over a concurrent control stay what they are, while levels do not.

    >>> Conditions(night=0.3, day=4).mood(1), Conditions(night=0.3, day=4).mood(3)
    (1.3, 0.7)
    """

    night: float = 0.0
    """How far the users' mood swings up and down, as a share."""
    day: int = 12
    """Rounds from one noon to the next."""
    late: float = 0.0
    """The share of events that come when their round is over."""
    lost: float = 0.0
    """The share of events that never come."""

    def __post_init__(self) -> None:
        for name in ("night", "late", "lost"):
            if not 0 <= getattr(self, name) < 1:
                raise BadOption(f"{name}= must be a share from 0 to below 1, got {getattr(self, name)!r}")
        if self.late + self.lost >= 1:
            raise BadOption(f"late= and lost= must leave some events, got {self.late:g} and {self.lost:g}")
        if self.day < 2:
            raise BadOption(f"day= must be at least 2 rounds, got {self.day!r}")

    def mood(self, round: int) -> float:
        """What the hour does to all users alike; 1 on average over a day."""
        return 1.0 + self.night * math.sin(2.0 * math.pi * round / self.day)

    def fates(self, events: int, rng: np.random.Generator) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which of some events come late, and which never; (events,) each."""
        chance = rng.random(events)
        return chance < self.late, (chance >= self.late) & (chance < self.late + self.lost)
