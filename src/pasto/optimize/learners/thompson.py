"""Thompson sampling: explore the best blends of posterior draws, answer with the best blend under the posterior."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from pasto.arrays import FloatArray
from pasto.blend import Blend
from pasto.errors import MissingExtraError, OptionError, StateError
from pasto.estimate import (
    CandidateModel,
    ContrastModel,
    ControlContrasts,
    CovariateAdjustment,
    HistoryPrior,
    LevelModel,
    Posterior,
    RoundMeans,
    SufficientStatistics,
)
from pasto.estimate.gaussian_process import choose_kernels, fit_kernels, is_available
from pasto.optimize.column_generation import ColumnProspect, generate_columns
from pasto.optimize.learners.base import (
    LearningProblem,
    RoundResult,
    build_form,
    draw_blends,
    price_metrics,
    read_baseline_offsets,
)
from pasto.optimize.learners.certificate import build_outlook, certified_blend, solve_certified
from pasto.optimize.learners.exploration_limits import ShareBounds, cap_shares, limit_to_budget
from pasto.optimize.learners.value_of_information import RoundEvidence


def allocate(blends: FloatArray, variances: FloatArray, noise: float) -> FloatArray:
    """Give each drawn blend's slot to the candidate whose observation takes most out of that blend's variance.

    `blends` (draws, candidates) are the exact answers of posterior draws, `variances` (candidates,) what is still
    unknown of each candidate, and `noise` the variance of one slot's measurement. A blend's value has variance
    Σ p_k² v_k, so a slot is worth p_k² (v_k − v_k') to it. Slots are given one after the other and count as seen.
    """
    precision = 1.0 / np.maximum(variances, 1e-300)
    gained = 1.0 / noise
    counts = np.zeros(blends.shape[1])
    for blend in blends:
        now = precision + counts * gained
        worth = blend**2 * (1.0 / now - 1.0 / (now + gained))
        counts[int(np.argmax(worth))] += 1.0
    return counts / len(blends)


MIN_DRAWS = 32
"""Posterior draws of a policy over few candidates, or with little traffic."""

FEW_CANDIDATES = 100
"""Candidates up to which MIN_DRAWS are enough."""

UNITS_PER_DRAW = 100
"""Units that each further draw needs in a round."""

MAX_DRAWN_SHARES = 500_000
"""Draws times candidates of one policy, which bound the seconds and the memory that they cost."""


def count_draws(candidates: int, units: float) -> int:
    """Return the posterior draws for a policy: as many as candidates, if there are many and the traffic is large.

    Each draw names one candidate to measure. A policy over many candidates made from a few draws stops to measure most
    of those that may still be best.

    >>> count_draws(100, units=1e6), count_draws(500, units=1e6), count_draws(500, units=10_000)
    (32, 500, 100)
    """
    if candidates <= FEW_CANDIDATES:
        return MIN_DRAWS
    return max(MIN_DRAWS, min(candidates, MAX_DRAWN_SHARES // candidates, int(units // UNITS_PER_DRAW)))


MAX_JOINT_CANDIDATES = 2_000
"""Candidates up to which neighbours may share strength; with more, each is estimated alone."""

PROBE_SHARE = 0.1
"""The share of traffic that all unmeasured candidates may have together, in a study with a loss budget."""

MIN_MEASURED_CANDIDATES = 6
"""Measured candidates that are needed before the spread between candidates, and so a bound, is used."""

NEW_POINTS = 3
"""Points of a continuous space that a round may add: one for the expected means, the others for posterior draws."""


@dataclass(frozen=True, slots=True, eq=False)
class ThompsonState:
    """State of the learner: the model of the candidates, and further values that the next policy needs."""

    rounds: int
    model: CandidateModel
    noise: FloatArray
    """(metrics, metrics): the covariance of one unit's measurement, estimated from all rounds."""
    units: float
    """Units in the last round."""
    fitted: int
    """The round in which kernels were fitted last."""
    before: tuple[FloatArray, FloatArray] | None = None
    """The means before the last round, (metrics, candidates), and the metrics' prices, (metrics,)."""
    adjustment: CovariateAdjustment | None = None
    """The regression of metrics on covariates; None if no round had covariates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thompson:
    """Gaussian posteriors over the candidates' means, exact blends of posterior draws, and a robust answer.

    >>> Thompson(half_life=48).floor
    0.01
    """

    name: ClassVar[str] = "thompson"
    even: ClassVar[bool] = True
    draws: int | None = None
    """Posterior draws for each policy; None follows the candidates and the traffic, see `count_draws`."""
    floor: float = 0.01
    """The share of traffic spread evenly over all candidates."""
    structure: Literal["auto", "independent", "process"] = "auto"
    """Sharing of strength between neighbouring candidates: if scikit-learn is installed and it predicts better, never,
    or always."""
    contrast: Literal["auto", "difference", "percent"] | None = None
    """Learn each round against its own control; None learns the metrics as they are.

    "auto" follows the objective: percent for metrics of a goal or guardrail relative to the baseline, else differences.
    """
    half_life: float | None = None
    """Rounds after which an observation counts half; None never forgets."""

    def __post_init__(self) -> None:
        if self.draws is not None and not (isinstance(self.draws, int) and self.draws >= 1):
            raise OptionError(f"draws must be a whole number of at least 1, or None, got {self.draws!r}")
        if not 0 <= self.floor < 1:
            raise OptionError(f"floor is a share of traffic from 0 to below 1, got {self.floor!r}")
        if self.structure not in ("auto", "independent", "process"):
            raise OptionError(f"structure is 'auto', 'independent' or 'process', got {self.structure!r}")
        if self.contrast not in (None, "auto", "difference", "percent"):
            raise OptionError(f"contrast is 'auto', 'difference', 'percent' or None, got {self.contrast!r}")
        if self.half_life is not None and not self.half_life > 0:
            raise OptionError(f"half_life is a positive number of rounds, got {self.half_life!r}")

    def check(self, problem: LearningProblem) -> None:
        """Raise an error if a baseline is missing for percentages, contrasts or budgets, or a space for kernels."""
        if problem.objective.relative and problem.baseline is None:
            problem.objective.form()  # raises an error that names the threshold
        if self.contrast is not None and problem.baseline is None:
            raise OptionError("contrast= learns against a control on the baseline, and none was named; pass baseline=")
        limits = problem.limits
        if limits.loss_budget and problem.baseline is None:
            raise OptionError("loss_budget= falls back on the baseline, and none was named; pass baseline=")
        if unknown := [name for name in limits.loss_budget if name not in problem.objective.names]:
            raise OptionError(
                f"loss_budget= names {unknown[0]!r}; the guardrails are {', '.join(problem.objective.names)}"
            )
        if (
            limits.max_share is not None
            and problem.baseline is None
            and limits.max_share * int(problem.active.sum()) < 1
        ):
            raise OptionError(
                f"max_share={limits.max_share:g} on {len(problem.names)} candidates leaves traffic without one"
            )
        if self.structure == "process":
            if problem.features is None or not problem.features.shape[1]:
                raise OptionError("structure='process' needs candidates that differ in numeric parameters")
            if not is_available():
                raise MissingExtraError("structure='process' needs scikit-learn", "process")

    def start(self, problem: LearningProblem) -> ThompsonState:
        """Return the state without measurements."""
        (metrics, count), history = problem.shape, problem.history
        model: CandidateModel = LevelModel(
            SufficientStatistics.empty(metrics, count),
            problem.baseline,
            history=None if history is None else HistoryPrior.start(history),
        )
        if self.contrast is not None and problem.baseline is not None:
            relative = problem.objective.relative_metrics
            percent = np.array(
                [
                    self.contrast == "percent" or (self.contrast == "auto" and name in relative)
                    for name in problem.objective.metrics
                ]
            )
            if history is not None:
                history = history.contrast(percent, problem.baseline)
            model = ContrastModel(
                ControlContrasts.empty(percent, count),
                problem.baseline,
                history=None if history is None else HistoryPrior.start(history),
            )
        return ThompsonState(0, model, np.zeros((metrics, metrics)), 1.0, 0)

    def learn(self, problem: LearningProblem, state: ThompsonState, round: RoundResult) -> ThompsonState:
        """Add the round to the model, and fit kernels if it is time."""
        model = state.model if self.half_life is None else state.model.fade(0.5 ** (1.0 / self.half_life))
        cells, adjustment = read_cells(problem, round), state.adjustment
        if round.covariates is not None:
            adjustment = adjustment or CovariateAdjustment.empty(cells.means.shape[1])
            cells, adjustment = adjustment.adjust(cells, problem.shape[0])
        units = model.size(cells).units
        assert units is not None  # noqa: S101 -- `size` has set them
        model = model.add(cells)
        rounds, fitted = state.rounds + 1, state.fitted
        if rounds >= 1.5 * fitted + 2 and self._may_share(problem):
            model, fitted = self._fit_kernels(problem, model), rounds
        before = None
        if state.rounds:
            mean = self.posterior(problem, state).mean
            before = (mean, price_metrics(problem, mean))
        served = len(round.sample.candidates)
        served_units = float(units[:served].sum())
        return ThompsonState(rounds, model, model.unit_covariance(), served_units, fitted, before, adjustment)

    def posterior(self, problem: LearningProblem, state: ThompsonState) -> Posterior:
        """Return the posterior of the candidates' means."""
        return state.model.posterior(problem.features)

    def propose(self, problem: LearningProblem, state: ThompsonState, rng: np.random.Generator) -> FloatArray:
        """Return the shares with which the blends of posterior draws learn most, within limits and above the floor."""
        active = problem.active
        even = active / active.sum()
        if not state.rounds and (problem.history is None or not problem.history.has_metric.all()):
            return self._apply_limits(problem, state, even, None)
        posterior = self.posterior(problem, state)
        draws = count_draws(int(active.sum()), state.units) if self.draws is None else self.draws
        order = problem.order
        noise = np.empty((draws, *problem.shape))
        noise[:, :, order] = rng.standard_normal(noise.shape)
        # Settings that state the draws, and so all studies of earlier versions, replay with the symmetric root.
        samples = posterior.draw(noise, order if self.draws is None and draws > MIN_DRAWS else None)
        blends, priced = draw_blends(problem, posterior.mean, samples)
        row = priced.mean(axis=0)
        variances = posterior.variances(row[None])[0]
        least = max(1e-12 * float(variances.max()), 1e-300)  # metrics that do not vary are not exact
        slot = max(float(row @ state.noise @ row), least) * draws / state.units
        shares = allocate(blends, variances, slot)
        return self._apply_limits(problem, state, self.floor * even + (1.0 - self.floor) * shares, posterior)

    def prospects(
        self, problem: LearningProblem, state: ThompsonState, rng: np.random.Generator
    ) -> list[ColumnProspect]:
        """Return the expected means and a few posterior draws over the complete space, each at its own prices."""
        model = state.model
        if not isinstance(model, LevelModel) or model.kernels is None or problem.features is None:
            return []
        posterior = model.posterior(problem.features)
        noise = rng.standard_normal((NEW_POINTS, *problem.shape))
        noise[0] = 0.0  # the expected means, so that the answer finds its own best points
        samples = posterior.draw(noise)
        _, priced = draw_blends(problem, posterior.mean, samples)
        mixing = np.eye(len(samples[0])) if model.mixing is None else model.mixing
        inverse = np.linalg.inv(mixing)
        origin = inverse @ model.statistics.origin
        return generate_columns(model.kernels, origin, problem.features, inverse @ samples, priced @ mixing, rng)

    def grow(self, problem: LearningProblem, state: ThompsonState) -> ThompsonState:
        """Add new candidates without measurements."""
        _, count = np.shape(state.model.points()[0])
        return replace(state, model=state.model.grow(len(problem.names) - count, problem.history))

    def answer(self, problem: LearningProblem, state: ThompsonState) -> Blend:
        """Return the blend of the highest expected f that holds hard guardrails with confidence, and the outlook."""
        posterior = self.posterior(problem, state)
        solution = solve_certified(problem, posterior)
        blend = certified_blend(problem, posterior, solution, state.model.overdispersion())
        if problem.traffic is None:
            return blend
        evidence = RoundEvidence(state.noise, state.units, has_free_level=isinstance(state.model, ContrastModel))
        measured = np.asarray(np.isfinite(state.model.points()[1]).all(axis=0), dtype=np.bool_)
        rng = np.random.default_rng(state.rounds)
        outlook = build_outlook(
            problem, posterior, blend, solution, evidence, problem.traffic, measured, state.before, rng
        )
        return replace(blend, outlook=outlook)

    def explained_by_history(self, state: ThompsonState) -> FloatArray:
        """Return the share of the candidates' differences that the history explains, (metrics,)."""
        history = state.model.history
        return np.zeros(len(state.noise)) if history is None else history.explained

    def save(self, state: ThompsonState) -> dict[str, Any]:
        """Return the state as lists and numbers."""
        return {
            "rounds": state.rounds,
            "model": state.model.to_saved(),
            "noise": state.noise.tolist(),
            "units": state.units,
            "fitted": state.fitted,
            "before": None if state.before is None else [part.tolist() for part in state.before],
            **({} if state.adjustment is None else {"adjustment": state.adjustment.to_saved()}),
        }

    def load(self, problem: LearningProblem, saved: dict[str, Any]) -> ThompsonState:
        """Return the state that `save` wrote."""
        metrics, count = problem.shape
        try:
            document = saved["model"]
            model: CandidateModel = (
                LevelModel.from_saved(document, metrics, problem.history)
                if self.contrast is None
                else ContrastModel.from_saved(document, problem.history)
            )
            noise = np.array(saved["noise"], dtype=float)
            before = saved["before"] and tuple(np.array(part, dtype=float) for part in saved["before"])
            rounds, units, fitted = int(saved["rounds"]), float(saved["units"]), int(saved["fitted"])
            adjustment = CovariateAdjustment.from_saved(saved["adjustment"]) if "adjustment" in saved else None
            state = ThompsonState(rounds, model, noise, units, fitted, before, adjustment)
            shape = np.shape(model.points()[0])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise StateError(f"the saved learner cannot be read: {error!r}") from error
        if shape != (metrics, count):
            raise StateError(
                f"the saved learner knows (metrics, candidates) = {shape}, the study has {(metrics, count)}"
            )
        return state

    def settings(self) -> dict[str, Any]:
        """Return the configuration as a plain JSON value."""
        return asdict(self)

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Self:
        """Return the learner that `settings` described."""
        if unknown := set(settings) - {f.name for f in fields(cls)}:
            raise StateError(f"learner {cls.name!r} has no setting {sorted(unknown)[0]!r}")
        return cls(**settings)

    def _may_share(self, problem: LearningProblem) -> bool:
        features = problem.features
        if self.structure == "independent" or features is None or not features.shape[1]:
            return False
        return len(features) <= MAX_JOINT_CANDIDATES and is_available()

    def _fit_kernels(self, problem: LearningProblem, model: CandidateModel) -> CandidateModel:
        """Return the model with kernels, if they predict better or are asked for."""
        assert problem.features is not None  # noqa: S101 -- `_may_share` has checked it
        mixing, estimates, noises = model.components()
        fit = fit_kernels if self.structure == "process" else choose_kernels
        return model.share(fit(problem.features, estimates, noises), mixing)

    def _apply_limits(
        self, problem: LearningProblem, state: ThompsonState, shares: FloatArray, posterior: Posterior | None
    ) -> FloatArray:
        """Return the policy within its largest shares and loss budgets."""
        limits = problem.limits
        if not limits.has_limits:
            return shares
        unseen = problem.active & ~np.isfinite(state.model.points()[1]).all(axis=0)
        most = np.where(problem.active, 1.0 if limits.max_share is None else limits.max_share, 0.0)
        if limits.new_candidate_share is not None:
            most = np.where(unseen, np.minimum(most, limits.new_candidate_share), most)
        fallback = problem.active / problem.active.sum()
        if problem.baseline is not None:
            fallback = np.asarray(np.arange(len(fallback)) == problem.baseline, dtype=float)
            most[problem.baseline] = 1.0
            unseen[problem.baseline] = False
        if not limits.loss_budget:
            return cap_shares(shares, most, fallback)
        # Candidates that were never measured share one small probe; the rest is bounded together with it.
        probe = min(PROBE_SHARE, float(most[unseen].sum())) if unseen.any() else 0.0
        fresh = np.where(unseen, probe / max(int(unseen.sum()), 1), 0.0)
        if posterior is None or (unseen.any() and int((problem.active & ~unseen).sum()) < MIN_MEASURED_CANDIDATES):
            return np.asarray((1.0 - probe) * fallback + fresh)
        form = build_form(problem, posterior.mean, posterior.mean)
        bounds = ShareBounds(form, posterior, read_baseline_offsets(problem.objective), problem.baseline, limits)
        capped = cap_shares(np.where(unseen, 0.0, shares), most, fallback)
        refuges = [
            fallback,
            bounds.safest_candidate() * problem.active,
            solve_certified(problem, posterior).probabilities,
        ]
        limited = [cap_shares(refuge, most, fallback) for refuge in refuges if refuge.any()]
        return limit_to_budget(
            (1.0 - probe) * capped + fresh, [(1.0 - probe) * refuge + fresh for refuge in limited], bounds
        )


def read_cells(problem: LearningProblem, round: RoundResult) -> RoundMeans:
    """Return the round's cells, with the control as one more cell of the baseline; columns are metrics, covariates."""
    sample, control = round.sample, round.control
    means, covariances = sample.metrics, round.covariances
    if round.covariates is not None:
        means = np.concatenate([means, round.covariates.means], axis=1)
        covariances, control = round.covariates.covariances, round.covariates.control
    cells = RoundMeans(sample.candidates, means, round.units, covariances)
    if control is None or problem.baseline is None or covariances is None:
        return cells
    return RoundMeans(
        np.append(sample.candidates, problem.baseline),
        np.concatenate([means, control.mean[None]]),
        None if round.units is None else np.append(round.units, control.units),
        np.concatenate([covariances, control.covariance[None]]),
        None if round.units is not None else np.append(np.ones(len(sample.candidates)), control.units),
    )
