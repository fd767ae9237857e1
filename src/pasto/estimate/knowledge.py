"""What a learner knows of the candidates: the evidence, what it has taught about the prior, and the belief.

Two ways of knowing with one interface: `Absolute`, from the metrics as they are, and `Contrasted`, from each round's
contrasts with its own control. In both, candidates stand each for itself, or share what kernels say they share.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from pasto.errors import BadMeasurement
from pasto.estimate.belief import Belief, Independent
from pasto.estimate.contrast import Contrasts, Control
from pasto.estimate.evidence import Evidence
from pasto.estimate.joint import Joint
from pasto.estimate.kernel import Kernel
from pasto.estimate.prior import Prior, Spread, learn_prior, learn_spread

Array = NDArray[np.float64]
Kernels = tuple[Kernel, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """One round as measured: the means of candidates, with their units and covariances where known."""

    candidates: NDArray[np.intp]
    metrics: Array
    """(draws, metrics)."""
    units: Array
    """(draws,)."""
    covariances: Array | None = None
    """(draws, metrics, metrics)."""
    control: Control | None = None


class Knowledge(Protocol):
    """A value that is replaced, never changed."""

    @property
    def kernels(self) -> Kernels:
        """What neighbouring candidates share, metric by metric; None is nothing."""
        ...

    def add(self, reading: Reading) -> Self:
        """With one more round."""
        ...

    def fade(self, factor: float) -> Self:
        """With every old round at a fraction of its weight."""
        ...

    def grow(self, count: int) -> Self:
        """With new candidates at the end, of which nothing is known."""
        ...

    def share(self, kernels: Kernels) -> Self:
        """With candidates sharing what the kernels say, or nothing."""
        ...

    def points(self) -> tuple[Array, Array]:
        """What each candidate was measured to be and the variance of that, (metrics, candidates); infinite unseen."""
        ...

    def belief(self, features: Array | None) -> Belief:
        """The posterior over the truth."""
        ...

    def to_saved(self) -> dict[str, Any]:
        """A plain JSON value, bit for bit."""
        ...


SUREST = 1e8
"""How much more precise than a kernel's prior a measurement is believed to be at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Absolute:
    """Candidates' metrics as they are."""

    evidence: Evidence
    baseline: int | None = None
    prior: Prior | None = None
    kernels: Kernels = None

    def add(self, reading: Reading) -> Absolute:
        """Add the round, its control as one more measurement of the baseline, and learn the prior again."""
        evidence = self.evidence.add(reading.candidates, reading.metrics, reading.units, reading.covariances)
        if reading.control is not None and self.baseline is not None and reading.covariances is not None:
            control = reading.control
            evidence = evidence.add(
                np.array([self.baseline]), control.mean[None], np.array([control.units]), control.covariance[None]
            )
        return replace(self, evidence=evidence, prior=learn_prior(evidence, self.prior))

    def fade(self, factor: float) -> Absolute:
        """Old rounds count for less."""
        return replace(self, evidence=self.evidence.fade(factor))

    def grow(self, count: int) -> Absolute:
        """New candidates are believed to be like the others."""
        return replace(self, evidence=self.evidence.grow(count))

    def share(self, kernels: Kernels) -> Absolute:
        """Kernels, or none."""
        return replace(self, kernels=kernels)

    def points(self) -> tuple[Array, Array]:
        """Each candidate's own estimate, metric by metric, counted from the evidence's origin."""
        precision, weighted = self._diagonal()
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(precision > 0, weighted / precision, 0.0), 1.0 / precision

    def belief(self, features: Array | None) -> Belief:
        """Candidate by candidate with full covariance between metrics, or metric by metric with kernels."""
        prior = learn_prior(self.evidence) if self.prior is None else self.prior
        if self.kernels is None or features is None:
            return Independent.of(self.evidence, prior)
        origin = np.where(np.isnan(self.evidence.origin), 0.0, self.evidence.origin)
        precision, weighted = self._diagonal()
        return _with_kernels(self.kernels, features, precision, weighted).scaled(np.ones_like(origin), origin)

    def _diagonal(self) -> tuple[Array, Array]:
        """Precision and weighted sums of each metric for itself, (metrics, candidates)."""
        full, pull = self.evidence.likelihood()
        precision = np.einsum("kii->ik", full).copy()
        seen = self.evidence.seen
        weighted = np.zeros_like(precision)
        if seen.any():
            estimates = np.linalg.solve(full[seen], pull[seen][..., None])[..., 0]
            precision[:, seen] = 1.0 / np.einsum("kii->ik", np.linalg.inv(full[seen]))
            weighted[:, seen] = precision[:, seen] * estimates.T
        return precision, weighted

    def to_saved(self) -> dict[str, Any]:
        """A plain JSON value."""
        prior = None if self.prior is None else [self.prior.mean.tolist(), self.prior.covariance.tolist()]
        return {
            "evidence": self.evidence.to_saved(),
            "baseline": self.baseline,
            "prior": prior,
            "kernels": _saved(self.kernels),
        }

    @classmethod
    def from_saved(cls, saved: dict[str, Any], metrics: int) -> Absolute:
        """What `to_saved` wrote."""
        prior = None if saved["prior"] is None else Prior(*(np.array(part, dtype=float) for part in saved["prior"]))
        evidence = Evidence.from_saved(saved["evidence"], metrics)
        return cls(evidence, saved["baseline"], prior, _loaded(saved["kernels"]))


