"""Ratio metric: two metrics that are each measured per unit, as numerator and denominator."""

from __future__ import annotations

from dataclasses import dataclass

from pasto.errors import ObjectiveError


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ratio N/D of two metrics, each of which is measured per unit.

    A blend's ratio is the ratio of the blended halves, never the blend of the ratios: at 50/50, like rates of 1/10
    and 6/100 make 7/110 = 0.0636, not 0.080. So a guardrail N/D ≥ c enters the optimisation as N − cD ≥ 0, which is
    linear in the blend.
    """

    numerator: str
    denominator: str
    name: str


def ratio(numerator: str, denominator: str, name: str | None = None) -> Ratio:
    """Name a ratio of two metrics, to be maximised or kept like any other metric.

    >>> import pasto
    >>> like_rate = pasto.ratio("likes", "views", name="like_rate")
    >>> objective = pasto.maximize("watch_time").keep(like_rate, at_least=0.05)
    >>> objective.metrics
    ('watch_time', 'likes', 'views')
    >>> truth = {"watch_time": [1, 3], "likes": [1, 6], "views": [10, 100]}
    >>> blend = pasto.solve(truth, pasto.maximize("watch_time").keep(like_rate, at_least=7 / 110))
    >>> [round(share, 9) for share in blend.probabilities], round(blend.metrics["like_rate"], 4)
    ([0.5, 0.5], 0.0636)
    """
    for part in (numerator, denominator):
        if not isinstance(part, str) or not part:
            raise ObjectiveError(f"a ratio needs the names of two metrics, got {part!r}")
    if numerator == denominator:
        raise ObjectiveError(f"a ratio needs two different metrics, got {numerator!r} twice")
    return Ratio(numerator, denominator, name or f"{numerator}/{denominator}")
