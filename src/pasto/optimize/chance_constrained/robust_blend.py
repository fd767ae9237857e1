"""Robust blend: the best in expectation under a posterior, with hard guardrails held with confidence.

Under a Gaussian posterior a guardrail's slack under a blend is Gaussian too. A soft guardrail costs its expected
penalty. A hard one must hold with the confidence: slack ≥ z · spread with Φ(z) = confidence, a second-order cone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from pasto.arrays import FloatArray
from pasto.errors import OptionError, SolverError, UnsupportedError
from pasto.estimate import Posterior
from pasto.objective import LinearGoal, NormalForm, RatioGoal, UtilityGoal
from pasto.optimize.chance_constrained.program import HARD_MARGIN, ChanceProgram, SlackCurve, expected_penalty
from pasto.optimize.chance_constrained.solver import solve_or_safest
from pasto.optimize.exact.solver import solve_exact, spreads

UTILITY_DRAWS = 128
"""Posterior draws over which a utility is averaged."""
MIN_SHARE = 1e-12
"""Shares below this are set to zero."""


@dataclass(frozen=True, slots=True, eq=False)
class RobustBlend:
    """Blend under a posterior.

    >>> import numpy as np
    >>> RobustBlend(np.array([0.25, 0.75]), value=0.5, duals=np.array([0.4]), certified=True).certified
    True
    """

    probabilities: FloatArray
    """(candidates,)."""
    value: float
    """The expected f: the goal less the soft guardrails' expected penalties. For a ratio, that of the expectations."""
    duals: FloatArray
    """(guardrails,): by how much the value rises as a unit is added to a hard guardrail's slack; 0 for soft ones."""
    certified: bool
    """True if each hard guardrail holds with the confidence asked for; otherwise this is the safest blend."""


def solve_robust(
    form: NormalForm,
    posterior: Posterior,
    *,
    confidence: float = 0.95,
    offsets: FloatArray | None = None,
    baseline: int | None = None,
    caps: ArrayLike | None = None,
    rng: np.random.Generator | None = None,
) -> RobustBlend:
    """Return the blend of the highest expected f that holds each hard guardrail with the confidence.

    The form is built at the posterior's mean. offsets (guardrails,) are the parts of the baseline's own value that
    each one is compared with, because it is uncertain too: row · means · (p − offset · baseline). caps are the
    largest shares, one for all or (candidates,). A utility is averaged over means drawn with rng. If no blend holds
    every hard guardrail, the answer holds them with the highest possible confidence; if none does even in the mean,
    it is the nearest miss.

    >>> import numpy as np, pasto
    >>> from pasto.estimate import IndependentPosterior
    >>> form = pasto.maximize("x").keep("y", at_least=0).form()
    >>> means = np.array([[2.0, 0.0], [-2.0, 2.0]])
    >>> for deviation in (0.0, 0.5, 2.0):
    ...     posterior = IndependentPosterior(means, np.tile(deviation**2 * np.eye(2), (2, 1, 1)))
    ...     answer = solve_robust(form, posterior)
    ...     print(answer.probabilities.round(3), round(answer.value, 3), answer.certified)
    [0.5 0.5] 1.0 True
    [0.348 0.652] 0.696 True
    [0. 1.] 0.0 False
    """
    if not 0.5 <= confidence < 1.0:
        raise OptionError(f"confidence= lies from 0.5 to below 1, got {confidence!r}")
    uncertain = UncertainSlack.of(form, posterior, offsets, baseline)
    problem = _RobustProblem(
        form, posterior, uncertain, float(ndtri(confidence)), _limits(caps, posterior.mean.shape[1])
    )
    if problem.sure:
        return problem.exact()
    match form.goal:
        case LinearGoal() as goal:
            return problem.linear(goal)
        case RatioGoal() as goal:
            return problem.ratio(goal)
        case UtilityGoal() as goal:
            return problem.utility(goal, np.random.default_rng(0) if rng is None else rng)
    raise UnsupportedError(f"no robust blend for a goal of kind {type(form.goal).__name__}")


