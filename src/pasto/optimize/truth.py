"""The door of `solve`: a table of means, checked once against its objective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pasto.errors import BadOption, BadTruth
from pasto.objective import Array, Objective, Utility


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Means that fit their objective, (metrics, candidates), with everyone's name."""

    metrics: tuple[str, ...]
    """The objective's own metrics in its order, then any others."""
    means: Array
    names: tuple[str, ...]

    @classmethod
    def read(cls, given: Any, objective: Objective, names: Sequence[str] | None = None) -> Truth:
        """Take what a caller of `solve` gave, or say what is wrong with it."""
        metrics, means = (
            _from_mapping(given, objective) if isinstance(given, Mapping) else _from_array(given, objective)
        )
        count = means.shape[1]
        if not count:
            raise BadTruth("the truth has no candidates; give each metric one mean for each candidate")
        labels = tuple(map(str, range(count) if names is None else names))
        if len(labels) != count:
            raise BadTruth(f"names= has {len(labels)} names for the truth's {count} candidates; give one for each")
        if names is not None and len(set(labels)) < count:
            twice = Counter(labels).most_common(1)[0][0]
            raise BadTruth(f"names= has {twice!r} twice; a candidate's name is its own")
        if not np.isfinite(means).all():
            row, column = np.argwhere(~np.isfinite(means))[0]
            raise BadTruth(
                f"the mean of {metrics[row]!r} for candidate {labels[column]!r} is {means[row, column]}; every mean "
                "must be a finite number"
            )
        truth = cls(metrics, means, labels)
        truth._check_ratios(objective)
        truth._check_ranges(objective)
        return truth

    def index(self, candidate: int | str) -> int:
        """Where a candidate stands, by its name or its index."""
        if isinstance(candidate, str):
            if candidate in self.names:
                return self.names.index(candidate)
        elif not isinstance(candidate, bool) and 0 <= candidate < len(self.names):
            return int(candidate)
        shown = ", ".join(self.names[:5]) + (", …" if len(self.names) > 5 else "")
        raise BadOption(
            f"baseline={candidate!r} is no candidate; name one of {shown}, or its index from 0 to {len(self.names) - 1}"
        )

    def _check_ratios(self, objective: Objective) -> None:
        for ratio in objective.ratios:
            bottoms = self.means[self.metrics.index(ratio.denominator)]
            if not (bottoms > 0).all():
                column = int(np.argmin(bottoms > 0))
                raise BadTruth(
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
                raise BadTruth(
                    f"the mean of {name!r} for candidate {self.names[column]!r} is {row[column]:g}, outside the range "
                    f"({low:g}, {high:g}) on which the utility was checked; widen over="
                )


def _from_mapping(given: Mapping[str, Any], objective: Objective) -> tuple[tuple[str, ...], Array]:
    missing = [name for name in objective.metrics if name not in given]
    if missing:
        raise BadTruth(
            f"the truth lacks {', '.join(map(repr, missing))}, which the objective reads; it has "
            f"{', '.join(map(repr, given)) or 'nothing'}"
        )
    metrics = (*objective.metrics, *(name for name in given if name not in objective.metrics))
    rows = [_numbers(given[name], f"the means of {name!r}") for name in metrics]
    for name, row in zip(metrics, rows, strict=True):
        if row.ndim != 1:
            raise BadTruth(f"the means of {name!r} must be a list, one number for each candidate, got {row.ndim} axes")
        if len(row) != len(rows[0]):
            raise BadTruth(
                f"{metrics[0]!r} has {len(rows[0])} means and {name!r} has {len(row)}; give every metric one for each "
                "candidate"
            )
    return metrics, np.array(rows)


def _from_array(given: Any, objective: Objective) -> tuple[tuple[str, ...], Array]:
    means = _numbers(given, "the truth")
    wanted = objective.metrics
    if means.ndim != 2 or len(means) != len(wanted):
        raise BadTruth(
            f"the truth must be an array (metrics, candidates) with the {len(wanted)} rows {', '.join(wanted)}, got "
            f"shape {means.shape}; or give lists by metric name"
        )
    return wanted, means


def _numbers(given: Any, what: str) -> Array:
    try:
        plain = np.asarray(given)
        if plain.dtype.kind not in "iufO":
            raise BadTruth(f"{what} must be numbers, got {plain.dtype.name}")
        return plain.astype(float)
    except (TypeError, ValueError) as error:
        if isinstance(error, BadTruth):
            raise
        raise BadTruth(f"{what} must be numbers in equal rows: {error}") from error
