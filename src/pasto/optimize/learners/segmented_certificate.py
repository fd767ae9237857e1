"""Robust blends of segments under a posterior, and their certificates, on all traffic and for each segment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pasto.arrays import FloatArray
from pasto.blend import Certificate
from pasto.errors import SolverError, UnsupportedError
from pasto.estimate import Overdispersion, SegmentPosterior
from pasto.objective import LinearGoal, NormalForm, RatioGoal, SegmentedForm
from pasto.objective.goals import Guardrail
from pasto.optimize.chance_constrained.robust_blend import solve_robust
from pasto.optimize.chance_constrained.segmented_robust import RobustSegments, UncertainRail, solve_robust_segments
from pasto.optimize.exact.segmented import SegmentedSolution, solve_segments
from pasto.optimize.learners.base import LearningProblem
from pasto.optimize.solve_segments import solve_common_blend, summarize_segments
from pasto.segmented_blend import SegmentedBlend

MAX_RATIO_TURNS = 100


@dataclass(frozen=True, slots=True, eq=False)
class StatedRail:
    """Guardrail of the objective, on all traffic or in one segment."""

    stated: str
    """Its name in the objective."""
    name: str
    """Its name on all traffic, or in its segment."""
    segment: int | None
    """None for all traffic."""
    place: int
    """Among the guardrails on all traffic, or of its segment."""
    uncertain: UncertainRail
    tolerance: float

    @property
    def hard(self) -> bool:
        """Return whether it must hold with the stated confidence."""
        return bool(np.isinf(self.uncertain.penalty))

    def unit(self, answer: SegmentedAnswer, shares: FloatArray) -> float:
        """Return the slack that one unit of the guardrail is, at some distributions."""
        form = answer.form.common if self.segment is None else answer.form.own[self.segment]
        vectors = np.einsum("skm,sk->sm", answer.posterior.means, shares)
        vector = answer.form.mix(vectors) if self.segment is None else vectors[self.segment]
        relief = form.relief[self.place]
        return float(relief @ vector) if relief.any() else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class SegmentedAnswer:
    """Robust blends of segments, over the candidates in service."""

    problem: LearningProblem
    form: SegmentedForm
    posterior: SegmentPosterior
    """Of the candidates in service."""
    errors: FloatArray
    """(segments, rank): a root of the covariance of the segments' shares."""
    rails: tuple[StatedRail, ...]
    active: NDArray[np.intp]
    solution: RobustSegments
    complete: bool
    """Whether every segment was measured."""

    @property
    def shares(self) -> FloatArray:
        """The distributions over all candidates, (segments, candidates)."""
        return self._spread_out(self.solution.probabilities)

    def _spread_out(self, shares: FloatArray) -> FloatArray:
        everywhere = np.zeros((*shares.shape[:-1], len(self.problem.names)))
        everywhere[..., self.active] = shares
        return everywhere

    def summarize(self, overdispersion: Overdispersion) -> SegmentedBlend:
        """Return the answer as a record, with its certificates.

        If repeats scatter more than the stated errors allow, or a segment was never measured, nothing is certified.
        """
        problem, form, duals = self.problem, self.form, self.solution.duals
        wide = len(form.common.at)
        means = self.posterior.means.transpose(0, 2, 1)
        solution = SegmentedSolution(self.solution.probabilities, duals[:wide], duals[wide:], self.solution.certified)
        place = None if problem.baseline is None else int(np.searchsorted(self.active, problem.baseline))
        names = tuple(problem.names[k] for k in self.active)
        blend = summarize_segments(
            solution, self._common_blend(), form, means, problem.objective, names, problem.segments, place
        )
        understated = {
            name: float(factor)
            for name, factor, raised in zip(
                problem.objective.metrics, overdispersion.factors, overdispersion.raised, strict=True
            )
            if raised
        }
        segments = {
            name: replace(
                part,
                probabilities=tuple(self.shares[number].tolist()),
                support=tuple(int(self.active[k]) for k in part.support),
                certificate=self._certify(number, understated),
            )
            for number, (name, part) in enumerate(blend.segments.items())
        }
        single = blend.best_single
        return replace(
            blend,
            segments=segments,
            names=problem.names,
            best_single=None if single is None else int(self.active[single]),
            probabilities=tuple(self._spread_out(np.array(blend.probabilities)).tolist()),
            common_probabilities=tuple(self._spread_out(np.array(blend.common_probabilities)).tolist()),
            certificate=self._certify(None, understated),
        )

    def _common_blend(self) -> FloatArray:
        """Return the best distribution that is the same in every segment: with the same confidence, if it can be.

        Guardrails within segments are then only held on average.
        """
        problem, form = self.problem, self.form
        if any(len(own.at) for own in form.own):
            return solve_common_blend(form, self.posterior.means.transpose(0, 2, 1))
        offsets = np.array([_offset(rail) for rail in problem.objective.guardrails_within(None).values()])
        place = None if problem.baseline is None else int(np.searchsorted(self.active, problem.baseline))
        return solve_robust(
            form.common,
            self.posterior.mix(form.shares, self.errors),
            confidence=problem.limits.confidence,
            offsets=offsets,
            baseline=place,
        ).probabilities

    def _certify(self, segment: int | None, understated: Mapping[str, float]) -> Certificate:
        """Return the certificate of the guardrails on all traffic, or of those of one segment."""
        confidence, shares, form = self.problem.limits.confidence, self.solution.probabilities, self.form
        rails = [rail for rail in self.rails if rail.segment == segment]
        chances = {rail.name: rail.uncertain.chance(shares, rail.tolerance) for rail in rails}
        held = self.solution.certified
        if segment is not None:
            held = all(chances[rail.name] >= confidence - 1e-6 for rail in rails if rail.hard)
        reach = float(ndtri(0.5 + confidence / 2.0))
        intervals = {}
        for metric, name in enumerate(self.problem.objective.metrics):
            row = np.asarray(np.arange(self.posterior.means.shape[2]) == metric, dtype=float)
            scale = form.shares if segment is None else np.asarray(np.arange(len(form.shares)) == segment, dtype=float)
            errors = self.errors if segment is None else self.errors[:, :0]
            rail = _uncertain_rail(row, 0.0, scale, 0.0, None, np.inf, self.posterior, errors)
            middle, spread = rail.level(shares), rail.spread(shares)
            intervals[name] = (middle - reach * spread, middle + reach * spread)
        certified = held and not understated and self.complete
        return Certificate(confidence, certified, chances, intervals, dict(understated))


