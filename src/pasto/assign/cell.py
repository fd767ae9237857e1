"""One piece of the line on which units fall."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pasto.records import Value

WHOLE = 2**53
"""How long the line is: every whole number up to it is exact in a float, in every language."""

ARMS = ("control", "learner", "outside", "single", "blend", "held")
"""Why a unit is served what it is served.

control: held on the baseline for comparison; learner: drawn by what is being learned; outside: not part of the
exploration; single and blend: the two answers being confirmed; held: everything stands still.
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """A candidate within an arm, and how much of the line [0, 2^53) is its own.

    >>> Cell(arm="learner", candidate=0, name="a", values={"weight": 2}, width=2**52, propensity=0.5).propensity
    0.5
    """

    arm: str
    """One of ARMS; "none" for a candidate that nobody draws, as a fallback or by override."""
    candidate: int
    """Its index in the study."""
    name: str
    values: Mapping[str, Value]
    width: int
    """Out of WHOLE; 0 where nobody draws it."""
    propensity: float
    """width / WHOLE, without any rounding: the probability of this arm and candidate together."""
