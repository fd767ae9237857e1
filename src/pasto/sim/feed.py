"""Feed application: weights combine predicted watch time, likes and shares into the order of a short-video feed.

There are three kinds of clips: those that are watched long, liked, or shared. A user has one or two sessions, watches
the best clips of a pool by score one after the other, and leaves when tired. After a change of kind, users watch less
of the clip and leave sooner. So weights in the middle mix the kinds and lose watch time. Weights at the ends serve each
session well but lose likes or shares. A blend of settings reaches more than any single one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.objective import Objective, maximize, ratio
from pasto.sim.application import Indices, SimulatedMetric, VisitBatch
from pasto.space import Candidates, grid

WEIGHTS = (0, 2, 4, 6)
"""Levels of like_weight and of share_weight."""
BASELINE = {"like_weight": 6, "share_weight": 6}
LIMIT = -5.0
"""Smallest allowed lift of like rate and share rate over the baseline, in percent."""
FLOOR = "-40%"
"""Stop level of the guardrails: far away, because a learner tries all candidates at the start."""

WATCH_SECONDS = np.array([30.0, 24.0, 24.0])
"""Watched seconds of a clip of each kind without a change of kind."""
LIKE_PROBABILITIES = np.array([0.20, 0.40, 0.20])
SHARE_PROBABILITIES = np.array([0.12, 0.12, 0.24])
"""Probabilities that a watched clip is liked and shared."""
POOL_KINDS = np.repeat([0, 1, 2], 6)
"""Kinds of the clips in the pool of a session."""
SLOTS = 8
WATCH_WEIGHT = 4.0
"""Weight of predicted watch time in the score, relative to a typical clip."""
FAVOURITE_FACTOR, OTHER_FACTOR = 1.15, 0.93
"""Factors of the watch time of a user's favourite kind, and of the others."""
CLIP_DEVIATION = 0.15
"""Standard deviation of the logarithm between clips of a kind."""
SECOND_SESSION_PROBABILITY = 0.5
"""Probability of a second session, in which the user is more tired."""
CONTINUE_PROBABILITY, CLIP_FATIGUE, SESSION_FATIGUE = 0.97, 0.01, 0.03
"""Probability to continue after the first clip; its decrease per clip; its decrease in a second session."""
CHANGE_LEAVING, CHANGE_WATCH_LOSS = 0.12, 0.5
"""Decrease of the probability to continue, and of the watch time, by a change of kind."""
GAMMA_SHAPE = 2.0
"""Shape of the gamma distribution of watched seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class Feed:
    """Feed application with 16 settings of two weights; made by `feed`.

    >>> import numpy as np
    >>> application = feed()
    >>> visits = application.visit(np.array([15, 3, 0]), np.random.default_rng(1))
    >>> application.columns, visits.totals(3).shape
    (('seconds', 'likes', 'shares', 'clips'), (3, 4))
    """

    candidates: Candidates
    objective: Objective
    baseline: int
    name: str = "feed"
    event: str = "session"
    columns: tuple[str, ...] = ("seconds", "likes", "shares", "clips")
    night: float = 0.0

    @property
    def measures(self) -> Mapping[str, SimulatedMetric]:
        """Watch time per user; likes and shares per clip."""
        return {
            "watch_time": SimulatedMetric(0),
            "like_rate": SimulatedMetric(1, 3),
            "share_rate": SimulatedMetric(2, 3),
        }

    @property
    def document(self) -> dict[str, Any]:
        """Study file."""
        clips = {"event": self.event, "value": "clips", "aggregate": "sum", "cap": 20}
        return {
            "name": self.name,
            "unit": "user",
            "description": "Weights that order a short-video feed",
            "baseline": dict(BASELINE),
            "parameters": {"like_weight": list(WEIGHTS), "share_weight": list(WEIGHTS)},
            "metrics": {
                "watch_time": {"event": self.event, "value": "seconds", "aggregate": "sum", "cap": 3600},
                "like_rate": {"ratio": [{"event": self.event, "value": "likes", "aggregate": "sum", "cap": 20}, clips]},
                "share_rate": {
                    "ratio": [{"event": self.event, "value": "shares", "aggregate": "sum", "cap": 20}, clips]
                },
            },
            "goal": {"maximize": "watch_time"},
            "guardrails": [
                {"metric": "like_rate", "at_least": f"{LIMIT:g}%", "loss_budget": "3%", "stop_at": FLOOR},
                {"metric": "share_rate", "at_least": f"{LIMIT:g}%", "loss_budget": "3%", "stop_at": FLOOR},
            ],
        }

    def visit(self, chosen: Indices, rng: np.random.Generator, mood: float = 1.0) -> VisitBatch:
        """Serve users; with a mood above 1, clips are watched longer."""
        users = len(chosen)
        unit, is_second_session, watched, liked, shared = _draw_sessions(users, rng)
        weights = self._weights()[chosen[unit]]
        score = _score(watched, liked, shared, weights[:, :1], weights[:, 1:])
        clips, changes, continues = _rank_clips(score, is_second_session)
        watched_clips = np.ones(clips.shape, dtype=bool)
        watched_clips[:, 1:] = np.logical_and.accumulate(rng.random(continues.shape) < continues, axis=1)
        mean_seconds = np.take_along_axis(watched, clips, axis=1) * (1.0 - CHANGE_WATCH_LOSS * changes) * mood
        seconds = (watched_clips * rng.gamma(GAMMA_SHAPE, mean_seconds / GAMMA_SHAPE)).sum(axis=1)
        likes = watched_clips & (rng.random(clips.shape) < np.take_along_axis(liked, clips, axis=1))
        shares = watched_clips & (rng.random(clips.shape) < np.take_along_axis(shared, clips, axis=1))
        rounded_seconds = np.floor(seconds + rng.random(len(unit)))  # unbiased random rounding
        fields = np.stack([rounded_seconds, likes.sum(axis=1), shares.sum(axis=1), watched_clips.sum(axis=1)], axis=1)
        return VisitBatch(unit, fields.astype(np.int64))

    def expected(self, users: int, rng: np.random.Generator) -> FloatArray:
        """Return the expected columns of each user, given the user's taste and pools."""
        unit, is_second_session, watched, liked, shared = _draw_sessions(users, rng)
        totals = np.zeros((users, len(self.candidates), len(self.columns)))
        for candidate, (like_weight, share_weight) in enumerate(self._weights()):
            clips, changes, continues = _rank_clips(
                _score(watched, liked, shared, like_weight, share_weight), is_second_session
            )
            reach_probability = np.ones(clips.shape)
            reach_probability[:, 1:] = np.cumprod(continues, axis=1)
            parts: tuple[FloatArray, ...] = (
                np.take_along_axis(watched, clips, axis=1) * (1.0 - CHANGE_WATCH_LOSS * changes),
                np.take_along_axis(liked, clips, axis=1),
                np.take_along_axis(shared, clips, axis=1),
                np.ones(clips.shape),
            )
            for column, part in enumerate(parts):
                totals[:, candidate, column] = np.bincount(
                    unit, (reach_probability * part).sum(axis=1), minlength=users
                )
        return totals

    def _weights(self) -> FloatArray:
        """Return the two weights of each candidate, (candidates, 2)."""
        return np.array([[float(row["like_weight"]), float(row["share_weight"])] for row in self.candidates])


