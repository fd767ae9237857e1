"""Blends: the answer of a study or of `solve`, with its certificate and the value of more rounds."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pasto.formatting import format_confidence, format_number, format_percent


@dataclass(frozen=True, slots=True)
class HistoryUse:
    """Use that a study makes of the results it started from."""

    listed: int
    """Candidates in service that the history has a row of."""
    candidates: int
    """Candidates in service."""
    explained: Mapping[str, float]
    """Share of the candidates' differences that the history explains, by metric; empty before the first round."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Gain of a blend over one candidate.

    If some candidates meet every hard guardrail, the best of those is compared with, and `value` is
    f(blend) − f(single). If none does, `value` is None, and the least-violating candidate is compared with: the gain is
    the difference in the goal and that candidate's violations.
    """

    candidate: int
    value: float | None
    goal: float
    """The blend's goal less that candidate's."""
    violations: Mapping[str, float] = field(default_factory=dict)
    """The amount by which that candidate breaks each hard guardrail; empty if it breaks none."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """Confidence that a learned blend meets its guardrails, from the posterior after the last round."""

    confidence: float
    """The confidence that was asked for."""
    certified: bool
    """Whether each hard guardrail holds with that confidence, each by itself, and the stated errors are credible."""
    holds: Mapping[str, float]
    """The probability that each guardrail holds, soft ones included."""
    intervals: Mapping[str, tuple[float, float]]
    """Between which the blend's metrics lie with that confidence, by name."""
    understated_errors: Mapping[str, float] = field(default_factory=dict)
    """Metrics whose standard errors are too small, and by which factor, judged by the scatter between rounds.

    While there are any, nothing is certified."""

    def joint_lower_bound(self, guardrails: Collection[str] | None = None) -> float:
        """Return a lower bound of the probability that these guardrails hold together, or all if none are named.

        The union bound, 1 − Σ(1 − holds), is true however the guardrails depend on each other.

        >>> certificate = Certificate(0.95, True, {"likes": 0.97, "shares": 0.96, "watch": 0.5}, {})
        >>> round(certificate.joint_lower_bound(["likes", "shares"]), 12), round(certificate.joint_lower_bound(), 12)
        (0.93, 0.43)
        """
        names = self.holds if guardrails is None else guardrails
        return max(0.0, 1.0 - math.fsum(1.0 - self.holds[name] for name in names))


@dataclass(frozen=True, slots=True)
class Move:
    """A candidate whose worth changed most in the last round, and which metric did it."""

    candidate: int
    change: float
    """The change of its worth, which is its metrics at the blend's prices."""
    metrics: Mapping[str, float]
    """The part of each metric in that change."""


@dataclass(frozen=True, slots=True)
class LearningForecast:
    """Expected effect of more rounds, compared with deploying the present blend now.

    f is counted per unit, as in `Blend.value`.
    """

    rounds: int
    gain: float
    """The expected rise of f in each round of the deployment that follows."""
    cost: float
    """The expected loss of f while learning, summed over these rounds."""
    net: float
    """The gain summed over the rounds of the deployment, less the cost."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Value of further learning, and the decision that follows from it."""

    decision: Literal["learn", "stop"]
    """"learn" if some number of rounds is expected to bring more than it costs."""
    deploy_rounds: float
    """The rounds for which the blend is served after learning."""
    round_cost: float
    """The expected f of the present blend less that of the next round's traffic, control included."""
    forecasts: tuple[LearningForecast, ...]
    """For several numbers of rounds, in rising order."""
    gain: float
    """The expected rise of f if the true means were known."""
    worth: float
    """A thousandth of the spread of the goal over single candidates: a smaller difference does not count."""
    equal_single: int | None = None
    """The candidate that may be deployed alone, because mixing gains nothing that counts."""
    moves: tuple[Move, ...] = ()

    @property
    def forecast(self) -> LearningForecast:
        """The forecast of the highest net gain; if the decision is to stop, of the highest gain for its cost."""
        if self.decision == "learn":
            return max(self.forecasts, key=lambda forecast: forecast.net)
        return max(self.forecasts, key=lambda forecast: forecast.gain / max(forecast.cost, 1e-300))


