"""One small model for each kind of feedback: boosted trees, trained on earlier impressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import MissingExtraError
from pasto_research.paper.data.kuairand import FEEDBACK, Impressions

TREES: dict[str, Any] = {
    "max_iter": 150,
    "learning_rate": 0.05,
    "max_leaf_nodes": 15,
    "min_samples_leaf": 200,
    "l2_regularization": 5.0,
    "early_stopping": False,
}
SMALLEST = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class FeedbackPrediction:
    """Predictions for the later impressions, and their quality."""

    scores: dict[str, FloatArray]
    """(impressions,) each: seconds, or probabilities."""
    quality: dict[str, float]
    """The area under the ROC curve; for watch time, the correlation of ranks."""


def predict(earlier: Impressions, later: Impressions, seed: int = 1) -> FeedbackPrediction:
    """Train on the earlier impressions, predict the later ones, and compare with what came."""
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    except ImportError as error:
        raise MissingExtraError("these models need scikit-learn", "process") from error
    scores: dict[str, FloatArray] = {}
    for kind in FEEDBACK:
        if kind == "watch":
            seconds = HistGradientBoostingRegressor(**TREES, random_state=seed)
            found = seconds.fit(earlier.features, earlier.feedback[kind]).predict(later.features)
        else:
            chance = HistGradientBoostingClassifier(**TREES, random_state=seed)
            found = chance.fit(earlier.features, earlier.feedback[kind] > 0).predict_proba(later.features)[:, 1]
        scores[kind] = np.maximum(found, SMALLEST)
    quality = {
        kind: _ranks_agree(scores[kind], later.feedback[kind])
        if kind == "watch"
        else area_under_curve(scores[kind], later.feedback[kind])
        for kind in FEEDBACK
    }
    return FeedbackPrediction(scores, quality)


def area_under_curve(scores: FloatArray, truth: FloatArray) -> float:
    """Return the chance that a positive scores higher than a negative, with ties as one half (AUC).

    >>> area_under_curve(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0.0, 0, 1, 1]))
    0.75
    """
    ranks, yes = _ranks(scores), truth > 0
    count, others = int(yes.sum()), int((~yes).sum())
    if not count or not others:
        return float("nan")
    return float((ranks[yes].sum() - count * (count + 1) / 2) / (count * others))


def _ranks_agree(scores: FloatArray, truth: FloatArray) -> float:
    return float(np.corrcoef(_ranks(scores), _ranks(truth))[0, 1])


def _ranks(values: FloatArray) -> FloatArray:
    """Return ranks from 1; equal values have the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2.0)[places])
