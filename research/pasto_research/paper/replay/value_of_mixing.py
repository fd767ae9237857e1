"""What mixing is worth on users who did not help to choose the mixture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pasto.arrays import FloatArray
from pasto.objective import Objective
from pasto.optimize import solve
from pasto.records import Blend
from pasto_research.paper.replay.users import Crowd


@dataclass(frozen=True, slots=True, eq=False)
class Halves:
    """Blend and single candidate chosen on a random half of the users, both measured on the other half."""

    blend: FloatArray
    """(splits, metrics): of the blend, on the other half."""
    single: FloatArray
    """(splits, metrics): of the single candidate."""
    promised: FloatArray
    """(splits,): how much more f the blend had on the half that chose it."""
    kept: FloatArray
    """(splits,): how much more f it had on the other half, by that half's own thresholds.

    What misses a hard guardrail there is charged its price, as it was where the blend was chosen: a blend sits right at
    its limits, so elsewhere it misses about every other time, and a lead that is paid for so is none.
    """

    @property
    def difference(self) -> FloatArray:
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
        answer = solve(wanted.by_metric(here), wanted)
        if answer.best_single is None:
            continue
        shares, first, second = (
            np.array(answer.probabilities),
            _priced(wanted, answer),
            _priced(objective(other), answer),
        )
        blends.append(there @ shares)
        singles.append(there[:, answer.best_single])
        promised.append(first(here @ shares) - first(here[:, answer.best_single]))
        kept.append(second(blends[-1]) - second(singles[-1]))
    shape = (len(blends), len(crowd.metrics))
    return Halves(np.reshape(blends, shape), np.reshape(singles, shape), np.array(promised), np.array(kept))


def _priced(wanted: Objective, answer: Blend) -> Callable[[FloatArray], float]:
    """f, where missing a hard guardrail costs its price instead of everything."""
    form = wanted.form()
    prices = np.where(form.hard, [answer.prices[name] for name in wanted.names], 0.0)
    return lambda metrics: float(form.smooth(metrics) + np.minimum(0.0, form.slack(metrics)) @ prices)
