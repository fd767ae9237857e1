"""Unit table: a row for each unit of a round, averaged to the observations of the round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pasto.data_frames import read_columns, read_table
from pasto.errors import MeasurementError
from pasto.observation import Observation
from pasto.space import Candidates
from pasto.study.observation_validation import OBSERVATION_COLUMNS, read_candidates, read_vectors

UNIT_COLUMNS = ("version", "candidate", "control")
"""Columns of a table of units that are neither metrics nor covariates."""


def average_units(
    given: Any, standard_errors: Any, metrics: Sequence[str], covariates: Sequence[str], candidates: Candidates
) -> list[Observation]:
    """Return one observation for each candidate, and one for the control, with covariates and the joint covariance.

    A candidate with one unit has the covariance of one unit that the others have. If no candidate has two units, there
    is none, and the covariates are left out.

    >>> candidates = Candidates.from_rows([{"w": 0}, {"w": 1}])
    >>> users = {"version": [0] * 3, "candidate": [0, 0, 1], "watch": [1.0, 3.0, 5.0], "before": [0.0, 2.0, 3.0]}
    >>> for observation in average_units(users, None, ["watch"], ["before"], candidates):
    ...     print(observation.candidate, observation.mean, observation.covariates, observation.covariance)
    0 (2.0,) (1.0,) ((1.0, 1.0), (1.0, 1.0))
    1 (5.0,) (3.0,) ((2.0, 2.0), (2.0, 2.0))
    """
    table = read_columns(given, MeasurementError) if isinstance(given, Mapping) else read_table(given, MeasurementError)
    if table is None:
        raise MeasurementError(
            "covariates= names columns of a data frame with a row for each unit; an Observation has its own covariates"
        )
    if standard_errors is not None or "units" in table.columns:
        surplus = "the table has a column 'units'" if "units" in table.columns else "standard_errors= was given"
        raise MeasurementError(
            f"covariates= needs a data frame with a row for each unit, but {surplus}; leave it out, or pass "
            "pasto.Observation with the covariance of metrics and covariates"
        )
    columns = (*metrics, *covariates)
    if clash := [name for name in columns if name in OBSERVATION_COLUMNS or columns.count(name) > 1]:
        raise MeasurementError(f"the column {clash[0]!r} has two meanings; rename one, or pass pasto.Observation")
    if missing := [name for name in ("version", "candidate", *columns) if name not in table.columns]:
        raise MeasurementError(f"the table of units lacks the column {missing[0]!r}; it has {table.listed()}")
    if unknown := [name for name in table.columns if name not in (*UNIT_COLUMNS, *columns)]:
        raise MeasurementError(f"the table of units has the column {unknown[0]!r}, which is not measured; leave it out")
    if len(set(table.columns["version"])) > 1:
        raise MeasurementError(
            f"one call observes one round, got policy versions {sorted(set(table.columns['version']))}; observe them "
            "one by one"
        )
    places = np.array(read_candidates(table, metrics, candidates))
    values = read_vectors(
        [list(row) for row in zip(*(table.columns[name] for name in columns), strict=True)],
        columns,
        len(places),
        "the table of units",
    )
    controls = np.array(table.columns.get("control", [False] * len(places)))
    if controls.dtype != np.bool_:
        raise MeasurementError(f"the column 'control' must hold True or False, got {controls.tolist()[0]!r}")
    cells = [(control, k) for control in (False, True) for k in sorted(set(places[controls == control].tolist()))]
    rows = [values[(controls == control) & (places == k)] for control, k in cells]
    products = [(centred := row - row.mean(axis=0)).T @ centred for row in rows]
    degrees = len(values) - len(rows)
    pooled = np.sum(products, axis=0) / max(degrees, 1)
    width = len(metrics)
    observations = []
    for (control, k), row, product in zip(cells, rows, products, strict=True):
        units, mean = len(row), row.mean(axis=0).tolist()
        covariance = pooled if units == 1 else product / (units - 1) / units
        observations.append(
            Observation(
                version=table.columns["version"][0],
                candidate=k,
                units=units,
                mean=tuple(mean[:width]),
                covariance=tuple(map(tuple, covariance.tolist())) if degrees else None,
                control=control,
                covariates=tuple(mean[width:]) if degrees else (),
            )
        )
    return observations
