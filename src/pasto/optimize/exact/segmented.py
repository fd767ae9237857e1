"""Exact solver for segments: one distribution for each segment, coupled by the guardrails on all traffic.

The program is that of `solver`, over a product of simplices. At given prices of the guardrails on all traffic it falls
into a small problem for each segment, which makes column generation cheap: the active set works on a few candidates
of each segment, and in each turn every segment adds its best-priced candidate, until none is worth more than those in
use. That proves the optimum. The support has at most one candidate for each segment and one more for each guardrail
that binds.

Two methods are needed. Column generation takes every program: infeasible ones, ties, and two-sided penalties. Posterior
draws are many programs of one shape, and the interior point of `segmented_interior_point` solves them together in time
linear in segments times candidates; it is also the first to try with many segments, because the active set enters one
candidate at a time. Milliseconds of `pasto bench segments` on a busy machine, for all problems together and four hard
guardrails on all traffic; HiGHS takes sparse rows, and no penalties:

| segments | candidates | problems | in a batch | one by one | HiGHS one by one |
|---|---|---|---|---|---|
| 20 | 100 | 32 | 180 | 420 | 800 |
| 40 | 100 | 32 | 360 | 600 | 2,000 |
| 20 | 200 | 32 | 410 | 1,200 | 2,100 |
| 50 | 1,000 | 1 | 90 | 70 | 1,100 |
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import SolverError, UnsupportedError
from pasto.objective import LinearGoal, NormalForm, RatioGoal, SegmentedForm, UtilityGoal
from pasto.objective.normal_form import TOLERANCE
from pasto.optimize.exact.active_set import ActiveSet, solve_active_set
from pasto.optimize.exact.concave import climb_utility, thin_out
from pasto.optimize.exact.segmented_interior_point import SegmentedRows, segmented_interior_point
from pasto.optimize.exact.solver import CHUNK_SHARES, MAX_GAP, SECOND_METHOD_GAP, independent_rows, powers

FEW_SEGMENTS = 10
"""Segments up to which column generation is as fast as the interior point for one program."""

MAX_TURNS = 500
"""Turns of column generation; a few more than ten are usual."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentedProgram:
    """Maximise Σ_s goal_s · p_s − Σ_g λ_g min(0, Σ_s slack_gs · p_s)² − Σ_r λ_r min(0, own_r · p_owner(r))².

    Each p_s is on its simplex, and hard guardrails have slack ≥ 0. The segments' shares of traffic are folded into the
    columns, and so is every constant. Leading axes, if there are any, run over many problems of one shape.

    >>> import numpy as np, pasto
    >>> form = pasto.maximize("x").keep("y", at_least=1).segmented_form({"new": 0.5, "heavy": 0.5})
    >>> means = np.array([[[2.0, 0.0], [-2.0, 2.0]], [[4.0, 0.0], [0.0, 4.0]]])
    >>> SegmentedProgram.of(form, means).slack.tolist()
    [[[-1.5, 0.5], [-0.5, 1.5]]]
    """

    goal: FloatArray
    """(..., segments, candidates)."""
    slack: FloatArray
    """(..., guardrails, segments, candidates): guardrails on all traffic."""
    penalties: FloatArray
    """(guardrails,): λ, infinite for a hard guardrail."""
    own: FloatArray
    """(..., own guardrails, candidates): guardrails of one segment each."""
    own_penalties: FloatArray
    """(own guardrails,): λ times the segment's share."""
    owners: NDArray[np.intp]
    """(own guardrails,): the segment of each."""
    shares: FloatArray
    """(segments,): the segments' shares of traffic."""

    @classmethod
    def of(cls, form: SegmentedForm, means: FloatArray) -> SegmentedProgram:
        """Return the program of a form with a linear goal over means (..., segments, metrics, candidates)."""
        goal = form.common.goal
        if not isinstance(goal, LinearGoal):
            raise UnsupportedError(
                f"a program needs a goal that is a weighted sum of metrics, got a {type(goal).__name__}; "
                "`solve_segments` takes every kind of goal"
            )
        return cls.with_goal(form, means, goal.row, goal.offset)

    @classmethod
    def with_goal(
        cls, form: SegmentedForm, means: FloatArray, row: FloatArray, offset: float = 0.0
    ) -> SegmentedProgram:
        """Return the program of a form's guardrails, and row · y + offset for a goal."""
        shares, common = form.shares[:, None], form.common
        slack = np.moveaxis(common.rows @ means - common.at[:, None], -2, -3)
        rows = [
            own.rows @ means[..., segment, :, :] - own.at[:, None]
            for segment, own in enumerate(form.own)
            if len(own.at)
        ]
        return cls(
            goal=shares * (row @ means + offset),
            slack=shares * slack,
            penalties=common.penalties,
            own=np.concatenate(rows, axis=-2) if rows else np.zeros((*means.shape[:-3], 0, means.shape[-1])),
            own_penalties=np.concatenate([own.penalties * q for own, q in zip(form.own, form.shares, strict=True)]),
            owners=form.owners,
            shares=form.shares,
        )

    def select(self, place: int) -> SegmentedProgram:
        """Return one of many problems."""
        return replace(self, goal=self.goal[place], slack=self.slack[place], own=self.own[place])

    def rows(self) -> SegmentedRows:
        """Return the rows of one program, or of many, unscaled."""
        goal, slack, own = (part if self.goal.ndim == 3 else part[None] for part in (self.goal, self.slack, self.own))
        penalties = np.concatenate([self.penalties, self.own_penalties])
        hard = np.isinf(penalties)
        give = np.where(hard, 0.0, 0.5 / np.where(hard, 1.0, penalties))
        return SegmentedRows(goal, slack, own, self.owners, np.tile(give, (len(goal), 1)))

    def scale(self) -> tuple[SegmentedRows, FloatArray]:
        """Return the program with numbers of about one, and the units of its multipliers (problems, all guardrails)."""
        rows = self.rows()
        units = powers(np.abs(rows.slack).max(axis=3).sum(axis=2))
        own_units = powers(np.abs(rows.own).max(axis=2))
        goal = rows.goal - rows.goal.max(axis=2, keepdims=True)
        spread = -goal.min(axis=2).sum(axis=1)
        if not spread.all():
            # A goal that is the same everywhere has no scale: the heaviest penalty sets it.
            worst = np.concatenate([np.minimum(rows.slack.min(axis=3), 0.0).sum(axis=2), rows.own.min(axis=2)], axis=1)
            cost = np.where(
                rows.give > 0.0, np.minimum(worst, 0.0) ** 2 / np.where(rows.give > 0.0, 2.0 * rows.give, 1.0), 0.0
            )
            spread = np.where(spread > 0.0, spread, cost.max(axis=1, initial=0.0))
        unit = powers(spread)
        scales = np.concatenate([units, own_units], axis=1)
        return (
            SegmentedRows(
                goal=goal / unit[:, None, None],
                slack=rows.slack / units[:, :, None, None],
                own=rows.own / own_units[:, :, None],
                owners=rows.owners,
                give=rows.give * unit[:, None] / scales**2,
            ),
            unit[:, None] / scales,
        )


