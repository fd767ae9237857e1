"""Learners: from rounds of noisy observations to the next policy, and to the answer.

A new learner is a new file and one line in `LEARNERS`.
"""

from __future__ import annotations

from typing import Any

from pasto.errors import OptionError
from pasto.optimize.learners.algorithm1 import Algorithm1
from pasto.optimize.learners.base import Learner, LearningProblem, RoundResult
from pasto.optimize.learners.scgd import Scgd
from pasto.optimize.learners.thompson import Thompson

LEARNERS: dict[str, type[Algorithm1] | type[Scgd] | type[Thompson]] = {
    "thompson": Thompson,
    "pasto": Algorithm1,
    "scgd": Scgd,
}


def learner(choice: str | Learner[Any]) -> Learner[Any]:
    """A learner by its name, with default settings; a ready-made one is returned as it is.

    >>> learner("pasto").name
    'pasto'
    """
    if not isinstance(choice, str):
        return choice
    if choice not in LEARNERS:
        raise OptionError(f"no learner is called {choice!r}; there are {', '.join(map(repr, LEARNERS))}")
    return LEARNERS[choice]()


__all__ = ["LEARNERS", "Algorithm1", "Learner", "LearningProblem", "RoundResult", "Scgd", "Thompson", "learner"]
