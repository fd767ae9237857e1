"""Validation of observations: measurements that a caller passes to a study, checked before anything is recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from pasto.arrays import FloatArray
from pasto.data_frames import DataTable, read_columns, read_table
from pasto.errors import MeasurementError
from pasto.estimate import ControlMeans, Sample
from pasto.observation import Observation
from pasto.optimize.learners import RoundCovariates, RoundResult
from pasto.space import Candidates
from pasto.study.assignment import Assignment, Policy
from pasto.study.pending_rounds import Measurement

Labels = tuple[str, ...]
"""The texts that may label the row of one assignment: its id first, then its candidate's name and index."""

MAX_METRIC = 1e15
"""Nothing measured on units is larger; above it a double no longer separates neighbouring numbers."""

OBSERVATION_COLUMNS = ("version", "candidate", "units", "control", "segment")
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


def read_identities(assignments: Assignment | str | Sequence[Assignment | str]) -> list[str]:
    """Return the ids of assignments, which may be given themselves or by their ids."""
    several = [assignments] if isinstance(assignments, (Assignment, str)) else list(assignments)
    if not several:
        raise MeasurementError("no assignment was given")
    return [assignment.id if isinstance(assignment, Assignment) else assignment for assignment in several]


def read_measurements(
    metrics: Any,
    standard_errors: Any,
    units: Any,
    covariates: Any,
    names: tuple[str, ...],
    assignments: Sequence[Labels],
) -> list[Measurement]:
    """Return the measurement of each assignment; `names` are the metrics in the objective's order."""
    count = len(assignments)
    values = read_vectors(metrics, names, count, "metrics", assignments)
    errors: list[list[float] | None] = [None] * count
    if standard_errors is not None:
        deviations = read_vectors(standard_errors, names, count, "standard_errors", assignments)
        if (deviations < 0).any():
            raise MeasurementError("standard_errors cannot be negative")
        errors = list(deviations.tolist())
    counts: list[float | None] = [None] * count
    if units is not None:
        counts = list(read_unit_counts(units, count, assignments).tolist())
    past: list[list[float] | None] = [None] * count
    if covariates is not None:
        if standard_errors is not None:
            raise MeasurementError(
                "covariates= and standard_errors= were both given, but errors do not state how metrics and covariates "
                "vary together; leave the errors out, or use observe() with the covariance of both"
            )
        past = list(read_covariates(covariates, count, assignments).tolist())
    return [Measurement(*row) for row in zip(values.tolist(), errors, counts, past, strict=True)]


def read_covariates(given: Any, count: int, assignments: Sequence[Labels]) -> FloatArray:
    """Return (count, covariates) finite numbers; columns that have names are put in the order of their names.

    >>> read_covariates([2.0, 3.0], 2, []).tolist()
    [[2.0], [3.0]]
    >>> read_covariates([{"visits": 2, "minutes": 30.5}], 1, []).tolist()
    [[30.5, 2.0]]
    """
    table = read_table(given, MeasurementError)
    if table is not None:
        names = sorted(set(table.columns) - set(table.text_columns()))
    elif isinstance(given, Mapping):
        names = sorted(given)
    elif isinstance(given, Sequence) and given and isinstance(given[0], Mapping):
        names = sorted(given[0])
    else:
        shape = np.shape(given)
        if len(shape) == 1 and shape[0] == count:
            given = [[value] for value in given]
        names = [f"covariate {number}" for number in range(np.shape(given)[-1] if np.ndim(given) else 0)]
    if not names:
        raise MeasurementError("covariates= has no columns of numbers; give one row of numbers for each assignment")
    return read_vectors(given, tuple(names), count, "covariates", assignments)


def read_observations(
    given: Any, standard_errors: Any, metrics: Sequence[str], candidates: Candidates
) -> Sequence[Observation]:
    """Return observations as they are, or read them from a data frame with a row for each candidate."""
    table = None if isinstance(given, (list, tuple)) else read_table(given, MeasurementError)
    if table is None:
        if standard_errors is not None:
            raise MeasurementError("standard_errors= is for a data frame; an Observation carries its own covariance")
        return cast(Sequence[Observation], given)
    if clash := [name for name in metrics if name in OBSERVATION_COLUMNS]:
        raise MeasurementError(
            f"the metric {clash[0]!r} is called like a column with another meaning; pass a list of "
            "pasto.Observation instead of a data frame"
        )
    places = read_candidates(table, metrics, candidates)
    own = None if "candidate" in table.columns else table.row_names(None, MeasurementError, apart_from=metrics).column
    allowed = [*metrics, *OBSERVATION_COLUMNS, *([] if own is None else [own])]
    _check_columns(table, allowed, metrics, "the table of observations")
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
    segments = table.columns.get("segment", [None] * count)
    return [
        Observation(version, place, units, mean, _read_covariance(spread), control, segment=segment)
        for version, place, units, mean, spread, control, segment in zip(
            table.columns["version"], places, table.columns["units"], means, spreads, controls, segments, strict=True
        )
    ]


