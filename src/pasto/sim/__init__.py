"""Worlds with a known truth, and learners run on them many times over.

A new world is a new file and one line here.
"""

from collections.abc import Callable, Mapping

from pasto.sim.ads import ads
from pasto.sim.application import Application
from pasto.sim.conditions import Conditions
from pasto.sim.drift import Drifting, drift
from pasto.sim.example_a import example_a
from pasto.sim.feed import feed
from pasto.sim.gain import Gains, relative_gain
from pasto.sim.known import Known, known
from pasto.sim.monte_carlo import monte_carlo
from pasto.sim.play import Moment
from pasto.sim.shop import shop
from pasto.sim.synthetic_b import synthetic_b
from pasto.sim.trace import Progress, Trace, spaced
from pasto.sim.world import World, table

APPLICATIONS: Mapping[str, Callable[[], Application]] = {"feed": feed, "ads": ads, "shop": shop}
"""Applications with simulated users, by name."""

__all__ = [
    "APPLICATIONS",
    "Application",
    "Conditions",
    "Drifting",
    "Gains",
    "Known",
    "Moment",
    "Progress",
    "Trace",
    "World",
    "ads",
    "drift",
    "example_a",
    "feed",
    "known",
    "monte_carlo",
    "relative_gain",
    "shop",
    "spaced",
    "synthetic_b",
    "table",
]
