"""Curves of the theorem experiments: a quantity measured at several T, and the power of T that it follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.optimize.learners import Algorithm1
from pasto.sim import LearningTrace, RunRound, World, monte_carlo
from pasto_research.paper.experiment import Size
from pasto_research.paper.theory_bounds import Constants

RESAMPLES = 400


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Curve of a quantity, measured in every run after several numbers of rounds.

    >>> import numpy as np
    >>> curve = Curve((100, 400), np.array([[4.0, 2.0], [6.0, 3.0]]))
    >>> curve.mean, curve.exponent()[0]
    (array([5. , 2.5]), -0.5)
    """

    rounds: tuple[int, ...]
    """T."""
    values: FloatArray
    """(runs, rounds)."""

    @property
    def mean(self) -> FloatArray:
        """(rounds,)."""
        return np.asarray(self.values.mean(axis=0))

    @property
    def error(self) -> FloatArray:
        """(rounds,): the standard error of the mean; NaN for a single run."""
        runs = len(self.values)
        if runs == 1:
            return np.full(len(self.rounds), np.nan)
        return np.asarray(self.values.std(axis=0, ddof=1) / np.sqrt(runs))

    def at(self, rounds: int) -> tuple[float, float]:
        """Return mean and standard error after that many rounds."""
        place = self.rounds.index(rounds)
        return float(self.mean[place]), float(self.error[place])

    def exponent(self, since: int = 1) -> tuple[float, float] | None:
        """Return the power of T that the mean follows from `since` on, and its standard error by resampling runs.

        It fits a line to the logarithms; None if a mean is not positive or there are not two points. The
        error is NaN if there are too few runs.
        """
        used = [index for index, rounds in enumerate(self.rounds) if rounds >= since]
        runs, values = len(self.values), self.values[:, used]
        if len(used) < 2 or not (values.mean(axis=0) > 0).all():
            return None
        times = np.log([self.rounds[index] for index in used])
        line = (times - times.mean()) / ((times - times.mean()) ** 2).sum()
        counts = np.random.default_rng(0).multinomial(runs, np.full(runs, 1.0 / runs), size=RESAMPLES)
        means = counts @ values / runs
        spread = float((np.log(means) @ line).std(ddof=1)) if runs > 1 and (means > 0).all() else float("nan")
        return round(float(np.log(values.mean(axis=0)) @ line), 12), spread

    def plain(self) -> dict[str, Any]:
        """Return rounds, means and errors as plain values."""
        return {"rounds": self.rounds, "mean": self.mean, "error": self.error}


def describe_power(power: tuple[float, float] | None) -> str:
    """Return an exponent as text.

    >>> describe_power((-0.8123, 0.021)), describe_power(None)
    ('T^−0.81 ± 0.02', 'no power of T')
    """
    if power is None:
        return "no power of T"
    return f"T^{power[0]:.2f} ± {power[1]:.2f}".replace("-", "−")


TRUE_G = "theorem, true G"
"""Name of the schedules that the theorems prescribe, with the true G."""

LARGE_T_ROUNDS = 10_000
"""Rounds from which a claim about large T is judged."""

SMALL_G = 1.0
"""A G that permits learning: with the true one the floor stays at 3/4 for thousands of rounds."""


@dataclass(frozen=True, slots=True)
class Schedules:
    """Schedules of ε_t and γ, by name.

    >>> Schedules("theorem, G = 1", lambda horizon: Algorithm1.theorem(1.0, horizon)).learner(100).step.at(1)
    0.1
    """

    name: str
    learner: Callable[[int], Algorithm1]
    """From the horizon T."""
    anytime: bool = False
    """True if the horizon makes no difference, so that one run serves every T."""


def schedules(constants: Constants) -> tuple[Schedules, ...]:
    """Return the simulations' ε_t = 0.1/√(t+10) and γ = 0.1/K, and the theorems' with the true G and with a small one.

    >>> [one.name for one in schedules(Constants(gradient=55.17, slope=20.02, size=3.46, smoothness=10.0))]
    ['simulations', 'theorem, true G', 'theorem, G = 1']
    """
    return (
        Schedules("simulations", lambda horizon: Algorithm1(), anytime=True),
        Schedules(TRUE_G, partial(Algorithm1.theorem, constants.gradient)),
        Schedules(f"theorem, G = {SMALL_G:g}", partial(Algorithm1.theorem, SMALL_G)),
    )


def horizons(rounds: int) -> tuple[int, ...]:
    """Return 10, 30, 100, 300, … up to `rounds`, and `rounds` itself.

    >>> horizons(2_000)
    (10, 30, 100, 300, 1000, 2000)
    """
    decades = [10**power for power in range(1, 12)]
    return tuple(sorted({each for ten in decades for each in (ten, 3 * ten) if each < rounds} | {rounds}))


def measure_curves(
    setting: Schedules,
    world: World,
    size: Size,
    quantities: Mapping[str, Callable[[LearningTrace], FloatArray]],
    totals: Mapping[str, Callable[[RunRound], FloatArray]] | None = None,
    label: str = "",
) -> dict[str, Curve]:
    """Return each quantity of a trace, (runs, checkpoints), at every horizon.

    A schedule with γ = 1/√T needs a run of its own for each T, of which only the end counts.
    """
    horizon_rounds = horizons(size.rounds)
    columns: dict[str, list[FloatArray]] = {name: [] for name in quantities}
    for horizon in (size.rounds,) if setting.anytime else horizon_rounds:
        trace = monte_carlo(
            setting.learner(horizon),
            world,
            runs=size.runs,
            rounds=horizon,
            seed=size.seed,
            checkpoints=horizon_rounds if setting.anytime else (horizon,),
            totals=totals,
            progress=size.progress,
            label=f"{label}{setting.name}" + ("" if setting.anytime else f", T = {horizon:,}"),
        )
        for name, take in quantities.items():
            columns[name].append(take(trace))
    return {name: Curve(horizon_rounds, np.hstack(parts)) for name, parts in columns.items()}
