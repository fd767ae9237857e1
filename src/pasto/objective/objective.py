"""Objective that a team states: a goal and guardrails, as a concave function of the metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import ObjectiveError, StateError, UnsupportedError
from pasto.objective.goals import (
    Goal,
    Guardrail,
    LinearGoal,
    RatioGoal,
    UtilityGoal,
    check_utility,
    likely_percentage,
)
from pasto.objective.normal_form import NormalForm
from pasto.objective.ratio_metric import Ratio
from pasto.objective.segmented_form import SegmentedForm

EACH_SEGMENT = "each"
"""`within=` of a guardrail that holds for every segment by itself."""


@dataclass(frozen=True, slots=True)
class Utility:
    """Concave function over named metrics, with its gradient."""

    function: Callable[[FloatArray], FloatArray]
    derivative: Callable[[FloatArray], FloatArray]
    over: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Objective:
    """Concave function f of the metric vector, built by `maximize`, `minimize` or `utility` and then `keep`.

    >>> import pasto
    >>> objective = pasto.maximize("watch_time").keep("like_rate", at_least=0.03, penalty=5.0).keep("load", at_most=9)
    >>> print(objective)
    maximize watch_time, keep like_rate >= 0.03 (penalty 5), keep load <= 9
    >>> objective.metrics
    ('watch_time', 'like_rate', 'load')
    >>> objective.value([[2.0, 0.05, 3.0], [2.0, 0.05, 10.0]])
    array([  2., -inf])
    """

    target: Mapping[str, float] | Ratio | Utility
    """Goal: weights by metric, a ratio, or a utility."""
    sign: float = 1.0
    """−1 if the target is minimised."""
    guardrails: tuple[Guardrail, ...] = ()

    def keep(
        self,
        metric: str | Ratio,
        *,
        at_least: float | str | None = None,
        at_most: float | str | None = None,
        penalty: float | None = None,
        within: str | None = None,
    ) -> Objective:
        """Add a guardrail: soft with a penalty, hard without.

        A number is in the metric's own units. A signed percentage is a change against the baseline; the goal is then
        also counted in percent over the baseline, and the penalty in goal percent per squared percent.

        A guardrail holds for all traffic. With within="each" it holds for every segment by itself, and with a segment's
        name for that one; a percentage is then a change against the baseline of the segment, and a penalty counts by
        the segment's share of traffic.

        >>> import pasto
        >>> print(pasto.maximize("watch_time").keep("like_rate", at_least="-2%", penalty=5.0))
        maximize watch_time, keep like_rate >= -2% (penalty 5)
        """
        guardrail = Guardrail.parse(metric, at_least=at_least, at_most=at_most, penalty=penalty, within=within)
        for other in self.guardrails:
            if (other.label, other.lower, other.within) == (guardrail.label, guardrail.lower, within):
                where = "" if within is None else f" within {within!r}"
                raise ObjectiveError(f"{guardrail.label!r} is kept twice on the same side{where}; state one threshold")
        if isinstance(self.target, Utility) and guardrail.label in self.target.over and not guardrail.relative:
            low, high = self.target.over[guardrail.label]
            if guardrail.at <= low if guardrail.lower else guardrail.at >= high:
                meant = "+2%" if not guardrail.lower else "-2%" if guardrail.at > 0 else likely_percentage(guardrail.at)
                raise ObjectiveError(
                    f"keep({guardrail.label!r}) got the threshold {guardrail.at:g}, and in over= "
                    f"{guardrail.label!r} lies from {low:g} to {high:g}, so the guardrail cannot fail; for a change "
                    f"against the baseline write '{meant}'"
                )
        if isinstance(self.target, Ratio) and guardrail.penalty is not None:
            raise ObjectiveError(
                f"a ratio goal takes hard guardrails only: {self.target.name} less a penalty is not concave; leave out "
                f"penalty= for {guardrail.label!r}, or maximise {self.target.numerator!r} itself"
            )
        return replace(self, guardrails=(*self.guardrails, guardrail))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that must be measured, in the order of every array of means."""
        names: dict[str, None] = {}
        sources: list[str | Ratio] = [*self.goal_metrics, *(guardrail.metric for guardrail in self.guardrails)]
        for source in sources:
            for name in (source.numerator, source.denominator) if isinstance(source, Ratio) else (source,):
                names[name] = None
        return tuple(names)

    @property
    def goal_metrics(self) -> tuple[str | Ratio, ...]:
        """Metrics and ratios of the goal."""
        match self.target:
            case Ratio():
                return (self.target,)
            case Utility():
                return tuple(self.target.over)
            case weights:
                return tuple(weights)

    @property
    def ratios(self) -> tuple[Ratio, ...]:
        """Ratios of the goal and the guardrails, each once."""
        sources = [*self.goal_metrics, *(guardrail.metric for guardrail in self.guardrails)]
        return tuple(dict.fromkeys(source for source in sources if isinstance(source, Ratio)))

    @property
    def relative(self) -> bool:
        """Some threshold is a percentage, so a baseline is needed."""
        return any(guardrail.relative for guardrail in self.guardrails)

    @property
    def relative_metrics(self) -> tuple[str, ...]:
        """Metrics of relative guardrails, and of the goal if there are any: it is then counted in percent, too.

        >>> import pasto
        >>> pasto.maximize("watch").keep("likes", at_least="-2%").keep("margin", at_least=0).relative_metrics
        ('watch', 'likes')
        """
        if not self.relative:
            return ()
        goal = () if isinstance(self.target, Utility) else self.goal_metrics
        sources = [*goal, *(guardrail.metric for guardrail in self.guardrails if guardrail.relative)]
        names: dict[str, None] = {}
        for source in sources:
            for name in (source.numerator, source.denominator) if isinstance(source, Ratio) else (source,):
                names[name] = None
        return tuple(names)

    @property
    def hard(self) -> tuple[str, ...]:
        """Names of the hard guardrails."""
        names = self.names
        return tuple(name for name, rail in zip(names, self.guardrails, strict=True) if rail.penalty is None)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the guardrails: the metric's, with the side added if a metric is kept on both.

        The segments of a guardrail are part of its name: "likes within each".
        """
        return _name_guardrails(self.guardrails)

    def form(self, baseline: Sequence[float] | FloatArray | None = None) -> NormalForm:
        """Return the normal form over raw metrics; relative thresholds need the baseline's metric vector."""
        self._refuse_segments()
        reference = None if baseline is None else np.asarray(baseline, dtype=float)
        goal = self._build_goal(self._goal_reference(reference))
        return self._build_form(dict(zip(self.names, self.guardrails, strict=True)), reference, goal)

    def segmented_form(self, shares: Mapping[str, float], baselines: FloatArray | None = None) -> SegmentedForm:
        """Return the normal form over segments with shares of traffic, by name.

        Relative thresholds need the baseline's metric vector in each segment, baselines (segments, metrics).

        >>> import pasto
        >>> objective = pasto.maximize("x").keep("x", at_most=3).keep("y", at_least=1, within="each")
        >>> form = objective.segmented_form({"new": 0.25, "heavy": 0.75})
        >>> form.common.names, [own.names for own in form.own]
        (('x',), [('y',), ('y',)])
        """
        if unknown := [rail for rail in self.guardrails if rail.within not in {None, EACH_SEGMENT, *shares}]:
            raise ObjectiveError(
                f"'{unknown[0]}' names no segment; there are {', '.join(shares)}, or {EACH_SEGMENT} for all of them"
            )
        weights = np.array([*shares.values()], dtype=float)
        reference = None if baselines is None else weights @ baselines
        goal = self._build_goal(self._goal_reference(reference))
        common = self._build_form(self.guardrails_within(None), reference, goal)
        own = []
        for place, segment in enumerate(shares):
            here = None if baselines is None else baselines[place]
            own.append(self._build_form(self.guardrails_within(segment), here, goal))
        return SegmentedForm(common, tuple(own), weights)

    def guardrails_within(self, segment: str | None) -> dict[str, Guardrail]:
        """Return the guardrails of a segment by name, or for None those on all traffic.

        >>> import pasto
        >>> objective = pasto.maximize("x").keep("x", at_most=3).keep("y", at_least=1, within="each")
        >>> [str(rail) for rail in objective.guardrails_within("new").values()]
        ['y >= 1 within each']
        """
        rails = [rail for rail in self.guardrails if rail.within is None]
        if segment is not None:
            rails = [rail for rail in self.guardrails if rail.within in (EACH_SEGMENT, segment)]
        sides = [(rail.label, rail.lower) for rail in rails]
        if twice := [label for label, lower in sides if sides.count((label, lower)) > 1]:
            raise ObjectiveError(
                f"{twice[0]!r} is kept twice on the same side within {segment!r}, once by within='each'; state one "
                "threshold"
            )
        return dict(zip(_name_guardrails([replace(rail, within=None) for rail in rails]), rails, strict=True))

    def _refuse_segments(self) -> None:
        """Raise UnsupportedError if a guardrail limits segments."""
        if inside := [rail for rail in self.guardrails if rail.within is not None]:
            raise UnsupportedError(
                f"'{inside[0]}' limits segments, and there are none here; pass segments= to pasto.solve, or leave out "
                "within="
            )

    def _goal_reference(self, reference: FloatArray | None) -> FloatArray | None:
        """Return the baseline's vector if the goal counts in percent of it, and refuse a missing baseline."""
        if not self.relative:
            return None
        if reference is None:
            percent = next(rail for rail in self.guardrails if rail.relative)
            raise ObjectiveError(
                f"'{percent}' is relative to a baseline, and none was named; pass baseline= (a candidate), or write "
                "the threshold in the metric's own units"
            )
        return reference

    def _build_form(self, rails: Mapping[str, Guardrail], reference: FloatArray | None, goal: Goal) -> NormalForm:
        """Return the normal form of a goal and some guardrails."""
        rows, at, relief = [], [], []
        for rail in rails.values():
            row, limit, exchange = self._guardrail_row(rail, reference)
            side = 1.0 if rail.lower else -1.0
            rows.append(side * row)
            at.append(side * limit)
            relief.append(exchange)
        width = len(self.metrics)
        return NormalForm(
            goal=goal,
            names=tuple(rails),
            rows=np.array(rows, dtype=float).reshape(-1, width),
            at=np.array(at, dtype=float),
            penalties=np.array([math.inf if rail.penalty is None else rail.penalty for rail in rails.values()]),
            relief=np.array(relief, dtype=float).reshape(-1, width),
        )

    def by_metric(self, means: Any) -> dict[str, FloatArray]:
        """Return the rows of an array (metrics, candidates) by metric name, as `pasto.solve` takes them.

        >>> import pasto
        >>> pasto.maximize("x").keep("y", at_least=0).by_metric([[2, 0], [-2, 2]])
        {'x': array([2, 0]), 'y': array([-2,  2])}
        """
        rows = np.asarray(means)
        if rows.ndim != 2 or len(rows) != len(self.metrics):
            raise ObjectiveError(f"expected an array with the rows {', '.join(self.metrics)}, got shape {rows.shape}")
        return dict(zip(self.metrics, rows, strict=True))

    def value(self, metrics: Any, baseline: Sequence[float] | None = None) -> FloatArray:
        """Return f at each metric vector, (..., metrics) → (...); −∞ if a hard guardrail is missed."""
        return self.form(baseline).value(self._check_vectors(metrics))

    def gradient(self, metrics: Any, baseline: Sequence[float] | None = None) -> FloatArray:
        """Return ∇f at each metric vector, (..., metrics) → (..., metrics); needs soft guardrails only.

        >>> import pasto
        >>> pasto.maximize("x").keep("y", at_least=0, penalty=5.0).gradient([[1.0, -2.0], [1.0, 2.0]])
        array([[ 1., 20.],
               [ 1.,  0.]])
        """
        return self.form(baseline).gradient(self._check_vectors(metrics))

    @property
    def goal_label(self) -> str:
        """Unit of f, with a minus sign if it is minimised.

        >>> import pasto
        >>> pasto.maximize("watch").goal_label, pasto.minimize("cost").goal_label
        ('watch', '-cost')
        >>> pasto.minimize({"cost": 1, "load": 0.5}).goal_label
        '-(1 cost + 0.5 load)'
        """
        aim = (
            self._describe_target()
            if not isinstance(self.target, Utility)
            else self._describe_target().removeprefix("a ")
        )
        if self.sign > 0:
            return aim
        return f"-({aim})" if " " in aim else f"-{aim}"

    def __str__(self) -> str:
        verb = "maximize" if self.sign > 0 else "minimize"
        return ", ".join([f"{verb} {self._describe_target()}", *(f"keep {rail}" for rail in self.guardrails)])

    def _describe_target(self) -> str:
        match self.target:
            case Ratio():
                return self.target.name
            case Utility():
                return "a utility of " + ", ".join(self.target.over)
            case weights if len(weights) == 1 and next(iter(weights.values())) == 1.0:
                return next(iter(weights))
            case weights:
                terms = [f"{'-' if weight < 0 else '+'} {abs(weight):g} {name}" for name, weight in weights.items()]
                return " ".join(terms).removeprefix("+ ")

    def _check_vectors(self, metrics: Any) -> FloatArray:
        vectors = np.asarray(metrics, dtype=float)
        if vectors.shape[-1:] != (len(self.metrics),):
            raise ObjectiveError(
                f"expected vectors of {len(self.metrics)} metrics {self.metrics}, got shape {vectors.shape}"
            )
        return vectors

    def _unit_row(self, metric: str) -> FloatArray:
        """Return the row that picks one metric out of the vector."""
        row = np.zeros(len(self.metrics))
        row[self.metrics.index(metric)] = 1.0
        return row

    def _guardrail_row(self, rail: Guardrail, reference: FloatArray | None) -> tuple[FloatArray, float, FloatArray]:
        """Return a guardrail as row · y against a limit, and the slack that a unit of relaxing adds."""
        if isinstance(rail.metric, Ratio):
            top, bottom = self._unit_row(rail.metric.numerator), self._unit_row(rail.metric.denominator)
            if not rail.relative:
                return top - rail.at * bottom, 0.0, bottom
            assert reference is not None  # noqa: S101 -- `form` has refused a missing baseline
            over, under = (
                self._baseline_level(top, reference, rail.label),
                self._baseline_level(bottom, reference, rail.label),
            )
            level = (1.0 + rail.at / 100.0) * over / under
            return 100.0 * (top - level * bottom) / over, 0.0, bottom / under
        row = self._unit_row(rail.metric)
        if not rail.relative:
            return row, rail.at, np.zeros_like(row)
        assert reference is not None  # noqa: S101 -- as above
        return 100.0 * row / self._baseline_level(row, reference, rail.label), 100.0 + rail.at, np.zeros_like(row)

    def _build_goal(self, reference: FloatArray | None) -> Goal:
        """Return the goal over the raw vector, in percent over the baseline if one is given."""
        match self.target:
            case Utility(function, derivative, over):
                return UtilityGoal(function, derivative, over, tuple(self.metrics.index(name) for name in over))
            case Ratio(numerator, denominator, name):
                top, bottom = self._unit_row(numerator), self._unit_row(denominator)
                if reference is None:
                    return RatioGoal(self.sign * top, bottom)
                level = self._baseline_level(top, reference, name) / self._baseline_level(bottom, reference, name)
                return RatioGoal(self.sign * top, bottom, 100.0 / level, -100.0 * self.sign)
            case weights:
                row, offset = np.zeros(len(self.metrics)), 0.0
                for name, weight in weights.items():
                    unit, factor = self._unit_row(name), self.sign * weight
                    if reference is not None:
                        factor *= 100.0 / self._baseline_level(unit, reference, name)
                        offset -= 100.0 * self.sign * weight
                    row += factor * unit
                return LinearGoal(row, offset)

    def _baseline_level(self, row: FloatArray, reference: FloatArray, name: str) -> float:
        level = float(row @ reference)
        if not level > 0:
            raise ObjectiveError(
                f"the baseline's {name!r} is {level:g}, and a percentage needs a positive one; write the thresholds in "
                "the metrics' own units"
            )
        return level