def holding_probabilities(
    form: NormalForm,
    posterior: Posterior,
    probabilities: FloatArray,
    offsets: FloatArray | None = None,
    baseline: int | None = None,
) -> FloatArray:
    """Return the probability that each guardrail holds under a blend, (guardrails,).

    >>> import numpy as np, pasto
    >>> from pasto.estimate import IndependentPosterior
    >>> form = pasto.maximize("x").keep("y", at_least=0).form()
    >>> posterior = IndependentPosterior(np.array([[2.0, 0.0], [-2.0, 2.0]]), np.tile(np.eye(2), (2, 1, 1)))
    >>> holding_probabilities(form, posterior, np.array([0.5, 0.5]))
    array([0.5])
    >>> holding_probabilities(form, posterior, np.array([0.0, 1.0])).round(3)
    array([0.977])
    """
    uncertain = UncertainSlack.of(form, posterior, offsets, baseline)
    # Slacks are blended, not metrics: a metric whose level dwarfs its range would lose its digits.
    level, spread = uncertain.slack @ probabilities, uncertain.spread(probabilities)
    tolerances = form.tolerances(posterior.mean)
    sure = spread <= 1e-3 * tolerances
    return np.where(sure, level >= -tolerances, ndtr(level / np.where(sure, 1.0, spread)))


def intervals(
    posterior: Posterior, probabilities: FloatArray, rows: FloatArray, confidence: float = 0.95
) -> FloatArray:
    """Return the interval of row · means · p with the confidence asked for, low and high, (rows, 2).

    >>> import numpy as np
    >>> from pasto.estimate import IndependentPosterior
    >>> posterior = IndependentPosterior(np.array([[3.0, 1.0]]), np.ones((2, 1, 1)))
    >>> intervals(posterior, np.array([0.6, 0.8]), np.ones((1, 1)), confidence=0.6827).round(3)
    array([[1.6, 3.6]])
    """
    middle = rows @ (posterior.mean @ probabilities)
    reach = ndtri(0.5 + confidence / 2.0) * np.array([float(posterior.spread(row, probabilities)) for row in rows])
    return np.stack([middle - reach, middle + reach], axis=-1)


