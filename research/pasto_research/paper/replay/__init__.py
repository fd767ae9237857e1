"""Real users whose metrics under every candidate are known, and learners that see only random parts of them."""

from pasto_research.paper.replay.cache import Cache, fingerprint
from pasto_research.paper.replay.learner_runs import (
    Course,
    LearnerRuns,
    learn_by_algorithm1,
    learn_by_default,
    tabulate,
)
from pasto_research.paper.replay.users import UserSample
from pasto_research.paper.replay.value_of_mixing import Halves, halves

__all__ = [
    "Cache",
    "Course",
    "Halves",
    "LearnerRuns",
    "UserSample",
    "fingerprint",
    "halves",
    "learn_by_algorithm1",
    "learn_by_default",
    "tabulate",
]
