"""Normal form of an objective over segments: one goal, guardrails on all traffic, and guardrails of each segment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.objective.normal_form import NormalForm


@dataclass(frozen=True, slots=True, eq=False)
class SegmentedForm:
    """Objective f(Σ_s q_s y_s) less Σ_s q_s times the penalties of segment s, over metric vectors y_s of segments.

    A segment's penalty counts by its share q_s of traffic. So two segments that are alike are worth the same as one.
    """

    common: NormalForm
    """The goal and the guardrails on all traffic."""
    own: tuple[NormalForm, ...]
    """The guardrails of each segment; their goal is not used."""
    shares: FloatArray
    """(segments,): q, positive with sum 1."""

    @property
    def owners(self) -> NDArray[np.intp]:
        """Segments of the segments' own guardrails, (own guardrails,)."""
        return np.repeat(np.arange(len(self.own)), [len(own.at) for own in self.own])

    def mix(self, vectors: FloatArray) -> FloatArray:
        """Return the metrics of all traffic, (..., segments, metrics) → (..., metrics)."""
        return np.asarray(np.einsum("...sm,s->...m", vectors, self.shares))

    def smooth(self, vectors: FloatArray) -> FloatArray:
        """Return the goal less the soft penalties, (..., segments, metrics) → (...), without hard guardrails."""
        value = self.common.smooth(self.mix(vectors))
        for segment, own in enumerate(self.own):
            soft = ~own.hard
            if soft.any():
                breach = np.minimum(0.0, own.slack(vectors[..., segment, :])[..., soft])
                value = value - self.shares[segment] * np.einsum("...g,g->...", breach**2, own.penalties[soft])
        return np.asarray(value)

    def tolerances(self, means: FloatArray) -> tuple[FloatArray, tuple[FloatArray, ...]]:
        """Return by how much each guardrail may be missed and still count as met: on all traffic, and by segment.

        The scale is the guardrail's own over the candidates' means (segments, metrics, candidates).
        """
        common = sum(share * self.common.tolerances(segment) for share, segment in zip(self.shares, means, strict=True))
        own = tuple(form.tolerances(segment) for form, segment in zip(self.own, means, strict=True))
        return np.asarray(common, dtype=float).reshape(len(self.common.at)), own

    def met(self, vectors: FloatArray, means: FloatArray) -> NDArray[np.bool_]:
        """Return if every hard guardrail is met, (..., segments, metrics) → (...), within the tolerances of means."""
        allowed, own_allowed = self.tolerances(means)
        met = self.common.met(self.mix(vectors), allowed)
        for segment, (own, most) in enumerate(zip(self.own, own_allowed, strict=True)):
            met = met & own.met(vectors[..., segment, :], most)
        return np.asarray(met)
