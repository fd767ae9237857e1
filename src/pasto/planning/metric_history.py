"""Metric history: facts about metrics from earlier data, as a table of metrics, of candidates or of single units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import MeansError
from pasto.planning.study_outline import FactSource, MetricFacts

METRIC_COLUMN, UNITS_COLUMN = "metric", "units"
DEVIATION_SUFFIX, ERROR_SUFFIX, COVARIANCE_SUFFIX = "_std", "_se", "_cov"
MIN_SAMPLE_UNITS = 30
"""Rows of single units that a deviation is computed from."""
MIN_CANDIDATES = 4
"""Candidates from which their spread is estimated."""
MIN_SPREAD_PART = 0.1
"""Least variance between candidates, as a part of the noise of a typical one."""

Columns = Mapping[str, Sequence[Any]]


def read_metric_history(columns: Columns, halves: Mapping[str, tuple[str, str] | None]) -> dict[str, MetricFacts]:
    """Return facts about metrics from a table; `halves` has the columns of each ratio, and None for other metrics.

    Three kinds of tables are read, by their columns:

    - `metric`, `mean`, `std` and perhaps `spread`: a row for each metric.
    - metrics with their `_se` (and `units`) or `_std`: a row for each candidate, as in the history of a study.
    - the metrics alone: a row for each unit.

    >>> read_metric_history({"metric": ["likes"], "mean": [0.5], "std": ["1.5"]}, {"likes": None})["likes"].deviation
    1.5
    """
    if METRIC_COLUMN in columns:
        return _read_metric_rows(columns, list(halves))
    names = [name for name, parts in halves.items() if _has_columns(columns, name, parts)]
    if not names:
        raise MeansError(
            f"the history has none of the metrics {', '.join(halves)}; its columns are {', '.join(columns)}"
        )
    suffixes = (DEVIATION_SUFFIX, ERROR_SUFFIX)
    if any(f"{column}{suffix}" in columns for column in columns for suffix in suffixes):
        return {name: _read_candidates(columns, name, halves[name]) for name in names}
    if UNITS_COLUMN in columns or "candidate" in columns:
        raise MeansError(
            f"the history has a row for each candidate, and no error of {names[0]}; add the column "
            f"{names[0] + ERROR_SUFFIX!r} with the standard error of each mean, or {names[0] + DEVIATION_SUFFIX!r} "
            "with the standard deviation of one unit"
        )
    return {name: _read_sample(columns, name, halves[name]) for name in names}


def effect_spread(effects: FloatArray, variances: FloatArray) -> float:
    """Return the standard deviation of true effects from estimates with known error variances.

    It is the variance between estimates less the mean error variance, and at least a tenth of the latter.

    >>> round(effect_spread(np.array([0.0, 2.0, 4.0]), np.array([1.0, 1.0, 1.0])), 3)
    1.732
    """
    noise = float(np.mean(variances))
    return math.sqrt(max(float(np.var(effects, ddof=1)) - noise, MIN_SPREAD_PART * noise))


def _read_metric_rows(columns: Columns, names: Sequence[str]) -> dict[str, MetricFacts]:
    """Return facts from a table with a row for each metric."""
    if "mean" not in columns and "std" not in columns:
        raise MeansError(
            "a history with the column 'metric' needs the columns 'mean' and 'std', the standard deviation of one "
            f"unit; its columns are {', '.join(columns)}"
        )
    facts = {}
    for row, name in enumerate(columns[METRIC_COLUMN]):
        if name in facts:
            raise MeansError(f"the history has {name!r} twice; keep one row for each metric")
        if name in names:
            mean, deviation, spread = (_optional(columns, label, row) for label in ("mean", "std", "spread"))
            facts[name] = _facts(mean, deviation, spread)
    if not facts:
        found = ", ".join(map(str, columns[METRIC_COLUMN]))
        raise MeansError(f"the history has none of the metrics {', '.join(names)}; it has {found}")
    return facts


def _read_candidates(columns: Columns, name: str, parts: tuple[str, str] | None) -> MetricFacts:
    """Return facts about one metric from a table with a row for each candidate."""
    level = _CandidateLevels.read(columns, name, parts)
    mean = float(level.units @ level.means / level.units.sum())
    deviation = None
    if level.unit_variances is not None:
        deviation = math.sqrt(float(level.units @ level.unit_variances / level.units.sum()))
    spread = None
    if level.error_variances is not None and len(level.means) >= MIN_CANDIDATES and mean:
        spread = effect_spread(level.means, level.error_variances) / abs(mean)
    return _facts(mean, deviation, spread)


@dataclass(frozen=True, slots=True, eq=False)
class _CandidateLevels:
    """Levels of a metric or a ratio by candidate."""

    means: FloatArray
    units: FloatArray
    """Units of each candidate; ones if they are not known."""
    error_variances: FloatArray | None
    unit_variances: FloatArray | None

    @classmethod
    def read(cls, columns: Columns, name: str, parts: tuple[str, str] | None) -> _CandidateLevels:
        """Read the columns of a metric; a ratio has its own, or those of its halves."""
        if name in columns or parts is None:
            return cls._of(columns, _numbers(columns, name), _squares(columns, name, ERROR_SUFFIX),
                           _squares(columns, name, DEVIATION_SUFFIX))  # fmt: skip
        top, bottom = (_numbers(columns, part) for part in parts)
        if not (bottom > 0).all():
            raise MeansError(f"the column {parts[1]!r} of the history must be positive; {name} is divided by it")
        level = float(top.sum() / bottom.sum())

        def of_ratio(suffix: str) -> FloatArray | None:
            over, under = (_squares(columns, part, suffix) for part in parts)
            if over is None or under is None:
                return None
            shared = np.zeros(len(top))
            for pair in (f"{parts[0]}_{parts[1]}", f"{parts[1]}_{parts[0]}"):
                if suffix == ERROR_SUFFIX and pair + COVARIANCE_SUFFIX in columns:
                    shared = _numbers(columns, pair + COVARIANCE_SUFFIX)
            # The ratio is nearly (N − level · D) / mean of D.
            return np.asarray((over - 2.0 * level * shared + level**2 * under) / bottom**2)

        return cls._of(columns, top / bottom, of_ratio(ERROR_SUFFIX), of_ratio(DEVIATION_SUFFIX))

    @classmethod
    def _of(
        cls, columns: Columns, means: FloatArray, errors: FloatArray | None, variances: FloatArray | None
    ) -> _CandidateLevels:
        units = np.ones(len(means))
        if UNITS_COLUMN in columns:
            units = _numbers(columns, UNITS_COLUMN)
            if not (units > 0).all():
                raise MeansError("the column 'units' of the history must be positive; leave empty rows out")
            variances = units * errors if variances is None and errors is not None else variances
            errors = variances / units if errors is None and variances is not None else errors
        return cls(means, units, errors, variances)


def _read_sample(columns: Columns, name: str, parts: tuple[str, str] | None) -> MetricFacts:
    """Return facts about one metric from a table with a row for each unit."""
    if parts is not None and not all(part in columns for part in parts):
        raise MeansError(
            f"{name} is a ratio of means, which single units do not have; give its halves in the columns {parts[0]!r} "
            f"and {parts[1]!r}"
        )
    values = [_numbers(columns, column) for column in (parts or (name,))]
    if len(values[0]) < MIN_SAMPLE_UNITS:
        raise MeansError(
            f"the history has {len(values[0])} rows without errors, and a sample of single units needs at least "
            f"{MIN_SAMPLE_UNITS}; for a row for each candidate, add the columns 'units' and {name + ERROR_SUFFIX!r}"
        )
    if parts is None:
        return _facts(float(values[0].mean()), float(values[0].std(ddof=1)), None)
    top, bottom = values
    if not bottom.mean() > 0:
        raise MeansError(f"the mean of {parts[1]!r} in the history must be positive; {name} is divided by it")
    level = float(top.mean() / bottom.mean())
    return _facts(level, float((top - level * bottom).std(ddof=1) / bottom.mean()), None)


def _facts(mean: float | None, deviation: float | None, spread: float | None) -> MetricFacts:
    """Return facts whose source is the history."""
    known: dict[str, float | None] = {"mean": mean, "deviation": deviation, "spread": spread}
    sources: dict[str, FactSource] = {label: "history" for label, value in known.items() if value is not None}
    return MetricFacts(mean, deviation, spread, sources)


def _has_columns(columns: Columns, name: str, parts: tuple[str, str] | None) -> bool:
    return name in columns or (parts is not None and all(part in columns for part in parts))


def _squares(columns: Columns, name: str, suffix: str) -> FloatArray | None:
    """Return the squares of a column of errors or deviations; None if the table has no such column."""
    if name + suffix not in columns:
        return None
    numbers = _numbers(columns, name + suffix)
    if (numbers < 0).any():
        raise MeansError(f"the column {name + suffix!r} of the history must not be negative")
    return np.square(numbers)


def _numbers(columns: Columns, name: str) -> FloatArray:
    """Return a column as numbers; MeansError names the row that has none."""
    return np.array([_number(columns, name, row) for row in range(len(columns[name]))])


def _optional(columns: Columns, name: str, row: int) -> float | None:
    """Return a number, or None if the column or the cell is missing."""
    if name not in columns or columns[name][row] in (None, ""):
        return None
    return _number(columns, name, row)


def _number(columns: Columns, name: str, row: int) -> float:
    """Return a finite number; 2% is 0.02."""
    cell = columns[name][row]
    text = cell.strip() if isinstance(cell, str) else cell
    try:
        number = float(text[:-1]) / 100.0 if isinstance(text, str) and text.endswith("%") else float(text)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(cell, bool) or not math.isfinite(number):
        raise MeansError(f"column {name!r} of the history must be a number, got {cell!r} in row {row + 1}")
    return number
