"""Estimates of every candidate's metrics: from the learner for the metrics it learns, otherwise from the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.blend import Blend
from pasto.errors import PastoError
from pasto.estimate import CovariateAdjustment
from pasto.inference.round_data import MeasuredRound, RoundRecord, record_rounds
from pasto.objective import Objective
from pasto.optimize import solve_exact, summarize_blend
from pasto.report.lift_records import IntervalEstimate
from pasto.report.records import PriceReport
from pasto.report.summary import price_text
from pasto.service.round_history import latest
from pasto.service.study_file import StudySpec
from pasto.study import Study

DRAWS = 64
"""Posterior draws that every interval is computed from."""


@dataclass(frozen=True, slots=True, eq=False)
class CandidateEstimates:
    """Means of columns over candidates: the expected ones, and draws of what they may be."""

    columns: tuple[str, ...]
    means: FloatArray
    """(1 + draws, columns, candidates): the expected means first."""
    names: tuple[str, ...]
    baseline: int | None
    usable: NDArray[np.bool_]
    """(candidates,): True if every column has an estimate."""
    from_log: tuple[str, ...] = ()
    """Columns that the learner does not learn, estimated from the rounds' own comparisons."""

    @property
    def usable_candidates(self) -> list[int]:
        """Places of the candidates with an estimate in every column."""
        return [k for k in range(len(self.names)) if self.usable[k]]

    def table(self, draw: int, columns: Sequence[str], candidates: Sequence[int]) -> FloatArray:
        """Return the means of some columns and candidates in one draw, (columns, candidates)."""
        places = [self.columns.index(name) for name in columns]
        return np.asarray(self.means[draw][np.ix_(places, list(candidates))])


def estimate_candidates(spec: StudySpec, study: Study, rounds: Sequence[MeasuredRound]) -> CandidateEstimates:
    """Estimate every column of every candidate, the learner's own metrics first."""
    means = study.posterior_samples(draws=DRAWS)
    learned = study.objective.metrics
    others = [column.name for column in spec.columns if column.name not in learned]
    names = tuple(study.candidates.names)
    usable = np.ones(len(names), dtype=np.bool_)
    if others:
        measured = [entry for entry in latest(rounds) if entry.cells]
        places = [place for place, column in enumerate(spec.columns) if column.name in others]
        record = record_rounds(measured)
        past = range(len(spec.columns), min(len(spec.measured_columns), record.cells.mean.shape[-1]))
        log_means, has_units = _estimate_from_log(record, places, past, len(names), len(means), study.seed)
        means, usable = np.concatenate([means, log_means], axis=1), usable & has_units
    return CandidateEstimates((*learned, *others), means, names, study.baseline, usable, tuple(others))