def read_candidates(table: DataTable, metrics: Sequence[str], candidates: Candidates) -> list[int]:
    """Return the candidate of each row, named in the column `candidate`, the index or a text column."""
    named = table.columns.get("candidate")
    if named is None:
        named = table.row_names(None, MeasurementError, apart_from=metrics).names
    if named is None:
        raise MeasurementError("the table of observations names no candidates; add a column 'candidate'")
    names = set(candidates.names)
    return [
        candidates.index(int(label) if isinstance(label, str) and label not in names and label.isdecimal() else label)
        for label in named
    ]


def _check_columns(table: DataTable, allowed: Sequence[str], metrics: Sequence[str], what: str) -> None:
    if missing := [name for name in metrics if name not in table.columns]:
        raise MeasurementError(f"{what} lacks the column {missing[0]!r}; it has {table.listed()}")
    if unknown := [name for name in table.columns if name not in allowed]:
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


def read_vectors(
    given: Any, metrics: tuple[str, ...], count: int, what: str, assignments: Sequence[Labels] | None = None
) -> FloatArray:
    """Return (count, metrics) finite numbers from an array, a list of vectors, a list of dicts or a data frame."""
    if isinstance(given, Mapping):
        if assignments is not None and any(_is_column(value) for value in given.values()):
            given = match_rows(read_columns(given, MeasurementError), metrics, assignments, what)
        else:
            given = [given]
    if assignments is not None and (table := read_table(given, MeasurementError)) is not None:
        given = match_rows(table, metrics, assignments, what)
    if not isinstance(given, np.ndarray) and (isinstance(given, (str, bytes)) or not isinstance(given, Sequence)):
        raise MeasurementError(
            f"{what} must be an array ({count}, {len(metrics)}), a list of dicts or a data frame, got {given!r}"
        )
    if len(given) and any(isinstance(row, Mapping) for row in given):
        given = [_row(row, metrics, what, place) for place, row in enumerate(given)]
    try:
        values = np.asarray(given)
        numbers = values.astype(float)
    except (TypeError, ValueError) as error:
        raise MeasurementError(f"{what} must be numbers, one row of {metrics} for each assignment: {error}") from error
    if values.dtype.kind not in "iuf":
        raise MeasurementError(f"{what} must be numbers, got {_not_a_number(given, values)}")
    if numbers.shape == (len(metrics),) and count == 1:
        numbers = numbers[None]
    if numbers.shape != (count, len(metrics)):
        raise MeasurementError(
            f"{what} must have shape {(count, len(metrics))}, one row for each assignment in the order {metrics}, got "
            f"{numbers.shape}"
        )
    _finite(numbers, metrics, what)
    return numbers


def read_unit_counts(units: Any, count: int, assignments: Sequence[Labels] = ()) -> FloatArray:
    """Return the number of units of each of `count` assignments, from one number for all or one for each."""
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
    if not ((counts > 0) & (counts <= MAX_METRIC)).all():
        raise MeasurementError("units must be positive numbers; drop an assignment that no unit saw")
    return counts


def check_observations(
    observations: Sequence[Observation], metrics: tuple[str, ...], candidates: int, segments: Sequence[str] = ()
) -> None:
    """Check the observations of one round: one version, known candidates and segments, finite means, covariances."""
    if not observations:
        raise MeasurementError("a round needs at least one observation")
    versions = sorted({observation.version for observation in observations})
    if len(versions) > 1:
        raise MeasurementError(f"one call observes one round, got policy versions {versions}; observe them one by one")
    for place, observation in enumerate(observations):
        what = f"observation {place}"
        if isinstance(observation.candidate, bool) or not 0 <= observation.candidate < candidates:
            raise MeasurementError(
                f"{what} names candidate {observation.candidate!r}; this study has 0 to {candidates - 1}"
            )
        _check_segment(observation, segments, what)
        if not 0 < observation.units < float("inf"):
            raise MeasurementError(f"{what} has {observation.units!r} units; leave out candidates that no unit saw")
        read_vectors([list(observation.mean)], metrics, 1, f"the mean of {what}")
        if observation.covariates:
            names = tuple(f"covariate {number}" for number in range(len(observation.covariates)))
            read_vectors([list(observation.covariates)], names, 1, f"the covariates of {what}")
        if observation.covariance is not None:
            _check_covariance(observation, len(metrics) + len(observation.covariates), what)
        elif observation.covariates:
            raise MeasurementError(
                f"{what} has covariates, and covariance is None; give the covariance of its mean and covariates, with "
                "the metrics first, or leave the covariates out"
            )
    widths = [len(observation.covariates) for observation in observations]
    if len(set(widths)) > 1:
        place = next(place for place, width in enumerate(widths) if width != widths[0])
        raise MeasurementError(
            f"observation {place} has {widths[place]} covariates, and observation 0 has {widths[0]}; give all "
            "observations of a round the same ones"
        )
    learned = [(observation.candidate, observation.segment) for observation in observations if not observation.control]
    if len(set(learned)) < len(learned):
        twice, segment = next(cell for cell in learned if learned.count(cell) > 1)
        where = "" if segment is None else f" in segment {segment!r}"
        raise MeasurementError(
            f"candidate {twice} is observed twice in one round{where}; merge its units into one observation"
        )