@dataclass(frozen=True, slots=True, eq=False)
class Contrasted:
    """Candidates' contrasts with the concurrent control; the baseline's own is zero by definition."""

    contrasts: Contrasts
    baseline: int
    spread: Spread | None = None
    kernels: Kernels = None

    def add(self, reading: Reading) -> Contrasted:
        """Add the round and learn again how far candidates spread."""
        if reading.covariances is None:
            raise BadMeasurement(
                "learning contrasts needs the errors= (or covariances) of every measurement, the control's among them; "
                "without them the control's noise cannot be told from the candidates'"
            )
        contrasts = self.contrasts.add(reading.candidates, reading.metrics, reading.covariances, reading.control)
        spread = learn_spread(contrasts.precision, contrasts.weighted, self.baseline, self.spread)
        return replace(self, contrasts=contrasts, spread=spread)

    def fade(self, factor: float) -> Contrasted:
        """Old rounds count for less."""
        return replace(self, contrasts=self.contrasts.fade(factor))

    def grow(self, count: int) -> Contrasted:
        """New candidates are believed to be like the others."""
        return replace(self, contrasts=self.contrasts.grow(count))

    def share(self, kernels: Kernels) -> Contrasted:
        """Kernels, or none."""
        return replace(self, kernels=kernels)

    def points(self) -> tuple[Array, Array]:
        """Each candidate's contrast as measured, as if no other were."""
        precision = np.einsum("mkk->mk", self.contrasts.precision)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(precision > 0, self.contrasts.weighted / precision, 0.0), 1.0 / precision

    def belief(self, features: Array | None) -> Joint:
        """All candidates jointly, since one control's noise is in all their contrasts."""
        precision, weighted = self.contrasts.precision, self.contrasts.weighted
        if self.kernels is None or features is None:
            spread = self.spread or learn_spread(precision, weighted, self.baseline, None)
            known = Joint.of(*spread.prior(weighted.shape[1], self.baseline), precision, weighted)
        else:
            known = _with_kernels(self.kernels, features, precision, weighted, self.baseline)
        return self.contrasts.raw(known)

    def to_saved(self) -> dict[str, Any]:
        """A plain JSON value."""
        spread = None if self.spread is None else [self.spread.mean.tolist(), self.spread.variance.tolist()]
        return {
            "contrasts": self.contrasts.to_saved(),
            "baseline": self.baseline,
            "spread": spread,
            "kernels": _saved(self.kernels),
        }

    @classmethod
    def from_saved(cls, saved: dict[str, Any]) -> Contrasted:
        """What `to_saved` wrote."""
        spread = None if saved["spread"] is None else Spread(*(np.array(part, dtype=float) for part in saved["spread"]))
        return cls(Contrasts.from_saved(saved["contrasts"]), int(saved["baseline"]), spread, _loaded(saved["kernels"]))


def _with_kernels(
    kernels: tuple[Kernel, ...], features: Array, precision: Array, weighted: Array, known: int | None = None
) -> Joint:
    """The posterior under kernels; the candidate `known` has the value zero, exactly."""
    means = np.array([np.full(len(features), kernel.mean) for kernel in kernels])
    covariances = np.array([kernel.covariance(features) for kernel in kernels])
    if known is not None:
        # Conditioning on that candidate's value: what is left of the prior once it is zero.
        pivot = covariances[:, known, known][:, None]
        lean = covariances[:, :, known] / pivot
        means = means - lean * means[:, [known]]
        covariances = covariances - lean[:, :, None] * covariances[:, None, :, known]
        covariances[:, known, :] = covariances[:, :, known] = 0.0
        means[:, known] = 0.0
    if precision.ndim == 2:
        # What is known ten thousand times better than before is known; more digits would drown the neighbours'.
        most = SUREST / np.einsum("mkk->mk", covariances)
        weighted = weighted * most / np.maximum(precision, most)
        precision = np.minimum(precision, most)
    return Joint.of(means, covariances, precision, weighted)


def _saved(kernels: Kernels) -> list[dict[str, Any]] | None:
    return None if kernels is None else [asdict(kernel) for kernel in kernels]


def _loaded(saved: list[dict[str, Any]] | None) -> Kernels:
    return None if saved is None else tuple(Kernel(**{**one, "scales": tuple(one["scales"])}) for one in saved)
