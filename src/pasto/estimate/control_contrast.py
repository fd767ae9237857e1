"""Contrasts with the concurrent control: differences, or percentages, that a round's level does not move.

A round's cells are modelled as mean = level of the round + effect of the candidate + noise. The effect of the
baseline is zero, and the level is free. In percent, the round is first divided by its own scale. Effects that all units
of a round share (the hour, the weekend, a launch elsewhere) are in the level. The noise of the control is in every
contrast of its round; it is accounted for because the level is estimated together with the effects.

Two rules keep the estimates unbiased. Cells are weighted by their units. And a round's scale comes from all its cells,
never from the control alone: divided by its own control, a round with a low control would have large effects with small
errors (Peelle's puzzle).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import MeasurementError
from pasto.estimate.posterior import (
    FREE_MEAN_VARIANCE,
    MAX_SHARED_CANDIDATES,
    PRIOR_CANDIDATES,
    JointPosterior,
    covariance_moves,
    learned_covariance_errors,
    uncorrelated_components,
)
from pasto.estimate.sufficient_statistics import RoundMeans, regularize, shrink_variances

SCALE_ESTIMATION_STEPS = 2
"""Alternating steps that estimate a round's scale and its effects from each other."""


@dataclass(frozen=True, slots=True, eq=False)
class ControlContrasts:
    """Sums over rounds that determine the effects θ of all candidates: A θ = b, with the covariance of b noise · A."""

    percent: NDArray[np.bool_]
    """(metrics,): True if the metric is contrasted in percent, False for differences."""
    information: FloatArray
    """(candidates, candidates): A = Σ diag(n) − n nᵀ / Σn over rounds, n being the units of each candidate."""
    weighted: FloatArray
    """(metrics, candidates): b, the sums of n (y − level) of each candidate."""
    units: FloatArray
    """(candidates,): Σ n."""
    squared_units: FloatArray
    """(candidates,): Σ w² / n, with w the weight of a cell: its units n, faded by age."""
    sums: FloatArray
    """(metrics,): Σ n x, in the metrics' own units."""
    scale_sums: FloatArray
    """(metrics,): Σ n · scale of the round."""
    repeats: FloatArray
    """(candidates,): number of cells."""
    variance_sums: FloatArray
    """(candidates, metrics): Σ n · variance of one unit, in contrast units."""
    variance_squares: FloatArray
    """(candidates, metrics): Σ n · that variance squared."""
    noise_sums: FloatArray
    """(metrics, metrics): Σ n · covariance of one unit, in contrast units."""
    squares: FloatArray
    """(metrics,): Σ n (y − level)²."""
    expected_squares: FloatArray
    """(metrics,): the expectation of `squares` from each cell's own error if all effects were zero."""
    degrees: float
    """Σ cells − 1 over rounds."""
    rounds: float
    explained_sums: FloatArray | None = None
    """(metrics, metrics): Σ n · covariance of one unit that adjustment by covariates has removed, in contrast units.
    None if no round was adjusted."""

    @classmethod
    def empty(cls, percent: NDArray[np.bool_], candidates: int) -> ControlContrasts:
        """Return the sums before the first round."""
        metrics = len(percent)
        return cls(
            percent,
            np.zeros((candidates, candidates)),
            np.zeros((metrics, candidates)),
            np.zeros(candidates),
            np.zeros(candidates),
            np.zeros(metrics),
            np.zeros(metrics),
            np.zeros(candidates),
            np.zeros((candidates, metrics)),
            np.zeros((candidates, metrics)),
            np.zeros((metrics, metrics)),
            np.zeros(metrics),
            np.zeros(metrics),
            0.0,
            0.0,
        )

    def add(self, cells: RoundMeans, baseline: int, effects: FloatArray | None) -> ControlContrasts:
        """Return the sums with one more round; `effects` (metrics, candidates) is the estimate of θ before it."""
        units, covariances = cells.units, cells.covariances
        assert units is not None and covariances is not None  # noqa: S101, PT018 -- `ContrastModel.add` checks
        if not self.rounds and not (cells.candidates == baseline).any():
            raise MeasurementError(
                "the first round needs measurements of the control; pass its assignments to tell() too"
            )
        scale = self._scale(cells.means, units, None if effects is None else effects[:, cells.candidates])
        contrasts = self._with_scale(cells, scale)
        for _ in range(SCALE_ESTIMATION_STEPS if self.percent.any() else 0):
            effects_of_cells = contrasts.quick_effects(baseline)[:, cells.candidates]
            contrasts = self._with_scale(cells, self._scale(cells.means, units, effects_of_cells))
        return contrasts

    def _scale(self, means: FloatArray, units: FloatArray, effects: FloatArray | None) -> FloatArray:
        """Return the level at which a round's cells have the given effects, (metrics,); 1 for differences."""
        expected = np.ones(means.T.shape) if effects is None else 1.0 + effects / 100.0
        scale = (units @ means) / np.maximum(expected @ units, 1e-12)
        if (self.percent & (scale < 0.0)).any():
            raise MeasurementError(
                f"the means of the round are {(units @ means / units.sum()).tolist()}, and a contrast in percent needs "
                "positive ones; learn differences instead (contrast='difference')"
            )
        return np.where(self.percent, scale, 1.0)

    def _with_scale(self, cells: RoundMeans, scale: FloatArray) -> ControlContrasts:
        units, covariances, places = cells.units, cells.covariances, cells.candidates
        assert units is not None and covariances is not None  # noqa: S101, PT018
        total = float(units.sum())
        # A metric without a single event in the round has no scale and carries no information about the effects.
        usable = scale > 0.0
        factor = np.where(usable, np.where(self.percent, 100.0, 1.0) / np.where(usable, scale, 1.0), 0.0)
        centred = factor * (cells.means - (units @ cells.means) / total)
        noise = np.einsum("q,qij->ij", np.square(units), covariances) / total * np.outer(factor, factor)
        if self.rounds and not usable.all():
            pooled_noise = self.noise_sums / self.units.sum()
            noise = np.where(np.logical_or.outer(~usable, ~usable), np.diag(np.diag(pooled_noise)), noise)
        variances = np.square(factor) * units[:, None] * np.einsum("qii->qi", covariances)
        explained_sums = self.explained_sums
        if cells.explained is not None:
            explained = total * cells.explained * np.outer(factor, factor)
            explained_sums = explained if explained_sums is None else explained_sums + explained
        information, weighted = self.information.copy(), self.weighted.copy()
        unit_sums, squared, repeats = self.units.copy(), self.squared_units.copy(), self.repeats.copy()
        variance_sums, variance_squares = self.variance_sums.copy(), self.variance_squares.copy()
        np.add.at(information, (places, places), units)
        np.add.at(information, (places[:, None], places[None, :]), -np.outer(units, units) / total)
        np.add.at(weighted.T, places, units[:, None] * centred)
        np.add.at(unit_sums, places, units)
        np.add.at(squared, places, units)
        np.add.at(repeats, places, 1.0)
        np.add.at(variance_sums, places, units[:, None] * variances)
        np.add.at(variance_squares, places, units[:, None] * np.square(variances))
        return ControlContrasts(
            self.percent,
            information,
            weighted,
            unit_sums,
            squared,
            self.sums + units @ cells.means,
            self.scale_sums + total * scale,
            repeats,
            variance_sums,
            variance_squares,
            self.noise_sums + total * noise,
            self.squares + units @ np.square(centred),
            self.expected_squares + (1.0 - units / total) @ variances,
            self.degrees + len(units) - 1,
            self.rounds + 1.0,
            explained_sums,
        )

    def fade(self, factor: float) -> ControlContrasts:
        """Return the same sums at a fraction of their weight."""
        sums = {name: factor * getattr(self, name) for name in _SUMS}
        sums["squared_units"] = factor**2 * self.squared_units
        explained_sums = None if self.explained_sums is None else factor * self.explained_sums
        return ControlContrasts(self.percent, **sums, explained_sums=explained_sums)

    def grow(self, count: int) -> ControlContrasts:
        """Return the sums with `count` new, unmeasured candidates at the end."""
        sums = {name: getattr(self, name) for name in _SUMS}
        sums["information"] = np.pad(self.information, (0, count))
        sums["weighted"] = np.pad(self.weighted, ((0, 0), (0, count)))
        sums["units"] = np.pad(self.units, (0, count))
        sums["squared_units"] = np.pad(self.squared_units, (0, count))
        sums["repeats"] = np.pad(self.repeats, (0, count))
        sums["variance_sums"] = np.pad(self.variance_sums, ((0, count), (0, 0)))
        sums["variance_squares"] = np.pad(self.variance_squares, ((0, count), (0, 0)))
        return ControlContrasts(self.percent, **sums, explained_sums=self.explained_sums)

    @property
    def measured(self) -> NDArray[np.bool_]:
        """(candidates,): True if the candidate has been measured."""
        return np.asarray(self.units > 0, dtype=np.bool_)

    @property
    def noise(self) -> FloatArray:
        """Covariance of one unit in contrast units, (metrics, metrics), pooled over candidates and rounds."""
        if not self.rounds:
            return np.eye(len(self.weighted))
        pooled = self.noise_sums / self.units.sum()
        spare = np.where(np.diag(self.noise_sums) > 0.0, 0.0, self._constant_variance())
        return regularize(pooled + np.diag(spare))

    def noise_deviations(self) -> FloatArray:
        """Return the noise of each candidate over the pooled one, (candidates, metrics), as deviations."""
        pooled = np.diag(self.noise)
        own = shrink_variances(pooled, self.units, self.repeats, self.variance_sums, self.variance_squares)
        return np.asarray(np.sqrt(own / pooled))

    def component_variances(self, inverse: FloatArray) -> FloatArray:
        """Return the variance of one unit of each candidate in components inverse @ metrics, (components, candidates).

        Variances are each candidate's own, correlations the pooled ones.
        """
        roots = inverse @ (self.noise_deviations()[:, :, None] * np.linalg.cholesky(self.noise))
        return np.asarray(np.square(roots).sum(axis=2).T)

    def evidence_covariance(self, variances: FloatArray) -> FloatArray:
        """Return the covariance of b if one unit of candidate k has variances[..., k]: (..., candidates, candidates).

        In a round, b = (I − n 1ᵀ / Σn) n y. The mean variance of a round's units is taken to be that of all rounds.
        """
        mean_variance = (variances @ self.units / max(float(self.units.sum()), 1e-300))[..., None]
        deviations = variances - mean_variance
        sums = variances[..., :, None] + deviations[..., None, :]
        return np.asarray(sums * self.information - (deviations * self.units)[..., None] * np.eye(len(self.units)))

    def _constant_variance(self) -> FloatArray:
        """Return a small variance for metrics that never varied within any cell, (metrics,)."""
        level = np.where(self.percent, 100.0, np.abs(self.sums / self.units.sum()))
        return np.square(np.where(level > 0, 1e-3 * level, 1.0))

    def quick_effects(self, baseline: int) -> FloatArray:
        """Return a shrunk estimate of the effects, (metrics, candidates), for the scale of a round."""
        noise = np.diag(self.noise)
        prior = ContrastPrior.learn(self, baseline, None, steps=1)
        spread = np.maximum(np.diag(prior.covariance), 1e-300)
        effects = np.empty_like(self.weighted)
        for metric, weighted in enumerate(self.weighted):
            system = self.information + np.diag(np.full(len(weighted), noise[metric] / spread[metric]))
            effects[metric] = np.linalg.solve(system, weighted)
            effects[metric] -= effects[metric, baseline]
        return np.clip(effects, -90.0, None)

    def scatter_ratio(self) -> tuple[FloatArray, float]:
        """Return the residual scatter of cells over its expectation from their errors, (metrics,), and its degrees."""
        fitted = self.squared_units[self.measured] / self.units[self.measured]  # 1 each if nothing fades
        fitted_degrees = float(fitted.sum() - fitted.mean()) if len(fitted) else 0.0
        degrees = self.degrees - fitted_degrees
        noise = np.diag(self.noise_sums) / max(float(self.units.sum()), 1e-300)
        expected = self.expected_squares - fitted_degrees * noise
        if degrees < 1.0:
            return np.full(len(self.weighted), np.nan), max(degrees, 0.0)
        inverse = np.linalg.pinv(self.information[np.ix_(self.measured, self.measured)], hermitian=True)
        explained = np.einsum("mi,ij,mj->m", self.weighted[:, self.measured], inverse, self.weighted[:, self.measured])
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(expected > 0.0, (self.squares - explained) / expected, np.nan), degrees

    def to_metrics(self, posterior: JointPosterior) -> JointPosterior:
        """Return a posterior over effects in the metrics' own units, at the average level of the units measured.

        The level is the mean over all units less the average effect of the candidates served. Its error nearly cancels
        against that of the effects.
        """
        total = max(float(self.units.sum()), 1e-300)
        shares, average = self.units / total, self.sums / total
        served = np.where(self.percent, 1.0 + posterior.mean @ shares / 100.0, 1.0)
        level = np.where(self.percent, average / served, average - posterior.mean @ shares)
        scale = np.where(self.percent, level / 100.0, 1.0)
        metrics, count = posterior.mean.shape
        centring = np.eye(count) - shares[None, :]
        moved = posterior.transform(np.diag(scale), centring, np.zeros(metrics))
        mixing = moved.mixing
        assert mixing is not None  # noqa: S101
        # The mean of all units has a variance of its own, the same for every candidate. Covariates do not reduce it.
        mean = scale[:, None] * posterior.mean + level[:, None]
        noise = self.noise if self.explained_sums is None else self.noise + self.explained_sums / total
        own = np.linalg.pinv(mixing) @ (np.outer(scale, scale) * noise) @ np.linalg.pinv(mixing).T / total
        covariances = moved.covariances + np.maximum(np.diag(own), 0.0)[:, None, None]
        return JointPosterior(mean, covariances, mixing, moved.shared)

    def to_saved(self) -> dict[str, Any]:
        """Return a plain JSON value, bit for bit."""
        saved: dict[str, Any] = {"percent": self.percent.tolist()}
        for name in _SUMS:
            value = getattr(self, name)
            saved[name] = value.tolist() if isinstance(value, np.ndarray) else value
        return saved if self.explained_sums is None else {**saved, "explained_sums": self.explained_sums.tolist()}

    @classmethod
    def from_saved(cls, saved: dict[str, Any]) -> ControlContrasts:
        """Return what `to_saved` wrote."""
        sums: dict[str, Any] = {
            name: float(saved[name]) if name in ("degrees", "rounds") else np.array(saved[name], dtype=float)
            for name in _SUMS
        }
        explained_sums = np.array(saved["explained_sums"], dtype=float) if "explained_sums" in saved else None
        return cls(np.array(saved["percent"], dtype=np.bool_), **sums, explained_sums=explained_sums)


