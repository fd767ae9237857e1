"""Checking what is told to a study, at the door and all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from pasto.arrays import FloatArray
from pasto.data_frames import DataTable, read_columns, read_table
from pasto.errors import MeasurementError
from pasto.estimate import ControlMeans, Sample
from pasto.optimize.learners import RoundResult
from pasto.records import Observation, Policy
from pasto.space import Candidates

Labels = tuple[str, ...]
"""The texts that may label the row of one assignment: its id first, then its candidate's name and index."""

OBSERVATION_COLUMNS = ("version", "candidate", "units", "control")
"""Columns of an observed round that are not metrics."""


def match_rows(table: DataTable, metrics: Sequence[str], assignments: Sequence[Labels], what: str) -> list[list[Any]]:
    """Return one row of metrics for each assignment, in their order.

    Rows labelled by assignment ids may come in any order. Rows labelled by candidates must be in the order of the
    assignments, because several assignments may share a candidate.

    >>> table = DataTable({"y": [3.0, 1.0], "x": [4.0, 2.0]}, labels=("0/1", "0/0"))
    >>> match_rows(table, ("x", "y"), [("0/0", "a", "0"), ("0/1", "b", "1")], "metrics")
    [[2.0, 1.0], [4.0, 3.0]]
    """
    labels = table.row_names(None, MeasurementError, apart_from=metrics)
    _check_columns(table, [*metrics, *([] if labels.column is None else [labels.column])], metrics, what)
    for name in metrics:
        if not hasattr(table.columns[name], "__len__") or len(table.columns[name]) != len(table.columns[metrics[0]]):
            raise MeasurementError(
                f"the columns {metrics[0]!r} and {name!r} of {what} differ in length; give equal ones"
            )
    rows = [list(row) for row in zip(*(table.columns[name] for name in metrics), strict=True)]
    if len(rows) != len(assignments):
        raise MeasurementError(f"{what} has {len(rows)} rows for {len(assignments)} assignments; give one row for each")
    if labels.names is None:
        return rows
    by_label = dict(zip(labels.names, rows, strict=True))
    identities = [own[0] for own in assignments]
    if len(by_label) == len(rows) and by_label.keys() == set(identities):
        return [by_label[identity] for identity in identities]
    if all(label in own[1:] for label, own in zip(labels.names, assignments, strict=True)):
        return rows
    raise MeasurementError(
        f"the rows of {what} are labelled {_short(labels.names)}, which are neither the assignments' ids "
        f"({_short(identities)}) nor their candidates in the same order; label each row with its assignment's id, or "
        "leave the labels out (reset_index(drop=True) in pandas) to give the rows in the order of the assignments"
    )


def read_observations(
    given: Any, standard_errors: Any, metrics: Sequence[str], candidates: Candidates
) -> Sequence[Observation]:
    """Return observations as they are, or read them from a data frame with a row for each candidate."""
    table = read_table(given, MeasurementError)
    if table is None:
        if standard_errors is not None:
            raise MeasurementError("standard_errors= is for a data frame; an Observation carries its own covariance")
        return cast(Sequence[Observation], given)
    if clash := [name for name in metrics if name in OBSERVATION_COLUMNS]:
        raise MeasurementError(
            f"the metric {clash[0]!r} is called like a column that says something else; pass a list of "
            "pasto.Observation instead of a data frame"
        )
    places = _candidates(table, metrics, candidates)
    own = None if "candidate" in table.columns else table.row_names(None, MeasurementError, apart_from=metrics).column
    known = [*metrics, *OBSERVATION_COLUMNS, *([] if own is None else [own])]
    _check_columns(table, known, metrics, "the table of observations")
    for name, cure in (("version", "study.policy.version when it was served"), ("units", "how many units it had")):
        if name not in table.columns:
            raise MeasurementError(f"the table of observations lacks the column {name!r}; give each row {cure}")
    count = len(places)
    means = list(zip(*(table.columns[name] for name in metrics), strict=True))
    spreads: Sequence[Any] = [None] * count
    if standard_errors is not None:
        errors = read_table(standard_errors, MeasurementError)
        if errors is None:
            raise MeasurementError(
                "standard_errors must be a data frame with the rows and the metrics of the first one"
            )
        names = [(candidates.names[place], candidates.names[place], str(place)) for place in places]
        spreads = match_rows(errors, metrics, names, "standard_errors")
    controls = table.columns.get("control", [False] * count)
    if strange := [control for control in controls if not isinstance(control, bool)]:
        raise MeasurementError(f"the column 'control' must hold True or False, got {strange[0]!r}")
    return [
        Observation(version, place, units, mean, _read_covariance(spread), control)
        for version, place, units, mean, spread, control in zip(
            table.columns["version"], places, table.columns["units"], means, spreads, controls, strict=True
        )
    ]


