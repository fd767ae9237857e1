"""Worlds of `pasto bench stopping`: one study in one world, served round by round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

import pasto
from pasto.arrays import FloatArray
from pasto.objective import Objective, maximize
from pasto.optimize.learners import Thompson
from pasto.sim import World, table
from pasto_research.bench.certificate_worlds import WORLDS, CertificateWorld
from pasto_research.bench.learner_courses import Judge
from pasto_research.bench.live_traffic_worlds import LIVE_TRAFFIC, LiveTraffic
from pasto_research.bench.worlds import SETTINGS, Maker, uniform

PARALLEL = 10
"""Draws of a round in worlds of `ask` and `tell`."""


class ServedStudy(Protocol):
    """A study that serves a simulated world."""

    study: pasto.Study
    judge: Judge
    reference: float
    """f without learning: of the baseline, or the goal of an average candidate."""

    def serve(self) -> FloatArray:
        """Serve the policy for a round and learn from it; return the shares of all traffic."""
        ...


class AskedStudy:
    """A study of `ask` and `tell` with a few draws a round and known noise."""

    def __init__(self, make: Maker, seed: int) -> None:
        self.world: World = make(np.random.default_rng([seed, 1]))
        self.rng = np.random.default_rng([seed, 2])
        self.study = pasto.Study(self.world.candidates, self.world.objective, seed=seed)
        self.judge = Judge(self.world.objective.form(), self.world.truth)
        self.reference = float(self.judge.form.goal.value(self.world.truth.T).mean())
        self.errors = np.broadcast_to(self.world.noise, self.world.truth.shape).T

    def serve(self) -> FloatArray:
        """Serve one round and measure it."""
        shares = np.array(self.study.policy.probabilities)
        assignments = self.study.ask(PARALLEL)
        chosen = [assignment.candidate for assignment in assignments]
        self.study.tell(assignments, self.world.draw(chosen, self.rng), standard_errors=self.errors[chosen])
        return shares


class LiveStudy:
    """A study of live traffic with a control, closed once a day."""

    def __init__(self, family: LiveTraffic, seed: int) -> None:
        self.world = family.draw(np.random.default_rng([seed, 1]))
        self.rng = np.random.default_rng([seed, 2])
        self.day = 0
        self.study = pasto.Study(
            family.candidates,
            family.objective,
            learner=Thompson(contrast="auto"),
            seed=seed,
            baseline=family.baseline,
            control_share=family.control_share,
        )
        self.judge = self.world.judge()
        self.reference = self.judge.value(np.eye(len(family.candidates))[family.baseline])

    def serve(self) -> FloatArray:
        """Serve one day."""
        policy = self.study.policy
        shares = np.array(policy.probabilities)
        self.study.observe(self.world.draw_day(shares, self.day, policy.version, self.rng))
        self.day += 1
        return self.world.whole_traffic(shares)


class CertifiedStudy:
    """A study of a world of `pasto bench certificates`, whose limits are at least."""

    def __init__(self, world: CertificateWorld, seed: int) -> None:
        self.instance = world.draw("at least", np.random.default_rng([seed, 1]))
        self.rng = np.random.default_rng([seed, 2])
        self.number = 0
        self.study = self.instance.study(seed)
        means, baseline = self.instance.means, self.instance.baseline
        self.judge = Judge(self.instance.objective.form(None if baseline is None else means[:, baseline]), means)
        goals = self.judge.form.goal.value(means.T)
        self.reference = float(goals.mean() if baseline is None else goals[baseline])

    def serve(self) -> FloatArray:
        """Serve one round."""
        shares = np.array(self.study.policy.probabilities)
        self.instance.run_round(self.study, self.number, self.rng)
        self.number += 1
        world, baseline = self.instance.world, self.instance.baseline
        if baseline is None:
            return shares
        return np.asarray((1.0 - world.control) * shares + world.control * np.eye(len(shares))[baseline])


@dataclass(frozen=True, slots=True)
class StoppingWorld:
    """Family of worlds in which studies are to stop in time."""

    name: str
    start: Callable[[int], ServedStudy]
    """Function that starts a study from a seed."""
    rounds: int
    """Rounds after which a study ends that has not stopped."""
    deploy_rounds: float = 180.0
    studies: int = 16
    is_flat: bool = False
    """True if no blend gains anything."""


def flat(sigma: float, candidates: int = 100) -> Maker:
    """Return a world whose candidates are all alike, and meet both soft guardrails."""
    objective: Objective = maximize("goal").keep("guardrail 1", at_least=0.5, penalty=5.0)
    objective = objective.keep("guardrail 2", at_least=0.5, penalty=5.0)
    means = np.tile([[0.0], [0.6], [0.6]], (1, candidates))
    return lambda rng: table(objective.by_metric(means), sigma, objective)


def _certificate_world(name: str) -> CertificateWorld:
    return next(world for world in WORLDS if world.name == name)


def _asked(make: Maker) -> Callable[[int], ServedStudy]:
    return lambda seed: AskedStudy(make, seed)


def _live(family: LiveTraffic) -> Callable[[int], ServedStudy]:
    return lambda seed: LiveStudy(family, seed)


def _certified(name: str) -> Callable[[int], ServedStudy]:
    return lambda seed: CertifiedStudy(_certificate_world(name), seed)


REVENUE, CLICKS = LIVE_TRAFFIC
STOPPING_WORLDS: tuple[StoppingWorld, ...] = (
    StoppingWorld("B, σ = 0.1", _asked(SETTINGS["B, σ = 0.1"].make), rounds=100),
    StoppingWorld("B, σ = 0.5", _asked(SETTINGS["B, σ = 0.5"].make), rounds=200),
    StoppingWorld("B, σ = 0.5", _asked(SETTINGS["B, σ = 0.5"].make), rounds=300, deploy_rounds=1_000.0),
    StoppingWorld("B, σ = 1", _asked(SETTINGS["B, σ = 1"].make), rounds=200),
    StoppingWorld("B, hard guardrails, σ = 0.5", _asked(uniform(0.5, hard=True)), rounds=200),
    StoppingWorld(f"live traffic, {REVENUE.name}", _live(REVENUE), rounds=100),
    StoppingWorld(f"live traffic, {CLICKS.name}", _live(CLICKS), rounds=100),
    StoppingWorld(
        "live traffic, all candidates alike", _live(replace(REVENUE, effect=0.0)), rounds=180, studies=8, is_flat=True
    ),
    StoppingWorld("flat, σ = 0.5", _asked(flat(0.5)), rounds=200, studies=8, is_flat=True),
    StoppingWorld(
        "skewed revenue as guardrail", _certified("revenue, 98 % zeros, 10,000 a cell, observe"), 100, studies=60
    ),
    StoppingWorld(
        "skewed revenue against a control, level ±40 %",
        _certified("default contrast, revenue, level ±40 %"),
        100,
        studies=60,
    ),
    StoppingWorld(
        "clicks against a control, level ±40 %",
        _certified("default contrast, level ±40 %, 200,000 units"),
        100,
        studies=60,
    ),
)