@dataclass(frozen=True, slots=True, eq=False)
class SegmentedSolution:
    """The best distributions of a program, with the guardrails' multipliers.

    >>> import numpy as np
    >>> SegmentedSolution(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([0.5]), np.zeros(0), True).duals
    array([0.5])
    """

    probabilities: FloatArray
    """(segments, candidates), or (problems, segments, candidates) of many problems."""
    duals: FloatArray
    """(guardrails,): π ≥ 0, by how much the value rises as a unit is added to a guardrail's slack."""
    own_duals: FloatArray
    """(own guardrails,)."""
    feasible: bool
    """True if every hard guardrail can be met; otherwise the distributions are the nearest miss."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentedSolutions:
    """The best distributions of each of many programs of one shape.

    >>> import numpy as np
    >>> shares = np.full((3, 2, 4), 0.25)
    >>> SegmentedSolutions(shares, np.zeros((3, 1)), np.zeros((3, 0)), np.ones(3, dtype=bool)).feasible.all()
    np.True_
    """

    probabilities: FloatArray
    """(problems, segments, candidates)."""
    duals: FloatArray
    """(problems, guardrails)."""
    own_duals: FloatArray
    """(problems, own guardrails)."""
    feasible: NDArray[np.bool_]
    """(problems,)."""


def solve_segments(form: SegmentedForm, means: FloatArray) -> SegmentedSolution:
    """Return the best distribution of each segment, for means (segments, metrics, candidates) and any kind of goal.

    >>> import numpy as np, pasto
    >>> form = pasto.maximize("x").keep("y", at_least=0).segmented_form({"new": 0.5, "heavy": 0.5})
    >>> means = np.array([[[2.0, 0.0], [-2.0, 2.0]], [[4.0, 0.0], [-1.0, 2.0]]])
    >>> solve_segments(form, means).probabilities
    array([[0.25, 0.75],
           [1.  , 0.  ]])
    """
    match form.common.goal:
        case LinearGoal():
            return solve_segmented_program(SegmentedProgram.of(form, means))
        case RatioGoal() as goal:
            return _solve_ratio(form, goal, means)
        case UtilityGoal() as goal:
            return _solve_utility(form, goal, means)
    raise UnsupportedError(f"no exact answer for a goal of kind {type(form.common.goal).__name__}")


def _solve_ratio(form: SegmentedForm, goal: RatioGoal, means: FloatArray) -> SegmentedSolution:
    """Return the distributions with the best ratio on all traffic, by Dinkelbach's iteration as in `ratio`."""
    halves = [form.shares[:, None] * (half @ means) for half in (goal.numerator, goal.denominator)]
    level = float((halves[0] / halves[1]).min())
    for _ in range(100):
        row = goal.numerator - level * goal.denominator
        solution = solve_segmented_program(SegmentedProgram.with_goal(form, means, row))
        top, bottom = (float((half * solution.probabilities).sum()) for half in halves)
        if top / bottom <= level + 1e-13 * abs(level):
            unit = goal.scale / bottom
            duals, own_duals = solution.duals * unit, solution.own_duals * unit
            return SegmentedSolution(solution.probabilities, duals, own_duals, solution.feasible)
        level = top / bottom
    raise SolverError(f"the ratio still rose after 100 rounds, at {np.format_float_scientific(level, 6)}")