def _name_guardrails(rails: Sequence[Guardrail]) -> tuple[str, ...]:
    keys = [(rail.label, rail.within) for rail in rails]
    return tuple(
        rail.label
        + (f" ({'at least' if rail.lower else 'at most'})" if keys.count((rail.label, rail.within)) > 1 else "")
        + (f" within {rail.within}" if rail.within is not None else "")
        for rail in rails
    )


def check_objective(given: object, *, segments: bool = False) -> Objective:
    """Return an objective, or refuse anything else with what to write instead; guardrails within segments need some.

    >>> check_objective("watch_time")
    Traceback (most recent call last):
    ...
    pasto.errors.ObjectiveError: an objective was expected, got 'watch_time'; write pasto.maximize('watch_time')
    """
    if isinstance(given, Objective):
        if not segments:
            given._refuse_segments()
        return given
    goal = repr(given) if isinstance(given, (str, Mapping, Ratio)) and given else "'watch_time'"
    raise ObjectiveError(f"an objective was expected, got {given!r}; write pasto.maximize({goal})")


def maximize(goal: str | Ratio | Mapping[str, float]) -> Objective:
    """Raise a metric, a ratio, or a weighted sum of metrics; then `keep` the guardrails.

    >>> import pasto
    >>> print(pasto.maximize({"watch_time": 1, "comments": 0.3}).keep("like_rate", at_least=0.03))
    maximize 1 watch_time + 0.3 comments, keep like_rate >= 0.03
    """
    return Objective(_check_goal(goal))


