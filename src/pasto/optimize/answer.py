"""`pasto.solve`: from known means and an objective to the best blend."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pasto.errors import PastoWarning
from pasto.objective import Array, Form, Objective, Ratio
from pasto.objective.objective import check_objective
from pasto.objective.unfailing import warn_unfailing
from pasto.optimize.blend import describe_form
from pasto.optimize.exact.kinds import optimum
from pasto.optimize.truth import Truth
from pasto.records import Blend

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame


def solve(
    truth: Mapping[str, Any] | IntoDataFrame | Sequence[Mapping[str, Any]] | Sequence[Sequence[float]] | NDArray[Any],
    objective: Objective,
    *,
    names: Sequence[str] | str | None = None,
    baseline: int | str | None = None,
) -> Blend:
    """Find the best blend of candidates whose mean metrics are known.

    truth holds a list of means for each metric, one for each candidate; or it is a list of dicts or a data frame
    (pandas, polars and others) with a row for each candidate and a column for each metric. The index of the frame or
    its text column names the candidates; names is a list of names or the column that holds them. An array (metrics,
    candidates) in the order of objective.metrics is taken unless it is square: give that by name, as
    objective.by_metric(array).

    Metrics that the objective does not read are shown in the answer. baseline is a candidate's name or index, against
    which percentages are counted. If no blend meets every hard guardrail, the answer is the nearest miss, marked
    infeasible: it makes the sum of squared shortfalls least, each counted in units of its guardrail's range over the
    candidates, and is the best such blend for goal and soft guardrails.

    >>> import pasto
    >>> objective = pasto.maximize("watch").keep("likes", at_least=3).keep("shares", at_least=3)
    >>> blend = pasto.solve({"watch": [5, 7], "likes": [2, 4], "shares": [4, 2]}, objective, names=["A", "B"])
    >>> print(blend)
    50.0% A + 50.0% B: f(watch) = 6 (watch = 6, likes = 3, shares = 3)
    no single candidate meets every guardrail
    >>> blend.gain.violations
    {'shares': 1.0}
    """
    table = Truth.read(truth, check_objective(objective), names)
    wide = len(objective.metrics)
    means = table.means[:wide]
    place = None if baseline is None else table.index(baseline)
    form = objective.form(None if place is None else means[:, place])
    warn_unfailing(objective, means, "among these candidates")
    if place is not None:
        _warn_toothless(objective, form, means, place)
    solution = optimum(form, means)
    others = dict(zip(table.metrics[wide:], table.means[wide:], strict=True))
    return describe_form(solution.probabilities, means, objective, form, table.names, place, solution.duals, others)


def _warn_toothless(objective: Objective, form: Form, means: Array, baseline: int) -> None:
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
