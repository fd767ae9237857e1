"""History from logged data: earlier results of candidates, from units served by another policy with propensities."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.data_frames import is_text
from pasto.errors import HistoryError, OptionError, PastoWarning
from pasto.estimate.off_policy import LoggedUnits, Method, estimate_off_policy
from pasto.study.history_table import CANDIDATE_COLUMN, History, HistoryRow, read_any_table
from pasto_sdk.policy_document import Value

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame

MIN_EFFECTIVE_UNITS = 10.0
"""Effective units below which a candidate is left out, because its standard errors cannot be trusted."""
MAX_WEIGHT_DEVIATIONS = 4.0
"""Standard errors by which a candidate's mean weight may differ from one before a warning."""
MAX_LEVELS = 50
"""Most values of a feature of text."""
MAX_NAMED_CANDIDATES = 5
"""Candidates that a warning names at most."""


def history_from_log(
    log: IntoDataFrame | Sequence[Mapping[str, Any]] | Mapping[str, Any],
    metrics: Sequence[str],
    *,
    candidate: str | Sequence[str] = CANDIDATE_COLUMN,
    propensity: str = "propensity",
    method: Method = "snips",
    unit: str | None = None,
    features: Sequence[str] = (),
) -> History:
    """Return the history of the candidates that a log has, with honest standard errors, for `Study(history=...)`.

    A row of the log is a user, session or request with the metrics that followed. `candidate` is the column of the
    candidate's name, or the columns of its parameters. `propensity` is the column of the probability with which that
    row's candidate was drawn. `unit` names the column of the independent unit, if units have several rows.

    `method` is "ips" (inverse propensity), "snips" (self-normalised) or "dr" (doubly robust). The last one needs
    `features`: columns known before the candidate was drawn, from which a linear regression predicts the metrics.

    >>> import numpy as np, pasto
    >>> rng = np.random.default_rng(7)
    >>> served = rng.choice(["a", "b"], p=[0.9, 0.1], size=4000)
    >>> log = {"candidate": served.tolist(), "propensity": np.where(served == "a", 0.9, 0.1),
    ...     "clicks": rng.poisson(np.where(served == "a", 1.0, 1.5))}
    >>> history = history_from_log(log, ["clicks"])
    >>> [(row["candidate"], round(row["clicks"], 1), round(row["clicks_se"], 2)) for row in history.to_rows()]
    [('a', 1.0, 0.02), ('b', 1.5, 0.06)]
    """
    if method not in get_args(Method):
        raise OptionError(f"method must be 'ips', 'snips' or 'dr', got {method!r}")
    if (method == "dr") != bool(features):
        raise OptionError(
            "method='dr' needs features=, columns that are known before the candidate is drawn"
            if method == "dr"
            else f"features= are for method='dr', got method={method!r}"
        )
    if isinstance(metrics, str) or not metrics:
        raise OptionError(f"metrics must be a list of columns such as ['clicks'], got {metrics!r}")
    columns = read_any_table(log, "log").columns
    parameters = [candidate] if isinstance(candidate, str) else list(candidate)
    needed = [*parameters, propensity, *metrics, *features, *([] if unit is None else [unit])]
    if missing := [name for name in needed if name not in columns]:
        raise HistoryError(f"the log has no column {missing[0]!r}; its columns are {', '.join(map(repr, columns))}")
    settings = list(zip(*(_plain_column(columns[name], name) for name in parameters), strict=True))
    places = {setting: place for place, setting in enumerate(dict.fromkeys(settings))}
    rows = len(settings)
    units = LoggedUnits(
        np.array([places[setting] for setting in settings], dtype=np.intp),
        _read_propensities(columns[propensity], propensity),
        np.array([_read_numbers(columns[name], name) for name in metrics]).T,
        np.arange(rows, dtype=np.intp) if unit is None else _number_units(_plain_column(columns[unit], unit)),
        _read_features({name: columns[name] for name in features}) if features else None,
    )
    estimates = estimate_off_policy(units, method)
    history_rows, left_out = [], []
    for setting, place in places.items():
        estimate = estimates[place]
        name = ", ".join(map(str, setting))
        if estimate.effective_units < MIN_EFFECTIVE_UNITS:
            left_out.append(f"{name} ({estimate.effective_units:.1f})")
            continue
        if abs(estimate.mean_weight - 1.0) > MAX_WEIGHT_DEVIATIONS * estimate.mean_weight_error + 1e-9:
            _warn(
                f"the propensities of {name} do not add up: 1/{propensity} of its rows sums to "
                f"{estimate.mean_weight:.3g} times the rows of the log, instead of 1. They must be the probability of "
                "the row's own candidate, and every row must have been able to get every candidate"
            )
        values: dict[str, Value] | None = dict(zip(parameters, setting, strict=True))
        named = isinstance(candidate, str)
        history_rows.append(
            HistoryRow(
                str(setting[0]) if named else None,
                None if named else values,
                tuple(estimate.means.tolist()),
                estimate.effective_units,
                tuple(map(tuple, estimate.covariance.tolist())),
            )
        )
    if not history_rows:
        raise HistoryError(
            f"no candidate of the log has {MIN_EFFECTIVE_UNITS:g} effective units; give more rows. Its {len(places):,} "
            f"candidates come from the column {', '.join(map(repr, parameters))}"
        )
    if left_out:
        first, others = ", ".join(left_out[:MAX_NAMED_CANDIDATES]), len(left_out) - MAX_NAMED_CANDIDATES
        more = f" and {others:,} more" if others > 0 else ""
        _warn(f"candidates with less than {MIN_EFFECTIVE_UNITS:g} effective units are left out: {first}{more}")
    return History(tuple(metrics), tuple(history_rows))


