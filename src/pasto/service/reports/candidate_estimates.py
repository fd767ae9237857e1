"""What is believed of every candidate's metrics: from the learner where it learned them, else from the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.inference.round_data import MeasuredRound, RoundRecord, record_rounds
from pasto.service.round_history import latest
from pasto.service.study_file import StudySpec
from pasto.study import Study

DRAWS = 64
"""Of what the means may be, behind every interval."""


@dataclass(frozen=True, slots=True, eq=False)
class CandidateEstimates:
    """Means of columns over candidates, as expected and as they may be."""

    columns: tuple[str, ...]
    truths: FloatArray
    """(1 + draws, columns, candidates): the expected ones first."""
    names: tuple[str, ...]
    baseline: int | None
    usable: NDArray[np.bool_]
    """(candidates,): of which something is known in every column."""
    from_log: tuple[str, ...] = ()
    """Columns that the learner does not learn, and that were read from the rounds' own comparisons."""

    def table(self, draw: int, columns: Sequence[str], chosen: Sequence[int]) -> FloatArray:
        """Means of some columns and candidates in one draw, (columns, candidates)."""
        places = [self.columns.index(name) for name in columns]
        return np.asarray(self.truths[draw][np.ix_(places, list(chosen))])


def estimate_candidates(spec: StudySpec, study: Study, rounds: Sequence[MeasuredRound]) -> CandidateEstimates:
    """Everything that is known, the learner's own metrics first."""
    truths = study.posterior_samples(draws=DRAWS)
    learned = study.objective.metrics
    others = [column.name for column in spec.columns if column.name not in learned]
    names = tuple(study.candidates.names)
    usable = np.ones(len(names), dtype=np.bool_)
    if others:
        chosen = [one for one in latest(rounds) if one.cells]
        places = [place for place, column in enumerate(spec.columns) if column.name in others]
        more, seen = _from_log(record_rounds(chosen), places, len(names), len(truths), study.seed)
        truths, usable = np.concatenate([truths, more], axis=1), usable & seen
    return CandidateEstimates((*learned, *others), truths, names, study.baseline, usable, tuple(others))


def _from_log(
    record: RoundRecord, places: Sequence[int], count: int, draws: int, seed: int
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Candidates' means from their rounds' comparisons with the control, every round alike; and who had any."""
    cells, control, covariances = record.arm_view("control", running=False)
    means, seen = np.zeros((len(places), count)), np.zeros(count, dtype=np.bool_)
    errors = np.zeros((len(places), count))
    base = cells.units[:, control]
    level = (base[:, None] * cells.mean[:, control][:, places]).sum(axis=0) / max(float(base.sum()), 1.0)
    for place, (arm, candidate) in enumerate(record.keys):
        both = (cells.units[:, place] > 0) & (base > 0)
        if arm != "learner" or not both.any():
            continue
        own = cells.units[both, place]
        weight = 1.0 / np.sqrt(1.0 / own + 1.0 / base[both])
        apart = (cells.mean[both, place] - cells.mean[both, control])[:, places]
        spread = np.einsum("tii->ti", covariances[both, place])[:, places] / own[:, None]
        spread = spread + np.einsum("tii->ti", covariances[both, control])[:, places] / base[both][:, None]
        means[:, candidate] = level + weight @ apart / weight.sum()
        errors[:, candidate] = np.sqrt(weight**2 @ spread) / weight.sum()
        seen[candidate] = True
    noise = np.random.default_rng([seed, 4]).standard_normal((draws, *means.shape))
    noise[0] = 0.0
    return means + errors * noise, seen


def ends(values: Sequence[float] | FloatArray, confidence: float) -> tuple[float | None, float | None]:
    """Between which the middle part of some draws lies; unknown where there are too few.

    >>> ends([float(k) for k in range(101)], 0.5)
    (25.0, 75.0)
    >>> ends([1.0], 0.9)
    (None, None)
    """
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    if len(known) < DRAWS // 2:
        return None, None
    low, high = np.quantile(known, [(1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0])
    return float(low), float(high)


def shown(value: float, draws: Sequence[float], confidence: float) -> Mapping[str, float | None]:
    """A number between its ends in JSON."""
    low, high = ends(draws, confidence)
    return {"value": float(value) if np.isfinite(value) else None, "low": low, "high": high}
