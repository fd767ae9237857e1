"""Interior point method, primal–dual, for many scaled problems of one shape at once.

With Lagrange multipliers v of Σp = 1 and π ≥ 0 of the guardrails, w = slack · p + give π ≥ 0 and z ≥ 0, the optimum is

    goal + π · slack − v + z = 0,   p z = 0,   π w = 0,

and each round is one Newton step towards p z = π w = μ with μ shrinking (Mehrotra's predictor and corrector). The only
linear systems are of size 1 + guardrails. Problems leave as soon as `round_to_vertex` proves their exact optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray


def round_to_vertex(
    goal: FloatArray, slack: FloatArray, give: FloatArray, strength: FloatArray, held: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], FloatArray, FloatArray]:
    """Return which guesses are right, their shares (problems, candidates) and multipliers (problems, guardrails).

    strength (problems, candidates) is above 1 for candidates that take part; held (problems, guardrails).
    """
    count, width = goal.shape
    rails = give.shape[1]
    most = min(rails + 1, width)
    problems = np.arange(count)
    left = strength.copy()
    places = np.empty((count, most), dtype=np.intp)
    for place in range(most):
        places[:, place] = left.argmax(axis=1)
        left[problems, places[:, place]] = -1.0
    taking = np.take_along_axis(strength, places, axis=1) > 1.0
    columns = np.take_along_axis(slack, places[:, None, :], axis=2)
    number, firm = taking.sum(axis=1), 1 + (held & (give == 0.0)).sum(axis=1)
    right = (left.max(axis=1) <= 1.0) & (number <= 1 + held.sum(axis=1)) & (firm <= number)

    size = most + 1 + rails
    system, right_side = np.zeros((count, size, size)), np.zeros((count, size))
    crossing = np.where(taking[:, None, :] & held[:, :, None], columns, 0.0)
    system[:, most + 1 :, :most] = crossing
    system[:, :most, most + 1 :] = crossing.transpose(0, 2, 1)
    system[:, most, :most] = system[:, :most, most] = taking
    system[:, range(most), range(most)] = ~taking
    system[:, range(most + 1, size), range(most + 1, size)] = np.where(held, give, 1.0)
    right_side[:, :most] = np.where(taking, -np.take_along_axis(goal, places, axis=1), 0.0)
    right_side[:, most] = 1.0
    system[~right] = np.eye(size)
    try:
        solution = np.linalg.solve(system, right_side[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:  # one problem with ties spoils the solve of all: wait for a clearer guess
        return np.zeros(count, dtype=bool), np.zeros_like(goal), np.zeros_like(give)
    few, level, duals = solution[:, :most], -solution[:, most], solution[:, most + 1 :]
    scale = 1.0 + np.abs(duals).max(axis=1, initial=0.0)
    right &= (few >= -1e-13).all(axis=1) & (duals >= -1e-13 * scale[:, None]).all(axis=1)
    right &= (held | ((columns @ few[:, :, None])[:, :, 0] >= -1e-13)).all(axis=1)
    right &= (goal + (duals[:, None, :] @ slack)[:, 0]).max(axis=1) - level <= 1e-11 * scale
    shares = np.zeros_like(goal)
    np.put_along_axis(shares, places, np.maximum(few, 0.0), axis=1)
    return right, shares, np.maximum(duals, 0.0)


MAX_STEPS = 40

TARGET_GAP = 1e-11
"""The remaining gain at which a problem without a single optimal corner stops; the goal's spread is about one."""


