"""The answer of someone who does not know the truth: best in expectation, hard guardrails held with confidence.

Under a Gaussian belief a guardrail's slack under a blend is Gaussian too. A soft guardrail costs its expected penalty;
a hard one must hold with the confidence asked for, slack ≥ z · spread with Φ(z) = confidence, a second-order cone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from pasto.arrays import FloatArray
from pasto.errors import OptionError, SolverError, UnsupportedError
from pasto.estimate import Posterior
from pasto.objective import LinearGoal, NormalForm, RatioGoal, UtilityGoal
from pasto.optimize.chance_constrained.from_posterior import SampledSlack, UncertainSlack
from pasto.optimize.chance_constrained.program import expected_penalty
from pasto.optimize.chance_constrained.solver import solve_or_safest
from pasto.optimize.exact.linear import spreads
from pasto.optimize.exact.solver import solve_exact

DRAWS = 128
"""Truths over which a utility is averaged."""
DUST = 1e-12
"""Shares below this are none."""


@dataclass(frozen=True, slots=True, eq=False)
class RobustBlend:
    """A blend for a truth that is only believed.

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
    """Whether each hard guardrail holds with the confidence asked for; where no blend does, this is the safest."""


def solve_robust(
    form: NormalForm,
    belief: Posterior,
    *,
    confidence: float = 0.95,
    offsets: FloatArray | None = None,
    baseline: int | None = None,
    caps: ArrayLike | None = None,
    rng: np.random.Generator | None = None,
) -> RobustBlend:
    """The blend of the highest expected f under which each hard guardrail holds with the confidence asked for.

    The form is built at the belief's mean. offsets (guardrails,) say how much of the baseline's own value each one is
    counted against, since that is uncertain too: row · truth · (p − offset · baseline). caps are the largest shares,
    one for all or (candidates,). A utility is averaged over truths drawn with rng. Where no blend holds every hard
    guardrail, the answer is the one that holds them with the highest confidence there is; where none does even in the
    mean, the nearest miss.

    >>> import numpy as np, pasto
    >>> from pasto.estimate import IndependentPosterior
    >>> form = pasto.maximize("x").keep("y", at_least=0).form()
    >>> truth = np.array([[2.0, 0.0], [-2.0, 2.0]])
    >>> for deviation in (0.0, 0.5, 2.0):
    ...     belief = IndependentPosterior(truth, np.tile(deviation**2 * np.eye(2), (2, 1, 1)))
    ...     answer = solve_robust(form, belief)
    ...     print(answer.probabilities.round(3), round(answer.value, 3), answer.certified)
    [0.5 0.5] 1.0 True
    [0.348 0.652] 0.696 True
    [0. 1.] 0.0 False
    """
    if not 0.5 <= confidence < 1.0:
        raise OptionError(f"confidence= lies from 0.5 to below 1, got {confidence!r}")
    unsure = UncertainSlack.of(form, belief, offsets, baseline)
    question = _Question(form, belief, unsure, float(ndtri(confidence)), _limits(caps, belief.mean.shape[1]))
    if question.sure:
        return question.exact()
    match form.goal:
        case LinearGoal() as goal:
            return question.linear(goal)
        case RatioGoal() as goal:
            return question.ratio(goal)
        case UtilityGoal() as goal:
            return question.utility(goal, np.random.default_rng(0) if rng is None else rng)
    raise UnsupportedError(f"no cautious answer for a goal of kind {type(form.goal).__name__}")


def holding_probabilities(
    form: NormalForm,
    belief: Posterior,
    probabilities: FloatArray,
    offsets: FloatArray | None = None,
    baseline: int | None = None,
) -> FloatArray:
    """The probability that each guardrail holds under a blend, (guardrails,).

    >>> import numpy as np, pasto
    >>> from pasto.estimate import IndependentPosterior
    >>> form = pasto.maximize("x").keep("y", at_least=0).form()
    >>> belief = IndependentPosterior(np.array([[2.0, 0.0], [-2.0, 2.0]]), np.tile(np.eye(2), (2, 1, 1)))
    >>> holding_probabilities(form, belief, np.array([0.5, 0.5]))
    array([0.5])
    >>> holding_probabilities(form, belief, np.array([0.0, 1.0])).round(3)
    array([0.977])
    """
    unsure = UncertainSlack.of(form, belief, offsets, baseline)
    # Slacks are blended, not metrics: a metric whose level dwarfs its range would lose its digits.
    level, spread = unsure.slack @ probabilities, unsure.spread(probabilities)
    tolerances = form.tolerances(belief.mean)
    sure = spread <= 1e-3 * tolerances
    return np.where(sure, level >= -tolerances, ndtr(level / np.where(sure, 1.0, spread)))


