"""Learning the feed's blend round by round, and comparing it with every single setting in truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pasto.demo.feed import LIMIT, Feed, make_feed
from pasto.objective import Array
from pasto.optimize import describe, solve
from pasto.optimize.learners import Algorithm1
from pasto.optimize.schedule import constant
from pasto.records import Blend
from pasto.study import Study

SESSIONS = 50_000
"""In each round of ten minutes."""
LEARNER = Algorithm1(step=0.005, floor=constant(0.1))
"""A step that suits goals in percent, and a tenth of the traffic for exploring."""
UPDATES = 100
"""How often a run tells how far it has come."""


@dataclass(frozen=True, slots=True)
class Update:
    """How far a run has come, as the study itself knows it."""

    done: int
    rounds: int
    served: tuple[float, ...]
    """The policy being served."""
    blend: Blend
    """The answer so far, at its estimated metrics."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How one way of serving does in truth."""

    label: str
    metrics: Mapping[str, float]
    lifts: Mapping[str, float]
    """Percent over today's setting."""
    value: float
    """f: the lift in watch time less what missing the targets costs."""
    broken: tuple[str, ...]
    """The guardrails that fall below the limit."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a run learned, beside today's setting, the best single one and the best blend there is."""

    rounds: int
    seed: int
    shares: Mapping[str, float]
    """The learned blend, largest share first."""
    chosen: str
    """The best single setting's name."""
    baseline: Standing
    single: Standing
    blend: Standing
    optimum: Standing

    @property
    def won(self) -> bool:
        """Whether the blend beats the best single setting in truth, in f and in the goal, and keeps every limit."""
        goal = next(iter(self.blend.lifts))
        better = self.blend.value > self.single.value and self.blend.lifts[goal] > self.single.lifts[goal]
        return better and not self.blend.broken


def learn(*, rounds: int = 2_000, seed: int = 1, report: Callable[[Update], None] | None = None) -> Result:
    """Learn the feed's blend from simulated traffic.

    >>> result = learn(rounds=300, seed=1)
    >>> result.won, result.chosen
    (True, 'like_weight=3,share_weight=3')
    """
    place = make_feed()
    rng = np.random.default_rng(seed)
    study = Study(place.candidates, place.objective, learner=LEARNER, seed=seed, baseline=place.baseline)
    for done in range(1, rounds + 1):
        policy = study.policy
        study.observe(place.traffic(policy.probabilities, policy.version, SESSIONS, rng))
        if report is not None and (done % max(1, rounds // UPDATES) == 0 or done == rounds):
            report(Update(done, rounds, study.policy.probabilities, study.blend()))
    answer = np.array(study.blend().probabilities)
    exact = solve(place.truth, place.objective, names=place.candidates.names, baseline=place.baseline)
    single = exact.gain.candidate
    return Result(
        rounds=rounds,
        seed=seed,
        shares={place.candidates.names[k]: float(answer[k]) for k in np.argsort(-answer, kind="stable").tolist()},
        chosen=place.candidates.names[single],
        baseline=_standing("today", place, _alone(place, place.baseline)),
        single=_standing("best single", place, _alone(place, single)),
        blend=_standing("learned blend", place, answer),
        optimum=_standing("best possible", place, np.array(exact.probabilities)),
    )


def _alone(place: Feed, candidate: int) -> Array:
    one = np.zeros(len(place.candidates))
    one[candidate] = 1.0
    return one


def _standing(label: str, place: Feed, probabilities: Array) -> Standing:
    told = describe(probabilities, place.truth, place.objective, names=place.candidates.names, baseline=place.baseline)
    kept = [rail.label for rail in place.objective.guardrails]
    return Standing(
        label=label,
        metrics=told.metrics,
        lifts=told.lifts,
        value=told.value,
        broken=tuple(metric for metric in kept if told.lifts[metric] < LIMIT),
    )
