"""Warm start of a study: from a history table to an estimate of every candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.document_validation import nearest_name
from pasto.errors import HistoryError, InputError, StateError
from pasto.estimate import (
    CandidateHistory,
    IndependentPosterior,
    JointPosterior,
    LevelModel,
    Posterior,
    RoundMeans,
    SufficientStatistics,
)
from pasto.estimate.candidate_model import Kernels, kernels_from_saved, kernels_to_saved
from pasto.estimate.gaussian_process import choose_kernels, is_available
from pasto.optimize.learners.thompson import MAX_JOINT_CANDIDATES
from pasto.space import Candidates
from pasto.study.history_table import History, HistoryRow
from pasto_sdk.policy_document import Value

EXACT_PART = 1e-6
"""Variance of a mean whose error is not known, as a part of the variance between rows."""
MAX_ERROR_FACTOR = 10.0
"""A mean's variance is at least that of its units at the average variance of a unit, divided by this."""


@dataclass(frozen=True, slots=True, eq=False)
class WarmStart:
    """History of a study, with the kernels by which candidates without a row learn from others."""

    history: History
    metrics: tuple[str, ...]
    """Metrics of the study."""
    kernels: Kernels = None
    mixing: FloatArray | None = None
    """(metrics, components): what the kernels are of."""

    @classmethod
    def fit(cls, history: History, candidates: Candidates, metrics: tuple[str, ...], *, share: bool) -> WarmStart:
        """Return the warm start; with `share`, neighbouring settings share strength if that predicts better."""
        warm_start = cls(history, metrics)
        union, places = _place_rows(history.rows, candidates)
        if share and len(union) <= MAX_JOINT_CANDIDATES and is_available():
            mixing, estimates, noises = _model_rows(history.rows, union, places).components()
            kernels = choose_kernels(union.features(), estimates, noises)
            warm_start = cls(history, metrics, kernels, None if kernels is None else mixing)
        if warm_start.kernels is None and min(places) >= len(candidates):
            raise HistoryError(
                "no row of the history is a candidate of this study, and its settings do not predict each other; add "
                "rows of candidates, or at least eight settings with numeric parameters that predict each other. The "
                f"candidates are {candidates!r}"
            )
        return warm_start

    def of_candidates(self, candidates: Candidates) -> CandidateHistory:
        """Return the estimate of every candidate: its row drawn toward the others, or their prediction."""
        union, places = _place_rows(self.history.rows, candidates)
        model = _model_rows(self.history.rows, union, places).share(self.kernels, self.mixing)
        posterior = model.posterior(None if self.kernels is None else union.features())
        own = _candidate_covariances(posterior)
        count, width = len(candidates), len(self.metrics)
        columns = [self.metrics.index(metric) for metric in self.history.metrics]
        means, covariances = np.zeros((width, count)), np.zeros((count, width, width))
        means[columns] = posterior.mean[:, :count]
        covariances[np.ix_(range(count), columns, columns)] = own[:count]
        listed = np.zeros(count, dtype=np.bool_)
        listed[[place for place in places if place < count]] = True
        return CandidateHistory.of_levels(means, covariances, listed)

    def to_saved(self) -> dict[str, Any]:
        """Return a plain JSON value, bit for bit."""
        rows = [
            [row.candidate, row.values and dict(row.values), list(row.means), row.units, row.covariance]
            for row in self.history.rows
        ]
        return {
            "metrics": list(self.history.metrics),
            "rows": rows,
            "kernels": kernels_to_saved(self.kernels),
            "mixing": None if self.mixing is None else self.mixing.tolist(),
        }

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any], metrics: tuple[str, ...]) -> WarmStart:
        """Return what `to_saved` wrote."""
        try:
            rows = tuple(
                HistoryRow(name, values, tuple(means), units, covariance and tuple(map(tuple, covariance)))
                for name, values, means, units, covariance in saved["rows"]
            )
            mixing = None if saved["mixing"] is None else np.array(saved["mixing"], dtype=float)
            return cls(History(tuple(saved["metrics"]), rows), metrics, kernels_from_saved(saved["kernels"]), mixing)
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"the saved history cannot be read: {error!r}") from error


