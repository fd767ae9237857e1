"""Checks of the demonstration against the known truth of its simulated users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from numpy.typing import ArrayLike

from pasto.inference.lift import Lift
from pasto.sim.application import KnownMeans, MetricTruth

CONFIDENCE = 0.999
"""Confidence of all checks together."""


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
    """Claim that must be true, and the figures that it is judged by."""

    claim: str
    held: bool
    figures: str


def build_checks(
    truth: KnownMeans, blend: ArrayLike, single: int | None, lifts: Sequence[Lift], limits: Mapping[str, Limit]
) -> tuple[Check, ...]:
    """Check that the blend truly beats the best single candidate, keeps every guardrail, and is within its intervals.

    The truth is itself simulated, so the checks use the worse end of its interval. `single` is the candidate in the
    confirmation; `limits` are the lifts over the baseline that the guardrails allow, by metric.
    """
    claims = 1 + len(limits) + len(lifts)
    margin_factor = NormalDist().inv_cdf(1.0 - (1.0 - CONFIDENCE) / (2 * claims))
    best = truth.best()
    goal = next(iter(truth.application.measures))
    ahead = truth.lift(goal, blend, truth.single_shares(best.gain.candidate))
    checks = [
        Check(
            f"the blend's true {goal} beats that of the best single setting, {best.names[best.gain.candidate]}",
            ahead.value - margin_factor * ahead.error > 0,
            _format_lift(ahead, margin_factor),
        )
    ]
    for metric, limit in limits.items():
        figure = truth.lift(metric, blend)
        held = limit.allows(figure.value - limit.sign * margin_factor * figure.error)
        checks.append(Check(f"the blend's true {metric} stays {limit}", held, _format_lift(figure, margin_factor)))
    for lift in lifts:
        shares = blend if lift.target == "probabilistic" or single is None else truth.single_shares(single)
        figure = truth.lift(lift.metric, shares)
        low, high = figure.value - margin_factor * figure.error, figure.value + margin_factor * figure.error
        checks.append(
            Check(
                f"the interval of {lift.metric}, {lift.target}, contains the truth",
                lift.relative.low <= high and low <= lift.relative.high,
                f"{lift.relative.low:+.2%} to {lift.relative.high:+.2%}, truly {_format_lift(figure, margin_factor)}",
            )
        )
    return tuple(checks)


def _format_lift(figure: MetricTruth, margin_factor: float) -> str:
    return f"{figure.value:+.2%} ± {margin_factor * figure.error:.2%}"