def solve_certified_segments(
    problem: LearningProblem, form: SegmentedForm, posterior: SegmentPosterior, errors: FloatArray, *, complete: bool
) -> SegmentedAnswer:
    """Return the blends of the highest expected f, each hard guardrail held with the stated confidence.

    Only candidates in service take part. `errors` is a root of the covariance of the segments' shares.
    """
    active = np.flatnonzero(problem.active)
    posterior = posterior if len(active) == len(problem.names) else posterior.take(active)
    means = posterior.means.transpose(0, 2, 1)
    rails = build_rails(problem, form, posterior, errors, active)
    exact = solve_segments(form, means)
    uncertain = [rail.uncertain for rail in rails]
    deviations = float(ndtri(problem.limits.confidence))

    def solve(row: FloatArray, offset: float = 0.0) -> RobustSegments | None:
        goal = form.shares[:, None] * (posterior.means @ row + offset)
        return solve_robust_segments(goal, uncertain, deviations, exact.probabilities)

    match form.common.goal:
        case LinearGoal(row, offset):
            solution = solve(row, offset)
        case RatioGoal() as goal:
            solution = _solve_ratio(goal, form, means, solve)
        case other:
            raise UnsupportedError(f"no robust blends of segments for a goal of kind {type(other).__name__}")
    if solution is None:  # no blends hold the hard guardrails even on average: the nearest miss
        solution = RobustSegments(exact.probabilities, np.zeros(len(rails)), certified=False)
    return SegmentedAnswer(problem, form, posterior, errors, rails, active, solution, complete)