def _candidates(table: DataTable, metrics: Sequence[str], candidates: Candidates) -> list[int]:
    """Return the candidate of each row, named in the column `candidate`, the index or a text column."""
    named = table.columns.get("candidate")
    if named is None:
        named = table.row_names(None, MeasurementError, apart_from=metrics).names
    if named is None:
        raise MeasurementError("the table of observations names no candidates; add a column 'candidate'")
    known = set(candidates.names)
    return [
        candidates.index(int(label) if isinstance(label, str) and label not in known and label.isdecimal() else label)
        for label in named
    ]


def _check_columns(table: DataTable, known: Sequence[str], metrics: Sequence[str], what: str) -> None:
    if missing := [name for name in metrics if name not in table.columns]:
        raise MeasurementError(f"{what} lacks the column {missing[0]!r}; it has {table.listed()}")
    if unknown := [name for name in table.columns if name not in known]:
        raise MeasurementError(
            f"{what} has the column {unknown[0]!r}, which this study does not measure; leave it out, as in "
            f"table[{list(metrics)!r}]"
        )


def _read_covariance(spread: Sequence[Any] | None) -> tuple[tuple[float, ...], ...] | None:
    """Return the covariance of means with independent standard errors."""
    if spread is None:
        return None
    try:
        variances = [float(error) ** 2 for error in spread]
    except (TypeError, ValueError) as error:
        raise MeasurementError(f"standard_errors must be numbers, got {list(spread)!r}") from error
    return tuple(
        tuple(variance if i == k else 0.0 for k in range(len(variances))) for i, variance in enumerate(variances)
    )


def _short(labels: Sequence[str]) -> str:
    return ", ".join(map(repr, labels[:3])) + (", …" if len(labels) > 3 else "")


LARGEST = 1e15
"""Nothing measured on units is larger; beyond it a double no longer tells neighbouring numbers apart."""


def vectors(
    told: Any, metrics: tuple[str, ...], count: int, what: str, assignments: Sequence[Labels] | None = None
) -> FloatArray:
    """(count, metrics) finite numbers from an array, a list of vectors, a list of dicts or a data frame."""
    if isinstance(told, Mapping):
        if assignments is not None and any(_is_column(value) for value in told.values()):
            told = match_rows(read_columns(told, MeasurementError), metrics, assignments, what)
        else:
            told = [told]
    if assignments is not None and (table := read_table(told, MeasurementError)) is not None:
        told = match_rows(table, metrics, assignments, what)
    if not isinstance(told, np.ndarray) and (isinstance(told, (str, bytes)) or not isinstance(told, Sequence)):
        raise MeasurementError(
            f"{what} must be an array ({count}, {len(metrics)}), a list of dicts or a data frame, got {told!r}"
        )
    if len(told) and any(isinstance(row, Mapping) for row in told):
        told = [_row(row, metrics, what, place) for place, row in enumerate(told)]
    try:
        values = np.asarray(told)
        numbers = values.astype(float)
    except (TypeError, ValueError) as error:
        raise MeasurementError(f"{what} must be numbers, one row of {metrics} for each assignment: {error}") from error
    if values.dtype.kind not in "iuf":
        raise MeasurementError(f"{what} must be numbers, got {_not_a_number(told, values)}")
    if numbers.shape == (len(metrics),) and count == 1:
        numbers = numbers[None]
    if numbers.shape != (count, len(metrics)):
        raise MeasurementError(
            f"{what} must have shape {(count, len(metrics))}, one row for each assignment in the order {metrics}, got "
            f"{numbers.shape}"
        )
    _finite(numbers, metrics, what)
    return numbers


def unit_counts(units: Any, count: int, assignments: Sequence[Labels] = ()) -> FloatArray:
    """Return how many units are behind each of `count` assignments, from one number for all or one for each."""
    if (table := read_table(units, MeasurementError)) is not None:
        counted = [name for name in table.columns if name not in table.text_columns()]
        if len(counted) != 1:
            raise MeasurementError(f"units must be one column of numbers, got {table.listed()}")
        units = [row[0] for row in match_rows(table, counted, assignments, "units")]
    try:
        counts = np.broadcast_to(np.asarray(units, dtype=float), (count,))
    except (TypeError, ValueError) as error:
        raise MeasurementError(
            f"units must be one number, or one for each of the {count} assignments: {error}"
        ) from error
    if not ((counts > 0) & (counts <= LARGEST)).all():
        raise MeasurementError("units must be positive numbers; drop an assignment that no unit saw")
    return counts


