"""What a study is made with, checked and in the form that it works with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pasto.errors import InputError, OptionError, UnsupportedError
from pasto.objective import Objective
from pasto.optimize.learners import Learner, Thompson, learner
from pasto.records import Value
from pasto.space import Candidates, Space
from pasto.study.candidate_growth import first_points

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame


def learner_over(choice: str | Learner[Any], space: Space | None) -> Learner[Any]:
    """The learner meant; over a continuous space, one that can share strength and take in new points."""
    if space is None:
        return learner(choice)
    if choice == "thompson":
        return Thompson(structure="process")
    if isinstance(choice, Thompson) and choice.structure == "process" and choice.contrast is None:
        return choice
    raise UnsupportedError(
        "a continuous space needs learner='thompson' (or Thompson(structure='process') without contrast); for other "
        "learners draw candidates from it first, with space.grid() or space.sobol(64)"
    )


def first_candidates(
    given: Candidates | Space | Sequence[Mapping[str, Value]] | IntoDataFrame, baseline: object, seed: int
) -> Candidates:
    """The candidates to begin with; of a space, a spread of points with the baseline first."""
    if isinstance(given, Candidates):
        return given
    if not isinstance(given, Space):
        return Candidates.from_rows(given)
    spread = first_points(given, seed)
    if not isinstance(baseline, Mapping):
        return spread
    if not given.contains(baseline):
        raise InputError(f"the baseline {dict(baseline)!r} does not lie in the space {given!r}")
    rows = [row for row in spread if row != dict(baseline)]
    return Candidates.from_rows([dict(baseline), *rows])


def natural(value: object, name: str) -> int:
    """A count that a caller gave."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise OptionError(f"{name} must be a whole number that is not negative, got {value!r}")
    return int(value)


def control_share(control: float, baseline: int | None) -> float:
    """The share of traffic that stays on the baseline."""
    if isinstance(control, bool) or not isinstance(control, (int, float)) or not 0 <= control < 1:
        raise OptionError(f"control is a share of traffic from 0 to below 1, got {control!r}")
    if control and baseline is None:
        raise OptionError("control= holds a share of traffic on the baseline, and none was named; pass baseline=")
    return float(control)


def losses(budget: float | Mapping[str, float] | None, objective: Objective) -> dict[str, float]:
    """One loss for every guardrail, or each its own."""
    if budget is None:
        return {}
    if isinstance(budget, Mapping):
        return {name: float(loss) for name, loss in budget.items()}
    return dict.fromkeys(objective.names, float(budget))


def place_of(candidates: Candidates, baseline: int | str | Mapping[str, Value] | None) -> int | None:
    """The baseline's index, from its index, its name or its values."""
    if baseline is None:
        return None
    if isinstance(baseline, Mapping):
        return candidates.find(baseline)
    if isinstance(baseline, str):
        return candidates.index(baseline)
    place = natural(baseline, "baseline")
    if place >= len(candidates):
        raise InputError(f"baseline {place} is not a candidate; this study has 0 to {len(candidates) - 1}")
    return place
