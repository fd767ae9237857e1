"""How long a study must run: rounds to a decision, by simulating what its report would say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import OptionError
from pasto.inference import chance_of_error, log_evidence, progress_of, reach_at_any_time, reach_at_horizon
from pasto.inference.change_detection import MIXTURE


@dataclass(frozen=True, slots=True, eq=False)
class PowerPlan:
    """Chances of a decision by round, and when they are high enough."""

    at_horizon: FloatArray
    """(rounds,): the chance that an interval at that round, set beforehand, excludes zero."""
    at_any_look: FloatArray
    """(rounds,): the chance that the sequence has excluded zero by then."""
    breaker: FloatArray
    """(rounds,): the chance that the breaker has tripped by then, were the effect a drop below its floor."""
    power: float
    error: FloatArray
    """(rounds,): the standard error of the lift by then."""

    @property
    def rounds_at_horizon(self) -> int | None:
        """Rounds after which one look decides with the chance asked for; None where all of them do not suffice."""
        return _first(self.at_horizon, self.power)

    @property
    def rounds_at_any_look(self) -> int | None:
        """The same when one looks after every round."""
        return _first(self.at_any_look, self.power)

    @property
    def rounds_of_breaker(self) -> int | None:
        """The same for the breaker."""
        return _first(self.breaker, self.power)


def plan_power(
    effect: float,
    deviation: float,
    units: float,
    *,
    control: float = 0.1,
    treated: float | None = None,
    rounds: int = 200,
    confidence: float = 0.95,
    power: float = 0.8,
    claims: int = 1,
    correlation: float = 0.0,
    studies: int = 2_000,
    seed: int = 0,
) -> PowerPlan:
    """Simulate studies with an effect, in the metric's units, and count when they would have told it.

    `deviation` is of one unit, `units` come in each round, `control` and `treated` are their shares (all the rest is
    treated unless stated), `claims` is how many are made together, and `correlation` is that of a covariate measured
    before the study with the metric: it takes its square off the variance.

    >>> found = plan_power(effect=0.1, deviation=1.0, units=1000, control=0.2, rounds=60, studies=500)
    >>> found.rounds_at_horizon, found.rounds_at_any_look
    (5, 10)
    """
    share = 1.0 - control if treated is None else treated
    for name, value in (("deviation", deviation), ("units", units), ("control", control), ("treated", share)):
        if not value > 0.0:
            raise OptionError(f"a plan needs a positive {name}, got {value!r}")
    if control + share > 1.0 + 1e-9:
        raise OptionError(f"control and treated are shares of the same units, got {control} + {share}, more than all")
    if not -1.0 < correlation < 1.0:
        raise OptionError(f"a covariate's correlation lies between -1 and 1, got {correlation!r}")
    variance = deviation**2 * (1.0 - correlation**2) * (1.0 / (units * share) + 1.0 / (units * control))
    allowed = chance_of_error(confidence, claims)
    rng = np.random.default_rng(seed)
    steps = rng.standard_normal((studies, rounds)) + abs(effect) / np.sqrt(variance)
    looks = np.arange(1.0, rounds + 1.0)
    standard = np.cumsum(steps, axis=-1) / np.sqrt(looks)
    crossed = np.abs(standard) > reach_at_any_time(progress_of(looks), allowed)
    # Of all starts the first, which holds half of the evidence, decides where harm is there from the beginning.
    evidence = log_evidence(np.cumsum(steps, axis=-1), looks, MIXTURE) + np.log(0.5)
    return PowerPlan(
        at_horizon=np.asarray((np.abs(standard) > reach_at_horizon(allowed)).mean(axis=0)),
        at_any_look=np.asarray(np.maximum.accumulate(crossed, axis=-1).mean(axis=0)),
        breaker=np.asarray(np.maximum.accumulate(evidence >= -np.log(allowed), axis=-1).mean(axis=0)),
        power=power,
        error=np.asarray(np.sqrt(variance / looks)),
    )


def _first(chances: FloatArray, power: float) -> int | None:
    enough = chances >= power
    return int(np.argmax(enough)) + 1 if enough.any() else None