@dataclass(slots=True, eq=False)
class InteriorSolution:
    """Problems that are not solved yet; the first axis of every array runs over them."""

    index: NDArray[np.intp]
    goal: FloatArray
    """(problems, candidates)."""
    rows: FloatArray
    """(problems, 1 + guardrails, candidates): ones, then slack."""
    give: FloatArray
    """(problems, 1 + guardrails): 0, then give."""
    shares: FloatArray
    """p, (problems, candidates)."""
    gaps: FloatArray
    """z, (problems, candidates)."""
    duals: FloatArray
    """−v, then π: (problems, 1 + guardrails)."""
    margin: FloatArray
    """w, (problems, guardrails)."""

    @classmethod
    def begin(cls, goal: FloatArray, slack: FloatArray, give: FloatArray) -> InteriorSolution:
        """Start from the even blend."""
        count, width = goal.shape
        margin = np.maximum(slack.mean(axis=2), 0.1)
        duals = np.full((count, 1 + give.shape[1]), 0.2)
        priced = goal + (duals[:, None, 1:] @ slack)[:, 0]
        duals[:, 0] = -0.1 - priced.max(axis=1)
        return cls(
            index=np.arange(count),
            goal=goal,
            rows=np.concatenate([np.ones((count, 1, width)), slack], axis=1),
            give=np.concatenate([np.zeros((count, 1)), give], axis=1),
            shares=np.full((count, width), 1.0 / width),
            gaps=-duals[:, :1] - priced,
            duals=duals,
            margin=margin,
        )

    def keep(self, chosen: NDArray[np.bool_]) -> InteriorSolution:
        """Return the state of some of the problems only."""
        return InteriorSolution(*(getattr(self, part.name)[chosen] for part in fields(self)))

    def step(self) -> None:
        """Take one Newton step."""
        p, z, w, pi = self.shares, self.gaps, self.margin, self.duals[:, 1:]
        rows, ratio, lean = self.rows, p / z, w / pi
        products, others = p * z, w * pi
        unpriced = self.goal + self._priced(self.duals) + z
        missing = -self._blended(p) - self.give * self.duals
        missing[:, 0] += 1.0
        missing[:, 1:] += w
        system = (rows * ratio[:, None, :]) @ rows.transpose(0, 2, 1)
        diagonal = np.arange(1, rows.shape[1])
        system[:, diagonal, diagonal] += self.give[:, 1:] + lean
        pull = ratio * unpriced

        # Predict: a step straight to the optimum, to measure its reach.
        change = self._solve(system, missing, pull - p, -w)
        dz = -unpriced - self._priced(change)
        slide, turn = dz / z, change[:, 1:] / pi
        low = np.minimum(slide.min(axis=1), turn.min(axis=1, initial=0.0))
        high = np.maximum(slide.max(axis=1), turn.max(axis=1, initial=0.0))
        reach = 1.0 / np.maximum(1.0, np.maximum(-low, 1.0 + high))
        bent, askew = -products * (1.0 + slide) * slide, -others * (1.0 + turn) * turn
        before = products.sum(axis=1) + others.sum(axis=1)
        after = (1.0 - reach) * before + reach**2 * (bent.sum(axis=1) + askew.sum(axis=1))
        centre = ((after / before) ** 3 * before / (p.shape[1] + w.shape[1]))[:, None]

        # Correct: the same system again, for the centre and the curvature of the prediction.
        towards = (centre - products - bent) / z
        across = (centre - others - askew) / pi
        change = self._solve(system, missing, pull + towards, across)
        dz = -unpriced - self._priced(change)
        dp, dw = towards - ratio * dz, across - lean * change[:, 1:]
        low = np.minimum((dp / p).min(axis=1), (dz / z).min(axis=1))
        low = np.minimum(
            low, np.minimum((dw / w).min(axis=1, initial=0.0), (change[:, 1:] / pi).min(axis=1, initial=0.0))
        )
        reach = np.minimum(1.0, 0.99 / np.maximum(-low, 1e-9))[:, None]
        self.shares = p + reach * dp
        self.gaps = z + reach * dz
        self.margin = w + reach * dw
        self.duals = self.duals + reach * change

    def sound(self) -> NDArray[np.bool_]:
        """Return which problems have finite numbers."""
        return np.asarray(np.isfinite(self.shares.sum(axis=1) + self.gaps.sum(axis=1) + self.duals.sum(axis=1)))

    def left(self) -> FloatArray:
        """Return the remaining gain, once p is on the simplex: Σ p z + Σ π w."""
        return np.asarray((self.shares * self.gaps).sum(axis=1) + (self.duals[:, 1:] * self.margin).sum(axis=1))

    def infeasible(self) -> NDArray[np.bool_]:
        """Return which problems cannot meet their hard guardrails: every candidate misses some weighting of them."""
        firm = np.where(self.give == 0.0, self.duals, 0.0)
        firm[:, 0] = 0.0
        return np.asarray(self._priced(firm).max(axis=1) < -1e-9 * firm.max(axis=1))

    def _priced(self, duals: FloatArray) -> FloatArray:
        return np.asarray((duals[:, None, :] @ self.rows)[:, 0])

    def _blended(self, shares: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("bgk,bk->bg", self.rows, shares))

    def _solve(self, system: FloatArray, missing: FloatArray, drift: FloatArray, across: FloatArray) -> FloatArray:
        right = missing - self._blended(drift)
        right[:, 1:] += across
        return np.asarray(np.linalg.solve(system, right[:, :, None])[:, :, 0])


def interior_point(
    goal: FloatArray, slack: FloatArray, give: FloatArray, *, leave: int = 0
) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """Return shares (problems, candidates), multipliers (problems, guardrails), and which problems are solved exactly.

    The others stop at their last point: at one of many optima, with infinite numbers, proved infeasible, or among the
    last few, at most `leave`, which are faster one by one.
    """
    shares, duals = np.full_like(goal, 1.0 / goal.shape[1]), np.zeros_like(give)
    solved = np.zeros(len(goal), dtype=bool)
    state = InteriorSolution.begin(goal, slack, give)
    with np.errstate(all="ignore"):  # a problem that breaks down is dropped
        for turn in range(MAX_STEPS):
            try:
                state.step()
            except np.linalg.LinAlgError:
                break
            going = state.sound() & (state.left() > TARGET_GAP)
            if turn >= 2:
                held = state.duals[:, 1:] > state.margin
                right, exact, prices = round_to_vertex(
                    state.goal, state.rows[:, 1:], state.give[:, 1:], state.shares / state.gaps, held
                )
                places = state.index[right]
                shares[places], duals[places], solved[places] = exact[right], prices[right], True
                going &= ~(right | state.infeasible())
                stopped = state.keep(~(going | right))
                shares[stopped.index], duals[stopped.index] = stopped.shares, stopped.duals[:, 1:]
            if not going.all():
                state = state.keep(going)
            if len(state.index) <= leave:
                break
    shares[state.index], duals[state.index] = state.shares, state.duals[:, 1:]
    return shares, duals, solved
