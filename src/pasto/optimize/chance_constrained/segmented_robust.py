"""Robust blends of segments: the highest expected f, each hard guardrail held with the stated confidence.

The program is that of `program`, over one simplex for each segment. A guardrail's slack is Σ slack · p over all cells
(a cell is a candidate in a segment), and its spread is the deviation of a weighted sum of cells.

Clarabel solves it over a few cells of each segment. Then every segment adds the cells that are worth most at the
prices there, until the bound on what they could add is below MAX_GAP. All terms are concave, so the tangents at a point
bound the optimum. An expected penalty enters as tangent planes, one more in each turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtr

from pasto.arrays import FloatArray
from pasto.errors import SolverError
from pasto.estimate import CellCovariance
from pasto.estimate.posterior import symmetric_root
from pasto.optimize.chance_constrained.program import HARD_MARGIN, TINY, expected_penalty, hazard

TARGET_GAP, MAX_GAP = 1e-8, 1e-5
"""The remaining gain at which the search ends, and the largest that is accepted, in units of the goal's range."""

MAX_TURNS = 60
"""Turns of column generation; about five are usual."""

FIRST_CELLS = 1
"""Cells of each segment that enter at first for the goal, and for each guardrail."""

SHORTFALL = 1e-7
"""Shortfall of a guardrail, in units of its range, that is taken for rounding."""

CONFIDENCE_STEPS = 20
"""Halvings of the confidence if the stated one cannot be reached."""

EASED_FRACTION = 1e-5
"""Part of the largest confidence that is given up, so that more than one set of distributions is left."""

