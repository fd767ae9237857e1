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
from numpy.typing import NDArray

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
LIMIT = -2.0
"""The loss, in percent of today's value, that likes and shares may not exceed: the hard guardrails."""
TARGET, PENALTY = "+0%", 1.0
"""For learners that follow a gradient: where soft guardrails begin to pull back, well before the limit."""


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
        self, probabilities: tuple[float, ...], version: int, sessions: int, rng: np.random.Generator, control: int = 0
    ) -> list[Observation]:
        """One round: sessions fall on candidates by chance, and each is as long, as liked and as shared as it happens.

        Session lengths are exponential, likes and shares Poisson, so the sums over a candidate's sessions are gamma
        and Poisson; nothing smaller than a sum needs to be drawn. Further `control` sessions are held on the baseline.

        >>> import numpy as np
        >>> seen = make_feed().traffic((1.0, *[0.0] * 15), 0, 1_000, np.random.default_rng(1), control=200)
        >>> [(observation.units, observation.control) for observation in seen]
        [(1000, False), (200, True)]
        """
        counts = rng.multinomial(sessions, probabilities)
        shown = np.flatnonzero(counts)
        units = counts[shown]
        if control:
            shown, units = np.append(shown, self.baseline), np.append(units, control)
        watched, liked, shared = self.truth[:, shown]
        sums = (rng.gamma(units, watched), rng.poisson(units * liked), rng.poisson(units * shared))
        means = (np.array(sums) / units).T
        variances = session_variances(means, units)
        held = [False] * (len(units) - bool(control)) + [True] * bool(control)
        return [
            Observation(version, candidate, count, tuple(mean), _diagonal(variances / count), one)
            for candidate, count, mean, one in zip(shown.tolist(), units.tolist(), means.tolist(), held, strict=True)
        ]


def session_variances(means: Array, units: NDArray[np.int64]) -> Array:
    """The variances of one session's metrics, (metrics,), from a round's means (candidates, metrics) and their units.

    An exponential's variance is its mean squared, a Poisson's is its mean; of no likes at all, one is assumed. All
    sessions of the round are taken together: were each candidate's variance taken from its own few sessions, low means
    would come with small variances, weigh more than high ones, and pull every estimate down.

    >>> import numpy as np
    >>> session_variances(np.array([[20.0, 0.5, 0.1], [30.0, 0.4, 0.2]]), np.array([100, 100])).round(3).tolist()
    [625.0, 0.45, 0.15]
    """
    watched, liked, shared = units @ means / units.sum()
    least = 1.0 / units.sum()
    return np.array([watched**2, max(liked, least), max(shared, least)])


def _diagonal(variances: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in np.diag(variances).tolist())


def make_feed(*, soft: bool = False) -> Feed:
    """The demonstration's feed: 16 settings of two weights; its guardrails are hard, or soft for those who need it.

    >>> import pasto
    >>> place = make_feed()
    >>> blend = pasto.solve(place.truth, place.objective, names=place.candidates.names, baseline=place.baseline)
    >>> blend.names[blend.single], round(blend.single_value, 2), round(blend.value, 2)
    ('like_weight=3,share_weight=3', 1.47, 6.5)
    """
    candidates = grid(like_weight=WEIGHTS, share_weight=WEIGHTS)
    objective = maximize("watch_time")
    for metric in ("like_rate", "share_rate"):
        at_least, penalty = (TARGET, PENALTY) if soft else (f"{LIMIT:+g}%", None)
        objective = objective.keep(metric, at_least=at_least, penalty=penalty)
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
