"""What the demonstration must prove, held against a truth that it alone knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from numpy.typing import ArrayLike

from pasto.inference.lift import Lift
from pasto.sim.application import KnownMeans, MetricTruth

CONFIDENCE = 0.999
"""With which all that is checked holds together."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Lift over the baseline that a guardrail allows, as a share: the least one, or the largest one.

    >>> str(Limit(-0.05)), Limit(-0.05).allows(-0.06), Limit(0.05, lower=False).allows(-0.06)
    ('above -5%', False, True)
    """

    at: float
    lower: bool = True

    @property
    def sign(self) -> float:
        """1 for a least lift, -1 for a largest one."""
        return 1.0 if self.lower else -1.0

    def allows(self, lift: float) -> bool:
        """Return whether a lift is within the limit."""
        return self.sign * lift >= self.sign * self.at

    def __str__(self) -> str:
        return f"{'above' if self.lower else 'below'} {self.at:+.0%}"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be so."""

    claim: str
    held: bool
    figures: str
    """What it rests on."""


def build_checks(
    truth: KnownMeans, blend: ArrayLike, single: int | None, lifts: Sequence[Lift], limits: Mapping[str, Limit]
) -> tuple[Check, ...]:
    """Whether the blend truly beats the best single candidate, holds every guardrail, and was measured as it truly is.

    The truth is itself simulated, so it is taken at the worse end of its own interval. `single` is the candidate that
    was confirmed beside the blend; `limits` are the lifts over the baseline that the guardrails allow, by metric.
    """
    parts = 1 + len(limits) + len(lifts)
    reach = NormalDist().inv_cdf(1.0 - (1.0 - CONFIDENCE) / (2 * parts))
    best = truth.best()
    goal = next(iter(truth.application.measures))
    ahead = truth.lift(goal, blend, truth.alone(best.gain.candidate))
    found = [
        Check(
            f"the blend's true {goal} beats that of the best single setting, {best.names[best.gain.candidate]}",
            ahead.value - reach * ahead.error > 0,
            _told(ahead, reach),
        )
    ]
    for metric, limit in limits.items():
        figure = truth.lift(metric, blend)
        held = limit.allows(figure.value - limit.sign * reach * figure.error)
        found.append(Check(f"the blend's true {metric} stays {limit}", held, _told(figure, reach)))
    for lift in lifts:
        shares = blend if lift.target == "probabilistic" or single is None else truth.alone(single)
        figure = truth.lift(lift.metric, shares)
        low, high = figure.value - reach * figure.error, figure.value + reach * figure.error
        found.append(
            Check(
                f"the interval of {lift.metric}, {lift.target}, contains the truth",
                lift.relative.low <= high and low <= lift.relative.high,
                f"{lift.relative.low:+.2%} to {lift.relative.high:+.2%}, in truth {_told(figure, reach)}",
            )
        )
    return tuple(found)


def _told(figure: MetricTruth, reach: float) -> str:
    return f"{figure.value:+.2%} ± {reach * figure.error:.2%}"
