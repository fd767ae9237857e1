"""Exact solve, `pasto.solve`: from known means and an objective to the best blend."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Never, overload

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.blend import Blend
from pasto.data_frames import DataTable, is_text, read_columns, read_rows, read_table
from pasto.errors import MeansError, OptionError, PastoWarning, refuse_renamed_options
from pasto.objective import NormalForm, Objective, Ratio, Utility
from pasto.objective.goals import warn_useless_bounds
from pasto.objective.objective import check_objective
from pasto.optimize.blend_summary import summarize_form
from pasto.optimize.exact.solver import solve_exact
from pasto.segmented_blend import SegmentedBlend

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame


@dataclass(frozen=True, slots=True, eq=False)
class MeansInput:
    """Means that fit their objective, (metrics, candidates), with everyone's name."""

    metrics: tuple[str, ...]
    """The objective's own metrics in its order, then any others."""
    means: FloatArray
    names: tuple[str, ...]

    @classmethod
    def read(cls, given: Any, objective: Objective, names: Sequence[str] | str | None = None) -> MeansInput:
        """Take what a caller of `solve` gave, or say what is wrong with it."""
        if isinstance(given, Mapping):
            table: DataTable | None = read_columns(given, MeansError)
        else:
            table = read_rows(given, MeansError) or read_table(given, MeansError)
        if table is not None:
            metrics, means, names = _from_table(table, objective, names)
        else:
            metrics, means = _from_array(given, objective)
        if isinstance(names, str):
            raise MeansError(f"names={names!r} names a column, and an array has none; give a list of names")
        count = means.shape[1]
        if not count:
            raise MeansError("means has no candidates; give each metric one mean for each candidate")
        labels = tuple(map(str, range(count) if names is None else names))
        if len(labels) != count:
            raise MeansError(f"names= has {len(labels)} names for the {count} candidates of means; give one for each")
        if names is not None and len(set(labels)) < count:
            twice = Counter(labels).most_common(1)[0][0]
            raise MeansError(f"the names have {twice!r} twice; give each candidate its own name")
        if not np.isfinite(means).all():
            row, column = np.argwhere(~np.isfinite(means))[0]
            raise MeansError(
                f"the mean of {metrics[row]!r} for candidate {labels[column]!r} is {means[row, column]}; every mean "
                "must be a finite number"
            )
        checked = cls(metrics, means, labels)
        checked._check_ratios(objective)
        checked._check_ranges(objective)
        return checked

    def index(self, candidate: int | str) -> int:
        """Return the index of a candidate, given by its name or its index."""
        if isinstance(candidate, str):
            if candidate in self.names:
                return self.names.index(candidate)
        elif not isinstance(candidate, bool) and 0 <= candidate < len(self.names):
            return int(candidate)
        listed = ", ".join(self.names[:5]) + (", …" if len(self.names) > 5 else "")
        raise OptionError(
            f"baseline={candidate!r} is not a candidate; name one of {listed}, or its index from 0 to "
            f"{len(self.names) - 1}"
        )

    def _check_ratios(self, objective: Objective) -> None:
        for ratio in objective.ratios:
            bottoms = self.means[self.metrics.index(ratio.denominator)]
            if not (bottoms > 0).all():
                column = int(np.argmin(bottoms > 0))
                raise MeansError(
                    f"{ratio.name!r} divides by {ratio.denominator!r}, which must be positive; it is "
                    f"{bottoms[column]:g} for candidate {self.names[column]!r}"
                )

    def _check_ranges(self, objective: Objective) -> None:
        if not isinstance(objective.target, Utility):
            return
        for name, (low, high) in objective.target.over.items():
            row = self.means[self.metrics.index(name)]
            outside = (row < low) | (row > high)
            if outside.any():
                column = int(np.argmax(outside))
                raise MeansError(
                    f"the mean of {name!r} for candidate {self.names[column]!r} is {row[column]:g}, outside the range "
                    f"({low:g}, {high:g}) on which the utility was checked; widen over="
                )