MIN_SHARE = 1e-7
"""Smaller shares are dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class UncertainRail:
    """Guardrail over cells: its slack is Σ slack · p on average, with the deviation of Σ scale · (p − anchor)."""

    slack: FloatArray
    """(segments, candidates): every constant is folded in."""
    scale: FloatArray
    """(segments,): the weight of a segment in the guardrail; 0 for segments that it does not concern."""
    covariance: CellCovariance
    """Of the guardrail's row times the means."""
    anchor: FloatArray
    """(segments, candidates): the part of the baseline's own uncertainty."""
    penalty: float
    """λ, infinite for a hard guardrail."""

    def level(self, shares: FloatArray) -> float:
        """Return the expected slack."""
        return float((self.slack * shares).sum())

    def weights(self, shares: FloatArray) -> FloatArray:
        """Return the weights of all cells in the deviation."""
        return np.asarray(self.scale[:, None] * (shares - self.anchor))

    def spread(self, shares: FloatArray) -> float:
        """Return the standard deviation of the slack."""
        return self.covariance.spread(self.weights(shares))

    def chance(self, shares: FloatArray, tolerance: float) -> float:
        """Return the probability that the guardrail holds."""
        level, spread = self.level(shares), self.spread(shares)
        return float(level >= -tolerance) if spread <= 1e-3 * tolerance else float(ndtr(level / spread))

    def spread_slope(self, shares: FloatArray) -> tuple[float, FloatArray]:
        """Return the deviation, and its gradient by the shares; zero where there is none."""
        pull = self.covariance.times(self.weights(shares))
        spread = np.sqrt(max(float((self.weights(shares) * pull).sum()), 0.0))
        return float(spread), np.asarray(self.scale[:, None] * pull / max(spread, TINY))

    def alone(self) -> FloatArray:
        """Return the deviation of each cell alone, anchors left out, (segments, candidates)."""
        return np.asarray(self.scale[:, None] * np.sqrt(self.covariance.variances()))

    def root(self, cells: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return F (rank, cells) and f with spread = ‖F p − f‖ for shares p of these cells and none of others."""
        width = self.slack.shape[1]
        concerned = np.flatnonzero(self.scale[cells // width] != 0.0)
        anchored = np.flatnonzero(self.weights(np.zeros_like(self.slack)).ravel())
        places = np.union1d(cells[concerned], anchored)
        root = symmetric_root(self.covariance.block(places)) * self.scale[places // width]
        matrix = np.zeros((len(places), len(cells)))
        matrix[:, concerned] = root[:, np.searchsorted(places, cells[concerned])]
        return matrix, root @ self.anchor.ravel()[places]


@dataclass(frozen=True, slots=True, eq=False)
class RobustSegments:
    """Best distributions of segments under a posterior."""

    probabilities: FloatArray
    """(segments, candidates)."""
    duals: FloatArray
    """(guardrails,): prices of the hard guardrails."""
    certified: bool
    """Whether every hard guardrail holds with the confidence asked for."""


def solve_robust_segments(
    goal: FloatArray, rails: Sequence[UncertainRail], deviations: float, start: FloatArray
) -> RobustSegments | None:
    """Return the best distributions for a goal (segments, candidates), hard guardrails held with this many deviations.

    If none hold them all, the answer holds them with the highest confidence possible; None if none do even in the mean.
    `start` has distributions whose cells are tried first.

    >>> covariance = CellCovariance(np.full((1, 2), 0.01), np.zeros((1, 2, 0)), np.zeros((1, 2, 0)))
    >>> rail = UncertainRail(np.array([[-2.0, 2.0]]), np.ones(1), covariance, np.zeros((1, 2)), np.inf)
    >>> goal, start = np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]])
    >>> solve_robust_segments(goal, [rail], 1.64, start).probabilities.round(3)
    array([[0.471, 0.529]])
    """
    unit = float(np.ptp(goal, axis=1).max()) or max(
        (rail.penalty for rail in rails if np.isfinite(rail.penalty)), default=1.0
    )
    sizes = [_size(rail, deviations) for rail in rails]
    scaled = [
        replace(
            rail,
            slack=rail.slack / size,
            scale=rail.scale / size,
            penalty=rail.penalty * size**2 / unit,
        )
        for rail, size in zip(rails, sizes, strict=True)
    ]
    search = _Search(
        (goal - goal.max(axis=1, keepdims=True)) / unit, scaled, _first_cells(goal, scaled, deviations, start)
    )
    fraction, nearest = 1.0, search.find_holding(deviations)
    certified = nearest is not None
    if nearest is None:
        low, high = 0.0, 1.0
        nearest = search.find_holding(0.0)
        if nearest is None:
            return None
        for _ in range(CONFIDENCE_STEPS):
            middle = 0.5 * (low + high)
            found = search.find_holding(middle * deviations)
            low, high, nearest = (low, middle, nearest) if found is None else (middle, high, found)
        fraction = low * (1.0 - EASED_FRACTION)
    try:
        shares, duals = search.solve(fraction * deviations)
    except SolverError:
        if not search.hard:
            raise
        # Hardly any distributions hold the guardrails: those that were found are as good as others.
        shares, duals = nearest, np.zeros(len(rails))
    return RobustSegments(shares, duals * unit / np.array(sizes, dtype=float), certified)


def _size(rail: UncertainRail, deviations: float) -> float:
    """Return a number of about the size of the slack and the deviations."""
    by_segment = np.maximum(np.abs(rail.slack).max(axis=1), deviations * rail.alone().max(axis=1))
    return float(by_segment.sum()) or 1.0


def _first_cells(
    goal: FloatArray, rails: Sequence[UncertainRail], deviations: float, start: FloatArray
) -> NDArray[np.intp]:
    scores = [goal, *(rail.slack - deviations * rail.alone() for rail in rails if rail.scale.any())]
    best = [np.argsort(-score, axis=1, kind="stable")[:, :FIRST_CELLS] for score in scores]
    width = goal.shape[1]
    places = np.arange(len(goal))[:, None] * width
    return np.unique(np.concatenate([np.flatnonzero(start > 0.0), *((places + part).ravel() for part in best)]))


@dataclass(slots=True, eq=False)
class _Tangent:
    """Tangent plane of an expected penalty in level and spread."""

    rail: int
    by_level: float
    by_spread: float
    constant: float


class _Search:
    """Column generation over cells; the cells found serve all programs of one posterior."""

    def __init__(self, goal: FloatArray, rails: Sequence[UncertainRail], cells: NDArray[np.intp]) -> None:
        self.goal, self.rails, self.cells = goal, rails, cells
        self.hard = [place for place, rail in enumerate(rails) if np.isinf(rail.penalty)]
        self.soft = [place for place, rail in enumerate(rails) if not np.isinf(rail.penalty)]
        self.tangents = [_Tangent(place, 0.0, 0.0, 0.0) for place in self.soft]

    def find_holding(self, deviations: float) -> FloatArray | None:
        """Return distributions that hold every hard guardrail with this many deviations, or None."""
        for _ in range(MAX_TURNS):
            shares, duals, miss = self._solve_cells(deviations, elastic=True)
            if miss <= SHORTFALL:
                return shares
            priced = self._price(np.zeros_like(self.goal), shares, duals, deviations)
            if not self._enter(priced, shares, 1e-9):
                return None
        return None

    def solve(self, deviations: float) -> tuple[FloatArray, FloatArray]:
        """Return the best distributions and the prices of the hard guardrails."""
        best: tuple[float, FloatArray, FloatArray] | None = None
        for _ in range(MAX_TURNS):
            shares, duals, _ = self._solve_cells(deviations, elastic=False)
            priced = self._price(self._slope(shares), shares, duals, deviations)
            held = sum(float(duals[place]) * self._margin(place, shares, deviations) for place in self.hard)
            gap = held + float((priced.max(axis=1, keepdims=True) * shares - priced * shares).sum())
            gap /= 1.0 + float(duals.max(initial=0.0))
            if best is None or gap < best[0]:
                best = gap, shares, duals
            if gap <= TARGET_GAP:
                break
            entered = self._enter(priced, shares, 0.1 * TARGET_GAP)
            cut = self._cut(shares)
            if not entered and not cut:
                break
        assert best is not None  # noqa: S101 -- MAX_TURNS is positive
        if best[0] > MAX_GAP:
            raise SolverError(
                f"the robust blends of {len(self.goal)} segments were found only to a gap of {best[0]:.3g} of the "
                "goal's range; are the metrics, their errors or the penalties many orders of magnitude apart?"
            )
        return best[1], best[2]

    def _margin(self, place: int, shares: FloatArray, deviations: float) -> float:
        rail = self.rails[place]
        return rail.level(shares) - deviations * rail.spread(shares)

    def _slope(self, shares: FloatArray) -> FloatArray:
        """Return the gradient of the goal less the expected penalties."""
        slope = self.goal.copy()
        for place in self.soft:
            rail = self.rails[place]
            spread, by_share = rail.spread_slope(shares)
            _, by_level, by_spread = _penalty_slopes(rail.level(shares), spread)
            slope -= rail.penalty * (by_level * rail.slack + by_spread * by_share)
        return slope

    def _price(self, slope: FloatArray, shares: FloatArray, duals: FloatArray, deviations: float) -> FloatArray:
        """Return the worth of each cell: the goal's gradient and that of the priced guardrails."""
        priced = slope.copy()
        for place in self.hard:
            rail = self.rails[place]
            _, by_share = rail.spread_slope(shares)
            priced += duals[place] * (rail.slack - deviations * by_share)
        return priced

    def _enter(self, priced: FloatArray, shares: FloatArray, least: float) -> bool:
        """Add the cells that are worth more than those in use; return whether there were any."""
        level = (priced * shares).sum(axis=1, keepdims=True)
        worth = np.where(priced > level + least, priced, -np.inf)
        worth.ravel()[self.cells] = -np.inf
        order = np.argsort(-worth, axis=1, kind="stable")[:, :FIRST_CELLS]
        places = (np.arange(len(worth))[:, None] * worth.shape[1] + order)[
            np.take_along_axis(worth, order, 1) > -np.inf
        ]
        self.cells = np.union1d(self.cells, places)
        return len(places) > 0

    def _cut(self, shares: FloatArray) -> bool:
        """Add the tangent planes of the expected penalties at the shares."""
        for place in self.soft:
            rail = self.rails[place]
            level, spread = rail.level(shares), rail.spread(shares)
            cost, by_level, by_spread = _penalty_slopes(level, spread)
            self.tangents.append(_Tangent(place, by_level, by_spread, cost - by_level * level - by_spread * spread))
        return bool(self.soft)

    def _solve_cells(self, deviations: float, *, elastic: bool) -> tuple[FloatArray, FloatArray, float]:
        """Return the best shares of the present cells, duals of the hard guardrails, and the common shortfall.

        The unknowns are the shares, the spread and the cost of each soft guardrail, and the shortfall if it is elastic:
        then it alone is made small.
        """
        import clarabel

        segments, width = self.goal.shape
        cells, count = self.cells, len(self.cells)
        soft = [] if elastic else self.soft
        total = count + 2 * len(soft) + elastic
        aim = np.zeros(total)
        if elastic:
            aim[-1] = 1.0
        else:
            aim[:count] = -self.goal.ravel()[cells]
            aim[count + len(soft) : count + 2 * len(soft)] = [self.rails[place].penalty for place in soft]
        member = sparse.csr_matrix((np.ones(count), (cells // width, np.arange(count))), shape=(segments, total))
        rows: list[Any] = [member, -sparse.eye(total)]
        limits = [np.ones(segments), np.zeros(total)]
        planes = [tangent for tangent in self.tangents if not elastic]
        cuts = np.zeros((len(planes), total))
        for row, tangent in zip(cuts, planes, strict=True):
            place = soft.index(tangent.rail)
            row[:count] = tangent.by_level * self.rails[tangent.rail].slack.ravel()[cells]
            row[count + place], row[count + len(soft) + place] = tangent.by_spread, -1.0
        rows.append(sparse.csr_matrix(cuts))
        limits.append(np.array([-tangent.constant for tangent in planes]))
        cones = [clarabel.ZeroConeT(segments), clarabel.NonnegativeConeT(total + len(planes))]
        tops, at = [], segments + total + len(planes)
        for place in [*self.hard, *soft]:
            rail = self.rails[place]
            matrix, offset = rail.root(cells)
            block = np.zeros((1 + len(matrix), total))
            hard = np.isinf(rail.penalty)
            if hard:
                block[0, :count] = -rail.slack.ravel()[cells]
                block[0, -1] -= float(elastic)
            else:
                block[0, count + soft.index(place)] = -1.0
            times = deviations if hard else 1.0
            block[1:, :count] = -times * matrix
            rows.append(sparse.csr_matrix(block))
            limits.append(np.append(-HARD_MARGIN if hard else 0.0, -times * offset))
            cones.append(clarabel.SecondOrderConeT(len(block)))
            tops.append(at)
            at += len(block)
        settings = clarabel.DefaultSettings()
        settings.verbose, settings.max_threads = False, 1
        settings.tol_feas = settings.tol_gap_abs = settings.tol_gap_rel = 1e-10
        solution = clarabel.DefaultSolver(
            sparse.csc_matrix((total, total)),
            aim,
            sparse.vstack(rows).tocsc(),
            np.concatenate(limits),
            cones,
            settings,
        ).solve()
        answer, multipliers = np.array(solution.x), np.array(solution.z)
        shares = np.zeros(segments * width)
        shares[cells] = np.where(answer[:count] < MIN_SHARE, 0.0, answer[:count])
        shares = shares.reshape(segments, width)
        # The gap proves an answer with any status; but some answers are no distributions.
        if "nfeasible" in str(solution.status) or not (np.abs(shares.sum(axis=1) - 1.0) < 1e-3).all():
            raise SolverError(f"the robust blends of {segments} segments were not found: {solution.status}")
        shares /= shares.sum(axis=1, keepdims=True)
        duals = np.zeros(len(self.rails))
        duals[self.hard] = np.maximum(multipliers[tops[: len(self.hard)]], 0.0)
        return shares, duals, float(answer[-1]) if elastic else 0.0


def _penalty_slopes(level: float, spread: float) -> tuple[float, float, float]:
    """Return E min(0, S)² for S ~ N(level, spread²), and its slopes by level and by spread."""
    deviation = max(spread, TINY)
    ratio = level / deviation
    miss = float(ndtr(-ratio))
    cost = float(expected_penalty(np.array(level), np.array(spread)))
    shortfall = deviation * miss * float(hazard(np.array(ratio)) - ratio)
    return cost, -2.0 * shortfall, 2.0 * spread * miss
