"""Real users whose metrics under every candidate are known, and learners that see only random parts of them."""

from pasto.paper.replay.cache import Cache, fingerprint
from pasto.paper.replay.course import Course, tabulate
from pasto.paper.replay.crowd import Crowd
from pasto.paper.replay.learned import Learned, learn_by_algorithm1, learn_by_default
from pasto.paper.replay.worth import Halves, halves

__all__ = [
    "Cache",
    "Course",
    "Crowd",
    "Halves",
    "Learned",
    "fingerprint",
    "halves",
    "learn_by_algorithm1",
    "learn_by_default",
    "tabulate",
]