def _from_table(
    table: DataTable, objective: Objective, names: Sequence[str] | str | None
) -> tuple[tuple[str, ...], FloatArray, Sequence[str] | None]:
    """Read each metric from the column of its name; the rows are the candidates."""
    columns = table.columns
    if missing := [name for name in objective.metrics if name not in columns]:
        raise MeansError(
            f"means lacks {', '.join(map(repr, missing))}, which the objective reads; it has "
            f"{', '.join(map(repr, columns)) or 'nothing'}{_transposed(table, objective)}"
        )
    if names is None or isinstance(names, str):
        row_names = table.row_names(names, MeansError, apart_from=objective.metrics)
        columns = {name: values for name, values in columns.items() if name != row_names.column}
        names = row_names.names
    others = [name for name in columns if name not in objective.metrics and not is_text(columns[name])]
    metrics = (*objective.metrics, *others)
    rows = [_numbers(columns[name], f"the means of {name!r}") for name in metrics]
    for name, row in zip(metrics, rows, strict=True):
        if row.ndim != 1:
            raise MeansError(
                f"the means of {name!r} must be a list, one number for each candidate, got {row.ndim} axes"
            )
        if len(row) != len(rows[0]):
            raise MeansError(
                f"{metrics[0]!r} has {len(rows[0])} means and {name!r} has {len(row)}; give every metric one for each "
                "candidate"
            )
    return metrics, np.array(rows), names


def _transposed(table: DataTable, objective: Objective) -> str:
    """Return a hint if the metrics are rows of the table."""
    columns = [values for values in table.columns.values() if is_text(values)]
    if any(set(objective.metrics) <= set(labels) for labels in [*columns, table.labels or ()]):
        return ". Its rows are the metrics: transpose it, so that each metric is a column and each candidate a row"
    return ""


def _from_array(given: Any, objective: Objective) -> tuple[tuple[str, ...], FloatArray]:
    means = _numbers(given, "means")
    wanted = objective.metrics
    if means.ndim != 2 or len(means) != len(wanted):
        raise MeansError(
            f"means must be an array (metrics, candidates) with the {len(wanted)} rows {', '.join(wanted)}, got "
            f"shape {means.shape}; or give lists by metric name"
        )
    if means.shape[0] == means.shape[1] > 1:
        raise MeansError(
            f"means is an array of {len(means)} × {len(means)} numbers, so its rows could be metrics or "
            "candidates. If they are metrics, pass objective.by_metric(array); if they are candidates, pass "
            "objective.by_metric(array.T)"
        )
    return wanted, means


def _numbers(given: Any, what: str) -> FloatArray:
    try:
        plain = np.asarray(given)
        if is_text(given):
            raise MeansError(f"{what} must be numbers, got {given[0]!r}")
        if plain.dtype.kind not in "iufO":
            raise MeansError(f"{what} must be numbers, got {plain.dtype.name}")
        return plain.astype(float)
    except (TypeError, ValueError) as error:
        if isinstance(error, MeansError):
            raise
        raise MeansError(f"{what} must be numbers in equal rows: {error}") from error


@overload
def solve(
    means: Mapping[str, Any] | IntoDataFrame | Sequence[Mapping[str, Any]] | Sequence[Sequence[float]] | NDArray[Any],
    objective: Objective,
    *,
    names: Sequence[str] | str | None = None,
    baseline: int | str | None = None,
    segments: None = None,
    **renamed: Never,
) -> Blend: ...


@overload
def solve(
    means: Mapping[str, Any],
    objective: Objective,
    *,
    names: Sequence[str] | str | None = None,
    baseline: int | str | None = None,
    segments: Mapping[str, float],
    **renamed: Never,
) -> SegmentedBlend: ...


