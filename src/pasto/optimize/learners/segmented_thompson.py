"""Thompson sampling with segments: a blend for each, learned from all of them together.

Every segment has sums of its own. The posterior of all cells (candidates in segments) comes from the segment model, in
which segments share what they have in common. A policy is made of posterior draws; each draw has its own exact blends,
and names one candidate in each segment. The answer is the best set of blends whose guardrails hold with confidence.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pasto.arrays import FloatArray
from pasto.errors import ObjectiveError, OptionError, StateError, UnsupportedError
from pasto.estimate import Overdispersion, SegmentPosterior, SegmentSpreads, SufficientStatistics, fit_segments
from pasto.objective import LinearGoal, SegmentedForm, UtilityGoal
from pasto.optimize.exact.segmented import SegmentedProgram, solve_segments, solve_segments_batch
from pasto.optimize.learners.base import Learner, LearningProblem, RoundResult
from pasto.optimize.learners.exploration_limits import cap_shares, limit_to_budget
from pasto.optimize.learners.segmented_certificate import SegmentedAnswer, solve_certified_segments
from pasto.optimize.learners.thompson import (
    MIN_DRAWS,
    MIN_MEASURED_CANDIDATES,
    PROBE_SHARE,
    Thompson,
    read_cells,
)
from pasto.segmented_blend import SegmentedBlend

SHARE_PRIOR_UNITS = 0.5
"""Units that each segment has before any is observed."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentTraffic:
    """Units observed in each segment, from which the shares of traffic are learned."""

    units: FloatArray
    """(segments,): Σ n over rounds."""
    squares: FloatArray
    """(segments,): Σ n² / units of the round."""
    rounds: float

    @classmethod
    def empty(cls, segments: int) -> Self:
        """Return the traffic before the first round."""
        return cls(np.zeros(segments), np.zeros(segments), 0.0)

    def add(self, units: FloatArray) -> SegmentTraffic:
        """Return the traffic with one more round."""
        return SegmentTraffic(self.units + units, self.squares + units**2 / units.sum(), self.rounds + 1.0)

    def fade(self, factor: float) -> SegmentTraffic:
        """Return the traffic at a fraction of its weight."""
        return SegmentTraffic(factor * self.units, factor * self.squares, factor * self.rounds)

    def shares(self) -> FloatArray:
        """Return the expected shares, (segments,)."""
        counts = self.units + SHARE_PRIOR_UNITS
        return np.asarray(counts / counts.sum())

    def error_root(self) -> FloatArray:
        """Return R, (segments, segments), with R Rᵀ the covariance of the shares.

        It is that of multinomial counts. If the shares of rounds scatter more than that, it is larger by this factor.

        >>> traffic = SegmentTraffic.empty(2).add(np.array([30.0, 70.0])).add(np.array([50.0, 50.0]))
        >>> float((traffic.error_root() @ traffic.error_root().T)[0, 0] / (0.4 * 0.6 / 200)).__round__(1)
        8.3
        """
        shares, count = self.shares(), float(self.units.sum()) + SHARE_PRIOR_UNITS * len(self.units)
        degrees = (self.rounds - 1.0) * (len(shares) - 1.0)
        scatter = float((self.squares / shares).sum()) - float(self.units.sum())
        factor = max(1.0, scatter / degrees) if degrees > 0.0 else 1.0
        # √q (I − √q √qᵀ) is a root of diag(q) − q qᵀ.
        half = np.sqrt(shares)
        return np.asarray(np.sqrt(factor / count) * half[:, None] * (np.eye(len(half)) - np.outer(half, half)))