@dataclass(frozen=True, slots=True, eq=False)
class _RobustProblem:
    """Form, posterior and confidence of a robust blend."""

    form: NormalForm
    posterior: Posterior
    uncertain: UncertainSlack
    deviations: float
    caps: FloatArray | None

    @property
    def sure(self) -> bool:
        """Return whether nothing that counts is uncertain, so that the exact answer is the robust one."""
        if self.caps is not None:
            return False
        if isinstance(self.form.goal, UtilityGoal):
            return not self.posterior.variances(np.eye(len(self.posterior.mean))).any()
        counts = ~self.form.hard | (self.deviations > 0.0)
        return not self.uncertain.alone()[counts].any()

    def exact(self) -> RobustBlend:
        """Return the exact answer for the posterior's mean."""
        solution = solve_exact(self.form, self.posterior.mean)
        certified = self.form.met(
            self.posterior.mean @ solution.probabilities, self.form.tolerances(self.posterior.mean)
        )
        return self._answer(solution.probabilities, np.where(self.form.hard, solution.duals, 0.0), bool(certified))

    def linear(self, goal: LinearGoal) -> RobustBlend:
        """Solve for a weighted sum of metrics: its expectation is that of the mean."""
        solution = self._solve(goal.row @ self.posterior.mean)
        return self._nearest() if solution is None else self._answer(*solution)

    def ratio(self, goal: RatioGoal) -> RobustBlend:
        """Solve for a ratio of the expectations, by Dinkelbach's iteration."""
        top, bottom = goal.numerator @ self.posterior.mean, goal.denominator @ self.posterior.mean
        level = float((top / bottom).min())
        for _ in range(100):
            solution = self._solve(top - level * bottom)
            if solution is None:
                return self._nearest()
            shares, duals, certified = solution
            reached = float((top @ shares) / (bottom @ shares))
            if reached <= level + 1e-12 * abs(level):
                return self._answer(shares, duals * goal.scale / float(bottom @ shares), certified)
            level = reached
        raise SolverError(f"the ratio still rose after 100 rounds, at {level:.6g}")

    def utility(self, goal: UtilityGoal, rng: np.random.Generator) -> RobustBlend:
        """Solve for a concave function of the metrics, averaged over posterior draws."""
        average = SampledSlack.of(
            goal, self.posterior.draw(rng.standard_normal((UTILITY_DRAWS, *self.posterior.mean.shape)))
        )
        solution = self._solve(average.singles(), average)
        return self._nearest(average) if solution is None else self._answer(*solution, average)

    def _solve(
        self, goal: FloatArray, average: SampledSlack | None = None
    ) -> tuple[FloatArray, FloatArray, bool] | None:
        """Return shares, duals and whether certified; None if no blend meets the hard guardrails even in the mean."""
        curve = None if average is None else average.counted_in
        program, unit, units = self.uncertain.program(
            goal, self.form.penalties, self.deviations, caps=self.caps, curve=curve
        )
        solution = solve_or_safest(program)
        if solution is None:
            return None
        shares, prices, certified = solution
        return self._clean(shares), prices * unit / units, certified

    def _clean(self, shares: FloatArray) -> FloatArray:
        """Return shares without tiny ones, within the caps, that sum to one."""
        clean = np.where(shares < MIN_SHARE, 0.0, shares if self.caps is None else np.minimum(shares, self.caps))
        return np.asarray(clean / clean.sum())

    def _nearest(self, average: SampledSlack | None = None) -> RobustBlend:
        """Return the blend with the least squared shortfalls in the mean, each in units of its guardrail's range."""
        if self.caps is None and average is None:
            return replace(self.exact(), certified=False)
        hard, mean = (
            self.form.hard,
            replace(self.uncertain, factor=0.0 * self.uncertain.factor, anchor=0.0 * self.uncertain.anchor),
        )
        only = replace(mean, slack=mean.slack[hard], factor=mean.factor[hard], anchor=mean.anchor[hard])
        program, _, _ = only.program(np.zeros(mean.slack.shape[1]), spreads(only.slack) ** -2.0, 0.0, caps=self.caps)
        solution = solve_or_safest(program)
        if solution is None:
            raise SolverError("the blend that misses the hard guardrails least was not found")
        return self._answer(self._clean(solution[0]), np.zeros(len(hard)), False, average)

    def _answer(
        self, shares: FloatArray, duals: FloatArray, certified: bool, average: SampledSlack | None = None
    ) -> RobustBlend:
        blended = self.posterior.mean @ shares
        goal = float(self.form.goal.value(blended)) if average is None else average.value(shares)
        soft = ~self.form.hard
        costs = expected_penalty(self.uncertain.slack @ shares, self.uncertain.spread(shares))
        return RobustBlend(shares, goal - float(self.form.penalties[soft] @ costs[soft]), duals, certified)


def _limits(caps: ArrayLike | None, width: int) -> FloatArray | None:
    """Return the caps as one number for each candidate; None if they limit nothing."""
    if caps is None:
        return None
    most = np.minimum(np.broadcast_to(np.asarray(caps, dtype=float), (width,)), 1.0)
    if not (most > 0.0).all():
        raise OptionError(f"caps= must be shares above 0, got {caps!r}; leave a candidate out of the posterior instead")
    if most.sum() < 1.0:
        raise OptionError(f"caps= add up to {most.sum():.6g}; the shares must be able to reach 1")
    return None if (most >= 1.0).all() else most


