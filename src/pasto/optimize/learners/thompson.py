"""The posterior blend: look where the blend may lie, answer with the blend that is best on what is believed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from pasto.errors import BadObjective, BadOption, BadState
from pasto.estimate import Evidence, Independent, Prior, learn_prior
from pasto.objective import Form, LinearGoal
from pasto.optimize.allocation import allocate
from pasto.optimize.batch import best_batch
from pasto.optimize.blend import describe
from pasto.optimize.kinds import optimum
from pasto.optimize.learners.protocol import Array, Problem, Round
from pasto.optimize.program import Program
from pasto.records import Blend


@dataclass(frozen=True, slots=True, eq=False)
class ThompsonState:
    """What has been measured, and the prior it has taught."""

    rounds: int
    evidence: Evidence
    prior: Prior | None
    noise: Array
    """(metrics, metrics): the covariance of one unit's measurement, as seen so far."""
    units: float
    """In the last round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thompson:
    """Gaussian posteriors over the candidates' means, exact blends of posterior draws, and a cautious answer.

    >>> Thompson().draws
    32
    """

    name: ClassVar[str] = "thompson"
    even: ClassVar[bool] = True
    draws: int = 32
    """Posterior draws behind each policy."""
    floor: float = 0.01
    """The share of traffic spread evenly over all candidates."""
    confidence: float = 0.95
    """With which the answer meets each hard guardrail."""
    half_life: float | None = None
    """After how many rounds an observation counts half; None never forgets."""

    def __post_init__(self) -> None:
        if not (isinstance(self.draws, int) and self.draws >= 1):
            raise BadOption(f"draws must be a whole number of at least 1, got {self.draws!r}")
        if not 0 <= self.floor < 1:
            raise BadOption(f"floor is a share of traffic from 0 to below 1, got {self.floor!r}")
        if not 0.5 <= self.confidence < 1:
            raise BadOption(f"confidence lies from 0.5 to below 1, got {self.confidence!r}")
        if self.half_life is not None and not self.half_life > 0:
            raise BadOption(f"half_life is a positive number of rounds, got {self.half_life!r}")

    def check(self, problem: Problem) -> None:
        """Every objective will do; percentages need a baseline."""
        if problem.objective.relative and problem.baseline is None:
            problem.objective.form()  # says which threshold needs a baseline

    def start(self, problem: Problem) -> ThompsonState:
        """Nothing measured, nothing believed."""
        metrics, count = problem.shape
        return ThompsonState(0, Evidence.none(metrics, count), None, np.zeros((metrics, metrics)), 1.0)

    def learn(self, problem: Problem, state: ThompsonState, round: Round) -> ThompsonState:
        """Add the round to the evidence and learn the prior again."""
        sample = round.sample
        units = np.ones(len(sample.candidates)) if round.units is None else round.units
        faded = state.evidence if self.half_life is None else state.evidence.fade(0.5 ** (1.0 / self.half_life))
        evidence = faded.add(sample.candidates, sample.metrics, units, round.covariances)
        if round.covariances is None:
            noise = evidence.noise()
        else:
            seen = np.einsum("q,qij->ij", units, round.covariances) / len(units)
            noise = state.noise + (seen - state.noise) / (state.rounds + 1)
        return ThompsonState(state.rounds + 1, evidence, learn_prior(evidence, state.prior), noise, float(units.sum()))

    def belief(self, problem: Problem, state: ThompsonState) -> Independent:
        """The posterior over the truth."""
        prior = learn_prior(state.evidence) if state.prior is None else state.prior
        return Independent.of(state.evidence, prior)

    def propose(self, problem: Problem, state: ThompsonState, rng: np.random.Generator) -> Array:
        """Slots where the blends of posterior draws learn most, and the floor under all."""
        count = len(problem.names)
        if not state.rounds:
            return np.full(count, 1.0 / count)
        belief = self.belief(problem, state)
        noise = np.empty((self.draws, *problem.shape))
        noise[:, :, problem.order] = rng.standard_normal(noise.shape)
        truths = belief.draw(noise)
        blends, priced = self.blends(problem, belief.mean, truths)
        row = priced.mean(axis=0)
        slot = max(float(row @ state.noise @ row), 1e-12) * self.draws / state.units
        shares = allocate(blends, belief.variances(row[None])[0], slot)
        return self.floor / count + (1.0 - self.floor) * shares

    def blends(self, problem: Problem, means: Array, truths: Array) -> tuple[Array, Array]:
        """The exact blend of each truth, (draws, candidates), and what a metric is worth there, (draws, metrics)."""
        if problem.objective.relative:
            forms = [form_at(problem, truth, means) for truth in truths]
        else:
            forms = [problem.objective.form()] * len(truths)
        if not isinstance(forms[0].goal, LinearGoal):
            solutions = [optimum(form, truth) for form, truth in zip(forms, truths, strict=True)]
            shares = np.array([solution.probabilities for solution in solutions])
            duals = np.array([solution.duals for solution in solutions])
        else:
            answers = best_batch(_stacked(forms, truths))
            shares, duals = answers.probabilities, answers.duals
        blended = np.einsum("nmk,nk->nm", truths, shares)
        slopes = [form.goal.gradient(y) + dual @ form.rows for form, y, dual in zip(forms, blended, duals, strict=True)]
        return shares, np.array(slopes)

    def answer(self, problem: Problem, state: ThompsonState) -> Blend:
        """The blend that is best on the posterior means."""
        belief = self.belief(problem, state)
        form = form_at(problem, belief.mean, belief.mean)
        solution = optimum(form, belief.mean)
        return describe(
            solution.probabilities,
            belief.mean,
            problem.objective,
            names=problem.names,
            baseline=problem.baseline,
            duals=solution.duals,
        )

    def save(self, state: ThompsonState) -> dict[str, Any]:
        """The state as lists and numbers."""
        prior = None if state.prior is None else [state.prior.mean.tolist(), state.prior.covariance.tolist()]
        return {
            "rounds": state.rounds,
            "evidence": state.evidence.to_saved(),
            "prior": prior,
            "noise": state.noise.tolist(),
            "units": state.units,
        }

    def load(self, problem: Problem, saved: dict[str, Any]) -> ThompsonState:
        """The state that `save` wrote."""
        metrics, count = problem.shape
        try:
            prior = None if saved["prior"] is None else Prior(*(np.array(part, dtype=float) for part in saved["prior"]))
            evidence = Evidence.from_saved(saved["evidence"], metrics)
            state = ThompsonState(
                int(saved["rounds"]), evidence, prior, np.array(saved["noise"], dtype=float), float(saved["units"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadState(f"the saved learner cannot be read: {error!r}") from error
        if evidence.weighted.shape != (count, metrics):
            raise BadState(f"the saved learner knows {len(evidence.weighted)} candidates, the study has {count}")
        return state

    def settings(self) -> dict[str, Any]:
        """The configuration as a plain JSON value."""
        return asdict(self)

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Self:
        """The learner that `settings` described."""
        known = {f.name for f in fields(cls)}
        if unknown := set(settings) - known:
            raise BadState(f"learner {cls.name!r} has no setting {sorted(unknown)[0]!r}")
        return cls(**settings)


def _stacked(forms: list[Form], truths: Array) -> Program:
    """The programs of many truths as one."""
    if all(form is forms[0] for form in forms):
        return Program.of(forms[0], truths)
    programs = [Program.of(form, truth) for form, truth in zip(forms, truths, strict=True)]
    return Program(
        np.array([program.goal for program in programs]),
        np.array([program.slack for program in programs]),
        forms[0].penalties,
    )


def form_at(problem: Problem, truth: Array, fallback: Array) -> Form:
    """The objective's normal form over a truth; percentages are over its own baseline, or the fallback's."""
    if not problem.objective.relative or problem.baseline is None:
        return problem.objective.form()
    try:
        return problem.objective.form(truth[:, problem.baseline])
    except BadObjective:  # a draw with a negative baseline
        return problem.objective.form(fallback[:, problem.baseline])