def _solve_utility(form: SegmentedForm, goal: UtilityGoal, means: FloatArray) -> SegmentedSolution:
    """Return the distributions with the best utility of all traffic, as `climb_utility` does with Newton steps.

    The utility is a function of flat · p, for the candidates of all segments side by side. A segment's own soft
    guardrails are further metrics there, each with a limit of 0.
    """
    segments, metrics, width = means.shape
    common, soft = form.common, ~form.common.hard
    base = SegmentedProgram.with_goal(form, means, np.zeros(metrics))
    slack = base.rows().columns(0, np.arange(segments * width))
    rails, wide = len(slack), len(common.at)
    hard = np.isinf(np.concatenate([base.penalties, base.own_penalties]))
    weights = np.repeat(form.shares, width)
    constants = np.vstack([np.tile(weights, (wide, 1)), base.owners[:, None] == np.repeat(np.arange(segments), width)])
    own_soft = wide + np.flatnonzero(~hard[wide:])
    flat = np.vstack([(form.shares[:, None] * means.transpose(1, 0, 2)).reshape(metrics, -1), slack[own_soft]])
    count, extra = int(soft.sum()), len(own_soft)
    smooth = NormalForm(
        goal=goal,
        names=tuple(map(str, range(count + extra))),
        rows=np.block([[common.rows[soft], np.zeros((count, extra))], [np.zeros((extra, metrics)), np.eye(extra)]]),
        at=np.concatenate([common.at[soft], np.zeros(extra)]),
        penalties=np.concatenate([common.penalties[soft], base.own_penalties[own_soft - wide]]),
        relief=np.zeros((count + extra, metrics + extra)),
    )
    even = means.mean(axis=2)
    slope = goal.gradient(form.mix(even))
    first = solve_segmented_program(SegmentedProgram.with_goal(form, means, slope))
    start = first.probabilities.ravel()
    slack = (
        slack - np.where(hard, np.minimum(slack @ start, 0.0), 0.0)[:, None] * constants
        if not first.feasible
        else slack
    )

    def solve_model(goals: FloatArray, bends: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return shares and multipliers for a linear goal and rows that are penalised on both sides."""
        shape = (segments, width)
        model = SegmentedProgram(
            goal=goals.reshape(shape),
            slack=np.concatenate([slack[:wide], bends]).reshape(-1, *shape),
            penalties=np.concatenate([common.penalties, np.full(len(bends), 0.5)]),
            own=slack[wide:].reshape(-1, *shape)[np.arange(rails - wide), base.owners],
            own_penalties=base.own_penalties,
            owners=base.owners,
            shares=form.shares,
        )
        solution = solve_segmented_program(model, springs=len(bends))
        return solution.probabilities.ravel(), np.concatenate([solution.duals[:wide], solution.own_duals])

    values = form.smooth(np.einsum("smk->ksm", means))
    spread = max(float(np.ptp(values)), float(form.smooth(even)) - float(values.min()))
    scale = spread or float(np.abs(values).max()) or 1.0
    shares, duals = climb_utility(
        smooth, goal, flat, slack, hard, solve_model, start, scale, np.repeat(form.shares, width), segments
    )
    return SegmentedSolution(shares.reshape(segments, width), duals[:wide], duals[wide:], first.feasible)


def solve_segmented_program(program: SegmentedProgram, *, springs: int = 0) -> SegmentedSolution:
    """Return the best distributions of one program, whose last `springs` guardrails on all traffic are two-sided.

    If no distributions meet every hard guardrail, the answer makes the sum of squared shortfalls least, each in units
    of its guardrail's range over the candidates and those of one segment times its share, and is the best such answer.

    >>> import numpy as np
    >>> goal, slack = np.array([[2.0, 0.0], [1.0, 0.0]]), np.array([[[-2.0, 2.0], [0.0, 0.0]]])
    >>> none = np.zeros((0, 2)), np.zeros(0), np.zeros(0, dtype=int), np.array([0.5, 0.5])
    >>> solution = solve_segmented_program(SegmentedProgram(goal, slack, np.array([np.inf]), *none))
    >>> solution.probabilities.tolist(), solution.duals.tolist()
    ([[0.5, 0.5], [1.0, 0.0]], [0.5])
    """
    scaled, exchange = program.scale()
    wide, rails = scaled.wide, scaled.give.shape[1]
    both = np.zeros(rails, dtype=bool)
    both[wide - springs : wide] = True
    allowance = np.zeros(rails)
    vertex = _find_interior_vertex(scaled, both) if len(scaled.goal[0]) > FEW_SEGMENTS else None
    if vertex is None:
        start, allowance = _start(scaled, program.shares)
        start.held = [*start.held, *(rail for rail in np.flatnonzero(both).tolist() if rail not in start.held)]
        vertex = _maximize(_lower(scaled, allowance) if allowance.any() else scaled, start, both)
    duals = np.where(both, vertex[1], np.maximum(vertex[1], 0.0)) * exchange[0]
    feasible = bool((allowance <= TOLERANCE * _sizes(scaled)).all())
    return SegmentedSolution(_clean(vertex[0]), duals[:wide], duals[wide:], feasible)


def _sizes(scaled: SegmentedRows) -> FloatArray:
    """Return the largest slack of each guardrail, (guardrails + own,), over all distributions."""
    common = np.abs(scaled.slack[0]).max(axis=2).sum(axis=1)
    return np.concatenate([common, np.abs(scaled.own[0]).max(axis=1)])


def _lower(scaled: SegmentedRows, allowance: FloatArray) -> SegmentedRows:
    """Return the program with every guardrail lowered by its allowance (guardrails + own,)."""
    segments, wide = scaled.goal.shape[1], scaled.wide
    slack = scaled.slack + allowance[:wide, None, None] / segments
    return replace(scaled, slack=slack, own=scaled.own + allowance[wide:, None])


def _start(scaled: SegmentedRows, weights: FloatArray) -> tuple[ActiveSet, FloatArray]:
    """Return a state that meets every hard guardrail, and the amounts by which each is lowered so that one exists."""
    segments, width = scaled.goal.shape[1:]
    wide, hard = scaled.wide, scaled.give[0] == 0.0
    best = np.arange(segments) * width + scaled.goal[0].argmax(axis=1)
    levels = scaled.columns(0, best).sum(axis=1)
    if not (levels[hard] < 0.0).any():
        missed = np.flatnonzero(~hard & (levels < 0.0)).tolist()
        return ActiveSet(best.tolist(), np.ones(segments), missed), np.zeros(len(hard))
    ranges = np.concatenate([np.ptp(scaled.slack[0], axis=2).sum(axis=1), np.ptp(scaled.own[0], axis=1)])
    sizes = _sizes(scaled)
    units = np.where(ranges > TOLERANCE * sizes, ranges, np.where(sizes > 0.0, sizes, 1.0))
    units[wide:] /= np.sqrt(weights[scaled.owners])
    nearest = SegmentedRows(
        goal=np.zeros_like(scaled.goal),
        slack=(scaled.slack / units[:wide, None, None])[:, hard[:wide]],
        own=(scaled.own / units[wide:, None])[:, hard[wide:]],
        owners=scaled.owners[hard[wide:]],
        give=np.ones((1, int(hard.sum()))),
    )
    missed = np.flatnonzero(levels[hard] < 0.0).tolist()
    shares, _ = _maximize(
        nearest, ActiveSet(best.tolist(), np.ones(segments), missed), np.zeros(hard.sum(), dtype=bool)
    )
    support = np.flatnonzero(shares)
    levels = scaled.levels(0, shares)
    allowance = np.where(hard, np.maximum(-levels, 0.0), 0.0)
    columns = _lower(scaled, allowance).columns(0, support)
    members = support // width == np.arange(segments)[:, None]
    held = independent_rows(columns, np.flatnonzero(hard & (levels <= 1e-13)).tolist(), members)
    held += np.flatnonzero(~hard & (levels < 0.0)).tolist()
    return ActiveSet(support.tolist(), shares.ravel()[support], held), allowance


def _maximize(scaled: SegmentedRows, start: ActiveSet, both: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """Return shares (segments, candidates) and multipliers with a small duality gap.

    The interior point takes what column generation fails on.
    """
    shares, duals = _generate_columns(scaled, start, both)
    gap = np.inf if shares is None else _gap(scaled, both, shares, duals)
    if gap > SECOND_METHOD_GAP:
        inner, others, _ = _solve_inside(scaled, both, exact=False)
        segments, width = scaled.goal.shape[1:]
        clean = _clean(inner)
        used = np.flatnonzero(clean)
        rows = np.zeros((1 + len(others), segments * width))
        rows[:, used] = np.vstack([scaled.goal.ravel()[used], scaled.columns(0, used)])
        thin = thin_out(clean.ravel(), rows, segments).reshape(segments, width)
        if (less := _gap(scaled, both, thin, others)) < gap:
            shares, duals, gap = thin, others, less
    if shares is None or gap > MAX_GAP:
        segments, width = scaled.goal.shape[1:]
        raise SolverError(
            f"the best blends of {segments} segments and {width} candidates were found only to a gap of {gap:.3g} of "
            "the goal's spread; are the metrics or the penalties many orders of magnitude apart?"
        )
    return shares, duals


def _find_interior_vertex(scaled: SegmentedRows, both: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray] | None:
    """Return shares and multipliers that the interior point proves optimal, or None."""
    shares, duals, solved = _solve_inside(scaled, both, exact=True)
    return (shares, duals) if solved else None


def _solve_inside(
    scaled: SegmentedRows, both: NDArray[np.bool_], *, exact: bool
) -> tuple[FloatArray, FloatArray, bool]:
    """Return shares and multipliers by the interior point; a two-sided penalty becomes two guardrails there."""
    springs, wide = np.flatnonzero(both), scaled.wide
    give = np.concatenate([scaled.give[:, :wide], scaled.give[:, springs], scaled.give[:, wide:]], axis=1)
    doubled = replace(scaled, slack=np.concatenate([scaled.slack, -scaled.slack[:, springs]], axis=1), give=give)
    shares, prices, solved = segmented_interior_point(doubled, exact=exact)
    duals = np.concatenate([prices[0, :wide], prices[0, wide + len(springs) :]])
    duals[springs] -= prices[0, wide : wide + len(springs)]
    return shares[0], duals, bool(solved[0])


def _generate_columns(
    scaled: SegmentedRows, start: ActiveSet, both: NDArray[np.bool_]
) -> tuple[FloatArray | None, FloatArray]:
    """Return shares and multipliers, or no shares if the active set fails; support is counted over all candidates."""
    segments, width = scaled.goal.shape[1:]
    goal, give = scaled.goal[0], scaled.give[0]
    best = np.arange(segments) * width + goal.argmax(axis=1)
    places = np.unique(np.concatenate([np.array(start.support, dtype=np.intp), best]))
    state = ActiveSet(np.searchsorted(places, start.support).tolist(), start.shares, list(start.held))
    for _ in range(MAX_TURNS):
        owner = places // width
        state = solve_active_set(
            goal.ravel()[places], scaled.columns(0, places), give, state, springs=both, owner=owner
        )
        if not state.done:
            break
        priced = goal + scaled.price(0, state.duals)
        level = np.full(segments, -np.inf)
        np.maximum.at(level, owner, priced.ravel()[places])
        better = np.flatnonzero(priced.max(axis=1) - level > 1e-12 * (1.0 + np.abs(state.duals).max(initial=0.0)))
        if not len(better):
            shares = np.zeros(segments * width)
            shares[places[state.support]] = state.shares
            return shares.reshape(segments, width), state.duals
        places = np.concatenate([places, better * width + priced[better].argmax(axis=1)])
    return None, state.duals


def _gap(scaled: SegmentedRows, both: NDArray[np.bool_], shares: FloatArray, duals: FloatArray) -> float:
    """Return the larger of the duality gap at the shares and the shortfall of a hard guardrail."""
    goal, give = scaled.goal[0], scaled.give[0]
    levels, hard = scaled.levels(0, shares), give == 0.0
    breach = np.where(both, levels, np.minimum(levels, 0.0))
    cost = float((breach[~hard] ** 2 / (2.0 * give[~hard])).sum())
    bound = float((goal + scaled.price(0, duals)).max(axis=1).sum()) + float(duals**2 @ give) / 2.0
    scale = 1.0 + cost + float(np.abs(duals).max(initial=0.0))
    return max((bound - float((goal * shares).sum()) + cost) / scale, -float(levels[hard].min(initial=0.0)))


def _clean(shares: FloatArray) -> FloatArray:
    """Return shares (..., candidates) without tiny ones that sum to one in each segment."""
    clean = np.where(shares < 1e-12, 0.0, shares)
    return np.asarray(clean / clean.sum(axis=-1, keepdims=True))


def solve_segments_batch(program: SegmentedProgram) -> SegmentedSolutions:
    """Return the best distributions of each problem, as `solve_segmented_program` one by one, many times faster.

    >>> import numpy as np, pasto
    >>> form = pasto.maximize("x").keep("y", at_least=0).segmented_form({"new": 0.5, "heavy": 0.5})
    >>> means = np.random.default_rng(1).normal(size=(4, 2, 2, 10))
    >>> solve_segments_batch(SegmentedProgram.of(form, means)).probabilities.shape
    (4, 2, 10)
    """
    count, segments, width = program.goal.shape
    scaled, exchange = program.scale()
    rails = scaled.give.shape[1]
    probabilities, duals, feasible = np.zeros(program.goal.shape), np.zeros((count, rails)), np.ones(count, dtype=bool)
    first = program.goal.argmax(axis=2)
    common = np.take_along_axis(program.slack, first[:, None, :, None], axis=3).sum(axis=(2, 3))
    own = np.take_along_axis(program.own, first[:, program.owners, None], axis=2)[:, :, 0]
    free = (common >= 0.0).all(axis=1) & (own >= 0.0).all(axis=1)
    np.put_along_axis(probabilities, first[:, :, None], np.where(free, 1.0, 0.0)[:, None, None], axis=2)
    rest = np.flatnonzero(~free)
    size = max(1, CHUNK_SHARES // (segments * width))
    for begin in range(0, len(rest), size):
        chunk = rest[begin : begin + size]
        shares, prices, solved = segmented_interior_point(scaled.select(chunk))
        exact = chunk[solved]
        probabilities[exact] = _clean(shares[solved])
        duals[exact] = (prices * exchange[chunk])[solved]
        for place in chunk[~solved].tolist():
            solution = solve_segmented_program(program.select(place))
            probabilities[place] = solution.probabilities
            duals[place] = np.concatenate([solution.duals, solution.own_duals])
            feasible[place] = solution.feasible
    wide = scaled.wide
    return SegmentedSolutions(probabilities, duals[:, :wide], duals[:, wide:], feasible)