def _estimate_from_log(
    record: RoundRecord, places: Sequence[int], past: Sequence[int], count: int, draws: int, seed: int
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Estimate candidates' means from their rounds' comparisons with the control, and which candidates had units.

    Every round counts alike. The columns `past` are covariates, which take noise out of the comparisons.
    """
    cells, control, covariances = record.arm_view("control", running=False)
    form = _adjusted_form(cells.units, cells.mean, covariances, places, past)
    means, has_units = np.zeros((len(places), count)), np.zeros(count, dtype=np.bool_)
    errors = np.zeros((len(places), count))
    base = cells.units[:, control]
    level = (base[:, None] * cells.mean[:, control][:, places]).sum(axis=0) / max(float(base.sum()), 1.0)
    for place, (arm, candidate) in enumerate(record.keys):
        both = (cells.units[:, place] > 0) & (base > 0)
        if arm != "learner" or not both.any():
            continue
        own = cells.units[both, place]
        weight = 1.0 / np.sqrt(1.0 / own + 1.0 / base[both])
        difference = (cells.mean[both, place] - cells.mean[both, control]) @ form
        variance = np.einsum("ip,tij,jp->tp", form, covariances[both, place], form) / own[:, None]
        variance = variance + np.einsum("ip,tij,jp->tp", form, covariances[both, control], form) / base[both][:, None]
        means[:, candidate] = level + weight @ difference / weight.sum()
        errors[:, candidate] = np.sqrt(weight**2 @ variance) / weight.sum()
        has_units[candidate] = True
    noise = np.random.default_rng([seed, 4]).standard_normal((draws, *means.shape))
    noise[0] = 0.0
    return means + errors * noise, has_units


def _adjusted_form(
    units: FloatArray, mean: FloatArray, covariances: FloatArray, places: Sequence[int], past: Sequence[int]
) -> FloatArray:
    """Return the columns `places` less their regression on `past` within cells, (columns, places)."""
    form = np.zeros((mean.shape[-1], len(places)))
    form[list(places), np.arange(len(places))] = 1.0
    if past:
        degrees = np.maximum(units - 1.0, 0.0)
        used = [*places, *past]
        products = np.einsum("tk,tkij->ij", degrees, covariances)[np.ix_(used, used)]
        level = np.einsum("tk,tki->i", units, mean)[list(past)] / max(float(units.sum()), 1.0)
        form[list(past)] = -CovariateAdjustment(products, float(degrees.sum())).regress(len(places), level)
    return form


def summarize_draws(value: float, draws: Sequence[float] | FloatArray, confidence: float) -> IntervalEstimate:
    """Return a number with the interval that holds the middle part of its draws; no ends if there are too few.

    >>> summarize_draws(50.0, [float(k) for k in range(101)], 0.5)
    IntervalEstimate(value=50.0, low=25.0, high=75.0)
    >>> summarize_draws(1.0, [1.0], 0.9)
    IntervalEstimate(value=1.0, low=None, high=None)
    """
    expected = float(value) if np.isfinite(value) else None
    finite = np.asarray(draws, dtype=float)
    finite = finite[np.isfinite(finite)]
    if len(finite) < DRAWS // 2:
        return IntervalEstimate(expected, None, None)
    low, high = np.quantile(finite, [(1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0])
    return IntervalEstimate(expected, float(low), float(high))


def solve_means(means: FloatArray, objective: Objective, names: Sequence[str], baseline: int | None) -> Blend:
    """Return the best blend for means that are taken as true, as `pasto.solve` without its advice on penalties."""
    form = objective.form(None if baseline is None else means[:, baseline])
    solution = solve_exact(form, means)
    return summarize_blend(
        solution.probabilities, means, objective, names=names, baseline=baseline, duals=solution.duals
    )


def solve_draws(
    estimates: CandidateEstimates, objective: Objective, candidates: Sequence[int]
) -> tuple[Blend, list[Blend]]:
    """Return the best blend for the expected means, and the best one for every draw that has one."""
    names, baseline = [estimates.names[k] for k in candidates], baseline_place(estimates, candidates)
    best = solve_means(estimates.table(0, objective.metrics, candidates), objective, names, baseline)
    blends = []
    for draw in range(1, len(estimates.means)):
        try:
            blends.append(solve_means(estimates.table(draw, objective.metrics, candidates), objective, names, baseline))
        except PastoError:  # a draw whose baseline is not positive has no percentages
            continue
    return best, blends


def baseline_place(estimates: CandidateEstimates, candidates: Sequence[int]) -> int | None:
    """Return the place of the baseline among some candidates; None if it is not one of them."""
    if estimates.baseline is None or estimates.baseline not in candidates:
        return None
    return list(candidates).index(estimates.baseline)


def estimate_prices(spec: StudySpec, estimates: CandidateEstimates) -> tuple[PriceReport, ...]:
    """Estimate the gain in the goal if each guardrail is relaxed by one unit, with its interval."""
    objective = spec.objective
    if not objective.guardrails:
        return ()
    blend, draws = solve_draws(estimates, objective, estimates.usable_candidates)
    reports = []
    for name, guardrail in zip(objective.names, objective.guardrails, strict=True):
        draw_prices = [draw.prices.get(name, np.nan) for draw in draws]
        price = summarize_draws(blend.prices.get(name, np.nan), draw_prices, spec.confidence)
        text = price_text(guardrail, objective, price.value, price.low, price.high, confidence=spec.confidence)
        sentence = f"{text[:1].upper()}{text[1:]}."
        reports.append(PriceReport(name, price.value, price.low, price.high, sentence))
    return tuple(reports)
