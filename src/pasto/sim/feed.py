"""A short-video feed: predicted watch time, likes and shares are mixed with strategic weights into one order of clips.

There are three kinds of clips: shows that are watched long, crowd-pleasers that are liked, and conversation starters
that are passed on. A user comes once or twice, is shown the best of a pool by the mixed score, watches one clip after
the other and leaves when tired. Who is pulled from one kind to another watches less of the clip and leaves sooner. So
weights in the middle serve everybody a jumble, and weights at the ends serve each session well while likes or shares
starve: which is why a blend of settings does what no single one can.
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
"""The levels of like_weight and of share_weight."""
TODAY = {"like_weight": 6, "share_weight": 6}
LIMIT = -5.0
"""The loss, in percent of today's value, that like rate and share rate may not exceed."""
FLOOR = "-40%"
"""Where the breaker pulls traffic: far off, for a learner that knows nothing yet tries everything."""

WATCHED = np.array([30.0, 24.0, 24.0])
"""Seconds of a clip of each kind that is watched undisturbed."""
LIKED = np.array([0.20, 0.40, 0.20])
SHARED = np.array([0.12, 0.12, 0.24])
"""Chances that a clip that is watched is liked and passed on."""
POOL = np.repeat([0, 1, 2], 6)
"""The kinds of the clips that a session chooses from."""
SLOTS = 8
WATCH_WEIGHT = 4.0
"""The weight of predicted watch time in the score, where a typical clip counts one."""
FAVOURITE, OTHERS = 1.15, 0.93
"""How much longer a user watches the one kind he likes best, and the others."""
VARIETY = 0.15
"""By how much clips of a kind differ, as a standard deviation of logarithms."""
AGAIN = 0.5
"""The chance that a user comes a second time, more tired."""
STAY, TIRING, TIRED = 0.97, 0.01, 0.03
"""The chance to go on after the first clip; what every clip takes off it; what having come before takes off it."""
JUMP_LEAVES, JUMP_WATCHES = 0.12, 0.5
"""What being pulled to another kind takes off the chance to go on, and off the clip's watch time."""
SHAPE = 2.0
"""Of the gamma distribution of watched seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class Feed:
    """The feed with 16 settings of two weights; made by `feed`.

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
        """Watch time a user; likes and shares a clip."""
        return {
            "watch_time": SimulatedMetric(0),
            "like_rate": SimulatedMetric(1, 3),
            "share_rate": SimulatedMetric(2, 3),
        }

    @property
    def document(self) -> dict[str, Any]:
        """The study file."""
        clips = {"event": self.event, "value": "clips", "aggregate": "sum", "cap": 20}
        return {
            "name": self.name,
            "unit": "user",
            "description": "Weights that order a short-video feed",
            "baseline": dict(TODAY),
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
        """Serve users; in a good mood, above 1, clips are watched longer."""
        users = len(chosen)
        unit, tired, watched, liked, shared = _sessions(users, rng)
        weights = self._weights()[chosen[unit]]
        score = _score(watched, liked, shared, weights[:, :1], weights[:, 1:])
        shown, jumps, stay = _order(score, tired)
        seen = np.ones(shown.shape, dtype=bool)
        seen[:, 1:] = np.logical_and.accumulate(rng.random(stay.shape) < stay, axis=1)
        lasting = np.take_along_axis(watched, shown, axis=1) * (1.0 - JUMP_WATCHES * jumps) * mood
        seconds = (seen * rng.gamma(SHAPE, lasting / SHAPE)).sum(axis=1)
        likes = seen & (rng.random(shown.shape) < np.take_along_axis(liked, shown, axis=1))
        shares = seen & (rng.random(shown.shape) < np.take_along_axis(shared, shown, axis=1))
        whole = np.floor(seconds + rng.random(len(unit)))  # rounded by chance, so that nothing is lost on average
        fields = np.stack([whole, likes.sum(axis=1), shares.sum(axis=1), seen.sum(axis=1)], axis=1)
        return VisitBatch(unit, fields.astype(np.int64))

    def expected(self, users: int, rng: np.random.Generator) -> FloatArray:
        """What each user does on average, given his taste and the clips in his pools."""
        unit, tired, watched, liked, shared = _sessions(users, rng)
        found = np.zeros((users, len(self.candidates), len(self.columns)))
        for candidate, (like_weight, share_weight) in enumerate(self._weights()):
            shown, jumps, stay = _order(_score(watched, liked, shared, like_weight, share_weight), tired)
            reach = np.ones(shown.shape)
            reach[:, 1:] = np.cumprod(stay, axis=1)
            parts: tuple[FloatArray, ...] = (
                np.take_along_axis(watched, shown, axis=1) * (1.0 - JUMP_WATCHES * jumps),
                np.take_along_axis(liked, shown, axis=1),
                np.take_along_axis(shared, shown, axis=1),
                np.ones(shown.shape),
            )
            for column, part in enumerate(parts):
                found[:, candidate, column] = np.bincount(unit, (reach * part).sum(axis=1), minlength=users)
        return found

    def _weights(self) -> FloatArray:
        """(candidates, 2)."""
        return np.array([[float(row["like_weight"]), float(row["share_weight"])] for row in self.candidates])


@lru_cache(maxsize=1)
def feed() -> Feed:
    """The feed; its guardrails are hard.

    >>> application = feed()
    >>> len(application.candidates), application.candidates.names[application.baseline]
    (16, 'like_weight=6,share_weight=6')
    """
    objective = maximize("seconds")
    for name, column in (("like_rate", "likes"), ("share_rate", "shares")):
        objective = objective.keep(ratio(column, "clips", name=name), at_least=f"{LIMIT:+g}%")
    candidates = grid(like_weight=WEIGHTS, share_weight=WEIGHTS)
    return Feed(candidates, objective, candidates.find(TODAY))


def _sessions(
    users: int, rng: np.random.Generator
) -> tuple[Indices, NDArray[np.bool_], FloatArray, FloatArray, FloatArray]:
    """Who comes, whether he has been here before, and the clips in each pool: seconds, likes and shares predicted."""
    again = rng.random(users) < AGAIN
    unit = np.repeat(np.arange(users), 1 + again)
    tired = np.zeros(len(unit), dtype=bool)
    tired[1:] = unit[1:] == unit[:-1]
    favourite = rng.integers(0, len(WATCHED), users)[unit]
    taste = np.where(favourite[:, None] == POOL, FAVOURITE, OTHERS)
    differ = np.exp(VARIETY * rng.standard_normal((3, len(unit), len(POOL))))
    return unit, tired, WATCHED[POOL] * taste * differ[0], LIKED[POOL] * differ[1], SHARED[POOL] * differ[2]


def _score(
    watched: FloatArray,
    liked: FloatArray,
    shared: FloatArray,
    like_weight: FloatArray | float,
    share_weight: FloatArray | float,
) -> FloatArray:
    """The queues mixed, each in units of a typical clip."""
    return np.asarray(
        WATCH_WEIGHT / WATCHED.mean() * watched
        + like_weight / LIKED.mean() * liked
        + share_weight / SHARED.mean() * shared
    )


def _order(score: FloatArray, tired: NDArray[np.bool_]) -> tuple[Indices, NDArray[np.bool_], FloatArray]:
    """The clips shown from the top, where they jump to another kind, and the chance to go on to each but the first."""
    shown = np.argsort(-score, axis=1)[:, :SLOTS]
    kinds = POOL[shown]
    jumps = np.zeros(kinds.shape, dtype=bool)
    jumps[:, 1:] = kinds[:, 1:] != kinds[:, :-1]
    stay = STAY - TIRING * np.arange(1, SLOTS) - TIRED * tired[:, None] - JUMP_LEAVES * jumps[:, 1:]
    return shown, jumps, stay
