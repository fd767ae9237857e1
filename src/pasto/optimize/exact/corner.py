"""From a guess of who takes part and which guardrails are held to the exact optimum, many problems at once.

An interior point need not converge to the last digit: once it shows which candidates and guardrails matter, the optimum
is one small linear system, and pricing every candidate proves it (or shows that the guess came too early).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pasto.objective import Array


def finish(
    goal: Array, slack: Array, give: Array, strength: Array, held: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], Array, Array]:
    """Which guesses are right, and the shares (problems, candidates) and multipliers (problems, guardrails) they give.

    strength (problems, candidates) is above 1 for candidates that take part; held (problems, guardrails).
    """
    count, width = goal.shape
    rails = give.shape[1]
    most = min(rails + 1, width)
    everyone = np.arange(count)
    left = strength.copy()
    places = np.empty((count, most), dtype=np.intp)
    for place in range(most):
        places[:, place] = left.argmax(axis=1)
        left[everyone, places[:, place]] = -1.0
    taking = np.take_along_axis(strength, places, axis=1) > 1.0
    columns = np.take_along_axis(slack, places[:, None, :], axis=2)
    number, firm = taking.sum(axis=1), 1 + (held & (give == 0.0)).sum(axis=1)
    right = (left.max(axis=1) <= 1.0) & (number <= 1 + held.sum(axis=1)) & (firm <= number)

    size = most + 1 + rails
    system, known = np.zeros((count, size, size)), np.zeros((count, size))
    crossing = np.where(taking[:, None, :] & held[:, :, None], columns, 0.0)
    system[:, most + 1 :, :most] = crossing
    system[:, :most, most + 1 :] = crossing.transpose(0, 2, 1)
    system[:, most, :most] = system[:, :most, most] = taking
    system[:, range(most), range(most)] = ~taking
    system[:, range(most + 1, size), range(most + 1, size)] = np.where(held, give, 1.0)
    known[:, :most] = np.where(taking, -np.take_along_axis(goal, places, axis=1), 0.0)
    known[:, most] = 1.0
    system[~right] = np.eye(size)
    try:
        found = np.linalg.solve(system, known[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:  # one problem with ties spoils the solve of all: wait for a clearer guess
        return np.zeros(count, dtype=bool), np.zeros_like(goal), np.zeros_like(give)
    few, level, duals = found[:, :most], -found[:, most], found[:, most + 1 :]
    scale = 1.0 + np.abs(duals).max(axis=1, initial=0.0)
    right &= (few >= -1e-13).all(axis=1) & (duals >= -1e-13 * scale[:, None]).all(axis=1)
    right &= (held | ((columns @ few[:, :, None])[:, :, 0] >= -1e-13)).all(axis=1)
    right &= (goal + (duals[:, None, :] @ slack)[:, 0]).max(axis=1) - level <= 1e-11 * scale
    shares = np.zeros_like(goal)
    np.put_along_axis(shares, places, np.maximum(few, 0.0), axis=1)
    return right, shares, np.maximum(duals, 0.0)
