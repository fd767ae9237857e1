"""What mixing is worth on users who did not help to choose the mixture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pasto.objective import Array, Objective
from pasto.optimize import solve
from pasto.paper.replay.crowd import Crowd


@dataclass(frozen=True, slots=True, eq=False)
class Halves:
    """Blend and single candidate chosen on a random half of the users, both measured on the other half."""

    blend: Array
    """(splits, metrics): of the blend, on the other half."""
    single: Array
    """(splits, metrics): of the single candidate."""
    promised: Array
    """(splits,): how much more f the blend had on the half that chose it; hard guardrails left aside."""
    kept: Array
    """(splits,): how much more f it had on the other half."""

    @property
    def difference(self) -> Array:
        """(splits, metrics): the blend's lead."""
        return self.blend - self.single


def halves(
    crowd: Crowd,
    objective: Callable[[Crowd], Objective],
    *,
    choices: int | None = None,
    splits: int = 50,
    seed: int = 1,
) -> Halves:
    """Choose on one half, measure on the other, many times; splits with no single candidate to compare are left out.

    Only the first `choices` candidates can be chosen; all can be read by the objective's maker, given the half.

    The differences of different splits share their users, so their spread is that of one split and its standard error
    does not shrink with their number.
    """
    blends, singles, promised, kept = [], [], [], []
    for number in range(splits):
        order = np.random.default_rng([seed, number]).permutation(crowd.users)
        chooser, other = (crowd.part(np.sort(order[start::2])) for start in (0, 1))
        here, there = chooser.truth[:, :choices], other.truth[:, :choices]
        wanted = objective(chooser)
        answer = solve(here, wanted)
        if answer.single is None:
            continue
        shares, value = np.array(answer.probabilities), wanted.form().smooth
        blends.append(there @ shares)
        singles.append(there[:, answer.single])
        promised.append(float(value(here @ shares) - value(here[:, answer.single])))
        kept.append(float(value(blends[-1]) - value(singles[-1])))
    shape = (len(blends), len(crowd.metrics))
    return Halves(np.reshape(blends, shape), np.reshape(singles, shape), np.array(promised), np.array(kept))
