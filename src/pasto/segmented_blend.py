"""Segmented blends: the answer of `solve` with segments, a distribution for each segment under common guardrails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pasto.blend import Certificate
from pasto.formatting import format_number, format_percent


@dataclass(frozen=True, slots=True)
class SegmentBlend:
    """Blend of one segment, as a part of a segmented blend."""

    share: float
    """The segment's share of traffic."""
    probabilities: tuple[float, ...]
    support: tuple[int, ...]
    """The candidates that take part."""
    metrics: Mapping[str, float]
    """The expected metrics of the segment, by name; ratios as ratios."""
    prices: Mapping[str, float] = field(default_factory=dict)
    """The rise of f on all traffic if a guardrail of the segment is relaxed by one unit, by guardrail."""
    shortfalls: Mapping[str, float] = field(default_factory=dict)
    """The amount by which the segment misses each of its own guardrails that it misses, soft ones included."""
    lifts: Mapping[str, float] = field(default_factory=dict)
    """Percent over the baseline in this segment, by metric; empty without a baseline."""
    certificate: Certificate | None = None
    """The confidence in the segment's own guardrails and metrics, if the blend was learned."""


@dataclass(frozen=True, slots=True)
class SegmentedBlend:
    """The answer for segments: a distribution for each, best for all of them together.

    >>> import pasto
    >>> means = {"new": {"x": [2, 0], "y": [-2, 2]}, "heavy": {"x": [3, 1], "y": [1, 0]}}
    >>> objective = pasto.maximize("x").keep("y", at_least=0)
    >>> blend = pasto.solve(means, objective, names=["a", "b"], segments={"new": 0.5, "heavy": 0.5})
    >>> print(blend)
    new (50.0% of traffic): 75.0% a + 25.0% b
    heavy (50.0% of traffic): 100.0% a
    f(x) = 2.25 (x = 2.25, y = 0)
    best common blend 66.7% a + 33.3% b: f(x) = 1.8333
    best single b: f(x) = 0.5
    >>> round(blend.gain_over_common, 6), blend.segments["new"].support, blend.prices
    (0.416667, (0, 1), {'y': 0.5})
    """

    segments: Mapping[str, SegmentBlend]
    """The blend of each segment, by name."""
    value: float
    """f on all traffic; if nothing is feasible, the goal and the soft guardrails alone."""
    metrics: Mapping[str, float]
    """The expected metrics of all traffic, by name; ratios as ratios."""
    prices: Mapping[str, float]
    """The rise of f if a guardrail on all traffic is relaxed by one unit, by guardrail."""
    names: tuple[str, ...]
    """Every candidate's name."""
    best_single: int | None
    """The best single candidate for everybody; None if none meets every hard guardrail."""
    best_single_value: float | None
    common_probabilities: tuple[float, ...]
    """The best blend that is the same in every segment; the least-violating one if none is feasible."""
    common_metrics: Mapping[str, float]
    """The expected metrics of that blend on all traffic, by name; ratios as ratios."""
    common_value: float | None
    """f of that blend; None if no common blend meets every hard guardrail."""
    feasible: bool
    """Whether every hard guardrail is met, on all traffic and in segments."""
    shortfalls: Mapping[str, float] = field(default_factory=dict)
    """The amount by which all traffic misses each guardrail it misses, soft ones included."""
    lifts: Mapping[str, float] = field(default_factory=dict)
    """Percent over the baseline on all traffic, by metric; empty without a baseline."""
    goal: str = ""
    """The metric that f counts, as in watch_time, -cost or watch_time + 0.3 comments."""
    percent: bool = False
    """Whether f is counted in percent over the baseline."""
    certificate: Certificate | None = None
    """The confidence in the blend on all traffic, if it was learned; the segments' shares are uncertain in it, too."""
    probabilities: tuple[float, ...] = ()
    """The share of each candidate in all traffic."""

    @property
    def gain_over_common(self) -> float | None:
        """Return what segments are worth: f less that of the best common blend; None if either is infeasible."""
        return self.value - self.common_value if self.feasible and self.common_value is not None else None

    @property
    def gain_over_single(self) -> float | None:
        """Return f less that of the best single candidate; None if either is infeasible."""
        return self.value - self.best_single_value if self.feasible and self.best_single_value is not None else None

    def describe_mixture(self, probabilities: Sequence[float]) -> str:
        """Return a distribution over the candidates as text, as in 60.0% a + 40.0% b."""
        return " + ".join(
            f"{format_percent(share)} {name}" for share, name in zip(probabilities, self.names, strict=True) if share
        )

    def __str__(self) -> str:
        lines = [
            f"{name} ({format_percent(segment.share)} of traffic): {self.describe_mixture(segment.probabilities)}"
            for name, segment in self.segments.items()
        ]
        metrics = ", ".join(f"{name} = {format_number(value)}" for name, value in self.metrics.items())
        lines.append(f"{self._f(self.value)} ({metrics})")
        if self.common_value is None:
            lines.append("no common blend meets every guardrail")
        else:
            common = self.describe_mixture(self.common_probabilities)
            lines.append(f"best common blend {common}: {self._f(self.common_value)}")
        if self.best_single is None or self.best_single_value is None:
            lines.append("no single candidate meets every guardrail")
        else:
            lines.append(f"best single {self.names[self.best_single]}: {self._f(self.best_single_value)}")
        if not self.feasible:
            missed = [f"{name} by {format_number(amount)}" for name, amount in self.all_shortfalls().items()]
            lines.append(f"no blends meet every hard guardrail; the nearest ones miss {', '.join(missed)}")
        return "\n".join(lines)

    def all_shortfalls(self) -> dict[str, float]:
        """Return the shortfalls on all traffic, and those of segments with the segment's name."""
        own = {
            f"{rail} within {name}": amount
            for name, segment in self.segments.items()
            for rail, amount in segment.shortfalls.items()
        }
        return {**self.shortfalls, **own}

    def _f(self, value: float) -> str:
        """Return a value of f with the goal's name, and its unit if that is percent."""
        return f"f{f'({self.goal})' if self.goal else ''} = {format_number(value)}{'%' if self.percent else ''}"
