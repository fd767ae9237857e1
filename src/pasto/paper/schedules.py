"""Algorithm 1 with the schedules of the simulations and with those of the theorems, over several horizons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from pasto.objective import Array
from pasto.optimize.bounds import Constants
from pasto.optimize.learners import Algorithm1
from pasto.paper.curves import Curve
from pasto.paper.experiment import Size
from pasto.sim import Moment, Trace, World, monte_carlo

TRUE = "theorem, true G"
"""The name of the schedules that the theorems prescribe, with the G of the truth."""
ENOUGH = 10_000
"""Rounds from which on a claim about large T is judged."""
SMALL = 1.0
"""A G that leaves room to learn: with the true one the floor stays at 3/4 for thousands of rounds."""


@dataclass(frozen=True, slots=True)
class Schedules:
    """A way to set ε_t and γ, by name.

    >>> Schedules("theorem, G = 1", lambda horizon: Algorithm1.theorem(1.0, horizon)).learner(100).step.at(1)
    0.1
    """

    name: str
    learner: Callable[[int], Algorithm1]
    """From the horizon T."""
    anytime: bool = False
    """Whether the horizon makes no difference, so that one run serves every T."""


def schedules(constants: Constants) -> tuple[Schedules, ...]:
    """The simulations' ε_t = 0.1/√(t+10) and γ = 0.1/K, and the theorems' with the true G and with a small one.

    >>> [one.name for one in schedules(Constants(gradient=55.17, slope=20.02, size=3.46, smoothness=10.0))]
    ['simulations', 'theorem, true G', 'theorem, G = 1']
    """
    return (
        Schedules("simulations", lambda horizon: Algorithm1(), anytime=True),
        Schedules(TRUE, partial(Algorithm1.theorem, constants.gradient)),
        Schedules(f"theorem, G = {SMALL:g}", partial(Algorithm1.theorem, SMALL)),
    )


def horizons(rounds: int) -> tuple[int, ...]:
    """10, 30, 100, 300, … up to `rounds`, and `rounds` itself.

    >>> horizons(2_000)
    (10, 30, 100, 300, 1000, 2000)
    """
    decades = [10**power for power in range(1, 12)]
    return tuple(sorted({each for ten in decades for each in (ten, 3 * ten) if each < rounds} | {rounds}))


def measured(
    setting: Schedules,
    world: World,
    size: Size,
    wanted: Mapping[str, Callable[[Trace], Array]],
    totals: Mapping[str, Callable[[Moment], Array]] | None = None,
    label: str = "",
) -> dict[str, Curve]:
    """Each wanted quantity of a trace, (runs, checkpoints), at every horizon.

    A schedule with γ = 1/√T needs a run of its own for each T, of which only the end counts.
    """
    marks = horizons(size.rounds)
    columns: dict[str, list[Array]] = {name: [] for name in wanted}
    for horizon in (size.rounds,) if setting.anytime else marks:
        trace = monte_carlo(
            setting.learner(horizon),
            world,
            runs=size.runs,
            rounds=horizon,
            seed=size.seed,
            checkpoints=marks if setting.anytime else (horizon,),
            totals=totals,
            progress=size.progress,
            label=f"{label}{setting.name}" + ("" if setting.anytime else f", T = {horizon:,}"),
        )
        for name, take in wanted.items():
            columns[name].append(take(trace))
    return {name: Curve(marks, np.hstack(parts)) for name, parts in columns.items()}