def _candidate_covariances(posterior: Posterior) -> FloatArray:
    """Return the covariance of each candidate's means, (candidates, metrics, metrics), without what all share."""
    if isinstance(posterior, IndependentPosterior):
        return posterior.covariances
    assert isinstance(posterior, JointPosterior)  # noqa: S101 -- a model has one of the two
    mixing = np.eye(len(posterior.mean)) if posterior.mixing is None else posterior.mixing
    return np.asarray(np.einsum("ic,ckk,jc->kij", mixing, posterior.covariances, mixing))


def _place_rows(rows: Sequence[HistoryRow], candidates: Candidates) -> tuple[Candidates, list[int]]:
    """Return the candidates with the other settings of the history after them, and the place of each row."""
    places: list[int] = []
    others: list[Mapping[str, Value]] = []
    for number, row in enumerate(rows, start=1):
        place = _find_candidate(candidates, row, number)
        if place is None and row.values is not None:
            place = len(candidates) + len(others)
            others.append(row.values)
        assert place is not None  # noqa: S101 -- a row without values is found by its name
        if place in places:
            raise HistoryError(
                f"rows {places.index(place) + 1} and {number} of the history are of one candidate; merge them into one "
                "row, weighted by their units"
            )
        places.append(place)
    if not others:
        return candidates, places
    try:
        names = [f"history {number}" for number in range(1, len(others) + 1)]
        return candidates.add(others, names, limit=len(candidates) + len(others)), places
    except InputError as error:
        raise HistoryError(f"the settings of the history do not fit the candidates: {error}") from error


def _find_candidate(candidates: Candidates, row: HistoryRow, number: int) -> int | None:
    """Return the candidate that a row is of; None if it is of another setting."""
    if row.values is not None:
        try:
            place = candidates.find(row.values)
        except InputError:
            return None
        if row.candidate in candidates.names and row.candidate != candidates.names[place]:
            raise HistoryError(
                f"row {number} of the history is named {row.candidate!r} and has the parameters of "
                f"{candidates.names[place]!r}; correct one of them"
            )
        return place
    if row.candidate not in candidates.names:
        raise HistoryError(
            f"row {number} of the history is of {row.candidate!r}, which is not a candidate "
            f"({nearest_name(row.candidate, candidates.names)}); leave the row out, or give its parameters "
            f"{', '.join(candidates.parameters)}, so that its neighbours learn from it"
        )
    return candidates.index(row.candidate)


def _model_rows(rows: Sequence[HistoryRow], union: Candidates, places: list[int]) -> LevelModel:
    """Return the model of the earlier results, over the candidates and the other settings."""
    means = np.array([row.means for row in rows], dtype=float)
    covariances = _read_covariances(rows, means)
    # Rows count by their errors. Each is of one setting, so no estimate averages rows of different luck.
    variances = np.einsum("kii->ki", covariances)
    logs = np.log(np.maximum(variances, 1e-300)).mean(axis=1)
    units = np.exp(np.median(logs) - logs)
    model = LevelModel(SufficientStatistics.empty(means.shape[1], len(union)))
    return model.add(RoundMeans(np.array(places, dtype=np.intp), means, units, covariances))


def _read_covariances(rows: Sequence[HistoryRow], means: FloatArray) -> FloatArray:
    """Return the covariance of each row's means, (rows, metrics, metrics), with errors that are too small raised."""
    spread = np.maximum(means.var(axis=0), 1e-6 * np.square(means).max(axis=0))
    least = np.broadcast_to(EXACT_PART * np.where(spread > 0.0, spread, 1.0), means.shape)
    if rows[0].covariance is None:
        return least[:, :, None] * np.eye(means.shape[1])
    covariances = np.array([row.covariance for row in rows], dtype=float)
    if rows[0].units is not None:
        units = np.array([row.units for row in rows], dtype=float)
        variances = np.einsum("kii->ki", covariances)
        unit_variance = np.square(units) @ variances / units.sum()
        least = np.maximum(least, unit_variance / units[:, None] / MAX_ERROR_FACTOR)
    raised = np.maximum(np.einsum("kii->ki", covariances), least)
    places = np.arange(means.shape[1])
    covariances[:, places, places] = raised
    return covariances