def intervals(belief: Posterior, probabilities: FloatArray, rows: FloatArray, confidence: float = 0.95) -> FloatArray:
    """The range in which row · truth · p lies with the confidence asked for, low and high, (rows, 2).

    >>> import numpy as np
    >>> from pasto.estimate import IndependentPosterior
    >>> belief = IndependentPosterior(np.array([[3.0, 1.0]]), np.ones((2, 1, 1)))
    >>> intervals(belief, np.array([0.6, 0.8]), np.ones((1, 1)), confidence=0.6827).round(3)
    array([[1.6, 3.6]])
    """
    middle = rows @ (belief.mean @ probabilities)
    reach = ndtri(0.5 + confidence / 2.0) * np.array([float(belief.spread(row, probabilities)) for row in rows])
    return np.stack([middle - reach, middle + reach], axis=-1)


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """A form, a belief, and how sure the answer must be."""

    form: NormalForm
    belief: Posterior
    unsure: UncertainSlack
    deviations: float
    caps: FloatArray | None

    @property
    def sure(self) -> bool:
        """Whether nothing that counts is uncertain, so that the exact answer is the cautious one."""
        if self.caps is not None:
            return False
        if isinstance(self.form.goal, UtilityGoal):
            return not self.belief.variances(np.eye(len(self.belief.mean))).any()
        counts = ~self.form.hard | (self.deviations > 0.0)
        return not self.unsure.alone()[counts].any()

    def exact(self) -> RobustBlend:
        """The exact answer for the belief's mean."""
        found = solve_exact(self.form, self.belief.mean)
        certified = self.form.met(self.belief.mean @ found.probabilities, self.form.tolerances(self.belief.mean))
        return self._answer(found.probabilities, np.where(self.form.hard, found.duals, 0.0), bool(certified))

    def linear(self, goal: LinearGoal) -> RobustBlend:
        """A weighted sum of metrics: its expectation is that of the mean."""
        found = self._solve(goal.row @ self.belief.mean)
        return self._nearest() if found is None else self._answer(*found)

    def ratio(self, goal: RatioGoal) -> RobustBlend:
        """A ratio of the expectations, by Dinkelbach's iteration."""
        top, bottom = goal.numerator @ self.belief.mean, goal.denominator @ self.belief.mean
        level = float((top / bottom).min())
        for _ in range(100):
            found = self._solve(top - level * bottom)
            if found is None:
                return self._nearest()
            shares, duals, certified = found
            reached = float((top @ shares) / (bottom @ shares))
            if reached <= level + 1e-12 * abs(level):
                return self._answer(shares, duals * goal.scale / float(bottom @ shares), certified)
            level = reached
        raise SolverError(f"the ratio still rose after 100 rounds, at {level:.6g}")

    def utility(self, goal: UtilityGoal, rng: np.random.Generator) -> RobustBlend:
        """A concave function of the metrics, averaged over drawn truths."""
        average = SampledSlack.of(goal, self.belief.draw(rng.standard_normal((DRAWS, *self.belief.mean.shape))))
        found = self._solve(average.singles(), average)
        return self._nearest(average) if found is None else self._answer(*found, average)

    def _solve(
        self, goal: FloatArray, average: SampledSlack | None = None
    ) -> tuple[FloatArray, FloatArray, bool] | None:
        """Shares, duals and whether certified; None where no blend meets the hard guardrails even in the mean."""
        curve = None if average is None else average.counted_in
        program, unit, units = self.unsure.program(
            goal, self.form.penalties, self.deviations, caps=self.caps, curve=curve
        )
        found = solve_or_safest(program)
        if found is None:
            return None
        shares, prices, certified = found
        return self._clean(shares), prices * unit / units, certified

    def _clean(self, shares: FloatArray) -> FloatArray:
        """Without the dust, within the caps, summing to one."""
        clean = np.where(shares < DUST, 0.0, shares if self.caps is None else np.minimum(shares, self.caps))
        return np.asarray(clean / clean.sum())

    def _nearest(self, average: SampledSlack | None = None) -> RobustBlend:
        """The blend with the least squared shortfalls in the mean, each in units of its guardrail's range."""
        if self.caps is None and average is None:
            return replace(self.exact(), certified=False)
        hard, mean = (
            self.form.hard,
            replace(self.unsure, factor=0.0 * self.unsure.factor, anchor=0.0 * self.unsure.anchor),
        )
        only = replace(mean, slack=mean.slack[hard], factor=mean.factor[hard], anchor=mean.anchor[hard])
        program, _, _ = only.program(np.zeros(mean.slack.shape[1]), spreads(only.slack) ** -2.0, 0.0, caps=self.caps)
        found = solve_or_safest(program)
        if found is None:
            raise SolverError("the blend that misses the hard guardrails least was not found")
        return self._answer(self._clean(found[0]), np.zeros(len(hard)), False, average)

    def _answer(
        self, shares: FloatArray, duals: FloatArray, certified: bool, average: SampledSlack | None = None
    ) -> RobustBlend:
        blended = self.belief.mean @ shares
        goal = float(self.form.goal.value(blended)) if average is None else average.value(shares)
        soft = ~self.form.hard
        costs = expected_penalty(self.unsure.slack @ shares, self.unsure.spread(shares))
        return RobustBlend(shares, goal - float(self.form.penalties[soft] @ costs[soft]), duals, certified)


def _limits(caps: ArrayLike | None, width: int) -> FloatArray | None:
    """The caps as one number for each candidate; None where they limit nothing."""
    if caps is None:
        return None
    most = np.minimum(np.broadcast_to(np.asarray(caps, dtype=float), (width,)), 1.0)
    if not (most > 0.0).all():
        raise OptionError(f"caps= must be shares above 0, got {caps!r}; leave a candidate out of the belief instead")
    if most.sum() < 1.0:
        raise OptionError(f"caps= add up to {most.sum():.6g}; the shares must be able to reach 1")
    return None if (most >= 1.0).all() else most