def build_rails(
    problem: LearningProblem,
    form: SegmentedForm,
    posterior: SegmentPosterior,
    errors: FloatArray,
    active: NDArray[np.intp],
) -> tuple[StatedRail, ...]:
    """Return every guardrail with its uncertainty: those on all traffic, then those of each segment."""
    objective, shares = problem.objective, form.shares
    place = None if problem.baseline is None else int(np.searchsorted(active, problem.baseline))
    allowed, own_allowed = form.tolerances(posterior.means.transpose(0, 2, 1))
    stated = dict(zip(objective.guardrails, objective.names, strict=True))
    rails = []

    def add(
        part: NormalForm, stated_rails: Mapping[str, Guardrail], tolerances: FloatArray, segment: int | None
    ) -> None:
        weight = 1.0 if segment is None else float(shares[segment])
        scale = shares if segment is None else np.asarray(np.arange(len(shares)) == segment, dtype=float)
        share_errors = errors if segment is None else errors[:, :0]
        for number, (name, rail) in enumerate(stated_rails.items()):
            penalty = float(part.penalties[number]) * weight
            limit, row = float(part.at[number]), part.rows[number]
            uncertain = _uncertain_rail(row, limit, scale, _offset(rail), place, penalty, posterior, share_errors)
            rails.append(StatedRail(stated[rail], name, segment, number, uncertain, float(tolerances[number])))

    add(form.common, objective.guardrails_within(None), allowed, None)
    for number, name in enumerate(problem.segments):
        inside = {key: rail for key, rail in objective.guardrails_within(name).items() if rail.within is not None}
        add(form.own[number], inside, own_allowed[number], number)
    return tuple(rails)


def _offset(rail: Guardrail) -> float:
    """Return the part of the baseline's uncertainty in a guardrail, as `read_baseline_offsets`."""
    return 1.0 + rail.at / 100.0 if rail.relative else 0.0


def _uncertain_rail(
    row: FloatArray,
    limit: float,
    scale: FloatArray,
    offset: float,
    baseline: int | None,
    penalty: float,
    posterior: SegmentPosterior,
    errors: FloatArray,
) -> UncertainRail:
    """Return row · y ≥ limit over cells, for y the metrics of segments weighted by scale.

    An error of the shares moves the slack by the segments' own slacks. In them the anchor counts, too.
    """
    values = posterior.means @ row
    covariance = posterior.project(row)
    if errors.shape[1]:
        # Only differences between segments count, because the shares sum to one.
        covariance = covariance.with_shared((values - values.mean())[:, :, None] * (errors / scale[:, None])[:, None])
    anchor = np.zeros(values.shape)
    if baseline is not None:
        anchor[:, baseline] = offset
    return UncertainRail(scale[:, None] * (values - limit), scale, covariance, anchor, penalty)


def _solve_ratio(
    goal: RatioGoal, form: SegmentedForm, means: FloatArray, solve: Callable[[FloatArray], RobustSegments | None]
) -> RobustSegments | None:
    """Return the blends with the best ratio of expectations, by Dinkelbach's iteration."""
    top, bottom = (form.shares[:, None] * (half @ means) for half in (goal.numerator, goal.denominator))
    level = float((top / bottom).min())
    for _ in range(MAX_RATIO_TURNS):
        solution = solve(goal.numerator - level * goal.denominator)
        if solution is None:
            return None
        below = float((bottom * solution.probabilities).sum())
        reached = float((top * solution.probabilities).sum()) / below
        if reached <= level + 1e-9 * abs(level):
            return replace(solution, duals=solution.duals * goal.scale / below)
        level = reached
    raise SolverError(f"the ratio still rose after {MAX_RATIO_TURNS} rounds, at {level:.6g}")