def _read_propensities(given: Any, name: str) -> FloatArray:
    """Return probabilities above zero; the error counts the rows that have none."""
    numbers = np.array([_number(value) for value in given])
    bad = np.flatnonzero(~((numbers > 0.0) & (numbers <= 1.0)))
    if len(bad):
        first = int(bad[0])
        raise HistoryError(
            f"the column {name!r} must be the probability with which the row's candidate was drawn, above 0 and at "
            f"most 1; got {given[first]!r} in row {first + 1}, and {len(bad):,} of {len(numbers):,} rows are not "
            "usable. Without logged propensities a log cannot be reweighted: leave such rows out only if they are "
            "missing for reasons that have nothing to do with the candidate"
        )
    return numbers


def _read_numbers(given: Any, name: str) -> list[float]:
    numbers = [_number(value) for value in given]
    for row, number in enumerate(numbers, start=1):
        if not math.isfinite(number):
            raise HistoryError(
                f"the column {name!r} of the log must be numbers, got {given[row - 1]!r} in row {row}; write 0 for a "
                "unit without events"
            )
    return numbers


def _number(value: Any) -> float:
    """Return a number, or NaN for anything else."""
    if value is None or isinstance(value, str):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _plain_column(given: Any, name: str) -> list[Value]:
    """Return a column as values of Python."""
    values = given.tolist() if isinstance(given, np.ndarray) else list(given)
    for row, value in enumerate(values, start=1):
        if not isinstance(value, (str, bool, int, float, np.generic)) or value != value:
            raise HistoryError(f"the column {name!r} of the log has {value!r} in row {row}; give every row a value")
    return [cast(Value, value.item()) if isinstance(value, np.generic) else value for value in values]


def _number_units(values: list[Value]) -> NDArray[np.intp]:
    """Return the place of each row's unit among all units."""
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return np.array([places[value] for value in values], dtype=np.intp)


def _read_features(columns: Mapping[str, Any]) -> FloatArray:
    """Return numbers as they are, and texts one-hot, (rows, features)."""
    parts = []
    for name, given in columns.items():
        if not is_text(given):
            parts.append(_read_numbers(given, name))
            continue
        levels = dict.fromkeys(given)
        if len(levels) > MAX_LEVELS:
            raise HistoryError(
                f"the feature {name!r} has {len(levels):,} different texts, more than {MAX_LEVELS}; group them, or "
                "leave it out"
            )
        parts += [[float(value == level) for value in given] for level in list(levels)[1:]]
    return np.array(parts, dtype=float).reshape(len(parts), -1).T


def _warn(message: str) -> None:
    warnings.warn(message, PastoWarning, stacklevel=3)