def minimize(goal: str | Ratio | Mapping[str, float]) -> Objective:
    """Lower a metric, a ratio, or a weighted sum of metrics; f is then its negative.

    >>> import pasto
    >>> blend = pasto.solve({"cost": [3, 1], "sales": [9, 5]}, pasto.minimize("cost").keep("sales", at_least=6))
    >>> blend.probabilities, blend.metrics, blend.value
    ((0.25, 0.75), {'cost': 1.5, 'sales': 6.0}, -1.5)
    """
    return Objective(_check_goal(goal), sign=-1.0)


def utility(
    value: Callable[[FloatArray], FloatArray],
    gradient: Callable[[FloatArray], FloatArray],
    *,
    over: Mapping[str, tuple[float, float]],
) -> Objective:
    """Raise any concave function of named metrics.

    `over` names the metrics, in the order the function reads them, each with the range on which it is used; concavity
    and gradient are checked there, and a wrong one is refused. Both functions take arrays (..., metrics).

    >>> import numpy as np, pasto
    >>> fair = pasto.utility(
    ...     lambda y: np.log(y).sum(axis=-1), lambda y: 1 / y, over={"buyers": (0.1, 10), "sellers": (0.1, 10)}
    ... )
    >>> blend = pasto.solve({"buyers": [4, 1], "sellers": [1, 4]}, fair)
    >>> [round(share, 6) for share in blend.probabilities]
    [0.5, 0.5]
    """
    if not over:
        raise ObjectiveError("over= must name at least one metric with its range, as in over={'x': (0, 1)}")
    check_utility(value, gradient, over)
    return Objective(Utility(value, gradient, {name: (float(low), float(high)) for name, (low, high) in over.items()}))


