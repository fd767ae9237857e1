"""A small model of a feed whose metrics compete, with every mean known.

The feed has three kinds of posts: long shows, crowd-pleasers that are liked, and conversation starters that are shared.
A ranker adds predicted watch time, likes and shares with two strategic weights; the kind with the higher score gets
more of a session's slots. A session that jumps between kinds loses watch time. So a setting in the middle serves
everybody a jumble, and settings at the ends serve each session well while one metric or another starves: which is why
a blend of settings, one for each session, does better than any of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pasto.objective import Array, Objective, maximize
from pasto.records import Observation
from pasto.space import Candidates, grid

WEIGHTS = (0, 1, 2, 3)
"""The levels of like_weight and of share_weight."""
TODAY = {"like_weight": 2, "share_weight": 2}
"""The baseline."""
KINDS = np.array(
    [
        [30.0, 0.44, 0.15],  # shows
        [27.0, 0.54, 0.16],  # crowd-pleasers
        [27.0, 0.43, 0.22],  # conversation starters
    ]
)
"""Minutes watched, likes and shares in a session made of one kind only."""
JUMPING = 0.2
"""Watch time lost, as a share, times the chance that two slots of a session are of different kinds."""
TARGET, PENALTY = "+0%", 1.0
"""Where the guardrails begin to pull back, softly: at today's value."""
LIMIT = -2.0
"""The loss, in percent of today's value, that likes and shares may not exceed."""


@dataclass(frozen=True, slots=True, eq=False)
class Feed:
    """Candidates with their true means, an objective, and traffic to learn from.

    >>> place = make_feed()
    >>> len(place.candidates), place.objective.metrics, place.candidates.names[place.baseline]
    (16, ('watch_time', 'like_rate', 'share_rate'), 'like_weight=2,share_weight=2')
    """

    candidates: Candidates
    objective: Objective
    truth: Array
    """(metrics, candidates): minutes, likes and shares in a mean session."""
    baseline: int

    def traffic(
        self, probabilities: tuple[float, ...], version: int, sessions: int, rng: np.random.Generator
    ) -> list[Observation]:
        """One round: sessions fall on candidates by chance, and each is as long, as liked and as shared as it happens.

        Session lengths are exponential, likes and shares Poisson, so the sums over a candidate's sessions are gamma
        and Poisson; nothing smaller than a sum needs to be drawn.

        >>> import numpy as np
        >>> seen = make_feed().traffic((1.0, *[0.0] * 15), 0, 1_000, np.random.default_rng(1))
        >>> [observation.units for observation in seen]
        [1000]
        """
        counts = rng.multinomial(sessions, probabilities)
        shown = np.flatnonzero(counts)
        units, (watched, liked, shared) = counts[shown], self.truth[:, shown]
        sums = (rng.gamma(units, watched), rng.poisson(units * liked), rng.poisson(units * shared))
        means = (np.array(sums) / units).T
        return [
            Observation(version, candidate, count, tuple(mean))
            for candidate, count, mean in zip(shown.tolist(), units.tolist(), means.tolist(), strict=True)
        ]


def make_feed() -> Feed:
    """The demonstration's feed: 16 settings of two weights.

    >>> import pasto
    >>> place = make_feed()
    >>> blend = pasto.solve(place.truth, place.objective, names=place.candidates.names, baseline=place.baseline)
    >>> blend.names[blend.single], round(blend.single_value, 2), round(blend.value, 2)
    ('like_weight=3,share_weight=3', 0.61, 4.68)
    """
    candidates = grid(like_weight=WEIGHTS, share_weight=WEIGHTS)
    objective = maximize("watch_time")
    for metric in ("like_rate", "share_rate"):
        objective = objective.keep(metric, at_least=TARGET, penalty=PENALTY)
    truth = np.array([session(float(row["like_weight"]), float(row["share_weight"])) for row in candidates]).T
    return Feed(candidates, objective, truth, candidates.find(TODAY))


def session(like_weight: float, share_weight: float) -> Array:
    """A mean session under one setting: minutes, likes, shares.

    >>> session(0, 3).round(2)
    array([25.74,  0.44,  0.21])
    """
    watched, liked, shared = KINDS.T
    score = 0.5 * watched + 5.0 * like_weight * liked + 16.0 * share_weight * shared
    slots = np.exp(score - score.max())
    slots /= slots.sum()
    mean = slots @ KINDS
    mean[0] *= 1.0 - JUMPING * (1.0 - (slots**2).sum())
    return np.asarray(mean)
