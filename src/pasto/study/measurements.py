"""Checking what is told to a study, at the door and all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pasto.errors import BadMeasurement
from pasto.optimize.learners.protocol import Array
from pasto.records import Observation
from pasto.study.measurement_tables import Labels, match_rows
from pasto.tables import read_columns, read_table

LARGEST = 1e15
"""Nothing measured on units is larger; beyond it a double no longer tells neighbouring numbers apart."""


def vectors(
    told: Any, metrics: tuple[str, ...], count: int, what: str, assignments: Sequence[Labels] | None = None
) -> Array:
    """(count, metrics) finite numbers from an array, a list of vectors, a list of dicts or a data frame."""
    if isinstance(told, Mapping):
        if assignments is not None and any(_is_column(value) for value in told.values()):
            told = match_rows(read_columns(told, BadMeasurement), metrics, assignments, what)
        else:
            told = [told]
    if assignments is not None and (table := read_table(told, BadMeasurement)) is not None:
        told = match_rows(table, metrics, assignments, what)
    if not isinstance(told, np.ndarray) and (isinstance(told, (str, bytes)) or not isinstance(told, Sequence)):
        raise BadMeasurement(
            f"{what} must be an array ({count}, {len(metrics)}), a list of dicts or a data frame, got {told!r}"
        )
    if len(told) and any(isinstance(row, Mapping) for row in told):
        told = [_row(row, metrics, what, place) for place, row in enumerate(told)]
    try:
        values = np.asarray(told)
        numbers = values.astype(float)
    except (TypeError, ValueError) as error:
        raise BadMeasurement(f"{what} must be numbers, one row of {metrics} for each assignment: {error}") from error
    if values.dtype.kind not in "iuf":
        raise BadMeasurement(f"{what} must be numbers, got {_not_a_number(told, values)}")
    if numbers.shape == (len(metrics),) and count == 1:
        numbers = numbers[None]
    if numbers.shape != (count, len(metrics)):
        raise BadMeasurement(
            f"{what} must have shape {(count, len(metrics))}, one row for each assignment in the order {metrics}, got "
            f"{numbers.shape}"
        )
    _finite(numbers, metrics, what)
    return numbers


def unit_counts(units: Any, count: int, assignments: Sequence[Labels] = ()) -> Array:
    """Return how many units are behind each of `count` assignments, from one number for all or one for each."""
    if (table := read_table(units, BadMeasurement)) is not None:
        counted = [name for name in table.columns if name not in table.text_columns()]
        if len(counted) != 1:
            raise BadMeasurement(f"units must be one column of numbers, got {table.listed()}")
        units = [row[0] for row in match_rows(table, counted, assignments, "units")]
    try:
        counts = np.broadcast_to(np.asarray(units, dtype=float), (count,))
    except (TypeError, ValueError) as error:
        raise BadMeasurement(
            f"units must be one number, or one for each of the {count} assignments: {error}"
        ) from error
    if not ((counts > 0) & (counts <= LARGEST)).all():
        raise BadMeasurement("units must be positive numbers; drop an assignment that no unit saw")
    return counts


def observed(observations: Sequence[Observation], metrics: tuple[str, ...], candidates: int) -> Sequence[Observation]:
    """Check the observations of one round: one version, known candidates, finite means, usable covariances."""
    if not observations:
        raise BadMeasurement("a round needs at least one observation")
    versions = sorted({observation.version for observation in observations})
    if len(versions) > 1:
        raise BadMeasurement(f"one call observes one round, got policy versions {versions}; observe them one by one")
    for place, seen in enumerate(observations):
        what = f"observation {place}"
        if isinstance(seen.candidate, bool) or not 0 <= seen.candidate < candidates:
            raise BadMeasurement(f"{what} names candidate {seen.candidate!r}; this study has 0 to {candidates - 1}")
        if not 0 < seen.units < float("inf"):
            raise BadMeasurement(f"{what} has {seen.units!r} units; leave out candidates that no unit saw")
        vectors([list(seen.mean)], metrics, 1, f"the mean of {what}")
        if seen.covariance is not None:
            _covariance(seen, len(metrics), what)
    learned = [seen.candidate for seen in observations if not seen.control]
    if len(set(learned)) < len(learned):
        twice = next(candidate for candidate in learned if learned.count(candidate) > 1)
        raise BadMeasurement(f"candidate {twice} is observed twice in one round; merge its units into one observation")
    return observations


def _row(row: Any, metrics: tuple[str, ...], what: str, place: int) -> list[Any]:
    if not isinstance(row, Mapping):
        raise BadMeasurement(f"row {place} of {what} is not a dict like the others, got {row!r}")
    if missing := [name for name in metrics if name not in row]:
        raise BadMeasurement(f"row {place} of {what} lacks {missing[0]!r}; this study measures {metrics}")
    if unknown := [name for name in row if name not in metrics]:
        raise BadMeasurement(f"row {place} of {what} has {unknown[0]!r}, which this study does not measure: {metrics}")
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


def _finite(numbers: Array, metrics: tuple[str, ...], what: str) -> None:
    bad = ~(np.abs(numbers) <= LARGEST)  # catches NaN as well
    if bad.any():
        row, column = map(int, np.argwhere(bad)[0])
        raise BadMeasurement(
            f"{what} has {metrics[column]} = {numbers[row, column]} in row {row}; every value must be finite and at "
            f"most {LARGEST:g}. Nothing was recorded; drop that assignment or tell it again"
        )


def _covariance(seen: Observation, width: int, what: str) -> None:
    matrix = np.asarray(seen.covariance, dtype=float)
    if matrix.shape != (width, width) or not np.isfinite(matrix).all():
        raise BadMeasurement(f"the covariance of {what} must be {width} × {width} finite numbers, got {matrix.shape}")
    scale = float(np.abs(matrix).max())
    if scale and (np.abs(matrix - matrix.T).max() > 1e-9 * scale or np.linalg.eigvalsh(matrix)[0] < -1e-9 * scale):
        raise BadMeasurement(f"the covariance of {what} is not symmetric and positive semi-definite")
