"""Worlds with a known truth, and learners run on them many times over.

A new world is a new file and one line here.
"""

from collections.abc import Callable, Mapping

from pasto.sim.ads import ads
from pasto.sim.application import Application, Conditions, KnownMeans, known_means
from pasto.sim.drift import DriftingWorld, drift
from pasto.sim.feed import feed
from pasto.sim.paper_worlds import example_a, synthetic_b
from pasto.sim.results import LearningTrace, Progress, RelativeGains, relative_gain, spaced
from pasto.sim.runner import RunRound, monte_carlo
from pasto.sim.shop import shop
from pasto.sim.world import World, table

APPLICATIONS: Mapping[str, Callable[[], Application]] = {"feed": feed, "ads": ads, "shop": shop}
"""Applications with simulated users, by name."""

__all__ = [
    "APPLICATIONS",
    "Application",
    "Conditions",
    "DriftingWorld",
    "KnownMeans",
    "LearningTrace",
    "Progress",
    "RelativeGains",
    "RunRound",
    "World",
    "ads",
    "drift",
    "example_a",
    "feed",
    "known_means",
    "monte_carlo",
    "relative_gain",
    "shop",
    "spaced",
    "synthetic_b",
    "table",
]