def _check_goal(goal: str | Ratio | Mapping[str, float]) -> Mapping[str, float] | Ratio:
    if isinstance(goal, Ratio):
        return goal
    if isinstance(goal, str) and goal:
        return {goal: 1.0}
    if not isinstance(goal, Mapping) or not goal:
        raise ObjectiveError(f"a goal is a metric's name, a ratio, or weights by metric, got {goal!r}")
    for name, weight in goal.items():
        if not isinstance(name, str) or not name:
            raise ObjectiveError(f"a goal's metrics are named by strings, got {name!r}")
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not math.isfinite(weight) or not weight:
            raise ObjectiveError(f"the weight of {name!r} must be a finite number other than 0, got {weight!r}")
    return {name: float(weight) for name, weight in goal.items()}


def objective_document(objective: Objective) -> dict[str, Any]:
    """Write an objective down; of a utility only the metrics, since its functions cannot be saved.

    >>> import pasto
    >>> objective = pasto.maximize("x").keep("y", at_least=0, penalty=5.0)
    >>> read_objective_document(objective_document(objective)) == objective
    True
    """
    match objective.target:
        case Utility(over=over):
            target: dict[str, Any] = {"utility": list(over)}
        case Ratio():
            target = {"ratio": asdict(objective.target)}
        case weights:
            target = {"weights": dict(weights)}
    rails = [asdict(rail) for rail in objective.guardrails]
    # Documents without segments stay as earlier versions wrote them.
    rails = [{name: value for name, value in rail.items() if (name, value) != ("within", None)} for rail in rails]
    return {**target, "sign": objective.sign, "guardrails": rails}


def read_objective_document(saved: dict[str, Any]) -> Objective:
    """Read back what `objective_document` wrote; a utility has to be passed in by the caller instead."""
    if "utility" in saved:
        raise StateError(
            f"this study's objective is a utility of {', '.join(saved['utility'])}, whose functions are not in the "
            "saved state; pass it back in as objective="
        )
    try:
        target = Ratio(**saved["ratio"]) if "ratio" in saved else dict(saved["weights"])
        rails = tuple(
            Guardrail(
                **{**rail, "metric": Ratio(**rail["metric"]) if isinstance(rail["metric"], dict) else rail["metric"]}
            )
            for rail in saved["guardrails"]
        )
        return Objective(target, saved["sign"], rails)
    except (KeyError, TypeError) as error:
        raise StateError(f"the saved objective cannot be read: {error}") from error
