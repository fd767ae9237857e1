"""Learners: from rounds of noisy observations to the next policy, and to the answer.

A new learner is a new file and one line in `LEARNERS`.
"""

from __future__ import annotations

from typing import Any

from pasto.errors import OptionError
from pasto.optimize.learners.algorithm1 import Algorithm1
from pasto.optimize.learners.base import Learner, LearningProblem, RoundCovariates, RoundResult
from pasto.optimize.learners.scgd import Scgd
from pasto.optimize.learners.thompson import Thompson

LEARNERS: dict[str, type[Algorithm1] | type[Scgd] | type[Thompson]] = {
    "thompson": Thompson,
    "algorithm1": Algorithm1,
    "scgd": Scgd,
}

FORMER_NAMES = {"pasto": "algorithm1"}
"""Names of learners in study files and saved studies of older versions, and their names now."""


def current_name(name: str) -> str:
    """Return the present name of a learner; study files and saved studies may hold an older one.

    >>> current_name("pasto"), current_name("scgd")
    ('algorithm1', 'scgd')
    """
    return FORMER_NAMES.get(name, name)


def make_learner(choice: str | Learner[Any]) -> Learner[Any]:
    """Return a learner by its name, with default settings; a ready-made one is returned as it is.

    >>> make_learner("algorithm1").name
    'algorithm1'
    """
    if not isinstance(choice, str):
        return choice
    name = current_name(choice)
    if name not in LEARNERS:
        raise OptionError(f"no learner is called {choice!r}; there are {', '.join(map(repr, LEARNERS))}")
    return LEARNERS[name]()


__all__ = [
    "FORMER_NAMES",
    "LEARNERS",
    "Algorithm1",
    "Learner",
    "LearningProblem",
    "RoundCovariates",
    "RoundResult",
    "Scgd",
    "Thompson",
    "current_name",
    "make_learner",
]
