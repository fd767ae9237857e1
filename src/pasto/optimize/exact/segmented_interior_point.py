"""Interior point method for many scaled programs with segments, in time linear in segments times candidates.

The method is that of `interior_point`. Each segment has its own Σp = 1 and its own guardrails, and only the guardrails
on all traffic couple the segments. So the Newton system is an arrow: each segment's small block is eliminated, and one
system of the size of the guardrails on all traffic is left. A problem leaves as soon as `find_vertex` proves its exact
optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray

MAX_STEPS = 60

TARGET_GAP = 1e-11
"""The remaining gain at which a problem without a single optimal corner stops; the goal's spread is about one."""

VERTEX_GAPS = (1e-3, 1e-5, 1e-7, 1e-9)
"""The remaining gains at which the exact optimum is looked for."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentedRows:
    """Scaled programs of one shape: goal, guardrails on all traffic, and guardrails of one segment each.

    The first axis of goal, slack, own and give runs over problems.
    """

    goal: FloatArray
    """(problems, segments, candidates)."""
    slack: FloatArray
    """(problems, guardrails, segments, candidates)."""
    own: FloatArray
    """(problems, own guardrails, candidates)."""
    owners: NDArray[np.intp]
    """(own guardrails,): the segment of each."""
    give: FloatArray
    """(problems, guardrails + own guardrails): 1/2λ, 0 if hard."""

    @property
    def wide(self) -> int:
        """Number of guardrails on all traffic."""
        return int(self.slack.shape[1])

    def select(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> SegmentedRows:
        """Return some of the problems."""
        return SegmentedRows(self.goal[chosen], self.slack[chosen], self.own[chosen], self.owners, self.give[chosen])

    def price(self, problem: int, duals: FloatArray) -> FloatArray:
        """Return what each candidate is worth at multipliers (guardrails + own,), as (segments, candidates)."""
        wide = self.wide
        worth = np.tensordot(duals[:wide], self.slack[problem], axes=1)
        np.add.at(worth, self.owners, duals[wide:, None] * self.own[problem])
        return np.asarray(worth)

    def levels(self, problem: int, shares: FloatArray) -> FloatArray:
        """Return the slack of each guardrail, (guardrails + own,), for shares (segments, candidates)."""
        common = self.slack[problem].reshape(self.wide, self.goal[problem].size) @ shares.ravel()
        return np.concatenate([common, (self.own[problem] * shares[self.owners]).sum(axis=1)])

    def columns(self, problem: int, places: NDArray[np.intp]) -> FloatArray:
        """Return the guardrails' rows (guardrails + own, places) at places segment · candidates + candidate."""
        width = self.goal.shape[2]
        common = self.slack[problem].reshape(self.wide, self.goal[problem].size)[:, places]
        mine = np.where(self.owners[:, None] == places // width, self.own[problem][:, places % width], 0.0)
        return np.concatenate([common, mine])


def find_vertex(
    program: SegmentedRows, problem: int, strength: FloatArray, held: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray] | None:
    """Return the shares and multipliers of a guess if it is proved optimal, and None if it is wrong.

    strength (segments, candidates) is above 1 for candidates that take part; held (guardrails + own,). A segment with
    one candidate is fixed, so the linear system has only the segments that mix: at most one for each guardrail held.
    """
    goal, give = program.goal[problem], program.give[problem]
    segments, width = goal.shape
    taking = strength > 1.0
    taking[np.arange(segments), strength.argmax(axis=1)] = True
    mixed = np.flatnonzero(taking.sum(axis=1) > 1)
    places = np.flatnonzero(np.where(np.isin(np.arange(segments), mixed)[:, None], taking, False))
    rails = np.flatnonzero(held)
    if len(places) - len(mixed) > len(rails):
        return None
    fixed = np.where(np.isin(np.arange(segments), mixed)[:, None], 0.0, taking.astype(float))
    columns = program.columns(problem, places)[rails]
    matrix = np.vstack([places // width == mixed[:, None], columns])
    few, size = len(places), len(places) + len(matrix)
    system, right = np.zeros((size, size)), np.zeros(size)
    system[:few, few:] = matrix.T
    system[few:, :few] = matrix
    after = few + len(mixed)
    system[range(after, size), range(after, size)] = give[rails]
    right[:few] = -goal.ravel()[places]
    right[few:after] = 1.0
    right[after:] = -program.levels(problem, fixed)[rails]
    try:
        solution = np.linalg.solve(system, right)
    except np.linalg.LinAlgError:
        return None
    duals = np.zeros(len(give))
    duals[rails] = solution[after:]
    shares = fixed
    shares.ravel()[places] = solution[:few]
    scale = 1.0 + float(np.abs(duals).max(initial=0.0))
    if shares.min() < -1e-12 or duals.min(initial=0.0) < -1e-12 * scale:
        return None
    if not (held | (program.levels(problem, shares) >= -1e-12)).all():
        return None
    priced = goal + program.price(problem, duals)
    worth = np.where(taking, priced, np.inf).min(axis=1)
    if not np.isfinite(solution).all() or (priced.max(axis=1) - worth).max() > 1e-11 * scale:
        return None
    return np.maximum(shares, 0.0), np.maximum(duals, 0.0)


@dataclass(slots=True, eq=False)
class _InteriorState:
    """Problems that are not solved yet; the first axis of every array runs over them.

    The rows of a segment are ones, then its own guardrails, filled up with rows of ones that never bind, then the
    guardrails on all traffic.
    """

    index: NDArray[np.intp]
    goal: FloatArray
    """(problems, segments, candidates)."""
    rows: FloatArray
    """(problems, segments, 1 + own + guardrails, candidates)."""
    give_own: FloatArray
    """(problems, segments, 1 + own): 0, then give."""
    give_common: FloatArray
    """(problems, guardrails)."""
    shares: FloatArray
    """p, (problems, segments, candidates)."""
    gaps: FloatArray
    """z, (problems, segments, candidates)."""
    duals_own: FloatArray
    """−v, then π: (problems, segments, 1 + own)."""
    duals_common: FloatArray
    """π, (problems, guardrails)."""
    margin_own: FloatArray
    """w, (problems, segments, own)."""
    margin_common: FloatArray
    """w, (problems, guardrails)."""

    @classmethod
    def begin(cls, program: SegmentedRows, slots: NDArray[np.intp]) -> _InteriorState:
        """Start from the even blend; slots (own guardrails,) is the row of each within its segment."""
        count, segments, width = program.goal.shape
        own = int(slots.max(initial=-1)) + 1
        rows = np.ones((count, segments, 1 + own + program.wide, width))
        rows[:, program.owners, 1 + slots] = program.own
        rows[:, :, 1 + own :] = program.slack.transpose(0, 2, 1, 3)
        give_own = np.zeros((count, segments, 1 + own))
        give_own[:, program.owners, 1 + slots] = program.give[:, program.wide :]
        levels = rows.mean(axis=3)
        duals_own = np.full((count, segments, 1 + own), 0.2)
        duals_common = np.full((count, program.wide), 0.2)
        state = cls(
            index=np.arange(count),
            goal=program.goal,
            rows=rows,
            give_own=give_own,
            give_common=program.give[:, : program.wide],
            shares=np.full(program.goal.shape, 1.0 / width),
            gaps=np.zeros(program.goal.shape),
            duals_own=duals_own,
            duals_common=duals_common,
            margin_own=np.maximum(levels[:, :, 1 : 1 + own], 0.1),
            margin_common=np.maximum(levels[:, :, 1 + own :].sum(axis=1), 0.1),
        )
        duals_own[:, :, 0] = 0.0
        priced = program.goal + state._priced(duals_own, duals_common)
        duals_own[:, :, 0] = -0.1 / segments - priced.max(axis=2)
        state.gaps = -duals_own[:, :, :1] - priced
        return state

    def keep(self, chosen: NDArray[np.bool_]) -> _InteriorState:
        """Return the state of some of the problems only."""
        return _InteriorState(*(getattr(self, part.name)[chosen] for part in fields(self)))

    def step(self) -> None:
        """Take one Newton step."""
        p, z = self.shares, self.gaps
        w_own, w_common = self.margin_own, self.margin_common
        pi_own, pi_common = self.duals_own[:, :, 1:], self.duals_common
        own = self.duals_own.shape[2]
        ratio, lean_own, lean_common = p / z, w_own / pi_own, w_common / pi_common
        products, others_own, others_common = p * z, w_own * pi_own, w_common * pi_common
        unpriced = self.goal + self._priced(self.duals_own, self.duals_common) + z
        blended = self._blended(p)
        missing_own = -blended[:, :, :own] - self.give_own * self.duals_own
        missing_own[:, :, 0] += 1.0
        missing_own[:, :, 1:] += w_own
        missing_common = w_common - blended[:, :, own:].sum(axis=1) - self.give_common * pi_common
        system = (self.rows * ratio[:, :, None, :]) @ self.rows.transpose(0, 1, 3, 2)
        block = system[:, :, :own, :own]
        diagonal = np.arange(1, own)
        block[:, :, diagonal, diagonal] += self.give_own[:, :, 1:] + lean_own
        crossing = system[:, :, :own, own:]
        inverse = np.linalg.inv(block)
        coupled = inverse @ crossing
        middle = (system[:, :, own:, own:] - crossing.transpose(0, 1, 3, 2) @ coupled).sum(axis=1)
        diagonal = np.arange(middle.shape[1])
        middle[:, diagonal, diagonal] += self.give_common + lean_common
        pull = ratio * unpriced

        def solve(
            drift: FloatArray, across_own: FloatArray, across_common: FloatArray
        ) -> tuple[FloatArray, FloatArray]:
            """Return the change of the multipliers by elimination of each segment's block."""
            moved = self._blended(drift)
            right_own = missing_own - moved[:, :, :own]
            right_own[:, :, 1:] += across_own
            right_common = missing_common - moved[:, :, own:].sum(axis=1) + across_common
            right_common -= np.einsum("nslg,nsl->ng", coupled, right_own)
            common = np.linalg.solve(middle, right_common[:, :, None])[:, :, 0]
            local = (inverse @ right_own[..., None])[..., 0] - np.einsum("nslg,ng->nsl", coupled, common)
            return local, common

        # Predict: a step straight to the optimum, to measure its reach.
        change_own, change_common = solve(pull - p, -w_own, -w_common)
        dz = -unpriced - self._priced(change_own, change_common)
        slide, turn_own, turn_common = dz / z, change_own[:, :, 1:] / pi_own, change_common / pi_common
        low, high = _extremes(slide, turn_own, turn_common)
        reach = 1.0 / np.maximum(1.0, np.maximum(-low, 1.0 + high))
        bent = -products * (1.0 + slide) * slide
        askew_own = -others_own * (1.0 + turn_own) * turn_own
        askew_common = -others_common * (1.0 + turn_common) * turn_common
        before = _total(products, others_own, others_common)
        after = (1.0 - reach) * before + reach**2 * _total(bent, askew_own, askew_common)
        size = p[0].size + w_own[0].size + w_common[0].size
        centre = (after / before) ** 3 * before / size

        # Correct: the same system again, for the centre and the curvature of the prediction.
        towards = (centre[:, None, None] - products - bent) / z
        across_own = (centre[:, None, None] - others_own - askew_own) / pi_own
        across_common = (centre[:, None] - others_common - askew_common) / pi_common
        change_own, change_common = solve(pull + towards, across_own, across_common)
        dz = -unpriced - self._priced(change_own, change_common)
        dp = towards - ratio * dz
        dw_own = across_own - lean_own * change_own[:, :, 1:]
        dw_common = across_common - lean_common * change_common
        low, _ = _extremes(dp / p, dw_own / w_own, dw_common / w_common)
        other, _ = _extremes(dz / z, change_own[:, :, 1:] / pi_own, change_common / pi_common)
        reach = np.minimum(1.0, 0.99 / np.maximum(-np.minimum(low, other), 1e-9))
        single, triple = reach[:, None], reach[:, None, None]
        self.shares = p + triple * dp
        self.gaps = z + triple * dz
        self.margin_own = w_own + triple * dw_own
        self.margin_common = w_common + single * dw_common
        self.duals_own = self.duals_own + triple * change_own
        self.duals_common = self.duals_common + single * change_common

    def is_sound(self) -> NDArray[np.bool_]:
        """Return which problems have finite numbers."""
        return np.asarray(np.isfinite(_total(self.shares, self.duals_own, self.duals_common) + self.left()))

    def left(self) -> FloatArray:
        """Return the remaining gain, once p is feasible: Σ p z + Σ π w."""
        return _total(
            self.shares * self.gaps, self.duals_own[:, :, 1:] * self.margin_own, self.duals_common * self.margin_common
        )

    def is_infeasible(self) -> NDArray[np.bool_]:
        """Return which problems cannot meet their hard guardrails: every blend misses some weighting of them."""
        own, common = self.duals_own.copy(), np.where(self.give_common == 0.0, self.duals_common, 0.0)
        own[:, :, 0] = 0.0
        own[self.give_own > 0.0] = 0.0
        best = self._priced(own, common).max(axis=2).sum(axis=1)
        largest = np.maximum(own.max(axis=(1, 2)), common.max(axis=1, initial=0.0))
        return np.asarray(best < -1e-9 * largest)

    def _priced(self, own: FloatArray, common: FloatArray) -> FloatArray:
        count, segments = own.shape[:2]
        spread = np.broadcast_to(common[:, None, :], (count, segments, common.shape[1]))
        duals = np.concatenate([own, spread], axis=2)
        return np.asarray((duals[:, :, None, :] @ self.rows)[:, :, 0])

    def _blended(self, shares: FloatArray) -> FloatArray:
        return np.asarray((self.rows @ shares[..., None])[..., 0])


def _extremes(*parts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the least and the greatest number of each problem."""
    flat = [part.reshape(len(part), -1) for part in parts]
    low = np.min([part.min(axis=1, initial=0.0) for part in flat], axis=0)
    return np.asarray(low), np.asarray(np.max([part.max(axis=1, initial=0.0) for part in flat], axis=0))


def _total(*parts: FloatArray) -> FloatArray:
    """Return the sum of all numbers of each problem."""
    return np.asarray(sum(part.reshape(len(part), -1).sum(axis=1) for part in parts))


def segmented_interior_point(
    program: SegmentedRows, *, exact: bool = True
) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """Return shares (problems, segments, candidates), multipliers (problems, all guardrails), and which are exact.

    The others stop at their last point: at one of many optima, with infinite numbers, or proved infeasible. Without
    `exact` every problem does.
    """
    count, _, width = program.goal.shape
    shares, duals = np.full_like(program.goal, 1.0 / width), np.zeros_like(program.give)
    solved = np.zeros(count, dtype=bool)
    slots = np.array([np.count_nonzero(program.owners[:row] == owner) for row, owner in enumerate(program.owners)])
    slots = slots.astype(np.intp)
    state = _InteriorState.begin(program, slots)
    tries = np.zeros(count, dtype=int)

    def write(done: _InteriorState) -> None:
        shares[done.index] = done.shares
        own = done.duals_own[:, program.owners, 1 + slots]
        duals[done.index] = np.concatenate([done.duals_common, own], axis=1)

    with np.errstate(all="ignore"):  # a problem that breaks down is dropped
        for _ in range(MAX_STEPS):
            try:
                state.step()
            except np.linalg.LinAlgError:
                break
            left = state.left()
            sound = state.is_sound()
            going = sound & (left > TARGET_GAP) & ~state.is_infeasible()
            for place in np.flatnonzero(sound).tolist() if exact else []:
                index = int(state.index[place])
                if tries[index] == len(VERTEX_GAPS) or left[place] > VERTEX_GAPS[tries[index]]:
                    continue
                tries[index] = sum(left[place] <= gap for gap in VERTEX_GAPS)
                held_own = (state.duals_own[place, :, 1:] > state.margin_own[place])[program.owners, slots]
                held = np.concatenate([state.duals_common[place] > state.margin_common[place], held_own])
                vertex = find_vertex(program, index, state.shares[place] / state.gaps[place], held)
                if vertex is not None:
                    shares[index], duals[index] = vertex
                    solved[index], going[place] = True, False
            if not going.all():
                write(state.keep(~going & ~solved[state.index] & sound))
                state = state.keep(going)
            if not len(state.index):
                break
    write(state)
    return shares, duals, solved
