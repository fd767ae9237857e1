"""Simulation: worlds with known means, applications with simulated users, and Monte Carlo runs of learners.

A new world is a new file and one line here.
"""

from collections.abc import Callable, Mapping

from pasto.sim.ads import ads
from pasto.sim.application import Conditions, KnownMeans, SimulatedApplication, known_means
from pasto.sim.drift import DriftingWorld, drift
from pasto.sim.feed import feed
from pasto.sim.results import LearningTrace, Progress, RelativeGains, checkpoint_rounds, relative_gain
from pasto.sim.runner import RunRound, monte_carlo
from pasto.sim.shop import shop
from pasto.sim.world import World, example_a, synthetic_b, table

APPLICATIONS: Mapping[str, Callable[[], SimulatedApplication]] = {"feed": feed, "ads": ads, "shop": shop}
"""Applications with simulated users, by name."""

__all__ = [
    "APPLICATIONS",
    "Conditions",
    "DriftingWorld",
    "KnownMeans",
    "LearningTrace",
    "Progress",
    "RelativeGains",
    "RunRound",
    "SimulatedApplication",
    "World",
    "ads",
    "checkpoint_rounds",
    "drift",
    "example_a",
    "feed",
    "known_means",
    "monte_carlo",
    "relative_gain",
    "shop",
    "synthetic_b",
    "table",
]