@dataclass(frozen=True, slots=True, eq=False)
class SegmentedState:
    """State of the learner: each segment's sums, and what they have in common."""

    rounds: int
    statistics: tuple[SufficientStatistics, ...]
    """By segment."""
    traffic: SegmentTraffic
    round_units: FloatArray
    """(segments,): units in the last round, without the control."""
    spreads: SegmentSpreads | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentedThompson:
    """Gaussian posterior over candidates in segments, exact blends of posterior draws, and a robust answer.

    >>> SegmentedThompson().floor
    0.01
    """

    name: ClassVar[str] = "thompson"
    even: ClassVar[bool] = True
    draws: int = MIN_DRAWS
    """Posterior draws for each policy."""
    floor: float = 0.01
    """The share of each segment's traffic spread evenly over all candidates."""
    half_life: float | None = None
    """Rounds after which an observation counts half; None never forgets."""

    @classmethod
    def of(cls, choice: str | Learner[Any]) -> Self:
        """Return the learner for a study with segments; raise if what was chosen cannot learn them."""
        if isinstance(choice, cls):
            return choice
        if choice == "thompson":
            return cls()
        if not isinstance(choice, Thompson):
            name = choice if isinstance(choice, str) else choice.name
            raise UnsupportedError(f"segments= needs learner='thompson', got {name!r}")
        if choice.contrast is not None or choice.structure == "process":
            option = f"contrast={choice.contrast!r}" if choice.contrast is not None else "structure='process'"
            raise UnsupportedError(f"segments= does not go with Thompson({option}) yet; leave it out")
        return cls(draws=choice.draws or MIN_DRAWS, floor=choice.floor, half_life=choice.half_life)

    def check(self, problem: LearningProblem) -> None:
        """Raise an error that names the fix if this learner cannot take the problem."""
        Thompson().check(replace(problem, limits=replace(problem.limits, loss_budget={})))
        form = self._form(problem, np.full(len(problem.segments), 1.0 / len(problem.segments)), None)
        if isinstance(form.common.goal, UtilityGoal):
            raise UnsupportedError("segments= does not go with a utility yet; state a weighted sum or a ratio as goal")
        if problem.history is not None:
            raise UnsupportedError("segments= does not go with history= yet; leave it out")
        budget = problem.limits.loss_budget
        if budget and problem.baseline is None:
            raise OptionError("loss_budget= falls back on the baseline, and none was named; pass baseline=")
        if unknown := [name for name in budget if name not in problem.objective.names]:
            raise OptionError(
                f"loss_budget= names {unknown[0]!r}; the guardrails are {', '.join(problem.objective.names)}"
            )

    def start(self, problem: LearningProblem) -> SegmentedState:
        """Return the state without measurements."""
        count = len(problem.segments)
        statistics = tuple(SufficientStatistics.empty(*problem.shape) for _ in range(count))
        return SegmentedState(0, statistics, SegmentTraffic.empty(count), np.zeros(count))

    def learn(self, problem: LearningProblem, state: SegmentedState, round: RoundResult) -> SegmentedState:
        """Add the round's cells to the sums of their segments, and learn what segments have in common."""
        statistics, traffic = state.statistics, state.traffic
        if self.half_life is not None:
            factor = 0.5 ** (1.0 / self.half_life)
            statistics, traffic = tuple(sums.fade(factor) for sums in statistics), traffic.fade(factor)
        units, served, added = np.zeros(len(statistics)), np.zeros(len(statistics)), list(statistics)
        for place, part in enumerate(round.segments):
            if part is None:
                continue
            cells = read_cells(problem, part)
            assert cells.units is not None  # noqa: S101 -- observations have units
            added[place] = added[place].add(cells.candidates, cells.means, cells.units, cells.covariances)
            units[place] = cells.units.sum()
            served[place] = cells.units[: len(part.sample.candidates)].sum()
        estimates, precisions = measured_cells(added)
        spreads = fit_segments(estimates, precisions, state.spreads).spreads
        return SegmentedState(state.rounds + 1, tuple(added), traffic.add(units), served, spreads)

    def posterior(self, state: SegmentedState) -> SegmentPosterior:
        """Return the posterior of the means of all cells."""
        return fit_segments(*measured_cells(state.statistics), state.spreads, steps=0)

    def traffic_shares(self, problem: LearningProblem, state: SegmentedState) -> FloatArray:
        """Return the segments' shares of traffic, stated or learned."""
        return state.traffic.shares() if problem.segment_shares is None else np.array(problem.segment_shares)

    def propose(self, problem: LearningProblem, state: SegmentedState, rng: np.random.Generator) -> FloatArray:
        """Return the policy of each segment, (segments, candidates), within limits and above the floor."""
        active = problem.active
        even = np.tile(active / active.sum(), (len(problem.segments), 1))
        if not state.rounds:
            return self._apply_limits(problem, state, even, None)
        posterior, shares = self.posterior(state), self.traffic_shares(problem, state)
        samples = posterior.draw(self.draws, rng, problem.order)
        blends, rows = self._draw_blends(problem, posterior, shares, samples)
        covariances = posterior.project(rows).by_candidate()
        noises = np.array(
            [row @ sums.pooled_covariance() @ row for row, sums in zip(rows, state.statistics, strict=True)]
        )
        least = max(1e-12 * float(np.einsum("kss->ks", covariances).max()), 1e-300)
        slots = np.maximum(noises, least) * self.draws / np.maximum(state.round_units, 1.0)
        policy = self.floor * even + (1.0 - self.floor) * allocate_segments(blends, covariances, slots, shares)
        return self._apply_limits(problem, state, policy, posterior)

    def grow(self, problem: LearningProblem, state: SegmentedState) -> SegmentedState:
        """Add new candidates without measurements."""
        missing = len(problem.names) - len(state.statistics[0].units)
        return replace(state, statistics=tuple(sums.grow(missing) for sums in state.statistics))

    def answer(self, problem: LearningProblem, state: SegmentedState) -> SegmentedBlend:
        """Return the blends of the highest expected f that hold hard guardrails with confidence."""
        return self.solve(problem, state, self.posterior(state)).summarize(self._overdispersion(state))

    def samples(
        self, problem: LearningProblem, state: SegmentedState, draws: int, rng: np.random.Generator
    ) -> FloatArray:
        """Return the expected means and posterior draws, (1 + draws, segments, metrics, candidates)."""
        posterior = self.posterior(state)
        drawn = posterior.draw(draws, rng, problem.order)
        return np.concatenate([posterior.means[None], drawn]).transpose(0, 1, 3, 2)

    def save(self, state: SegmentedState) -> dict[str, Any]:
        """Return the state as lists and numbers."""
        traffic = state.traffic
        return {
            "rounds": state.rounds,
            "statistics": [sums.to_saved() for sums in state.statistics],
            "traffic": [traffic.units.tolist(), traffic.squares.tolist(), traffic.rounds],
            "round_units": state.round_units.tolist(),
            "spreads": None if state.spreads is None else state.spreads.to_saved(),
        }

    def load(self, problem: LearningProblem, saved: dict[str, Any]) -> SegmentedState:
        """Return the state that `save` wrote."""
        metrics, count = problem.shape
        try:
            units, squares, rounds = saved["traffic"]
            state = SegmentedState(
                int(saved["rounds"]),
                tuple(SufficientStatistics.from_saved(sums, metrics) for sums in saved["statistics"]),
                SegmentTraffic(np.array(units, dtype=float), np.array(squares, dtype=float), float(rounds)),
                np.array(saved["round_units"], dtype=float),
                None if saved["spreads"] is None else SegmentSpreads.from_saved(saved["spreads"]),
            )
            shapes = {sums.sums.shape for sums in state.statistics}
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise StateError(f"the saved learner cannot be read: {error!r}") from error
        if shapes != {(count, metrics)} or len(state.statistics) != len(problem.segments):
            raise StateError(
                f"the saved learner has {len(state.statistics)} segments of (candidates, metrics) = {sorted(shapes)}, "
                f"the study has {len(problem.segments)} of {(count, metrics)}"
            )
        return state

    def settings(self) -> dict[str, Any]:
        """Return the configuration as a plain JSON value."""
        return asdict(self)

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Self:
        """Return the learner that `settings` described."""
        if unknown := set(settings) - {f.name for f in fields(cls)}:
            raise StateError(f"learner {cls.name!r} with segments has no setting {sorted(unknown)[0]!r}")
        return cls(**settings)

    def _form(self, problem: LearningProblem, shares: FloatArray, means: FloatArray | None) -> SegmentedForm:
        """Return the form over means (segments, metrics, candidates); percentages are over their baseline."""
        named = dict(zip(problem.segments, shares.tolist(), strict=True))
        if not problem.objective.relative or problem.baseline is None:
            return problem.objective.segmented_form(named)
        baselines = np.ones((len(shares), problem.shape[0])) if means is None else means[:, :, problem.baseline]
        return problem.objective.segmented_form(named, baselines)

    def _draw_blends(
        self, problem: LearningProblem, posterior: SegmentPosterior, shares: FloatArray, samples: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the exact blends of each draw, (draws, segments, candidates), and the metrics' prices by segment."""
        active = np.flatnonzero(problem.active)
        expected, means = posterior.means.transpose(0, 2, 1), samples.transpose(0, 1, 3, 2)
        forms = []
        for truth in means if problem.objective.relative else means[:1]:
            try:
                forms.append(self._form(problem, shares, truth))
            except ObjectiveError:  # a draw with a negative baseline
                forms.append(self._form(problem, shares, expected))
        served = means[..., active]
        if not problem.objective.relative:
            forms = forms * len(means)
        own_duals: FloatArray
        if isinstance(forms[0].common.goal, LinearGoal):
            solutions = solve_segments_batch(_stack_programs(forms, served))
            probabilities, duals, own_duals = solutions.probabilities, solutions.duals, solutions.own_duals
        else:
            each = [solve_segments(form, truth) for form, truth in zip(forms, served, strict=True)]
            probabilities = np.array([solution.probabilities for solution in each])
            duals = np.array([solution.duals for solution in each])
            own_duals = np.array([solution.own_duals for solution in each])
        blends = np.zeros((len(means), len(shares), len(problem.names)))
        blends[:, :, active] = probabilities
        rows = np.zeros((len(shares), problem.shape[0]))
        for form, truth, blend, dual, own_dual in zip(forms, means, blends, duals, own_duals, strict=True):
            rows += form.common.goal.gradient(form.mix(np.einsum("smk,sk->sm", truth, blend))) + dual @ form.common.rows
            own_rows = np.concatenate([own.rows for own in form.own])
            np.add.at(rows, form.owners, (own_dual / shares[form.owners])[:, None] * own_rows)
        return blends, rows / len(means)

    def solve(self, problem: LearningProblem, state: SegmentedState, posterior: SegmentPosterior) -> SegmentedAnswer:
        """Return the robust blends under a posterior."""
        shares = self.traffic_shares(problem, state)
        errors = np.zeros((len(shares), 0)) if problem.segment_shares is not None else state.traffic.error_root()
        form = self._form(problem, shares, posterior.means.transpose(0, 2, 1))
        unmeasured = np.array([not sums.measured.any() for sums in state.statistics])
        return solve_certified_segments(problem, form, posterior, errors, complete=not unmeasured.any())

    def _overdispersion(self, state: SegmentedState) -> Overdispersion:
        """Compare the scatter of repeats with the stated errors, over all segments."""
        ratios, degrees = zip(*(sums.scatter_ratio() for sums in state.statistics), strict=True)
        table, weights = np.array(ratios), np.array(degrees)[:, None] * np.isfinite(ratios)
        total = weights.sum(axis=0)
        pooled = np.where(total > 0.0, (weights * np.nan_to_num(table)).sum(axis=0) / np.maximum(total, 1e-300), np.nan)
        return Overdispersion.from_ratio(pooled, float(total.min(initial=np.inf)) if len(total) else 0.0)

    def _apply_limits(
        self, problem: LearningProblem, state: SegmentedState, policy: FloatArray, posterior: SegmentPosterior | None
    ) -> FloatArray:
        """Return the policy within the largest shares and the loss budgets."""
        limits = problem.limits
        if not limits.has_limits:
            return policy
        unseen = problem.active & ~np.array([sums.measured for sums in state.statistics])
        most = np.where(problem.active, 1.0 if limits.max_share is None else limits.max_share, 0.0) * np.ones(
            policy.shape
        )
        if limits.new_candidate_share is not None:
            most = np.where(unseen, np.minimum(most, limits.new_candidate_share), most)
        fallback = problem.active / problem.active.sum()
        if problem.baseline is not None:
            fallback = np.asarray(np.arange(len(fallback)) == problem.baseline, dtype=float)
            most[:, problem.baseline] = 1.0
            unseen[:, problem.baseline] = False

        def cap(shares: FloatArray) -> FloatArray:
            return np.array([cap_shares(row, limit, fallback) for row, limit in zip(shares, most, strict=True)])

        if not limits.loss_budget:
            return cap(policy)
        # Cells that were never measured share one small probe; the rest is bounded together with it.
        probe = np.where(unseen.any(axis=1), np.minimum(PROBE_SHARE, (most * unseen).sum(axis=1)), 0.0)[:, None]
        fresh = np.where(unseen, probe / np.maximum(unseen.sum(axis=1, keepdims=True), 1), 0.0)
        retreat = (1.0 - probe) * fallback + fresh
        measured_count = int((problem.active & ~unseen).any(axis=0).sum())
        if posterior is None or (unseen.any() and measured_count < MIN_MEASURED_CANDIDATES):
            return np.asarray(retreat)
        answer = self.solve(problem, state, posterior)
        bounds = SegmentedBounds(problem, answer)
        wished = (1.0 - probe) * cap(np.where(unseen, 0.0, policy)) + fresh
        refuges = [retreat, (1.0 - probe) * cap(answer.shares) + fresh]
        return limit_to_budget(wished, refuges, bounds)


@dataclass(frozen=True, slots=True, eq=False)
class SegmentedBounds:
    """Test of policies of segments against the loss budgets, with the stated confidence for all budgets together."""

    problem: LearningProblem
    answer: SegmentedAnswer

    def holds(self, policy: FloatArray) -> bool:
        """Return whether the lower bound of every budgeted guardrail is within its loss."""
        limits, answer = self.problem.limits, self.answer
        budgeted = [rail for rail in answer.rails if rail.stated in limits.loss_budget]
        z = float(ndtri(1.0 - (1.0 - limits.confidence) / max(len(budgeted), 1)))
        shares = policy[:, answer.active]
        return all(
            rail.uncertain.level(shares) - z * rail.uncertain.spread(shares)
            >= -(limits.loss_budget[rail.stated] * rail.unit(answer, shares) + rail.tolerance)
            for rail in budgeted
        )


def allocate_segments(
    blends: FloatArray, covariances: FloatArray, noises: FloatArray, traffic: FloatArray
) -> FloatArray:
    """Give each drawn blend's slot in each segment to the candidate whose measurement informs it most.

    `blends` (draws, segments, candidates) are the exact answers of posterior draws, `covariances` (candidates,
    segments, segments) what is still unknown of each candidate, `noises` (segments,) the variance of a slot's
    measurement, and `traffic` the segments' shares. A measurement of candidate k in segment s removes c² / (v + noise)
    from the variance of Σ q_t p_tk θ_tk, with v the variance of θ_sk and c its covariance with that sum. Without
    anything in common, c is q_s p_sk v. Slots are given one after the other and count as seen.
    """
    left = covariances.copy()
    counts = np.zeros(blends.shape[1:])
    every = np.arange(len(traffic))
    for blend in blends:
        weights = (traffic[:, None] * blend).T
        covered = np.einsum("kst,kt->sk", left, weights)
        variances = np.einsum("kss->sk", left) + noises[:, None]
        chosen = np.argmax(np.where(blend > 0.0, covered**2 / variances, -1.0), axis=1)
        counts[every, chosen] += 1.0
        for segment, candidate in enumerate(chosen.tolist()):
            column = left[candidate, :, segment]
            left[candidate] -= np.outer(column, column) / (column[segment] + noises[segment])
    return counts / len(blends)


def measured_cells(
    statistics: tuple[SufficientStatistics, ...] | list[SufficientStatistics],
) -> tuple[FloatArray, FloatArray]:
    """Return the measured means of all cells and their precisions."""
    estimates, precisions = [], []
    for sums in statistics:
        origin = np.where(np.isnan(sums.origin), 0.0, sums.origin)
        estimates.append(sums.estimates() + origin)
        measured: NDArray[np.bool_] = sums.measured
        precision = sums.likelihood()[0] if measured.any() else np.zeros((len(measured), len(origin), len(origin)))
        precisions.append(np.where(measured[:, None, None], precision, 0.0))
    return np.array(estimates), np.array(precisions)


def _stack_programs(forms: list[SegmentedForm], means: FloatArray) -> SegmentedProgram:
    """Return the programs of many draws as one."""
    if all(form is forms[0] for form in forms):
        return SegmentedProgram.of(forms[0], means)
    programs = [SegmentedProgram.of(form, truth) for form, truth in zip(forms, means, strict=True)]
    return replace(
        programs[0],
        goal=np.array([program.goal for program in programs]),
        slack=np.array([program.slack for program in programs]),
        own=np.array([program.own for program in programs]),
    )
