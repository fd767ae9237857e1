"""Real users whose metrics under every candidate are known, and learners that see only random parts of them."""

from pasto_research.paper.replay.cache import Cache, fingerprint
from pasto_research.paper.replay.learner_runs import Course, Learned, learn_by_algorithm1, learn_by_default, tabulate
from pasto_research.paper.replay.users import Crowd
from pasto_research.paper.replay.value_of_mixing import Halves, halves

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