@dataclass(frozen=True, slots=True)
class Blend:
    """The answer: a distribution over candidates to deploy, with what it is expected to do.

    >>> import pasto
    >>> blend = pasto.solve({"x": [2, 0], "y": [-2, 2]}, pasto.maximize("x").keep("y", at_least=0))
    >>> blend.probabilities, blend.value, blend.prices
    ((0.5, 0.5), 1.0, {'y': 0.5})
    """

    probabilities: tuple[float, ...]
    value: float
    """f at the blend's metrics; if no blend is feasible, the goal and the soft guardrails alone."""
    metrics: Mapping[str, float]
    """The expected metrics of the blend, by name; ratios as ratios."""
    prices: Mapping[str, float]
    """The rise of f if a guardrail is relaxed by one unit, by guardrail."""
    support: tuple[int, ...]
    """The candidates that take part."""
    names: tuple[str, ...]
    """Every candidate's name."""
    best_single: int | None
    """The best single candidate; None if none meets every hard guardrail."""
    best_single_value: float | None
    gain: Gain
    feasible: bool
    """Whether the blend meets every hard guardrail."""
    shortfalls: Mapping[str, float] = field(default_factory=dict)
    """The amount by which the blend misses each guardrail it misses, soft ones included."""
    lifts: Mapping[str, float] = field(default_factory=dict)
    """Percent over the baseline, by metric; empty without a baseline."""
    certificate: Certificate | None = None
    """The confidence in it, if it was learned."""
    outlook: Outlook | None = None
    """The value of further learning, if it was learned."""
    goal: str = ""
    """The metric that f counts, as in watch_time, -cost or watch_time + 0.3 comments."""
    percent: bool = False
    """Whether f is counted in percent over the baseline."""
    best_single_holds: Mapping[str, float] = field(default_factory=dict)
    """The probability that each hard guardrail holds under the best single candidate, if the blend was learned."""

    @property
    def best_single_certified(self) -> bool | None:
        """Return whether the best single candidate holds each hard guardrail; None without certificate."""
        if self.certificate is None or self.best_single is None:
            return None
        return all(chance >= self.certificate.confidence for chance in self.best_single_holds.values())

    def __str__(self) -> str:
        mixture = " + ".join(f"{format_percent(self.probabilities[k])} {self.names[k]}" for k in self.support)
        metrics = ", ".join(f"{name} = {format_number(value)}" for name, value in self.metrics.items())
        lines = [f"{mixture}: {self._f(self.value)} ({metrics})"]
        if self.best_single is not None and self.best_single_value is not None:
            lines.append(
                f"best single {self.names[self.best_single]}: {self._f(self.best_single_value)}{self._single_note()}"
            )
        else:
            lines.append("no single candidate meets every guardrail")
        if not self.feasible:
            missed = ", ".join(f"{name} by {format_number(amount)}" for name, amount in self.shortfalls.items())
            lines.append(f"no blend meets every hard guardrail; the nearest one misses {missed}")
        return "\n".join(lines)

    def _f(self, value: float) -> str:
        """Return a value of f with the goal's name, and its unit if that is percent."""
        return f"f{f'({self.goal})' if self.goal else ''} = {format_number(value)}{'%' if self.percent else ''}"

    def _single_note(self) -> str:
        """Return why the best single candidate is not the answer although its f is higher, or nothing."""
        if self.certificate is None or self.best_single_value is None:
            return ""
        if self.best_single_value <= self.value + 1e-9 * (1.0 + abs(self.value)):
            return ""
        if self.best_single_certified:
            return ", from expected means alone; the blend is better once their uncertainty is counted"
        name, chance = min(self.best_single_holds.items(), key=lambda item: item[1])
        asked = f"{format_confidence(self.certificate.confidence)} is asked for"
        neither = "" if self.certificate.certified else "; the blend is not certified either"
        return f", not certified: {name} holds with {format_percent(chance)}, and {asked}{neither}"
