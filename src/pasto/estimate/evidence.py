"""What has been measured, as sufficient statistics: all that the posterior of a candidate's means needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
POOL = 100.0
"""Units that a round's pooled covariance counts for beside a candidate's own."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Observations of every candidate, summed: those that came with a covariance and those that did not.

    All sums are of differences from `origin`, the first observation, so that a metric of mean 1e6 and deviation 1
    loses nothing. Memory is linear in the candidates.
    """

    origin: Array
    """(metrics,)."""
    precision: Array
    """(candidates, metrics, metrics): Σ S⁻¹ over observations of known covariance S."""
    weighted: Array
    """(candidates, metrics): Σ S⁻¹ (û − origin)."""
    units: Array
    """(candidates,): units behind the observations of unknown covariance."""
    sums: Array
    """(candidates, metrics): Σ units · (û − origin) over those."""
    squares: Array
    """(metrics, metrics): Σ units · (û − origin)(û − origin)ᵀ over those, all candidates pooled."""
    repeats: Array
    """(candidates,): how many observations of unknown covariance."""

    @classmethod
    def none(cls, metrics: int, candidates: int) -> Evidence:
        """Nothing measured yet."""
        return cls(
            origin=np.full(metrics, np.nan),
            precision=np.zeros((candidates, metrics, metrics)),
            weighted=np.zeros((candidates, metrics)),
            units=np.zeros(candidates),
            sums=np.zeros((candidates, metrics)),
            squares=np.zeros((metrics, metrics)),
            repeats=np.zeros(candidates),
        )

    def add(self, candidates: NDArray[np.intp], metrics: Array, units: Array, covariances: Array | None) -> Evidence:
        """The evidence with one more round of observations, (draws, metrics) each; the old one is left as it was."""
        origin = metrics[0] if np.isnan(self.origin).any() else self.origin
        centred = metrics - origin
        new = {name: getattr(self, name).copy() for name in _SUMS}
        if covariances is not None:
            inverses = np.linalg.inv(steadied(covariances))
            np.add.at(new["precision"], candidates, inverses)
            np.add.at(new["weighted"], candidates, np.einsum("qij,qj->qi", inverses, centred))
        else:
            np.add.at(new["units"], candidates, units)
            np.add.at(new["sums"], candidates, units[:, None] * centred)
            new["squares"] += np.einsum("q,qi,qj->ij", units, centred, centred)
            np.add.at(new["repeats"], candidates, 1.0)
        return Evidence(origin=origin, **new)

    def fade(self, factor: float) -> Evidence:
        """The same evidence at a fraction of its weight, for a world that drifts."""
        return Evidence(origin=self.origin, **{name: factor * getattr(self, name) for name in _SUMS})

    def grow(self, count: int) -> Evidence:
        """With new candidates at the end, of which nothing is known."""

        def longer(array: Array) -> Array:
            return np.concatenate([array, np.zeros((count, *array.shape[1:]))])

        pooled = {"squares": self.squares}
        return Evidence(
            origin=self.origin, **{name: longer(getattr(self, name)) for name in _SUMS if name not in pooled}, **pooled
        )

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Which candidates have been measured at all."""
        return np.asarray((self.repeats > 0) | (np.einsum("kmm->k", self.precision) > 0), dtype=np.bool_)

    def noise(self) -> Array:
        """The covariance of one unit, pooled over candidates from the spread of their repeats, (metrics, metrics).

        Without repeats nothing separates noise from differences between candidates: half of the spread is then called
        noise, and counts like one more repeat. Correlations are drawn toward none by metrics + 1 repeats' worth.
        """
        width = len(self.origin)
        several = self.units > 0
        if not several.any():
            return np.eye(width)
        means = self.sums[several] / self.units[several, None]
        within = self.squares - np.einsum("k,ki,kj->ij", self.units[several], means, means)
        freedom = max(0.0, float((self.repeats[several] - 1.0).sum()))
        centre = self.sums[several].sum(axis=0) / self.units.sum()
        spread = self.squares / self.units.sum() - np.outer(centre, centre)
        typical = float(self.units[several].sum() / self.repeats[several].sum())
        least = np.maximum(np.diag(spread), 1e-12 * centre**2)
        constant = np.where(self.origin != 0.0, 1e-6 * self.origin, 1.0) ** 2
        share = 0.5 * typical * np.where(least > 0.0, least, constant)
        guess = np.diag((np.maximum(np.diag(within), 0.0) + share) / (freedom + 1.0))
        strength = width + 1.0
        return steadied((within + strength * guess) / (freedom + strength))

    def likelihood(self) -> tuple[Array, Array]:
        """Each candidate's precision matrix and weighted sum, noise of unknown covariance put in as pooled."""
        precision, weighted = self.precision, self.weighted
        if self.units.any():
            inverse = np.linalg.inv(self.noise())
            precision = precision + self.units[:, None, None] * inverse
            weighted = weighted + self.sums @ inverse
        return precision, weighted

    def to_saved(self) -> dict[str, Any]:
        """A plain JSON value, bit for bit."""
        origin = None if np.isnan(self.origin).any() else self.origin.tolist()
        return {"origin": origin, **{name: getattr(self, name).tolist() for name in _SUMS}}

    @classmethod
    def from_saved(cls, saved: dict[str, Any], metrics: int) -> Evidence:
        """What `to_saved` wrote."""
        origin = np.full(metrics, np.nan) if saved["origin"] is None else np.array(saved["origin"], dtype=float)
        return cls(origin=origin, **{name: np.array(saved[name], dtype=float) for name in _SUMS})


_SUMS = ("precision", "weighted", "units", "sums", "squares", "repeats")


def shrunk(covariances: Array, units: Array) -> Array:
    """Covariances of means over few units, drawn toward the round's own: (observations, metrics, metrics).

    A variance estimated from few units goes with their mean: of a skewed metric, a low mean comes with a small
    variance, would weigh more for it, and pull what is believed down with it. So what one unit's covariance is said to
    be, the covariance of the mean times its units, is averaged with the pooled one of the round, which counts as `POOL`
    units.

    >>> import numpy as np
    >>> few, many = shrunk(np.array([[[0.0]], [[0.001]]]), np.array([10.0, 1000.0]))[:, 0, 0]
    >>> bool(few > 0.08), round(float(many), 6)
    (True, 0.000999)
    """
    single = covariances * units[:, None, None]
    pooled = np.einsum("q,qij->ij", units, single) / units.sum()
    mixed = (units[:, None, None] * single + POOL * pooled) / (units + POOL)[:, None, None]
    return np.asarray(mixed / units[:, None, None])


def steadied(covariances: Array) -> Array:
    """Covariances made safely invertible: a diagonal a millionth of the metric's own variance at least.

    A metric that did not vary has no variance of its own: it takes a part of the largest.

    >>> import numpy as np
    >>> steadied(np.array([[1.0, 1.0], [1.0, 1.0]])).round(9).tolist()
    [[1.000001, 1.0], [1.0, 1.000001]]
    """
    diagonal = np.einsum("...ii->...i", covariances)
    largest = diagonal.max(axis=-1, keepdims=True)
    floor = np.where(diagonal > 0.0, 1e-6 * diagonal, 1e-12 * np.where(largest > 0.0, largest, 1.0))
    return np.asarray(covariances + floor[..., None] * np.eye(covariances.shape[-1]))
