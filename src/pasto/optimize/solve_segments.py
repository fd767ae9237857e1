"""Exact solve with segments: from the means of each segment to the best blend of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import InputError, MeansError, OptionError, PastoError
from pasto.objective import (
    EACH_SEGMENT,
    Goal,
    LinearGoal,
    NormalForm,
    Objective,
    RatioGoal,
    SegmentedForm,
    Utility,
    UtilityGoal,
)
from pasto.objective.goals import warn_useless_bounds
from pasto.optimize.blend_summary import name_metrics
from pasto.optimize.exact.segmented import SegmentedSolution, solve_segments
from pasto.optimize.exact.solver import solve_exact
from pasto.optimize.solve_blend import MeansInput
from pasto.segmented_blend import SegmentBlend, SegmentedBlend

MAX_SHARE_ERROR = 1e-6
"""The largest difference from 1 of the sum of shares that counts as rounding."""


def read_shares(segments: Mapping[str, float]) -> dict[str, float]:
    """Return the segments' shares of traffic with sum 1, or raise OptionError.

    >>> read_shares({"new": 0.3, "heavy": 0.7})
    {'new': 0.3, 'heavy': 0.7}
    """
    if not isinstance(segments, Mapping) or not segments:
        raise OptionError(
            "segments must be the share of traffic of each segment, as in {'new': 0.3, 'heavy': 0.7}, got "
            f"{segments!r}"
        )
    for name, share in segments.items():
        if not isinstance(name, str) or not name or name == EACH_SEGMENT:
            raise OptionError(
                f"segments has the name {name!r}; a segment's name is a text other than {EACH_SEGMENT!r}, which stands "
                "for all segments in within="
            )
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0.0 < share <= 1.0:
            raise OptionError(f"the share of segment {name!r} must be a number above 0 and at most 1, got {share!r}")
    total = math.fsum(segments.values())
    if abs(total - 1.0) > MAX_SHARE_ERROR:
        raise OptionError(
            f"the shares of segments sum to {total:.6g}, and must sum to 1; give each segment its share of all "
            "traffic, and the rest a segment of its own, such as 'other'"
        )
    return {name: float(share) / total for name, share in segments.items()}


def read_segments(
    given: Any, objective: Objective, names: Sequence[str] | str | None, shares: Mapping[str, float]
) -> dict[str, MeansInput]:
    """Return the means of each segment, all with the same metrics and candidates, or raise MeansError."""
    listed = ", ".join(map(repr, shares))
    if not isinstance(given, Mapping):
        raise MeansError(
            f"with segments=, means must hold the means of each segment by name, {{{next(iter(shares))!r}: …}}, got "
            f"{type(given).__name__}"
        )
    if set(given) != set(shares):
        missing = [repr(name) for name in shares if name not in given]
        extra = [repr(name) for name in given if name not in shares]
        problem = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(extra)}"
        raise MeansError(f"means {problem}; with segments= it has the means of {listed}, and nothing else")
    tables: dict[str, MeansInput] = {}
    for name in shares:
        try:
            tables[name] = MeansInput.read(given[name], objective, names)
        except InputError as error:
            raise MeansError(f"segment {name!r}: {error}") from error
    first = next(iter(shares))
    for name, table in tables.items():
        if (table.metrics, table.names) != (tables[first].metrics, tables[first].names):
            what = "candidates" if table.names != tables[first].names else "metrics"
            raise MeansError(
                f"segments {first!r} and {name!r} have different {what}; give every segment the same {what} in the "
                "same order"
            )
    return tables


def solve_segmented_blend(
    means: Any,
    objective: Objective,
    names: Sequence[str] | str | None,
    baseline: int | str | None,
    segments: Mapping[str, float],
) -> SegmentedBlend:
    """Return the best blend of each segment; `pasto.solve` describes the arguments.

    >>> import pasto
    >>> means = {"new": {"x": [2, 0], "y": [-2, 2]}, "heavy": {"x": [3, 1], "y": [1, 2]}}
    >>> objective = pasto.maximize("x").keep("y", at_least=0.5, within="each")
    >>> blend = solve_segmented_blend(means, objective, None, None, {"new": 0.5, "heavy": 0.5})
    >>> {name: segment.probabilities for name, segment in blend.segments.items()}
    {'new': (0.375, 0.625), 'heavy': (1.0, 0.0)}
    >>> blend.segments["new"].prices, blend.common_probabilities
    ({'y': 0.25}, (0.375, 0.625))
    """
    shares = read_shares(segments)
    tables = read_segments(means, objective, names, shares)
    first = next(iter(tables.values()))
    wide = len(objective.metrics)
    rows = np.array([table.means for table in tables.values()])
    stated, others = rows[:, :wide], rows[:, wide:]
    index = None if baseline is None else first.index(baseline)
    form = objective.segmented_form(shares, None if index is None else stated[:, :, index])
    warn_useless_bounds(objective, stated.transpose(1, 0, 2).reshape(wide, -1), "among these candidates", stacklevel=3)
    solution = solve_segments(form, stated)
    common = solve_common_blend(form, stated)
    extra = ExtraMetrics(first.metrics[wide:], others)
    return summarize_segments(solution, common, form, stated, objective, first.names, [*shares], index, extra)


def solve_common_blend(form: SegmentedForm, means: FloatArray) -> FloatArray:
    """Return the best distribution that is the same in every segment, for means (segments, metrics, candidates).

    >>> import numpy as np, pasto
    >>> form = pasto.maximize("x").keep("y", at_least=0).segmented_form({"new": 0.5, "heavy": 0.5})
    >>> solve_common_blend(form, np.array([[[2.0, 0.0], [-2.0, 2.0]], [[2.0, 0.0], [-2.0, 2.0]]]))
    array([0.5, 0.5])
    """
    return solve_exact(*_stack(form, means, np.einsum("smk,s->mk", means, form.shares))).probabilities


def _stack(form: SegmentedForm, means: FloatArray, mixed: FloatArray) -> tuple[NormalForm, FloatArray]:
    """Return the problem of one blend for everybody, over metrics of all traffic and of segments with guardrails."""
    limited = [segment for segment, own in enumerate(form.own) if len(own.at)]
    wide = len(mixed)
    size = wide * (1 + len(limited))

    def pad(rows: FloatArray, block: int) -> FloatArray:
        full = np.zeros((len(rows), size))
        full[:, block * wide : (block + 1) * wide] = rows
        return full

    forms = [form.common, *(form.own[segment] for segment in limited)]
    weights = [1.0, *form.shares[limited].tolist()]
    stacked = NormalForm(
        goal=_pad_goal(form.common.goal, size),
        names=tuple(name for part in forms for name in part.names),
        rows=np.vstack([pad(part.rows, block) for block, part in enumerate(forms)]),
        at=np.concatenate([part.at for part in forms]),
        penalties=np.concatenate([weight * part.penalties for weight, part in zip(weights, forms, strict=True)]),
        relief=np.vstack([pad(part.relief, block) for block, part in enumerate(forms)]),
    )
    return stacked, np.vstack([mixed, *(means[segment] for segment in limited)])


def _pad_goal(goal: Goal, size: int) -> Goal:
    """Return a goal over the first metrics of a longer vector."""

    def pad(row: FloatArray) -> FloatArray:
        return np.concatenate([row, np.zeros(size - len(row))])

    match goal:
        case LinearGoal(row, offset):
            return LinearGoal(pad(row), offset)
        case RatioGoal(numerator, denominator, scale, offset):
            return RatioGoal(pad(numerator), pad(denominator), scale, offset)
        case UtilityGoal():
            return goal
    raise PastoError(f"no goal of kind {type(goal).__name__} is known")


@dataclass(frozen=True, slots=True, eq=False)
class ExtraMetrics:
    """Metrics that the objective does not need."""

    names: tuple[str, ...]
    means: FloatArray
    """(segments, metrics, candidates)."""


def summarize_segments(
    solution: SegmentedSolution,
    common: FloatArray,
    form: SegmentedForm,
    means: FloatArray,
    objective: Objective,
    names: tuple[str, ...],
    segments: Sequence[str],
    baseline: int | None,
    extra_metrics: ExtraMetrics | None = None,
) -> SegmentedBlend:
    """Return the record of a solution, for means (segments, metrics, candidates) and candidates' names.

    >>> import numpy as np, pasto
    >>> objective, means = pasto.maximize("x"), np.array([[[2.0, 0.0]], [[0.0, 1.0]]])
    >>> form = objective.segmented_form({"new": 0.5, "heavy": 0.5})
    >>> common = solve_common_blend(form, means)
    >>> summarize_segments(
    ...     solve_segments(form, means), common, form, means, objective, ("a", "b"), ["new", "heavy"], None
    ... ).probabilities
    (0.5, 0.5)
    """
    others = np.zeros((len(means), 0, means.shape[2])) if extra_metrics is None else extra_metrics.means
    extra = () if extra_metrics is None else extra_metrics.names
    shares = solution.probabilities
    vectors = np.einsum("smk,sk->sm", means, shares)
    other_vectors = np.einsum("smk,sk->sm", others, shares)
    allowed, own_allowed = form.tolerances(means)

    def name_all(vector: FloatArray, other: FloatArray) -> dict[str, float]:
        return {**name_metrics(vector, objective), **dict(zip(extra, other.tolist(), strict=True))}

    def lift(metrics: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
        return {name: 100.0 * (metrics[name] / level - 1.0) for name, level in before.items() if level > 0.0}

    parts: dict[str, SegmentBlend] = {}
    ends = np.cumsum([len(own.at) for own in form.own])
    for place, name in enumerate(segments):
        own, share = form.own[place], float(form.shares[place])
        duals = solution.own_duals[ends[place] - len(own.at) : ends[place]]
        metrics = name_all(vectors[place], other_vectors[place])
        before = {} if baseline is None else name_all(means[place, :, baseline], others[place, :, baseline])
        parts[name] = SegmentBlend(
            share=share,
            probabilities=tuple(shares[place].tolist()),
            support=tuple(np.flatnonzero(shares[place]).tolist()),
            metrics=metrics,
            prices={rail: share * price for rail, price in own.prices(vectors[place], duals / share).items()},
            shortfalls=own.shortfalls(vectors[place], own_allowed[place]),
            lifts=lift(metrics, before),
        )
    total = form.mix(vectors)
    metrics = name_all(total, form.shares @ other_vectors)
    before = {}
    if baseline is not None:
        before = name_all(form.mix(means[:, :, baseline]), form.shares @ others[:, :, baseline])
    singles = np.moveaxis(means, -1, 0)
    values = np.where(form.met(singles, means), form.smooth(singles), -np.inf)
    best = int(np.argmax(values)) if values.max() > -np.inf else None
    alike = means @ common
    return SegmentedBlend(
        segments=parts,
        value=float(form.smooth(vectors)),
        metrics=metrics,
        prices=form.common.prices(total, solution.duals),
        names=names,
        best_single=best,
        best_single_value=None if best is None else float(values[best]),
        common_probabilities=tuple(common.tolist()),
        common_metrics=name_all(form.mix(alike), form.shares @ (others @ common)),
        common_value=float(form.smooth(alike)) if bool(form.met(alike, means)) else None,
        feasible=bool(form.met(vectors, means)),
        shortfalls=form.common.shortfalls(total, allowed),
        lifts=lift(metrics, before),
        goal=objective.goal_label,
        percent=objective.relative and not isinstance(objective.target, Utility),
        probabilities=tuple((form.shares @ shares).tolist()),
    )
