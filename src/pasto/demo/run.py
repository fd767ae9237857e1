"""Learning the feed's blend round by round, and comparing it with every single setting in truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pasto.demo.feed import Feed, make_feed
from pasto.errors import BadOption
from pasto.objective import Array
from pasto.optimize import describe, solve
from pasto.optimize.learners import Algorithm1
from pasto.optimize.schedule import constant
from pasto.records import Blend, Certificate
from pasto.study import Study

SESSIONS = 50_000
"""In each round of ten minutes."""
CONTROL = 10_000
"""How many of them are held on today's setting, since every percentage is counted against it."""
CONFIDENCE = 0.999
"""With which each guardrail is to hold: a demonstration is run often, and a limit missed by a hair is missed."""
FOLLOWER = Algorithm1(step=0.005, floor=constant(0.1))
"""Algorithm 1 with a step that suits goals in percent, and a tenth of the traffic for exploring."""
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
    broken: tuple[str, ...]
    """The guardrails that fall below the limit."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a run learned, beside today's setting, the best single one and the best blend there is."""

    learner: str
    rounds: int
    seed: int
    shares: Mapping[str, float]
    """The learned blend, largest share first."""
    chosen: str
    """The name of the best single setting within the limits."""
    baseline: Standing
    single: Standing
    blend: Standing
    optimum: Standing
    certificate: Certificate | None
    """How sure the learner is of the guardrails, where it says so."""
    advice: str | None
    """What the learner would do next, likewise."""

    @property
    def won(self) -> bool:
        """Whether the blend beats the best single setting in truth, and every guardrail truly holds."""
        goal = next(iter(self.blend.lifts))
        return self.blend.lifts[goal] > self.single.lifts[goal] and not self.blend.broken


def learn(
    *, rounds: int = 60, seed: int = 1, learner: str = "thompson", report: Callable[[Update], None] | None = None
) -> Result:
    """Learn the feed's blend from simulated traffic; `learner` is thompson, or pasto with soft guardrails.

    >>> result = learn(rounds=10, seed=1)
    >>> result.won, result.chosen
    (True, 'like_weight=3,share_weight=3')
    """
    place = make_feed()
    study, control = _study(place, learner, seed)
    rng = np.random.default_rng(seed)
    for done in range(1, rounds + 1):
        policy = study.policy
        study.observe(place.traffic(policy.probabilities, policy.version, SESSIONS - control, rng, control))
        if report is not None and (done % max(1, rounds // UPDATES) == 0 or done == rounds):
            report(Update(done, rounds, study.policy.probabilities, study.blend()))
    answer = study.blend()
    shares = np.array(answer.probabilities)
    exact = solve(place.truth, place.objective, names=place.candidates.names, baseline=place.baseline)
    single = exact.gain.candidate
    return Result(
        learner=learner,
        rounds=rounds,
        seed=seed,
        shares={place.candidates.names[k]: float(shares[k]) for k in np.argsort(-shares, kind="stable").tolist()},
        chosen=place.candidates.names[single],
        baseline=_standing("today", place, _alone(place, place.baseline)),
        single=_standing("best single", place, _alone(place, single)),
        blend=_standing("learned blend", place, shares),
        optimum=_standing("best possible", place, np.array(exact.probabilities)),
        certificate=answer.certificate,
        advice=None if answer.outlook is None else answer.outlook.advice,
    )


def _study(place: Feed, learner: str, seed: int) -> tuple[Study, int]:
    """A study of the feed, and how many sessions of a round it wants for control."""
    if learner == "thompson":
        study = Study(place.candidates, place.objective, seed=seed, baseline=place.baseline, confidence=CONFIDENCE)
        return study, CONTROL
    if learner == "pasto":  # knows no control: every session is its own draw
        soft = make_feed(soft=True).objective
        return Study(place.candidates, soft, learner=FOLLOWER, seed=seed, baseline=place.baseline), 0
    raise BadOption(f"the demonstration has learners 'thompson' and 'pasto', got {learner!r}")


def _alone(place: Feed, candidate: int) -> Array:
    one = np.zeros(len(place.candidates))
    one[candidate] = 1.0
    return one


def _standing(label: str, place: Feed, probabilities: Array) -> Standing:
    told = describe(probabilities, place.truth, place.objective, names=place.candidates.names, baseline=place.baseline)
    return Standing(label=label, metrics=told.metrics, lifts=told.lifts, broken=tuple(told.shortfalls))