@dataclass(frozen=True, slots=True, eq=False)
class UncertainSlack:
    """Slack of each guardrail under a posterior: slack · p in the mean, with deviation ‖factorᵀ p − anchor‖."""

    slack: FloatArray
    """(guardrails, candidates)."""
    factor: FloatArray
    """(guardrails, candidates) if every guardrail's is diagonal, else (guardrails, candidates, rank)."""
    anchor: FloatArray
    """(guardrails, candidates) or (guardrails, rank): a relative guardrail's share of the baseline's own spread."""
    base: int | None
    """The baseline, if a guardrail is relative to it."""

    @classmethod
    def of(
        cls, form: NormalForm, posterior: Posterior, offsets: FloatArray | None, baseline: int | None
    ) -> UncertainSlack:
        """Return the slack of the guardrails of a form that is built at the posterior's mean."""
        count, width = len(form.at), posterior.mean.shape[1]
        shares = np.zeros(count) if offsets is None else np.asarray(offsets, dtype=float)
        if shares.shape != (count,):
            raise OptionError(f"offsets= needs one number for each of the {count} guardrails, got shape {shares.shape}")
        if shares.any() and baseline is None:
            raise OptionError(
                "offsets= count against the baseline, and none was named; pass baseline=, a candidate's index"
            )
        if baseline is not None and not 0 <= baseline < width:
            raise OptionError(f"baseline={baseline!r} is not a candidate; give an index from 0 to {width - 1}")
        factors = [posterior.factor(row) for row in form.rows]
        if all(factor.ndim == 1 for factor in factors):
            factor = np.array(factors).reshape(count, width)
            anchor = np.zeros((count, width))
            if baseline is not None:
                anchor[:, baseline] = shares * factor[:, baseline]
        else:
            full = [np.diag(factor) if factor.ndim == 1 else factor for factor in factors]
            rank = max(part.shape[-1] for part in full)
            factor = np.zeros((count, width, rank))
            for place, part in enumerate(full):
                factor[place, :, : part.shape[-1]] = part
            anchor = np.zeros((count, rank)) if baseline is None else shares[:, None] * factor[:, baseline]
        slack = form.rows @ posterior.mean - form.at[:, None]
        return cls(slack, factor, anchor, baseline if shares.any() else None)

    @property
    def diagonal(self) -> bool:
        """Return whether the candidates are independent."""
        return self.factor.ndim == 2

    def spread(self, probabilities: FloatArray) -> FloatArray:
        """Return the standard deviation of each guardrail's slack under a blend, (guardrails,)."""
        moved = self.factor * probabilities if self.diagonal else probabilities @ self.factor
        return np.asarray(np.sqrt(((moved - self.anchor) ** 2).sum(axis=1)))

    def alone(self) -> FloatArray:
        """Return the standard deviation of the slack for each candidate alone, (guardrails, candidates)."""
        if self.diagonal:
            rest = (self.anchor**2).sum(axis=1)[:, None] - self.anchor**2
            return np.asarray(np.sqrt(rest + (self.factor - self.anchor) ** 2))
        return np.asarray(np.sqrt(((self.factor - self.anchor[:, None, :]) ** 2).sum(axis=2)))

    def program(
        self,
        goal: FloatArray,
        penalties: FloatArray,
        deviations: float,
        *,
        caps: FloatArray | None = None,
        curve: Callable[[float], SlackCurve] | None = None,
    ) -> tuple[ChanceProgram, float, FloatArray]:
        """Return the program for a goal (candidates,) that holds hard guardrails with this many deviations to spare.

        The units of the goal and of each guardrail are returned too: powers of two, so that nothing is rounded. A curve
        is a function of its unit; it replaces the goal, which then only gives its size.
        """
        hard = np.isinf(penalties)
        times = np.where(hard, deviations, 1.0)
        units = _powers(np.maximum(np.abs(self.slack).max(axis=1), (times[:, None] * self.alone()).max(axis=1)))
        spread = float(np.ptp(goal))
        if not spread:  # a goal that is the same everywhere has no scale: the heaviest penalty sets it
            spread = float((np.where(hard, 0.0, penalties) * units**2).max(initial=0.0))
        unit = float(_powers(np.array(spread)))
        scale = (times / units)[:, None]
        program = ChanceProgram(
            goal=(goal - goal.max()) / unit if curve is None else np.zeros_like(goal),
            mass=np.ones_like(goal),
            slack=self.slack / units[:, None],
            factor=self.factor * (scale if self.diagonal else scale[:, :, None]),
            anchor=self.anchor * scale,
            penalties=penalties * units**2 / unit,
            tight=np.where(hard, HARD_MARGIN, 0.0),
            base=self.base,
            caps=caps,
            curve=None if curve is None else curve(unit),
        )
        return program, unit, units


