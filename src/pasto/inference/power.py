"""Power: the number of rounds to a decision, by simulating the intervals of a study."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import OptionError
from pasto.inference import error_per_claim, log_evidence, reach_at_any_time, reach_at_horizon, sequence_progress
from pasto.inference.guardrail_evidence import MIXTURE_ROUNDS


@dataclass(frozen=True, slots=True, eq=False)
class PowerPlan:
    """Chances of a decision by round, and the rounds from which they suffice."""

    at_horizon: FloatArray
    """(rounds,): the chance that an interval at that round, set beforehand, excludes zero."""
    at_any_look: FloatArray
    """(rounds,): the chance that the sequence has excluded zero by then."""
    guardrail_monitor: FloatArray
    """(rounds,): the chance that the guardrail monitor has tripped by then, if the effect is a drop below its floor."""
    power: float
    error: FloatArray
    """(rounds,): the standard error of the lift by then."""

    @property
    def rounds_at_horizon(self) -> int | None:
        """Rounds after which one look decides with the requested power; None if no simulated round suffices."""
        return _first_sufficient(self.at_horizon, self.power)

    @property
    def rounds_at_any_look(self) -> int | None:
        """The same for looks after every round."""
        return _first_sufficient(self.at_any_look, self.power)

    @property
    def rounds_to_guardrail_stop(self) -> int | None:
        """The same for the guardrail monitor."""
        return _first_sufficient(self.guardrail_monitor, self.power)


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
    """Simulate studies with an effect, in the metric's units, and count those that detect it by each round.

    `deviation` is that of one unit, and `units` come in each round. `control` and `treated` are their shares; all the
    rest is treated by default. `claims` is the number of claims made together. `correlation` is that of the metric
    with a covariate measured before the study; its square is removed from the variance.

    >>> plan = plan_power(effect=0.1, deviation=1.0, units=1000, control=0.2, rounds=60, studies=500)
    >>> plan.rounds_at_horizon, plan.rounds_at_any_look
    (5, 10)
    """
    share = 1.0 - control if treated is None else treated
    for name, value in (("deviation", deviation), ("units", units), ("control", control), ("treated", share)):
        if not value > 0.0:
            raise OptionError(f"{name} must be positive, got {value!r}")
    if control + share > 1.0 + 1e-9:
        raise OptionError(f"control and treated must add up to at most 1, got {control} + {share}")
    if not -1.0 < correlation < 1.0:
        raise OptionError(f"correlation must lie between -1 and 1, got {correlation!r}")
    variance = deviation**2 * (1.0 - correlation**2) * (1.0 / (units * share) + 1.0 / (units * control))
    error = error_per_claim(confidence, claims)
    rng = np.random.default_rng(seed)
    steps = rng.standard_normal((studies, rounds)) + abs(effect) / np.sqrt(variance)
    looks = np.arange(1.0, rounds + 1.0)
    z_scores = np.cumsum(steps, axis=-1) / np.sqrt(looks)
    crossed = np.abs(z_scores) > reach_at_any_time(sequence_progress(looks), error)
    # Harm is there from the beginning, so the first start decides; it has half of the evidence.
    evidence = log_evidence(np.cumsum(steps, axis=-1), looks, MIXTURE_ROUNDS) + np.log(0.5)
    return PowerPlan(
        at_horizon=np.asarray((np.abs(z_scores) > reach_at_horizon(error)).mean(axis=0)),
        at_any_look=np.asarray(np.maximum.accumulate(crossed, axis=-1).mean(axis=0)),
        guardrail_monitor=np.asarray(np.maximum.accumulate(evidence >= -np.log(error), axis=-1).mean(axis=0)),
        power=power,
        error=np.asarray(np.sqrt(variance / looks)),
    )


def _first_sufficient(chances: FloatArray, power: float) -> int | None:
    sufficient = chances >= power
    return int(np.argmax(sufficient)) + 1 if sufficient.any() else None