@lru_cache(maxsize=1)
def feed() -> Feed:
    """Return the feed application; its guardrails are hard.

    >>> application = feed()
    >>> len(application.candidates), application.candidates.names[application.baseline]
    (16, 'like_weight=6,share_weight=6')
    """
    objective = maximize("seconds")
    for name, column in (("like_rate", "likes"), ("share_rate", "shares")):
        objective = objective.keep(ratio(column, "clips", name=name), at_least=f"{LIMIT:+g}%")
    candidates = grid(like_weight=WEIGHTS, share_weight=WEIGHTS)
    return Feed(candidates, objective, candidates.find(BASELINE))


def _draw_sessions(
    users: int, rng: np.random.Generator
) -> tuple[Indices, NDArray[np.bool_], FloatArray, FloatArray, FloatArray]:
    """Draw sessions: user, second session or not, and predicted seconds, likes and shares of each clip of the pool."""
    has_second_session = rng.random(users) < SECOND_SESSION_PROBABILITY
    unit = np.repeat(np.arange(users), 1 + has_second_session)
    is_second_session = np.zeros(len(unit), dtype=bool)
    is_second_session[1:] = unit[1:] == unit[:-1]
    favourite = rng.integers(0, len(WATCH_SECONDS), users)[unit]
    taste = np.where(favourite[:, None] == POOL_KINDS, FAVOURITE_FACTOR, OTHER_FACTOR)
    clip_factors = np.exp(CLIP_DEVIATION * rng.standard_normal((3, len(unit), len(POOL_KINDS))))
    return (
        unit,
        is_second_session,
        WATCH_SECONDS[POOL_KINDS] * taste * clip_factors[0],
        LIKE_PROBABILITIES[POOL_KINDS] * clip_factors[1],
        SHARE_PROBABILITIES[POOL_KINDS] * clip_factors[2],
    )


def _score(
    watched: FloatArray,
    liked: FloatArray,
    shared: FloatArray,
    like_weight: FloatArray | float,
    share_weight: FloatArray | float,
) -> FloatArray:
    """Return the score of each clip: the weighted sum of predictions, relative to a typical clip."""
    return np.asarray(
        WATCH_WEIGHT / WATCH_SECONDS.mean() * watched
        + like_weight / LIKE_PROBABILITIES.mean() * liked
        + share_weight / SHARE_PROBABILITIES.mean() * shared
    )


def _rank_clips(
    score: FloatArray, is_second_session: NDArray[np.bool_]
) -> tuple[Indices, NDArray[np.bool_], FloatArray]:
    """Return the displayed clips, their changes of kind, and the probability to continue to each but the first."""
    clips = np.argsort(-score, axis=1)[:, :SLOTS]
    kinds = POOL_KINDS[clips]
    changes = np.zeros(kinds.shape, dtype=bool)
    changes[:, 1:] = kinds[:, 1:] != kinds[:, :-1]
    continues = (
        CONTINUE_PROBABILITY
        - CLIP_FATIGUE * np.arange(1, SLOTS)
        - SESSION_FATIGUE * is_second_session[:, None]
        - CHANGE_LEAVING * changes[:, 1:]
    )
    return clips, changes, continues