def observed(observations: Sequence[Observation], metrics: tuple[str, ...], candidates: int) -> Sequence[Observation]:
    """Check the observations of one round: one version, known candidates, finite means, usable covariances."""
    if not observations:
        raise MeasurementError("a round needs at least one observation")
    versions = sorted({observation.version for observation in observations})
    if len(versions) > 1:
        raise MeasurementError(f"one call observes one round, got policy versions {versions}; observe them one by one")
    for place, seen in enumerate(observations):
        what = f"observation {place}"
        if isinstance(seen.candidate, bool) or not 0 <= seen.candidate < candidates:
            raise MeasurementError(f"{what} names candidate {seen.candidate!r}; this study has 0 to {candidates - 1}")
        if not 0 < seen.units < float("inf"):
            raise MeasurementError(f"{what} has {seen.units!r} units; leave out candidates that no unit saw")
        vectors([list(seen.mean)], metrics, 1, f"the mean of {what}")
        if seen.covariance is not None:
            _check_covariance(seen, len(metrics), what)
    learned = [seen.candidate for seen in observations if not seen.control]
    if len(set(learned)) < len(learned):
        twice = next(candidate for candidate in learned if learned.count(candidate) > 1)
        raise MeasurementError(
            f"candidate {twice} is observed twice in one round; merge its units into one observation"
        )
    return observations


def _row(row: Any, metrics: tuple[str, ...], what: str, place: int) -> list[Any]:
    if not isinstance(row, Mapping):
        raise MeasurementError(f"row {place} of {what} is not a dict like the others, got {row!r}")
    if missing := [name for name in metrics if name not in row]:
        raise MeasurementError(f"row {place} of {what} lacks {missing[0]!r}; this study measures {metrics}")
    if unknown := [name for name in row if name not in metrics]:
        raise MeasurementError(
            f"row {place} of {what} has {unknown[0]!r}, which this study does not measure: {metrics}"
        )
    return [row[name] for name in metrics]


def _is_column(value: Any) -> bool:
    """Return whether a value of a mapping holds one number for each assignment."""
    return hasattr(value, "__len__") and not isinstance(value, (str, bytes))


def _not_a_number(told: Any, values: Any) -> str:
    """Return the first value that is not a number, with its row, for a message."""
    for place, row in enumerate(told):
        for value in row if isinstance(row, (list, tuple)) else [row]:
            if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
                return f"{value!r} in row {place}; drop an assignment that was not measured"
    return f"{values.dtype} values"


def _finite(numbers: FloatArray, metrics: tuple[str, ...], what: str) -> None:
    bad = ~(np.abs(numbers) <= LARGEST)  # catches NaN as well
    if bad.any():
        row, column = map(int, np.argwhere(bad)[0])
        raise MeasurementError(
            f"{what} has {metrics[column]} = {numbers[row, column]} in row {row}; every value must be finite and at "
            f"most {LARGEST:g}. Nothing was recorded; drop that assignment or tell it again"
        )


def _check_covariance(seen: Observation, width: int, what: str) -> None:
    matrix = np.asarray(seen.covariance, dtype=float)
    if matrix.shape != (width, width) or not np.isfinite(matrix).all():
        raise MeasurementError(f"the covariance of {what} must be {width} × {width} finite numbers, got {matrix.shape}")
    scale = float(np.abs(matrix).max())
    if scale and (np.abs(matrix - matrix.T).max() > 1e-9 * scale or np.linalg.eigvalsh(matrix)[0] < -1e-9 * scale):
        raise MeasurementError(f"the covariance of {what} is not symmetric and positive semi-definite")


def observed_round(seen: Sequence[Observation], policy: Policy) -> RoundResult:
    """What was observed under a policy: every unit is a draw, so a candidate's share is its units over all units.

    >>> seen = [Observation(0, k, units=30 * k, mean=(float(k),)) for k in (1, 2)]
    >>> observed_round(seen, Policy(0, (0.2, 0.4, 0.4))).sample.shares.round(3).tolist()
    [0.333, 0.667]
    """
    learning = [observation for observation in seen if not observation.control]
    if not learning:
        raise MeasurementError("every observation is marked as control; the policy's own units are needed to learn")
    probabilities = np.array([policy.probabilities[observation.candidate] for observation in learning])
    if not probabilities.all():
        stray = learning[int(np.argmin(probabilities))].candidate
        raise MeasurementError(
            f"candidate {stray} was not served by policy version {policy.version}: its probability is 0"
        )
    units = np.array([observation.units for observation in learning])
    covariances = None
    if all(observation.covariance is not None for observation in learning):
        covariances = np.array([observation.covariance for observation in learning])
    return RoundResult(
        served=np.array(policy.probabilities),
        sample=Sample(
            candidates=np.array([observation.candidate for observation in learning], dtype=np.intp),
            metrics=np.array([observation.mean for observation in learning], dtype=float),
            probabilities=probabilities,
            shares=units / units.sum(),
        ),
        covariances=covariances,
        units=units,
        control=_control([observation for observation in seen if observation.control]),
    )


def _control(seen: Sequence[Observation]) -> ControlMeans | None:
    """ControlMeans observations of a round, pooled by their units; None where there are none, or no covariances."""
    if not seen or any(observation.covariance is None for observation in seen):
        return None
    units = np.array([observation.units for observation in seen])
    shares = units / units.sum()
    mean = shares @ np.array([observation.mean for observation in seen])
    covariance = np.einsum("q,qij->ij", shares**2, np.array([observation.covariance for observation in seen]))
    return ControlMeans(mean, covariance, float(units.sum()))
