"""Value of mixing on users who were not used to choose the mixture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pasto.arrays import FloatArray
from pasto.blend import Blend
from pasto.objective import Objective
from pasto.optimize import solve
from pasto_research.paper.replay.users import UserSample


@dataclass(frozen=True, slots=True, eq=False)
class Halves:
    """Blend and single candidate chosen on a random half of the users, both measured on the other half."""

    blend: FloatArray
    """(splits, metrics): of the blend, on the other half."""
    single: FloatArray
    """(splits, metrics): of the single candidate."""
    chosen_gain: FloatArray
    """(splits,): lead of the blend in f on the half that chose it."""
    other_gain: FloatArray
    """(splits,): lead in f on the other half, by that half's own thresholds.

    A missed hard guardrail is charged its price of the first half. A blend lies exactly at its limits, so it misses
    them about every other time on other users, and its lead must not come from that.
    """

    @property
    def difference(self) -> FloatArray:
        """(splits, metrics): the blend's lead."""
        return self.blend - self.single


def halves(
    user_sample: UserSample,
    objective: Callable[[UserSample], Objective],
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
    blends, singles, chosen_gain, other_gain = [], [], [], []
    for number in range(splits):
        order = np.random.default_rng([seed, number]).permutation(user_sample.users)
        chooser, other = (user_sample.part(np.sort(order[start::2])) for start in (0, 1))
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
        chosen_gain.append(first(here @ shares) - first(here[:, answer.best_single]))
        other_gain.append(second(blends[-1]) - second(singles[-1]))
    shape = (len(blends), len(user_sample.metrics))
    return Halves(np.reshape(blends, shape), np.reshape(singles, shape), np.array(chosen_gain), np.array(other_gain))


def _priced(wanted: Objective, answer: Blend) -> Callable[[FloatArray], float]:
    """Return f, with a missed hard guardrail charged its price."""
    form = wanted.form()
    prices = np.where(form.hard, [answer.prices[name] for name in wanted.names], 0.0)
    return lambda metrics: float(form.smooth(metrics) + np.minimum(0.0, form.slack(metrics)) @ prices)
