"""How a floor or a step changes from round to round."""

from __future__ import annotations

from dataclasses import dataclass

from pasto.errors import BadOption


@dataclass(frozen=True, slots=True)
class Schedule:
    """The value min(limit, scale / (t + offset)^power) in round t, counted from 1.

    >>> Schedule(0.1, offset=10).at(90)                     # the paper's ε_t = 0.1/√(t + 10)
    0.01
    >>> Schedule(2.0, limit=0.75).at(1)                     # the theorem's ε_t = G/√t, clipped
    0.75
    >>> Schedule(1.0, offset=1, power=1.0).at(3)            # b_t = 1/(t + 1)
    0.25
    """

    scale: float
    offset: float = 0.0
    power: float = 0.5
    limit: float = 1.0

    def __post_init__(self) -> None:
        if not (self.scale >= 0 and self.offset >= 0 and self.power >= 0 and self.limit >= 0):
            raise BadOption(f"a schedule's scale, offset, power and limit are not negative, got {self}")

    def at(self, round: int) -> float:
        """The value in that round, counted from 1."""
        return float(min(self.limit, self.scale / (round + self.offset) ** self.power))


def constant(value: float) -> Schedule:
    """The same value in every round.

    >>> constant(0.001).at(7)
    0.001
    """
    return Schedule(value, power=0.0, limit=value)
