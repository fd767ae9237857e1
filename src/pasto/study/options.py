"""Options of a study, checked and in the form that the study works with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pasto.errors import InputError, OptionError, UnsupportedError
from pasto.objective import Objective
from pasto.optimize.learners import Learner, Thompson, make_learner
from pasto.records import Value
from pasto.space import Candidates, Space
from pasto.study.candidate_growth import choose_first_points

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame

NEW_NAMES = {
    "control": "control_share",
    "budget": "loss_budget",
    "cap": "max_share",
    "entry": "new_candidate_share",
}
"""Options of older versions, and their names now."""


def choose_learner(choice: str | Learner[Any], space: Space | None) -> Learner[Any]:
    """Return the learner; a continuous space needs one that shares strength and takes in new points."""
    if space is None:
        return make_learner(choice)
    if choice == "thompson":
        return Thompson(structure="process")
    if isinstance(choice, Thompson) and choice.structure == "process" and choice.contrast is None:
        return choice
    raise UnsupportedError(
        "a continuous space needs learner='thompson' (or Thompson(structure='process') without contrast); for other "
        "learners draw candidates from it first, with space.grid() or space.sobol(64)"
    )


def choose_candidates(
    given: Candidates | Space | Sequence[Mapping[str, Value]] | IntoDataFrame, baseline: object, seed: int
) -> Candidates:
    """Return the candidates to begin with; of a space, a spread of points with the baseline first."""
    if isinstance(given, Candidates):
        return given
    if not isinstance(given, Space):
        return Candidates.from_rows(given)
    points = choose_first_points(given, seed)
    if not isinstance(baseline, Mapping):
        return points
    if not given.contains(baseline):
        raise InputError(f"the baseline {dict(baseline)!r} does not lie in the space {given!r}")
    rows = [row for row in points if row != dict(baseline)]
    return Candidates.from_rows([dict(baseline), *rows])


def check_natural(value: object, name: str) -> int:
    """Return a whole number that is not negative; `name` is the option that it was given for."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise OptionError(f"{name} must be a whole number that is not negative, got {value!r}")
    return int(value)


def check_control_share(share: float, baseline: int | None) -> float:
    """Return the share of traffic that stays on the baseline."""
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
        raise OptionError(f"control_share is a share of traffic from 0 to below 1, got {share!r}")
    if share and baseline is None:
        raise OptionError("control_share= keeps a share of traffic on the baseline; name one with baseline=")
    return float(share)


def spread_loss_budget(budget: float | Mapping[str, float] | None, objective: Objective) -> dict[str, float]:
    """Return the loss budget of each guardrail, from one number for all or from one for each."""
    if budget is None:
        return {}
    if isinstance(budget, Mapping):
        return {name: float(loss) for name, loss in budget.items()}
    return dict.fromkeys(objective.names, float(budget))


def find_candidate(candidates: Candidates, given: int | str | Mapping[str, Value] | None) -> int | None:
    """Return the index of the baseline, given by its index, its name or its values."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        return candidates.find(given)
    if isinstance(given, str):
        return candidates.index(given)
    index = check_natural(given, "baseline")
    if index >= len(candidates):
        raise InputError(f"baseline {index} is not a candidate; this study has 0 to {len(candidates) - 1}")
    return index
