"""The best blends of many programs of one shape at once."""

from __future__ import annotations

import numpy as np

from pasto.optimize.exact.best import best
from pasto.optimize.exact.interior import walk
from pasto.optimize.exact.program import Program, Solutions
from pasto.optimize.exact.scale import Scaled

WIDEST = 600
"""Above so many candidates one problem at a time is faster, because it prices them and carries only a few."""
CHUNK = 16_384
"""Shares carried at once: what stays in a processor's cache."""


def best_batch(program: Program) -> Solutions:
    """The best p of each problem; the same as `best` one by one, many times faster.

    goal (problems, candidates), slack (problems, guardrails, candidates).

    >>> import numpy as np
    >>> goal, slack = np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([[[-2.0, 2.0]], [[-2.0, 2.0]]])
    >>> best_batch(Program(goal, slack, np.array([np.inf]))).probabilities
    array([[0.5, 0.5],
           [0. , 1. ]])
    """
    count, width = program.goal.shape
    answer = Solutions(np.zeros((count, width)), np.zeros((count, len(program.penalties))), np.ones(count, dtype=bool))
    first = program.goal.argmax(axis=1)
    free = (program.slack[np.arange(count), :, first] >= 0.0).all(axis=1)
    answer.probabilities[np.flatnonzero(free), first[free]] = 1.0
    rest = np.flatnonzero(~free)
    size = max(1, CHUNK // width)
    for begin in range(0, len(rest), size):
        _solve(program, rest[begin : begin + size], answer)
    return answer


def _solve(program: Program, places: np.ndarray[tuple[int, ...], np.dtype[np.intp]], answer: Solutions) -> None:
    """Write the answers of some of the problems."""
    if program.goal.shape[1] <= WIDEST and len(places) > 2:
        scaled = Scaled.of(Program(program.goal[places], program.slack[places], program.penalties))
        shares, duals, solved = walk(scaled.goal, scaled.slack, scaled.give, leave=len(places) // 32)
        answer.probabilities[places[solved]] = shares[solved] / shares[solved].sum(axis=1, keepdims=True)
        answer.duals[places[solved]] = (duals * scaled.exchange)[solved]
        places = places[~solved]
    for place in places.tolist():
        one = best(Program(program.goal[place], program.slack[place], program.penalties))
        answer.probabilities[place], answer.duals[place] = one.probabilities, one.duals
        answer.feasible[place] = one.feasible
