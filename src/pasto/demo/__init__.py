"""The demonstration: a feed whose metrics compete, learned from simulated traffic in process."""

from pasto.demo.feed import Feed, make_feed
from pasto.demo.run import Result, Standing, Update, learn

__all__ = ["Feed", "Result", "Standing", "Update", "learn", "make_feed"]