def solve(
    means: Mapping[str, Any] | IntoDataFrame | Sequence[Mapping[str, Any]] | Sequence[Sequence[float]] | NDArray[Any],
    objective: Objective,
    *,
    names: Sequence[str] | str | None = None,
    baseline: int | str | None = None,
    segments: Mapping[str, float] | None = None,
    **renamed: Never,
) -> Blend | SegmentedBlend:
    """Find the best blend of candidates whose mean metrics are known.

    means holds a list of numbers for each metric, one for each candidate; or it is a list of dicts or a data frame
    (pandas, polars and others) with a row for each candidate and a column for each metric. The index of the frame or
    its text column names the candidates; names is a list of names or the column that holds them. An array (metrics,
    candidates) in the order of objective.metrics is taken unless it is square: give that by name, as
    objective.by_metric(array).

    Metrics that the objective does not read are shown in the answer. baseline is a candidate's name or index, against
    which percentages are counted. If no blend meets every hard guardrail, the answer is the nearest miss, marked
    infeasible: it makes the sum of squared shortfalls least, each counted in units of its guardrail's range over the
    candidates, and is the best such blend for goal and soft guardrails.

    segments are shares of traffic by segment, and means then holds the means of each segment by name. The answer has a
    blend for each segment: the best ones for f of all traffic, under the guardrails on all traffic and, with within=,
    on segments.

    >>> import pasto
    >>> objective = pasto.maximize("watch").keep("likes", at_least=3).keep("shares", at_least=3)
    >>> blend = pasto.solve({"watch": [5, 7], "likes": [2, 4], "shares": [4, 2]}, objective, names=["A", "B"])
    >>> print(blend)
    50.0% A + 50.0% B: f(watch) = 6 (watch = 6, likes = 3, shares = 3)
    no single candidate meets every guardrail
    >>> blend.gain.violations
    {'shares': 1.0}

    >>> means = {"new": {"watch": [5, 7], "likes": [2, 4]}, "heavy": {"watch": [9, 8], "likes": [2, 1]}}
    >>> objective = pasto.maximize("watch").keep("likes", at_least=2.5)
    >>> print(pasto.solve(means, objective, names=["A", "B"], segments={"new": 0.5, "heavy": 0.5}))
    new (50.0% of traffic): 100.0% B
    heavy (50.0% of traffic): 100.0% A
    f(watch) = 8 (watch = 8, likes = 3)
    best common blend 100.0% B: f(watch) = 7.5
    best single B: f(watch) = 7.5
    """
    refuse_renamed_options("solve", renamed, {"truth": "means"})
    if segments is not None:
        from pasto.optimize.solve_segments import solve_segmented_blend  # it reads means by the class above

        return solve_segmented_blend(means, check_objective(objective, segments=True), names, baseline, segments)
    table = MeansInput.read(means, check_objective(objective), names)
    wide = len(objective.metrics)
    rows = table.means[:wide]
    index = None if baseline is None else table.index(baseline)
    form = objective.form(None if index is None else rows[:, index])
    warn_useless_bounds(objective, rows, "among these candidates")
    if index is not None:
        _warn_weak_penalties(objective, form, rows, index)
    solution = solve_exact(form, rows)
    others = dict(zip(table.metrics[wide:], table.means[wide:], strict=True))
    return summarize_form(solution.probabilities, rows, objective, form, table.names, index, solution.duals, others)


def _warn_weak_penalties(objective: Objective, form: NormalForm, means: FloatArray, baseline: int) -> None:
    """Warn of a penalty under which losing a metric altogether costs less than the candidates differ in the goal."""
    spread: float | None = None
    for rail in objective.guardrails:
        if rail.penalty is None or rail.relative:
            continue
        metric = rail.metric.numerator if isinstance(rail.metric, Ratio) else rail.metric
        level = float(means[objective.metrics.index(metric), baseline])
        spread = float(np.ptp(form.goal.value(means.T))) if spread is None else spread
        if level and rail.penalty * level**2 < spread:
            warnings.warn(
                f"penalty={rail.penalty:g} on {rail.label!r} hardly bites: a breach as large as the baseline's own "
                f"value costs {rail.penalty * level**2:.3g}, and the candidates' goals differ by {spread:.3g}; a "
                f"penalty of {spread / level**2:.3g} or more would, or state the threshold as a percentage",
                PastoWarning,
                stacklevel=3,
            )