def _check_segment(observation: Observation, segments: Sequence[str], what: str) -> None:
    if not segments and observation.segment is not None:
        raise MeasurementError(
            f"{what} has the segment {observation.segment!r}, and this study has no segments; pass segments= to Study, "
            "or merge the units of all segments"
        )
    if segments and observation.segment not in segments:
        raise MeasurementError(
            f"{what} has the segment {observation.segment!r}; this study has {', '.join(map(repr, segments))}"
        )
    if segments and observation.covariates:
        raise MeasurementError(f"{what} has covariates, which a study with segments does not use yet; leave them out")


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


def _not_a_number(given: Any, values: Any) -> str:
    """Return the first value that is not a number, with its row, for a message."""
    for place, row in enumerate(given):
        for value in row if isinstance(row, (list, tuple)) else [row]:
            if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
                return f"{value!r} in row {place}; drop an assignment that was not measured"
    return f"{values.dtype} values"


def _finite(numbers: FloatArray, metrics: tuple[str, ...], what: str) -> None:
    bad = ~(np.abs(numbers) <= MAX_METRIC)  # catches NaN as well
    if bad.any():
        row, column = map(int, np.argwhere(bad)[0])
        raise MeasurementError(
            f"{what} has {metrics[column]} = {numbers[row, column]} in row {row}; every value must be finite and at "
            f"most {MAX_METRIC:g}. Nothing was recorded; drop that assignment or measure it again"
        )


def _check_covariance(observation: Observation, width: int, what: str) -> None:
    matrix = np.asarray(observation.covariance, dtype=float)
    if matrix.shape != (width, width) or not np.isfinite(matrix).all():
        raise MeasurementError(f"the covariance of {what} must be {width} × {width} finite numbers, got {matrix.shape}")
    scale = float(np.abs(matrix).max())
    if scale and (np.abs(matrix - matrix.T).max() > 1e-9 * scale or np.linalg.eigvalsh(matrix)[0] < -1e-9 * scale):
        raise MeasurementError(f"the covariance of {what} is not symmetric and positive semi-definite")


def build_round(observations: Sequence[Observation], policy: Policy) -> RoundResult:
    """Return a round observed under a policy: every unit is a draw, so shares are proportional to units.

    >>> rows = [Observation(0, k, units=30 * k, mean=(float(k),)) for k in (1, 2)]
    >>> build_round(rows, Policy(0, (0.2, 0.4, 0.4))).sample.shares.round(3).tolist()
    [0.333, 0.667]
    """
    learning = [observation for observation in observations if not observation.control]
    if not learning:
        raise MeasurementError("every observation is marked as control; the policy's own units are needed to learn")
    probabilities = np.array([policy.probabilities[observation.candidate] for observation in learning])
    if not probabilities.all():
        stray = learning[int(np.argmin(probabilities))].candidate
        raise MeasurementError(
            f"candidate {stray} was not served by policy version {policy.version}: its probability is 0"
        )
    units = np.array([observation.units for observation in learning])
    metrics = len(learning[0].mean)
    control = _control([observation for observation in observations if observation.control])
    covariances, covariates = None, None
    if all(observation.covariance is not None for observation in learning):
        covariances = np.array([observation.covariance for observation in learning])
    if learning[0].covariates:
        means = np.array([observation.covariates for observation in learning], dtype=float)
        covariates = RoundCovariates(means, covariances, control)
    return RoundResult(
        served=np.array(policy.probabilities),
        sample=Sample(
            candidates=np.array([observation.candidate for observation in learning], dtype=np.intp),
            metrics=np.array([observation.mean for observation in learning], dtype=float),
            probabilities=probabilities,
            shares=units / units.sum(),
        ),
        covariances=None if covariances is None else covariances[:, :metrics, :metrics],
        units=units,
        control=None if control is None else control.take(metrics),
        covariates=covariates,
    )


def _control(observations: Sequence[Observation]) -> ControlMeans | None:
    """Return the control of a round with its covariates, pooled by units; None without units or covariances."""
    if not observations or any(observation.covariance is None for observation in observations):
        return None
    units = np.array([observation.units for observation in observations])
    shares = units / units.sum()
    mean = shares @ np.array([(*observation.mean, *observation.covariates) for observation in observations])
    covariance = np.einsum("q,qij->ij", shares**2, np.array([observation.covariance for observation in observations]))
    return ControlMeans(mean, covariance, float(units.sum()))