def _powers(sizes: FloatArray) -> FloatArray:
    """Return the power of two above each size; 1 for a size of 0."""
    return np.where(sizes > 0.0, np.ldexp(1.0, np.frexp(sizes)[1]), 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class SampledSlack:
    """Average utility of a blend over posterior draws, in its own units.

    >>> import numpy as np, pasto
    >>> goal = pasto.utility(lambda y: -(y**2).sum(-1), lambda y: -2 * y, over={"x": (-9, 9)}).form().goal
    >>> average = SampledSlack(goal, np.array([[[1.0, 3.0]], [[3.0, 1.0]]]))
    >>> average.value(np.array([1.0, 0.0])), average.gradient(np.array([0.5, 0.5])).tolist()
    (-5.0, [-8.0, -8.0])
    """

    goal: UtilityGoal
    samples: FloatArray
    """(draws, metrics of the utility, columns)."""
    unit: float = 1.0

    @classmethod
    def of(cls, goal: UtilityGoal, samples: FloatArray) -> SampledSlack:
        """Return the average over samples (draws, metrics, candidates), clipped to the ranges of the utility."""
        low, high = (np.array([goal.over[name][side] for name in goal.over]) for side in (0, 1))
        return cls(goal, np.clip(samples[:, list(goal.columns)], low[:, None], high[:, None]))

    def singles(self) -> FloatArray:
        """Return the average utility of each column alone, (columns,)."""
        return np.asarray(self.goal.function(self.samples.transpose(0, 2, 1)).mean(axis=0) / self.unit)

    def counted_in(self, unit: float) -> SampledSlack:
        """Return the same average in other units."""
        return replace(self, unit=unit)

    def value(self, shares: FloatArray) -> float:
        """Return the average at the shares."""
        return float(np.mean(self.goal.function(self.samples @ shares))) / self.unit

    def gradient(self, shares: FloatArray) -> FloatArray:
        """Return its gradient, (columns,)."""
        slopes = self.goal.derivative(self.samples @ shares)
        return np.asarray(np.einsum("nm,nmk->k", slopes, self.samples) / (len(self.samples) * self.unit))

    def bend(self, shares: FloatArray) -> FloatArray:
        """Return its negative second derivatives, from differences of the utility's gradient inside its ranges."""
        low, high = (np.array([self.goal.over[name][side] for name in self.goal.over]) for side in (0, 1))
        vectors = self.samples @ shares
        count, metrics = vectors.shape
        hessians = np.empty((count, metrics, metrics))
        for place in range(metrics):
            above, below = vectors.copy(), vectors.copy()
            above[:, place] = np.minimum(above[:, place] + 1e-5 * (high - low)[place], high[place])
            below[:, place] = np.maximum(below[:, place] - 1e-5 * (high - low)[place], low[place])
            rise = self.goal.derivative(above) - self.goal.derivative(below)
            hessians[:, place] = rise / (above - below)[:, place, None]
        ranges = high - low  # metrics in units of their own range: the bends of a small one keep their digits
        bends, axes = np.linalg.eigh(-(hessians + hessians.transpose(0, 2, 1)) / 2.0 * np.outer(ranges, ranges))
        scaled = self.samples / ranges[:, None]
        roots = np.sqrt(np.maximum(bends, 0.0))[:, :, None] * (axes.transpose(0, 2, 1) @ scaled)
        flat = roots.reshape(-1, self.samples.shape[2])
        return np.asarray(flat.T @ flat / (count * self.unit))

    def take(self, columns: NDArray[np.intp]) -> SampledSlack:
        """Return the same average over a few columns."""
        return replace(self, samples=self.samples[:, :, columns])
