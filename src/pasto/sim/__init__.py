"""Worlds with a known truth, and learners run on them many times over.

A new world is a new file and one line here.
"""

from collections.abc import Callable, Mapping

from pasto.sim.ads import ads
from pasto.sim.application import Application, Conditions, Known, known
from pasto.sim.drift import Drifting, drift
from pasto.sim.feed import feed
from pasto.sim.paper_worlds import example_a, synthetic_b
from pasto.sim.results import Gains, Progress, Trace, relative_gain, spaced
from pasto.sim.runner import Moment, monte_carlo
from pasto.sim.shop import shop
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
