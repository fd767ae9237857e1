"""Learning in a world that swings: every round against its own, concurrent control.

What all units of a round share (the hour, the weekend, a launch elsewhere) is in the control too and cancels. The
control's own noise does not: it enters every contrast of its round alike, and is carried as such.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pasto.errors import BadMeasurement
from pasto.estimate.joint import Joint

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Control:
    """What one round's control measured: its mean and that mean's covariance."""

    mean: Array
    """(metrics,)."""
    covariance: Array
    """(metrics, metrics)."""
    units: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Contrasts:
    """Evidence on candidates' contrasts with the control, as differences or in percent of it."""

    percent: bool
    precision: Array
    """(metrics, candidates, candidates)."""
    weighted: Array
    """(metrics, candidates): precision times the contrasts measured."""
    level: Array
    """(metrics,): the control's mean, averaged over rounds."""
    rounds: float

    @classmethod
    def none(cls, metrics: int, candidates: int, *, percent: bool) -> Contrasts:
        """Nothing measured yet."""
        return cls(
            percent,
            np.zeros((metrics, candidates, candidates)),
            np.zeros((metrics, candidates)),
            np.zeros(metrics),
            0.0,
        )

    def add(
        self, candidates: NDArray[np.intp], metrics: Array, covariances: Array, control: Control | None
    ) -> Contrasts:
        """The evidence with one more round, (draws, metrics) measured beside its control.

        A round without control still tells the candidates' differences among each other: what they share is then
        anything at all.
        """
        reference = self.level if control is None else control.mean
        if control is None and not self.rounds:
            raise BadMeasurement("the first round needs a control to contrast with; tell its assignments too")
        if self.percent and not (reference > 0).all():
            raise BadMeasurement(
                f"the control's means are {reference.tolist()}, and a contrast in percent needs positive ones; "
                "learn differences instead (contrast='difference')"
            )
        own = np.einsum("qii->qi", covariances)
        least = _least(own, np.abs(metrics).max(axis=0, initial=0.0) + np.abs(reference))
        own = np.maximum(own, least)
        shared = np.full(len(reference), np.inf)
        if control is not None:
            shared = np.maximum(np.diag(control.covariance), 1e-3 * least)
        pattern = np.ones_like(metrics)
        contrast = metrics - reference
        if self.percent:
            pattern = metrics / reference
            scale = 100.0 / reference
            contrast, own, shared = scale * contrast, scale**2 * own, scale**2 * shared
        precision, weighted = self.precision.copy(), self.weighted.copy()
        for metric in range(metrics.shape[1]):
            # Covariance diag(own) + shared · pattern patternᵀ, inverted by Sherman–Morrison.
            weights = 1.0 / own[:, metric]
            leaning = weights * pattern[:, metric]
            total = 1.0 / float(shared[metric]) + float(leaning @ pattern[:, metric])
            inner = np.diag(weights) - np.outer(leaning / total, leaning)
            np.add.at(precision[metric], (candidates[:, None], candidates[None, :]), inner)
            np.add.at(weighted[metric], candidates, inner @ contrast[:, metric])
        if control is None:
            return Contrasts(self.percent, precision, weighted, self.level, self.rounds)
        rounds = self.rounds + 1.0
        return Contrasts(self.percent, precision, weighted, self.level + (control.mean - self.level) / rounds, rounds)

    def fade(self, factor: float) -> Contrasts:
        """The same evidence at a fraction of its weight."""
        return Contrasts(
            self.percent, factor * self.precision, factor * self.weighted, self.level, factor * self.rounds
        )

    def grow(self, count: int) -> Contrasts:
        """With new candidates at the end, of which nothing is known."""
        return Contrasts(
            self.percent,
            np.pad(self.precision, ((0, 0), (0, count), (0, count))),
            np.pad(self.weighted, ((0, 0), (0, count))),
            self.level,
            self.rounds,
        )

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Which candidates have been measured at all."""
        return np.asarray(np.einsum("mkk->k", self.precision) > 0, dtype=np.bool_)

    def raw(self, belief: Joint) -> Joint:
        """A belief about contrasts, told in the metrics' own units at the control's average level."""
        scale = self.level / 100.0 if self.percent else np.ones_like(self.level)
        return belief.scaled(scale, self.level)

    def to_saved(self) -> dict[str, Any]:
        """A plain JSON value, bit for bit."""
        return {
            "percent": self.percent,
            "precision": self.precision.tolist(),
            "weighted": self.weighted.tolist(),
            "level": self.level.tolist(),
            "rounds": self.rounds,
        }

    @classmethod
    def from_saved(cls, saved: dict[str, Any]) -> Contrasts:
        """What `to_saved` wrote."""
        arrays = {name: np.array(saved[name], dtype=float) for name in ("precision", "weighted", "level")}
        return cls(percent=bool(saved["percent"]), rounds=float(saved["rounds"]), **arrays)


def _least(own: Array, level: Array) -> Array:
    """The smallest variance believed of a mean, by metric: of one that never varied, a millionth of its level, squared.

    A metric can be the same for every unit of a round (nobody liked anything), and that is no infinite precision.
    """
    typical = 1e-6 * own.mean(axis=0)
    constant = np.where(level > 0, 1e-6 * level, 1.0) ** 2
    return np.where(typical > 0, typical, constant)