_SUMS = (
    "information",
    "weighted",
    "units",
    "squared_units",
    "sums",
    "scale_sums",
    "repeats",
    "variance_sums",
    "variance_squares",
    "noise_sums",
    "squares",
    "expected_squares",
    "degrees",
    "rounds",
)


@dataclass(frozen=True, slots=True, eq=False)
class ContrastPrior:
    """Prior of the candidates' effects: N(m, covariance) with m unknown; the effect of the baseline is zero."""

    covariance: FloatArray
    """(metrics, metrics)."""

    @classmethod
    def learn(
        cls, contrasts: ControlContrasts, baseline: int, start: ContrastPrior | None, steps: int = 3
    ) -> ContrastPrior:
        """Return the prior that makes the contrasts most likely, by a few steps of EM from `start`."""
        measured_others = contrasts.measured.copy()
        measured_others[baseline] = False
        if not measured_others.any():
            return cls(np.diag(np.diag(contrasts.noise))) if start is None else start
        weights = np.diag(contrasts.information)[measured_others]
        estimates = contrasts.weighted[:, measured_others] / weights
        noise = np.diag(contrasts.noise)[:, None] / weights
        count = int(measured_others.sum())
        variances = noise[:, 0]
        if count > 1:
            variances = np.maximum(estimates.var(axis=1, ddof=1) - noise.mean(axis=1), 0.1 * noise.mean(axis=1))
        prior = cls(np.diag(variances)) if start is None else start
        # The spread is at least a part of the noise in directions in which candidates hardly differ.
        typical_noise = contrasts.noise / float(np.median(weights))
        for _ in range(steps):
            posterior = prior.posterior(contrasts, baseline)
            mixing = posterior.mixing
            assert mixing is not None  # noqa: S101
            means = posterior.mean[:, measured_others]
            deviations = means - means.mean(axis=1, keepdims=True)
            covariances = posterior.covariances[:, measured_others][:, :, measured_others]
            posterior_scatter = np.einsum("mkk->m", covariances) - covariances.sum(axis=(1, 2)) / count
            scatter = deviations @ deviations.T + (mixing * posterior_scatter) @ mixing.T
            prior = cls(
                regularize((scatter + PRIOR_CANDIDATES * typical_noise) / (max(count - 1, 1) + PRIOR_CANDIDATES))
            )
        return prior

    def posterior(self, contrasts: ControlContrasts, baseline: int) -> JointPosterior:
        """Return the posterior of the effects, in contrast units.

        Noise and prior are diagonal in the same components, so one Gaussian per component is exact.
        """
        mixing, variances = uncorrelated_components(contrasts.noise, self.covariance)
        count = contrasts.weighted.shape[1]
        others = np.arange(count) != baseline
        weights = np.diag(contrasts.information)
        typical = 1.0 / float(np.median(weights[weights > 0])) if (weights > 0).any() else 1.0
        free = FREE_MEAN_VARIANCE * (variances + typical)
        prior = variances[:, None, None] * np.diag(others.astype(float)) + free[:, None, None] * np.outer(
            others, others
        )
        inverse = np.asarray(np.linalg.inv(mixing), dtype=float)
        weighted = inverse @ contrasts.weighted
        precision = np.broadcast_to(contrasts.information, (len(variances), count, count))
        known = JointPosterior.from_evidence(np.zeros_like(weighted), prior, precision, weighted)
        shared = self._covariance_columns(contrasts, others, known, mixing)
        # A candidate's noise may be larger or smaller than the pooled one, whose variance is 1 in every component.
        own = contrasts.component_variances(inverse)
        known = known.with_noise(precision, contrasts.evidence_covariance(own))
        return JointPosterior(mixing @ known.mean, known.covariances, mixing, shared)

    def _covariance_columns(
        self, contrasts: ControlContrasts, others: NDArray[np.bool_], posterior: JointPosterior, mixing: FloatArray
    ) -> FloatArray | None:
        """Return the change of the effects with each error of the learned covariance, (candidates, metrics, rank)."""
        measured = others & contrasts.measured
        if not measured.any() or len(others) > MAX_SHARED_CANDIDATES:
            return None
        weights = np.diag(contrasts.information)[measured]
        noises = contrasts.noise / weights[:, None, None]
        errors = learned_covariance_errors(self.covariance, noises, contrasts.noise / float(np.median(weights)))
        effects = (mixing @ posterior.mean).T
        deviations = np.where(measured[:, None], effects - effects[others].mean(axis=0), 0.0)
        moves = covariance_moves(self.covariance, errors, deviations)
        return np.asarray(np.einsum("im,mkl,jm,ljr->kir", mixing, posterior.covariances, mixing, moves, optimize=True))
